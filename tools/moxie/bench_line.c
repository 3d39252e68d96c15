/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_line.c - one batch size: its runs, their times, and the floor under them.
 *
 *     batch:   for each of its runs: routing drawn anew, copy r mod copies;  [ the back end's time of all of them ]
 *     bytes    = distinct experts of a run x bytes of one, and the shared expert's
 *     flop     = 2 x (chosen pairs x (2 or 1 + 1) H I, and the shared expert's for every token)
 *     floor    = max(bytes / read_gb_s, flop / bf16_tflop_s), or / fp8_tflop_s or int8_top_s where activations are FP8
 *                or int8 and a machine multiplies that faster
 *
 * A batch is timed as a whole. On a processor it is one run, timed once. On a GPU it is a graph of several runs, which
 * is launched many times.
 */
#include "bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MIN_REPEATS = 5, MAX_REPEATS = 5000, USUAL_RUNS = 8, HOST_CALLS = 64 };
#define BATCH_BYTES 4e9 /* weights that a batch of many runs reads, at most and about */

/* The runs of a batch, and the sums over all batches so far. */
typedef struct runs {
    const bench_backend *backend;
    bench_batch batch;
    bench_copy *copy[BENCH_MAX_RUNS];
    int32_t *ids;   /* [runs, T, K] */
    float *weights; /* [runs, T, K] */
    int32_t *used;  /* [runs, E] experts read, `touched` of them */
    int64_t touched[BENCH_MAX_RUNS];
    double *seconds; /* [capacity] of one run, one for each repeat */
    double *quiet;   /* [capacity] the same without repeats that other work disturbed */
    int32_t count, quiet_count, capacity;
    double total, draws, all_touched, all_pairs, all_fullest;
    uint64_t reuse;
    bool reused;
} runs;

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Notes what a run read. For a timed run also notes how many bytes were read since the last read of each expert. */
static void note_reads(bench_model *model, runs *r, int32_t run, bool timed)
{
    const uint64_t before = model->read_bytes;
    const int32_t *used = r->used + run * model->config.experts;
    model->read_bytes += (uint64_t)r->touched[run] * model->expert_bytes + model->shared_bytes;
    for (int64_t i = 0; i < r->touched[run]; i++) {
        uint64_t *last = &r->copy[run]->last_read[used[i]];
        if (*last > 0 && timed) {
            const uint64_t between = before - *last;
            r->reuse = r->reused && r->reuse < between ? r->reuse : between;
            r->reused = true;
        }
        *last = model->read_bytes;
    }
}

/* ---- a batch ------------------------------------------------------------------------------------------- */

/* The number of runs in a batch that is launched many times: usually eight within BATCH_BYTES, so that a launch costs
 * little per run; or enough to read three times the caches' size; a multiple of the copies. A second launch reads the
 * first one's experts again. So the runs are limited to those that the copies serve without reading an expert twice, if
 * that is twice the caches' size. */
static int32_t runs_at_once(const runs *r, const bench_model *model, bench_routing *routing, int64_t tokens,
                            uint64_t cache_bytes)
{
    const uint64_t never[MOXIE_MAX_EXPERTS] = { 0 };
    const int32_t max = r->backend->max_at_once;
    if (max == 1)
        return 1;
    bench_routing_draw(routing, tokens, never);
    const double bytes = (double)routing->touched * (double)model->expert_bytes + (double)model->shared_bytes + 1;
    const double caches = (double)cache_bytes / bytes;
    const int64_t fresh = model->copies * (routing->touched > 0 ? routing->experts / routing->touched : 1);
    double wanted = fmax(fmin(fmax(BATCH_BYTES / bytes, 2), USUAL_RUNS), 3 * caches + 1);
    if (wanted > model->copies)
        wanted = ceil(wanted / model->copies) * model->copies;
    if ((double)fresh >= 2 * caches + 1)
        wanted = fmin(wanted, (double)fresh);
    return (int32_t)fmin(ceil(wanted), max / model->copies * model->copies);
}

static moxie_status open_batch(runs *r, const bench_model *model, const moxie_run_args *args, moxie_error *error)
{
    const size_t choices = (size_t)(args->tokens * model->config.top_k), at_once = (size_t)r->batch.runs;
    r->ids = malloc(at_once * choices * sizeof *r->ids);
    r->weights = malloc(at_once * choices * sizeof *r->weights);
    r->used = malloc(at_once * (size_t)model->config.experts * sizeof *r->used);
    if (!r->ids || !r->weights || !r->used)
        return cli_error(MOXIE_ERR_MEMORY, error, "", "no memory to route %lld %s %d %s",
                         CLI_COUNT(args->tokens, "token"), r->batch.runs, r->batch.runs == 1 ? "time" : "times");
    for (int32_t i = 0; i < r->batch.runs; i++) {
        r->batch.args[i] = *args;
        r->batch.args[i].ids = r->ids + (size_t)i * choices;
        r->batch.args[i].weights = r->weights + (size_t)i * choices;
    }
    return MOXIE_OK;
}

/* Draws the routing of every run. Where a batch is launched again, its first launch only warms up. */
static void draw_batch(runs *r, bench_model *model, bench_routing *routing, int64_t tokens)
{
    const size_t choices = (size_t)(tokens * routing->top_k);
    const bool again = r->backend->max_at_once > 1;
    for (int32_t i = 0; i < r->batch.runs; i++) {
        bench_copy *copy = &model->copy[routing->draws % (uint64_t)model->copies];
        bench_routing_draw(routing, tokens, copy->last_read);
        memcpy(r->ids + (size_t)i * choices, routing->ids, choices * sizeof *r->ids);
        memcpy(r->weights + (size_t)i * choices, routing->weights, choices * sizeof *r->weights);
        memcpy(r->used + i * model->config.experts, routing->used, (size_t)routing->touched * sizeof *r->used);
        r->copy[i] = copy;
        r->batch.plan[i] = copy->plan;
        r->batch.args[i].adapters = copy->adapters;
        r->batch.args[i].adapter_ids = model->adapter_ids;
        r->touched[i] = routing->touched;
        r->all_touched += (double)routing->touched;
        r->all_pairs += (double)routing->pairs;
        r->all_fullest += (double)routing->fullest;
        r->draws++;
        note_reads(model, r, i, !again);
    }
    for (int32_t i = 0; i < r->batch.runs && again; i++)
        note_reads(model, r, i, true);
}

/* Draws a batch and times `launches` launches of it. */
static moxie_status time_batch(runs *r, bench_model *model, bench_routing *routing, int64_t tokens, int32_t launches,
                               moxie_error *error)
{
    if (r->count + launches > r->capacity) {
        r->capacity = 2 * (r->count + launches);
        r->seconds = cli_realloc(r->seconds, (size_t)r->capacity * sizeof *r->seconds);
        r->quiet = cli_realloc(r->quiet, (size_t)r->capacity * sizeof *r->quiet);
    }
    draw_batch(r, model, routing, tokens);
    const int32_t preempted = r->batch.preempted;
    const moxie_status status = r->backend->time(&r->batch, launches, r->seconds + r->count, error);
    for (int32_t i = 0; i < launches && status == MOXIE_OK; i++) {
        r->total += r->seconds[r->count];
        r->seconds[r->count] /= r->batch.runs;
        if (r->batch.preempted == preempted)
            r->quiet[r->quiet_count++] = r->seconds[r->count];
        r->count++;
    }
    return status;
}

static bool enough(const runs *r, int32_t repeats)
{
    if (repeats > 0)
        return r->count >= repeats;
    return r->count >= MAX_REPEATS || (r->count >= MIN_REPEATS && r->total >= r->backend->line_seconds);
}

/* The first run on a processor does not count: code, workspace and hidden states are cold. `phases`: those of the runs
 * that count. */
static moxie_status time_runs(bench_model *model, bench_routing *routing, int64_t tokens, int32_t repeats, runs *r,
                              bench_phases *phases, moxie_error *error)
{
    moxie_status status = MOXIE_OK;
    if (r->backend->on_host) {
        status = time_batch(r, model, routing, tokens, 1, error);
        r->count = r->quiet_count = r->batch.preempted = 0;
        r->total = r->draws = r->all_touched = r->all_pairs = r->all_fullest = 0;
        r->reuse = 0;
        r->reused = false;
    }
    bench_phases_begin(model, phases);
    while (status == MOXIE_OK && !enough(r, repeats)) {
        const int32_t left = repeats > 0 ? repeats - r->count : MAX_REPEATS, usual = r->backend->launches;
        status = time_batch(r, model, routing, tokens, left < usual ? left : usual, error);
    }
    bench_phases_end(model, r->draws, phases);
    return status;
}

/* ---- a line -------------------------------------------------------------------------------------------- */

/* The share of a run's weights that the caches may have held. Nothing, when 1.5 times their size was read since.
 * (Copies aim at twice their size; a draw may read more than another.) The shared expert is read in every run of its
 * copy. */
static double cached_share(const bench_model *model, const runs *r, uint64_t cache_bytes, const bench_line *line)
{
    const double cache = (double)cache_bytes, shared = (double)model->shared_bytes;
    double cached = 0;
    if (r->reused && (double)r->reuse < 1.5 * cache)
        cached = cache;
    else if (model->copies * line->bytes - shared < 1.5 * cache)
        cached = shared;
    return line->bytes > cached ? cached / line->bytes : cached > 0;
}

static double median_of(double *values, int32_t count)
{
    qsort(values, (size_t)count, sizeof *values, by_value);
    if (count == 0)
        return 0;
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static moxie_status time_host(const runs *r, int32_t repeats, bench_line *line, moxie_error *error)
{
    double equal[HOST_CALLS], kernels[HOST_CALLS];
    const int32_t calls = repeats > 0 && repeats < HOST_CALLS ? repeats : HOST_CALLS;
    if (r->backend->time_host == NULL)
        return MOXIE_OK;
    const moxie_status status = r->backend->time_host(&r->batch, calls, equal, kernels, error);
    if (status == MOXIE_OK) {
        line->host_equal = median_of(equal, calls);
        line->host_kernels = median_of(kernels, calls);
    }
    return status;
}

bool bench_line_is_disturbed(const bench_line *line)
{
    return 10 * line->preempted > line->repeats;
}

static void summarize(const bench_model *model, const runs *r, uint64_t cache_bytes, bench_line *line)
{
    const moxie_layer_config *c = &model->config;
    const double n = r->draws, matrices = moxie_act_is_gated(c->activation.kind) ? 3 : 2;
    line->median = median_of(r->seconds, r->count);
    line->quiet_median = median_of(r->quiet, r->quiet_count);
    line->repeats = r->count;
    line->preempted = r->batch.preempted;
    line->at_once = r->batch.runs;
    line->min = r->seconds[0];
    line->max = r->seconds[r->count - 1];
    line->touched = r->all_touched / n;
    line->fullest = r->all_fullest / n;
    line->bytes = line->touched * (double)model->expert_bytes + (double)model->shared_bytes;
    line->flop = 2 * matrices * (double)c->hidden *
                 (r->all_pairs / n * (double)c->intermediate + (double)line->tokens * (double)c->shared.intermediate);
    line->reuse = r->reuse;
    line->reused = r->reused;
    line->cached = cached_share(model, r, cache_bytes, line);
}

static double output_rms(const moxie_layer_config *config, const void *output, int64_t tokens)
{
    const size_t width = config->dtype == MOXIE_F32 ? 4 : 2;
    const int64_t count = tokens * config->hidden;
    double squares = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t code = 0;
        memcpy(&code, (const char *)output + (size_t)i * width, width);
        const double value = (double)moxie_decode(config->dtype, code);
        squares += value * value;
    }
    return sqrt(squares / (double)count);
}

moxie_status bench_line_time(const bench_backend *backend, bench_model *model, bench_routing *routing, int64_t tokens,
                             int32_t repeats, uint64_t seed, uint64_t cache_bytes, bench_line *out, moxie_error *error)
{
    runs r = { .backend = backend };
    cli_input input = { 0 };
    moxie_layer_config plain = model->config; /* ids are given, so a run needs only hidden states besides */
    plain.router_width = 0;
    plain.routing.select = MOXIE_SELECT_TOPK;
    *out = (bench_line) { .tokens = tokens };
    moxie_run_args args = MOXIE_RUN_ARGS_INIT;
    moxie_status status = cli_input_random(&plain, tokens, seed, CLI_STATES_NORMAL, &input, error);
    if (status == MOXIE_OK)
        cli_input_args(&input, &args);
    args.output = calloc((size_t)(tokens * plain.hidden) + 1, plain.dtype == MOXIE_F32 ? 4 : 2);
    args.workspace = model->workspace;
    args.workspace_bytes = model->workspace_bytes;
    if (status == MOXIE_OK && !args.output)
        status =
            cli_error(MOXIE_ERR_MEMORY, error, "", "no memory for the output of %lld %s", CLI_COUNT(tokens, "token"));
    r.batch.runs = runs_at_once(&r, model, routing, tokens, cache_bytes);
    if (status == MOXIE_OK)
        status = open_batch(&r, model, &args, error);
    if (status == MOXIE_OK)
        status = time_runs(model, routing, tokens, repeats, &r, &out->phases, error);
    if (status == MOXIE_OK)
        summarize(model, &r, cache_bytes, out);
    if (status == MOXIE_OK)
        status = time_host(&r, repeats, out, error);
    if (status == MOXIE_OK)
        out->output_rms = output_rms(&plain, args.output, tokens);
    free(r.ids);
    free(r.weights);
    free(r.used);
    free(r.seconds);
    free(r.quiet);
    free(args.output);
    cli_input_free(&input);
    return status;
}

static bool is_fp8(const moxie_quant *activations)
{
    return activations->element == MOXIE_F8_E4M3 || activations->element == MOXIE_F8_E5M2;
}

/* The limit by which operations count. Without int8 instructions int8 numbers are multiplied as wider ones. */
static bench_by operations_of(const moxie_layer_config *config, const moxie_limits *limits)
{
    if (limits->fp8_tflop_s > 0 && is_fp8(&config->a13) && is_fp8(&config->a2))
        return BENCH_BY_FP8;
    if (limits->int8_top_s > limits->bf16_tflop_s && config->a13.element == MOXIE_I8 && config->a2.element == MOXIE_I8)
        return BENCH_BY_INT8;
    return BENCH_BY_BF16;
}

void bench_line_set_floor(bench_line *line, const moxie_layer_config *config, const moxie_limits *limits)
{
    line->operations = operations_of(config, limits);
    const double rate = bench_limit_value(limits, line->operations);
    const double memory = line->bytes / (limits->read_gb_s * 1e9), compute = line->flop / (rate * 1e12);
    line->by = memory >= compute ? BENCH_BY_MEMORY : line->operations;
    line->floor = fmax(memory, compute);
    line->ratio = line->floor > 0 ? line->median / line->floor : 0;
    line->read_gb_s = limits->read_gb_s;
    line->bf16_tflop_s = limits->bf16_tflop_s;
    line->fp8_tflop_s = line->operations == BENCH_BY_FP8 ? rate : 0;
    line->int8_top_s = line->operations == BENCH_BY_INT8 ? rate : 0;
}
