/* SPDX-License-Identifier: Apache-2.0
 *
 * run.c - runs a plan: route the batch once, then pass by pass permute, experts, combine. Allocates nothing.
 * Routing is run_route.c; experts whose products fuse are run_fused.c.
 *
 * The modular three are the same pieces between which an engine moves tokens: route ends after topk, experts
 * scatters y back to [T,K,H], combine starts from there.
 */
#include "layer/run/run.h"

#include "base/sizes.h"

#define AT(run, type, offset) ((type *)((run)->space + (run)->plan->space.offset))

static void write_choice(const mox_run *run)
{
    const moxie_layer_config *c = &run->plan->config;
    const int64_t choices = run->args.tokens * c->top_k;
    if (choices == 0)
        return;
    if (run->args.ids_out != NULL)
        memmove(run->args.ids_out, run->ids, (size_t)choices * sizeof *run->ids);
    if (run->args.weights_out != NULL)
        memmove(run->args.weights_out, run->weights, (size_t)choices * sizeof *run->weights);
    if (run->args.logits_out != NULL && run->logits != NULL && run->args.logits_out != run->logits)
        mox_widen(run->logits_dtype, run->logits, run->args.logits_out, run->args.tokens * c->experts);
}

/* ---- one pass ------------------------------------------------------------------------------------ */

static void begin_pass(mox_run *run, int64_t first)
{
    const moxie_plan *plan = run->plan;
    const moxie_layer *layer = plan->layer;
    run->first = first;
    run->tokens = mox_min_i64(plan->pass_tokens, run->args.tokens - first);
    run->permutation =
        (mox_permutation) { AT(run, int64_t, offsets), AT(run, int64_t, pair_at), AT(run, int64_t, position) };
    const mox_permute_args args = { .ids = run->ids + first * plan->config.top_k,
                                    .tokens = run->tokens,
                                    .top_k = plan->config.top_k,
                                    .experts = plan->config.experts,
                                    .slots = layer->slots,
                                    .slot_of = layer->slot_of,
                                    .out = run->permutation };
    plan->rows.permute->run(&args, &plan->executor);
    if (plan->rows.shared_gate != NULL)
        run->shared_weight = AT(run, float, shared_weight) + first;
}

static const void *hidden_of_pass(const mox_run *run)
{
    const moxie_layer_config *c = &run->plan->config;
    return (const char *)run->args.hidden + run->first * c->hidden * mox_dtype_bytes(c->dtype);
}

/* Token, weight and given scales of each pair, and of each row of the first operand. */
static void fill_rows(const mox_run *run, mox_expert_pass *pass, bool by_pair)
{
    const moxie_layer *layer = run->plan->layer;
    const mox_expert_space *space = &pass->side->space;
    const int64_t top_k = run->plan->config.top_k;
    int64_t *token_of = AT(run, int64_t, token_of);
    float *row_weight = AT(run, float, row_weight);
    float *given13 = (float *)(run->space + space->given13), *given2 = (float *)(run->space + space->given2);
    for (int64_t s = 0; s < pass->slots; s++)
        for (int64_t p = pass->offsets[s]; p < pass->offsets[s + 1]; p++) {
            const int64_t pair = run->permutation.pair_at[p];
            token_of[p] = pair / top_k;
            given2[p] = layer->given2.resolved[s];
            if (by_pair)
                given13[p] = layer->given13.resolved[s];
            if (pass->row_weight != NULL)
                row_weight[p] = run->weights[run->first * top_k + pair];
        }
    for (int64_t t = 0; !by_pair && t < run->tokens; t++)
        given13[t] = layer->given13.resolved[0];
}

