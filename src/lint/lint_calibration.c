/* SPDX-License-Identifier: Apache-2.0
 *
 * lint_calibration.c - static activation scales: which experts calibration never reached, and whom it makes disagree.
 */
#include <math.h>

#include "base/sizes.h"
#include "lint/lint_measure.h"

static bool is_usable(double input)
{
    return isfinite(input) && input > 0;
}

void mox_lint_input(mox_lint_layer *l, const mox_lint_view *v, mox_lint_measure *out)
{
    const mox_match *match = &v->stored->match;
    for (int p = 0; p < MOX_MAX_PARTS && match->format->parts[p].role != MOX_PART_NONE; p++) {
        if (match->format->parts[p].role != MOX_PART_INPUT_SCALE || !match->parts[p])
            continue;
        const moxie_grid g = mox_part_grid(&match->format->parts[p], &match->weight, &match->parts[p]->view,
                                           match->parts[p]->bytes, &v->place);
        const double input = (double)mox_load(g.dtype, g.data);
        const mox_lint_where where = mox_lint_at(l->lint, l->layer, match->parts[p]);
        char who[40];
        mox_lint_who(v->choice, who, sizeof who);
        out->input = is_usable(input) ? input : 0;
        if (!is_usable(input))
            mox_lint_report(l->lint->report, MOX_LINT_INPUT_ABSENT, where, "%s: it is %g", who, input);
        if (input == 1)
            mox_lint_report(l->lint->report, MOX_LINT_INPUT_ONE, where, "%s: it is exactly 1", who);
    }
}

static void check_gate_up(const mox_lint_measures *m)
{
    for (int64_t e = 0; e <= m->layer->reader.dims.experts; e++) {
        const double gate = m->of[MOX_LINT_GATE][e].input, up = m->of[MOX_LINT_UP][e].input;
        const mox_lint_choice choice = mox_lint_choice_of(m, e, MOX_LINT_UP);
        char who[40];
        if (gate > 0 && up > 0 && gate != 1 && up != 1 && gate != up)
            mox_lint_report(m->layer->lint->report, MOX_LINT_INPUT_GATE_UP,
                            mox_lint_where_of(m->layer, choice, MOX_PART_INPUT_SCALE), "%s: gate has %g, up has %g",
                            mox_lint_who(choice, who, sizeof who), gate, up);
    }
}

/* The widest range among experts [first, end): the largest scale, or the smallest global that divides. 0: none. */
static double widest(const mox_lint_measure *of, int64_t first, int64_t end, bool divides)
{
    double result = 0;
    for (int64_t e = first; e < end; e++) {
        const double range = of[e].input > 0 && of[e].input != 1 ? divides ? 1 / of[e].input : of[e].input : 0;
        result = fmax(result, range);
    }
    return result;
}

/* How much the ranks' widest ranges differ when `ranks` share the experts. */
static double spread(const mox_lint_measure *of, int64_t experts, int64_t ranks, bool divides)
{
    double low = INFINITY, high = 0;
    for (int64_t r = 0; r < ranks; r++) {
        const double own = widest(of, r * experts / ranks, (r + 1) * experts / ranks, divides);
        if (own > 0) {
            low = fmin(low, own);
            high = fmax(high, own);
        }
    }
    return high > 0 ? high / low : 1;
}

static void check_ranks(const mox_lint_measures *m, mox_lint_projection p)
{
    const int64_t experts = m->layer->reader.dims.experts;
    mox_part_place place;
    mox_part_rows rows;
    const mox_lint_stored *s = mox_lint_find_stored(m->layer, (mox_lint_choice) { 0, p }, &place, &rows);
    const bool divides = s && s->match.format->act.global == MOXIE_GLOBAL_DIVIDE;
    for (int64_t ranks = 2; s && ranks <= 8 && experts % ranks == 0; ranks *= 2) {
        const double ratio = spread(m->of[p], experts, ranks, divides);
        if (ratio <= 2)
            continue;
        mox_lint_report(m->layer->lint->report, MOX_LINT_INPUT_BY_RANK,
                        mox_lint_where_of(m->layer, (mox_lint_choice) { 0, p }, MOX_PART_INPUT_SCALE),
                        "with the experts on %lld ranks, the widest scale of %s differs by a factor of %.3g",
                        (long long)ranks, p == MOX_LINT_DOWN ? "down" : "gate and up", ratio);
        return;
    }
}

void mox_lint_inputs(const mox_lint_measures *m)
{
    check_gate_up(m);
    check_ranks(m, MOX_LINT_UP);
    check_ranks(m, MOX_LINT_DOWN);
}
