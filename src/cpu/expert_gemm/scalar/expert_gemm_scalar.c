/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_scalar.c - kernel scalar_any: weights of every format times activations of every format, in portable C.
 *
 *     decode     8 weight rows x all K to f32 minus zero points, once per task -> panel
 *     multiply   blocks of about 512 columns x 2 weight rows x 2 tokens; a block of the panel stays in cache
 *     finish     lanes -> one number by a fixed tree -> scales, globals, bias -> out
 *
 * A dot product depends on nothing but its two vectors:
 *     lane[l] = 0;  for each segment in order:
 *         part[l] = sum from zero, ascending, of (code - zero)[k] a[k],  k = l, l + 16, ... of the segment
 *         lane[l] = lane[l] + (part[l] * sa) * sw
 *     sum = tree(lane):  l + (l + 8), then + 4, + 2, + 1
 * Product and sum are rounded separately. Products of 8-bit and 16-bit codes are exact in f32, so a kernel with fused
 * multiply-add gives the same bytes. part * sa comes first because sa * sw alone could leave the range of f32.
 *
 * Vectors hold four f32, as baseline x86-64 and aarch64 have them; elsewhere the compiler splits them.
 */
#include "cpu/expert_gemm/rowmajor_gemm.h"

#include "base/carver.h"
#include "base/sizes.h"

enum { LANES = MOX_GEMM_LANES, PANEL = MOX_GEMM_PANEL, TOKENS = 16, BLOCK = 512, QUAD = 4 };

typedef float quad __attribute__((vector_size(16)));

/* A worker's memory, in this order. */
typedef struct scratch {
    mox_gemm_segment *segments; /* [segments] */
    float *panel;               /* [PANEL, stride] */
    float *row;                 /* [cols] decoded row, when its columns have to be rearranged */
    float *acts;                /* [TOKENS, stride] rearranged activations */
    float *weight_scale;        /* [PANEL, segments] */
    float *act_scale;           /* [TOKENS, segments] */
    float *lanes;               /* [TOKENS, PANEL, LANES] */
} scratch;

static void lay_out(mox_carver *carver, const mox_gemm_extent *extent, scratch *out)
{
    const uint64_t segments = (uint64_t)extent->segments, stride = (uint64_t)extent->stride;
    out->segments = mox_carve(carver, segments, sizeof *out->segments);
    out->panel = mox_carve(carver, PANEL * stride, sizeof *out->panel);
    out->row = mox_carve(carver, (uint64_t)extent->cols, sizeof *out->row);
    out->acts = mox_carve(carver, TOKENS * stride, sizeof *out->acts);
    out->weight_scale = mox_carve(carver, PANEL * segments, sizeof *out->weight_scale);
    out->act_scale = mox_carve(carver, TOKENS * segments, sizeof *out->act_scale);
    out->lanes = mox_carve(carver, TOKENS * PANEL * LANES, sizeof *out->lanes);
}

static uint64_t measure(const mox_gemm_extent *extent)
{
    mox_carver carver = mox_carver_of(NULL);
    scratch unused;
    lay_out(&carver, extent, &unused);
    return carver.used;
}

/* ---- decode ------------------------------------------------------------------------------------------ */

static void decode_row(const mox_gemm_job *st, const mox_gemm_panel *panel, const scratch *sc, int64_t segments,
                       bool in_place, int64_t r)
{
    const mox_rowmajor_matrix *m = &panel->matrix;
    const int64_t n = panel->row + r, length = mox_gemm_length(sc->segments, segments);
    float *out = sc->panel + r * st->extent.stride;
    mox_gemm_decode(&st->decoder, m->codes + (uint64_t)n * m->row_bytes, m->cols, in_place ? out : sc->row);
    if (in_place)
        memset(out + m->cols, 0, (size_t)(length - m->cols) * sizeof(float));
    else
        mox_gemm_arrange(m, sc->segments, segments, sc->row, out);
    if (m->zero == NULL)
        return;
    for (int64_t s = 0; s < segments; s++) {
        const mox_gemm_segment *segment = &sc->segments[s];
        const float zero = mox_gemm_zero(panel, n, segment->weight_group);
        for (int64_t i = 0; i < segment->count; i++)
            out[segment->at + i] -= zero;
    }
}

