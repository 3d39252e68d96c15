/* SPDX-License-Identifier: Apache-2.0
 *
 * check_norm.c - checks of the norms (check_norm.h): every number against the oracle's (ref_row_norm.c), with weights
 * from the checkpoint's views.
 */
#include "layer/check/check_norm.h"

#include "ref/ref.h"

/* Compares a normed row `got` with that of own->x. */
static void compare_row(mox_check_worker *own, const moxie_row_norm *norm, const moxie_matrix *weight, int64_t cols,
                        const float *got, mox_place place)
{
    mox_ref_norm ref = { .weight_first = norm->kind == MOXIE_ROW_NORM_RMS_WEIGHTED,
                         .eps = norm->eps,
                         .factor = norm->factor != 0 ? norm->factor : 1 };
    for (int64_t k = 0; k < cols && norm->has_weight; k++)
        own->norm[k] = (float)mox_grid_value(&weight->codes, 0, k) + norm->weight_add;
    ref.weight = norm->has_weight ? own->norm : NULL;
    double relative;
    const double scale = mox_ref_row_norm_scale(&ref, own->x, cols, &relative);
    if (isinf(relative))
        return; /* fp32 cannot hold the sum of squares, so no result is the right one */
    for (place.column = 0; place.column < cols; place.column++) {
        const double want = mox_ref_row_norm_element(&ref, own->x, place.column, scale);
        mox_check_element(&own->tally, got[place.column], want,
                          mox_ref_row_norm_bound(&ref, place.column, want, scale, relative),
                          mox_check_largest(MOXIE_F32), place);
    }
}

static void router_token(void *user, int64_t t, int32_t worker)
{
    const mox_check_context *c = user;
    const moxie_layer_config *config = &c->checker->plan->config;
    mox_check_worker *own = mox_check_worker_of(c, worker);
    const int64_t width = config->router_width, bytes = mox_dtype_bytes(config->dtype);
    mox_widen(config->dtype, (const char *)mox_run_router_input(c->run) + t * width * bytes, own->x, width);
    compare_row(own, &config->router_norm, &c->checker->weights->router_norm, width, c->run->router_x + t * width,
                (mox_place) { t, -1, -1, -1 });
}

void mox_check_router_norm(mox_check_context *context)
{
    mox_check_run(context, MOX_CHECK_ROUTER_NORM, context->run->args.tokens, router_token);
}

/* Row of choice i of the pass. */
static void expert_row(void *user, int64_t i, int32_t worker)
{
    const mox_check_context *c = user;
    const mox_run *run = c->run;
    const moxie_layer_config *config = &c->checker->plan->config;
    mox_check_worker *own = mox_check_worker_of(c, worker);
    const int64_t p = run->permutation.position[i], hidden = config->hidden, top_k = config->top_k;
    if (p < 0)
        return;
    memcpy(own->x, run->before_norm + p * hidden, (size_t)hidden * sizeof *own->x);
    compare_row(own, &config->expert_norm, &c->checker->weights->expert_norm, hidden, run->y + p * hidden,
                (mox_place) { run->first + i / top_k, i % top_k, run->ids[run->first * top_k + i], -1 });
}

void mox_check_expert_norm(mox_check_context *context)
{
    const mox_run *run = context->run;
    mox_check_run(context, MOX_CHECK_EXPERT_NORM, run->tokens * context->checker->plan->config.top_k, expert_row);
}
