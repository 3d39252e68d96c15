/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_simulate_report.c - what `moxie bench --simulate-ranks` found, as a table or as JSON with one row for each
 * number of ranks and tokens. Both say what was measured, what was given and what is a model.
 */
#include "bench_simulate.h"

#include <string.h>

static const char nature[] =
    "a model: products and the shared expert were measured on this machine, the link is as given, loads and rows are "
    "counted; nothing overlaps, and no message meets another one";

static double gain(const sim_row *row)
{
    return row->linear.seconds / row->eplb.seconds - 1;
}

static double error_of(const sim_row *row)
{
    return row->linear.seconds / row->measured - 1;
}

static void print_head(const simulation *sim)
{
    char title[256], subtitle[256];
    const moxie_layer_config *c = &sim->whole;
    bench_titles(sim->b, title, subtitle, sizeof title);
    printf("%s\n%s\n", title, subtitle);
    printf("%lld %s, top-%lld, hidden %lld, intermediate %lld\n", CLI_COUNT(c->experts, "expert"), (long long)c->top_k,
           (long long)c->hidden, (long long)c->intermediate);
    printf("plan    %s\n", sim->b->plan);
    printf("link    %.6g GB/s in each direction, %.6g us a message (as given)\n", sim->link.gb_s, sim->link.us);
    printf("%s\n\n", nature);
}

static void add_ms(cli_table *table, double seconds)
{
    char ms[32];
    cli_table_add(table, "%s", bench_ms(seconds, ms));
}

static void print_rows(const simulation *sim)
{
    static const char *const headings[] = { ">ranks",      ">tokens",    ">choices", ">most", ">dispatch ms",
                                            ">products",   ">shared",    ">return",  ">step", ">tokens/s",
                                            ">efficiency", ">EPLB most", ">step",    ">gain" };
    cli_table table;
    cli_table_begin(&table, 14, headings);
    for (int i = 0; i < sim->n_rows; i++) {
        const sim_row *r = &sim->rows[i];
        cli_table_add(&table, "%lld", (long long)r->ranks);
        cli_table_add(&table, "%lld", (long long)r->tokens);
        cli_table_add(&table, "%.1f", r->linear.traffic.choices_mean);
        cli_table_add(&table, "%.1f", r->linear.traffic.choices_max);
        add_ms(&table, r->linear.traffic.dispatch);
        add_ms(&table, r->linear.products);
        add_ms(&table, r->shared);
        add_ms(&table, r->linear.traffic.give_back);
        add_ms(&table, r->linear.seconds);
        cli_table_add(&table, "%.0f", (double)(r->ranks * r->tokens) / r->linear.seconds);
        cli_table_add(&table, "%.0f %%", 100 * r->efficiency);
        cli_table_add(&table, "%.1f", r->eplb.traffic.choices_max);
        add_ms(&table, r->eplb.seconds);
        cli_table_add(&table, "%+.0f %%", 100 * gain(r));
    }
    cli_table_print(&table);
    cli_table_free(&table);
}

/* How many measured points other work disturbed, and how many were read from caches in part. */
static void count_rough(const simulation *sim, int *disturbed, int *cached)
{
    *disturbed = *cached = 0;
    for (int i = 0; i < sim->n_points; i++) {
        *disturbed += bench_line_is_disturbed(&sim->points[i].line);
        *cached += sim->points[i].line.cached > BENCH_FEW_CACHED;
    }
}

static int32_t fewest_runs(const simulation *sim)
{
    int32_t fewest = sim->points[0].line.repeats;
    for (int i = 1; i < sim->n_points; i++)
        fewest = sim->points[i].line.repeats < fewest ? sim->points[i].line.repeats : fewest;
    return fewest;
}

void sim_print_text(const simulation *sim)
{
    int disturbed, cached;
    char ms[32];
    print_head(sim);
    print_rows(sim);
    printf("tokens: of each rank. choices: (token, expert) pairs of a rank, the mean; most: of the most loaded one. "
           "efficiency: the step of the first row over this one's.\n");
    printf("EPLB: one slot more on each rank, placed by the loads of %s%lld %s.\n",
           sim->b->routing.file_tokens ? "the trace's " : "", CLI_COUNT(sim->history, "token"));
    printf("measured: %d times of products, from %d runs or more each.\n", sim->n_points, fewest_runs(sim));
    for (int i = 0; i < sim->n_rows; i++)
        if (sim->rows[i].measured > 0)
            printf("checked: the step of %lld %s with %lld %s took %s ms here; the model is off by %+.0f %%.\n",
                   CLI_COUNT(sim->rows[i].ranks, "rank"), CLI_COUNT(sim->rows[i].tokens, "token"),
                   bench_ms(sim->rows[i].measured, ms), 100 * error_of(&sim->rows[i]));
    count_rough(sim, &disturbed, &cached);
    if (sim->extrapolated)
        printf("the most loaded rank has more than %d choices: its time goes on straight past that.\n",
               SIM_MEASURED_CHOICES);
    if (disturbed > 0)
        printf("other work disturbed %d of these times.\n", disturbed);
    if (cached > 0)
        printf("in %d of these times some weights may have come from the caches.\n", cached);
}

