/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_store.c - replays a routing trace on layers whose experts a store reads when they are needed (bench_store.h):
 *
 *     for each step: for each layer of both: [prefetch the next layer's ids] -> run with the ids of the trace
 *
 * Hidden states are random; the experts are those of the trace. So the reads, hits and waits are those of the model
 * whose trace it is. Nothing runs between the layers, where a model has attention: waits are the longest they can be.
 * On a GPU the runs of some steps are timed together, as calls on one stream (moxie_cuda_time_runs).
 * With --lookahead the next layer's ids are known: as in layers that route by token, and as the best guess could be.
 */
#include "bench_store.h"

#include <stdlib.h>
#include <string.h>

#include <moxie/moxie_cuda.h>
#include <moxie/moxie_trace.h>

#include "bench_resident.h"
#include "cli_store.h"

enum { BATCH = 128 };

typedef struct gpu_times {
    double seconds, copied; /* of a run, on average */
} gpu_times;

/* Runs on a GPU that are timed together. */
typedef struct gpu_batch {
    gpu_times *times; /* [n_times] of the batches so far */
    int32_t n_times;
    int32_t n_last; /* runs of the last batch, which `runs` still has */
    int32_t n;
    moxie_cuda_timed_run runs[BATCH];
    moxie_run_args args[BATCH];
    int32_t *ids; /* [BATCH, max_tokens, K] */
} gpu_batch;

typedef struct one_layer {
    int64_t number;
    int32_t place; /* in the trace */
    moxie_layer *layer;
    moxie_plan *plan;
} one_layer;

typedef struct replay {
    const bench_arguments *args;
    moxie_store *store;
    moxie_trace *trace;
    moxie_trace_info info;
    moxie_executor *executor;
    one_layer *layers; /* [n] that both have */
    int32_t n;
    int64_t max_tokens;
    cli_input input;
    void *output, *workspace;
    uint64_t workspace_bytes;
    int32_t *ids, *next; /* [max_tokens, K] of this layer, of the next */
    float *weights;
    double seconds;
    gpu_batch *gpu;   /* NULL: the runs are on the CPU */
    double copy_gb_s; /* of the GPU, from pinned memory */
    double resident;  /* seconds of a run of the first layer with all experts on the GPU; 0: they do not fit */
} replay;

static int32_t place_of(const moxie_trace_info *info, int64_t number)
{
    for (int32_t l = 0; l < info->layers; l++)
        if (info->layer_numbers[l] == number)
            return l;
    return -1;
}

/* All layers run on the same hidden states, into one output. */
static moxie_status check_states(const replay *r, int64_t number, const moxie_layer_config *c, moxie_error *error)
{
    const moxie_layer_config *first = moxie_expert_file_config(moxie_store_file(r->store, r->layers[0].number));
    if (c->hidden == first->hidden && c->dtype == first->dtype)
        return MOXIE_OK;
    return cli_error(MOXIE_ERR_MISMATCH, error, r->args->layer.dir,
                     "layer %lld has hidden size %lld and %s, layer %lld has %lld and %s: put only files of one "
                     "checkpoint into a folder",
                     (long long)number, (long long)c->hidden, moxie_dtype_name(c->dtype),
                     (long long)r->layers[0].number, (long long)first->hidden, moxie_dtype_name(first->dtype));
}

/* The layer's configuration. All its experts are needed, since a trace uses all. */
static moxie_status find_config(replay *r, int64_t number, moxie_layer_config *out, moxie_error *error)
{
    const moxie_expert_file *file = moxie_store_file(r->store, number);
    moxie_expert_file_info info = MOXIE_EXPERT_FILE_INFO_INIT;
    moxie_status status = cli_experts_config(&r->args->layer, file, out, error);
    if (status == MOXIE_OK)
        status = moxie_expert_file_get_info(file, &info, error);
    if (status == MOXIE_OK && info.held < info.experts)
        status = cli_error(MOXIE_ERR_UNSUPPORTED, error, r->args->layer.dir,
                           "layer %lld has %lld of %lld experts, and a trace uses all: prepare files without --ep",
                           (long long)number, (long long)info.held, (long long)info.experts);
    if (status == MOXIE_OK && (out->experts != r->info.experts || out->top_k != r->info.top_k))
        status = cli_error(MOXIE_ERR_MISMATCH, error, r->args->trace,
                           "its tokens choose %d of %d experts; layer %lld chooses %lld of %lld", r->info.top_k,
                           r->info.experts, (long long)number, (long long)out->top_k, (long long)out->experts);
    return status == MOXIE_OK ? check_states(r, number, out, error) : status;
}

static moxie_options options_of(const replay *r)
{
    moxie_options options = MOXIE_OPTIONS_INIT;
    options.backend = r->args->layer.backend;
    options.mode = r->args->layer.mode;
    options.isa = r->args->layer.isa;
    options.max_tokens = r->max_tokens;
    options.executor = r->executor;
    options.device = r->gpu ? r->args->layer.device : NULL;
    return options;
}

static moxie_status open_layer(replay *r, int64_t number, int32_t place, moxie_error *error)
{
    moxie_layer_config c;
    const moxie_options options = options_of(r);
    one_layer *l = &r->layers[r->n++];
    *l = (one_layer) { .number = number, .place = place };
    moxie_status status = find_config(r, number, &c, error);
    if (status == MOXIE_OK)
        status = moxie_store_layer(r->store, number, &c, &options, &l->layer, error);
    if (status == MOXIE_OK)
        status = moxie_plan_create(l->layer, &options, &l->plan, error);
    if (status != MOXIE_OK)
        return status;
    const uint64_t bytes = moxie_plan_workspace_bytes(l->plan);
    r->workspace_bytes = bytes > r->workspace_bytes ? bytes : r->workspace_bytes;
    return MOXIE_OK;
}

static moxie_status open_layers(replay *r, moxie_error *error)
{
    moxie_store_info info = MOXIE_STORE_INFO_INIT;
    moxie_status status = moxie_store_get_info(r->store, &info, error);
    r->layers = calloc((size_t)info.layers + 1, sizeof *r->layers);
    for (int32_t i = 0; status == MOXIE_OK && r->layers && i < info.layers; i++) {
        const int64_t number = moxie_store_layer_number(r->store, i);
        const int32_t place = place_of(&r->info, number);
        if (place >= 0)
            status = open_layer(r, number, place, error);
    }
    if (status == MOXIE_OK && !r->layers)
        status = cli_error(MOXIE_ERR_MEMORY, error, "", "no memory for %d layers", (int)info.layers);
    if (status == MOXIE_OK && r->n == 0)
        status = cli_error(MOXIE_ERR_MISMATCH, error, r->args->trace,
                           "it has layers %d to %d, and the store has none of them", r->info.layer_numbers[0],
                           r->info.layer_numbers[r->info.layers - 1]);
    return status;
}

/* Opens the trace, and finds its longest step. */
static moxie_status open_trace(replay *r, moxie_error *error)
{
    moxie_status status = moxie_trace_open(r->args->trace, &r->trace, error);
    if (status == MOXIE_OK)
        status = moxie_trace_get_info(r->trace, &r->info, error);
    for (int64_t i = 0; status == MOXIE_OK && i < r->info.steps; i++) {
        moxie_trace_step step = MOXIE_TRACE_STEP_INIT;
        status = moxie_trace_read(r->trace, i, &step, error);
        r->max_tokens = step.tokens > r->max_tokens ? step.tokens : r->max_tokens;
    }
    if (status == MOXIE_OK && r->max_tokens == 0)
        status = cli_error(MOXIE_ERR_MISMATCH, error, r->args->trace, "it has no tokens, so nothing can be replayed");
    return status;
}

static moxie_status reserve(replay *r, moxie_error *error)
{
    const moxie_layer_config *c = moxie_expert_file_config(moxie_store_file(r->store, r->layers[0].number));
    const size_t choices = (size_t)(r->max_tokens * c->top_k);
    r->output = malloc((size_t)(r->max_tokens * c->hidden) * 4);
    r->workspace = aligned_alloc(64, (r->workspace_bytes + 127) / 64 * 64);
    r->ids = calloc(choices, sizeof *r->ids);
    r->next = calloc(choices, sizeof *r->next);
    r->weights = calloc(choices, sizeof *r->weights);
    if (!r->output || !r->workspace || !r->ids || !r->next || !r->weights)
        return cli_error(MOXIE_ERR_MEMORY, error, "", "no memory for steps of %lld %s",
                         CLI_COUNT(r->max_tokens, "token"));
    if (r->gpu && !(r->gpu->ids = calloc(BATCH * choices, sizeof *r->ids)))
        return cli_error(MOXIE_ERR_MEMORY, error, "", "no memory for the ids of %d runs", (int)BATCH);
    for (size_t i = 0; i < choices; i++)
        r->weights[i] = 1.0f / (float)c->top_k;
    return cli_input_random(c, r->max_tokens, r->args->seed, CLI_STATES_NORMAL, &r->input, error);
}

static moxie_status open_gpu(replay *r, moxie_error *error)
{
    r->gpu = calloc(1, sizeof *r->gpu);
    if (!r->gpu)
        return cli_error(MOXIE_ERR_MEMORY, error, "", "no memory for %d runs", (int)BATCH);
    return moxie_cuda_measure_copy(r->args->layer.device, &r->copy_gb_s, error);
}

static moxie_status open_all(replay *r, moxie_error *error)
{
    const cli_layer_options *layer = &r->args->layer;
    moxie_status status = open_trace(r, error);
    if (status == MOXIE_OK && layer->budget_gpu)
        status = open_gpu(r, error);
    if (status == MOXIE_OK)
        status = cli_executor_create("bench", layer->threads, &r->executor, error);
    if (status == MOXIE_OK)
        status = cli_store_open(layer, layer->layer, &r->store, error);
    if (status == MOXIE_OK)
        status = open_layers(r, error);
    return status == MOXIE_OK ? reserve(r, error) : status;
}

/* Ids [tokens, K] of a layer in one step. */
static void take_ids(const replay *r, const moxie_trace_step *step, int32_t place, int32_t *ids)
{
    const int64_t top_k = r->info.top_k;
    for (int64_t t = 0; t < step->tokens; t++)
        for (int64_t j = 0; j < top_k; j++) {
            const int32_t id = step->ids[t * step->token_stride + place * step->layer_stride + j];
            ids[t * top_k + j] = id < r->info.experts ? id : -1; /* a zero expert has no weights */
        }
}

static moxie_run_args args_of(const replay *r, const moxie_trace_step *step, const int32_t *ids)
{
    moxie_run_args args = MOXIE_RUN_ARGS_INIT;
    args.tokens = step->tokens;
    args.hidden = r->input.hidden;
    args.ids = ids;
    args.weights = r->weights;
    args.output = r->output;
    args.workspace = r->workspace;
    args.workspace_bytes = r->workspace_bytes;
    return args;
}

static uint64_t copied_so_far(const replay *r)
{
    moxie_store_counters c = MOXIE_STORE_COUNTERS_INIT;
    (void)moxie_store_get_counters(r->store, -1, 0, &c, NULL);
    return c.copied_bytes;
}

static moxie_status note_times(gpu_batch *g, double seconds, double copied, moxie_error *error)
{
    gpu_times *times = realloc(g->times, ((size_t)g->n_times + 1) * sizeof *times);
    if (!times)
        return cli_error(MOXIE_ERR_MEMORY, error, "", "no memory for times");
    g->times = times;
    times[g->n_times++] = (gpu_times) { seconds / g->n, copied / g->n };
    return MOXIE_OK;
}

/* Times the runs that were gathered. */
static moxie_status flush(replay *r, moxie_error *error)
{
    double seconds = 0;
    if (!r->gpu || r->gpu->n == 0)
        return MOXIE_OK;
    const uint64_t before = copied_so_far(r);
    moxie_status status = moxie_cuda_time_runs(r->gpu->runs, r->gpu->n, 1, &seconds, error);
    if (status == MOXIE_OK)
        status = note_times(r->gpu, seconds, (double)(copied_so_far(r) - before), error);
    r->seconds += seconds;
    r->gpu->n_last = r->gpu->n;
    r->gpu->n = 0;
    return status;
}

static moxie_status gather(replay *r, const moxie_trace_step *step, int32_t l, moxie_error *error)
{
    gpu_batch *g = r->gpu;
    int32_t *ids = g->ids + (int64_t)g->n * r->max_tokens * r->info.top_k;
    take_ids(r, step, r->layers[l].place, ids);
    g->args[g->n] = args_of(r, step, ids);
    g->runs[g->n] = (moxie_cuda_timed_run) { .plan = r->layers[l].plan, .args = &g->args[g->n] };
    return ++g->n == BATCH ? flush(r, error) : MOXIE_OK;
}

static moxie_status run_layer(const replay *r, const moxie_trace_step *step, int32_t l, moxie_error *error)
{
    if (r->args->lookahead && l + 1 < r->n) {
        take_ids(r, step, r->layers[l + 1].place, r->next);
        const moxie_status status =
            moxie_store_prefetch(r->store, r->layers[l + 1].number, r->next, step->tokens * r->info.top_k, error);
        if (status != MOXIE_OK)
            return status;
    }
    take_ids(r, step, r->layers[l].place, r->ids);
    const moxie_run_args args = args_of(r, step, r->ids);
    return moxie_plan_run(r->layers[l].plan, &args, error);
}

static moxie_status run_steps(replay *r, moxie_error *error)
{
    moxie_status status = MOXIE_OK;
    for (int64_t i = 0; status == MOXIE_OK && i < r->info.steps; i++) {
        moxie_trace_step step = MOXIE_TRACE_STEP_INIT;
        status = moxie_trace_read(r->trace, i, &step, error);
        const double start = cli_seconds();
        for (int32_t l = 0; status == MOXIE_OK && l < r->n; l++)
            status = r->gpu ? gather(r, &step, l, error) : run_layer(r, &step, l, error);
        r->seconds += r->gpu ? 0 : cli_seconds() - start;
    }
    return status == MOXIE_OK ? flush(r, error) : status;
}

/* The last batch's runs of the first layer, on a GPU that has all its experts. */
static moxie_status time_resident(replay *r, moxie_error *error)
{
    moxie_cuda_timed_run runs[BATCH];
    moxie_layer_config c;
    const moxie_options options = options_of(r);
    int32_t n = 0;
    for (int32_t i = 0; r->gpu && i < r->gpu->n_last; i++)
        if (r->gpu->runs[i].plan == r->layers[0].plan)
            runs[n++] = r->gpu->runs[i];
    if (n == 0)
        return MOXIE_OK;
    moxie_status status = find_config(r, r->layers[0].number, &c, error);
    if (status == MOXIE_OK)
        status =
            bench_resident(moxie_store_file(r->store, r->layers[0].number), &c, &options, runs, n, &r->resident, error);
    return status == MOXIE_ERR_MEMORY ? MOXIE_OK : status;
}

static int by_seconds(const void *a, const void *b)
{
    const double x = ((const gpu_times *)a)->seconds, y = ((const gpu_times *)b)->seconds;
    return (x > y) - (x < y);
}

/* The median batch: the first ones still fill memory from the disk. */
static gpu_times median_of(const replay *r)
{
    if (!r->gpu || r->gpu->n_times == 0)
        return (gpu_times) { 0, 0 };
    qsort(r->gpu->times, (size_t)r->gpu->n_times, sizeof *r->gpu->times, by_seconds);
    return r->gpu->times[r->gpu->n_times / 2];
}

static double copy_ms(const replay *r, const gpu_times *t)
{
    return r->copy_gb_s > 0 ? 1e-6 * t->copied / r->copy_gb_s : 0;
}

/* A run's time / what its copies take, and then a run with all experts there: 1 would be perfect. 0 where the CPU
 * computes the others. */
static double ratio_of(const replay *r, const gpu_times *t)
{
    const double floor = 1e-3 * copy_ms(r, t) + r->resident;
    return r->resident > 0 && floor > 0 && !r->args->layer.where ? t->seconds / floor : 0;
}

static void print_gpu(const replay *r, const gpu_times *median)
{
    printf(
        "GPU: a run takes %.4f ms, its copies alone %.4f ms at %.1f GB/s from pinned memory (measured); the median of "
        "%d times %d runs\n",
        1e3 * median->seconds, copy_ms(r, median), r->copy_gb_s, (int)r->gpu->n_times, (int)BATCH);
    if (r->resident > 0 && r->args->layer.where)
        printf("GPU: with all experts there a run takes %.4f ms\n", 1e3 * r->resident);
    else if (r->resident > 0)
        printf("GPU: with all experts there a run takes %.4f ms; a run / (copies + that) is %.3f\n", 1e3 * r->resident,
               ratio_of(r, median));
}

static void print(const replay *r)
{
    moxie_store_counters c = MOXIE_STORE_COUNTERS_INIT;
    char bytes[16];
    (void)moxie_store_get_counters(r->store, -1, 0, &c, NULL);
    const gpu_times median = median_of(r);
    const double tokens_per_s = r->seconds > 0 ? (double)r->info.tokens / r->seconds : 0;
    const double read_gb_s = r->seconds > 0 ? 1e-9 * (double)c.read_bytes / r->seconds : 0;
    if (r->args->layer.json) {
        json_t *object = cli_json_begin("bench");
        cli_json_merge(object,
                       cli_pack("{s:s, s:i, s:I, s:I, s:b, s:f, s:f, s:f, s:f, s:o, s:f, s:f, s:f, s:f, s:f}", "trace",
                                cli_utf8(r->args->trace), "layers", (int)r->n, "steps", (json_int_t)r->info.steps,
                                "tokens", (json_int_t)r->info.tokens, "lookahead", r->args->lookahead, "seconds",
                                r->seconds, "tokens_per_s", tokens_per_s, "wait_s", c.wait_seconds, "read_gb_s",
                                read_gb_s, "store", cli_store_json(r->store), "copy_gb_s", r->copy_gb_s, "run_ms",
                                1e3 * median.seconds, "copy_ms", copy_ms(r, &median), "resident_ms", 1e3 * r->resident,
                                "ratio", ratio_of(r, &median)));
        cli_json_end(object);
        return;
    }
    printf("%s: %lld %s, %lld %s, on %lld %s%s\n", cli_printable(r->args->trace), CLI_COUNT(r->info.steps, "step"),
           CLI_COUNT(r->info.tokens, "token"), CLI_COUNT(r->n, "layer"),
           r->args->lookahead ? ", the next layer's experts prefetched" : "");
    printf("%.3f s, %.1f tokens/s, waits %.3f s, %s read at %.2f GB/s\n", r->seconds, tokens_per_s, c.wait_seconds,
           cli_bytes(bytes, c.read_bytes), read_gb_s);
    if (r->gpu)
        print_gpu(r, &median);
    cli_store_print(r->store);
}

static void close_all(replay *r)
{
    for (int32_t l = 0; l < r->n; l++) {
        moxie_plan_destroy(r->layers[l].plan);
        moxie_layer_destroy(r->layers[l].layer);
    }
    moxie_store_close(r->store);
    moxie_trace_close(r->trace);
    moxie_executor_destroy(r->executor);
    cli_input_free(&r->input);
    if (r->gpu) {
        free(r->gpu->ids);
        free(r->gpu->times);
    }
    free(r->gpu);
    free(r->layers);
    free(r->output);
    free(r->workspace);
    free(r->ids);
    free(r->next);
    free(r->weights);
}

int bench_store(const bench_arguments *args)
{
    moxie_error error = { 0 };
    replay r = { .args = args, .info = MOXIE_TRACE_INFO_INIT };
    moxie_status status = open_all(&r, &error);
    if (status == MOXIE_OK)
        status = run_steps(&r, &error);
    if (status == MOXIE_OK)
        status = time_resident(&r, &error);
    if (status == MOXIE_OK)
        print(&r);
    const int code = status == MOXIE_OK ? CLI_OK : cli_fail("bench", args->layer.json, status, &error);
    close_all(&r);
    return code;
}
