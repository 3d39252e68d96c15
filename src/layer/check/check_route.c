/* SPDX-License-Identifier: Apache-2.0
 *
 * check_route.c - checks of the stages outside the experts (check_route.h). Dense products and combine are computed
 * again in double precision, with the bound of an fp32 sum. topk must be a choice that the oracle accepts. permute must
 * give each pair one place among its expert's pairs.
 */
#include "layer/check/check_route.h"

#include "ref/ref.h"
#include "ref/ref_bounds.h"
#include "route/route_rules.h"

_Static_assert(MOX_DENSE_SEGMENT <= MOX_SUM_SEGMENT, "the bounds assume segments of at most this length");

/* sum w x + bias in double, with the bound of an fp32 dot product. */
static double dot(const double *w, const float *x, int64_t n, double bias, double *bound)
{
    double sum = bias, magnitude = fabs(bias);
    for (int64_t k = 0; k < n; k++) {
        sum += w[k] * x[k];
        magnitude += fabs(w[k] * x[k]);
    }
    *bound = mox_bound_dot(n, mox_dot_depth(n, n, n), magnitude);
    return sum;
}

static void read_row(const moxie_grid *grid, int64_t n, double *row)
{
    for (int64_t k = 0; k < grid->cols; k++)
        row[k] = mox_grid_value(grid, n, k);
}

/* ---- router -------------------------------------------------------------------------------------- */

static void router_row(void *user, int64_t e, int32_t worker)
{
    const mox_check_context *c = user;
    const moxie_layer_config *config = &c->checker->plan->config;
    const moxie_matrix *router = &c->checker->weights->router;
    mox_check_worker *own = mox_check_worker_of(c, worker);
    const int64_t width = config->router_width, bytes = mox_dtype_bytes(config->dtype);
    const double bias = router->bias.data != NULL ? mox_grid_value(&router->bias, e, 0) : 0;
    const int64_t candidates = mox_config_candidates(config);
    read_row(&router->codes, e, own->w);
    for (int64_t t = 0; t < c->run->args.tokens; t++) {
        double bound;
        if (c->run->router_x != NULL)
            memcpy(own->x, c->run->router_x + t * width, (size_t)width * sizeof *own->x);
        else
            mox_widen(config->dtype, (const char *)mox_run_router_input(c->run) + t * width * bytes, own->x, width);
        const double want = dot(own->w, own->x, width, bias, &bound);
        mox_check_element(&own->tally, ((const float *)c->run->logits)[t * candidates + e], want, bound,
                          mox_check_largest(MOXIE_F32), (mox_place) { t, -1, e, e });
    }
}

void mox_check_router(mox_check_context *context)
{
    mox_check_run(context, MOX_CHECK_ROUTER, mox_config_candidates(&context->checker->plan->config), router_row);
}

/* ---- topk ---------------------------------------------------------------------------------------- */

/* A padding token has no experts. */
static void check_padding(const mox_run *run, int64_t t, int64_t top_k, moxie_stage_report *tally)
{
    for (int64_t i = t * top_k; i < (t + 1) * top_k; i++)
        mox_check_equal(tally, run->ids[i] == -1 && run->weights[i] == 0, 1,
                        (mox_place) { t, i % top_k, run->ids[i], -1 });
}

static void topk_token(void *user, int64_t t, int32_t worker)
{
    const mox_check_context *c = user;
    const mox_run *run = c->run;
    const moxie_layer_config *config = &c->checker->plan->config;
    moxie_stage_report *tally = &mox_check_worker_of(c, worker)->tally;
    const int64_t experts = mox_config_candidates(config), top_k = config->top_k;
    const int64_t bytes = mox_dtype_bytes(run->logits_dtype);
    const bool alt = run->args.bias_choice != NULL && run->args.bias_choice[t] != 0;
    const moxie_routing routing = alt ? mox_route_with_bias_alt(&config->routing) : config->routing;
    const int32_t *ids = run->ids + t * top_k, token_id = run->args.token_ids != NULL ? run->args.token_ids[t] : 0;
    double logits[MOXIE_MAX_EXPERTS], want[MOXIE_MAX_TOP_K], bounds[MOXIE_MAX_TOP_K];
    char why[256];
    if (run->args.padding != NULL && run->args.padding[t] != 0) {
        check_padding(run, t, top_k, tally);
        return;
    }
    for (int64_t e = 0; e < experts; e++)
        logits[e] = mox_load(run->logits_dtype, (const char *)run->logits + (t * experts + e) * bytes);
    const bool right = mox_ref_route_accepts(&routing, experts, top_k, logits, token_id, ids,
                                             mox_tolerance_keys(experts), why, sizeof why);
    mox_check_equal(tally, right, 1, (mox_place) { t, -1, -1, -1 });
    mox_ref_route_weights(&routing, experts, top_k, logits, ids, want);
    mox_ref_route_weight_bounds(&routing, experts, top_k, logits, ids, bounds);
    for (int64_t j = 0; j < top_k; j++)
        mox_check_element(tally, run->weights[t * top_k + j], want[j], bounds[j], mox_check_largest(MOXIE_F32),
                          (mox_place) { t, j, ids[j], -1 });
}

/* A choice by a callback or at random has no right answer, so it is not checked. */
void mox_check_topk(mox_check_context *context)
{
    const int32_t select = context->checker->plan->config.routing.select;
    if (select == MOXIE_SELECT_TOPK || select == MOXIE_SELECT_TABLE || select == MOXIE_SELECT_SPARSEMIXER)
        mox_check_run(context, MOX_CHECK_TOPK, context->run->args.tokens, topk_token);
}

/* ---- permute ------------------------------------------------------------------------------------- */

