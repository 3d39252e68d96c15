/* SPDX-License-Identifier: Apache-2.0
 *
 * lint_order.c - two suspicions that only statistics can raise: codes of a word in the wrong order, gate taken for up.
 *
 * A permutation inside a word changes no histogram and no group's scale, so nothing within one matrix shows it. Other
 * tensors with the same axis do, if the model was trained:
 *
 *     columns of gate and up read the hidden state, and so do the router's columns. Channels with large activations get
 *     small weights in both: the sizes of columns agree.
 *     row n of up and column n of down belong to one neuron, and u -> c u, d -> d / c leaves the model unchanged.
 * Weight
 *     decay then makes both equally large: their sizes agree. Gate has no such freedom, since its activation bends.
 *
 * Sizes are logarithms of energies, less their mean over a word (order) or over an expert (gate against up):
 *
 *     order     r(packed side, other side), as stored and with the codes of each word permuted
 *     gate/up   r(up, down) and r(gate, down)
 *
 * Unrelated numbers (an untrained or synthetic checkpoint) have r near 0 either way, and nothing is said: then this
 * check cannot know. It speaks when the other reading is clearly better: r above 0.5, by more than 0.5, and 6
 * deviations from 0.
 */
#include <math.h>

#include "lint/lint_measure.h"

/* For each order, which element of the word the other side's is compared with. AWQ's order needs words of 8. */
static const int8_t orders[MOX_LINT_ORDERS][8] = {
    { 0, 1, 2, 3, 4, 5, 6, 7 },
    { 1, 0, 3, 2, 5, 4, 7, 6 },
    { 0, 2, 4, 6, 1, 3, 5, 7 },
    { 0, 4, 1, 5, 2, 6, 3, 7 },
};
static const char *const order_names[MOX_LINT_ORDERS] = { "as stored", "with neighbours swapped", "in AWQ's order",
                                                          "out of AWQ's order" };

static int orders_of(int32_t per_word)
{
    return per_word == 8 ? MOX_LINT_ORDERS : per_word == 2 || per_word == 4 ? 2 : 0;
}

static double coefficient(const mox_lint_correlation *c)
{
    const double norm = sqrt(c->xx * c->yy);
    return norm > 0 ? c->xy / norm : 0;
}

static void add(mox_lint_correlation *c, double x, double y)
{
    c->xx += x * x;
    c->yy += y * y;
    c->xy += x * y;
}

/* Logarithms of `count` energies less their mean. False when one is zero. */
static bool deviations(const double *energy, int32_t count, double *out)
{
    double mean = 0;
    for (int32_t i = 0; i < count; i++) {
        if (!(energy[i] > 0))
            return false;
        out[i] = log(energy[i]);
        mean += out[i] / count;
    }
    for (int32_t i = 0; i < count; i++)
        out[i] -= mean;
    return true;
}

/* Compares two sides of `count` elements word by word. */
static void add_words(mox_lint_correlation of[MOX_LINT_ORDERS], int32_t per_word, const double *packed,
                      const double *other, int64_t count)
{
    const int n = orders_of(per_word);
    for (int64_t w = 0; n > 0 && w + per_word <= count; w += per_word) {
        double x[8], y[8];
        if (!deviations(packed + w, per_word, x) || !deviations(other + w, per_word, y))
            continue;
        for (int o = 0; o < n; o++) {
            of[o].n += per_word - 1;
            for (int32_t i = 0; i < per_word; i++)
                add(&of[o], x[i], y[orders[o][i]]);
        }
    }
}

/* Compares rows of one matrix with columns of another, as a whole. */
static void add_all(mox_lint_correlation *of, const double *rows, const double *columns, int64_t count)
{
    double mean_x = 0, mean_y = 0;
    int64_t used = 0;
    for (int64_t i = 0; i < count; i++)
        if (rows[i] > 0 && columns[i] > 0) {
            mean_x += log(rows[i]);
            mean_y += log(columns[i]);
            used++;
        }
    for (int64_t i = 0; used > 1 && i < count; i++)
        if (rows[i] > 0 && columns[i] > 0)
            add(of, log(rows[i]) - mean_x / (double)used, log(columns[i]) - mean_y / (double)used);
    of->n += used > 1 ? (double)used - 1 : 0;
}

