/* SPDX-License-Identifier: Apache-2.0
 *
 * squares.c - adds squares when the probe of a run sees the activations (squares.h). Experts are summed token after
 * token, so the sums depend neither on threads nor on how a run is cut into passes.
 */
#include "layer/check/squares.h"

#include "format/format.h"
#include "layer/run/plan_run.h"

typedef struct sums {
    double *squares13, *squares2;
    int64_t *tokens;
    float *row; /* [H] */
} sums;

static void add_row(const float *row, float weight, int64_t cols, double *out)
{
    for (int64_t c = 0; c < cols; c++) {
        const double value = (double)row[c] * (double)weight;
        out[c] += value * value;
    }
}

/* The pairs of slot s: one for each token that chose its expert. */
static void add_slot(const sums *to, const mox_run *run, const mox_expert_pass *pass, int64_t s)
{
    const moxie_layer_config *c = &run->plan->config;
    const int64_t e = pass->expert_of[s];
    const uint64_t bytes = (uint64_t)mox_dtype_bytes(c->dtype);
    for (int64_t p = pass->offsets[s]; p < pass->offsets[s + 1]; p++) {
        const int64_t pair = run->first * c->top_k + run->permutation.pair_at[p], token = pair / c->top_k;
        mox_widen(c->dtype, (const char *)run->args.hidden + (uint64_t)(token * c->hidden) * bytes, to->row, c->hidden);
        add_row(to->row, c->routing.on_input ? run->weights[pair] : 1, c->hidden, to->squares13 + e * c->hidden);
        add_row(pass->act + p * c->intermediate, 1, c->intermediate, to->squares2 + e * c->intermediate);
        to->tokens[e]++;
    }
}

static moxie_status after_stage(void *user, const mox_run *run, mox_stage stage, const mox_expert_pass *pass,
                                moxie_error *error)
{
    (void)error;
    const bool routed = pass != NULL && pass->expert_of != NULL;
    for (int64_t s = 0; stage == MOX_STAGE_GLU && routed && s < pass->slots; s++)
        add_slot(user, run, pass, s);
    return MOXIE_OK;
}

moxie_status mox_plan_squares(const moxie_plan *plan, const moxie_run_args *args, double *squares13, double *squares2,
                              int64_t *tokens, moxie_error *error)
{
    sums to = { .squares13 = squares13, .squares2 = squares2, .tokens = tokens };
    const mox_probe probe = { &to, after_stage };
    MOX_FAIL_IF(plan->layer == NULL, MOXIE_ERR_ARGUMENT, error,
                "this plan explains a configuration and has no weights: make one with moxie_plan_create");
    MOX_FAIL_IF(plan->ranks != NULL || plan->backend->on_device, MOXIE_ERR_UNSUPPORTED, error,
                "squares are summed where activations are in host memory: use a plan of one rank, of back end cpu or "
                "ref");
    to.row = mox_calloc((uint64_t)plan->config.hidden, sizeof *to.row);
    MOX_FAIL_IF(to.row == NULL, MOXIE_ERR_MEMORY, error, "no memory for a row of %lld columns",
                (long long)plan->config.hidden);
    const moxie_status status = mox_plan_run(plan, MOX_RUN_WHOLE, args, NULL, &probe, error);
    mox_free(to.row);
    return status;
}
