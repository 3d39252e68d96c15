/* SPDX-License-Identifier: Apache-2.0
 *
 * main_loop_bench.c - whole layers of real size: work list, quantization, both products, combine, with routing given.
 *
 * A CUDA graph holds several runs with as many routings, so that weights come from device memory; a figure is the
 * median over launches, divided by the runs. Floors from the same process: max(bytes of the chosen experts' weights /
 * read-only bandwidth, operations / MMA rate on random data).
 */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "main_loop.h"
#include "pack/hopper.h"

typedef struct preset {
    const char *name;
    mox_sm90_element element;
    int64_t hidden, intermediate;
    int experts, top_k;
} preset;

static const preset presets[] = {
    { "deepseek-v3 fp8", MOX_SM90_E4M3, 7168, 2048, 256, 8 },
    { "qwen3-235b bf16", MOX_SM90_BF16, 4096, 1536, 128, 8 },
};

enum { LAUNCHES = 21 };

static uint64_t state = 88172645463325252u;

static uint32_t next_bits(void)
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (uint32_t)(state >> 32);
}

static int ascending(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Median, in milliseconds, of launches of `graph`. */
static float time_graph(cudaGraphExec_t graph, cudaStream_t stream, int launches)
{
    float times[LAUNCHES];
    cudaEvent_t begin, end;
    cudaEventCreate(&begin), cudaEventCreate(&end);
    for (int i = -2; i < launches; i++) {
        cudaEventRecord(begin, stream);
        loop_ok((int)cudaGraphLaunch(graph, stream), "graph");
        cudaEventRecord(end, stream);
        loop_ok((int)cudaEventSynchronize(end), "graph");
        if (i >= 0)
            cudaEventElapsedTime(times + i, begin, end);
    }
    cudaEventDestroy(begin), cudaEventDestroy(end);
    qsort(times, (size_t)launches, sizeof *times, ascending);
    return times[launches / 2];
}

/* Microseconds of a run of `steps`. */
static float measure(loop_layer *layer, int steps, int32_t most, int64_t tokens, cudaStream_t stream)
{
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    loop_ok((int)cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
    for (int r = 0; r < layer->routings; r++)
        loop_layer_run(layer, r, steps, most, tokens, stream);
    loop_ok((int)cudaStreamEndCapture(stream, &graph), "capture");
    loop_ok((int)cudaGraphInstantiate(&ready, graph, 0), "instantiate");
    const float time = time_graph(ready, stream, tokens >= 4096 ? 11 : LAUNCHES) / (float)layer->routings * 1e3f;
    cudaGraphExecDestroy(ready), cudaGraphDestroy(graph);
    return time;
}

typedef struct floors {
    double read, rate[MOX_SM90_ELEMENTS]; /* bytes/s, operations/s */
} floors;

/* The best seen in this run: the read rate of one allocation can be a tenth below that of another. */
static floors measure_floors(const void *weights, uint64_t bytes, int blocks, cudaStream_t stream)
{
    static floors f;
    float times[9], ms = 0;
    void *sink = loop_alloc(1 << 20);
    cudaEvent_t begin, end;
    cudaEventCreate(&begin), cudaEventCreate(&end);
    for (int kind = 0; kind < 3; kind++) {
        double work = (double)bytes;
        for (int i = -2; i < 9; i++) {
            cudaEventRecord(begin, stream);
            if (kind == 0)
                loop_ok(loop_read(weights, bytes, sink, blocks, stream), "read");
            else
                loop_ok(loop_multiply(kind == 1 ? MOX_SM90_BF16 : MOX_SM90_E4M3, 12000, sink, blocks, &work, stream),
                        "multiply");
            cudaEventRecord(end, stream);
            loop_ok((int)cudaEventSynchronize(end), "floor");
            cudaEventElapsedTime(&ms, begin, end);
            if (i >= 0)
                times[i] = ms;
        }
        qsort(times, 9, sizeof *times, ascending);
        const double rate = work / ((double)times[4] * 1e-3);
        if (kind == 0)
            f.read = fmax(f.read, rate);
        else
            f.rate[kind == 1 ? MOX_SM90_BF16 : MOX_SM90_E4M3] =
                fmax(f.rate[kind == 1 ? MOX_SM90_BF16 : MOX_SM90_E4M3], rate);
    }
    cudaEventDestroy(begin), cudaEventDestroy(end);
    loop_free(sink);
    printf("floors of this run: read %.0f GB/s, bf16 %.0f TFLOP/s, fp8 %.0f TFLOP/s\n", f.read * 1e-9,
           f.rate[MOX_SM90_BF16] * 1e-12, f.rate[MOX_SM90_E4M3] * 1e-12);
    return f;
}

/* K distinct experts for every token; returns how many experts were chosen at all. */
static int choose(const preset *p, int64_t tokens, int32_t *ids)
{
    char *seen = calloc(1, (size_t)p->experts);
    int touched = 0;
    for (int64_t t = 0; t < tokens; t++)
        for (int j = 0; j < p->top_k; j++) {
            int32_t e;
            bool again = true;
            while (again) {
                e = (int32_t)(next_bits() % (uint32_t)p->experts);
                again = false;
                for (int i = 0; i < j; i++)
                    again = again || ids[t * p->top_k + i] == e;
            }
            ids[t * p->top_k + j] = e;
            touched += !seen[e];
            seen[e] = 1;
        }
    free(seen);
    return touched;
}

static void set_weights(mox_sm90_args *args, const mox_hopper_matrix *m, const uint8_t *records, uint64_t bytes)
{
    args->records = records;
    args->record_bytes = bytes;
    args->tiles_at = m->tiles_at;
    args->tile_bytes = m->tile_bytes;
    args->last_rows = m->last_rows;
    args->tiles = (int32_t)m->tiles;
    args->chunks = (int32_t)m->chunks;
    args->rows = (int32_t)m->rows;
}

static void bench_tokens(const preset *p, const mox_hopper_record *form, const uint8_t *records, uint64_t record_bytes,
                         const floors *f, int64_t tokens, int blocks, cudaStream_t stream)
{
    const loop_sizes sizes = { .hidden = p->hidden,
                               .intermediate = p->intermediate,
                               .max_tokens = tokens,
                               .slots = p->experts,
                               .top_k = p->top_k,
                               .routings = tokens == 1     ? 8
                                           : tokens <= 8   ? 4
                                           : tokens < 4096 ? 2
                                                           : 1,
                               .blocks = blocks,
                               .element = p->element,
                               .gated = true };
    loop_layer layer;
    loop_layer_open(&layer, &sizes);
    set_weights(&layer.gemm[0], &form->w13, records, record_bytes);
    set_weights(&layer.gemm[1], &form->w2, records, record_bytes);
    int32_t *ids = malloc((size_t)(tokens * p->top_k) * sizeof *ids);
    double bytes = 0;
    const double element = p->element == MOX_SM90_E4M3 ? 1 + 4.0 / (128 * 128) : 2;
    for (int r = 0; r < sizes.routings; r++) {
        bytes += choose(p, tokens, ids) * 3.0 * (double)(p->hidden * p->intermediate) * element / sizes.routings;
        loop_layer_route(&layer, r, ids, tokens);
    }
    free(ids);
    loop_ok(loop_fill_bf16(layer.hidden16, (uint64_t)(tokens * p->hidden), 1.0f, 99), "fill");
    const double operations = 6.0 * (double)(tokens * p->top_k) * (double)(p->hidden * p->intermediate);
    const double by_bytes = bytes / f->read * 1e6, by_rate = operations / f->rate[p->element] * 1e6;
    const double floor = by_bytes > by_rate ? by_bytes : by_rate;
    const int32_t most = loop_most(&layer, tokens);
    layer.tiled[0] = loop_is_tiled(&layer, tokens);
    layer.tiled[1] = true;
    const int before = LOOP_LIST | LOOP_QUANTIZE | LOOP_GATHER;
    const int upto[] = { before, before | LOOP_FIRST, before | LOOP_FIRST | LOOP_SECOND, LOOP_ALL };
    float part[4];
    for (int i = 0; i < 4; i++)
        part[i] = measure(&layer, upto[i], most, tokens, stream);
    printf("%-16s T %5lld  tiles of %3d  floor %7.1f us (%s)  whole %7.1f us  ratio %.3f   before %.1f, "
           "first %.1f, second %.1f, combine %.1f  (%.0f GB/s, %.0f TFLOP/s)\n",
           p->name, (long long)tokens, (int)most, floor, by_bytes > by_rate ? "bytes" : "rate", (double)part[3],
           (double)part[3] / floor, (double)part[0], (double)(part[1] - part[0]), (double)(part[2] - part[1]),
           (double)(part[3] - part[2]), bytes / (double)part[3] * 1e-3, operations / (double)part[3] * 1e-6);
    fflush(stdout);
    loop_layer_close(&layer);
}

static void bench_preset(const preset *p, int blocks, cudaStream_t stream)
{
    const moxie_quant fp8 = { .element = MOXIE_F8_E4M3, .scale = MOXIE_F32, .group_rows = 128, .group_cols = 128 };
    const moxie_quant bf16 = { .element = MOXIE_BF16 };
    const moxie_quant q = p->element == MOX_SM90_E4M3 ? fp8 : bf16;
    const mox_record_shape shape = {
        .hidden = p->hidden, .intermediate = p->intermediate, .gated = true, .w13 = q, .w2 = q
    };
    mox_hopper_record form;
    uint64_t record_bytes = 0;
    mox_hopper_form(&shape, &form);
    mox_layout_by_name("hopper")->record_bytes(&shape, &record_bytes);
    const uint64_t all = record_bytes * (uint64_t)p->experts;
    uint8_t *records = loop_alloc(all);
    for (int e = 0; e < p->experts; e++)
        for (int m = 0; m < 2; m++) {
            const mox_hopper_matrix *matrix = m == 0 ? &form.w13 : &form.w2;
            uint8_t *at = records + (uint64_t)e * record_bytes + matrix->tiles_at;
            const float size = 1.0f / sqrtf((float)matrix->cols);
            const uint64_t bytes = matrix->end - matrix->tiles_at;
            if (p->element == MOX_SM90_E4M3)
                loop_ok(loop_fill_e4m3(at, bytes, matrix->tile_bytes, (uint64_t)matrix->chunks * matrix->chunk_bytes,
                                       size, (uint64_t)(e * 2 + m)),
                        "fill");
            else
                loop_ok(loop_fill_bf16(at, bytes / 2, size, (uint64_t)(e * 2 + m)), "fill");
        }
    loop_ok((int)cudaDeviceSynchronize(), "fill");
    const floors f = measure_floors(records, all / 16384 * 16384, blocks, stream);
    static const int64_t tokens[] = { 1, 8, 64, 512, 4096 };
    for (int i = 0; i < 5; i++)
        bench_tokens(p, &form, records, record_bytes, &f, tokens[i], blocks, stream);
    loop_free(records);
}

int main_loop_bench(int argc, char **argv)
{
    struct cudaDeviceProp device;
    cudaStream_t stream;
    loop_ok((int)cudaGetDeviceProperties(&device, 0), "device");
    loop_ok((int)cudaStreamCreate(&stream), "stream");
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++)
        if (argc == 0 || strstr(presets[i].name, argv[0]) != NULL)
            bench_preset(&presets[i], device.multiProcessorCount, stream);
    cudaStreamDestroy(stream);
    return 0;
}
