/* SPDX-License-Identifier: Apache-2.0
 *
 * glu.c - the kernel list of family glu (the activation between the two products), made from glu.def, and the run() of
 * all kernels: a task is one row of h, cut into tiles of 16 columns.
 */
#include "cpu/glu/glu.h"

#include "base/sizes.h"

#define MOX_GLU(id, isa_, exactness_, layout_)                                                                         \
    {                                                                                                                  \
        .base = { .family = "glu", .name = #id, .isa = isa_, .exactness = exactness_, .layout = layout_ },             \
        .run = mox_glu_##id##_run,                                                                                     \
        .admit = mox_glu_admit,                                                                                        \
        .tile = mox_glu_##id##_tile,                                                                                   \
    },
static const mox_glu_kernel kernels[] = {
#include "cpu/glu/glu.def"
};
#undef MOX_GLU

const mox_glu_kernel *mox_glu_at(int32_t i)
{
    return i >= 0 && (size_t)i < sizeof kernels / sizeof kernels[0] ? &kernels[i] : NULL;
}

bool mox_glu_admit(const moxie_activation *activation, mox_rejection *why)
{
    if (mox_activation_of_kind(activation->kind) != NULL)
        return true;
    return mox_reject(why, "choose one of moxie_act_kind", "knows no activation of kind %d", (int)activation->kind);
}

/* ---- rows of h ----------------------------------------------------------------------------------- */

typedef struct glu_job {
    const mox_glu_args *args;
    mox_glu_tile_fn tile;
} glu_job;

/* The slot that owns row p: the last s with offsets[s] <= p. */
static int64_t slot_of(const mox_glu_args *args, int64_t p)
{
    int64_t low = 0, high = args->slots;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (args->offsets[middle] <= p)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Copies `count` gates and ups, which lie `step` apart or do not fill a tile, to a tile of their own, and computes it.
 */
static void compute_copied(const mox_glu_tile *row, mox_glu_tile_fn tile, int64_t step, int64_t count)
{
    float gate[MOX_GLU_TILE] = { 0 }, up[MOX_GLU_TILE] = { 0 }, out[MOX_GLU_TILE];
    mox_glu_tile one = *row;
    for (int64_t i = 0; i < count; i++) {
        gate[i] = row->gate[i * step];
        up[i] = row->up[i * step];
    }
    one.gate = gate, one.up = up, one.out = out, one.rows = 1;
    tile(&one);
    for (int64_t i = 0; i < count; i++)
        row->out[i] = out[i];
}

static void one_row(void *context, int64_t task, int32_t worker)
{
    (void)worker;
    const glu_job *job = context;
    const mox_glu_args *args = job->args;
    const int64_t p = args->offsets[0] + task;
    const int64_t n = args->intermediate;
    const bool gated = mox_activation_is_gated(args->activation.kind);
    const int64_t step = gated && args->interleaved ? 2 : 1;
    const float *gate = args->h + p * (gated ? 2 * n : n);
    mox_glu_tile row = {
        .kind = args->activation.kind,
        .parameters = mox_glu_resolve(&args->activation, args->expert_of ? args->expert_of[slot_of(args, p)] : -1),
        .rows = step == 1 ? n / MOX_GLU_TILE : 0,
        .gate = gate,
        .up = !gated              ? gate
              : args->interleaved ? gate + 1
                                  : gate + n,
        .stride = MOX_GLU_TILE,
        .out = args->out + p * n,
        .out_stride = MOX_GLU_TILE,
    };
    job->tile(&row);
    for (int64_t i = row.rows * MOX_GLU_TILE, next; i < n; i = next) {
        mox_glu_tile rest = row;
        next = mox_min_i64(i + MOX_GLU_TILE, n);
        rest.gate += i * step, rest.up += i * step, rest.out += i;
        compute_copied(&rest, job->tile, step, next - i);
    }
}

void mox_glu_run_tiles(mox_glu_tile_fn tile, const mox_glu_args *args, const moxie_executor *executor)
{
    glu_job job = { args, tile };
    mox_parallel(executor, args->offsets[args->slots] - args->offsets[0], one_row, &job);
}
