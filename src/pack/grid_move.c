/* SPDX-License-Identifier: Apache-2.0
 *
 * grid_move.c - layout of rows in a checkpoint's grid, its floats to and from a record, natural order of columns
 * (grid_move.h).
 */
#include "pack/grid_move.h"

bool mox_pack_has_full_words(const moxie_grid *grid)
{
    const moxie_packing *p = &grid->packing;
    return p->order == MOXIE_ORDER_LINEAR && p->per_word * mox_dtype_bits(grid->dtype) == p->word_bytes * 8;
}

bool mox_pack_has_dense_rows(const moxie_grid *grid)
{
    if (grid->packing.order == MOX_ORDER_BLOCK)
        return grid->col_stride == mox_block_of(grid->dtype)->bytes;
    return mox_pack_has_full_words(grid) && !grid->packing.along_rows && grid->col_stride == grid->packing.word_bytes;
}

float mox_pack_get_float(const moxie_grid *grid, int64_t r, int64_t c)
{
    if (grid->dtype != MOXIE_F32)
        return (float)mox_grid_value(grid, r, c);
    const uint32_t code = mox_grid_code(grid, r, c);
    float value;
    memcpy(&value, &code, sizeof value);
    return value;
}

void mox_pack_put_float(const moxie_grid *grid, int64_t r, int64_t c, float value)
{
    uint32_t code;
    memcpy(&code, &value, sizeof code);
    mox_grid_store(grid, r, c, grid->dtype == MOXIE_F32 ? code : mox_format_of(grid->dtype)->encode(value));
}

float mox_pack_plus(float value, float add)
{
    return add == 0.0f ? value : value + add;
}

bool mox_pack_is_natural_order(const int32_t *group_index, int64_t cols, int64_t group_cols)
{
    for (int64_t k = 0; group_index != NULL && k < cols; k++)
        if (group_index[k] != k / group_cols)
            return false;
    return true;
}

/* Quadratic in the number of groups at worst, but needs no memory. */
void mox_pack_sort_columns(const int32_t *group_index, int64_t cols, int64_t groups, int32_t *order)
{
    int64_t n = 0;
    for (int64_t g = 0; g < groups && n < cols; g++)
        for (int64_t k = 0; k < cols; k++)
            if (group_index[k] == g)
                order[n++] = (int32_t)k;
}

void mox_pack_put_natural_order(const moxie_matrix *to, int64_t cols, int64_t group_cols)
{
    int32_t *group_index = (int32_t *)(uintptr_t)to->group_index;
    for (int64_t k = 0; group_index != NULL && k < cols; k++)
        group_index[k] = (int32_t)(k / group_cols);
}
