/* SPDX-License-Identifier: Apache-2.0
 *
 * layer_given.c - makes a layer of records that were packed before (layer_given.h).
 */
#include "layer/weights/layer_given.h"

#include "base/executor.h"
#include "layer/weights/device_fill.h"
#include "layer/weights/layer_arrays.h"
#include "layer/weights/layer_create.h"
#include "layer/weights/layer_prepare.h"
#include "layer/weights/pinned_ring.h"

static moxie_status fill_device(moxie_layer *layer, const mox_given_records *given, const moxie_executor *executor,
                                moxie_error *error)
{
    MOX_TRY(mox_ring_pool_hold(&layer->device, &layer->rings, error));
    return mox_device_fill(layer, given, executor, error);
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
