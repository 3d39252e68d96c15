/* SPDX-License-Identifier: Apache-2.0
 *
 * device_fill.c - records on their way to a GPU, read by all workers (device_fill.h).
 *
 * A worker waits for others in two places: for the slices before its own, whose last reader sends their chunk, and for
 * the first reader of its own chunk. Both have begun: slices are taken in order. So an executor that runs its tasks one
 * after the other fills a layer, too.
 */
#include "layer/weights/device_fill.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/executor.h"
#include "base/log.h"
#include "base/read_at.h"
#include "base/sizes.h"
#include "layer/weights/pinned_ring.h"

enum { SLICE = 128 << 10, SLICES = MOX_RING_CHUNK / SLICE };

/* One of the ring's chunks, through which every eighth chunk of the bytes goes. Those are numbered from 1 here; 0: none
 * yet. */
typedef struct chunk_state {
    _Atomic int64_t open;    /* the chunk that is written there */
    _Atomic int64_t sent;    /* the last one whose copy is enqueued */
    _Atomic int64_t missing; /* slices of the open one that are not there */
} chunk_state;

typedef struct device_fill {
    const moxie_layer *layer;
    const mox_given_records *given;
    mox_pinned_ring *ring;
    uint64_t routed, total; /* bytes */
    int64_t slices;
    _Atomic int64_t next; /* slice that nobody has taken */
    chunk_state states[MOX_RING_CHUNKS];
    _Atomic bool failed;
    moxie_status status; /* of the first failure */
    moxie_error error;
} device_fill;

static bool fail(device_fill *f, moxie_status status, const moxie_error *error)
{
    if (!atomic_exchange(&f->failed, true)) {
        f->status = status;
        f->error = *error;
    }
    return false;
}

static bool wait_until(const device_fill *f, const _Atomic int64_t *at, int64_t chunk)
{
    while (atomic_load_explicit(at, memory_order_acquire) != chunk) {
        if (atomic_load_explicit(&f->failed, memory_order_relaxed))
            return false;
        sched_yield();
    }
    return true;
}

/* ---- a slice --------------------------------------------------------------------------------------- */

/* Where the bytes from `at` on lie, to the end of their record. */
static const uint8_t *find(const device_fill *f, uint64_t at, uint64_t *bytes)
{
    const moxie_layer *layer = f->layer;
    if (at >= f->routed) {
        *bytes = f->total - at;
        return (const uint8_t *)f->given->shared + (at - f->routed);
    }
    const uint64_t slot = at / layer->record_bytes, within = at % layer->record_bytes;
    *bytes = layer->record_bytes - within;
    return (const uint8_t *)f->given->routed[layer->expert_of[slot]] + within;
}

static moxie_status cannot_read(const mox_given_records *given, uint64_t offset, moxie_error *error)
{
    return errno != 0 ? mox_fail_file(MOXIE_ERR_IO, error, given->path, (int64_t)offset, "cannot read its records: %m")
                      : mox_fail_file(MOXIE_ERR_FORMAT, error, given->path, (int64_t)offset,
                                      "it ends before its records do: it was cut short; prepare it anew");
}

/* Pages of a mapping that nobody has touched cost a fault each, so a mapped file is read instead. For these bytes an
 * error of the disk then is an error, and no SIGBUS. */
static moxie_status bring(const mox_given_records *given, void *to, const uint8_t *from, uint64_t bytes,
                          moxie_error *error)
{
    if (given->mapping == NULL) {
        memcpy(to, from, bytes);
        return MOXIE_OK;
    }
    const uint64_t offset = (uint64_t)(from - given->mapping);
    return mox_read_at(given->fd, to, bytes, offset) ? MOXIE_OK : cannot_read(given, offset, error);
}

static moxie_status bring_slice(const device_fill *f, uint8_t *to, uint64_t at, uint64_t end, moxie_error *error)
{
    while (at < end) {
        uint64_t bytes;
        const uint8_t *from = find(f, at, &bytes);
        bytes = mox_min_u64(bytes, end - at);
        MOX_TRY(bring(f->given, to, from, bytes, error));
        to += bytes;
        at += bytes;
    }
    return MOXIE_OK;
}

/* ---- a chunk --------------------------------------------------------------------------------------- */

static uint64_t chunk_end(const device_fill *f, int64_t chunk)
{
    return mox_min_u64((uint64_t)(chunk + 1) * MOX_RING_CHUNK, f->total);
}

/* Waits until the chunk may be written to the ring. Whoever has its first slice does. */
static bool open_chunk(device_fill *f, int64_t chunk)
{
    const int64_t number = chunk % f->ring->chunks, before = chunk - f->ring->chunks;
    chunk_state *state = &f->states[number];
    moxie_error error;
    if (before >= 0) {
        if (!wait_until(f, &state->sent, before + 1))
            return false;
        const moxie_status status = f->layer->device.table->event_wait(f->ring->copied[number], &error);
        if (status != MOXIE_OK)
            return fail(f, status, &error);
    }
    atomic_store_explicit(&state->missing, mox_min_i64(SLICES, f->slices - chunk * SLICES), memory_order_relaxed);
    atomic_store_explicit(&state->open, chunk + 1, memory_order_release);
    return true;
}

