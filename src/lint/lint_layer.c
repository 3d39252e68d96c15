/* SPDX-License-Identifier: Apache-2.0
 *
 * lint_layer.c - lists the stored matrices of one layer and matches each with a format. It follows src/ckpt/model,
 * which stops at the first defect; here every matrix is asked, so that one defect does not hide another.
 */
#include "lint/lint_layer.h"

#include <string.h>

#include "base/sizes.h"
#include "ckpt/model/model_shared.h"

/* ---- which matrices ------------------------------------------------------------------------------- */

static bool add(mox_lint_layer *l, mox_lint_projection projection, const char *name, int64_t expert, bool shared)
{
    const mox_dims *d = &l->reader.dims;
    const int64_t width = shared ? d->hidden : d->expert_width,
                  narrow = shared ? d->shared_intermediate : d->intermediate;
    const bool down = projection == MOX_LINT_DOWN, both = projection == MOX_LINT_GATE_UP;
    char full[256];
    if (!name)
        return true;
    if (!mox_expand_name(full, sizeof full, l->reader.prefix, name, l->layer, expert))
        return false;
    mox_lint_stored *s = &l->stored[l->n_stored];
    *s = (mox_lint_stored) { .projection = projection, .expert = expert, .shared = shared };
    s->name = mox_arena_strndup(&l->arena, full, strlen(full));
    if (!s->name)
        return false;
    s->wanted = (mox_wanted) { .name = s->name,
                               .n = down   ? width
                                    : both ? 2 * narrow
                                           : narrow,
                               .k = down ? narrow : width };
    l->n_stored++;
    return true;
}

static bool add_three(mox_lint_layer *l, const char *const names[MOX_LINT_PROJECTIONS], int64_t expert, bool shared)
{
    bool fine = true;
    for (int p = 0; fine && p < MOX_LINT_PROJECTIONS; p++)
        fine = add(l, (mox_lint_projection)p, names[p], expert, shared);
    return fine;
}

/* Stacked matrices: [E, N, K]. DBRX stores down as [E, K, N]. */
static void stack(mox_lint_layer *l, int64_t first)
{
    const bool merged = l->lint->model->family->fused == MOX_FUSED_STACKED_ROWS;
    for (int64_t i = first; i < l->n_stored; i++) {
        l->stored[i].wanted.stacked = l->reader.dims.experts;
        l->stored[i].wanted.in_out = merged && l->stored[i].projection == MOX_LINT_DOWN;
    }
}

static bool list_routed(mox_lint_layer *l)
{
    const mox_names *n = l->reader.names;
    const char *const three[MOX_LINT_PROJECTIONS] = { n->gate, n->up, n->down };
    char fused[256];
    bool fine = true;
    l->fused = n->fused_gate_up &&
               mox_expand_name(fused, sizeof fused, l->reader.prefix, n->fused_gate_up, l->layer, -1) &&
               (!n->up || mox_match_exists(&l->reader.matcher, fused, true));
    if (l->fused)
        fine = add(l, MOX_LINT_GATE_UP, n->fused_gate_up, -1, false) && add(l, MOX_LINT_DOWN, n->fused_down, -1, false);
    else if (!strstr(n->up, "{e}"))
        fine = add_three(l, three, -1, false);
    else
        for (int64_t e = 0; fine && e < l->reader.dims.experts; e++)
            fine = add_three(l, three, e, false);
    if (l->n_stored > 0 && l->stored[0].expert < 0)
        stack(l, 0);
    return fine;
}

static bool list_shared(mox_lint_layer *l)
{
    const mox_names *n = l->reader.names;
    const char *const three[MOX_LINT_PROJECTIONS] = { mox_shared_gate_name(&l->reader), n->shared_up, n->shared_down };
    l->first_shared = l->n_stored;
    if (!n->shared_up || l->reader.dims.shared_intermediate <= 0)
        return true;
    return add_three(l, three, -1, true);
}

/* ---- their formats -------------------------------------------------------------------------------- */

/* The format of a matrix, if one fits. Only a lack of memory is an error here. */
static moxie_status match(mox_lint_layer *l, mox_lint_stored *s)
{
    const moxie_status status = mox_match_matrix(&l->reader.matcher, &s->wanted, &s->match, NULL);
    s->matched = status == MOXIE_OK;
    MOX_FAIL_IF(status == MOXIE_ERR_MEMORY, status, &l->error, "no memory for the formats of layer %lld",
                (long long)l->layer);
    return MOXIE_OK;
}

/* [E, 2I, H] or [E, H, 2I]: one name alone can be ambiguous, both together are not. */
static moxie_status match_fused(mox_lint_layer *l, bool in_out, bool *matched)
{
    *matched = true;
    for (int i = 0; i < 2; i++) {
        mox_lint_stored *s = &l->stored[i];
        s->wanted.in_out = in_out;
        MOX_TRY(match(l, s));
        *matched = *matched && s->matched;
    }
    return MOXIE_OK;
}

