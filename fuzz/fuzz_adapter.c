/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_adapter.c - the directory of a LoRA adapter: adapter_config.json up to the first line end, then
 * adapter_model.safetensors; read for layer 0 of a layer of fixed sizes.
 *
 * Promise: factors come in pairs, and every byte of a factor can be read.
 */
#include "fuzz_scratch.h"

#include <stdlib.h>
#include <string.h>

#include "ckpt/adapter/adapter_files.h"
#include "format/format.h"

/* The factor's last element is in memory. */
static void touch(const moxie_tensor *t)
{
    int64_t last = 0, step = 1;
    char copy[8];
    FUZZ_CHECK(t->rank == 2 || t->rank == 3);
    for (int32_t i = t->rank - 1; i >= 0; i--) {
        const int64_t stride = t->strides[0] == 0 && t->strides[t->rank - 1] == 0 ? step : t->strides[i];
        FUZZ_CHECK(t->shape[i] > 0);
        last += (t->shape[i] - 1) * stride;
        step *= t->shape[i];
    }
    const int64_t bytes = mox_dtype_bytes(t->dtype);
    memcpy(copy, (const char *)t->data + last * bytes, (size_t)bytes);
}

static void check(const moxie_lora *lora)
{
    const moxie_tensor *const pairs[3][2] = { { &lora->gate_a, &lora->gate_b },
                                              { &lora->up_a, &lora->up_b },
                                              { &lora->down_a, &lora->down_b } };
    for (int i = 0; i < 3; i++) {
        FUZZ_CHECK(!pairs[i][0]->data == !pairs[i][1]->data);
        for (int m = 0; m < 2 && pairs[i][0]->data; m++)
            touch(pairs[i][m]);
    }
}

void mox_fuzz_adapter(const uint8_t *data, uint64_t size)
{
    const uint8_t *end = size > 0 ? memchr(data, '\n', (size_t)size) : NULL;
    const uint64_t config_bytes = end ? (uint64_t)(end - data) : size, rest = end ? size - config_bytes - 1 : 0;
    moxie_layer_config config = MOXIE_LAYER_CONFIG_INIT;
    moxie_adapter_files *files = NULL;
    moxie_lora lora = MOXIE_LORA_INIT;
    moxie_error error = { 0 };
    config.experts = 2;
    config.hidden = 4;
    config.intermediate = 3;
    config.activation.kind = MOXIE_ACT_SILU;
    fuzz_write("adapter_config.json", data, config_bytes);
    fuzz_write("adapter_model.safetensors", data + size - rest, rest);
    moxie_status status = mox_adapter_files_open(fuzz_scratch(), &files, &error);
    if (status == MOXIE_OK)
        status = mox_adapter_files_load(files, &config, false, 0, &lora, &error);
    FUZZ_CHECK(status == MOXIE_OK || error.text[0]);
    if (status == MOXIE_OK)
        check(&lora);
    mox_adapter_files_close(files);
}
