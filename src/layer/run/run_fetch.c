/* SPDX-License-Identifier: Apache-2.0
 *
 * run_fetch.c - the slots of a pass, and windows of them (run_fetch.h).
 */
#include "layer/run/run_fetch.h"

#include "layer/run/run_windows.h"
#include "layer/weights/record_source.h"

/* The experts of this rank that some of `choices` ids name, each once, by their first use. Sets slot_of of each to 0,
 * of all others to -1. */
static int64_t list_experts(const mox_run *run, const int32_t *ids, int64_t choices)
{
    const moxie_layer *layer = run->plan->layer;
    int32_t *slot_of = MOX_RUN_AT(run, int32_t, fetch_slot_of), *experts = MOX_RUN_AT(run, int32_t, fetch_experts);
    const int64_t all = layer->config.experts;
    int64_t n = 0;
    for (int64_t e = 0; e < all; e++)
        slot_of[e] = -1;
    for (int64_t i = 0; i < choices; i++) {
        const int32_t e = ids[i];
        if (e < 0 || e >= all || layer->slot_of[e] < 0 || slot_of[e] == 0)
            continue;
        slot_of[e] = 0;
        experts[n++] = e;
    }
    return n;
}

moxie_status mox_run_fetch_begin(mox_run *run, moxie_error *error)
{
    const moxie_plan *plan = run->plan;
    const mox_record_source *source = plan->layer->source;
    if (mox_run_has_windows(run))
        return mox_run_windows_begin(run, error);
    if (source == NULL || run->probe != NULL || run->args.tokens == 0) /* a rank may get no rows */
        return MOXIE_OK;
    const int64_t count = list_experts(run, run->ids, run->args.tokens * plan->config.top_k);
    MOX_TRY(source->begin(source->user, MOX_RUN_AT(run, void, fetch_session), MOX_RUN_AT(run, int32_t, fetch_experts),
                          count, error));
    run->fetches = true;
    return MOXIE_OK;
}

moxie_status mox_run_fetch_end(mox_run *run, moxie_status status, moxie_error *error)
{
    if (mox_run_has_windows(run))
        return mox_run_windows_end(run, status, error);
    if (run->fetches)
        run->plan->layer->source->end(MOX_RUN_AT(run, void, fetch_session));
    run->fetches = false;
    return status;
}

/* Slot i is the i-th expert. */
static void number_slots(mox_run *run, int64_t count)
{
    const moxie_layer *layer = run->plan->layer;
    const int32_t *experts = MOX_RUN_AT(run, int32_t, fetch_experts);
    int32_t *slot_of = MOX_RUN_AT(run, int32_t, fetch_slot_of), *place_of = MOX_RUN_AT(run, int32_t, fetch_place_of);
    int64_t *expert_of = MOX_RUN_AT(run, int64_t, fetch_expert_of);
    float *scale[2] = { MOX_RUN_AT(run, float, fetch_scale[MOX_W13]), MOX_RUN_AT(run, float, fetch_scale[MOX_W2]) };
    for (int64_t s = 0; s < count; s++) {
        const int32_t e = experts[s];
        slot_of[e] = (int32_t)s;
        expert_of[s] = e;
        place_of[s] = layer->slot_of[e];
        for (int p = MOX_W13; p <= MOX_W2; p++)
            scale[p][s] = layer->static_scale[p].resolved[layer->slot_of[e]];
    }
    run->slots = (mox_run_slots) { .count = count,
                                   .slot_of = slot_of,
                                   .expert_of = expert_of,
                                   .records = MOX_RUN_AT(run, const void *const, fetch_records),
                                   .record_bytes = layer->record_bytes,
                                   .static_scale = { scale[MOX_W13], scale[MOX_W2] },
                                   .place_of = place_of };
}

void mox_run_set_slots(mox_run *run)
{
    const moxie_plan *plan = run->plan;
    const moxie_layer *layer = plan->layer;
    const int64_t top_k = plan->config.top_k;
    if (!run->fetches) {
        run->slots =
            (mox_run_slots) { .count = layer->slots,
                              .end = layer->slots,
                              .slot_of = layer->arrays.slot_of,
                              .expert_of = layer->arrays.expert_of,
                              .records = (const void *const *)layer->records,
                              .record_bytes = layer->record_bytes,
                              .static_scale = { layer->arrays.static_scale[0], layer->arrays.static_scale[1] } };
        return;
    }
    const int64_t count = list_experts(run, run->ids + run->first * top_k, run->tokens * top_k);
    layer->source->want(MOX_RUN_AT(run, void, fetch_session), MOX_RUN_AT(run, int32_t, fetch_experts), count, false);
    number_slots(run, count);
}

void mox_run_fetch_again(mox_run *run)
{
    run->plan->layer->source->want(MOX_RUN_AT(run, void, fetch_session), MOX_RUN_AT(run, int32_t, fetch_experts),
                                   run->slots.count, true);
    run->slots.first = run->slots.end = 0;
}

moxie_status mox_run_fetch_next(mox_run *run, bool wait, moxie_error *error)
{
    int64_t ready = 0;
    const void **records = MOX_RUN_AT(run, const void *, fetch_records);
    run->slots.first = run->slots.end;
    const mox_phase before = mox_run_enter(run, MOX_PHASE_WAIT);
    const moxie_status status = run->plan->layer->source->next(MOX_RUN_AT(run, void, fetch_session), wait,
                                                               records + run->slots.first, &ready, error);
    run->slots.end += ready;
    return mox_run_back(run, before, status);
}
