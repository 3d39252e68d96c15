/* SPDX-License-Identifier: Apache-2.0
 *
 * layer_given.c - makes a layer of records that were packed before (layer_given.h).
 */
#include "layer/weights/layer_given.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/executor.h"
#include "base/log.h"
#include "base/read_at.h"
#include "base/sizes.h"
#include "layer/weights/device_ring.h"
#include "layer/weights/layer_arrays.h"
#include "layer/weights/layer_create.h"
#include "layer/weights/layer_prepare.h"

/* HALF: of the ring; its copy takes longer than to start the workers and to wait for an event, and both halves fit into
 * the caches. SLICE: what a worker brings at a time. */
enum { HALF = 8 << 20, SLICE = 256 << 10 };

/* All that goes to the device: routed experts by slot, then the shared one, end to end, cut into halves and slices. */
typedef struct device_fill {
    const moxie_layer *layer;
    const mox_given_records *given;
    mox_device_ring *ring;
    uint64_t routed, total; /* bytes */
    uint64_t at, bytes;     /* of the present half */
    uint8_t *half;
    _Atomic int failed;         /* errno of a read, or -1 at the end of the file; 0: none has failed */
    _Atomic uint64_t failed_at; /* in the file */
} device_fill;

/* The rest of a record. */
typedef struct stretch {
    uint8_t *to;
    const uint8_t *from;
    uint64_t bytes;
} stretch;

static stretch stretch_at(const device_fill *f, uint64_t at)
{
    const moxie_layer *layer = f->layer;
    if (at >= f->routed)
        return (stretch) { (uint8_t *)layer->shared_record + (at - f->routed),
                           (const uint8_t *)f->given->shared + (at - f->routed), f->total - at };
    const uint64_t slot = at / layer->record_bytes, within = at % layer->record_bytes;
    return (stretch) { (uint8_t *)layer->records[slot] + within,
                       (const uint8_t *)f->given->routed[layer->expert_of[slot]] + within,
                       layer->record_bytes - within };
}

/* Pages of a mapping that nobody has touched cost a fault each, so a mapped file is read instead. For these bytes an
 * error of the disk then is an error, and no SIGBUS. */
static void bring(device_fill *f, void *to, const uint8_t *from, uint64_t bytes)
{
    const mox_given_records *given = f->given;
    if (given->mapping == NULL) {
        memcpy(to, from, bytes);
        return;
    }
    const uint64_t offset = (uint64_t)(from - given->mapping);
    if (mox_read_at(given->fd, to, bytes, offset))
        return;
    atomic_store_explicit(&f->failed_at, offset, memory_order_relaxed);
    atomic_store_explicit(&f->failed, errno != 0 ? errno : -1, memory_order_relaxed);
}

static void bring_slice(void *context, int64_t task, int32_t worker)
{
    device_fill *f = context;
    (void)worker;
    uint64_t at = (uint64_t)task * SLICE;
    const uint64_t end = mox_min_u64(at + SLICE, f->bytes);
    while (at < end) {
        const stretch s = stretch_at(f, f->at + at);
        const uint64_t bytes = mox_min_u64(s.bytes, end - at);
        bring(f, f->half + at, s.from, bytes);
        at += bytes;
    }
}

static moxie_status send_half(device_fill *f, moxie_error *error)
{
    for (uint64_t at = 0; at < f->bytes;) {
        const stretch s = stretch_at(f, f->at + at);
        const uint64_t bytes = mox_min_u64(s.bytes, f->bytes - at);
        MOX_TRY(mox_device_ring_copy(f->ring, at, bytes, s.to, error));
        at += bytes;
    }
    return mox_device_ring_sent(f->ring, error);
}

static moxie_status cannot_read(const device_fill *f, moxie_error *error)
{
    const int64_t offset = (int64_t)f->failed_at;
    errno = f->failed > 0 ? f->failed : 0;
    return errno != 0 ? mox_fail_file(MOXIE_ERR_IO, error, f->given->path, offset, "cannot read its records: %m")
                      : mox_fail_file(MOXIE_ERR_FORMAT, error, f->given->path, offset,
                                      "it ends before its records do: it was cut short; prepare it anew");
}

/* The executor's workers bring one half while the other is copied. */
static moxie_status fill_slots(device_fill *f, uint64_t half_bytes, const moxie_executor *executor, moxie_error *error)
{
    for (f->at = 0; f->at < f->total; f->at += f->bytes) {
        void *half;
        MOX_TRY(mox_device_ring_begin(f->ring, &half, error));
        f->half = half;
        f->bytes = mox_min_u64(half_bytes, f->total - f->at);
        mox_parallel(executor, mox_ceil_div((int64_t)f->bytes, SLICE), bring_slice, f);
        if (f->failed != 0)
            return cannot_read(f, error);
        MOX_TRY(send_half(f, error));
    }
    return MOXIE_OK;
}

static moxie_status fill_device(moxie_layer *layer, const mox_given_records *given, const moxie_executor *executor,
                                moxie_error *error)
{
    mox_device_ring ring;
    device_fill f = { .layer = layer, .given = given, .ring = &ring };
    f.routed = layer->fetched ? 0 : (uint64_t)layer->slots * layer->record_bytes;
    f.total = f.routed + (layer->shared_record != NULL ? layer->shared_bytes : 0);
    const uint64_t half_bytes = mox_min_u64(HALF, f.total), start = mox_clock_now();
    if (f.total == 0)
        return MOXIE_OK;
    MOX_TRY(mox_device_ring_open(&ring, &layer->device, half_bytes, 1, error));
    const uint64_t opened = mox_clock_now();
    const moxie_status status = mox_device_ring_close(&ring, fill_slots(&f, half_bytes, executor, error), error);
    mox_log(MOXIE_LOG_INFO,
            "%.1f MB of packed records went to the device in %.2f ms by %d workers; %.1f MB of pinned "
            "memory took %.2f ms before",
            (double)f.total * 1e-6, (double)(mox_clock_now() - opened) * 1e-6, (int)executor->workers,
            (double)half_bytes * 2e-6, (double)(opened - start) * 1e-6);
    return status;
}

static moxie_status fill(moxie_layer *layer, const mox_given_records *given, const moxie_executor *executor,
                         moxie_error *error)
{
    MOX_TRY(mox_layer_read_numbers(layer, &given->weights, error));
    if (layer->layouts[MOX_SHARED_EXPERT] != NULL)
        MOX_TRY(mox_layer_read_shared_numbers(layer, &given->weights, error));
    if (!mox_device_is_host(&layer->device))
        MOX_TRY(fill_device(layer, given, executor, error));
    return mox_layer_arrays_refresh(layer, error);
}

moxie_status mox_layer_open_given(const moxie_layer_config *config, const moxie_options *options,
                                  const mox_given_records *given, moxie_layer **out, moxie_error *error)
{
    moxie_layer *layer = NULL;
    moxie_options read;
    MOX_TRY(mox_options_read(options, &read, error));
    MOX_TRY(mox_layer_create(config, options, given, &layer, error));
    const moxie_status status = fill(layer, given, read.executor, error);
    if (status != MOXIE_OK) {
        mox_layer_destroy(layer);
        return status;
    }
    layer->prepared = true;
    *out = layer;
    return MOXIE_OK;
}
