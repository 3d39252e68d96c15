/* SPDX-License-Identifier: Apache-2.0
 *
 * lint_scales.c - the values of scales: those that make weights vanish, NaN, imprecise or too small, and globals that
 * belong to the other rule.
 *
 * The largest weight that NVFP4 can hold is 6 * 448 * global = 2688 * global (or / global where it divides). Released
 * globals put it at the matrix' largest weight, which is far below 2688. A global on the other side of 1 is reciprocal.
 */
#include <math.h>

#include "lint/lint_measure.h"

typedef struct scale_counts {
    int64_t all, invalid, negative, subnormal, largest;
} scale_counts;

static void count_scale(const mox_format *format, double value, scale_counts *n)
{
    n->all++;
    n->invalid += !isfinite(value);
    n->negative += value < 0;
    n->subnormal += value != 0 && fabs(value) < mox_lint_min_normal(format);
    n->largest += isfinite(value) && fabs(value) >= (double)format->max;
}

/* By design the block with the largest weight has the largest E4M3 scale, so a few may; other types have room to spare.
 */
static bool is_saturated(const mox_format *format, const scale_counts *n)
{
    return format->bits == 8 && format->kind == MOX_KIND_FLOAT ? n->largest > 2 && n->largest * 64 > n->all
                                                               : n->largest > 0;
}

static void report_scales(mox_lint_layer *l, const mox_lint_view *v, const mox_format *format, const scale_counts *n,
                          uint64_t imprecise)
{
    const mox_lint_where where = mox_lint_where_of(l, v->choice, MOX_PART_SCALE);
    char who[40];
    mox_lint_who(v->choice, who, sizeof who);
    if (n->invalid + n->negative > 0)
        mox_lint_report(l->lint->report, MOX_LINT_SCALE_INVALID, where,
                        "%s: %lld of %lld scales are NaN or infinite, %lld are negative", who, (long long)n->invalid,
                        (long long)n->all, (long long)n->negative);
    /* A group of zeros may have any scale. */
    if (imprecise > 0)
        mox_lint_report(l->lint->report, MOX_LINT_SCALE_SUBNORMAL, where,
                        "%s: %lld of %lld scales are below %g, the smallest normal %s; %llu weights depend on them",
                        who, (long long)n->subnormal, (long long)n->all, mox_lint_min_normal(format), format->name,
                        (unsigned long long)imprecise);
    if (is_saturated(format, n))
        mox_lint_report(l->lint->report, MOX_LINT_SCALE_SATURATED, where,
                        "%s: %lld of %lld scales are %g, the largest %s", who, (long long)n->largest, (long long)n->all,
                        (double)format->max, format->name);
}

static void check_scales(mox_lint_layer *l, const mox_lint_view *v, mox_lint_measure *out)
{
    const moxie_grid *g = &v->matrix.scale;
    const mox_format *format = mox_format_of(g->dtype);
    scale_counts n = { 0 };
    if (!g->data || !format)
        return;
    for (int64_t r = 0; r < g->rows; r++)
        for (int64_t c = 0; c < g->cols; c++)
            count_scale(format, mox_grid_value(g, r, c), &n);
    report_scales(l, v, format, &n, out->imprecise);
    out->comparable = out->comparable && n.invalid == 0;
}

static void check_global(mox_lint_layer *l, const mox_lint_view *v, mox_lint_measure *out)
{
    const moxie_grid *g = &v->matrix.global;
    if (!g->data)
        return;
    const mox_lint_where where = mox_lint_where_of(l, v->choice, MOX_PART_GLOBAL);
    const bool divides = v->quant.global == MOXIE_GLOBAL_DIVIDE;
    char who[40];
    mox_lint_who(v->choice, who, sizeof who);
    out->global = mox_grid_value(g, 0, 0);
    const bool usable = isfinite(out->global) && out->global > 0;
    const bool reciprocal = usable && (divides ? out->global < 1 : out->global > 1);
    if (!usable)
        mox_lint_report(l->lint->report, MOX_LINT_GLOBAL_UNUSABLE, where, "%s: it is %g", who, out->global);
    if (reciprocal)
        mox_lint_report(l->lint->report, MOX_LINT_GLOBAL_RECIPROCAL, where,
                        "%s: it is %g, and weights are %s by it; the range would be %g", who, out->global,
                        divides ? "divided" : "multiplied", divides ? 2688 / out->global : 2688 * out->global);
    out->comparable = out->comparable && usable && !reciprocal;
}

void mox_lint_scales(mox_lint_layer *l, const mox_lint_view *v, mox_lint_measure *out)
{
    char who[40];
    check_scales(l, v, out);
    check_global(l, v, out);
    if (out->vanished > 0 && out->comparable)
        mox_lint_report(l->lint->report, MOX_LINT_SCALE_ZERO, mox_lint_where_of(l, v->choice, MOX_PART_SCALE),
                        "%s: %llu weights have codes other than zero and a scale of zero",
                        mox_lint_who(v->choice, who, sizeof who), (unsigned long long)out->vanished);
}

/* ---- gate against up ------------------------------------------------------------------------------ */

void mox_lint_globals(const mox_lint_measures *m)
{
    for (int64_t e = 0; e <= m->layer->reader.dims.experts; e++) {
        const double gate = m->of[MOX_LINT_GATE][e].global, up = m->of[MOX_LINT_UP][e].global;
        const mox_lint_choice choice = mox_lint_choice_of(m, e, MOX_LINT_UP);
        char who[40];
        if (gate > 0 && up > 0 && gate != up)
            mox_lint_report(m->layer->lint->report, MOX_LINT_GLOBAL_GATE_UP,
                            mox_lint_where_of(m->layer, choice, MOX_PART_GLOBAL),
                            "%s: gate has %g, up has %g, a ratio of %g", mox_lint_who(choice, who, sizeof who), gate,
                            up, up / gate);
    }
}
