/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_ranks_cuda.c - `moxie bench --ranks N --backend cuda`: steps of ranks on GPUs (bench_ranks.h).
 *
 *     --exchange-capacity C   lines of at most C tokens a rank: STEPS steps in one graph, where rows travel from device
 *                             to device; the capacity is the line's tokens a rank
 *     other lines             the calls, STEPS after each other, until the stream has ended
 *
 * Each step has experts of its own, those that were read longest ago. The time of a step is a STEPSth of the slowest
 * rank's time. The parts are of other steps, with a wait at the end of each; so together they are longer than the step.
 */
#include "bench_ranks.h"

#include <stdlib.h>
#include <string.h>

enum { STEPS = 8, LAUNCHES = 20 };

typedef struct line {
    int64_t tokens, each; /* of all ranks, of the rank with the most */
    bool fixed;
    double median, fastest;
    cli_parts parts;
} line;

/* ---- times ----------------------------------------------------------------------------------------- */

/* Inputs that differ in their experts only. */
typedef struct steps {
    cli_input input[STEPS];
    cli_batch batch[STEPS];
    void *output;
} steps;

static void steps_free(steps *s)
{
    for (int i = 0; i < STEPS; i++) {
        free(s->input[i].ids);
        free(s->input[i].weights);
        s->input[i].ids = NULL;
        s->input[i].weights = NULL;
    }
    cli_input_free(&s->input[0]);
    free(s->output);
}

