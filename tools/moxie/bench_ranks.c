/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_ranks.c - a step on ranks, timed beside one rank with as many threads (bench_ranks.h).
 *
 *     for each T: one rank, N ranks, one rank, N ranks, ... -> medians, parts of the median step
 *
 * The two take turns, so that other work on the machine and what is in the caches does to both the same. A step of N
 * ranks lasts from the moment when all are ready until the last one is done, with exchanges and waiting.
 */
#include "bench_ranks.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- arguments ------------------------------------------------------------------------------------- */

/* --ranks beside --simulate-ranks: they run what the model is of. */
static void check_both(struct argp_state *state, const bench_arguments *args)
{
    const cli_ranks_options *local = &args->local;
    bool listed = false;
    for (int i = 0; i < args->ranks.count; i++)
        listed = listed || args->ranks.at[i] == local->ranks;
    if (args->ranks.count == 0 || !cli_ranks_asked(local))
        return;
    if (!listed)
        argp_error(state, "--ranks %d checks the model, and --simulate-ranks does not list %d", (int)local->ranks,
                   (int)local->ranks);
    if (local->lone)
        argp_error(state, "the model is of linear experts and sharded tokens: leave %s out", local->lone);
}

void bench_ranks_check(struct argp_state *state, const bench_arguments *args)
{
    if (!cli_ranks_asked(&args->local))
        return;
    if (args->layer.backend == MOXIE_BACKEND_CUDA && args->ranks.count > 0)
        argp_error(state, "the model is checked by ranks on processors: leave --backend cuda out");
    if (args->local.comm == CLI_COMM_MPI && args->ranks.count > 0)
        argp_error(state, "--simulate-ranks is checked by ranks of this process: leave --comm mpi out");
    if (args->plot || (args->limits_file && args->ranks.count == 0))
        argp_error(state, "%s compares with one rank, not with the machine's limits: leave %s out",
                   args->local.ranks > 0 ? "--ranks" : "--comm", args->plot ? "--plot" : "--limits");
    check_both(state, args);
}

moxie_status bench_ranks_check_processors(const bench *b, moxie_error *error)
{
    const int32_t ranks = b->args->local.ranks, threads = b->executor->workers;
    if (ranks * threads <= b->machine.processors || ranks <= 1)
        return MOXIE_OK;
    return cli_error(
        MOXIE_ERR_ARGUMENT, error, "",
        "the model gives each of %d ranks %lld %s of its own, and this process may use %lld %s: give fewer "
        "--threads or --ranks",
        ranks, CLI_COUNT(threads, "processor"), CLI_COUNT(b->machine.processors, "processor"));
}

/* ---- times ----------------------------------------------------------------------------------------- */

/* What runs in turn. */
typedef struct pair {
    cli_layer_options options, one;
    cli_layer layer; /* one rank's; its views are of the bench */
    cli_ranks *ranks;
    cli_input input;
    void *output;
} pair;

int32_t bench_ranks_threads(const bench *b)
{
    const int64_t all = b->ranks.mpi ? (int64_t)b->executor->workers * b->ranks.ranks : b->executor->workers;
    return (int32_t)(b->ranks.mpi && all > b->machine.processors ? b->machine.processors : all);
}

/* The leader alone has the layer of one rank. */
static moxie_status open_pair(bench *b, const moxie_layer_config *config, int64_t tokens, pair *p, moxie_error *error)
{
    p->ranks = &b->ranks;
    p->layer = b->source;
    p->layer.config = *config;
    p->layer.weights = b->weights;
    moxie_status status = cli_input_random(config, tokens, b->args->seed, CLI_STATES_NORMAL, &p->input, error);
    if (status == MOXIE_OK && !(p->output = calloc((size_t)(tokens * config->hidden) + 1, 4)))
        status =
            cli_error(MOXIE_ERR_MEMORY, error, "", "no memory for the outputs of %lld %s", CLI_COUNT(tokens, "token"));
    if (status == MOXIE_OK && b->ranks.leader)
        status = cli_layer_prepare(&p->one, &p->layer, error);
    status = cli_ranks_agree(p->ranks, status, error);
    return status == MOXIE_OK ? cli_ranks_prepare(p->ranks, &p->options, &p->layer, tokens, error) : status;
}

/* The model and its views stay the bench's. */
static void close_pair(pair *p)
{
    p->input.ids = NULL;
    p->input.weights = NULL;
    p->layer.model = NULL;
    p->layer.file = NULL;
    p->layer.loaded = NULL;
    cli_ranks_release(p->ranks);
    cli_input_free(&p->input);
    cli_layer_close(&p->layer);
    free(p->output);
}

/* Threads of a pool spin for up to 50 ms after a loop, on processors that the other side is to have: with 2 of them a
 * step of 2 ranks took twice its time. So each side waits until the other's have gone to sleep. */
static const double rest_seconds = 0.06;

