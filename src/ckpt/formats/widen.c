/* SPDX-License-Identifier: Apache-2.0
 *
 * widen.c - copies of codes in a wider or corrected form, row by row.
 *
 *     u3b4, u2b2 -> u4b8     the same number: both codes mean 0 by their middle
 *     u5b16 .. u7b64 -> u8b128
 *     zero points, v1        word + 0x11111111 (0x01010101, 0x55555555), then the fields; 3 bits: (field + 1) mod 8
 *
 * Source: GPTQModel utils/model.py (convert_gptq_v1_to_v2_format_module) and utils/model_dequant.py.
 */
#include "ckpt/formats/widen.h"

bool mox_grid_is_narrow(const moxie_grid *grid)
{
    return grid->packing.order == MOX_ORDER_STREAM;
}

static moxie_status make_copy(const moxie_grid *grid, mox_arena *arena, moxie_grid *out, moxie_error *error)
{
    void *data = mox_arena_alloc(arena, mox_dense_bytes(grid->dtype, grid->rows, grid->cols));
    MOX_FAIL_IF(!data, MOXIE_ERR_MEMORY, error, "no memory to widen [%lld, %lld] codes", (long long)grid->rows,
                (long long)grid->cols);
    *out = mox_grid_dense(data, grid->dtype, grid->rows, grid->cols);
    return MOXIE_OK;
}

/* A grid of the right shape whose elements are all the first word. */
static moxie_grid looks_like(const moxie_grid *grid)
{
    moxie_grid same = mox_grid_dense(grid->data, grid->dtype, grid->rows, grid->cols);
    same.row_stride = same.col_stride = 0;
    same.bytes = grid->bytes;
    return same;
}

moxie_status mox_grid_widen(const moxie_grid *grid, bool look, mox_arena *arena, moxie_grid *out, moxie_error *error)
{
    if (look) {
        *out = looks_like(grid);
        return MOXIE_OK;
    }
    const moxie_grid from = *grid;
    MOX_TRY(make_copy(&from, arena, out, error));
    for (int64_t r = 0; r < from.rows; r++)
        for (int64_t c = 0; c < from.cols; c++)
            mox_grid_store(out, r, c, mox_grid_code(&from, r, c));
    return MOXIE_OK;
}

moxie_status mox_grid_recode(const moxie_grid *grid, const mox_code_map *map, bool look, mox_arena *arena,
                             moxie_grid *out, moxie_error *error)
{
    moxie_grid from = *grid, to = *grid;
    to.dtype = map->to;
    if (look) {
        *out = looks_like(&to);
        return MOXIE_OK;
    }
    MOX_TRY(make_copy(&to, arena, out, error));
    for (int64_t r = 0; r < from.rows; r++)
        for (int64_t c = 0; c < from.cols; c++)
            mox_grid_store(out, r, c, map->code[mox_grid_code(&from, r, c) & 255]);
    return MOXIE_OK;
}

static int32_t bits_of(const moxie_grid *grid)
{
    return mox_grid_is_narrow(grid) ? grid->packing.per_word : mox_dtype_bits(grid->dtype);
}

/* The field at (r, c) of words to which one was added in every field, as a code of the grid's dtype. */
static uint32_t corrected(const moxie_grid *grid, int64_t r, int64_t c)
{
    const int32_t bits = bits_of(grid);
    const uint32_t mask = (1u << bits) - 1;
    const uint32_t offset = (1u << (mox_dtype_bits(grid->dtype) - 1)) - (1u << (bits - 1));
    if (32 % bits != 0)
        return ((mox_grid_code(grid, r, c) - offset + 1) & mask) + offset;
    const uint8_t *at = (const uint8_t *)grid->data + r * bits / 32 * grid->row_stride + c * grid->col_stride;
    const uint32_t word = (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
    return (((word + UINT32_MAX / mask) >> r * bits % 32) & mask) + offset;
}

/* True when a stored field is all ones: one more than it would carry into the next. */
static bool borrows(const moxie_grid *grid)
{
    const uint32_t highest = (1u << mox_dtype_bits(grid->dtype)) - 1;
    for (int64_t r = 0; r < grid->rows; r++)
        for (int64_t c = 0; c < grid->cols; c++)
            if (mox_grid_code(grid, r, c) == highest)
                return true;
    return false;
}

moxie_status mox_gptq_zeros(const moxie_grid *grid, bool look, mox_arena *arena, float *zero_add, moxie_grid *out,
                            moxie_error *error)
{
    const moxie_grid from = *grid;
    *out = from;
    if (!mox_grid_is_narrow(&from) && (look || !borrows(&from)))
        return MOXIE_OK;
    *zero_add = 0;
    if (look) {
        *out = looks_like(&from);
        return MOXIE_OK;
    }
    MOX_TRY(make_copy(&from, arena, out, error));
    for (int64_t r = 0; r < from.rows; r++)
        for (int64_t c = 0; c < from.cols; c++)
            mox_grid_store(out, r, c, corrected(&from, r, c));
    return MOXIE_OK;
}