void mox_lint_order_expert(mox_lint_measures *m, const mox_lint_view views[MOX_LINT_PROJECTIONS])
{
    const mox_lint_view *gate = &views[MOX_LINT_GATE], *up = &views[MOX_LINT_UP], *down = &views[MOX_LINT_DOWN];
    if (!up->stored || !down->stored)
        return;
    const int64_t neurons = up->matrix.codes.rows;
    const moxie_packing packing = up->matrix.codes.packing;
    m->per_word = packing.per_word;
    m->words_of_rows = packing.along_rows;
    if (packing.along_rows)
        add_words(m->order, packing.per_word, up->row_energy, down->col_energy, neurons);
    else
        add_words(m->order, packing.per_word, down->col_energy, up->row_energy, neurons);
    add_all(&m->up_down, up->row_energy, down->col_energy, neurons);
    if (gate->stored)
        add_all(&m->gate_down, gate->row_energy, down->col_energy, neurons);
}

/* ---- the verdict ---------------------------------------------------------------------------------- */

static bool is_better(double r, double stored, double n)
{
    return r > 0.5 && r - stored > 0.5 && r * sqrt(n) > 6;
}

static void judge_order(const mox_lint_measures *m, const mox_lint_correlation of[MOX_LINT_ORDERS], const char *what)
{
    const double stored = coefficient(&of[0]);
    int best = 0;
    for (int o = 1; o < orders_of(m->per_word); o++)
        if (coefficient(&of[o]) > coefficient(&of[best]))
            best = o;
    if (is_better(coefficient(&of[best]), stored, of[best].n))
        mox_lint_report(m->layer->lint->report, MOX_LINT_NIBBLE_ORDER,
                        mox_lint_where_of(m->layer, (mox_lint_choice) { 0, MOX_LINT_UP }, MOX_PART_CODES),
                        "%s correlate by %.2f as stored, by %.2f %s, over %.0f comparisons", what, stored,
                        coefficient(&of[best]), order_names[best], of[best].n);
}

/* Columns of gate and up of all experts against the router's. */
static void judge_columns(const mox_lint_measures *m)
{
    moxie_grid router;
    mox_lint_correlation of[MOX_LINT_ORDERS] = { 0 };
    const mox_dims *d = &m->layer->reader.dims;
    if (m->words_of_rows || d->expert_width != d->hidden || !mox_lint_router(m->layer, &router))
        return;
    double *energy = mox_calloc((uint64_t)router.cols, sizeof *energy);
    if (!energy) {
        m->layer->lint->report->no_memory = true;
        return;
    }
    for (int64_t r = 0; r < router.rows; r++)
        for (int64_t c = 0; c < router.cols; c++)
            energy[c] += mox_grid_value(&router, r, c) * mox_grid_value(&router, r, c);
    add_words(of, m->per_word, m->columns, energy, router.cols);
    mox_free(energy);
    judge_order(m, of, "columns of gate and up and those of the router");
}

void mox_lint_order(const mox_lint_measures *m)
{
    judge_order(m, m->order, "rows of up and columns of down");
    judge_columns(m);
    const double up = coefficient(&m->up_down), gate = coefficient(&m->gate_down);
    if (is_better(gate, up, m->gate_down.n))
        mox_lint_report(
            m->layer->lint->report, MOX_LINT_GATE_UP_SWAPPED,
            mox_lint_where_of(m->layer, (mox_lint_choice) { 0, MOX_LINT_GATE }, MOX_PART_CODES),
            "columns of down correlate with rows of gate by %.2f, with rows of up by %.2f, over %.0f neurons", gate, up,
            m->gate_down.n);
}
