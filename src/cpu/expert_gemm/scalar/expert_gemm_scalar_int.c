/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_scalar_int.c - kernel scalar_int: integer weights times int8 activations, summed in int32.
 *
 *     sum = 0;  for each common group s in order:
 *         dot = sum_{k in s} code[k] a[k]  (int32, exact),   part = dot - zero * sum_{k in s} a[k]
 *         sum = sum + (f32(part) * sa) * sw
 *
 * A common group is not cut at MOX_SEGMENT, because integer sums are exact. `part` is computed in double: exact for
 * integer zero points, rounded once for fractional ones. Codes and activations are int16 in scratch, so that the
 * compiler can use multiply-add instructions (pmaddwd).
 */
#include "cpu/expert_gemm/rowmajor_gemm.h"

#include "base/carver.h"
#include "base/sizes.h"

enum { PANEL = MOX_GEMM_PANEL, TOKENS = 16 };

/* Columns of a group: 2^17 - 1 products of magnitude 2^14 fit in int32. */
#define MAX_GROUP INT64_C(131071)

typedef struct scratch {
    mox_gemm_segment *segments; /* [segments] */
    float *row, *arranged;      /* [cols], [stride] */
    int16_t *panel;             /* [PANEL, stride] */
    int16_t *acts;              /* [TOKENS, stride] */
    int32_t *act_sum;           /* [TOKENS, segments] */
} scratch;

static void lay_out(mox_carver *carver, const mox_gemm_extent *extent, scratch *out)
{
    const uint64_t segments = (uint64_t)extent->segments, stride = (uint64_t)extent->stride;
    out->segments = mox_carve(carver, segments, sizeof *out->segments);
    out->row = mox_carve(carver, (uint64_t)extent->cols, sizeof *out->row);
    out->arranged = mox_carve(carver, stride, sizeof *out->arranged);
    out->panel = mox_carve(carver, PANEL * stride, sizeof *out->panel);
    out->acts = mox_carve(carver, TOKENS * stride, sizeof *out->acts);
    out->act_sum = mox_carve(carver, TOKENS * segments, sizeof *out->act_sum);
}

static uint64_t measure(const mox_gemm_extent *extent)
{
    mox_carver carver = mox_carver_of(NULL);
    scratch unused;
    lay_out(&carver, extent, &unused);
    return carver.used;
}

static void arrange_int(const mox_gemm_panel *panel, const scratch *sc, int64_t segments, const float *row,
                        int16_t *out)
{
    const int64_t length = mox_gemm_length(sc->segments, segments);
    mox_gemm_arrange(&panel->matrix, sc->segments, segments, row, sc->arranged);
    for (int64_t k = 0; k < length; k++)
        out[k] = (int16_t)sc->arranged[k];
}

static int32_t dot(const int16_t *restrict x, const int16_t *restrict y, int64_t count)
{
    int32_t sum = 0;
    for (int64_t k = 0; k < count; k++)
        sum += (int32_t)x[k] * (int32_t)y[k];
    return sum;
}

static int32_t total(const int16_t *x, int64_t count)
{
    int32_t sum = 0;
    for (int64_t k = 0; k < count; k++)
        sum += x[k];
    return sum;
}

static void gather(const mox_gemm_job *st, const mox_gemm_panel *panel, const scratch *sc, int64_t segments,
                   int64_t first, int64_t tokens)
{
    const mox_activations *a = st->args->a;
    for (int64_t j = 0; j < tokens; j++) {
        int16_t *acts = sc->acts + j * st->extent.stride;
        const int64_t row = mox_gemm_act_row(st->args, panel->pair + first + j);
        arrange_int(panel, sc, segments, a->values + row * a->stride, acts);
        for (int64_t s = 0; panel->matrix.zero != NULL && s < segments; s++)
            sc->act_sum[j * st->extent.segments + s] = total(acts + sc->segments[s].at, sc->segments[s].count);
    }
}