static void decode_panel(const mox_gemm_job *st, const mox_gemm_panel *panel, const scratch *sc, int64_t segments,
                         bool in_place)
{
    const bool grouped = mox_gemm_weight_grouped(panel);
    for (int64_t r = 0; r < panel->rows; r++) {
        decode_row(st, panel, sc, segments, in_place, r);
        for (int64_t s = 0; s < segments; s++)
            sc->weight_scale[r * st->extent.segments + s] =
                grouped ? mox_gemm_weight_scale(panel, panel->row + r, sc->segments[s].weight_group) : 1.0f;
    }
}

/* ---- multiply ---------------------------------------------------------------------------------------- */

/* Two weight rows times one or two tokens over some segments. */
typedef struct tile {
    const mox_gemm_segment *segments;
    int64_t count;
    const float *weight[2], *act[2];             /* panel rows */
    const float *weight_scale[2], *act_scale[2]; /* by segment */
    float *lanes[2][2];                          /* [token][row] -> [LANES] */
} tile;

static inline quad load(const float *from)
{
    quad value;
    memcpy(&value, from, sizeof value);
    return value;
}

static inline quad splat(float x)
{
    return (quad) { x, x, x, x };
}

/* Lanes q..q+3 of all segments: few enough sums to stay in registers. `tokens` and `scaled` are constants at
 * every call, so their tests vanish. */
__attribute__((always_inline)) static inline void multiply_quad(const tile *t, int q, int tokens, bool scaled)
{
    quad lanes[2][2], part[2][2];
    for (int j = 0; j < tokens; j++)
        for (int r = 0; r < 2; r++)
            lanes[j][r] = load(t->lanes[j][r] + q);
    for (int64_t s = 0; s < t->count; s++) {
        const int64_t first = t->segments[s].at + q, end = t->segments[s].at + t->segments[s].count;
        for (int j = 0; j < tokens; j++)
            for (int r = 0; r < 2; r++)
                part[j][r] = splat(0.0f);
        for (int64_t k = first; k < end; k += LANES)
            for (int r = 0; r < 2; r++) {
                const quad w = load(t->weight[r] + k);
                for (int j = 0; j < tokens; j++)
                    part[j][r] += w * load(t->act[j] + k);
            }
        for (int j = 0; j < tokens; j++)
            for (int r = 0; r < 2; r++) {
                const quad p = scaled ? part[j][r] * splat(t->act_scale[j][s]) : part[j][r];
                lanes[j][r] += p * splat(t->weight_scale[r][s]);
            }
    }
    for (int j = 0; j < tokens; j++)
        for (int r = 0; r < 2; r++)
            memcpy(t->lanes[j][r] + q, &lanes[j][r], sizeof(quad));
}

static void multiply_tile(const tile *t, int tokens, bool scaled)
{
    for (int q = 0; q < LANES; q += QUAD) {
        if (tokens == 2 && scaled)
            multiply_quad(t, q, 2, true);
        else if (tokens == 2)
            multiply_quad(t, q, 2, false);
        else if (scaled)
            multiply_quad(t, q, 1, true);
        else
            multiply_quad(t, q, 1, false);
    }
}

/* One block of segments, all rows of the panel, `tokens` rows of activations. An odd last row is paired with itself. */
static void multiply_block(const mox_gemm_job *st, const scratch *sc, int64_t rows, const float *const *acts,
                           int64_t tokens, int64_t first, int64_t count)
{
    const int64_t stride = st->extent.stride, max_segments = st->extent.segments;
    const bool scaled = mox_gemm_act_grouped(st->args->a);
    float unused[LANES] = { 0 };
    tile t = { .segments = sc->segments + first, .count = count };
    for (int64_t j = 0; j < tokens; j += 2)
        for (int64_t r = 0; r < rows; r += 2) {
            const int tile_tokens = j + 1 < tokens ? 2 : 1;
            for (int i = 0; i < 2; i++) {
                const int64_t row = mox_min_i64(r + i, rows - 1);
                t.weight[i] = sc->panel + row * stride;
                t.weight_scale[i] = sc->weight_scale + row * max_segments + first;
            }
            for (int i = 0; i < tile_tokens; i++) {
                float *lanes = sc->lanes + ((j + i) * PANEL + r) * LANES;
                t.act[i] = acts[j + i];
                t.act_scale[i] = sc->act_scale + (j + i) * max_segments + first;
                t.lanes[i][0] = lanes;
                t.lanes[i][1] = r + 1 < rows ? lanes + LANES : unused;
            }
            multiply_tile(&t, tile_tokens, scaled);
        }
}

