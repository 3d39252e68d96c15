/* SPDX-License-Identifier: Apache-2.0
 *
 * run_windows.c - windows of experts whose records come to a GPU during the run (run_windows.h).
 */
#include "layer/run/run_windows.h"

#include <string.h>

#include "layer/plan/plan_fetch.h"
#include "layer/run/run_beside.h"
#include "layer/run/run_experts.h"
#include "layer/run/run_permute.h"

bool mox_run_has_windows(const mox_run *run)
{
    return run->plan->fetch != NULL;
}

/* ---- a batch ------------------------------------------------------------------------------------------ */

/* Counts the pairs of the experts of this rank that some of `choices` ids name, and lists these experts by their first
 * use. */
static void list_experts(const mox_run *run, const int32_t *ids, int64_t choices)
{
    const moxie_layer *layer = run->plan->layer;
    mox_plan_fetch *f = run->plan->fetch;
    const int64_t experts = layer->config.experts;
    memset(f->pairs, 0, (size_t)experts * sizeof *f->pairs);
    f->count = f->ordered = 0;
    for (int64_t i = 0; i < choices; i++) {
        const int32_t e = ids[i];
        if (e >= 0 && e < experts && layer->slot_of[e] >= 0 && f->pairs[e]++ == 0)
            f->experts[f->count++] = e;
    }
}

/* A run needs the host in its middle, and its copies depend on what earlier runs left in device memory. */
static moxie_status check(const mox_run *run, moxie_error *error)
{
    int32_t captured = 0;
    MOX_TRY(run->queue.table->capturing(run->queue.stream, &captured, error));
    MOX_FAIL_IF(captured, MOXIE_ERR_UNSUPPORTED, error,
                "the stream is being captured, but a run on a layer of a store waits on the host for the chosen "
                "experts, to copy those that are missing: make it outside of graphs, or give the GPU all experts "
                "(moxie_layer_open_file)");
    return MOXIE_OK;
}

static moxie_status bring_ids(const mox_run *run, moxie_error *error)
{
    const mox_cuda_table *table = run->queue.table;
    const uint64_t bytes = (uint64_t)(run->args.tokens * run->plan->config.top_k) * sizeof(int32_t);
    const mox_phase before = mox_run_enter(run, MOX_PHASE_WAIT);
    MOX_TRY(table->copy(run->plan->fetch->ids, run->ids, bytes, run->queue.stream, error));
    MOX_TRY(mox_run_beside_begin(run, error));
    return mox_run_back(run, before, table->stream_wait(run->queue.stream, error));
}

moxie_status mox_run_windows_begin(mox_run *run, moxie_error *error)
{
    const mox_device_source *source = run->plan->layer->device_source;
    mox_plan_fetch *f = run->plan->fetch;
    MOX_TRY(check(run, error));
    const uint64_t since = mox_clock_now();
    MOX_TRY(bring_ids(run, error));
    const double waited = 1e-9 * (double)(mox_clock_now() - since);
    list_experts(run, f->ids, run->args.tokens * run->plan->config.top_k);
    MOX_TRY(source->begin(source->user, run->queue.stream, f->experts, f->count, waited, error));
    run->fetches = true;
    return MOXIE_OK;
}

moxie_status mox_run_windows_end(mox_run *run, moxie_status status, moxie_error *error)
{
    const mox_device_source *source = run->plan->layer->device_source;
    if (!run->fetches)
        return status;
    run->fetches = false;
    return source->end(source->user, status, error);
}

moxie_status mox_run_windows_want(mox_run *run, moxie_error *error)
{
    const mox_device_source *source = run->plan->layer->device_source;
    mox_plan_fetch *f = run->plan->fetch;
    const int64_t top_k = run->plan->config.top_k;
    list_experts(run, f->ids + run->first * top_k, run->tokens * top_k);
    for (int64_t e = 0; e < run->plan->config.experts; e++)
        f->order[e] = -1;
    return source->want(source->user, f->experts, f->count, error);
}

/* ---- tables ------------------------------------------------------------------------------------------- */

/* The next entry of the ring; waits until what was copied from it earlier has left. */
static moxie_status take_entry(const mox_run *run, char **entry, moxie_error *error)
{
    mox_plan_fetch *f = run->plan->fetch;
    f->entry = (f->entry + 1) % MOX_FETCH_RING;
    *entry = f->ring[f->entry];
    return run->queue.table->event_wait(f->sent[f->entry], error);
}