/* Panel row r times row j of the gathered activations. */
static float multiply(const mox_gemm_job *st, const mox_gemm_panel *panel, const scratch *sc, int64_t segments,
                      int64_t r, int64_t j, int64_t act_row)
{
    const mox_activations *a = st->args->a;
    const int16_t *weight = sc->panel + r * st->extent.stride, *act = sc->acts + j * st->extent.stride;
    const bool act_grouped = mox_gemm_act_grouped(a), weight_grouped = mox_gemm_weight_grouped(panel);
    float sum = 0.0f;
    for (int64_t s = 0; s < segments; s++) {
        const mox_gemm_segment *segment = &sc->segments[s];
        double part = dot(weight + segment->at, act + segment->at, segment->count);
        if (panel->matrix.zero != NULL)
            part -= (double)mox_gemm_zero(panel, panel->row + r, segment->weight_group) *
                    (double)sc->act_sum[j * st->extent.segments + s];
        float scaled = (float)part;
        if (act_grouped)
            scaled *= a->scales[act_row * a->scale_cols + segment->act_group];
        if (weight_grouped)
            scaled *= mox_gemm_weight_scale(panel, panel->row + r, segment->weight_group);
        sum += scaled;
    }
    return sum;
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
    for (int64_t r = 0; r < panel.rows; r++) {
        const uint8_t *codes = panel.matrix.codes + (uint64_t)(panel.row + r) * panel.matrix.row_bytes;
        mox_gemm_decode(&st->decoder, codes, panel.matrix.cols, sc.row);
        arrange_int(&panel, &sc, segments, sc.row, sc.panel + r * st->extent.stride);
    }
    for (int64_t first = 0; first < panel.pairs; first += TOKENS) {
        const int64_t tokens = mox_min_i64(TOKENS, panel.pairs - first);
        gather(st, &panel, &sc, segments, first, tokens);
        for (int64_t j = 0; j < tokens; j++) {
            const int64_t act_row = mox_gemm_act_row(st->args, panel.pair + first + j);
            for (int64_t r = 0; r < panel.rows; r++)
                mox_gemm_finish(st->args, &panel, first + j, r, multiply(st, &panel, &sc, segments, r, j, act_row));
        }
    }
}

/* ---- the kernel --------------------------------------------------------------------------------------- */

void mox_expert_gemm_scalar_int_run(const mox_expert_gemm_args *args, const moxie_executor *executor)
{
    mox_gemm_job job;
    mox_gemm_job_init(&job, args, INT64_MAX);
    job.scratch_bytes = measure(&job.extent);
    mox_parallel(executor, mox_gemm_tasks(args), one_panel, &job);
}

/* True for an integer format whose every value fits int8. */
static bool is_small_integer(moxie_dtype element)
{
    const mox_format *format = mox_format_of(element);
    const float *table = mox_format_table(element);
    if (format == NULL || format->kind != MOX_KIND_INTEGER || table == NULL)
        return false;
    for (int code = 0; code < 256; code++)
        if (table[code] < -128.0f || table[code] > 127.0f)
            return false;
    return true;
}

bool mox_expert_gemm_scalar_int_admit(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    if (!is_small_integer(problem->weight->element))
        return mox_reject(why, "quantize the weights to i4, u4b8, i8 or u8b128",
                          "multiplies integer weights within int8, these are %s",
                          mox_quant_dtype_name(problem->weight->element));
    if (mox_quant_is_none(problem->act) || !is_small_integer(problem->act->element))
        return mox_reject(why, "quantize the activations to i8", "multiplies int8 activations, these are %s",
                          mox_quant_is_none(problem->act) ? "not quantized"
                                                          : mox_quant_dtype_name(problem->act->element));
    const int64_t cols = mox_expert_gemm_cols(problem);
    const int64_t group = mox_min_i64(mox_group_cols(problem->weight, cols), mox_gemm_problem_act_group(problem));
    if (group > MAX_GROUP)
        return mox_reject(why, "quantize weights or activations in shorter groups",
                          "sums groups of at most %lld columns exactly in int32, these have %lld", (long long)MAX_GROUP,
                          (long long)group);
    return true;
}

uint64_t mox_expert_gemm_scalar_int_scratch_bytes(const mox_expert_gemm_problem *problem)
{
    const mox_gemm_extent extent = mox_gemm_problem_extent(problem, INT64_MAX);
    return measure(&extent);
}
