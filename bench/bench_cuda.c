/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_cuda.c - a layer's experts on a GPU beside the floor of the same run: routing given, balanced, true shapes.
 *
 *     floor  = max( bytes of the touched experts' records / read_gb_s,  6 T K H I / bf16_tflop_s )
 *     time   = median of REPEATS graph launches / runs in the graph; the graph's runs go to different experts, so that
 *              weights come from memory
 *
 * read_gb_s and bf16_tflop_s are arguments: what this machine's probes gave (docs/kernels-cuda.md).
 *
 *     bench_cuda [read_gb_s [bf16_tflop_s [case ...]]]       MOXIE_BENCH_TOKENS: the most tokens (default 4096)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <moxie/moxie_cuda.h>

#include "base/memory.h"
#include "cuda/cuda_loader.h"
#include "quant/quant.h"

enum { REPEATS = 9, MOST_TOKENS = 4096, RUNS = 4 };

#define FP8_BLOCK                                                                                                      \
    {                                                                                                                  \
        .element = MOXIE_F8_E4M3, .scale = MOXIE_F32, .group_rows = 128, .group_cols = 128                             \
    }
#define FP8_GROUP                                                                                                      \
    {                                                                                                                  \
        .element = MOXIE_F8_E4M3, .scale = MOXIE_F32, .group_rows = 1, .group_cols = 128                               \
    }
#define MXFP4                                                                                                          \
    {                                                                                                                  \
        .element = MOXIE_F4_E2M1, .scale = MOXIE_F8_E8M0, .group_cols = 32                                             \
    }
#define MXFP8                                                                                                          \
    {                                                                                                                  \
        .element = MOXIE_F8_E4M3, .scale = MOXIE_F8_E8M0, .group_rows = 1, .group_cols = 32                            \
    }
#define INT8_ROW                                                                                                       \
    {                                                                                                                  \
        .element = MOXIE_I8, .scale = MOXIE_F32                                                                        \
    }
#define INT8_ACT                                                                                                       \
    {                                                                                                                  \
        .element = MOXIE_I8, .scale = MOXIE_F32, .group_rows = 1                                                       \
    }

typedef struct bench_case {
    const char *name;
    int64_t experts, top_k, hidden, intermediate;
    moxie_quant weight, act;
} bench_case;

static const bench_case cases[] = {
    { "deepseek-v3-fp8-block", 256, 8, 7168, 2048, FP8_BLOCK, FP8_GROUP },
    { "qwen3-235b-bf16", 128, 8, 4096, 1536, { .element = MOXIE_BF16 }, { 0 } },
    { "gpt-oss-120b-mxfp4", 128, 4, 2880, 2880, MXFP4, { 0 } },
    { "gpt-oss-120b-mxfp4-mxfp8", 128, 4, 2880, 2880, MXFP4, MXFP8 },
    { "kimi-k2-int4-g32", 384, 8, 7168, 2048, { .element = MOXIE_U4B8, .scale = MOXIE_BF16, .group_cols = 32 }, { 0 } },
    { "qwen3-235b-nvfp4",
      128,
      8,
      4096,
      1536,
      { .element = MOXIE_F4_E2M1, .scale = MOXIE_F8_E4M3, .group_cols = 16, .global = MOXIE_GLOBAL_MULTIPLY },
      { 0 } },
    { "qwen3-235b-mxfp8",
      128,
      8,
      4096,
      1536,
      { .element = MOXIE_F8_E4M3, .scale = MOXIE_F8_E8M0, .group_cols = 32 },
      MXFP8 },
    { "qwen3-235b-int8", 128, 8, 4096, 1536, INT8_ROW, INT8_ACT },
};

typedef struct bench {
    const mox_cuda_table *table;
    const bench_case *c;
    moxie_layer *layer;
    moxie_plan *plan;
    double read_gb_s, tflop_s;
    void *hidden, *ids, *weights, *output, *workspace, *stream;
    uint64_t workspace_bytes;
} bench;

static void need(moxie_status status, const moxie_error *error, const char *what)
{
    if (status == MOXIE_OK)
        return;
    fprintf(stderr, "bench_cuda: %s: %s\n", what, error->text);
    exit(4);
}

static uint32_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

/* A grid of random codes; scales are one power of two, floats near one. */
static moxie_grid random_grid(moxie_dtype dtype, int64_t rows, int64_t cols, bool scale, uint64_t *seed)
{
    const uint64_t bytes = mox_dense_bytes(dtype, rows, cols);
    uint8_t *data = mox_alloc(bytes + 64);
    if (data == NULL)
        exit(5);
    for (uint64_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)next_random(seed);
    const moxie_grid grid = mox_grid_dense(data, dtype, rows, cols);
    for (int64_t r = 0; r < rows && (scale || mox_dtype_bits(dtype) >= 16); r++)
        for (int64_t k = 0; k < cols; k++)
            mox_grid_store(&grid, r, k,
                           moxie_encode(dtype, scale ? 0.0078125f : (float)(next_random(seed) % 255) / 127.5f - 1));
    return grid;
}

static moxie_matrix random_matrix(const moxie_quant *q, int64_t rows, int64_t cols, uint64_t *seed)
{
    moxie_matrix m = { .codes = random_grid(q->element, rows, cols, false, seed) };
    if (q->scale != MOXIE_DTYPE_NONE)
        m.scale = random_grid(q->scale, mox_scale_rows(q, rows), mox_scale_cols(q, cols), true, seed);
    if (q->global != MOXIE_GLOBAL_NONE)
        m.global = random_grid(MOXIE_F32, 1, 1, true, seed);
    return m;
}

static void free_matrix(const moxie_matrix *m)
{
    mox_free((void *)(uintptr_t)m->codes.data);
    mox_free((void *)(uintptr_t)m->scale.data);
    mox_free((void *)(uintptr_t)m->global.data);
}

/* All experts share one set of host numbers; each has its own record on the device. */
static void open_case(bench *b)
{
    const bench_case *c = b->c;
    moxie_error error = { 0 };
    moxie_layer_config config = MOXIE_LAYER_CONFIG_INIT;
    moxie_weights weights = MOXIE_WEIGHTS_INIT;
    moxie_options options = MOXIE_OPTIONS_INIT;
    moxie_executor *pool = NULL;
    uint64_t seed = 7;
    config.dtype = MOXIE_BF16;
    config.experts = c->experts;
    config.top_k = c->top_k;
    config.hidden = c->hidden;
    config.intermediate = c->intermediate;
    config.w13 = config.w2 = c->weight;
    config.a13 = config.a2 = c->act;
    const moxie_expert one = { .gate = random_matrix(&c->weight, c->intermediate, c->hidden, &seed),
                               .up = random_matrix(&c->weight, c->intermediate, c->hidden, &seed),
                               .down = random_matrix(&c->weight, c->hidden, c->intermediate, &seed) };
    moxie_expert *experts = mox_calloc((uint64_t)c->experts, sizeof *experts);
    for (int64_t e = 0; e < c->experts; e++)
        experts[e] = one;
    weights.n_experts = c->experts;
    weights.experts = experts;
    need(moxie_executor_create(0, &pool, &error), &error, "threads");
    options.backend = MOXIE_BACKEND_CUDA;
    options.max_tokens = MOST_TOKENS;
    options.executor = pool;
    need(moxie_layer_create(&config, &options, &b->layer, &error), &error, c->name);
    need(moxie_layer_prepare(b->layer, &weights, &options, &error), &error, c->name);
    options.executor = NULL;
    need(moxie_plan_create(b->layer, &options, &b->plan, &error), &error, c->name);
    moxie_executor_destroy(pool);
    free_matrix(&one.gate);
    free_matrix(&one.up);
    free_matrix(&one.down);
    mox_free(experts);
}

static void allocate(bench *b)
{
    const bench_case *c = b->c;
    const uint64_t hidden = (uint64_t)(MOST_TOKENS * c->hidden) * 2, choices = (uint64_t)(MOST_TOKENS * c->top_k) * 4;
    moxie_error error = { 0 };
    uint64_t seed = 3;
    uint16_t *x = mox_alloc(hidden);
    for (uint64_t i = 0; i < hidden / 2; i++)
        x[i] = (uint16_t)moxie_encode(MOXIE_BF16, (float)(next_random(&seed) % 2001) / 1000 - 1);
    float *ones = mox_alloc(choices);
    for (uint64_t i = 0; i < choices / 4; i++)
        ones[i] = 1.0f / (float)c->top_k;
    b->workspace_bytes = moxie_plan_workspace_bytes(b->plan);
    need(b->table->allocate(hidden, &b->hidden, &error), &error, "hidden");
    need(b->table->allocate(hidden, &b->output, &error), &error, "output");
    need(b->table->allocate(choices * RUNS, &b->ids, &error), &error, "ids");
    need(b->table->allocate(choices, &b->weights, &error), &error, "weights");
    need(b->table->allocate(b->workspace_bytes, &b->workspace, &error), &error, "workspace");
    need(b->table->stream_create(&b->stream, &error), &error, "stream");
    need(b->table->copy(b->hidden, x, hidden, b->stream, &error), &error, "hidden");
    need(b->table->copy(b->weights, ones, choices, b->stream, &error), &error, "weights");
    need(b->table->stream_wait(b->stream, &error), &error, "copies");
    mox_free(x);
    mox_free(ones);
}

/* Distinct experts for each token, uniformly; returns how many experts the run touches. */
static int64_t make_ids(const bench_case *c, int64_t tokens, int32_t *ids, uint64_t *seed)
{
    uint8_t touched[MOXIE_MAX_EXPERTS] = { 0 };
    int64_t count = 0;
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t j = 0; j < c->top_k; j++) {
            int32_t *mine = ids + t * c->top_k;
            bool again = true;
            while (again) {
                mine[j] = (int32_t)(next_random(seed) % (uint32_t)c->experts);
                again = false;
                for (int64_t i = 0; i < j; i++)
                    again = again || mine[i] == mine[j];
            }
            count += !touched[mine[j]];
            touched[mine[j]] = 1;
        }
    return count;
}

