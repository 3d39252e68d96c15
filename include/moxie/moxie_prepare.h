/* SPDX-License-Identifier: Apache-2.0
 *
 * moxie_prepare.h - weights as other engines' kernels want them, one expert at a time, and back.
 *
 *     moxie_preparation_create       one layer's configuration, a layout, this rank's share -> a preparation
 *     moxie_preparation_tensor_at    the tensors that one expert becomes: names, dtypes, shapes
 *     moxie_preparation_survey       only if info.surveys: every expert of this rank, before the first is packed
 *     moxie_preparation_pack         one expert -> its tensors, in the caller's memory
 *     moxie_preparation_unpack       the way back, byte for byte
 *
 * A target's caller wants each tensor stacked over this rank's experts, [E_local, ...]: put the tensors of the expert
 * in slot s at s * bytes. Peak memory is one expert's views and tensors and a few rows per worker; a matrix whose rows
 * are not dense in the checkpoint (transposed, words along columns) is turned over once in scratch of its own size.
 *
 * The rules of moxie.h hold here too.
 */
#ifndef MOXIE_PREPARE_H
#define MOXIE_PREPARE_H

#include <moxie/moxie.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------------------- */
/* Layouts                                                                                     */
/* ------------------------------------------------------------------------------------------- */

#define MOXIE_PREPARE_LIMITS 8

typedef struct moxie_prepare_limit {
    const char *extent; /* "hidden" or "intermediate"; of one rank's share */
    int32_t multiple;   /* that it must be a multiple of */
    int32_t pads;       /* 1: the target's own loader pads up to it, so `pad` may be asked for */
    const char *why;
} moxie_prepare_limit;

/* Strings are static. */
typedef struct moxie_prepare_layout {
    uint32_t struct_size;
    const char *name;    /* "trtllm-mxint4" */
    const char *summary; /* one line */
    const char *caller;  /* whose kernel reads it, called how */
    char takes[256];     /* which weights: elements, scales, groups, zero points, biases */
    int32_t surveys;     /* 1: moxie_preparation_survey() comes first */
    int32_t n_limits;
    moxie_prepare_limit limits[MOXIE_PREPARE_LIMITS];
} moxie_prepare_layout;
#define MOXIE_PREPARE_LAYOUT_INIT MOXIE_INIT(moxie_prepare_layout)

/* Layout i of this library; returns 0 past the last. `out` was set by its INIT macro. Immutable. */
MOXIE_API int moxie_prepare_layout_at(int32_t i, moxie_prepare_layout *out);

/* ------------------------------------------------------------------------------------------- */
/* Preparations                                                                                */
/* ------------------------------------------------------------------------------------------- */

typedef struct moxie_preparation moxie_preparation;

typedef struct moxie_preparation_options {
    uint32_t struct_size;
    const char *layout;
    int32_t pad; /* 1: extents that break a limit which pads are padded with zeros, gate and up each for itself; groups
                  * that do not divide a row are halved where the target does that, their scales repeated */
    /* Tensor parallel: this rank's rows of gate and up and columns of down, cut at group boundaries before packing.
     * Shares are whole units of the layout's limits and the checkpoint's groups and words; where their number does not
     * divide, the first ranks have one more. The bias of down is rank 0's, zeros elsewhere. Size 0 and 1: none. */
    int32_t tp_size, tp_rank;
} moxie_preparation_options;
#define MOXIE_PREPARATION_OPTIONS_INIT MOXIE_INIT(moxie_preparation_options)

/* Chooses nothing and packs nothing yet. Of `config` are read: experts, hidden, intermediate, activation, w13, w2, a13,
 * a2, bias13, bias2 and ep_size, ep_rank, ep_map (this rank's share of the experts). `example`: any expert of the
 * layer, for what a configuration leaves open (dtypes of zero points and biases, words); its views are only read here.
 * MOXIE_ERR_ARGUMENT for an unknown layout lists names like it; MOXIE_ERR_UNSUPPORTED says which rule of the layout is
 * broken, on which rank, and the nearest shape or number of ranks that would do. */
MOXIE_API moxie_status moxie_preparation_create(const moxie_layer_config *config,
                                                const moxie_preparation_options *options, const moxie_expert *example,
                                                moxie_preparation **out, moxie_error *error);
MOXIE_API void moxie_preparation_destroy(moxie_preparation *preparation);

