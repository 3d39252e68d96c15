/* SPDX-License-Identifier: Apache-2.0
 *
 * api_adapters.c - the calls of moxie_adapters.h. Each checks its arguments; src/layer/adapters does the work.
 */
#include <moxie/moxie_adapters.h>

#include "api/api_need.h"
#include "layer/adapters/adapters.h"

moxie_status moxie_adapters_create(const moxie_layer *layer, int32_t count, moxie_adapters **out, moxie_error *error)
{
    NEED(layer);
    NEED(out);
    return mox_adapters_create(layer, count, out, error);
}

void moxie_adapters_destroy(moxie_adapters *adapters)
{
    mox_adapters_destroy(adapters);
}

moxie_status moxie_adapters_set(moxie_adapters *adapters, int32_t number, const moxie_lora *lora, moxie_error *error)
{
    NEED(adapters);
    NEED(lora);
    return mox_adapters_set(adapters, number, lora, error);
}

moxie_status moxie_adapters_remove(moxie_adapters *adapters, int32_t number, moxie_error *error)
{
    NEED(adapters);
    return mox_adapters_remove(adapters, number, error);
}

moxie_status moxie_adapters_enable(moxie_adapters *adapters, int32_t number, int32_t enabled, moxie_error *error)
{
    NEED(adapters);
    return mox_adapters_enable(adapters, number, enabled != 0, error);
}

int32_t moxie_adapters_rank(const moxie_adapters *adapters, int32_t number)
{
    const mox_adapter *adapter = adapters != NULL ? mox_adapters_at(adapters, number) : NULL;
    return adapter != NULL ? adapter->rank : 0;
}

uint64_t moxie_adapters_bytes(const moxie_adapters *adapters)
{
    uint64_t bytes = 0;
    for (int32_t i = 0; adapters != NULL && i < adapters->count; i++)
        bytes += adapters->items[i] != NULL ? adapters->items[i]->bytes : 0;
    return bytes;
}
