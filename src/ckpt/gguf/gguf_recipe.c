/* SPDX-License-Identifier: Apache-2.0
 *
 * gguf_recipe.c - look-up of recipes, and the type that each matrix gets (gguf_recipe.h).
 */
#include "ckpt/gguf/gguf_recipe.h"

#include <string.h>

#include "ckpt/gguf/gguf_formats.h"
#include "ckpt/gguf/gguf_writer.h"
#include "format/block.h"

static const mox_gguf_recipe recipes[] = {
#define MOX_GGUF_RECIPE(id, file_type, gate_up, down, more, first, summary)                                            \
    { id, summary, file_type, gate_up, down, more, first },
#include "ckpt/gguf/gguf_recipes.def"
#undef MOX_GGUF_RECIPE
};

enum { COUNT = sizeof recipes / sizeof recipes[0], F32 = 0, F16 = 1, BF16 = 30 };

const mox_gguf_recipe *mox_gguf_recipe_at(int32_t i)
{
    return i >= 0 && i < COUNT ? &recipes[i] : NULL;
}

static bool is_other_format(const char *id)
{
    for (int32_t i = 0; mox_hf_quant_at(i); i++)
        if (strcmp(mox_hf_quant_at(i)->id, id) == 0)
            return true;
    return false;
}

const mox_gguf_recipe *mox_gguf_recipe_by_id(const char *id)
{
    const size_t prefix = strlen("gguf-");
    for (int32_t i = 0; i < COUNT; i++)
        if (strcmp(recipes[i].id, id) == 0 || (strcmp(recipes[i].id + prefix, id) == 0 && !is_other_format(id)))
            return &recipes[i];
    return NULL;
}

/* ---- types ------------------------------------------------------------------------------------------- */

static moxie_dtype dtype_of(int32_t type)
{
    switch (type) {
    case F32: return MOXIE_F32;
    case F16: return MOXIE_F16;
    case BF16: return MOXIE_BF16;
    default: return (moxie_dtype)(MOX_BLOCK_DTYPE + type);
    }
}

static bool gets_more_bits(int64_t layer, int64_t layers)
{
    const int64_t eighth = layers / 8;
    return layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
}

/* A type with blocks of 32 for one with blocks of 256. */
static int32_t fall_back(int32_t type)
{
    static const int32_t pairs[][2] = { { 10, 20 }, { 11, 20 }, { 23, 20 }, { 12, 6 }, { 13, 7 }, { 14, 8 } };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        if (pairs[i][0] == type)
            return pairs[i][1];
    return type;
}

static bool ends_in_m(const char *id)
{
    const size_t length = strlen(id);
    return length > 2 && strcmp(id + length - 2, "_m") == 0;
}

moxie_status mox_gguf_recipe_type(const mox_gguf_recipe *recipe, mox_tensor_kind kind, int64_t cols, int64_t layer,
                                  int64_t layers, moxie_dtype *out, moxie_error *error)
{
    int32_t type = kind == MOX_TENSOR_DOWN ? recipe->down : recipe->gate_up;
    if (kind == MOX_TENSOR_DOWN && recipe->more >= 0 && gets_more_bits(layer, layers))
        type = recipe->more;
    if (kind == MOX_TENSOR_DOWN && recipe->first >= 0 && layer < layers / 16)
        type = recipe->first;
    const mox_block *block = mox_block_of(dtype_of(type));
    if (block && cols % block->weights != 0 && ends_in_m(recipe->id))
        block = mox_block_of(dtype_of(type = fall_back(type)));
    MOX_FAIL_IF(block && cols % block->weights != 0, MOXIE_ERR_UNSUPPORTED, error,
                "%s: rows of %lld weights are no whole blocks of %s, which have %d: use %s", recipe->id,
                (long long)cols, block->format.name, (int)block->weights,
                cols % 32 == 0 ? "gguf-q8_0, gguf-q5_0, gguf-q4_0, gguf-iq4_nl, gguf-mxfp4 or gguf-q4_k_m, which falls "
                                 "back to them"
                               : "gguf-bf16, gguf-f16 or gguf-f32");
    *out = dtype_of(type);
    return MOXIE_OK;
}

const mox_hf_quant *mox_gguf_stored(moxie_dtype dtype)
{
    return mox_block_of(dtype) ? mox_gguf_block_format(dtype) : mox_hf_quant_by_id(mox_dtype_name(dtype));
}
