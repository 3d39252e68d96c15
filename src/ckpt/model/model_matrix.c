/* SPDX-License-Identifier: Apache-2.0
 *
 * model_matrix.c - the tensors of one matched matrix as a moxie_matrix: grids into the mapped file. Small integers
 * (group indices, shape records) are read and checked at once.
 */
#include "ckpt/model/model_matrix.h"

#include <math.h>
#include <string.h>

#include "base/sizes.h"
#include "ckpt/formats/widen.h"

static const char *file_of(const mox_layer_reader *reader, const mox_file_tensor *tensor)
{
    return mox_tensor_set_file_name(reader->model->set, tensor->file);
}

/* Tensors in files are not aligned, so integers are copied out. */
static int64_t load_int(const mox_file_tensor *tensor, int64_t i)
{
    if (tensor->view.dtype == MOXIE_I64) {
        int64_t value;
        memcpy(&value, (const char *)tensor->view.data + i * 8, sizeof value);
        return value;
    }
    int32_t value;
    memcpy(&value, (const char *)tensor->view.data + i * 4, sizeof value);
    return value;
}

static moxie_status check_shape_record(const mox_layer_reader *reader, const mox_file_tensor *tensor,
                                       const mox_part_place *place)
{
    char name[200];
    const int64_t base = place->stacked > 0 ? place->expert * 2 : 0;
    const int64_t n = load_int(tensor, base), k = load_int(tensor, base + 1);
    if (n == place->n && k == place->k)
        return MOXIE_OK;
    return mox_fail_file(MOXIE_ERR_MISMATCH, reader->error, file_of(reader, tensor), (int64_t)tensor->offset,
                         "%s says [%lld, %lld], but the packed weights are [%lld, %lld]",
                         mox_escape(name, sizeof name, tensor->name), (long long)n, (long long)k, (long long)place->n,
                         (long long)place->k);
}

/* *out is NULL when every column is in the group of its position, which is the usual case and the fast one. */
static moxie_status read_group_index(mox_layer_reader *reader, const mox_file_tensor *tensor,
                                     const mox_part_place *place, const moxie_quant *weight, const int32_t **out)
{
    const int64_t groups = mox_scale_cols(weight, place->k), size = mox_group_cols(weight, place->k);
    const int64_t base = place->stacked > 0 ? place->expert * place->k : 0;
    bool in_order = true;
    for (int64_t k = 0; k < place->k; k++) {
        char name[200];
        const int64_t group = load_int(tensor, base + k);
        if (group < 0 || group >= groups)
            return mox_fail_file(MOXIE_ERR_FORMAT, reader->error, file_of(reader, tensor), (int64_t)tensor->offset,
                                 "%s[%lld] is %lld, expected a group from 0 to %lld",
                                 mox_escape(name, sizeof name, tensor->name), (long long)k, (long long)group,
                                 (long long)groups - 1);
        in_order = in_order && group == k / size;
    }
    *out = NULL;
    if (in_order)
        return MOXIE_OK;
    int32_t *index = mox_arena_calloc(reader->arena, (uint64_t)place->k, sizeof *index);
    MOX_FAIL_IF(!index, MOXIE_ERR_MEMORY, reader->error, "no memory for %lld group indices", (long long)place->k);
    for (int64_t k = 0; k < place->k; k++)
        index[k] = (int32_t)load_int(tensor, base + k);
    *out = index;
    return MOXIE_OK;
}

static moxie_status split_failed(const mox_layer_reader *reader, const mox_file_tensor *tensor,
                                 const mox_part_place *place, const moxie_quant *weight)
{
    char name[200], quant[96];
    return mox_fail_file(
        MOXIE_ERR_UNSUPPORTED, reader->error, file_of(reader, tensor), (int64_t)tensor->offset,
        "%s holds gate and up in %lld rows, but a word or group of %s would belong to both; store gate "
        "and up in tensors of their own",
        mox_escape(name, sizeof name, tensor->name), (long long)place->n,
        mox_quant_describe(weight, quant, sizeof quant));
}

/* Rows of the matrix that one element of the grid of a part covers. */
static int64_t rows_per_element(const mox_part *part, const moxie_quant *weight, int64_t n)
{
    const bool groups = part->form == MOX_FORM_GROUPS || part->form == MOX_FORM_GROUPS_4D;
    return part->form == MOX_FORM_SCALAR ? n : groups ? mox_group_rows(weight, n) : 1;
}

