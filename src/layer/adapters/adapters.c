/* SPDX-License-Identifier: Apache-2.0
 *
 * adapters.c - the table of a layer's adapters (adapters.h).
 */
#include "layer/adapters/adapters.h"

moxie_status mox_adapters_create(const moxie_layer *layer, int32_t count, moxie_adapters **out, moxie_error *error)
{
    MOX_FAIL_IF(count < 1 || count > MOXIE_MAX_ADAPTERS, MOXIE_ERR_ARGUMENT, error,
                "room for %d adapters was asked for; 1 to %d are possible", (int)count, MOXIE_MAX_ADAPTERS);
    MOX_FAIL_IF(!mox_device_is_host(&layer->device), MOXIE_ERR_UNSUPPORTED, error,
                "the layer's records are in device memory, and adapters run on back ends ref and cpu only: create the "
                "layer for one of these");
    MOX_FAIL_IF(layer->routed_shape.cut, MOXIE_ERR_UNSUPPORTED, error,
                "the layer holds part %d of %d of each expert's rows, and adapters are for whole experts: use "
                "tp_size 1",
                (int)layer->config.tp_rank, (int)layer->config.tp_size);
    moxie_adapters *adapters = mox_calloc(1, sizeof *adapters);
    if (adapters != NULL) {
        adapters->layer = layer;
        adapters->count = count;
        adapters->items = mox_calloc((uint64_t)count, sizeof *adapters->items);
        adapters->factors = mox_calloc((uint64_t)count, sizeof *adapters->factors);
    }
    if (adapters == NULL || adapters->items == NULL || adapters->factors == NULL) {
        mox_adapters_destroy(adapters);
        return mox_fail(MOXIE_ERR_MEMORY, error, "no memory for a table of %d adapters", (int)count);
    }
    *out = adapters;
    return MOXIE_OK;
}

void mox_adapters_destroy(moxie_adapters *adapters)
{
    if (adapters == NULL)
        return;
    for (int32_t i = 0; adapters->items != NULL && i < adapters->count; i++)
        mox_adapter_free(adapters->items[i]);
    mox_free(adapters->items);
    mox_free(adapters->factors);
    mox_free(adapters);
}

static moxie_status check_number(const moxie_adapters *adapters, int32_t number, moxie_error *error)
{
    MOX_FAIL_IF(number < 0 || number >= adapters->count, MOXIE_ERR_ARGUMENT, error,
                "adapter %d: there is room for adapters 0 to %d", (int)number, (int)adapters->count - 1);
    return MOXIE_OK;
}

static void replace(moxie_adapters *adapters, int32_t number, mox_adapter *adapter)
{
    mox_adapter_free(adapters->items[number]);
    adapters->items[number] = adapter;
    adapters->factors[number] = adapter != NULL ? &adapter->factors : NULL;
}

moxie_status mox_adapters_set(moxie_adapters *adapters, int32_t number, const moxie_lora *lora, moxie_error *error)
{
    mox_adapter *adapter = NULL;
    MOX_TRY(check_number(adapters, number, error));
    MOX_TRY(mox_adapter_make(adapters->layer, lora, &adapter, error));
    replace(adapters, number, adapter);
    return MOXIE_OK;
}

moxie_status mox_adapters_remove(moxie_adapters *adapters, int32_t number, moxie_error *error)
{
    MOX_TRY(check_number(adapters, number, error));
    replace(adapters, number, NULL);
    return MOXIE_OK;
}

moxie_status mox_adapters_enable(moxie_adapters *adapters, int32_t number, bool enabled, moxie_error *error)
{
    MOX_TRY(check_number(adapters, number, error));
    MOX_FAIL_IF(adapters->items[number] == NULL, MOXIE_ERR_ARGUMENT, error,
                "adapter %d is not there: set it with moxie_adapters_set", (int)number);
    adapters->items[number]->enabled = enabled;
    return MOXIE_OK;
}

const mox_adapter *mox_adapters_at(const moxie_adapters *adapters, int32_t number)
{
    return number >= 0 && number < adapters->count ? adapters->items[number] : NULL;
}