static void rest(void)
{
    nanosleep(&(struct timespec) { .tv_nsec = (long)(rest_seconds * 1e9) }, NULL);
}

/* Where a step's figures go. */
typedef struct figures {
    double one, many;
    cli_parts parts;
} figures;

static moxie_status step(pair *p, bench_routing *routing, figures *out, moxie_error *error)
{
    static const uint64_t never[MOXIE_MAX_EXPERTS];
    cli_batch batch = { .input = &p->input, .output = p->output, .runs = 1, .seconds = &out->one };
    bench_routing_draw(routing, p->input.tokens, never);
    p->input.ids = routing->ids;
    p->input.weights = routing->weights;
    rest();
    moxie_status status = p->ranks->leader ? cli_layer_run(&p->layer, &batch, error) : MOXIE_OK;
    rest();
    status = cli_ranks_agree(p->ranks, status, error);
    batch.seconds = &out->many;
    batch.parts = &out->parts;
    return status == MOXIE_OK ? cli_ranks_run(p->ranks, &batch, error) : status;
}

static int by_one(const void *a, const void *b)
{
    const double x = ((const figures *)a)->one, y = ((const figures *)b)->one;
    return (x > y) - (x < y);
}

static int by_many(const void *a, const void *b)
{
    const double x = ((const figures *)a)->many, y = ((const figures *)b)->many;
    return (x > y) - (x < y);
}

/* The median of an even number of steps is the longer one of the two in the middle: so its parts are a step's. */
static void summarize(figures *steps, bench_ranks_line *out)
{
    const size_t n = (size_t)out->repeats;
    qsort(steps, n, sizeof *steps, by_one);
    out->one_min = steps[0].one;
    out->one = steps[n / 2].one;
    qsort(steps, n, sizeof *steps, by_many);
    out->many_min = steps[0].many;
    out->many = steps[n / 2].many;
    out->parts = steps[n / 2].parts;
}

enum { FEWEST = 5 };

/* Without --repeats, about three seconds. */
static int32_t repeats_of(const bench_arguments *args, double first)
{
    const int32_t some = (int32_t)(3 / (first + 2 * rest_seconds));
    return args->repeats > 0 ? args->repeats : some > FEWEST ? some : FEWEST;
}

static moxie_status time_pair(const bench *b, pair *p, bench_routing *routing, bench_ranks_line *out,
                              moxie_error *error)
{
    figures warm = { .one = 0 };
    moxie_status status = MOXIE_OK;
    for (int i = 0; i < 2 && status == MOXIE_OK; i++)
        status = step(p, routing, &warm, error);
    int64_t repeats = p->ranks->leader ? repeats_of(b->args, warm.one + warm.many) : 0;
    if (status == MOXIE_OK)
        status = cli_ranks_largest(p->ranks, &repeats, error);
    if (status != MOXIE_OK)
        return status;
    out->repeats = (int32_t)repeats;
    figures *steps = cli_alloc((size_t)repeats * sizeof *steps);
    for (int64_t i = 0; i < repeats && status == MOXIE_OK; i++)
        status = step(p, routing, &steps[i], error);
    if (status == MOXIE_OK)
        summarize(steps, out);
    free(steps);
    return status;
}

moxie_status bench_ranks_time(bench *b, const moxie_layer_config *config, bench_routing *routing, int64_t tokens,
                              int32_t threads, int32_t one_threads, bench_ranks_line *out, moxie_error *error)
{
    pair p = { .options = b->args->layer };
    p.options.threads = threads;
    p.options.tokens = tokens;
    p.options.json = true; /* no progress bar: it would be drawn for every size */
    p.one = p.options;
    p.one.threads = one_threads;
    *out = (bench_ranks_line) { .tokens = tokens };
    moxie_status status = open_pair(b, config, tokens, &p, error);
    if (status == MOXIE_OK)
        status = time_pair(b, &p, routing, out, error);
    close_pair(&p);
    return status;
}

moxie_status bench_ranks(bench *b, moxie_error *error)
{
    bench_ranks_line lines[CLI_MAX_SIZES];
    moxie_status status = MOXIE_OK;
    cli_progress progress;
    cli_progress_begin(&progress, "run");
    progress.terminal = progress.terminal && !b->args->layer.json && b->ranks.leader;
    for (int i = 0; i < b->n_lines && status == MOXIE_OK; i++) {
        cli_progress_show(&progress, (uint64_t)i, (uint64_t)b->n_lines);
        status = bench_ranks_time(b, &b->model.config, &b->routing, b->tokens[i], b->executor->workers,
                                  bench_ranks_threads(b), &lines[i], error);
    }
    cli_progress_end(&progress);
    if (status == MOXIE_OK && b->ranks.leader)
        (b->args->layer.json ? bench_ranks_print_json : bench_ranks_print_text)(b, lines);
    return status;
}