static moxie_status steps_make(bench *b, int64_t tokens, steps *s, moxie_error *error)
{
    const moxie_layer_config *c = &b->model.config;
    const size_t choices = (size_t)(tokens * c->top_k);
    uint64_t last_read[MOXIE_MAX_EXPERTS] = { 0 };
    memset(s, 0, sizeof *s);
    s->output = cli_alloc((size_t)(tokens * c->hidden) * sizeof(float) + 1);
    const moxie_status status = cli_input_random(c, tokens, b->args->seed, CLI_STATES_NORMAL, &s->input[0], error);
    for (int i = 0; status == MOXIE_OK && i < STEPS; i++) {
        bench_routing_draw(&b->routing, tokens, last_read);
        for (int64_t e = 0; e < b->routing.touched; e++)
            last_read[b->routing.used[e]] = (uint64_t)i + 1;
        s->input[i] = s->input[0];
        s->input[i].ids = cli_alloc(choices * sizeof(int32_t) + 1);
        s->input[i].weights = cli_alloc(choices * sizeof(float) + 1);
        memcpy(s->input[i].ids, b->routing.ids, choices * sizeof(int32_t));
        memcpy(s->input[i].weights, b->routing.weights, choices * sizeof(float));
        s->batch[i] = (cli_batch) { .input = &s->input[i], .output = s->output, .runs = 1 };
    }
    return status;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static moxie_status time_line(bench *b, line *out, moxie_error *error)
{
    cli_ranks *ranks = &b->ranks;
    const int32_t launches = b->args->repeats > 0 ? b->args->repeats : LAUNCHES;
    const bool sharded = ranks->options.tokens_as == MOXIE_TOKENS_SHARDED;
    steps s;
    out->each = (out->tokens + ranks->ranks - 1) / ranks->ranks;
    out->fixed = out->each > 0 && out->each <= b->args->local.capacity;
    double *seconds = cli_alloc((size_t)launches * sizeof *seconds);
    moxie_status status = cli_ranks_agree(ranks, steps_make(b, out->tokens, &s, error), error);
    if (status == MOXIE_OK)
        status = cli_ranks_plan_anew(ranks, sharded ? out->each : out->tokens, out->fixed ? out->each : 0, error);
    if (status == MOXIE_OK)
        status = cli_ranks_time(ranks, s.batch, STEPS, launches, seconds, &out->parts, error);
    if (status == MOXIE_OK && ranks->leader) {
        qsort(seconds, (size_t)launches, sizeof *seconds, by_value);
        out->median = seconds[launches / 2] / STEPS;
        out->fastest = seconds[0] / STEPS;
    }
    steps_free(&s);
    free(seconds);
    return status;
}

/* ---- report ---------------------------------------------------------------------------------------- */

/* Phases in groups; seconds. */
typedef struct groups {
    double route, dispatch, products, gather, back, combine;
} groups;

static groups group(const cli_parts *parts)
{
    groups g = { 0 };
    const struct {
        const char *name;
        double *sum;
    } own[] = { { "route", &g.route }, { "dispatch", &g.dispatch }, { "exchange", &g.gather },
                { "wait", &g.gather }, { "return", &g.back },       { "combine", &g.combine } };
    for (int32_t i = 0; i < parts->count; i++) {
        double *sum = &g.products;
        for (size_t j = 0; j < sizeof own / sizeof own[0]; j++)
            if (strcmp(own[j].name, parts->name[i]) == 0)
                sum = own[j].sum;
        *sum += parts->seconds[i];
    }
    return g;
}

static const char *comm_name(const bench *b)
{
    return b->args->local.comm == CLI_COMM_NCCL ? "nccl" : b->ranks.mpi ? "mpi" : "local";
}

/* Over NCCL a graph holds steps of a fixed capacity. */
static bool in_graph(const bench *b, const line *l)
{
    return l->fixed && b->args->local.comm == CLI_COMM_NCCL;
}

static void print_text(const bench *b, const line *lines)
{
    static const char *const headings[] = { ">tokens",   ">a rank", "timed as",  ">step ms", ">fastest", ">route",
                                            ">dispatch", ">gather", ">products", ">return",  ">combine", ">sent MB" };
    const moxie_layer_config *c = &b->model.config;
    cli_table table;
    char ms[32];
    printf("%s%s%s: %lld %s, top-%lld, hidden %lld, intermediate %lld\n",
           b->args->preset.name ? b->args->preset.name : b->args->layer.dir, b->format[0] ? ", " : "", b->format,
           CLI_COUNT(c->experts, "expert"), (long long)c->top_k, (long long)c->hidden, (long long)c->intermediate);
    printf("%lld %s on GPUs, --tp %d, comm %s, tokens %s; %s routing\n\n", CLI_COUNT(b->ranks.ranks, "rank"),
           b->args->local.tp > 0 ? (int)b->args->local.tp : 1, comm_name(b), cli_tokens_as(b->args->local.tokens_as),
           cli_printable(b->routing.name));
    cli_table_begin(&table, 12, headings);
    for (int i = 0; i < b->n_lines; i++) {
        const groups g = group(&lines[i].parts);
        const double times[] = { g.route, g.dispatch, g.gather, g.products, g.back, g.combine };
        cli_table_add(&table, "%lld", (long long)lines[i].tokens);
        cli_table_add(&table, "%lld", (long long)lines[i].each);
        cli_table_add(&table, "%s", in_graph(b, &lines[i]) ? "graph" : "calls");
        cli_table_add(&table, "%s", bench_ms(lines[i].median, ms));
        cli_table_add(&table, "%s", bench_ms(lines[i].fastest, ms));
        for (size_t j = 0; j < sizeof times / sizeof times[0]; j++)
            cli_table_add(&table, "%s", bench_ms(times[j], ms));
        cli_table_add(&table, "%.3f", lines[i].parts.sent_bytes * 1e-6);
    }
    cli_table_print(&table);
    cli_table_free(&table);
    printf("step: the slowest rank's, %d after each other; a median. Parts: of calls with a wait at the end of each, "
           "means "
           "over the ranks; together they are longer. dispatch has what ranks agree on before, which a graph has not. "
           "gather: tensor parallel ranks'.\n",
           STEPS);
}

static json_t *line_json(const bench *b, const line *l)
{
    const groups g = group(&l->parts);
    return cli_pack("{s:I, s:I, s:s, s:b, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "tokens",
                    (json_int_t)l->tokens, "tokens_a_rank", (json_int_t)l->each, "timed_as",
                    in_graph(b, l) ? "graph" : "calls", "fixed_capacity", (int)l->fixed, "step_ms", l->median * 1e3,
                    "step_min_ms", l->fastest * 1e3, "route_ms", g.route * 1e3, "dispatch_ms", g.dispatch * 1e3,
                    "gather_ms", g.gather * 1e3, "products_ms", g.products * 1e3, "return_ms", g.back * 1e3,
                    "combine_ms", g.combine * 1e3, "sent_bytes", l->parts.sent_bytes);
}

static void print_json(const bench *b, const line *lines)
{
    json_t *object = cli_json_begin("bench"), *array = json_array();
    for (int i = 0; i < b->n_lines; i++)
        cli_json_append(array, line_json(b, &lines[i]));
    cli_json_merge(object,
                   cli_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:s, s:s, s:i, s:I, s:o}", "kind", "ranks_on_gpus",
                            "backend", "cuda", "scheme", b->format, "routing", cli_utf8(b->routing.name), "ranks",
                            (int)b->ranks.ranks, "tp", b->args->local.tp > 0 ? (int)b->args->local.tp : 1, "tokens_as",
                            cli_tokens_as(b->args->local.tokens_as), "comm", comm_name(b), "steps", STEPS, "seed",
                            (json_int_t)b->args->seed, "lines", array));
    cli_json_set(object, "preset", b->args->preset.name ? cli_json_string(b->args->preset.name) : json_null());
    cli_json_end(object);
}

moxie_status bench_ranks_on_cuda(bench *b, moxie_error *error)
{
    line lines[CLI_MAX_SIZES] = { { 0 } };
    cli_layer layer = b->source;
    layer.config = b->model.config;
    layer.weights = b->weights;
    layer.executor = b->executor;
    b->ranks.options.capacity = 0;
    moxie_status status = cli_ranks_prepare(&b->ranks, &b->args->layer, &layer, 1, error);
    for (int i = 0; i < b->n_lines && status == MOXIE_OK; i++) {
        lines[i].tokens = b->tokens[i];
        status = time_line(b, &lines[i], error);
    }
    if (status == MOXIE_OK && b->ranks.leader)
        (b->args->layer.json ? print_json : print_text)(b, lines);
    cli_ranks_release(&b->ranks);
    return status;
}
