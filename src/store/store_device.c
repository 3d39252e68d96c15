/* SPDX-License-Identifier: Apache-2.0
 *
 * store_device.c - the source of a layer whose slots are in device memory (device_source.h, store_device.h).
 *
 *     begin   a step of the layer's cache; the rest is a session of its source in RAM
 *     want    experts with a slot: the first window; the others: the order in which RAM has them; their copies begin
 *     next    the window that was copied ahead; and copies of the one after it begin
 */
#include <string.h>

#include "base/clock.h"
#include "base/sizes.h"
#include "store/store_device.h"

static const mox_cuda_table *table_of(const mox_store_device *d)
{
    return d->device.table;
}

static uint8_t *slots_of(const mox_store_device *d, const mox_store_layer *layer)
{
    const moxie_store *store = layer->store;
    return d->slab + (uint64_t)layer->number * (uint64_t)store->device_slots * store->device_record_bytes;
}

/* Half of the buffers, behind all slots. */
static uint8_t *half_of(const mox_store_device *d, const moxie_store *store, int half)
{
    const uint64_t slots = (uint64_t)store->n_layers * (uint64_t)store->device_slots;
    return d->slab + (slots + (uint64_t)half * (uint64_t)(store->device_buffers / 2)) * store->device_record_bytes;
}

/* Of a window: kernels have tables for as many slots as the layer has experts. */
static int64_t at_most(const mox_store_layer *layer, int64_t slots)
{
    return mox_min_i64(slots, layer->file->header.experts);
}

static int64_t slots_in_half(const mox_store_layer *layer)
{
    return at_most(layer, mox_max_i64(layer->store->device_buffers / 2, 1));
}

/* ---- begin --------------------------------------------------------------------------------------------- */

/* Whether an expert's record lies in the slot that it has. */
static bool is_there(const mox_store_layer *layer, int32_t expert, int32_t slot)
{
    return slot >= 0 && layer->device_holds[slot] == expert;
}

/* Whether the CPU computes an expert that has this slot. */
static bool stays_in_ram(const mox_store_layer *layer, int32_t slot)
{
    return layer->beside != NULL && slot < 0;
}

/* A step of the cache. Returns how many experts are to be copied; they are listed in d->missing. */
static int64_t step(mox_store_device *d, const int32_t *experts, int64_t count)
{
    mox_store_layer *layer = d->layer;
    int64_t missing = 0;
    if (layer->device_warm_left == 0)
        mox_cache_end_warm(layer->device_cache);
    if (layer->device_warm_left >= 0)
        layer->device_warm_left--;
    mox_cache_step(layer->device_cache, experts, (int32_t)count, d->places);
    for (int64_t i = 0; i < count; i++) {
        const int32_t e = experts[i];
        d->slot_of[e] = d->places[i].slot;
        d->counters.device_inserts += !d->places[i].hit && d->places[i].slot >= 0;
        if (is_there(layer, e, d->places[i].slot))
            d->counters.device_hits++;
        else if (stays_in_ram(layer, d->places[i].slot))
            d->counters.host_uses++;
        else
            d->missing[missing++] = e;
    }
    d->counters.device_uses = count;
    return missing;
}

/* Kernels and copies of this run come after all of the last one. */
static moxie_status follow(mox_store_device *d, mox_cuda_stream stream, moxie_error *error)
{
    MOX_TRY(table_of(d)->stream_follow(stream, d->ended, error));
    return table_of(d)->stream_follow(d->copies, d->ended, error);
}

static moxie_status begin(void *user, mox_cuda_stream stream, const int32_t *experts, int64_t count, double waited,
                          moxie_error *error)
{
    mox_store_layer *layer = user;
    mox_store_device *d = layer->store->device;
    pthread_mutex_lock(&d->turn);
    d->layer = layer;
    d->stream = stream;
    d->counters = (moxie_store_counters)MOXIE_STORE_COUNTERS_INIT;
    d->counters.id_waits = 1;
    d->counters.id_wait_seconds = waited;
    d->waits_for_copy = false;
    moxie_status status = follow(d, stream, error);
    if (status == MOXIE_OK)
        status = layer->source.begin(layer->source.user, d->ram, d->missing, step(d, experts, count), error);
    if (status != MOXIE_OK)
        pthread_mutex_unlock(&d->turn);
    return status;
}

/* ---- copies -------------------------------------------------------------------------------------------- */

