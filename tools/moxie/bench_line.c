/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_line.c - one batch size: as many runs as it takes, and the floor under them.
 *
 *     run r:   routing drawn anew;  copy r mod copies;  [ moxie_plan_run ] is timed
 *     bytes    = distinct experts of the run x bytes of one, and the shared expert's
 *     flop     = 2 x (chosen pairs x (2 or 1 + 1) H I, and the shared expert's for every token)
 *     floor    = max(bytes / read_gb_s, flop / bf16_tflop_s)
 */
#include "bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define LINE_SECONDS 1.5
enum { LEAST_REPEATS = 5, MOST_REPEATS = 5000 };

typedef struct runs {
    double *seconds;
    int32_t count, capacity, preempted;
    double total, touched, pairs;
    uint64_t reuse;
    bool reused;
} runs;

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Notes what a run read, and how much others had been read since. */
static void note_reads(bench_model *model, bench_copy *copy, const bench_routing *routing, runs *r)
{
    const uint64_t before = model->read_bytes;
    model->read_bytes += (uint64_t)routing->touched * model->expert_bytes + model->shared_bytes;
    for (int64_t i = 0; i < routing->touched; i++) {
        uint64_t *last = &copy->last_read[routing->used[i]];
        if (*last > 0) {
            const uint64_t between = before - *last;
            r->reuse = r->reused && r->reuse < between ? r->reuse : between;
            r->reused = true;
        }
        *last = model->read_bytes;
    }
}

/* How often so far the system took a processor from a thread that was using it. */
static long preemptions(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_nivcsw;
}

static moxie_status run_once(bench_model *model, bench_routing *routing, moxie_run_args *args, runs *r,
                             moxie_error *error)
{
    bench_copy *copy = &model->copy[routing->draws % (uint64_t)model->copies];
    bench_routing_draw(routing, args->tokens, copy->last_read);
    args->ids = routing->ids;
    args->weights = routing->weights;
    const long preempted = preemptions();
    const double start = cli_seconds();
    const moxie_status status = moxie_plan_run(copy->plan, args, error);
    const double seconds = cli_seconds() - start;
    if (status != MOXIE_OK)
        return status;
    r->preempted += preemptions() > preempted;
    note_reads(model, copy, routing, r);
    if (r->count == r->capacity) {
        r->capacity = r->capacity ? 2 * r->capacity : 64;
        double *grown = realloc(r->seconds, (size_t)r->capacity * sizeof *grown);
        if (!grown)
            return cli_error(MOXIE_ERR_MEMORY, error, "", "no memory for %d times", r->capacity);
        r->seconds = grown;
    }
    r->seconds[r->count++] = seconds;
    r->total += seconds;
    r->touched += (double)routing->touched;
    r->pairs += (double)routing->pairs;
    return MOXIE_OK;
}

static bool enough(const runs *r, int32_t repeats)
{
    if (repeats > 0)
        return r->count >= repeats;
    return r->count >= MOST_REPEATS || (r->count >= LEAST_REPEATS && r->total >= LINE_SECONDS);
}

/* The first run is dropped: it finds the code, the workspace and the hidden states cold. */
static moxie_status time_runs(bench_model *model, bench_routing *routing, moxie_run_args *args, int32_t repeats,
                              runs *r, moxie_error *error)
{
    moxie_status status = run_once(model, routing, args, r, error);
    *r = (runs) { .seconds = r->seconds, .capacity = r->capacity };
    while (status == MOXIE_OK && !enough(r, repeats))
        status = run_once(model, routing, args, r, error);
    return status;
}

/* How much of what a run reads the caches may have held: nothing when half as much again as they hold was read since
 * (the copies aim at twice as much, for a draw that reads more than another). The shared expert comes with every run of
 * its copy. */
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

static void summarize(const bench_model *model, const runs *r, uint64_t cache_bytes, bench_line *line)
{
    const moxie_layer_config *c = &model->config;
    const double n = r->count, matrices = moxie_act_is_gated(c->activation.kind) ? 3 : 2;
    qsort(r->seconds, (size_t)r->count, sizeof *r->seconds, by_value);
    line->repeats = r->count;
    line->preempted = r->preempted;
    line->least = r->seconds[0];
    line->most = r->seconds[r->count - 1];
    line->median =
        r->count % 2 ? r->seconds[r->count / 2] : (r->seconds[r->count / 2 - 1] + r->seconds[r->count / 2]) / 2;
    line->touched = r->touched / n;
    line->bytes = line->touched * (double)model->expert_bytes + (double)model->shared_bytes;
    line->flop = 2 * matrices * (double)c->hidden *
                 (r->pairs / n * (double)c->intermediate + (double)line->tokens * (double)c->shared.intermediate);
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

moxie_status bench_line_time(bench_model *model, bench_routing *routing, int64_t tokens, int32_t repeats, uint64_t seed,
                             uint64_t cache_bytes, bench_line *out, moxie_error *error)
{
    runs r = { 0 };
    cli_input input = { 0 };
    moxie_layer_config plain = model->config; /* ids are given: hidden states are all that a run takes besides */
    plain.router_width = 0;
    plain.routing.select = MOXIE_SELECT_TOPK;
    *out = (bench_line) { .tokens = tokens };
    moxie_run_args args = MOXIE_RUN_ARGS_INIT;
    moxie_status status = cli_input_random(&plain, tokens, seed, &input, error);
    if (status == MOXIE_OK)
        cli_input_args(&input, &args);
    args.output = calloc((size_t)(tokens * plain.hidden) + 1, plain.dtype == MOXIE_F32 ? 4 : 2);
    args.workspace = model->workspace;
    args.workspace_bytes = model->workspace_bytes;
    if (status == MOXIE_OK && !args.output)
        status = cli_error(MOXIE_ERR_MEMORY, error, "", "no memory for the output of %lld tokens", (long long)tokens);
    if (status == MOXIE_OK)
        status = time_runs(model, routing, &args, repeats, &r, error);
    if (status == MOXIE_OK)
        summarize(model, &r, cache_bytes, out);
    if (status == MOXIE_OK)
        out->output_rms = output_rms(&plain, args.output, tokens);
    free(r.seconds);
    free(args.output);
    cli_input_free(&input);
    return status;
}

void bench_line_set_floor(bench_line *line, const moxie_limits *limits)
{
    const double memory = line->bytes / (limits->read_gb_s * 1e9), compute = line->flop / (limits->bf16_tflop_s * 1e12);
    line->memory_bound = memory >= compute;
    line->floor = line->memory_bound ? memory : compute;
    line->ratio = line->floor > 0 ? line->median / line->floor : 0;
    line->read_gb_s = limits->read_gb_s;
    line->bf16_tflop_s = limits->bf16_tflop_s;
}