/* Slots lie end to end, so a chunk is one copy; the one where the shared expert begins may be two. */
static moxie_status send_chunk(const device_fill *f, int64_t chunk, moxie_error *error)
{
    const mox_cuda_table *table = f->layer->device.table;
    const mox_pinned_ring *ring = f->ring;
    const int64_t number = chunk % ring->chunks;
    const uint8_t *from = ring->memory + number * MOX_RING_CHUNK;
    const uint64_t at = (uint64_t)chunk * MOX_RING_CHUNK, end = chunk_end(f, chunk);
    const uint64_t routed_end = mox_min_u64(end, f->routed);
    uint64_t shared_at = at;
    if (at < routed_end) {
        MOX_TRY(table->copy((uint8_t *)f->layer->records[0] + at, from, routed_end - at, ring->stream, error));
        shared_at = routed_end;
    }
    if (shared_at < end)
        MOX_TRY(table->copy((uint8_t *)f->layer->shared_record + (shared_at - f->routed), from + (shared_at - at),
                            end - shared_at, ring->stream, error));
    return table->event_record(ring->copied[number], ring->stream, error);
}

static bool do_slice(device_fill *f, int64_t slice)
{
    const int64_t chunk = slice / SLICES, number = chunk % f->ring->chunks;
    const uint64_t at = (uint64_t)slice * SLICE, end = mox_min_u64(at + SLICE, f->total);
    chunk_state *state = &f->states[number];
    moxie_error error;
    if (slice % SLICES == 0 ? !open_chunk(f, chunk) : !wait_until(f, &state->open, chunk + 1))
        return false;
    uint8_t *to = f->ring->memory + number * MOX_RING_CHUNK + (at - (uint64_t)chunk * MOX_RING_CHUNK);
    moxie_status status = bring_slice(f, to, at, end, &error);
    const bool last = status == MOXIE_OK && atomic_fetch_sub_explicit(&state->missing, 1, memory_order_acq_rel) == 1;
    if (last)
        status = send_chunk(f, chunk, &error);
    if (status != MOXIE_OK)
        return fail(f, status, &error);
    if (last)
        atomic_store_explicit(&state->sent, chunk + 1, memory_order_release);
    return true;
}

/* One of them a worker. */
static void work(void *context, int64_t task, int32_t worker)
{
    device_fill *f = context;
    const mox_device *device = &f->layer->device;
    moxie_error error;
    (void)task, (void)worker;
    const moxie_status status = device->table->use(device->ordinal, &error);
    if (status != MOXIE_OK)
        (void)fail(f, status, &error);
    while (!atomic_load_explicit(&f->failed, memory_order_relaxed)) {
        const int64_t slice = atomic_fetch_add_explicit(&f->next, 1, memory_order_relaxed);
        if (slice >= f->slices || !do_slice(f, slice))
            break;
    }
}

/* ---- a layer --------------------------------------------------------------------------------------- */

static moxie_status fill_slots(device_fill *f, const moxie_executor *executor, moxie_error *error)
{
    mox_parallel(executor, mox_min_i64(executor->workers, f->slices), work, f);
    if (!f->failed)
        return MOXIE_OK;
    if (error != NULL)
        *error = f->error;
    return f->status;
}

static void report(const mox_fill_times *times)
{
    mox_log(MOXIE_LOG_INFO,
            "%.1f MB of packed records went to the device in %.2f ms by %d workers, through %.1f MB of pinned memory, "
            "which took %.2f ms to make; the slots took %.2f ms",
            (double)times->bytes * 1e-6, times->fill_seconds * 1e3, (int)times->workers,
            (double)times->pinned_bytes * 1e-6, times->pin_seconds * 1e3, times->slab_seconds * 1e3);
}

moxie_status mox_device_fill(moxie_layer *layer, const mox_given_records *given, const moxie_executor *executor,
                             moxie_error *error)
{
    device_fill f = { .layer = layer, .given = given };
    mox_fill_times *times = &layer->fill_times;
    f.routed = layer->fetched ? 0 : (uint64_t)layer->slots * layer->record_bytes;
    f.total = f.routed + (layer->shared_record != NULL ? layer->shared_bytes : 0);
    f.slices = mox_ceil_div((int64_t)f.total, SLICE);
    if (f.total == 0)
        return MOXIE_OK;
    MOX_TRY(mox_pinned_ring_take(layer->rings, f.total, &f.ring, &times->pin_seconds, error));
    const uint64_t start = mox_clock_now();
    times->bytes = f.total;
    times->pinned_bytes = f.ring->bytes;
    times->workers = (int32_t)mox_min_i64(executor->workers, f.slices);
    const moxie_status status = fill_slots(&f, executor, error);
    MOX_TRY(mox_pinned_ring_give_back(layer->rings, f.ring, status, error));
    times->fill_seconds = (double)(mox_clock_now() - start) * 1e-9;
    report(times);
    return MOXIE_OK;
}
