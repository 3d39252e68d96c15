/* SPDX-License-Identifier: Apache-2.0
 *
 * model_pair.c - gate and up in two formats (model_pair.h): which one holds the other, and the copies.
 *
 *     codes, zero points    code of the narrow element -> its number -> code of the wide element
 *     scales, globals       as they are
 */
#include "ckpt/model/model_pair.h"

#include <string.h>

#include "ckpt/formats/widen.h"

bool mox_pair_same(const mox_match *a, const mox_match *b)
{
    return strcmp(a->format->id, b->format->id) == 0 && a->format->zero_add == b->format->zero_add &&
           memcmp(&a->format->act, &b->format->act, sizeof a->format->act) == 0 &&
           memcmp(&a->weight, &b->weight, sizeof a->weight) == 0;
}

/* The code in `to` of each code in `from`. False when some number of `from` is none of `to`. */
static bool make_map(moxie_dtype from, moxie_dtype to, mox_code_map *map)
{
    const int32_t bits = mox_dtype_bits(from);
    if (bits > 8 || mox_dtype_bits(to) > 8)
        return false;
    map->to = to;
    for (uint32_t code = 0; code < 1u << bits; code++) {
        const float value = (float)mox_format_of(from)->decode(code);
        const uint32_t wide = moxie_encode(to, value);
        if (mox_format_of(to)->decode(wide) != (double)value)
            return false;
        map->code[code] = (uint8_t)wide;
    }
    return true;
}

/* Whether the two differ in their elements only. */
static bool differ_in_element(const mox_layer_reader *reader, const mox_pair *pair)
{
    const mox_hf_quant *a = pair->match[0]->format, *b = pair->match[1]->format;
    moxie_quant quant = pair->quant[0];
    quant.element = pair->quant[1].element;
    const bool plain = reader->model->activations == MOXIE_ACTIVATIONS_16BIT;
    const bool acts = memcmp(&a->act, &b->act, sizeof a->act) == 0 && !a->act.is_static;
    return memcmp(&quant, &pair->quant[1], sizeof quant) == 0 && a->zero_add == b->zero_add && (plain || acts);
}

static moxie_status refuse(const mox_layer_reader *reader, const mox_pair *pair)
{
    char name[2][200], weight[2][96], act[2][96];
    const mox_file_tensor *tensor = pair->match[1]->parts[0];
    for (int i = 0; i < 2; i++) {
        mox_escape(name[i], sizeof name[i], pair->name[i]);
        mox_quant_describe(&pair->match[i]->weight, weight[i], sizeof weight[i]);
        mox_quant_describe(&pair->match[i]->format->act, act[i], sizeof act[i]);
    }
    return mox_fail_file(
        MOXIE_ERR_MISMATCH, reader->error, mox_tensor_set_file_name(reader->model->set, tensor->file),
        (int64_t)tensor->offset,
        "%s is %s (%s, activations %s), but %s is %s (%s, activations %s): one matrix (W13) holds gate "
        "and up, and that works only where both have the same groups, scales and activations, and "
        "one element holds all numbers of the other: quantize gate and up alike",
        name[0], pair->match[0]->format->id, weight[0], act[0], name[1], pair->match[1]->format->id, weight[1], act[1]);
}

static moxie_status widen_matrix(mox_layer_reader *reader, const mox_code_map *map, moxie_dtype from,
                                 moxie_matrix *matrix)
{
    MOX_TRY(mox_grid_recode(&matrix->codes, map, reader->look, reader->arena, &matrix->codes, reader->error));
    if (!matrix->zero.data || matrix->zero.dtype != from)
        return MOXIE_OK;
    return mox_grid_recode(&matrix->zero, map, reader->look, reader->arena, &matrix->zero, reader->error);
}

/* GGUF files mix types: gate in q4_k beside up in q5_k. Without a global, their numbers are f32 by definition. */
bool mox_pair_needs_floats(const mox_layer_reader *reader, const mox_pair *pair)
{
    return reader->model->gguf && pair->quant[0].global == MOXIE_GLOBAL_NONE &&
           pair->quant[1].global == MOXIE_GLOBAL_NONE;
}

static moxie_status to_floats(mox_layer_reader *reader, const moxie_quant *quant, moxie_matrix *matrix)
{
    const int64_t rows = matrix->codes.rows, cols = matrix->codes.cols;
    float *copy = reader->look ? NULL : mox_arena_calloc(reader->arena, (uint64_t)(rows * cols), sizeof *copy);
    MOX_FAIL_IF(!copy && !reader->look, MOXIE_ERR_MEMORY, reader->error, "no memory to dequantize %lld x %lld weights",
                (long long)rows, (long long)cols);
    for (int64_t n = 0; copy && n < rows; n++)
        for (int64_t k = 0; k < cols; k++)
            copy[n * cols + k] = (float)mox_matrix_weight(matrix, quant, n, k);
    matrix->codes = mox_grid_dense(copy, MOXIE_F32, rows, cols);
    matrix->scale = (moxie_grid) { 0 };
    return MOXIE_OK;
}

moxie_status mox_pair_to_floats(mox_layer_reader *reader, const mox_pair *pair, moxie_expert *experts, int64_t count,
                                const char **note)
{
    for (int64_t e = 0; e < count; e++) {
        MOX_TRY(to_floats(reader, &pair->quant[0], &experts[e].gate));
        MOX_TRY(to_floats(reader, &pair->quant[1], &experts[e].up));
    }
    *note = "gate and up are of different types; both are copied to f32 when a layer is loaded";
    return MOXIE_OK;
}

moxie_status mox_pair_widen(mox_layer_reader *reader, const mox_pair *pair, moxie_expert *experts, int64_t count,
                            int *wide, const char **note)
{
    mox_code_map map;
    int narrow = 0;
    bool held = make_map(pair->quant[0].element, pair->quant[1].element, &map);
    if (!held) {
        narrow = 1;
        held = make_map(pair->quant[1].element, pair->quant[0].element, &map);
    }
    if (!held || !differ_in_element(reader, pair))
        return refuse(reader, pair);
    if (pair->quant[0].element == pair->quant[1].element) {
        *wide = 1, *note = NULL;
        return MOXIE_OK;
    }
    for (int64_t e = 0; e < count; e++)
        MOX_TRY(widen_matrix(reader, &map, pair->quant[narrow].element, narrow ? &experts[e].up : &experts[e].gate));
    *wide = 1 - narrow;
    *note = narrow ? "up is stored in fewer bits; its codes are copied into the format of gate when a layer is loaded"
                   : "gate is stored in fewer bits; its codes are copied into the format of up when a layer is loaded";
    return MOXIE_OK;
}
