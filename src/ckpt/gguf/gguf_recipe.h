/* SPDX-License-Identifier: Apache-2.0
 *
 * gguf_recipe.h - formats of experts that are written to GGUF files (gguf_recipes.def): a type for each matrix.
 */
#ifndef MOX_CKPT_GGUF_RECIPE_H
#define MOX_CKPT_GGUF_RECIPE_H

#include "ckpt/families/tables.h"

typedef struct mox_gguf_recipe {
    const char *id, *summary;
    int32_t file_type;                  /* general.file_type */
    int32_t gate_up, down, more, first; /* types in GGUF files; -1: none */
} mox_gguf_recipe;

/* Row i; NULL past the last. */
const mox_gguf_recipe *mox_gguf_recipe_at(int32_t i);
/* By id, with or without "gguf-" where no other format has that name; NULL when there is none. */
const mox_gguf_recipe *mox_gguf_recipe_by_id(const char *id);
/* The dtype of gate, up or down, rows of `cols`, in layer `layer` of `layers`. MOXIE_ERR_UNSUPPORTED when rows are no
 * whole blocks of it. */
moxie_status mox_gguf_recipe_type(const mox_gguf_recipe *recipe, mox_tensor_kind kind, int64_t cols, int64_t layer,
                                  int64_t layers, moxie_dtype *out, moxie_error *error);
/* How a matrix of this type is stored, in one part. */
const mox_hf_quant *mox_gguf_stored(moxie_dtype dtype);

#endif
