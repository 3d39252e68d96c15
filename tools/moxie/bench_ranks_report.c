/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_ranks_report.c - what `moxie bench --ranks` prints: whole steps, and the parts of the median one.
 *
 *     step = products + exchange + wait        means over the ranks
 *
 * A rank also waits when it is done, for the last one: that is the part of the step in which it is in no phase.
 */
#include <string.h>

#include "bench_ranks.h"

bench_ranks_groups bench_ranks_group(const bench_ranks_line *line)
{
    bench_ranks_groups g = { .products = 0 };
    for (int32_t i = 0; i < line->parts.count; i++) {
        const double seconds = line->parts.seconds[i];
        if (strcmp(line->parts.name[i], "exchange") == 0)
            g.exchange += seconds;
        else if (strcmp(line->parts.name[i], "wait") != 0)
            g.products += seconds;
    }
    g.wait = line->many - g.products - g.exchange;
    return g;
}

static void print_head(const bench *b)
{
    const cli_ranks_options *local = &b->args->local;
    const moxie_layer_config *c = &b->model.config;
    printf("%s%s%s: %lld %s, top-%lld, hidden %lld, intermediate %lld\n",
           b->args->preset.name ? b->args->preset.name : b->args->layer.dir, b->format[0] ? ", " : "", b->format,
           CLI_COUNT(c->experts, "expert"), (long long)c->top_k, (long long)c->hidden, (long long)c->intermediate);
    printf("%lld %s, --tp %d, experts %s, tokens %s; %s routing; %lld %s%s\n\n", CLI_COUNT(b->ranks.ranks, "rank"),
           local->tp > 0 ? (int)local->tp : 1, local->map ? cli_printable(local->map) : "linear",
           cli_tokens_as(local->tokens_as), cli_printable(b->routing.name), CLI_COUNT(b->executor->workers, "thread"),
           b->ranks.mpi ? " each, over MPI" : "");
}

void bench_ranks_print_text(const bench *b, const bench_ranks_line *lines)
{
    static const char *const headings[] = { ">tokens",  ">one rank ms", ">fastest",  ">ranks ms",
                                            ">fastest", ">ranks / one", ">products", ">exchange",
                                            ">wait ms", ">sent MB",     ">runs" };
    char ms[32];
    cli_table table;
    print_head(b);
    cli_table_begin(&table, 11, headings);
    for (int i = 0; i < b->n_lines; i++) {
        const bench_ranks_groups g = bench_ranks_group(&lines[i]);
        const double times[] = { lines[i].one, lines[i].one_min, lines[i].many, lines[i].many_min };
        const double parts[] = { g.products, g.exchange, g.wait };
        cli_table_add(&table, "%lld", (long long)lines[i].tokens);
        for (int j = 0; j < 4; j++)
            cli_table_add(&table, "%s", bench_ms(times[j], ms));
        cli_table_add(&table, "%.2f", lines[i].many / lines[i].one);
        for (int j = 0; j < 3; j++)
            cli_table_add(&table, "%s", bench_ms(parts[j], ms));
        cli_table_add(&table, "%.3f", lines[i].parts.sent_bytes * 1e-6);
        cli_table_add(&table, "%d", (int)lines[i].repeats);
    }
    cli_table_print(&table);
    cli_table_free(&table);
    printf("tokens: of all ranks together. Times are medians of whole steps; one rank has %lld %s.\n"
           "products, exchange, wait: the parts of the median step, means over the ranks; wait: for other ranks' rows, "
           "and "
           "for the last one's end. sent: by a rank to others.\n",
           CLI_COUNT(bench_ranks_threads(b), "thread"));
}

static json_t *parts_json(const bench_ranks_line *line)
{
    json_t *phases = json_object();
    for (int32_t i = 0; i < line->parts.count; i++)
        cli_json_set(phases, line->parts.name[i], json_real(line->parts.seconds[i] * 1e3));
    const bench_ranks_groups g = bench_ranks_group(line);
    return cli_pack("{s:f, s:f, s:f, s:f, s:o}", "products_ms", g.products * 1e3, "exchange_ms", g.exchange * 1e3,
                    "wait_ms", g.wait * 1e3, "sent_bytes", line->parts.sent_bytes, "phases_ms", phases);
}

void bench_ranks_print_json(const bench *b, const bench_ranks_line *lines)
{
    const cli_ranks_options *local = &b->args->local;
    json_t *object = cli_json_begin("bench"), *array = json_array();
    for (int i = 0; i < b->n_lines; i++) {
        const bench_ranks_line *l = &lines[i];
        cli_json_append(array, cli_pack("{s:I, s:i, s:f, s:f, s:f, s:f, s:f, s:o}", "tokens", (json_int_t)l->tokens,
                                        "repeats", (int)l->repeats, "one_rank_ms", l->one * 1e3, "one_rank_min_ms",
                                        l->one_min * 1e3, "ranks_ms", l->many * 1e3, "ranks_min_ms", l->many_min * 1e3,
                                        "ratio", l->many / l->one, "parts", parts_json(l)));
    }
    cli_json_merge(object,
                   cli_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:s, s:s, s:s, s:i, s:i, s:I, s:o}", "kind", "ranks", "cpu",
                            cli_utf8(b->machine.cpu), "scheme", b->format, "routing", cli_utf8(b->routing.name),
                            "ranks", (int)b->ranks.ranks, "tp", local->tp > 0 ? (int)local->tp : 1, "ep_map",
                            cli_utf8(local->map ? local->map : "linear"), "tokens_as", cli_tokens_as(local->tokens_as),
                            "comm", b->ranks.mpi ? "mpi" : "local", "threads", (int)b->executor->workers,
                            "one_rank_threads", (int)bench_ranks_threads(b), "seed", (json_int_t)b->args->seed, "lines",
                            array));
    cli_json_set(object, "preset", b->args->preset.name ? cli_json_string(b->args->preset.name) : json_null());
    cli_json_end(object);
}