/* One operand row serves all experts of a token, unless the numbers in it depend on the expert. */
static moxie_status run_routed(mox_run *run, mox_expert_pass *pass, moxie_error *error)
{
    const moxie_plan *plan = run->plan;
    const moxie_layer *layer = plan->layer;
    const bool on_input = plan->config.routing.on_input != 0;
    const bool by_pair = on_input || !layer->given13.uniform;
    const int64_t pairs = run->permutation.offsets[layer->slots];
    *pass = (mox_expert_pass) { .side = &plan->routed,
                                .slots = layer->slots,
                                .pairs = pairs,
                                .records = (const void *const *)layer->records,
                                .offsets = run->permutation.offsets,
                                .expert_of = layer->expert_of,
                                .x = hidden_of_pass(run),
                                .rows13 = by_pair ? pairs : run->tokens,
                                .source = by_pair ? AT(run, int64_t, token_of) : NULL,
                                .operand_row = by_pair ? NULL : AT(run, int64_t, token_of),
                                .row_weight = on_input ? AT(run, float, row_weight) : NULL,
                                .given13 = (float *)(run->space + plan->routed.space.given13),
                                .given2 = (float *)(run->space + plan->routed.space.given2) };
    if (pairs > 0)
        fill_rows(run, pass, by_pair);
    return mox_run_experts(run, pass, error);
}

static moxie_status run_shared(mox_run *run, moxie_error *error)
{
    const moxie_plan *plan = run->plan;
    const moxie_layer *layer = plan->layer;
    const void *record = layer->shared_record;
    const int64_t offsets[2] = { 0, run->tokens };
    float *given13 = (float *)(run->space + plan->shared.space.given13);
    float *given2 = (float *)(run->space + plan->shared.space.given2);
    for (int64_t t = 0; t < run->tokens; t++) {
        given13[t] = layer->shared_given13;
        given2[t] = layer->shared_given2;
    }
    mox_expert_pass pass = { .side = &plan->shared,
                             .slots = 1,
                             .pairs = run->tokens,
                             .records = &record,
                             .offsets = offsets,
                             .x = hidden_of_pass(run),
                             .rows13 = run->tokens,
                             .given13 = given13,
                             .given2 = given2 };
    return mox_run_experts(run, &pass, error);
}

mox_combine_args mox_run_combine_args(const mox_run *run, const float *y, const int64_t *position)
{
    const moxie_layer_config *c = &run->plan->config;
    const int64_t first = run->first;
    return (mox_combine_args) { .tokens = run->tokens,
                                .top_k = c->top_k,
                                .hidden = c->hidden,
                                .position = position,
                                .ids = run->ids + first * c->top_k,
                                .experts = c->experts,
                                .weights = c->routing.on_input ? NULL : run->weights + first * c->top_k,
                                .y = y,
                                .shared = run->shared_y,
                                .shared_weight = run->shared_weight,
                                .out = (char *)run->args.output + first * c->hidden * mox_dtype_bytes(c->dtype),
                                .out_dtype = c->dtype };
}

static moxie_status combine(mox_run *run, const float *y, const int64_t *position, moxie_error *error)
{
    const mox_combine_args args = mox_run_combine_args(run, y, position);
    run->y = y;
    run->plan->rows.combine->run(&args, &run->plan->executor);
    return mox_run_probe(run, MOX_STAGE_COMBINE, NULL, error);
}

static float *space_of_y(const mox_run *run, const mox_expert_side *side)
{
    return (float *)(run->space + side->space.y);
}

/* Experts of a pass, all kinds of them (`shared`), and the sum over them (`combining`). */
static moxie_status run_pass(mox_run *run, bool shared, bool combining, moxie_error *error)
{
    const moxie_plan *plan = run->plan;
    mox_expert_pass pass;
    const bool has_shared = shared && plan->shared.rows.layout != NULL, fuses_shared = has_shared && plan->shared.fused;
    run->y = space_of_y(run, &plan->routed);
    run->shared_y = has_shared ? space_of_y(run, &plan->shared) : NULL;
    if (has_shared && plan->rows.shared_gate != NULL)
        MOX_TRY(mox_run_probe(run, MOX_STAGE_SHARED_GATE, NULL, error));
    if (!plan->routed.fused)
        MOX_TRY(run_routed(run, &pass, error));
    if (has_shared && !fuses_shared)
        MOX_TRY(run_shared(run, error));
    if (!plan->routed.fused && !fuses_shared)
        return combining ? combine(run, run->y, run->permutation.position, error) : MOXIE_OK;
    const mox_combine_args args = mox_run_combine_args(run, run->y, run->permutation.position);
    MOX_TRY(mox_run_fused(run, fuses_shared, combining ? &args : NULL, error));
    return combining ? mox_run_probe(run, MOX_STAGE_COMBINE, NULL, error) : MOXIE_OK;
}

