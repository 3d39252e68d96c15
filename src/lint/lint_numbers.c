/* SPDX-License-Identifier: Apache-2.0
 *
 * lint_numbers.c - `deep`: reads the numbers of one layer, one expert at a time, and drops the pages of mapped files
 * behind it. What stays in memory is one mox_lint_measure per matrix, and sums over rows and columns.
 */
#include "lint/lint_measure.h"

/* One expert: its views, and memory that the next one reuses. */
typedef struct expert_at_hand {
    mox_lint_view views[MOX_LINT_PROJECTIONS];
    mox_lint_measure measures[MOX_LINT_PROJECTIONS];
    mox_arena arena;
} expert_at_hand;

/* Views one projection. stored NULL: there is none, or it cannot be read. */
static void open_view(mox_lint_layer *l, mox_lint_choice choice, mox_arena *arena, mox_lint_view *v)
{
    mox_part_rows rows;
    *v = (mox_lint_view) { .choice = choice };
    const mox_lint_stored *s = mox_lint_find_stored(l, choice, &v->place, &rows);
    mox_layer_reader reader = l->reader;
    reader.arena = arena;
    if (!s)
        return;
    /* Any other failure is the loader's, too, which reports it. */
    const moxie_status status = mox_read_matrix(&reader, &s->match, &v->place, rows, &v->matrix, &v->quant);
    l->lint->report->no_memory = l->lint->report->no_memory || status == MOXIE_ERR_MEMORY;
    if (status != MOXIE_OK)
        return;
    v->row_energy = mox_arena_calloc(arena, (uint64_t)v->matrix.codes.rows, sizeof *v->row_energy);
    v->col_energy = mox_arena_calloc(arena, (uint64_t)v->matrix.codes.cols, sizeof *v->col_energy);
    if (v->row_energy && v->col_energy)
        v->stored = s;
    else
        l->lint->report->no_memory = true;
}

static void drop_view(const mox_lint_layer *l, const mox_lint_view *v)
{
    const int64_t experts = v->place.stacked > 0 ? v->place.stacked : 1;
    for (int p = 0; p < MOX_MAX_PARTS; p++) {
        const mox_file_tensor *t = v->stored->match.parts[p];
        if (!t)
            continue;
        const uint64_t each = t->bytes / (uint64_t)experts;
        mox_lint_drop(l->lint, t, (const char *)t->view.data + each * (uint64_t)v->place.expert, each);
    }
}

static void measure_expert(mox_lint_layer *l, int64_t expert, expert_at_hand *at)
{
    for (mox_lint_projection p = MOX_LINT_GATE; p <= MOX_LINT_DOWN; p++) {
        mox_lint_view *v = &at->views[p];
        mox_lint_measure *m = &at->measures[p];
        *m = (mox_lint_measure) { 0 };
        open_view(l, (mox_lint_choice) { expert, p }, &at->arena, v);
        if (!v->stored)
            continue;
        if (!mox_lint_measure_matrix(v, m)) {
            l->lint->report->no_memory = true;
            continue;
        }
        mox_lint_scales(l, v, m);
        mox_lint_input(l, v, m);
        mox_lint_weights(l, v, m);
        drop_view(l, v);
    }
}

static void keep(mox_lint_measures *m, int64_t index, const expert_at_hand *at)
{
    for (int p = 0; p < MOX_LINT_PROJECTIONS; p++)
        m->of[p][index] = at->measures[p];
}

static void add_sums(mox_lint_measures *m, const expert_at_hand *at)
{
    for (int p = MOX_LINT_GATE; p <= MOX_LINT_UP; p++)
        for (int64_t c = 0; at->views[p].stored && c < m->layer->reader.dims.expert_width; c++)
            m->columns[c] += at->views[p].col_energy[c];
    mox_lint_order_expert(m, at->views);
}

static bool progress(const mox_lint_layer *l, int64_t done)
{
    const moxie_lint_options *o = l->lint->options;
    return !o->progress || o->progress(o->progress_user, done, l->reader.dims.experts) == 0;
}

static bool make_room(mox_lint_measures *m)
{
    const mox_dims *d = &m->layer->reader.dims;
    m->columns = mox_arena_calloc(&m->arena, (uint64_t)d->expert_width, sizeof *m->columns);
    bool fine = m->columns != NULL;
    for (int p = 0; p < MOX_LINT_PROJECTIONS; p++) {
        m->of[p] = mox_arena_calloc(&m->arena, (uint64_t)d->experts + 1, sizeof *m->of[p]);
        fine = fine && m->of[p];
    }
    return fine;
}

static moxie_status measure_all(mox_lint_measures *m, moxie_error *error)
{
    mox_lint_layer *l = m->layer;
    expert_at_hand at = { 0 };
    for (int64_t e = 0; e < l->reader.dims.experts; e++) {
        measure_expert(l, e, &at);
        keep(m, e, &at);
        add_sums(m, &at);
        mox_arena_free(&at.arena);
        at.arena = (mox_arena) { 0 };
        MOX_FAIL_IF(!progress(l, e + 1), MOXIE_ERR_TIMEOUT, error, "the caller stopped at layer %lld, expert %lld",
                    (long long)l->layer, (long long)e);
    }
    if (l->n_stored > l->first_shared) {
        measure_expert(l, -1, &at);
        keep(m, l->reader.dims.experts, &at);
    }
    mox_arena_free(&at.arena);
    return MOXIE_OK;
}

moxie_status mox_lint_numbers(mox_lint_layer *l, moxie_error *error)
{
    mox_lint_measures m = { .layer = l };
    moxie_status status = MOXIE_OK;
    if (make_room(&m))
        status = measure_all(&m, error);
    else
        l->lint->report->no_memory = true;
    if (status == MOXIE_OK && !l->lint->report->no_memory) {
        mox_lint_router_numbers(l);
        mox_lint_globals(&m);
        mox_lint_inputs(&m);
        mox_lint_experts(&m);
        mox_lint_order(&m);
    }
    mox_arena_free(&m.arena);
    return status;
}