/* Number of segments, from `first` on, in a block. */
static int64_t block_of(const mox_gemm_segment *segments, int64_t first, int64_t count)
{
    int64_t n = 1;
    while (first + n < count && segments[first + n].at - segments[first].at < BLOCK)
        n++;
    return n;
}

static float add_lanes(const float *lanes)
{
    float sum[LANES / 2];
    for (int l = 0; l < LANES / 2; l++)
        sum[l] = lanes[l] + lanes[l + LANES / 2];
    for (int width = LANES / 4; width > 0; width /= 2)
        for (int l = 0; l < width; l++)
            sum[l] += sum[l + width];
    return sum[0];
}

/* Collects activations and scales of `tokens` pairs, from the panel's pair `first` on. Activations are rearranged, or
 * read in place. */
static void gather(const mox_gemm_job *st, const mox_gemm_panel *panel, const scratch *sc, int64_t segments,
                   bool in_place, int64_t first, int64_t tokens, const float **acts)
{
    const mox_activations *a = st->args->a;
    const bool scaled = mox_gemm_act_grouped(a);
    for (int64_t j = 0; j < tokens; j++) {
        const int64_t row = mox_gemm_act_row(st->args, panel->pair + first + j);
        const float *values = a->values + row * a->stride;
        float *arranged = sc->acts + j * st->extent.stride;
        acts[j] = in_place ? values : arranged;
        if (!in_place)
            mox_gemm_arrange(&panel->matrix, sc->segments, segments, values, arranged);
        for (int64_t s = 0; scaled && s < segments; s++)
            sc->act_scale[j * st->extent.segments + s] = a->scales[row * a->scale_cols + sc->segments[s].act_group];
    }
}

static void one_panel(void *context, int64_t task, int32_t worker)
{
    const mox_gemm_job *st = context;
    mox_gemm_panel panel;
    if (!mox_gemm_panel_of(st->args, task, &panel))
        return;
    mox_carver carver = mox_carver_of((uint8_t *)st->args->scratch + (uint64_t)worker * st->scratch_bytes);
    scratch sc;
    lay_out(&carver, &st->extent, &sc);
    bool in_place;
    const int64_t segments = mox_gemm_cut(&panel.matrix, &st->extent, sc.segments, &in_place);
    decode_panel(st, &panel, &sc, segments, in_place);
    for (int64_t first = 0; first < panel.pairs; first += TOKENS) {
        const int64_t tokens = mox_min_i64(TOKENS, panel.pairs - first);
        const float *acts[TOKENS];
        gather(st, &panel, &sc, segments, in_place, first, tokens, acts);
        memset(sc.lanes, 0, (size_t)tokens * PANEL * LANES * sizeof(float));
        for (int64_t s = 0, n; s < segments; s += n) {
            n = block_of(sc.segments, s, segments);
            multiply_block(st, &sc, panel.rows, acts, tokens, s, n);
        }
        for (int64_t j = 0; j < tokens; j++)
            for (int64_t r = 0; r < panel.rows; r++)
                mox_gemm_finish(st->args, &panel, first + j, r, add_lanes(sc.lanes + (j * PANEL + r) * LANES));
    }
}

/* ---- the kernel --------------------------------------------------------------------------------------- */

void mox_expert_gemm_scalar_any_run(const mox_expert_gemm_args *args, const moxie_executor *executor)
{
    mox_gemm_job job;
    mox_gemm_job_init(&job, args, MOX_SEGMENT);
    job.scratch_bytes = measure(&job.extent);
    mox_parallel(executor, mox_gemm_tasks(args), one_panel, &job);
}

bool mox_expert_gemm_scalar_any_admit(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    (void)problem, (void)why;
    return true;
}

uint64_t mox_expert_gemm_scalar_any_scratch_bytes(const mox_expert_gemm_problem *problem)
{
    const mox_gemm_extent extent = mox_gemm_problem_extent(problem, MOX_SEGMENT);
    return measure(&extent);
}
