/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_ranks_steps.c - what a plan says about its exchanges: how a batch is cut, and what travels (plan_ranks.h).
 */
#include <stdio.h>

#include "layer/plan/exchange_bytes.h"
#include "layer/plan/plan_ranks.h"
#include "layer/plan/plan_tp.h"

static moxie_status add_step(moxie_plan *plan, const char *role, const char *text, moxie_error *error)
{
    const moxie_plan_step step = { .family = "exchange",
                                   .role = role,
                                   .kernel = mox_comm_name(plan->ranks->comm),
                                   .isa = "",
                                   .layout = "",
                                   .exactness = "EXACT",
                                   .chosen = 1,
                                   .reason = mox_steps_copy_text(&plan->steps, text),
                                   .remedy = "" };
    MOX_FAIL_IF(step.reason == NULL, MOXIE_ERR_MEMORY, error, "no memory for the steps of a plan");
    return mox_steps_add(&plan->steps, &step, error);
}

/* How rows of a device travel, and what the host waits for. */
static const char *way_of(const moxie_plan *plan)
{
    if (!plan->backend->on_device)
        return "";
    if (mox_ranks_fit_graph(plan->ranks))
        return ", from device to device, which places the rows; a graph can hold the run";
    if (plan->ranks->places && !plan->ranks->staged)
        return ", from device to device";
    return plan->ranks->staged
               ? ", through pinned memory of the host, which waits for the device before each exchange"
               : ", from device to device; the host waits for the choices of experts, and until rows came";
}

static const char *what_travels(const moxie_plan *plan)
{
    const bool one_scale = mox_act_quant_needs_static_scale(&plan->config.a13);
    if (!plan->ranks->coded)
        return "hidden states";
    if (one_scale && plan->layer == NULL)
        return "codes and scales, quantized once, if all experts have one static scale";
    return "codes and scales, quantized once";
}

static const char *why_chunks(const moxie_plan *plan)
{
    const mox_ranks *x = plan->ranks;
    if (x->one_chunk)
        return "; never cut, since activations have one scale for the whole batch";
    if (x->asked_chunk == 0)
        return "";
    return x->chunk_tokens < mox_ranks_even_chunk(mox_max_i64(mox_plan_ranks_max_own(plan), 1), x->asked_chunk)
               ? ", fewer than options.exchange_chunk asks: the fewest of all ranks, at most a pass of the products"
               : ", as options.exchange_chunk asks";
}

/* How a batch is cut, and what that costs. */
static moxie_status add_chunks(moxie_plan *plan, moxie_error *error)
{
    const mox_ranks *x = plan->ranks;
    const int64_t own = mox_max_i64(mox_plan_ranks_max_own(plan), 1), chunks = mox_ceil_div(own, x->chunk_tokens);
    const bool beside = !plan->backend->on_device || x->staged || x->beside;
    char text[320];
    snprintf(text, sizeof text, "%lld of at most %lld tokens of each rank%s; buffers of %lld MiB%s%s",
             (long long)chunks, (long long)x->chunk_tokens, why_chunks(plan),
             (long long)(mox_plan_ranks_token_bytes(plan) * x->chunk_tokens >> 20),
             chunks > 1 ? "; each reads the experts' weights again, and " : "",
             chunks == 1 ? ""
             : beside    ? "the rows of one travel while another is computed"
                         : "all are on one stream, so none travels while another is computed");
    return x->capacity > 0 ? MOXIE_OK : add_step(plan, "chunks", text, error);
}

/* How many streams exchanges and products have together, where rows travel from device to device. */
static moxie_status add_streams(moxie_plan *plan, moxie_error *error)
{
    const mox_ranks *x = plan->ranks;
    if (!plan->backend->on_device || x->staged)
        return MOXIE_OK;
    if (x->beside)
        return add_step(plan, "streams",
                        "2, as options.exchange_streams asks: exchanges of one chunk beside products of another, the "
                        "shared expert beside the return",
                        error);
    return add_step(plan, "streams",
                    x->asked_streams == 1 ? "1, as options.exchange_streams asks: exchanges and products take turns"
                                          : "1: exchanges and products take turns; options.exchange_streams 2, which "
                                            "was mostly slower on H100s, lets them run side by side",
                    error);
}

moxie_status mox_plan_ranks_add_steps(moxie_plan *plan, moxie_error *error)
{
    const mox_ranks *x = plan->ranks;
    char text[320];
    if (x == NULL)
        return MOXIE_OK;
    const char *way = way_of(plan);
    MOX_TRY(add_chunks(plan, error));
    MOX_TRY(add_streams(plan, error));
    const long long h = (long long)plan->config.hidden, element = (long long)mox_dtype_bytes(plan->config.dtype);
    if (x->layout == MOXIE_TOKENS_SHARDED) {
        if (x->capacity > 0)
            snprintf(text, sizeof text,
                     "%lld bytes to each of %d ranks: a capacity of %lld tokens, %lld bytes each; no counts; %s%s",
                     (long long)(mox_plan_ranks_row_bytes(plan) * x->capacity), (int)x->count, (long long)x->capacity,
                     (long long)mox_plan_ranks_row_bytes(plan), what_travels(plan), way);
        else
            snprintf(text, sizeof text,
                     "%lld bytes a token to each rank that computes one of its choices, at most %lld ranks; %s%s%s",
                     (long long)mox_plan_ranks_row_bytes(plan),
                     (long long)mox_min_i64(plan->config.top_k, x->groups) * x->tp_size, what_travels(plan), way,
                     x->places ? "; the device places them, and the host reads their number" : "");
        MOX_TRY(add_step(plan, "dispatch", text, error));
    }
    if (plan->tp_cut == MOX_TP_SUMS) {
        snprintf(text, sizeof text,
                 "%lld bytes a choice from each of the %d tensor parallel ranks of a group to the others", h * 4,
                 (int)x->tp_size);
        MOX_TRY(add_step(plan, "sum", text, error));
    } else if (x->tp_size > 1) {
        snprintf(text, sizeof text, "%lld bytes a choice from the %d tensor parallel ranks of a group to each of them",
                 (long long)plan->config.intermediate * mox_dtype_bytes(mox_tp_dtype(plan, MOX_ROUTED, MOX_W13)),
                 (int)x->tp_size);
        MOX_TRY(add_step(plan, "act", text, error));
    }
    const long long choice = (long long)mox_exchange_result_bytes(&plan->config),
                    token = choice * (long long)plan->config.top_k;
    if (x->capacity > 0)
        snprintf(text, sizeof text, "%lld bytes to each of %d ranks: %lld tokens of %lld bytes%s", token * x->capacity,
                 (int)x->count, (long long)x->capacity, token, way);
    else
        snprintf(text, sizeof text, "%lld bytes a choice, up to %lld a token, to the token's rank%s", choice, token,
                 way);
    MOX_TRY(add_step(plan, "return", text, error));
    if (x->layout != MOXIE_TOKENS_REPLICATED)
        return MOXIE_OK;
    snprintf(text, sizeof text, "%lld bytes a token to each of %d ranks%s", h * element, (int)x->count, way);
    return add_step(plan, "gather", text, error);
}
