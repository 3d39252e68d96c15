/* SPDX-License-Identifier: Apache-2.0
 *
 * lint_experts.c - weights as numbers: NaN, constant matrices, experts that equal each other, experts unlike the rest.
 *
 *     rms(e)          against the median of the layer: more than 4 times, or less than a quarter
 *     amax(e)/rms(e)  against its median: more than 8 times. The quotient is 4 to 7 for bell-shaped weights of any
 * scale,
 *                     so an expert with a wrong scale is named by the first rule alone, a single wild number by the
 *                     second
 */
#include <math.h>
#include <stdlib.h>

#include "lint/lint_measure.h"

static const char *const projection_names[] = { "gate", "up", "down" };
enum { FEWEST = 4 }; /* experts, for a median to mean something */

void mox_lint_weights(mox_lint_layer *l, const mox_lint_view *v, const mox_lint_measure *measure)
{
    const mox_lint_where where = mox_lint_where_of(l, v->choice, MOX_PART_CODES);
    char who[40];
    mox_lint_who(v->choice, who, sizeof who);
    if (measure->not_finite > 0)
        mox_lint_report(l->lint->report, MOX_LINT_WEIGHT_NOT_FINITE, where, "%s: %llu weights are NaN or infinite", who,
                        (unsigned long long)measure->not_finite);
    if (measure->constant)
        mox_lint_report(l->lint->report, MOX_LINT_EXPERT_CONSTANT, where, "%s: all codes of %s are the same", who,
                        projection_names[v->choice.projection]);
}

void mox_lint_router_numbers(mox_lint_layer *l)
{
    moxie_grid g;
    if (!mox_lint_router(l, &g))
        return;
    int64_t bad = 0;
    for (int64_t r = 0; r < g.rows; r++)
        for (int64_t c = 0; c < g.cols; c++)
            bad += !isfinite(mox_grid_value(&g, r, c));
    const mox_file_tensor *tensor = mox_layer_find(&l->reader, l->reader.names->router);
    if (bad > 0)
        mox_lint_report(l->lint->report, MOX_LINT_WEIGHT_NOT_FINITE, mox_lint_at(l->lint, l->layer, tensor),
                        "%lld numbers of the router are NaN or infinite", (long long)bad);
}

/* ---- equal experts -------------------------------------------------------------------------------- */

typedef struct hashed {
    uint64_t hash;
    int64_t expert;
} hashed;

static int by_hash(const void *a, const void *b)
{
    const hashed *x = a, *y = b;
    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    return x->expert < y->expert ? -1 : x->expert > y->expert;
}

static void check_equal(const mox_lint_measures *m, hashed *sorted)
{
    int64_t count = 0;
    for (int64_t e = 0; e < m->layer->reader.dims.experts; e++) {
        uint64_t hash = 0;
        bool usable = true;
        for (int p = 0; p < MOX_LINT_PROJECTIONS; p++) {
            const mox_lint_measure *one = &m->of[p][e];
            hash = hash * UINT64_C(0x9E3779B97F4A7C15) + one->hash;
            usable = usable && (one->present || p == MOX_LINT_GATE) && !one->constant;
        }
        if (usable)
            sorted[count++] = (hashed) { hash, e };
    }
    if (count > 1)
        qsort(sorted, (size_t)count, sizeof *sorted, by_hash);
    for (int64_t i = 1; i < count; i++)
        if (sorted[i].hash == sorted[i - 1].hash)
            mox_lint_report(
                m->layer->lint->report, MOX_LINT_EXPERTS_EQUAL,
                mox_lint_where_of(m->layer, (mox_lint_choice) { sorted[i].expert, MOX_LINT_UP }, MOX_PART_CODES),
                "experts %lld and %lld have the same codes in every matrix", (long long)sorted[i - 1].expert,
                (long long)sorted[i].expert);
}

/* ---- experts unlike the rest ---------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The median of rms, or of amax / rms, over the experts that can be compared; 0 when they are too few. */
static double median(const mox_lint_measure *of, int64_t experts, bool crest, double *values)
{
    int64_t count = 0;
    for (int64_t e = 0; e < experts; e++)
        if (of[e].present && of[e].comparable && of[e].rms > 0)
            values[count++] = crest ? of[e].amax / of[e].rms : of[e].rms;
    if (count < FEWEST)
        return 0;
    qsort(values, (size_t)count, sizeof *values, by_value);
    return values[count / 2];
}

static void check_outliers(const mox_lint_measures *m, mox_lint_projection p, double *values)
{
    const int64_t experts = m->layer->reader.dims.experts;
    const mox_lint_measure *of = m->of[p];
    const double rms = median(of, experts, false, values), crest = median(of, experts, true, values);
    for (int64_t e = 0; e < experts; e++) {
        if (!of[e].present || !of[e].comparable || of[e].rms <= 0 || of[e].constant)
            continue;
        const mox_lint_where where = mox_lint_where_of(m->layer, (mox_lint_choice) { e, p }, MOX_PART_CODES);
        if (rms > 0 && (of[e].rms > 4 * rms || of[e].rms < rms / 4))
            mox_lint_report(m->layer->lint->report, MOX_LINT_EXPERT_RMS, where,
                            "expert %lld %s: its rms is %.3g, the median of the layer is %.3g", (long long)e,
                            projection_names[p], of[e].rms, rms);
        if (crest > 0 && of[e].amax > 8 * crest * of[e].rms)
            mox_lint_report(
                m->layer->lint->report, MOX_LINT_EXPERT_AMAX, where,
                "expert %lld %s: its largest weight is %.3g, %.3g times its rms; the median of the layer is %.3g "
                "times",
                (long long)e, projection_names[p], of[e].amax, of[e].amax / of[e].rms, crest);
    }
}

void mox_lint_experts(const mox_lint_measures *m)
{
    const uint64_t experts = (uint64_t)m->layer->reader.dims.experts;
    hashed *sorted = mox_calloc(experts, sizeof *sorted);
    double *values = mox_calloc(experts, sizeof *values);
    if (sorted && values) {
        check_equal(m, sorted);
        for (mox_lint_projection p = MOX_LINT_GATE; p <= MOX_LINT_DOWN; p++)
            check_outliers(m, p, values);
    } else {
        m->layer->lint->report->no_memory = true;
    }
    mox_free(sorted);
    mox_free(values);
}
