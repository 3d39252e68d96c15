/* SPDX-License-Identifier: Apache-2.0
 *
 * model_join.c - shared experts in tensors of their own as one wide expert (model_join.h). Codes, scales and zero
 * points are copied one after the other. A scale of a whole axis becomes one of each expert's part of it.
 */
#include "ckpt/model/model_join.h"

#include <string.h>

static moxie_status refuse(const mox_layer_reader *reader, const mox_join *join, const char *why)
{
    return mox_fail_file(
        MOXIE_ERR_UNSUPPORTED, reader->error, reader->model->config_path, -1,
        "layer %lld has %lld shared experts in tensors of their own, which are joined into one, but %s",
        (long long)reader->layer, (long long)join->count, why);
}

/* The extent of a group along the joined axis. 0: groups reach over the seam. */
static int32_t joined_extent(int32_t extent, int64_t width)
{
    if (extent <= 0 || extent >= width)
        return (int32_t)width;
    return width % extent == 0 ? extent : 0;
}

/* `count` grids of one shape as one: along the columns, or along the rows. */
static moxie_status join_grids(const mox_layer_reader *reader, const moxie_grid *const *parts, int64_t count,
                               bool columns, moxie_grid *out)
{
    const int64_t rows = parts[0]->rows, cols = parts[0]->cols;
    const int64_t all_rows = columns ? rows : rows * count, all_cols = columns ? cols * count : cols;
    moxie_grid all = *parts[0];
    all.rows = all_rows, all.cols = all_cols;
    all.row_stride = all.col_stride = 0;
    if (!reader->look) {
        void *data = mox_arena_alloc(reader->arena, mox_dense_bytes(all.dtype, all_rows, all_cols));
        MOX_FAIL_IF(!data, MOXIE_ERR_MEMORY, reader->error, "no memory to join shared experts");
        all = mox_grid_dense(data, parts[0]->dtype, all_rows, all_cols);
    }
    for (int64_t p = 0; p < count && !reader->look; p++)
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < cols; c++)
                mox_grid_store(&all, columns ? r : p * rows + r, columns ? p * cols + c : c,
                               mox_grid_code(parts[p], r, c));
    *out = all;
    return MOXIE_OK;
}

static const moxie_matrix *matrix_at(const mox_join *join, size_t at, int64_t e)
{
    return (const moxie_matrix *)(const void *)((const char *)&join->experts[e] + at);
}

static moxie_status join_matrix(mox_layer_reader *reader, const mox_join *join, size_t at, bool columns,
                                moxie_matrix *out)
{
    static const size_t places[] = { offsetof(moxie_matrix, codes), offsetof(moxie_matrix, scale),
                                     offsetof(moxie_matrix, zero) };
    moxie_matrix all = *matrix_at(join, at, 0);
    for (int64_t e = 0; e < join->count; e++) {
        const moxie_matrix *one = matrix_at(join, at, e);
        if (one->group_index)
            return refuse(reader, join, "their columns are grouped out of order");
        if (one->global.data && mox_grid_value(&one->global, 0, 0) != mox_grid_value(&all.global, 0, 0))
            return refuse(reader, join, "their global scales differ");
        if (one->zero_add != all.zero_add)
            return refuse(reader, join, "their zero points are stored in two ways");
    }
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        const moxie_grid *parts[64];
        moxie_grid *target = (moxie_grid *)(void *)((char *)&all + places[i]);
        for (int64_t e = 0; e < join->count; e++)
            parts[e] = (const moxie_grid *)(const void *)((const char *)matrix_at(join, at, e) + places[i]);
        if (parts[0]->data)
            MOX_TRY(join_grids(reader, parts, join->count, columns, target));
    }
    *out = all;
    return MOXIE_OK;
}

moxie_status mox_join_experts(mox_layer_reader *reader, const mox_join *join)
{
    moxie_expert wide = join->experts[0];
    const int32_t rows = joined_extent(join->w13->group_rows, join->width);
    const int32_t cols = joined_extent(join->w2->group_cols, join->width);
    const bool scaled13 = join->w13->scale != MOXIE_DTYPE_NONE, scaled2 = join->w2->scale != MOXIE_DTYPE_NONE;
    if (join->count == 1)
        return MOXIE_OK;
    if ((scaled13 && rows == 0) || (scaled2 && cols == 0))
        return refuse(reader, join, "a group of weights would reach from one into the next");
    if (join->a2->element != MOXIE_DTYPE_NONE && !join->a2->is_static &&
        (join->a2->group_cols <= 0 || join->width % join->a2->group_cols != 0))
        return refuse(reader, join, "their activations have a scale each, and one wide expert has one for all");
    for (int64_t e = 1; e < join->count; e++)
        if (join->experts[e].a13_scale != wide.a13_scale || join->experts[e].a2_scale != wide.a2_scale)
            return refuse(reader, join, "their static activation scales differ");
    if (wide.gate.codes.data)
        MOX_TRY(join_matrix(reader, join, offsetof(moxie_expert, gate), false, &wide.gate));
    MOX_TRY(join_matrix(reader, join, offsetof(moxie_expert, up), false, &wide.up));
    MOX_TRY(join_matrix(reader, join, offsetof(moxie_expert, down), true, &wide.down));
    if (scaled13)
        join->w13->group_rows = rows;
    if (scaled2)
        join->w2->group_cols = cols;
    join->experts[0] = wide;
    return MOXIE_OK;
}
