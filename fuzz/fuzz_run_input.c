/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_run_input.c - the file of `moxie run --input`, for a layer of fixed sizes.
 *
 * Promise: every loaded array has exactly the size that follows from the layer and the number of tokens.
 */
#include "fuzz_scratch.h"

#include <string.h>

#include "cli.h"

/* Copies every byte, so that the sanitizer reports bytes outside the array. */
static void touch(const void *data, int64_t count, size_t width)
{
    const size_t bytes = (size_t)count * width;
    void *copy = malloc(bytes + 1);
    FUZZ_CHECK(copy);
    if (data)
        memcpy(copy, data, bytes);
    free(copy);
}

void mox_fuzz_run_input(const uint8_t *data, uint64_t size)
{
    moxie_layer_config config = MOXIE_LAYER_CONFIG_INIT;
    moxie_error error = { 0 };
    cli_input input = { 0 };
    int64_t tokens = 0;
    fuzz_write("input.safetensors", data, size);
    const char *path = fuzz_path("input.safetensors");
    config.hidden = 4;
    config.router_width = 3;
    config.experts = 5;
    config.top_k = 2;
    moxie_status status = cli_input_peek(path, &tokens, &config.dtype, &error);
    if (status == MOXIE_OK)
        status = cli_input_load(path, &config, &input, &error);
    FUZZ_CHECK(status == MOXIE_OK || error.text[0]);
    if (status == MOXIE_OK) {
        FUZZ_CHECK(input.tokens == tokens && tokens >= 0 && input.hidden && !input.ids == !input.weights);
        const size_t width = config.dtype == MOXIE_F32 ? 4 : 2;
        touch(input.hidden, tokens * 4, width);
        touch(input.router_hidden, tokens * 3, width);
        touch(input.logits, tokens * 5, input.logits_dtype == MOXIE_F32 ? 4 : 2);
        touch(input.ids, tokens * 2, 4);
        touch(input.weights, tokens * 2, 4);
        touch(input.token_ids, tokens, 4);
    }
    cli_input_free(&input);
}
