/* SPDX-License-Identifier: Apache-2.0
 *
 * moxie_prepare.h - packs weights for the kernels of other engines, one expert at a time, and unpacks them.
 *
 *     moxie_preparation_create       one layer's configuration, a layout, this rank's share -> a preparation
 *     moxie_preparation_tensor_at    the tensors that one expert becomes: names, dtypes, shapes
 *     moxie_preparation_survey       only if info.surveys: every expert of this rank, before the first is packed
 *     moxie_preparation_pack         one expert -> its tensors, in the caller's memory
 *     moxie_preparation_unpack       the way back, byte for byte
 *
 * The kernels want each tensor stacked over this rank's experts, [E_local, ...]: put the tensors of the expert in slot
 * s at s * bytes. Memory in use at a time: one expert's views and tensors, and a few rows per worker. A matrix whose
 * rows are not dense in the checkpoint (transposed, or with words along columns) is transposed in scratch memory of its
 * size.
 *
 * The rules of moxie.h about calls, threads and structs hold here too.
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

/* A layout of weights that another engine's kernel reads. Strings are static. */
typedef struct moxie_prepare_layout {
    uint32_t struct_size;
    const char *name;    /* "trtllm-mxint4" */
    const char *summary; /* one line */
    const char *caller;  /* which engine's kernel reads it, and by which call */
    char accepts[256];   /* which weights: elements, scales, groups, zero points, biases */
    int32_t surveys;     /* 1: moxie_preparation_survey() comes before the first expert is packed */
    int32_t n_limits;    /* moxie_prepare_limit_at */
    const char *release; /* the newest release of the engine that it is for: "vllm-0.33" */
    const char *also;    /* older releases that want the same tensors, separated by spaces; "" */
    int32_t is_default;  /* 1: the newest version of its name, which options without a release get */
} moxie_prepare_layout;
#define MOXIE_PREPARE_LAYOUT_INIT MOXIE_INIT(moxie_prepare_layout)

/* Layout i; returns 0 past the last, or when out->struct_size is wrong. Where releases of an engine want different
 * tensors, a layout has several versions: entries of the same name, one after another, the newest first. Immutable. */
MOXIE_API int moxie_prepare_layout_at(int32_t i, moxie_prepare_layout *out);

/* A rule of a layout: `extent` of one rank's share must be a multiple of `multiple`. Strings are static. */
typedef struct moxie_prepare_limit {
    uint32_t struct_size;
    int32_t multiple;
    const char *extent; /* "hidden" or "intermediate" */
    const char *why;    /* where the rule comes from */
    int32_t pads;       /* 1: the engine's own loader pads up to it, so `pad` is allowed */
} moxie_prepare_limit;
#define MOXIE_PREPARE_LIMIT_INIT MOXIE_INIT(moxie_prepare_limit)

/* Limit i of layout `layout`; returns 0 past the last, or when out->struct_size is wrong. Immutable. */
MOXIE_API int moxie_prepare_limit_at(int32_t layout, int32_t i, moxie_prepare_limit *out);

/* ------------------------------------------------------------------------------------------- */
/* Preparations                                                                                */
/* ------------------------------------------------------------------------------------------- */

typedef struct moxie_preparation moxie_preparation;

typedef struct moxie_preparation_options {
    uint32_t struct_size;
    const char *layout; /* its name */
    int32_t pad;        /* 1: an extent that breaks a limit with `pads` is padded with zeros, gate and up each on their
                         * own. A group that does not divide a row is halved, with its scale repeated, where the
                         * engine does that */
    /* Tensor parallel: this rank gets its rows of gate and up and its columns of down, cut at group boundaries before
     * packing. Shares are whole units of the layout's limits and of the checkpoint's groups and words; if their number
     * does not divide, the first ranks have one more. Rank 0 has the bias of down, the others zeros. Sizes 0 and 1:
     * everything. */
    int32_t tp_size, tp_rank;
    const char *release; /* which version of the layout: a release that it is for, "vllm-0.18". NULL or "": the newest.
                          * Unpacking needs the version that was packed */
    int32_t symmetric;   /* 1: the checkpoint's configuration says that all its zero points are the middle of the codes
                          * (GPTQ: "sym"). moe-wna16 then has no zero points, as its engine; it keeps them to unpack,
                          * and MOXIE_ERR_UNSUPPORTED when one is another. Other layouts do not ask */
} moxie_preparation_options;
#define MOXIE_PREPARATION_OPTIONS_INIT MOXIE_INIT(moxie_preparation_options)

/* Checks that the layer fits the layout; packs nothing yet. Of `config` it reads: experts, hidden, intermediate,
 * activation, w13, w2, a13, a2, bias13, bias2 and ep_size, ep_rank, ep_map (this rank's share of the experts).
 * `example` is any expert of the layer; it tells what a configuration leaves open: dtypes of zero points and biases,
 * words, and whether rows of gate and up alternate in memory (gpt-oss), which layouts for Marlin keep. Its views are
 * read only in this call. For an unknown layout or release the text of MOXIE_ERR_ARGUMENT lists similar names, or the
 * releases. MOXIE_ERR_UNSUPPORTED says which rule of the layout is broken, on which rank, and the nearest shape or
 * number of ranks that would do. Thread-safe. */
