/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_ranks.c - a step on local ranks, timed beside one rank with as many threads (bench_ranks.h).
 *
 *     for each T: one rank, N ranks, one rank, N ranks, ... -> medians -> table or JSON
 *
 * The two take turns, so that other work on the machine and what is in the caches does to both the same. A step of N
 * ranks lasts from the moment when all are ready until the last one is done, with exchanges and waiting.
 */
#include "bench_ranks.h"

#include <stdlib.h>
#include <string.h>

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
    if (args->layer.backend == MOXIE_BACKEND_CUDA)
        argp_error(state, "--ranks are threads of this process and run on its processors: leave --backend cuda out");
    if (args->plot || (args->limits_file && args->ranks.count == 0))
        argp_error(state, "--ranks compares with one rank, not with the machine's limits: leave %s out",
                   args->plot ? "--plot" : "--limits");
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
    cli_layer_options options;
    cli_layer layer; /* one rank's; its views are of the bench */
    cli_ranks ranks;
    cli_input input;
    void *output;
} pair;

static moxie_status open_pair(const bench *b, const moxie_layer_config *config, int64_t tokens, int32_t threads,
                              pair *p, moxie_error *error)
{
    p->options = b->args->layer;
    p->options.threads = threads;
    p->options.tokens = tokens;
    p->options.json = true; /* no progress bar: it would be drawn for every size */
    p->layer = b->source;
    p->layer.config = *config;
    p->layer.weights = b->weights;
    moxie_status status = cli_ranks_begin(&b->args->local, &p->ranks, error);
    if (status == MOXIE_OK)
        status = cli_input_random(config, tokens, b->args->seed, CLI_STATES_NORMAL, &p->input, error);
    if (status == MOXIE_OK && !(p->output = calloc((size_t)(tokens * config->hidden) + 1, 4)))
        status =
            cli_error(MOXIE_ERR_MEMORY, error, "", "no memory for the outputs of %lld %s", CLI_COUNT(tokens, "token"));
    if (status == MOXIE_OK)
        status = cli_layer_prepare(&p->options, &p->layer, error);
    return status == MOXIE_OK ? cli_ranks_prepare(&p->ranks, &p->options, &p->layer, tokens, error) : status;
}

/* The model and its views stay the bench's. */
static void close_pair(pair *p)
{
    p->input.ids = NULL;
    p->input.weights = NULL;
    p->layer.model = NULL;
    p->layer.loaded = NULL;
    cli_ranks_end(&p->ranks);
    cli_input_free(&p->input);
    cli_layer_close(&p->layer);
    free(p->output);
}