static moxie_status send_entry(const mox_run *run, void *to, uint64_t bytes, moxie_error *error)
{
    const mox_plan_fetch *f = run->plan->fetch;
    const mox_cuda_table *table = run->queue.table;
    MOX_TRY(table->copy(to, f->ring[f->entry], bytes, run->queue.stream, error));
    return table->event_record(f->sent[f->entry], run->queue.stream, error);
}

/* What kernels read by slot and by expert. Slots without an expert of the window have no pairs. */
static void fill_tables(const mox_run *run, const mox_device_window *w, char *entry)
{
    const moxie_layer *layer = run->plan->layer;
    const mox_fetch_tables *t = &run->plan->fetch->tables;
    int32_t *slot_of = (int32_t *)(entry + t->slot_of);
    int32_t *place_of = (int32_t *)(entry + t->place_of);
    int64_t *expert_of = (int64_t *)(entry + t->expert_of);
    for (int64_t e = 0; e < layer->config.experts; e++)
        slot_of[e] = -1;
    for (int64_t s = 0; s < w->slots; s++) {
        expert_of[s] = -1;
        place_of[s] = 0;
    }
    for (int64_t i = 0; i < w->count; i++) {
        slot_of[w->experts[i]] = w->slot[i];
        expert_of[w->slot[i]] = w->experts[i];
        place_of[w->slot[i]] = layer->slot_of[w->experts[i]];
    }
    for (int p = MOX_W13; p <= MOX_W2; p++) {
        float *scale = (float *)(entry + t->scale[p]);
        for (int64_t s = 0; s < w->slots; s++)
            scale[s] = expert_of[s] >= 0 ? layer->static_scale[p].resolved[layer->slot_of[expert_of[s]]] : 0;
    }
}

/* Gives the window's experts the next places, by slot as permute does; returns how many pairs they have. Slots without
 * one get an expert that is no worse than another, since kernels may read its constants. */
static int64_t order_experts(const mox_run *run, const mox_device_window *w, char *entry)
{
    mox_plan_fetch *f = run->plan->fetch;
    int64_t *expert_of = (int64_t *)(entry + f->tables.expert_of), pairs = 0;
    for (int64_t s = 0; s < w->slots; s++) {
        if (expert_of[s] < 0) {
            expert_of[s] = w->experts[0];
            continue;
        }
        f->order[expert_of[s]] = (int32_t)f->ordered++;
        pairs += f->pairs[expert_of[s]];
    }
    return pairs;
}

/* ---- windows ------------------------------------------------------------------------------------------ */

static mox_permutation permutation_of_all(const mox_run *run)
{
    return (mox_permutation) { MOX_RUN_AT(run, int64_t, offsets), MOX_RUN_AT(run, int64_t, pair_at),
                               MOX_RUN_AT(run, int64_t, position) };
}

static mox_permutation permutation_of_window(const mox_run *run)
{
    return (mox_permutation) { MOX_RUN_AT(run, int64_t, fetch_offsets), MOX_RUN_AT(run, int64_t, fetch_pair_at),
                               MOX_RUN_AT(run, int64_t, fetch_position) };
}

/* The slots and their tables, in device memory. Returns the number of pairs. */
static moxie_status set_window(mox_run *run, const mox_device_window *w, int64_t *pairs, moxie_error *error)
{
    mox_plan_fetch *f = run->plan->fetch;
    char *entry, *tables = MOX_RUN_AT(run, char, fetch_tables);
    MOX_TRY(take_entry(run, &entry, error));
    fill_tables(run, w, entry);
    *pairs = order_experts(run, w, entry);
    f->base = w->base;
    run->slots = (mox_run_slots) { .count = w->slots,
                                   .end = w->slots,
                                   .slot_of = (const int32_t *)(tables + f->tables.slot_of),
                                   .expert_of = (const int64_t *)(tables + f->tables.expert_of),
                                   .records = &f->base,
                                   .static_scale = { (const float *)(tables + f->tables.scale[MOX_W13]),
                                                     (const float *)(tables + f->tables.scale[MOX_W2]) },
                                   .place_of = (const int32_t *)(tables + f->tables.place_of),
                                   .record_bytes = w->record_bytes };
    return send_entry(run, tables, f->tables.bytes, error);
}