/* Every pair has a position among its expert's pairs, or none when its expert is on another rank; and pair_at, its
 * inverse, agrees. */
static void permute_token(void *user, int64_t t, int32_t worker)
{
    const mox_check_context *c = user;
    const mox_run *run = c->run;
    const moxie_layer *layer = c->checker->plan->layer;
    const int64_t top_k = layer->config.top_k;
    for (int64_t i = t * top_k; i < (t + 1) * top_k; i++) {
        const int32_t id = run->ids[run->first * top_k + i];
        const int64_t slot = id >= 0 && id < layer->config.experts ? layer->slot_of[id] : -1;
        const int64_t p = run->permutation.position[i];
        bool right = slot < 0 && p < 0;
        if (slot >= 0 && p >= run->permutation.offsets[slot] && p < run->permutation.offsets[slot + 1])
            right = run->permutation.pair_at[p] == i && layer->expert_of[slot] == id;
        mox_check_equal(&mox_check_worker_of(c, worker)->tally, right, 1,
                        (mox_place) { run->first + t, i % top_k, id, -1 });
    }
}

void mox_check_permute(mox_check_context *context)
{
    mox_check_run(context, MOX_CHECK_PERMUTE, context->run->tokens, permute_token);
}

/* ---- the shared expert's gate -------------------------------------------------------------------- */

static void gate_token(void *user, int64_t t, int32_t worker)
{
    const mox_check_context *c = user;
    const moxie_layer_config *config = &c->checker->plan->config;
    mox_check_worker *own = mox_check_worker_of(c, worker);
    const int64_t width = config->hidden, at = c->run->first + t, bytes = mox_dtype_bytes(config->dtype);
    double bound;
    read_row(&c->checker->weights->shared_gate.codes, 0, own->w);
    mox_widen(config->dtype, (const char *)c->run->args.hidden + at * width * bytes, own->x, width);
    const double v = dot(own->w, own->x, width, 0, &bound), want = 1 / (1 + exp(-v));
    /* The slope of the logistic function is at most 1/4. Its evaluation adds a few roundings, and one of its argument.
     */
    const double evaluation = want * (10 + fabs(v) / (1 + exp(v))) * 0x1p-24 + 0x1p-126;
    mox_check_element(&own->tally, c->run->shared_weight[t], want, bound / 4 + evaluation, mox_check_largest(MOXIE_F32),
                      (mox_place) { at, -1, -1, -1 });
}

void mox_check_shared_gate(mox_check_context *context)
{
    mox_check_run(context, MOX_CHECK_SHARED_GATE, context->run->tokens, gate_token);
}

/* ---- combine ------------------------------------------------------------------------------------- */

/* Whether a choice of this id adds the token's own hidden state. */
static bool adds_identity(const moxie_layer_config *config, int32_t id)
{
    return mox_config_adds_identity(config, false) && id >= config->experts && id < mox_config_candidates(config);
}

/* Column n of the hidden state of the pass's token t. */
static double own_state(const mox_run *run, int64_t t, int64_t n)
{
    const moxie_layer_config *config = &run->plan->config;
    return mox_load(config->dtype,
                    (const char *)mox_run_hidden(run) + (t * config->hidden + n) * mox_dtype_bytes(config->dtype));
}

/* Column n of the weighted sum over the token's experts and the shared one. */
static double combined(const mox_check_context *c, int64_t t, int64_t n, double *magnitude)
{
    const mox_run *run = c->run;
    const moxie_layer_config *config = &c->checker->plan->config;
    const int64_t top_k = config->top_k, hidden = config->hidden;
    const mox_combine_args y = { .y = run->y, .round_y = mox_run_rounds_to(run) };
    double sum = 0;
    *magnitude = 0;
    for (int64_t i = t * top_k; i < (t + 1) * top_k; i++) {
        const int64_t p = run->permutation.position[i], choice = run->first * top_k + i;
        const bool identity = adds_identity(config, run->ids[choice]);
        if (p < 0 && !identity)
            continue;
        const double weight = config->routing.on_input && !identity ? 1 : run->weights[choice];
        const double term = weight * (identity ? own_state(run, t, n) : (double)mox_combine_y(&y, p * hidden + n));
        sum += term;
        *magnitude += fabs(term);
    }
    if (run->shared_y != NULL) {
        const mox_combine_args shared = { .shared_weight = run->shared_weight, .shared_scale = config->shared.scale };
        const double term = (double)mox_combine_shared_weight(&shared, t) * run->shared_y[t * hidden + n];
        sum += term;
        *magnitude += fabs(term);
    }
    return sum;
}

static void combine_token(void *user, int64_t t, int32_t worker)
{
    const mox_check_context *c = user;
    const moxie_layer_config *config = &c->checker->plan->config;
    moxie_stage_report *tally = &mox_check_worker_of(c, worker)->tally;
    const int64_t at = c->run->first + t, bytes = mox_dtype_bytes(config->dtype);
    for (int64_t n = 0; n < config->hidden; n++) {
        double magnitude;
        const double want = combined(c, t, n, &magnitude);
        const double sum_bound = mox_bound_dot(config->top_k + 1, config->top_k + 1, magnitude);
        const double bound = sum_bound + mox_bound_round(config->dtype, fabs(want) + sum_bound);
        const float got =
            mox_load(config->dtype, (const char *)c->run->args.output + (at * config->hidden + n) * bytes);
        mox_check_element(tally, got, want, bound, mox_check_largest(config->dtype), (mox_place) { at, -1, -1, n });
    }
}

void mox_check_combine(mox_check_context *context)
{
    mox_check_run(context, MOX_CHECK_COMBINE, context->run->tokens, combine_token);
}
