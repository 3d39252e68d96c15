/* SPDX-License-Identifier: Apache-2.0
 *
 * match.h - which format a matrix has, from the tensors that exist.
 *
 * A format of hf_quant.def fits when each of its required parts exists under the name of the matrix, with an accepted
 * dtype and the shape that N and K require. The first that fits is the match. When none fits, the nearest one words the
 * error: which tensor, what was expected, what was found, and what else exists below that name.
 */
#ifndef MOX_CKPT_MATCH_H
#define MOX_CKPT_MATCH_H

#include "ckpt/formats/hf_quant_config.h"
#include "ckpt/formats/module_rules.h"
#include "ckpt/formats/part.h"
#include "ckpt/safetensors/tensors.h"

/* All formats, with what the configuration says about some modules applied. */
typedef struct mox_variant {
    struct mox_variant *next;
    mox_module_choice choice; /* of those modules */
    mox_hf_quant *formats;    /* in list order */
    bool *allowed;            /* false: the configuration rules the format out */
} mox_variant;

/* Made once per layer, used for every matrix. */
typedef struct mox_matcher {
    const mox_tensor_set *set;
    const json_t *quant_config, *config;
    mox_module_rules rules;
    mox_arena *arena;
    mox_variant **variants; /* those met so far */
    int32_t n_formats;
} mox_matcher;

moxie_status mox_matcher_create(const mox_tensor_set *set, const json_t *quant_config, const json_t *config,
                                mox_arena *arena, mox_matcher *out, moxie_error *error);

/* A matrix to match. */
typedef struct mox_wanted {
    const char *name; /* without any suffix */
    int64_t n, k;
    int64_t stacked; /* experts in one tensor, 0: one matrix */
    bool in_out;     /* stored K before N; stacked matrices only */
} mox_wanted;

typedef struct mox_match {
    const mox_variant *variant;                  /* what the configuration says about this matrix */
    const mox_hf_quant *format;                  /* the variant's copy */
    moxie_quant weight;                          /* group extents and scale dtype as found */
    const mox_file_tensor *parts[MOX_MAX_PARTS]; /* by format->parts; NULL: optional and absent */
} mox_match;

/* MOXIE_ERR_UNSUPPORTED for a format without an entry, MOXIE_ERR_FORMAT for a missing part, MOXIE_ERR_MISMATCH for a
 * part with a wrong shape or dtype. */
moxie_status mox_match_matrix(const mox_matcher *matcher, const mox_wanted *wanted, mox_match *out, moxie_error *error);
/* What the configuration says about this matrix, whether or not it exists. */
moxie_status mox_match_variant(const mox_matcher *matcher, const mox_wanted *wanted, const mox_variant **out,
                               moxie_error *error);
/* Another format under the same rules of the configuration, by its id; NULL: there is none. */
const mox_hf_quant *mox_match_other(const mox_matcher *matcher, const mox_match *match, const char *id);
/* True when any part of any format exists under this name. */
bool mox_match_exists(const mox_matcher *matcher, const char *name, bool stacked);
/* "[4096, 64]" and the like. Returns `buffer`. */
const char *mox_shape_text(const int64_t *shape, int32_t rank, char *buffer, size_t size);

#endif
