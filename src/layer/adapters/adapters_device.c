/* SPDX-License-Identifier: Apache-2.0
 *
 * adapters_device.c - adapters of a layer whose records are in device memory (adapters.h). Factors are packed on the
 * host and copied as one block. Calls wait for their copies.
 *
 *     block   | mox_lora_adapter, with pointers to the device | factors |
 */
#include "base/sizes.h"
#include "layer/adapters/adapters.h"

enum { HEAD = (sizeof(mox_lora_adapter) + MOX_DEVICE_ALIGN - 1) / MOX_DEVICE_ALIGN * MOX_DEVICE_ALIGN };

moxie_status mox_adapters_create_table(moxie_adapters *adapters, moxie_error *error)
{
    const mox_device *device = &adapters->layer->device;
    const uint64_t bytes = (uint64_t)adapters->count * sizeof *adapters->table;
    void *table;
    MOX_TRY(mox_device_allocate(device, bytes, "a table of adapters", &table, error));
    adapters->table = table;
    return mox_device_copy(device, table, adapters->factors, bytes, error);
}

/* The factors where they lie `from`, with pointers to where they will lie `to`. */
static mox_lora_adapter moved(const mox_lora_adapter *factors, const void *from, const void *to)
{
    mox_lora_adapter out = *factors;
    for (int m = 0; m < MOX_LORA_MATRICES; m++) {
        mox_lora_matrix *matrix = &out.matrix[m];
        if (matrix->rank == 0)
            continue;
        matrix->a = (const char *)to + ((const char *)matrix->a - (const char *)from);
        matrix->b = (const char *)to + ((const char *)matrix->b - (const char *)from);
    }
    return out;
}

moxie_status mox_adapter_upload(const moxie_layer *layer, mox_adapter *adapter, moxie_error *error)
{
    const mox_device *device = &layer->device;
    void *block;
    MOX_TRY(mox_device_allocate(device, HEAD + adapter->bytes, "an adapter", &block, error));
    const mox_lora_adapter factors = moved(&adapter->factors, adapter->block, (char *)block + HEAD);
    moxie_status status = mox_device_copy(device, block, &factors, sizeof factors, error);
    if (status == MOXIE_OK)
        status = mox_device_copy(device, (char *)block + HEAD, adapter->block, adapter->bytes, error);
    if (status != MOXIE_OK) {
        mox_device_release(device, block);
        return status;
    }
    mox_free_pages(adapter->block);
    adapter->block = block;
    adapter->factors = factors;
    return MOXIE_OK;
}

moxie_status mox_adapters_write_table(const moxie_adapters *adapters, int32_t number, const mox_adapter *adapter,
                                      moxie_error *error)
{
    const void *factors = adapter != NULL && adapter->enabled ? adapter->block : NULL;
    return mox_device_copy(&adapters->layer->device, adapters->table + number, &factors, sizeof factors, error);
}

moxie_status mox_adapter_fetch(const moxie_layer *layer, const mox_adapter *adapter, mox_adapter **out,
                               moxie_error *error)
{
    const char *from = (const char *)adapter->block + HEAD;
    mox_adapter *copy = mox_calloc(1, sizeof *copy);
    void *block = copy != NULL ? mox_alloc_pages(adapter->bytes) : NULL;
    if (block == NULL) {
        mox_free(copy);
        return mox_fail(MOXIE_ERR_MEMORY, error, "no memory for a copy of an adapter of %llu bytes",
                        (unsigned long long)adapter->bytes);
    }
    *copy = *adapter;
    copy->block = block;
    copy->factors = moved(&adapter->factors, from, block);
    const moxie_status status = mox_device_copy(&layer->device, block, from, adapter->bytes, error);
    if (status != MOXIE_OK) {
        mox_adapter_free(copy);
        return status;
    }
    *out = copy;
    return MOXIE_OK;
}

void mox_adapter_release(const moxie_layer *layer, mox_adapter *adapter)
{
    if (adapter == NULL)
        return;
    mox_device_release(&layer->device, adapter->block);
    mox_free(adapter);
}