MOXIE_API moxie_status moxie_preparation_create(const moxie_layer_config *config,
                                                const moxie_preparation_options *options, const moxie_expert *example,
                                                moxie_preparation **out, moxie_error *error);
/* One-thread-at-a-time. */
MOXIE_API void moxie_preparation_destroy(moxie_preparation *preparation);

typedef struct moxie_preparation_info {
    uint32_t struct_size;
    const char *layout;
    int64_t hidden, intermediate;               /* of this rank's share, as in the checkpoint */
    int64_t padded_hidden, padded_intermediate; /* of its tensors; the same unless something is padded */
    int64_t first_intermediate;                 /* where the share begins in whole_intermediate */
    int64_t whole_intermediate;
    int32_t surveys;
    int32_t n_tensors;
    uint64_t expert_bytes;  /* of all tensors of one expert */
    int32_t n_experts;      /* of this rank */
    const int32_t *experts; /* [n_experts] global indices by slot, ascending; they live as long as the preparation */
    int32_t repeat;      /* 1; or N, when each group was cut into N smaller ones with the same scale and zero point */
    const char *release; /* the newest release that this version of the layout is for; static */
} moxie_preparation_info;
#define MOXIE_PREPARATION_INFO_INIT MOXIE_INIT(moxie_preparation_info)
/* `out` was set by its INIT macro. Immutable. */
MOXIE_API moxie_status moxie_preparation_get_info(const moxie_preparation *preparation, moxie_preparation_info *out,
                                                  moxie_error *error);

/* One tensor of one packed expert. Tensors whose names begin with "moxie." are for unpacking only; no kernel reads
 * them. Strings are static. */
typedef struct moxie_prepared_tensor {
    uint32_t struct_size;
    const char *name;
    moxie_dtype dtype;
    int32_t rank; /* 0: one value; below MOXIE_MAX_RANK, so that experts can be stacked */
    int64_t shape[MOXIE_MAX_RANK];
    uint64_t bytes;
} moxie_prepared_tensor;
#define MOXIE_PREPARED_TENSOR_INIT MOXIE_INIT(moxie_prepared_tensor)
/* Tensor i of n_tensors; returns 0 past the last, or when out->struct_size is wrong. Immutable. */
MOXIE_API int moxie_preparation_tensor_at(const moxie_preparation *preparation, int32_t i, moxie_prepared_tensor *out);

/* Collects what the layout must know of all experts before it packs one: their largest scales and the like. Call it for
 * each of this rank's experts, in any order. It does nothing where info.surveys is 0. One-thread-at-a-time. */
MOXIE_API moxie_status moxie_preparation_survey(moxie_preparation *preparation, const moxie_expert *expert,
                                                moxie_error *error);

/* What the survey found. To unpack without the experts one needs it beside the tensors. All zero where info.surveys is
 * 0. */
typedef struct moxie_preparation_facts {
    uint32_t struct_size;
    float scale_max[2], scale_min[2]; /* decoded scales of w13 and of w2: the largest, and the smallest above zero */
    float a13_max, a2_max;            /* the largest static activation scales */
} moxie_preparation_facts;
#define MOXIE_PREPARATION_FACTS_INIT MOXIE_INIT(moxie_preparation_facts)
/* `out` was set by its INIT macro. Immutable. */
MOXIE_API moxie_status moxie_preparation_get_facts(const moxie_preparation *preparation, moxie_preparation_facts *out,
                                                   moxie_error *error);
/* Replaces the survey. Numbers that no survey finds are MOXIE_ERR_ARGUMENT and change nothing: one that is not finite
 * or below zero, or a smallest scale without a largest or above it. One-thread-at-a-time. */
MOXIE_API moxie_status moxie_preparation_set_facts(moxie_preparation *preparation, const moxie_preparation_facts *facts,
                                                   moxie_error *error);

/* Packs one expert. `expert` is the whole expert, in the configuration's shape; this rank's share is cut here.
 * tensors[i] is memory for the bytes of tensor i, of any alignment, which must not overlap the views; every byte is
 * written. `executor` NULL: this thread alone. The views are checked first. MOXIE_ERR_UNSUPPORTED when the layout
 * cannot hold this expert's numbers, MOXIE_ERR_MEMORY when scratch memory is missing; the tensors may then be half
 * written. Immutable: several experts may be packed at a time, but not on one executor. */
MOXIE_API moxie_status moxie_preparation_pack(const moxie_preparation *preparation, const moxie_expert *expert,
                                              void *const *tensors, const moxie_executor *executor, moxie_error *error);

/* Unpacks one expert: writes this rank's share through the views of `expert`. Their memory must be writable, and shaped
 * as the views that were packed. It writes codes, scales, zero points, globals, biases and group indices, where the
 * views have them, and sets the two static activation scales. What belongs to other ranks stays as it is, also the bias
 * of down where this rank has none. The thread rule is that of moxie_preparation_pack. */
MOXIE_API moxie_status moxie_preparation_unpack(const moxie_preparation *preparation, void *const *tensors,
                                                moxie_expert *expert, const moxie_executor *executor,
                                                moxie_error *error);

#ifdef __cplusplus
}
#endif

#endif /* MOXIE_PREPARE_H */
