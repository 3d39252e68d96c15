/* SPDX-License-Identifier: Apache-2.0
 *
 * device_support.h - shared by the tests that need a GPU: finds the GPU, allocates device memory between guards, builds
 * a layer in it, copies a run's arguments to it.
 *
 *     guarded:  | 4 KiB of 0xa5 | the block, all 0xff (NaN to floats, -1 to ids) | 4 KiB of 0xa5 |
 */
#ifndef DEVICE_SUPPORT_H
#define DEVICE_SUPPORT_H

#include <string.h>

#include <moxie/moxie_cuda.h>

#include "cuda/cuda_loader.h"
#include "test_layer.h"

#define DEVICE_GUARD 4096

/* The launch table; NULL, after printing why the test is skipped, when there is no GPU. */
static inline const mox_cuda_table *device_or_skip(void)
{
    moxie_cuda_info info = MOXIE_CUDA_INFO_INIT;
    const mox_cuda_table *table = NULL;
    moxie_error error = { 0 };
    assert_ok(moxie_cuda_get_info(&info, &error), &error);
    if (info.missing[0] == '\0' && mox_cuda_open(&table, &error) == MOXIE_OK && table->use(0, &error) == MOXIE_OK)
        return table;
    printf("skipped: %s\n", info.missing[0] != '\0' ? info.missing : error.text);
    return NULL;
}

typedef struct device_guards {
    const mox_cuda_table *table;
    struct {
        char *block;
        uint64_t bytes;
    } blocks[64];
    int count;
    int broken;
} device_guards;

static inline void *device_guard_allocate(void *self, uint64_t bytes)
{
    device_guards *g = self;
    void *block = NULL;
    bytes = (bytes + 255) / 256 * 256;
    if (g->table->allocate(bytes + 2 * DEVICE_GUARD, &block, NULL) != MOXIE_OK)
        return NULL;
    g->table->fill(block, 0xa5, bytes + 2 * DEVICE_GUARD, NULL, NULL);
    g->table->fill((char *)block + DEVICE_GUARD, 0xff, bytes, NULL, NULL);
    g->table->stream_wait(NULL, NULL);
    for (int i = 0; i < 64; i++)
        if (g->blocks[i].block == NULL) {
            g->blocks[i].block = block;
            g->blocks[i].bytes = bytes;
            return (char *)block + DEVICE_GUARD;
        }
    return NULL;
}

static inline void device_guard_release(void *self, void *memory)
{
    static uint8_t edge[DEVICE_GUARD];
    device_guards *g = self;
    char *block = (char *)memory - DEVICE_GUARD;
    for (int i = 0; i < 64; i++) {
        if (g->blocks[i].block != block)
            continue;
        for (int side = 0; side < 2; side++) {
            const char *from = block + (side == 0 ? 0 : DEVICE_GUARD + g->blocks[i].bytes);
            g->table->copy(edge, from, DEVICE_GUARD, NULL, NULL);
            g->table->stream_wait(NULL, NULL);
            for (int b = 0; b < DEVICE_GUARD; b++)
                g->broken += edge[b] != 0xa5;
        }
        g->blocks[i].block = NULL;
    }
    g->table->release(block);
}

static inline moxie_cuda_allocator device_guarded(device_guards *guards)
{
    return (moxie_cuda_allocator) { guards, device_guard_allocate, device_guard_release };
}

/* ---- a layer on the device ----------------------------------------------------------------------------- */

typedef struct device_case {
    const mox_cuda_table *table;
    test_layer layer;
} device_case;

/* MOXIE_TEST_DEVICE: another device than 0, or its kernels for every card ("0:sm80"). */
static inline moxie_options device_options(int64_t max_tokens)
{
    moxie_options options = MOXIE_OPTIONS_INIT;
    options.backend = MOXIE_BACKEND_CUDA;
    options.device = getenv("MOXIE_TEST_DEVICE");
    options.max_tokens = max_tokens > 0 ? max_tokens : 1;
    return options;
}

/* A random layer without a routing callback; seeds are tried from `seed` on. */
static inline void device_case_make(device_case *c, const mox_cuda_table *table, uint64_t seed,
                                    const test_layer_limits *limits)
{
    memset(c, 0, sizeof *c);
    c->table = table;
    for (;; seed += 1000003) {
        test_rng rng = { seed };
        test_layer_make(&c->layer, &rng, limits);
        if (c->layer.config.routing.select != MOXIE_SELECT_CUSTOM)
            break;
        test_layer_free(&c->layer);
    }
    moxie_options options = device_options(c->layer.args.tokens);
    /* FP8 tensor-core kernels too: all tested properties hold for them. They would take the layers of blocks. */
    options.mode = limits->blocks ? MOXIE_MODE_EXACT : MOXIE_MODE_FAST;
    test_layer_plan(&c->layer, &options);
}

static inline void device_case_close(device_case *c)
{
    test_layer_free(&c->layer);
}

/* ---- arguments on the device ---------------------------------------------------------------------------- */

typedef struct device_args {
    moxie_run_args args;
    void *owned[8];
    int count;
    uint64_t output_bytes;
} device_args;

static inline void *device_copy_of(const mox_cuda_table *table, device_args *d, const void *host, uint64_t bytes)
{
    void *memory = NULL;
    moxie_error error;
    if (host == NULL)
        return NULL;
    assert_ok(table->allocate(bytes, &memory, &error), &error);
    assert_ok(table->copy(memory, host, bytes, NULL, &error), &error);
    assert_ok(table->stream_wait(NULL, &error), &error);
    return d->owned[d->count++] = memory;
}

static inline void device_args_make(const device_case *c, device_args *d)
{
    const moxie_layer_config *config = &c->layer.config;
    const moxie_run_args *a = &c->layer.args;
    const uint64_t t = (uint64_t)a->tokens, element = (uint64_t)mox_dtype_bytes(config->dtype);
    const uint64_t choices = t * (uint64_t)config->top_k, logit = a->logits_dtype != MOXIE_DTYPE_NONE
                                                                      ? (uint64_t)mox_dtype_bytes(a->logits_dtype)
                                                                      : sizeof(float);
    *d = (device_args) { .args = *a, .output_bytes = t * (uint64_t)config->hidden * element };
    d->args.hidden = device_copy_of(c->table, d, a->hidden, d->output_bytes);
    d->args.router_hidden = device_copy_of(c->table, d, a->router_hidden, t * (uint64_t)config->router_width * element);
    d->args.logits = device_copy_of(c->table, d, a->logits, t * (uint64_t)config->experts * logit);
    d->args.token_ids = device_copy_of(c->table, d, a->token_ids, t * sizeof(int32_t));
    d->args.ids = device_copy_of(c->table, d, a->ids, choices * sizeof(int32_t));
    d->args.weights = device_copy_of(c->table, d, a->weights, choices * sizeof(float));
    d->args.output = device_copy_of(c->table, d, a->output, d->output_bytes);
    d->args.workspace = device_copy_of(c->table, d, a->workspace, a->workspace_bytes);
    d->args.ids_out = NULL;
    d->args.weights_out = NULL;
    d->args.logits_out = NULL;
}

static inline void device_args_free(const mox_cuda_table *table, device_args *d)
{
    while (d->count > 0)
        table->release(d->owned[--d->count]);
}

/* Waits for `stream` and copies the device's output to `to`. */
static inline void device_output(const mox_cuda_table *table, const device_args *d, void *stream, void *to)
{
    moxie_error error;
    assert_ok(table->copy(to, d->args.output, d->output_bytes, stream, &error), &error);
    assert_ok(table->stream_wait(stream, &error), &error);
}

#endif
