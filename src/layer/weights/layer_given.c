/* SPDX-License-Identifier: Apache-2.0
 *
 * layer_given.c - makes a layer of records that were packed before (layer_given.h).
 */
#include "layer/weights/layer_given.h"

#include <string.h>

#include "base/executor.h"
#include "base/sizes.h"
#include "layer/weights/device_ring.h"
#include "layer/weights/layer_arrays.h"
#include "layer/weights/layer_create.h"
#include "layer/weights/layer_prepare.h"

/* Records of one half of the ring: enough that copies overlap, little pinned memory. */
#define RECORDS_PER_HALF 4

/* One batch of records for the ring. */
typedef struct fill_batch {
    void *buffers[RECORDS_PER_HALF];
    const void *from[RECORDS_PER_HALF];
    uint64_t bytes;
} fill_batch;

static void copy_record(void *context, int64_t task, int32_t worker)
{
    (void)worker;
    const fill_batch *batch = context;
    memcpy(batch->buffers[task], batch->from[task], batch->bytes);
}

/* The pages of mapped records are read by the executor's workers, while the other half of the ring is copied. */
static moxie_status fill_slots(moxie_layer *layer, const mox_given_records *given, mox_device_ring *ring,
                               const moxie_executor *executor, moxie_error *error)
{
    fill_batch batch = { .bytes = layer->record_bytes };
    for (int64_t done = 0; done < layer->slots; done += RECORDS_PER_HALF) {
        const int64_t count = mox_min_i64(RECORDS_PER_HALF, layer->slots - done);
        MOX_TRY(mox_device_ring_begin(ring, batch.buffers, error));
        for (int64_t i = 0; i < count; i++)
            batch.from[i] = given->routed[layer->expert_of[done + i]];
        mox_parallel(executor, count, copy_record, &batch);
        MOX_TRY(mox_device_ring_send(ring, layer->records + done, count, error));
    }
    return MOXIE_OK;
}

static moxie_status fill_device(moxie_layer *layer, const mox_given_records *given, const moxie_executor *executor,
                                moxie_error *error)
{
    mox_device_ring ring;
    if (layer->shared_record != NULL)
        MOX_TRY(mox_device_copy(&layer->device, layer->shared_record, given->shared, layer->shared_bytes, error));
    if (layer->slots == 0 || layer->fetched)
        return MOXIE_OK;
    MOX_TRY(mox_device_ring_open(&ring, &layer->device, layer->record_bytes, RECORDS_PER_HALF, error));
    const moxie_status status = fill_slots(layer, given, &ring, executor, error);
    return mox_device_ring_close(&ring, status, error);
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
    MOX_FAIL_IF(read.spare_slots != 0, MOXIE_ERR_UNSUPPORTED, error,
                "options.spare_slots is %d: a layer of an expert file has no memory for experts that come from other "
                "ranks; prepare the layer from its checkpoint",
                (int)read.spare_slots);
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