/* ---- JSON ---------------------------------------------------------------------------------------------- */

static json_t *json_step(const sim_step *s)
{
    const sim_traffic *t = &s->traffic;
    return cli_pack("{s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "experts_per_rank", (json_int_t)t->experts,
                    "choices_mean", t->choices_mean, "choices_max", t->choices_max, "dispatch_rows_max", t->rows_max,
                    "return_rows_max", t->returned_max, "dispatch_ms", t->dispatch * 1e3, "products_ms",
                    s->products * 1e3, "return_ms", t->give_back * 1e3, "step_ms", s->seconds * 1e3);
}

/* measured_step_ms and error: the same step as it ran on this machine, and how far the model is off; null where it did
 * not. */
static json_t *json_row(const sim_row *r)
{
    json_t *row = json_step(&r->linear);
    cli_json_merge(row, cli_pack("{s:I, s:I, s:f, s:f, s:f, s:f}", "ranks", (json_int_t)r->ranks, "tokens_per_rank",
                                 (json_int_t)r->tokens, "shared_ms", r->shared * 1e3, "tokens_per_s",
                                 (double)(r->ranks * r->tokens) / r->linear.seconds, "efficiency", r->efficiency,
                                 "eplb_gain", gain(r)));
    cli_json_set(row, "measured_step_ms", r->measured > 0 ? json_real(r->measured * 1e3) : json_null());
    cli_json_set(row, "error", r->measured > 0 ? json_real(error_of(r)) : json_null());
    cli_json_set(row, "eplb", json_step(&r->eplb));
    return row;
}

static json_t *json_points(const sim_point *points, int count)
{
    json_t *all = json_array();
    for (int i = 0; i < count; i++) {
        const bench_line *l = &points[i].line;
        cli_json_append(all, cli_pack("{s:I, s:I, s:f, s:f, s:f, s:f, s:i, s:b, s:f}", "experts",
                                      (json_int_t)points[i].experts, "choices", (json_int_t)points[i].choices,
                                      "median_ms", l->median * 1e3, "min_ms", l->min * 1e3, "max_ms", l->max * 1e3,
                                      "quiet_median_ms", l->quiet_median * 1e3, "repeats", l->repeats, "disturbed",
                                      bench_line_is_disturbed(l), "cached", l->cached));
    }
    return all;
}

void sim_print_json(const simulation *sim)
{
    const bench *b = sim->b;
    const moxie_layer_config *c = &sim->whole;
    json_t *object = cli_json_begin("bench"), *rows = json_array();
    for (int i = 0; i < sim->n_rows; i++)
        cli_json_append(rows, json_row(&sim->rows[i]));
    cli_json_merge(object,
                   cli_pack("{s:s, s:s, s:s, s:s?, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I}", "kind", "simulated_ranks",
                            "model", nature, "cpu", cli_utf8(b->machine.cpu), "preset", b->args->preset.name, "scheme",
                            b->format, "routing", cli_utf8(b->routing.name), "plan", b->plan, "seed",
                            (json_int_t)b->args->seed, "experts", (json_int_t)c->experts, "top_k", (json_int_t)c->top_k,
                            "hidden", (json_int_t)c->hidden, "intermediate", (json_int_t)c->intermediate));
    cli_json_merge(object,
                   cli_pack("{s:f, s:f, s:I, s:b}", "link_gb_s", sim->link.gb_s, "link_us", sim->link.us,
                            "eplb_history_tokens", (json_int_t)sim->history, "extrapolated", sim->extrapolated));
    cli_json_set(object, "rows", rows);
    cli_json_set(object, "measured_products", json_points(sim->points, sim->n_points));
    cli_json_set(object, "measured_shared", json_points(sim->shared, sim->n_shared));
    cli_json_end(object);
}
