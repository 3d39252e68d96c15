/* SPDX-License-Identifier: Apache-2.0
 *
 * lora.c - the kernel list of family lora, made from lora.def, and what is common to its kernels: pairs of one slot are
 * grouped by adapter, at most MOX_LORA_ROWS to a tile.
 *
 *     pairs of a slot    p0:2  p1:-  p2:0  p3:2        adapter of each
 *     tiles              [p2] of adapter 0, [p0 p3] of adapter 2
 */
#include "cpu/lora/lora.h"

#include <string.h>

#include "base/sizes.h"
#include "format/format.h"

#define MOX_LORA(id, isa_, exactness_, layout_)                                                                        \
    {                                                                                                                  \
        .base = { .family = "lora", .name = #id, .isa = isa_, .exactness = exactness_, .layout = layout_ },            \
        .shrink = mox_lora_##id##_shrink,                                                                              \
        .expand = mox_lora_##id##_expand,                                                                              \
    },
static const mox_lora_kernel kernels[] = {
#include "cpu/lora/lora.def"
};
#undef MOX_LORA

const mox_lora_kernel *mox_lora_at(int32_t i)
{
    return i >= 0 && (size_t)i < sizeof kernels / sizeof kernels[0] ? &kernels[i] : NULL;
}

/* ---- groups of pairs ----------------------------------------------------------------------------- */

/* Pairs [first, last) of one slot, and how far they are grouped. */
typedef struct groups {
    const int32_t *adapter_of;
    int64_t first, last, next;
    int32_t number; /* of the present adapter; -1: before the first */
} groups;

typedef struct group {
    const mox_lora_adapter *adapter;
    int rows;
    int64_t pair[MOX_LORA_ROWS];
} group;

/* The lowest number above the present one; false when there is none. */
static bool next_adapter(groups *g)
{
    int32_t best = INT32_MAX;
    for (int64_t p = g->first; p < g->last; p++)
        if (g->adapter_of[p] > g->number && g->adapter_of[p] < best)
            best = g->adapter_of[p];
    g->number = best;
    g->next = g->first;
    return best != INT32_MAX;
}

static bool next_group(const mox_lora_args *args, groups *g, group *out)
{
    for (out->rows = 0; out->rows == 0;) {
        if (g->next == g->last && !next_adapter(g))
            return false;
        for (; g->next < g->last && out->rows < MOX_LORA_ROWS; g->next++)
            if (g->adapter_of[g->next] == g->number)
                out->pair[out->rows++] = g->next;
    }
    out->adapter = args->adapters[g->number];
    return true;
}

static groups groups_of(const mox_lora_args *args, int64_t first, int64_t last)
{
    return (groups) { args->adapter_of, first, last, last, -1 };
}

bool mox_lora_any(const mox_lora_args *args, int64_t first, int64_t last)
{
    for (int64_t p = first; p < last; p++)
        if (args->adapter_of[p] >= 0)
            return true;
    return false;
}

/* ---- shrink -------------------------------------------------------------------------------------- */

int64_t mox_lora_scratch(int64_t cols)
{
    return MOX_LORA_ROWS * mox_lora_padded(cols);
}

/* The row that a pair's product reads, in fp32 and padded with zeros. */
static void read_row(const mox_lora_args *args, int64_t pair, float *to)
{
    const int64_t row = args->row_of != NULL ? args->row_of[pair] : pair;
    const int64_t bytes = mox_dtype_bytes(args->x_dtype);
    mox_widen(args->x_dtype, (const char *)args->x + row * args->cols * bytes, to, args->cols);
    for (int64_t k = 0; args->row_weight != NULL && k < args->cols; k++)
        to[k] = mox_round_to(args->x_dtype, to[k] * args->row_weight[pair]);
    for (int64_t k = args->cols; k < mox_lora_padded(args->cols); k++)
        to[k] = 0;
}

static void shrink_matrix(const mox_lora_kernel *kernel, const mox_lora_args *args, const group *g, int64_t slot,
                          int matrix, mox_lora_shrink_tile *tile)
{
    const mox_lora_matrix *m = &g->adapter->matrix[matrix];
    if (m->rank == 0 || (matrix == MOX_LORA_UP && g->adapter->one_a))
        return;
    tile->a = (const char *)m->a + mox_lora_place(args, slot) * m->a_expert_bytes;
    tile->dtype = m->a_dtype;
    tile->rank = m->rank;
    tile->scale = m->scale;
    for (int j = 0; j < g->rows; j++)
        tile->u[j] = mox_lora_u(args, g->adapter, g->pair[j], matrix);
    kernel->shrink(tile);
}

void mox_lora_shrink_pairs(const mox_lora_kernel *kernel, const mox_lora_args *args, int64_t slot, int64_t first,
                           int64_t last, int32_t worker)
{
    float *const x = (float *)args->scratch + worker * args->scratch_floats;
    groups all = groups_of(args, first, last);
    group g;
    while (next_group(args, &all, &g)) {
        mox_lora_shrink_tile tile = { .cols = mox_lora_padded(args->cols), .rows = g.rows };
        for (int j = 0; j < g.rows; j++) {
            read_row(args, g.pair[j], x + j * tile.cols);
            tile.x[j] = x + j * tile.cols;
        }
        if (args->second)
            shrink_matrix(kernel, args, &g, slot, MOX_LORA_DOWN, &tile);
        if (!args->second && args->gated)
            shrink_matrix(kernel, args, &g, slot, MOX_LORA_GATE, &tile);
        if (!args->second)
            shrink_matrix(kernel, args, &g, slot, MOX_LORA_UP, &tile);
    }
}

/* ---- expand -------------------------------------------------------------------------------------- */

/* The last panel of a matrix has fewer columns than a tile. */
static void expand_part(const mox_lora_kernel *kernel, const mox_lora_expand_tile *tile, int64_t count)
{
    float copy[MOX_LORA_ROWS][MOX_LORA_LANES] = { { 0 } };
    mox_lora_expand_tile whole = *tile;
    for (int j = 0; j < tile->rows; j++) {
        memcpy(copy[j], tile->out[j], (size_t)count * sizeof(float));
        whole.out[j] = copy[j];
    }
    kernel->expand(&whole);
    for (int j = 0; j < tile->rows; j++)
        memcpy(tile->out[j], copy[j], (size_t)count * sizeof(float));
}

void mox_lora_expand_pairs(const mox_lora_kernel *kernel, const mox_lora_args *args, int64_t slot, int64_t first,
                           int64_t last, int64_t column, int64_t count, float *out, int64_t stride)
{
    const int matrix = mox_lora_matrix_of(args, &column);
    groups all = groups_of(args, first, last);
    group g;
    while (next_group(args, &all, &g)) {
        const mox_lora_matrix *m = &g.adapter->matrix[matrix];
        const int64_t panel_bytes = m->rank * MOX_LORA_LANES * mox_dtype_bytes(m->b_dtype);
        mox_lora_expand_tile tile = { .dtype = m->b_dtype, .rank = m->rank, .rows = g.rows };
        if (m->rank == 0)
            continue;
        tile.b =
            (const char *)m->b + mox_lora_place(args, slot) * m->b_expert_bytes + column / MOX_LORA_LANES * panel_bytes;
        for (int j = 0; j < g.rows; j++) {
            tile.u[j] = mox_lora_u(args, g.adapter, g.pair[j], matrix);
            tile.out[j] = out + (g.pair[j] - first) * stride;
        }
        if (count < MOX_LORA_LANES)
            expand_part(kernel, &tile, count);
        else
            kernel->expand(&tile);
    }
}

/* ---- a whole product ----------------------------------------------------------------------------- */

/* A slot's pairs are cut into so many tasks, because there may be fewer slots than workers. */
enum { PARTS = 4 };

typedef struct lora_job {
    const mox_lora_kernel *kernel;
    const mox_lora_args *args;
    bool expands;
} lora_job;

static void expand_all(const lora_job *job, int64_t slot, int64_t first, int64_t last)
{
    const mox_lora_args *args = job->args;
    const int64_t rows = !args->second && args->gated ? args->n_out / 2 : args->n_out;
    for (int64_t half = 0; half < args->n_out; half += rows)
        for (int64_t n = 0; n < rows; n += MOX_LORA_LANES)
            mox_lora_expand_pairs(job->kernel, args, slot, first, last, half + n, mox_min_i64(MOX_LORA_LANES, rows - n),
                                  args->out + first * args->n_out + half + n, args->n_out);
}

static void one_task(void *context, int64_t task, int32_t worker)
{
    const lora_job *job = context;
    const int64_t slot = task / PARTS, part = task % PARTS;
    const int64_t begin = job->args->offsets[slot], end = job->args->offsets[slot + 1];
    const int64_t each = mox_ceil_div(mox_ceil_div(end - begin, PARTS), MOX_LORA_ROWS) * MOX_LORA_ROWS;
    const int64_t first = mox_min_i64(begin + part * each, end), last = mox_min_i64(first + each, end);
    if (!mox_lora_any(job->args, first, last))
        return;
    mox_lora_shrink_pairs(job->kernel, job->args, slot, first, last, worker);
    if (job->expands)
        expand_all(job, slot, first, last);
}

void mox_lora_shrink(const mox_lora_kernel *kernel, const mox_lora_args *args, const moxie_executor *executor)
{
    lora_job job = { kernel, args, false };
    mox_parallel(executor, args->slots * PARTS, one_task, &job);
}

void mox_lora_run(const mox_lora_kernel *kernel, const mox_lora_args *args, const moxie_executor *executor)
{
    lora_job job = { kernel, args, true };
    mox_parallel(executor, args->slots * PARTS, one_task, &job);
}