static moxie_status match_all(mox_lint_layer *l)
{
    const bool in_out[3] = { false, true, l->lint->model->family->fused == MOX_FUSED_IN_OUT };
    bool matched = false;
    for (int i = 0; i < 3 && l->fused && !matched; i++)
        MOX_TRY(match_fused(l, in_out[i], &matched));
    for (int64_t i = l->fused ? 2 : 0; i < l->n_stored; i++)
        MOX_TRY(match(l, &l->stored[i]));
    return MOXIE_OK;
}

/* ---- open and close ------------------------------------------------------------------------------- */

static moxie_status open_parts(mox_lint_layer *l)
{
    const moxie_model *model = l->lint->model;
    MOX_TRY(mox_config_layer(model->family, model->config, model->config_path, l->layer, &l->reader.dims, &l->config,
                             &l->error));
    MOX_TRY(
        mox_matcher_create(model->set, model->quant_config, model->config, &l->arena, &l->reader.matcher, &l->error));
    MOX_TRY(mox_find_shared_width(&l->reader));
    const uint64_t most = (uint64_t)MOX_LINT_PROJECTIONS * ((uint64_t)l->reader.dims.experts + 1);
    l->stored = mox_arena_calloc(&l->arena, most, sizeof *l->stored);
    MOX_FAIL_IF(!l->stored || !list_routed(l) || !list_shared(l), MOXIE_ERR_MEMORY, &l->error,
                "no memory for the matrices of layer %lld, or a name is too long", (long long)l->layer);
    return match_all(l);
}

bool mox_lint_layer_open(mox_lint *lint, const mox_layer_place *place, mox_lint_layer *out)
{
    const mox_family *family = lint->model->family;
    *out = (mox_lint_layer) { .lint = lint, .layer = place->layer };
    out->reader = (mox_layer_reader) { .model = lint->model,
                                       .names = place->other ? &family->other_names : &family->names,
                                       .prefix = family->prefixes[place->prefix],
                                       .layer = place->layer,
                                       .arena = &out->arena,
                                       .read = lint->read,
                                       .error = &out->error };
    const moxie_status status = open_parts(out);
    if (status == MOXIE_OK)
        return true;
    lint->report->no_memory = lint->report->no_memory || status == MOXIE_ERR_MEMORY;
    mox_lint_report(lint->report, status == MOXIE_ERR_MISMATCH ? MOX_LINT_CONFIG_CONTRADICTS : MOX_LINT_LAYER_REFUSED,
                    (mox_lint_where) { .layer = place->layer, .file = out->error.file }, "%s", out->error.text);
    return false;
}

void mox_lint_layer_close(mox_lint_layer *layer)
{
    mox_arena_free(&layer->arena);
}

/* ---- asking --------------------------------------------------------------------------------------- */

static mox_part_rows rows_of(const mox_lint_layer *l, mox_lint_projection projection)
{
    const bool alternate = l->lint->model->family->interleaved;
    if (projection == MOX_LINT_GATE)
        return alternate ? MOX_ROWS_EVEN : MOX_ROWS_FIRST_HALF;
    return alternate ? MOX_ROWS_ODD : MOX_ROWS_SECOND_HALF;
}

const mox_lint_stored *mox_lint_find_stored(const mox_lint_layer *l, mox_lint_choice choice, mox_part_place *place,
                                            mox_part_rows *rows)
{
    const bool shared = choice.expert < 0;
    const int64_t first = shared ? l->first_shared : 0, end = shared ? l->n_stored : l->first_shared;
    *rows = MOX_ROWS_ALL;
    /* Experts have as many stored matrices each; a stack has those of all. */
    const int64_t each = !shared && end > 0 && l->stored[0].expert >= 0 ? end / l->reader.dims.experts : 0;
    const int64_t begin = first + each * mox_max_i64(choice.expert, 0);
    for (int64_t i = begin; i < (each ? begin + each : end); i++) {
        const mox_lint_stored *s = &l->stored[i];
        const bool half = s->projection == MOX_LINT_GATE_UP && choice.projection != MOX_LINT_DOWN;
        if (s->projection != choice.projection && !half)
            continue;
        *place = (mox_part_place) { .n = s->wanted.n,
                                    .k = s->wanted.k,
                                    .stacked = s->wanted.stacked,
                                    .expert = s->wanted.stacked ? choice.expert : 0,
                                    .in_out = s->wanted.in_out };
        *rows = half ? rows_of(l, choice.projection) : MOX_ROWS_ALL;
        return s->matched ? s : NULL;
    }
    return NULL;
}

const mox_file_tensor *mox_lint_part(const mox_lint_stored *stored, mox_part_role role)
{
    for (int p = 0; stored->matched && p < MOX_MAX_PARTS && stored->match.format->parts[p].role != MOX_PART_NONE; p++)
        if (stored->match.format->parts[p].role == role && stored->match.parts[p])
            return stored->match.parts[p];
    return NULL;
}

bool mox_lint_router(mox_lint_layer *l, moxie_grid *out)
{
    const mox_file_tensor *tensor = mox_layer_find(&l->reader, l->reader.names->router);
    return tensor && mox_layer_floats(&l->reader, tensor, l->reader.dims.experts + l->reader.dims.zero_experts,
                                      l->reader.dims.hidden, out) == MOXIE_OK;
}