/* The positions of all pairs, now that the order of all experts is known. */
static moxie_status permute_all(mox_run *run, moxie_error *error)
{
    mox_plan_fetch *f = run->plan->fetch;
    const uint64_t bytes = (uint64_t)run->plan->config.experts * sizeof *f->order;
    int32_t *slot_of = MOX_RUN_AT(run, int32_t, fetch_slot_of);
    char *entry;
    MOX_TRY(take_entry(run, &entry, error));
    memcpy(entry, f->order, bytes);
    MOX_TRY(send_entry(run, slot_of, bytes, error));
    run->slots = (mox_run_slots) { .count = f->count, .end = f->count, .slot_of = slot_of };
    run->permutation = permutation_of_all(run);
    return mox_run_permute(run, false, error);
}

/* Between the quantized input and the products the stream waits for the records. */
static moxie_status run_experts(mox_run *run, moxie_error *error)
{
    const mox_device_source *source = run->plan->layer->device_source;
    MOX_TRY(mox_run_experts(run, MOX_ROUTED, MOX_EXPERTS_INPUT, error));
    MOX_TRY(source->ready(source->user, error));
    MOX_TRY(mox_run_experts(run, MOX_ROUTED, MOX_EXPERTS_ALL & ~(uint32_t)MOX_EXPERTS_INPUT, error));
    return source->done(source->user, error);
}

/* `alone`: no other window of the pass has experts; then its permutation is that of all pairs. */
static moxie_status run_window(mox_run *run, const mox_device_window *w, int64_t first_pair, int64_t *pairs, bool alone,
                               moxie_error *error)
{
    MOX_TRY(set_window(run, w, pairs, error));
    const mox_run_slots slots = run->slots;
    if (w->last && !alone)
        MOX_TRY(permute_all(run, error));
    run->slots = slots;
    run->permutation = alone ? permutation_of_all(run) : permutation_of_window(run);
    MOX_TRY(mox_run_permute(run, true, error));
    run->slots.first_pair = first_pair;
    return run_experts(run, error);
}

/* The same of experts that the host computes. Their rows lie in the order of the choices, so they are one slot. */
static moxie_status run_on_host(mox_run *run, const mox_device_window *w, int64_t first_pair, int64_t *pairs,
                                moxie_error *error)
{
    const mox_device_source *source = run->plan->layer->device_source;
    mox_plan_fetch *f = run->plan->fetch;
    *pairs = 0;
    for (int64_t i = 0; i < w->count; i++) {
        f->order[w->experts[i]] = (int32_t)f->ordered;
        *pairs += f->pairs[w->experts[i]];
    }
    f->ordered++;
    if (w->last)
        MOX_TRY(permute_all(run, error));
    const mox_phase before = mox_run_enter(run, MOX_PHASE_WAIT);
    MOX_TRY(mox_run_back(run, before, mox_run_beside(run, w->experts, w->count, first_pair, error)));
    return source->done(source->user, error);
}

/* What reads the permutation of a pass from here on: norms of all rows, combine. */
static void leave(mox_run *run, bool alone)
{
    run->slots = (mox_run_slots) { .count = alone ? run->slots.count : run->plan->fetch->count };
    run->permutation = permutation_of_all(run);
}

moxie_status mox_run_windows(mox_run *run, bool shared, moxie_error *error)
{
    const mox_device_source *source = run->plan->layer->device_source;
    mox_device_window w = { .count = 0 };
    int64_t first_pair = 0, pairs = 0;
    bool alone = true;
    if (run->plan->fetch->count == 0) {
        alone = false;
        MOX_TRY(permute_all(run, error)); /* no pair has a row */
    }
    do {
        const mox_phase before = mox_run_enter(run, MOX_PHASE_WAIT);
        MOX_TRY(mox_run_back(run, before, source->next(source->user, &w, error)));
        alone = alone && w.count == run->plan->fetch->count && !w.on_host;
        if (w.count > 0 && !w.on_host)
            MOX_TRY(run_window(run, &w, first_pair, &pairs, alone, error));
        if (shared)
            MOX_TRY(mox_run_experts(run, MOX_SHARED_EXPERT, MOX_EXPERTS_ALL, error));
        shared = false;
        if (w.on_host) /* while the GPU computes all of the above */
            MOX_TRY(run_on_host(run, &w, first_pair, &pairs, error));
        first_pair += pairs;
    } while (!w.last);
    leave(run, alone);
    return MOXIE_OK;
}