static moxie_status place_grid(mox_layer_reader *reader, const mox_match *match, int p, const mox_part_place *place,
                               mox_part_rows rows, moxie_matrix *out, moxie_quant *weight)
{
    const mox_part *part = &match->format->parts[p];
    const mox_file_tensor *tensor = match->parts[p];
    moxie_grid *target = part->role == MOX_PART_CODES    ? &out->codes
                         : part->role == MOX_PART_SCALE  ? &out->scale
                         : part->role == MOX_PART_ZERO   ? &out->zero
                         : part->role == MOX_PART_GLOBAL ? &out->global
                                                         : NULL;
    if (!target)
        return MOXIE_OK;
    MOX_TRY(mox_file_tensor_check(reader->model->set, tensor, reader->error));
    moxie_grid grid = mox_part_grid(part, &match->weight, &tensor->view, tensor->bytes, place);
    const int64_t whole = rows_per_element(part, &match->weight, place->n);
    int64_t covered = whole;
    if (!mox_grid_select_rows(&grid, rows, place->n, &covered))
        return split_failed(reader, tensor, place, &match->weight);
    /* Alternating rows: groups of a half have half as many rows. A group of all rows keeps its extent. */
    if (part->role == MOX_PART_SCALE && (rows == MOX_ROWS_EVEN || rows == MOX_ROWS_ODD) && whole > 1 &&
        whole < place->n)
        weight->group_rows = (int32_t)covered;
    *target = grid;
    if (part->role == MOX_PART_ZERO && match->format->zero_add != 0)
        return mox_gptq_zeros(&grid, reader->look, reader->arena, &out->zero_add, target, reader->error);
    return mox_grid_is_narrow(&grid) ? mox_grid_widen(&grid, reader->look, reader->arena, target, reader->error)
                                     : MOXIE_OK;
}

moxie_status mox_read_matrix(mox_layer_reader *reader, const mox_match *match, const mox_part_place *place,
                             mox_part_rows rows, moxie_matrix *out, moxie_quant *weight)
{
    moxie_matrix matrix = { .zero_add = match->format->zero_add };
    *weight = match->weight;
    for (int p = 0; p < MOX_MAX_PARTS && match->format->parts[p].role != MOX_PART_NONE; p++) {
        const mox_file_tensor *tensor = match->parts[p];
        if (!tensor)
            continue;
        mox_layer_mark(reader, tensor);
        MOX_TRY(place_grid(reader, match, p, place, rows, &matrix, weight));
        if (match->format->parts[p].role == MOX_PART_SHAPE)
            MOX_TRY(check_shape_record(reader, tensor, place));
        if (match->format->parts[p].role == MOX_PART_GROUP_INDEX)
            MOX_TRY(read_group_index(reader, tensor, place, &match->weight, &matrix.group_index));
    }
    if (!matrix.zero.data)
        matrix.zero_add = 0;
    *out = matrix;
    return MOXIE_OK;
}

float mox_read_input_scale(const mox_match *match, const mox_part_place *place)
{
    for (int p = 0; p < MOX_MAX_PARTS && match->format->parts[p].role != MOX_PART_NONE; p++) {
        const mox_file_tensor *tensor = match->parts[p];
        if (!tensor || match->format->parts[p].role != MOX_PART_INPUT_SCALE)
            continue;
        const moxie_grid grid =
            mox_part_grid(&match->format->parts[p], &match->weight, &tensor->view, tensor->bytes, place);
        const float scale = mox_load(grid.dtype, grid.data);
        /* An expert that calibration never reached can have 0, inf or NaN: that counts as none. */
        return isnormal(scale) && scale > 0 ? scale : 0;
    }
    return 0;
}

uint64_t mox_match_bytes(const mox_match *match)
{
    uint64_t bytes = 0;
    /* Codes and scales of a block type are one tensor, and follow each other. */
    for (int p = 0; p < MOX_MAX_PARTS; p++)
        bytes += match->parts[p] && (p == 0 || match->parts[p] != match->parts[p - 1]) ? match->parts[p]->bytes : 0;
    return bytes;
}