static int by_size(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void time_tokens(bench *b, int64_t tokens)
{
    const bench_case *c = b->c;
    const int runs = tokens > 512 ? 1 : RUNS;
    const uint64_t choices = (uint64_t)(tokens * c->top_k);
    moxie_error error = { 0 };
    void *graph, *timer;
    uint64_t seed = 11;
    double touched = 0;
    float ms[REPEATS];
    int32_t *ids = mox_alloc(choices * 4 * (uint64_t)runs);
    for (int r = 0; r < runs; r++)
        touched += (double)make_ids(c, tokens, ids + (uint64_t)r * choices, &seed) / runs;
    need(b->table->copy(b->ids, ids, choices * 4 * (uint64_t)runs, b->stream, &error), &error, "ids");
    need(b->table->stream_wait(b->stream, &error), &error, "ids");
    need(b->table->capture_begin(b->stream, &error), &error, "capture");
    for (int r = 0; r < runs; r++) {
        moxie_run_args args = MOXIE_RUN_ARGS_INIT;
        args.tokens = tokens;
        args.hidden = b->hidden;
        args.ids = (int32_t *)b->ids + (uint64_t)r * choices;
        args.weights = b->weights;
        args.output = b->output;
        args.workspace = b->workspace;
        args.workspace_bytes = b->workspace_bytes;
        need(moxie_cuda_plan_run(b->plan, &args, b->stream, &error), &error, "run");
    }
    need(b->table->capture_end(b->stream, &graph, &error), &error, "graph");
    need(b->table->timer_create(&timer, &error), &error, "timer");
    need(b->table->graph_launch(graph, b->stream, &error), &error, "launch");
    for (int i = 0; i < REPEATS; i++) {
        need(b->table->timer_start(timer, b->stream, &error), &error, "timer");
        need(b->table->graph_launch(graph, b->stream, &error), &error, "launch");
        need(b->table->timer_stop(timer, b->stream, &ms[i], &error), &error, "timer");
    }
    qsort(ms, REPEATS, sizeof ms[0], by_size);
    const double record = (double)moxie_layer_bytes(b->layer) / (double)c->experts;
    const double bytes_us = touched * record / (b->read_gb_s * 1e3);
    const double flop_us = 6.0 * (double)choices * (double)(c->hidden * c->intermediate) / (b->tflop_s * 1e6);
    const double floor_us = bytes_us > flop_us ? bytes_us : flop_us, us = 1e3 * (double)ms[REPEATS / 2] / runs;
    printf("%-26s T %5lld  %9.1f us  (%.1f - %.1f)  floor %8.1f us  ratio %7.2f\n", c->name, (long long)tokens, us,
           1e3 * (double)ms[0] / runs, 1e3 * (double)ms[REPEATS - 1] / runs, floor_us, us / floor_us);
    fflush(stdout);
    b->table->timer_destroy(timer);
    b->table->graph_destroy(graph);
    mox_free(ids);
}

static void close_case(bench *b)
{
    void *const memory[] = { b->hidden, b->output, b->ids, b->weights, b->workspace };
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++)
        b->table->release(memory[i]);
    b->table->stream_destroy(b->stream);
    moxie_plan_destroy(b->plan);
    moxie_layer_destroy(b->layer);
}

static bool wanted(int argc, char **argv, const char *name)
{
    for (int i = 3; i < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return true;
    return argc <= 3;
}

int main(int argc, char **argv)
{
    static const int64_t tokens[] = { 1, 8, 64, 512, 4096 };
    const char *most = getenv("MOXIE_BENCH_TOKENS");
    bench b = { .read_gb_s = argc > 1 ? atof(argv[1]) : 4611, .tflop_s = argc > 2 ? atof(argv[2]) : 720 };
    moxie_error error = { 0 };
    need(mox_cuda_open(&b.table, &error), &error, "library");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (!wanted(argc, argv, cases[i].name))
            continue;
        b.c = &cases[i];
        open_case(&b);
        allocate(&b);
        for (size_t t = 0; t < sizeof tokens / sizeof tokens[0]; t++)
            if (most == NULL || tokens[t] <= atoll(most))
                time_tokens(&b, tokens[t]);
        close_case(&b);
    }
    return 0;
}
