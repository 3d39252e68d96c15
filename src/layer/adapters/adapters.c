/* SPDX-License-Identifier: Apache-2.0
 *
 * adapters.c - the table of a layer's adapters (adapters.h).
 */
#include "layer/adapters/adapters.h"

static bool on_host(const moxie_adapters *adapters)
{
    return mox_device_is_host(&adapters->layer->device);
}

static void discard(const moxie_adapters *adapters, mox_adapter *adapter)
{
    if (on_host(adapters))
        mox_adapter_free(adapter);
    else
        mox_adapter_release(adapters->layer, adapter);
}

moxie_status mox_adapters_create(const moxie_layer *layer, int32_t count, moxie_adapters **out, moxie_error *error)
{
    MOX_FAIL_IF(count < 1 || count > MOXIE_MAX_ADAPTERS, MOXIE_ERR_ARGUMENT, error,
                "room for %d adapters was asked for; 1 to %d are possible", (int)count, MOXIE_MAX_ADAPTERS);
    MOX_FAIL_IF(layer->tp_cut == MOX_TP_SUMS, MOXIE_ERR_UNSUPPORTED, error,
                "the layer was created in fast mode, where each of %d tensor parallel ranks has a part of the "
                "activations, and adapters need all of them: create it in exact mode",
                (int)layer->config.tp_size);
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
    const moxie_status status = on_host(adapters) ? MOXIE_OK : mox_adapters_create_table(adapters, error);
    if (status != MOXIE_OK) {
        mox_adapters_destroy(adapters);
        return status;
    }
    *out = adapters;
    return MOXIE_OK;
}

void mox_adapters_destroy(moxie_adapters *adapters)
{
    if (adapters == NULL)
        return;
    for (int32_t i = 0; adapters->items != NULL && i < adapters->count; i++)
        discard(adapters, adapters->items[i]);
    if (adapters->table != NULL)
        mox_device_release(&adapters->layer->device, adapters->table);
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

static moxie_status write_table(const moxie_adapters *adapters, int32_t number, const mox_adapter *adapter,
                                moxie_error *error)
{
    return on_host(adapters) ? MOXIE_OK : mox_adapters_write_table(adapters, number, adapter, error);
}

/* `adapter` may be NULL. On failure the old one stays. */
static moxie_status replace(moxie_adapters *adapters, int32_t number, mox_adapter *adapter, moxie_error *error)
{
    const moxie_status status = write_table(adapters, number, adapter, error);
    if (status != MOXIE_OK) {
        (void)write_table(adapters, number, adapters->items[number], NULL); /* the copy may have been done */
        return status;
    }
    discard(adapters, adapters->items[number]);
    adapters->items[number] = adapter;
    adapters->factors[number] = adapter != NULL ? &adapter->factors : NULL;
    return MOXIE_OK;
}

moxie_status mox_adapters_set(moxie_adapters *adapters, int32_t number, const moxie_lora *lora, moxie_error *error)
{
    mox_adapter *adapter = NULL;
    MOX_TRY(check_number(adapters, number, error));
    MOX_TRY(mox_adapter_make(adapters->layer, lora, &adapter, error));
    moxie_status status = on_host(adapters) ? MOXIE_OK : mox_adapter_upload(adapters->layer, adapter, error);
    if (status != MOXIE_OK) {
        mox_adapter_free(adapter);
        return status;
    }
    status = replace(adapters, number, adapter, error);
    if (status != MOXIE_OK)
        discard(adapters, adapter);
    return status;
}

moxie_status mox_adapters_remove(moxie_adapters *adapters, int32_t number, moxie_error *error)
{
    MOX_TRY(check_number(adapters, number, error));
    return replace(adapters, number, NULL, error);
}

moxie_status mox_adapters_enable(moxie_adapters *adapters, int32_t number, bool enabled, moxie_error *error)
{
    MOX_TRY(check_number(adapters, number, error));
    mox_adapter *const adapter = adapters->items[number];
    MOX_FAIL_IF(adapter == NULL, MOXIE_ERR_ARGUMENT, error, "adapter %d is not there: set it with moxie_adapters_set",
                (int)number);
    const bool before = adapter->enabled;
    adapter->enabled = enabled;
    const moxie_status status = write_table(adapters, number, adapter, error);
    if (status != MOXIE_OK) {
        adapter->enabled = before;
        (void)write_table(adapters, number, adapter, NULL);
    }
    return status;
}

const mox_lora_adapter *const *mox_adapters_for_kernels(const moxie_adapters *adapters)
{
    return adapters->table != NULL ? adapters->table : adapters->factors;
}

const mox_adapter *mox_adapters_at(const moxie_adapters *adapters, int32_t number)
{
    return number >= 0 && number < adapters->count ? adapters->items[number] : NULL;
}
