/* SPDX-License-Identifier: Apache-2.0
 *
 * main_loop_layer.c - buffers and launches of one layer for the harness of the Hopper main loop (main_loop.h).
 */
#include "main_loop.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void loop_ok(int error, const char *what)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString((cudaError_t)error));
    exit(1);
}

void *loop_alloc(uint64_t bytes)
{
    void *device = NULL;
    loop_ok((int)cudaMalloc(&device, bytes > 0 ? bytes : 16), "cudaMalloc");
    return device;
}

void loop_free(void *device)
{
    loop_ok((int)cudaFree(device), "cudaFree");
}

void loop_up(void *device, const void *host, uint64_t bytes)
{
    loop_ok((int)cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice), "copy to the device");
}

void loop_down(void *host, const void *device, uint64_t bytes)
{
    loop_ok((int)cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost), "copy from the device");
}

void loop_poison(void *device, uint64_t bytes)
{
    loop_ok((int)cudaMemset(device, 0xff, bytes), "cudaMemset");
}

static void *keep(loop_layer *layer, uint64_t bytes)
{
    void *device = loop_alloc(bytes);
    loop_poison(device, bytes);
    layer->memory[layer->memories++] = device;
    return device;
}

static int64_t up_to(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

static int64_t element_bytes(const loop_layer *layer)
{
    return layer->element == MOX_SM90_E4M3 ? 1 : 2;
}

/* Rows of the operands of both products, padded so that every row begins at a multiple of 16 bytes. */
static int64_t stride_of(const loop_layer *layer, int64_t cols)
{
    return up_to(cols * element_bytes(layer), 128) / element_bytes(layer);
}

static void set_products(loop_layer *layer)
{
    const int64_t bytes = element_bytes(layer), first = stride_of(layer, layer->hidden),
                  second = stride_of(layer, layer->intermediate);
    mox_sm90_args *one = &layer->gemm[0], *two = &layer->gemm[1];
    *one = (mox_sm90_args) { .list = layer->list,
                             .a_stride = first * bytes,
                             .a_bytes = (int32_t)(layer->hidden * bytes),
                             .a_scale = layer->scales,
                             .a_scale_step = 1,
                             .a_scale_stride = first / 128,
                             .output = layer->element == MOX_SM90_E4M3  ? MOX_SM90_ACT_E4M3
                                       : layer->element == MOX_SM90_F16 ? MOX_SM90_ACT_F16
                                                                        : MOX_SM90_ACT_BF16,
                             .activation = { .kind = layer->gated ? MOXIE_ACT_SILU : MOXIE_ACT_SILU_NO_MUL },
                             .next_stride = second,
                             .wide_stride = up_to(layer->intermediate, 128),
                             .next_scale_stride = up_to(layer->intermediate, 128) / 128,
                             .gated = layer->gated };
    *two = (mox_sm90_args) { .list = layer->list,
                             .a_stride = second * bytes,
                             .a_bytes = (int32_t)(layer->intermediate * bytes),
                             .a_scale_step = 1,
                             .a_scale_stride = one->next_scale_stride,
                             .output = MOX_SM90_ROWS_F32,
                             .out_stride = layer->hidden,
                             .early_list = 1 };
}

void loop_layer_open(loop_layer *layer, const loop_sizes *s)
{
    *layer = (loop_layer) { .element = s->element,
                            .hidden = s->hidden,
                            .intermediate = s->intermediate,
                            .gated = s->gated,
                            .slots = s->slots,
                            .top_k = s->top_k,
                            .max_tokens = s->max_tokens,
                            .max_pairs = s->max_tokens * s->top_k,
                            .blocks = s->blocks,
                            .routings = s->routings };
    const uint64_t pairs = (uint64_t)layer->max_pairs, tokens = (uint64_t)s->max_tokens, r = (uint64_t)s->routings;
    const uint64_t h = (uint64_t)stride_of(layer, s->hidden), i = (uint64_t)up_to(s->intermediate, 128);
    layer->offsets = keep(layer, r * (uint64_t)(s->slots + 1) * 8);
    layer->pair_token = keep(layer, r * pairs * 8);
    layer->place = keep(layer, r * pairs * 4);
    layer->weight = keep(layer, pairs * 4);
    layer->hidden16 = keep(layer, tokens * h * 2);
    layer->codes = keep(layer, tokens * h);
    layer->scales = keep(layer, tokens * h / 128 * 4 + 4);
    layer->rows = keep(layer, pairs * (uint64_t)s->hidden * 4);
    const uint64_t rows = pairs + 7 * (pairs < (uint64_t)s->slots ? pairs : (uint64_t)s->slots);
    layer->tiles = keep(layer, rows * h * (uint64_t)element_bytes(layer));
    layer->tile_scales = keep(layer, rows * h / 128 * 4);
    layer->out = keep(layer, tokens * (uint64_t)s->hidden * 2);
    layer->list = keep(layer, sizeof(mox_sm90_list) + (uint64_t)(s->slots + 1) * sizeof(mox_sm90_entry));
    const int64_t flags = 2 * (s->blocks + 1) * MOX_SM90_GROUPS, columns = s->slots + layer->max_pairs / 8;
    layer->flags = flags;
    layer->words = keep(layer, (uint64_t)(flags + columns * (int64_t)(i / 128)) * 4);
    set_products(layer);
    layer->gemm[0].state = keep(layer, (uint64_t)s->blocks * MOX_SM90_MOST_COLUMNS * 512);
    layer->gemm[1].state = layer->gemm[0].state;
    layer->gemm[0].flags = layer->words;
    layer->gemm[1].flags = layer->words + flags / 2;
    layer->gemm[0].counts = layer->words + flags;
    layer->gemm[0].wide = keep(layer, pairs * i * 4);
    layer->gemm[0].next = keep(layer, rows * (uint64_t)layer->gemm[0].next_stride * (uint64_t)element_bytes(layer));
    layer->gemm[0].next_scale = keep(layer, rows * i / 128 * 4);
    layer->gemm[0].a = layer->element == MOX_SM90_E4M3 ? layer->codes : layer->hidden16;
    layer->gemm[1].a = layer->gemm[0].next;
    layer->gemm[1].a_scale = layer->gemm[0].next_scale;
    layer->gemm[1].out = layer->rows;
}

void loop_layer_close(loop_layer *layer)
{
    for (int i = 0; i < layer->memories; i++)
        loop_free(layer->memory[i]);
}

void loop_layer_route(loop_layer *layer, int r, const int32_t *ids, int64_t tokens)
{
    const int64_t choices = tokens * layer->top_k;
    int64_t *offsets = calloc((size_t)layer->slots + 2, 8), *token = calloc((size_t)choices + 1, 8), n = 0;
    int32_t *place = calloc((size_t)choices + 1, 4);
    float *weight = calloc((size_t)choices + 1, 4);
    for (int slot = 0; slot < layer->slots; slot++) {
        offsets[slot] = n;
        for (int64_t c = 0; c < choices; c++)
            if (ids[c] == slot) {
                token[n] = c / layer->top_k;
                place[c] = (int32_t)n++;
            }
    }
    offsets[layer->slots] = n;
    for (int64_t c = 0; c < choices; c++)
        weight[c] = 1.0f / (float)layer->top_k;
    loop_up(layer->offsets + (int64_t)r * (layer->slots + 1), offsets, (uint64_t)(layer->slots + 1) * 8);
    loop_up(layer->pair_token + r * layer->max_pairs, token, (uint64_t)choices * 8);
    loop_up(layer->place + r * layer->max_pairs, place, (uint64_t)choices * 4);
    loop_up(layer->weight, weight, (uint64_t)choices * 4);
    free(offsets), free(token), free(place), free(weight);
}

int32_t loop_most(const loop_layer *layer, int64_t tokens)
{
    static const int32_t widths[] = { 16, 32, 64, 128, 192, 256 };
    const int64_t mean = tokens * layer->top_k / layer->slots;
    const int32_t limit = layer->element == MOX_SM90_E4M3 ? 192 : 256;
    for (int i = 0; i < 6 && widths[i] < limit; i++)
        if (widths[i] >= 2 * mean || widths[i] >= tokens)
            return widths[i];
    return limit;
}

bool loop_is_tiled(const loop_layer *layer, int64_t tokens)
{
    return tokens * layer->top_k >= 8 * layer->slots;
}

static void gather_tokens(loop_layer *layer, int r, int64_t tokens, void *stream)
{
    const mox_sm90_args *gemm = &layer->gemm[0];
    const bool quantized = layer->element == MOX_SM90_E4M3;
    const int64_t pairs = tokens * layer->top_k;
    const mox_sm90_gather_args args = { .list = layer->list,
                                        .max_rows = pairs + 7 * (pairs < layer->slots ? pairs : layer->slots),
                                        .a = quantized ? layer->codes : layer->hidden16,
                                        .a_stride = gemm->a_stride,
                                        .a_bytes = gemm->a_bytes,
                                        .a_scale_step = 1,
                                        .chunks = gemm->chunks,
                                        .a_row = layer->pair_token + r * layer->max_pairs,
                                        .a_scale = quantized ? layer->scales : NULL,
                                        .a_scale_stride = gemm->a_scale_stride,
                                        .to = layer->tiles,
                                        .to_scale = layer->tile_scales };
    loop_ok(mox_sm90_launch_gather(&args, 1, stream), "gather");
}

void loop_layer_run(loop_layer *layer, int r, int steps, int32_t most, int64_t tokens, void *stream)
{
    const bool quantized = layer->element == MOX_SM90_E4M3;
    const int64_t pairs = tokens * layer->top_k, columns = (pairs < layer->slots ? pairs : layer->slots) + pairs / most;
    const int64_t groups = (layer->intermediate + 127) / 128;
    const mox_sm90_list_args list = { .offsets = layer->offsets + (int64_t)r * (layer->slots + 1),
                                      .slots = layer->slots,
                                      .most = most,
                                      .list = layer->list,
                                      .words = layer->words,
                                      .word_count = layer->flags + columns * groups };
    if (steps & LOOP_LIST)
        loop_ok(mox_sm90_launch_list(&list, 1, stream), "list");
    if ((steps & LOOP_QUANTIZE) && quantized && tokens > 0)
        loop_ok(loop_quantize(layer->hidden16, tokens, layer->hidden, layer->codes, layer->scales, 1, stream),
                "quantize");
    if ((steps & LOOP_GATHER) && layer->tiled[0] && tokens > 0)
        gather_tokens(layer, r, tokens, stream);
    for (int p = 0; p < 2; p++) {
        mox_sm90_args *args = &layer->gemm[p];
        args->a_tiled = layer->tiled[p];
        (void)mox_sm90_ring(layer->element, most, &args->stages, &args->stage_bytes);
        args->next_tiled = p == 0 && layer->tiled[1];
        if (p == 0) {
            args->a = layer->tiled[0] ? layer->tiles : quantized ? layer->codes : layer->hidden16;
            args->a_scale = layer->tiled[0] ? layer->tile_scales : layer->scales;
        }
        args->a_row = p == 0 ? layer->pair_token + r * layer->max_pairs : NULL;
        if (p == 0)
            args->early_list = ((quantized && (steps & LOOP_QUANTIZE)) || (layer->tiled[0] && (steps & LOOP_GATHER)));
        if (steps & (p == 0 ? LOOP_FIRST : LOOP_SECOND))
            loop_ok(mox_sm90_launch_gemm(layer->element, args, layer->blocks, 1, stream), p == 0 ? "first" : "second");
    }
    if ((steps & LOOP_COMBINE) && tokens > 0)
        loop_ok(loop_combine(layer->rows, layer->place + r * layer->max_pairs, layer->weight, tokens, layer->top_k,
                             layer->hidden, layer->out, 1, stream),
                "combine");
}