static moxie_status step(pair *p, bench_routing *routing, double *one, double *many, moxie_error *error)
{
    static const uint64_t never[MOXIE_MAX_EXPERTS];
    cli_batch batch = { .input = &p->input, .output = p->output, .runs = 1, .seconds = one };
    bench_routing_draw(routing, p->input.tokens, never);
    p->input.ids = routing->ids;
    p->input.weights = routing->weights;
    const moxie_status status = cli_layer_run(&p->layer, &batch, error);
    batch.seconds = many;
    return status == MOXIE_OK ? cli_ranks_run(&p->ranks, &batch, error) : status;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void sort(double *times, int32_t count, double *median, double *min)
{
    qsort(times, (size_t)count, sizeof *times, by_size);
    *min = times[0];
    *median = count % 2 ? times[count / 2] : (times[count / 2 - 1] + times[count / 2]) / 2;
}

enum { FEWEST = 5, MOST = 1000 };

/* Without --repeats, about a second. */
static int32_t repeats_of(const bench_arguments *args, double first)
{
    if (args->repeats > 0)
        return args->repeats;
    return first * MOST < 1 ? MOST : first * FEWEST > 1 ? FEWEST : (int32_t)(1 / first);
}

static moxie_status time_pair(const bench *b, pair *p, bench_routing *routing, bench_ranks_line *out,
                              moxie_error *error)
{
    double warm[2] = { 0, 0 };
    moxie_status status = MOXIE_OK;
    for (int i = 0; i < 2 && status == MOXIE_OK; i++)
        status = step(p, routing, &warm[0], &warm[1], error);
    if (status != MOXIE_OK)
        return status;
    out->repeats = repeats_of(b->args, warm[0] + warm[1]);
    double *one = cli_alloc(2 * (size_t)out->repeats * sizeof *one), *many = one + out->repeats;
    for (int32_t i = 0; i < out->repeats && status == MOXIE_OK; i++)
        status = step(p, routing, &one[i], &many[i], error);
    if (status == MOXIE_OK) {
        sort(one, out->repeats, &out->one, &out->one_min);
        sort(many, out->repeats, &out->many, &out->many_min);
    }
    free(one);
    return status;
}

moxie_status bench_ranks_time(const bench *b, const moxie_layer_config *config, bench_routing *routing, int64_t tokens,
                              int32_t threads, bench_ranks_line *out, moxie_error *error)
{
    pair p;
    memset(&p, 0, sizeof p);
    *out = (bench_ranks_line) { .tokens = tokens };
    moxie_status status = open_pair(b, config, tokens, threads, &p, error);
    if (status == MOXIE_OK)
        status = time_pair(b, &p, routing, out, error);
    close_pair(&p);
    return status;
}

/* ---- output ---------------------------------------------------------------------------------------- */

static void print_text(const bench *b, const bench_ranks_line *lines)
{
    static const char *const headings[] = { ">tokens",  ">one rank ms", ">fastest", ">ranks ms",
                                            ">fastest", ">ranks / one", ">runs" };
    const cli_ranks_options *local = &b->args->local;
    const moxie_layer_config *c = &b->model.config;
    char ms[32];
    cli_table table;
    printf("%s%s%s: %lld %s, top-%lld, hidden %lld, intermediate %lld\n",
           b->args->preset.name ? b->args->preset.name : b->args->layer.dir, b->format[0] ? ", " : "", b->format,
           CLI_COUNT(c->experts, "expert"), (long long)c->top_k, (long long)c->hidden, (long long)c->intermediate);
    printf("%lld %s, --tp %d, experts %s, tokens %s; %s routing; %lld %s\n\n", CLI_COUNT(local->ranks, "rank"),
           local->tp > 0 ? (int)local->tp : 1, local->map ? cli_printable(local->map) : "linear",
           cli_tokens_as(local->tokens_as), cli_printable(b->routing.name), CLI_COUNT(b->executor->workers, "thread"));
    cli_table_begin(&table, 7, headings);
    for (int i = 0; i < b->n_lines; i++) {
        const double times[] = { lines[i].one, lines[i].one_min, lines[i].many, lines[i].many_min };
        cli_table_add(&table, "%lld", (long long)lines[i].tokens);
        for (int j = 0; j < 4; j++)
            cli_table_add(&table, "%s", bench_ms(times[j], ms));
        cli_table_add(&table, "%.2f", lines[i].many / lines[i].one);
        cli_table_add(&table, "%d", (int)lines[i].repeats);
    }
    cli_table_print(&table);
    cli_table_free(&table);
    printf("tokens: of all ranks together. Times are medians of whole steps, with exchanges and waiting; one rank has "
           "all threads.\n");
}

static void print_json(const bench *b, const bench_ranks_line *lines)
{
    const cli_ranks_options *local = &b->args->local;
    json_t *object = cli_json_begin("bench"), *array = json_array();
    for (int i = 0; i < b->n_lines; i++) {
        const bench_ranks_line *l = &lines[i];
        cli_json_append(array, cli_pack("{s:I, s:i, s:f, s:f, s:f, s:f, s:f}", "tokens", (json_int_t)l->tokens,
                                        "repeats", (int)l->repeats, "one_rank_ms", l->one * 1e3, "one_rank_min_ms",
                                        l->one_min * 1e3, "ranks_ms", l->many * 1e3, "ranks_min_ms", l->many_min * 1e3,
                                        "ratio", l->many / l->one));
    }
    cli_json_merge(object,
                   cli_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:s, s:s, s:i, s:I, s:o}", "kind", "ranks", "cpu",
                            cli_utf8(b->machine.cpu), "scheme", b->format, "routing", cli_utf8(b->routing.name),
                            "ranks", (int)local->ranks, "tp", local->tp > 0 ? (int)local->tp : 1, "ep_map",
                            cli_utf8(local->map ? local->map : "linear"), "tokens_as", cli_tokens_as(local->tokens_as),
                            "threads", (int)b->executor->workers, "seed", (json_int_t)b->args->seed, "lines", array));
    cli_json_set(object, "preset", b->args->preset.name ? cli_json_string(b->args->preset.name) : json_null());
    cli_json_end(object);
}

moxie_status bench_ranks(bench *b, moxie_error *error)
{
    bench_ranks_line lines[CLI_MAX_SIZES];
    moxie_status status = MOXIE_OK;
    cli_progress progress;
    cli_progress_begin(&progress, "run");
    progress.terminal = progress.terminal && !b->args->layer.json;
    for (int i = 0; i < b->n_lines && status == MOXIE_OK; i++) {
        cli_progress_show(&progress, (uint64_t)i, (uint64_t)b->n_lines);
        status =
            bench_ranks_time(b, &b->model.config, &b->routing, b->tokens[i], b->executor->workers, &lines[i], error);
    }
    cli_progress_end(&progress);
    if (status == MOXIE_OK)
        (b->args->layer.json ? print_json : print_text)(b, lines);
    return status;
}