/* RAM gets back what the run does not need any more, so what is copied from there must have left. */
static moxie_status wait_for_copy(mox_store_device *d, moxie_error *error)
{
    if (!d->waits_for_copy)
        return MOXIE_OK;
    const uint64_t since = mox_clock_now();
    MOX_TRY(table_of(d)->event_wait(d->copied[d->latest], error));
    d->counters.copy_waits++;
    d->counters.copy_wait_seconds += 1e-9 * (double)(mox_clock_now() - since);
    d->waits_for_copy = false;
    return MOXIE_OK;
}

/* Takes the next experts that all get a slot, or all get none, out of those whose records are in RAM. */
static int64_t choose(mox_store_device *d, mox_store_window *w)
{
    const int64_t limit = slots_in_half(d->layer);
    const bool keeps = d->slot_of[d->missing[d->from]] >= 0;
    int64_t n = 0;
    for (int64_t i = d->from; i < d->to && n < limit; i++) {
        const int32_t expert = d->missing[i];
        const void *record = d->records[i];
        if ((d->slot_of[expert] >= 0) != keeps)
            continue;
        d->missing[i] = d->missing[d->from + n];
        d->records[i] = d->records[d->from + n];
        d->missing[d->from + n] = expert;
        d->records[d->from + n] = record;
        w->experts[n] = expert;
        w->slot[n] = keeps ? d->slot_of[expert] : (int32_t)n;
        n++;
    }
    w->half = keeps ? -1 : 1 - d->half;
    return n;
}

static moxie_status copy_records(mox_store_device *d, mox_store_window *w, int64_t count, moxie_error *error)
{
    mox_store_layer *layer = d->layer;
    const moxie_store *store = layer->store;
    uint8_t *base = w->half < 0 ? slots_of(d, layer) : half_of(d, store, w->half);
    if (w->half >= 0)
        MOX_TRY(table_of(d)->stream_follow(d->copies, d->used[w->half], error));
    for (int64_t i = 0; i < count; i++) {
        const uint64_t bytes = layer->file->header.record_bytes;
        if (w->half < 0)
            layer->device_holds[w->slot[i]] = -1;
        MOX_TRY(table_of(d)->copy(base + (uint64_t)w->slot[i] * store->device_record_bytes, d->records[d->from + i],
                                  bytes, d->copies, error));
        if (w->half < 0)
            layer->device_holds[w->slot[i]] = w->experts[i];
        d->counters.copies++;
        d->counters.copied_bytes += bytes;
    }
    w->view.base = base;
    w->view.slots = w->half < 0 ? at_most(layer, store->device_slots) : slots_in_half(layer);
    return table_of(d)->event_record(d->copied[w->number], d->copies, error);
}

/* Begins the copies of a window; without `wait` only of records that are in RAM. It is empty when there is none. */
static moxie_status prepare(mox_store_device *d, mox_store_window *w, bool wait, moxie_error *error)
{
    int64_t ready = 0;
    w->view.count = 0;
    if (d->from == d->to && (d->to == d->n_missing || (d->waits_for_copy && !wait)))
        return MOXIE_OK;
    if (d->from == d->to) {
        MOX_TRY(wait_for_copy(d, error));
        MOX_TRY(d->layer->source.next(d->ram, wait, d->records + d->to, &ready, error));
        d->to += ready;
        if (ready == 0)
            return MOXIE_OK;
    }
    const int64_t count = choose(d, w);
    w->number = 1 - d->latest;
    d->waits_for_copy = true;
    MOX_TRY(copy_records(d, w, count, error));
    d->latest = w->number;
    d->half = w->half >= 0 ? w->half : d->half;
    d->from += count;
    w->view.count = count;
    return MOXIE_OK;
}

/* ---- a pass --------------------------------------------------------------------------------------------- */

static moxie_status want(void *user, const int32_t *experts, int64_t count, moxie_error *error)
{
    mox_store_layer *layer = user;
    mox_store_device *d = layer->store->device;
    mox_store_window *held = &d->held;
    MOX_TRY(wait_for_copy(d, error));
    d->n_missing = d->from = d->to = held->view.count = d->on_host.view.count = 0;
    for (int64_t i = 0; i < count; i++) {
        const int32_t e = experts[i];
        if (stays_in_ram(layer, d->slot_of[e])) {
            d->on_host.experts[d->on_host.view.count++] = e;
            continue;
        }
        if (!is_there(layer, e, d->slot_of[e])) {
            d->missing[d->n_missing++] = e;
            continue;
        }
        held->experts[held->view.count] = e;
        held->slot[held->view.count++] = d->slot_of[e];
    }
    held->view.base = slots_of(d, layer);
    held->view.slots = at_most(layer, layer->store->device_slots);
    d->gave_held = d->gave_host = false;
    d->present = &d->windows[0];
    d->ahead = &d->windows[1];
    layer->source.want(d->ram, d->missing, d->n_missing, false);
    return prepare(d, d->ahead, false, error);
}

