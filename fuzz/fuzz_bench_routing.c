/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_bench_routing.c - the file of `moxie bench --routing`, as text and as safetensors.
 *
 * Promise: each token has K ids, and an id is an expert of the layer or -1.
 */
#include "fuzz_scratch.h"

#include <string.h>

#include "bench.h"

static void check_file(const char *name)
{
    enum { EXPERTS = 7, TOP_K = 3 };
    moxie_error error = { 0 };
    bench_routing routing = { .name = fuzz_path(name), .experts = EXPERTS, .top_k = TOP_K };
    const moxie_status status = bench_routing_read(&routing, &error);
    FUZZ_CHECK(status == MOXIE_OK || error.text[0]);
    if (status == MOXIE_OK) {
        FUZZ_CHECK(routing.file_tokens > 0 && routing.file_ids);
        const size_t count = (size_t)(routing.file_tokens * TOP_K);
        for (size_t i = 0; i < count; i++)
            FUZZ_CHECK(routing.file_ids[i] >= -1 && routing.file_ids[i] < EXPERTS);
        float *copy = malloc(count * sizeof *copy); /* copying lets the sanitizer check every byte */
        FUZZ_CHECK(copy);
        if (routing.file_weights)
            memcpy(copy, routing.file_weights, count * sizeof *copy);
        free(copy);
    }
    bench_routing_free(&routing);
}

void mox_fuzz_bench_routing(const uint8_t *data, uint64_t size)
{
    fuzz_write("routing.txt", data, size);
    check_file("routing.txt");
    fuzz_write("routing.safetensors", data, size);
    check_file("routing.safetensors");
}