typedef struct moxie_preparation_info {
    uint32_t struct_size;
    const char *layout;
    int64_t hidden, intermediate;               /* of the share, as in the checkpoint */
    int64_t padded_hidden, padded_intermediate; /* of the tensors; equal where nothing is padded */
    int64_t first_intermediate;                 /* where the share begins in the whole */
    int64_t whole_intermediate;
    int32_t surveys;
    int32_t n_tensors;
    uint64_t expert_bytes;  /* of all tensors of one expert */
    int32_t n_experts;      /* of this rank */
    const int32_t *experts; /* [n_experts] global indices by slot, ascending; the preparation's */
    int32_t repeat;         /* 1, or groups were made so many times smaller: each scale and zero point is repeated */
} moxie_preparation_info;
#define MOXIE_PREPARATION_INFO_INIT MOXIE_INIT(moxie_preparation_info)
/* `out` was set by its INIT macro. Immutable. */
MOXIE_API moxie_status moxie_preparation_get_info(const moxie_preparation *preparation, moxie_preparation_info *out,
                                                  moxie_error *error);

/* One tensor of one expert. Names that begin with "moxie." hold what the way back needs and no target reads. */
typedef struct moxie_prepared_tensor {
    const char *name;
    moxie_dtype dtype;
    int32_t rank; /* 0: one value; below MOXIE_MAX_RANK, so that there is room to stack */
    int64_t shape[MOXIE_MAX_RANK];
    uint64_t bytes;
} moxie_prepared_tensor;
/* Tensor i of n_tensors; returns 0 past the last. Strings are static. Immutable. */
MOXIE_API int moxie_preparation_tensor_at(const moxie_preparation *preparation, int32_t i, moxie_prepared_tensor *out);

/* Takes one expert's largest scales and the like into account; for each of this rank's experts, in any order, before
 * the first is packed. Does nothing where info.surveys is 0. One-thread-at-a-time. */
MOXIE_API moxie_status moxie_preparation_survey(moxie_preparation *preparation, const moxie_expert *expert,
                                                moxie_error *error);

/* What the survey found. Whoever unpacks elsewhere, without the experts, needs it beside the tensors; zero where
 * info.surveys is 0. */
typedef struct moxie_preparation_facts {
    uint32_t struct_size;
    float scale_most[2], scale_least[2]; /* decoded scales of w13 and w2: the largest, and the smallest above zero */
    float a13_most, a2_most;             /* static activation scales */
} moxie_preparation_facts;
#define MOXIE_PREPARATION_FACTS_INIT MOXIE_INIT(moxie_preparation_facts)
/* Immutable; `out` was set by its INIT macro. */
MOXIE_API moxie_status moxie_preparation_get_facts(const moxie_preparation *preparation, moxie_preparation_facts *out,
                                                   moxie_error *error);
/* In place of the survey. MOXIE_ERR_ARGUMENT, and no change, for numbers that no survey finds: not finite, below zero,
 * or a smallest scale without, or above, a largest. One-thread-at-a-time. */
MOXIE_API moxie_status moxie_preparation_set_facts(moxie_preparation *preparation, const moxie_preparation_facts *facts,
                                                   moxie_error *error);

/* Packs one expert, given whole (config's shape: the share is cut here). tensors[i]: memory of tensor i's bytes, any
 * alignment, not overlapping the views; every byte is written. `executor` NULL: this thread alone. The views are
 * checked first; MOXIE_ERR_UNSUPPORTED when this expert's numbers have no place in the layout, MOXIE_ERR_MEMORY when
 * there is none for the rows under way; tensors may then be half written. Immutable: several experts may be packed at a
 * time, but not on one executor. */
MOXIE_API moxie_status moxie_preparation_pack(const moxie_preparation *preparation, const moxie_expert *expert,
                                              void *const *tensors, const moxie_executor *executor, moxie_error *error);

/* The way back: writes this rank's share through the views of `expert`, whose memory is writable and shaped as those
 * that were packed; what belongs to other ranks is left alone, also the bias of down where it is not this rank's. Sets
 * the two static activation scales. Written are codes, scales, zero points, globals, biases and group indices, where
 * the views have any. Threads as moxie_preparation_pack. */
MOXIE_API moxie_status moxie_preparation_unpack(const moxie_preparation *preparation, void *const *tensors,
                                                moxie_expert *expert, const moxie_executor *executor,
                                                moxie_error *error);

#ifdef __cplusplus
}
#endif

#endif /* MOXIE_PREPARE_H */