static void give(mox_store_device *d, const mox_store_window *w, mox_device_window *out)
{
    *out = w->view;
    out->record_bytes = d->layer->store->device_record_bytes;
    out->experts = w->experts;
    out->slot = w->slot;
    out->last = d->from == d->n_missing && d->ahead->view.count == 0 && (d->gave_host || d->on_host.view.count == 0);
}

static moxie_status next(void *user, mox_device_window *out, moxie_error *error)
{
    mox_store_device *d = ((mox_store_layer *)user)->store->device;
    if (!d->gave_held && d->held.view.count > 0) {
        d->gave_held = true;
        d->present = &d->held;
        give(d, d->present, out);
        return MOXIE_OK;
    }
    if (!d->gave_host && d->on_host.view.count > 0 && d->ahead->view.count == 0) {
        d->gave_host = true; /* the copies of the next window would have to be waited for */
        d->present = &d->on_host;
        give(d, d->present, out);
        d->host_since = mox_clock_now();
        return MOXIE_OK;
    }
    d->present = d->ahead;
    d->ahead = d->present == &d->windows[0] ? &d->windows[1] : &d->windows[0];
    d->ahead->view.count = 0;
    if (d->present->view.count == 0)
        MOX_TRY(prepare(d, d->present, true, error));
    MOX_TRY(prepare(d, d->ahead, false, error));
    give(d, d->present, out);
    return MOXIE_OK;
}

static moxie_status ready(void *user, moxie_error *error)
{
    mox_store_device *d = ((mox_store_layer *)user)->store->device;
    return d->present->number >= 0 ? table_of(d)->stream_follow(d->stream, d->copied[d->present->number], error)
                                   : MOXIE_OK;
}

static moxie_status done(void *user, moxie_error *error)
{
    mox_store_device *d = ((mox_store_layer *)user)->store->device;
    if (d->present == &d->on_host)
        d->counters.host_seconds += 1e-9 * (double)(mox_clock_now() - d->host_since);
    return d->present->half >= 0 ? table_of(d)->event_record(d->used[d->present->half], d->stream, error) : MOXIE_OK;
}

/* ---- end ------------------------------------------------------------------------------------------------ */

static void count(mox_store_device *d)
{
    mox_store_layer *layer = d->layer;
    if (layer->beside != NULL)
        mox_store_host_count(layer->beside, &d->counters);
    pthread_mutex_lock(&layer->store->mutex);
    mox_store_add_counters(&layer->total, &d->counters);
    mox_store_add_counters(&layer->last, &d->counters); /* the session in RAM has set it */
    pthread_mutex_unlock(&layer->store->mutex);
}

static moxie_status end(void *user, moxie_status status, moxie_error *error)
{
    mox_store_layer *layer = user;
    mox_store_device *d = layer->store->device;
    const moxie_status ended = table_of(d)->event_record(d->ended, d->stream, status == MOXIE_OK ? error : NULL);
    if (ended != MOXIE_OK)
        (void)table_of(d)->stream_wait(d->stream, NULL); /* no event may tell the next run when to begin its copies */
    status = status == MOXIE_OK ? ended : status;
    if (status == MOXIE_OK)
        status = wait_for_copy(d, error);
    if (status != MOXIE_OK)
        (void)table_of(d)->stream_wait(d->copies, NULL); /* no event may tell when these are done */
    for (int32_t s = 0; status != MOXIE_OK && s < layer->store->device_slots; s++)
        layer->device_holds[s] = -1; /* what came may be half */
    layer->source.end(d->ram);
    count(d);
    pthread_mutex_unlock(&d->turn);
    return status;
}

static moxie_status resident(void *user, const moxie_layer_config *config, const moxie_options *options,
                             moxie_layer **out, moxie_error *error)
{
    const mox_store_layer *layer = user;
    return mox_layer_open_file(layer->file, config, options, out, error);
}

void mox_store_set_device_source(mox_store_layer *layer)
{
    const moxie_store *store = layer->store;
    layer->device_source =
        (mox_device_source) { .user = layer,
                              .max_slots = mox_max_i64(at_most(layer, store->device_slots), slots_in_half(layer)),
                              .begin = begin,
                              .want = want,
                              .next = next,
                              .ready = ready,
                              .done = done,
                              .end = end,
                              .resident = resident };
    mox_store_host_set_source(&layer->device_source);
}
