/* SPDX-License-Identifier: Apache-2.0
 *
 * lint_state.h - one run of lint: the shards that could be opened, and all their tensors as one name space.
 *
 *     tensors[i]   name and view, as mox_model_open() takes them        the model's tensor i is the same
 *     files[i]     the shard that holds it                              read[i]   something reads it
 */
#ifndef MOX_LINT_STATE_H
#define MOX_LINT_STATE_H

#include "ckpt/model/model.h"
#include "ckpt/model/model_state.h"
#include "ckpt/name_map.h"
#include "lint/lint_report.h"

typedef struct mox_lint_shard {
    const char *name, *path;
    mox_tensor_set *set; /* NULL: it could not be opened */
} mox_lint_shard;

typedef struct mox_lint {
    const char *dir;
    bool gguf; /* `dir` is a GGUF file: one shard, which is all parts of a split one, and no JSON beside it */
    const moxie_lint_options *options;
    moxie_lint *report;
    mox_arena arena;
    mox_lint_shard *shards;
    int64_t n_shards;
    moxie_named_tensor *tensors;
    int32_t *files;
    uint8_t *read; /* 1: yes */
    int64_t n_tensors;
    mox_name_map names;
    moxie_model *model; /* NULL: it could not be opened */
} mox_lint;

/* Opens every shard that can be opened, and fills tensors, files and names. MOXIE_ERR_IO without a directory. */
moxie_status mox_lint_files(mox_lint *lint, moxie_error *error);
/* False, with a finding, when a mapped file was cut off since: its pages may not be touched. */
bool mox_lint_still_there(mox_lint *lint);
void mox_lint_close(mox_lint *lint);
/* Checks the JSON files of the directory, before the model is opened, and the model's own warnings, after. */
void mox_lint_json(mox_lint *lint);
void mox_lint_config(mox_lint *lint);

/* Whether the caller wants this layer checked. */
static inline bool mox_lint_wants(const mox_lint *lint, int64_t layer)
{
    const moxie_lint_options *o = lint->options;
    return !o->some_layers || (layer >= o->first_layer && layer <= o->last_layer);
}

/* Notes that something reads it; NULL is fine. */
void mox_lint_mark(mox_lint *lint, const mox_file_tensor *tensor);
/* Where it is, for a finding. */
mox_lint_where mox_lint_at(const mox_lint *lint, int64_t layer, const mox_file_tensor *tensor);
/* Lets the pages of `bytes` bytes of a tensor go, from `data` on. */
void mox_lint_drop(const mox_lint *lint, const mox_file_tensor *tensor, const void *data, uint64_t bytes);

#endif