/* ---- the four calls ------------------------------------------------------------------------------ */

moxie_status mox_plan_run(const moxie_plan *plan, const moxie_run_args *args, const mox_probe *probe,
                          moxie_error *error)
{
    if (!mox_device_is_host(&plan->device))
        return mox_device_staged(plan, MOX_DEVICE_RUN, args, NULL, probe, error);
    mox_run run;
    MOX_TRY(mox_run_begin(plan, args, MOX_NEEDS_HIDDEN | MOX_NEEDS_OUTPUT | MOX_NEEDS_CHOICE, &run, error));
    run.probe = probe;
    if (run.args.tokens > 0)
        MOX_TRY(mox_run_route(&run, run.ids == NULL, true, error));
    write_choice(&run);
    for (int64_t t = 0; t < run.args.tokens; t += plan->pass_tokens) {
        begin_pass(&run, t);
        MOX_TRY(run_pass(&run, true, true, error));
    }
    return MOXIE_OK;
}

moxie_status mox_plan_route(const moxie_plan *plan, const moxie_run_args *args, moxie_error *error)
{
    if (!mox_device_is_host(&plan->device))
        return mox_device_staged(plan, MOX_DEVICE_ROUTE, args, NULL, NULL, error);
    mox_run run;
    MOX_TRY(mox_run_begin(plan, args, MOX_NEEDS_LOGITS | MOX_NEEDS_IDS_OUT, &run, error));
    if (run.args.tokens > 0)
        MOX_TRY(mox_run_route(&run, true, false, error));
    write_choice(&run);
    return MOXIE_OK;
}

static void scatter(const mox_run *run, const float *y, float *rows)
{
    const moxie_layer_config *c = &run->plan->config;
    const size_t bytes = (size_t)c->hidden * sizeof *rows;
    for (int64_t i = 0; i < run->tokens * c->top_k; i++) {
        float *row = rows + (run->first * c->top_k + i) * c->hidden;
        const int64_t p = run->permutation.position[i];
        if (p >= 0)
            memcpy(row, y + p * c->hidden, bytes);
        else
            memset(row, 0, bytes);
    }
}

moxie_status mox_plan_experts(const moxie_plan *plan, const moxie_run_args *args, float *rows, moxie_error *error)
{
    if (!mox_device_is_host(&plan->device))
        return mox_device_staged(plan, MOX_DEVICE_EXPERTS, args, rows, NULL, error);
    mox_run run;
    const uint32_t weights = plan->config.routing.on_input ? MOX_NEEDS_WEIGHTS : 0;
    MOX_TRY(mox_run_begin(plan, args, MOX_NEEDS_HIDDEN | MOX_NEEDS_IDS | weights, &run, error));
    for (int64_t t = 0; t < run.args.tokens; t += plan->pass_tokens) {
        begin_pass(&run, t);
        MOX_TRY(run_pass(&run, false, false, error));
        scatter(&run, run.y, rows);
    }
    return MOXIE_OK;
}

moxie_status mox_plan_combine(const moxie_plan *plan, const moxie_run_args *args, const float *rows, moxie_error *error)
{
    if (!mox_device_is_host(&plan->device))
        return mox_device_staged(plan, MOX_DEVICE_COMBINE, args, (float *)(uintptr_t)rows, NULL, error);
    mox_run run;
    const uint32_t weights = plan->config.routing.on_input ? 0 : MOX_NEEDS_WEIGHTS;
    MOX_TRY(mox_run_begin(plan, args, MOX_NEEDS_OUTPUT | MOX_NEEDS_IDS | weights, &run, error));
    run.tokens = run.args.tokens;
    return run.tokens > 0 ? combine(&run, rows, NULL, error) : MOXIE_OK;
}
