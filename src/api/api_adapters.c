/* SPDX-License-Identifier: Apache-2.0
 *
 * api_adapters.c - the calls of moxie_adapters.h. Each checks its arguments; src/layer/adapters does the work, of files
 * src/ckpt/adapter.
 */
#include <moxie/moxie_adapters.h>

#include "api/api_need.h"
#include "ckpt/adapter/adapter_files.h"
#include "ckpt/model/model.h"
#include "ckpt/model/model_state.h"
#include "layer/adapters/adapters.h"
#include "layer/config/struct_size.h"

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

/* ---- files ---------------------------------------------------------------------------------------------- */

moxie_status moxie_adapter_files_open(const char *dir, moxie_adapter_files **out, moxie_error *error)
{
    NEED(dir);
    NEED(out);
    return mox_adapter_files_open(dir, out, error);
}

void moxie_adapter_files_close(moxie_adapter_files *files)
{
    mox_adapter_files_close(files);
}

moxie_status moxie_adapter_files_load(moxie_adapter_files *files, const moxie_model *model,
                                      const moxie_model_layer *loaded, int64_t layer, moxie_lora *lora,
                                      moxie_error *error)
{
    moxie_lora known;
    NEED(files);
    NEED(model);
    NEED(loaded);
    NEED(lora);
    MOX_TRY(mox_struct_check(lora, MOX_STRUCT(moxie_lora), error));
    MOX_TRY(mox_adapter_files_load(files, mox_model_layer_config(loaded), model->family->interleaved, layer, &known,
                                   error));
    mox_struct_write(&known, lora, MOX_STRUCT(moxie_lora));
    return MOXIE_OK;
}
