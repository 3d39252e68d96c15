/* SPDX-License-Identifier: Apache-2.0
 *
 * trace_policies.c - `moxie trace simulate`: which share of its experts a cache has, for each policy and number of
 * slots; and what the rest costs to read.
 *
 *     bytes a token = (uses - hits) / tokens * bytes of an expert        tokens/s <= read rate / bytes a token
 */
#include "trace_tool.h"

#include <stdlib.h>
#include <string.h>

#include "balance.h"

typedef struct policies {
    const trace_arguments *args;
    moxie_trace *trace;
    moxie_trace_info info;
    balance_counts census;
    int64_t slots[CLI_MAX_SIZES + 1]; /* those of --slots and that of --budget */
    int n_slots;
    json_t *rows;
    cli_table table;
} policies;

/* Slots of --slots; of --budget; or an eighth, a quarter and half of the experts. */
static moxie_status choose_slots(policies *p, moxie_error *error)
{
    const trace_arguments *args = p->args;
    for (int i = 0; i < args->slots.count; i++)
        p->slots[p->n_slots++] = args->slots.at[i] < p->info.experts ? args->slots.at[i] : p->info.experts;
    if (args->budget) {
        const int64_t slots = args->budget / args->expert_bytes / p->info.layers;
        if (slots < 1)
            return cli_error(MOXIE_ERR_ARGUMENT, error, p->args->inputs[0],
                             "--budget is less than an expert for each of %d layers: give %lld or more", p->info.layers,
                             (long long)args->expert_bytes * p->info.layers);
        p->slots[p->n_slots++] = slots < p->info.experts ? slots : p->info.experts;
    }
    for (int64_t part = 8; part > 1 && !args->slots.count && !args->budget; part /= 2)
        if (p->info.experts >= part)
            p->slots[p->n_slots++] = p->info.experts / part;
    if (p->n_slots == 0)
        p->slots[p->n_slots++] = 1;
    return MOXIE_OK;
}

static moxie_status read_census(policies *p, moxie_error *error)
{
    if (!p->args->census)
        return MOXIE_OK;
    moxie_status status =
        balance_counts_read(p->args->census, p->info.experts, p->info.zero_experts, &p->census, error);
    if (status == MOXIE_OK && p->census.layers != p->info.layers)
        status = cli_error(MOXIE_ERR_MISMATCH, error, p->args->census, "it counts %d layers, and the trace has %d",
                           p->census.layers, p->info.layers);
    return status;
}

static double per(int64_t what, int64_t of)
{
    return of ? (double)what / (double)of : 0;
}

static void add_row(policies *p, const char *policy, int64_t hits_of, const moxie_cache_hits *h, bool best)
{
    const double read = per(h->uses - hits_of, h->tokens), bytes = read * (double)p->args->expert_bytes;
    char text[16];
    cli_table_add(&p->table, "%d", h->slots);
    cli_table_add(&p->table, "%s", policy);
    cli_table_add(&p->table, "%.1f%%", 100 * per(hits_of, h->uses));
    if (best)
        cli_table_add(&p->table, "-");
    else
        cli_table_add(&p->table, "%.1f%%", 100 * per(h->decode_hits, h->decode_uses));
    cli_table_add(&p->table, "%.2f", read);
    if (best)
        cli_table_add(&p->table, "-");
    else
        cli_table_add(&p->table, "%.2f", per(h->inserts, h->tokens));
    cli_table_add(&p->table, "%s", p->args->expert_bytes ? cli_bytes(text, (uint64_t)bytes) : "-");
    if (p->args->read_gb_s > 0 && bytes > 0)
        cli_table_add(&p->table, "%.2f", p->args->read_gb_s * 1e9 / bytes);
    else
        cli_table_add(&p->table, "-");
    json_t *row = cli_pack("{s:i, s:s, s:I, s:I, s:f, s:f}", "slots", (int)h->slots, "policy", policy, "uses",
                           (json_int_t)h->uses, "hits", (json_int_t)hits_of, "hit_rate", per(hits_of, h->uses),
                           "reads_per_token", read);
    if (!best)
        cli_json_merge(row, cli_pack("{s:I, s:I, s:I}", "decode_uses", (json_int_t)h->decode_uses, "decode_hits",
                                     (json_int_t)h->decode_hits, "inserts", (json_int_t)h->inserts));
    if (p->args->expert_bytes)
        cli_json_set(row, "bytes_per_token", cli_pack("f", bytes));
    if (p->args->read_gb_s > 0 && bytes > 0)
        cli_json_set(row, "max_tokens_per_s", cli_pack("f", p->args->read_gb_s * 1e9 / bytes));
    cli_json_append(p->rows, row);
}

/* All policies, or the one that was asked for, with so many slots. Without a census or warm steps those that need them
 * are left out, unless they were asked for. */
static moxie_status simulate(policies *p, int64_t slots, moxie_error *error)
{
    const trace_arguments *args = p->args;
    bool with_best = args->best;
    for (int32_t i = 0; moxie_cache_policy_at(i, NULL); i++) {
        moxie_cache_config config = MOXIE_CACHE_CONFIG_INIT;
        moxie_cache_hits hits = MOXIE_CACHE_HITS_INIT;
        config.policy = moxie_cache_policy_at(i, NULL);
        if (args->policy && strcmp(args->policy, config.policy))
            continue;
        config.slots = (int32_t)slots;
        config.max_inserts = (int32_t)args->max_inserts;
        config.warm_steps = (int32_t)args->warm_steps;
        config.half_life = args->half_life;
        config.census = p->census.at;
        config.with_best = with_best;
        const bool learns = !strcmp(config.policy, "frozen") || (!strcmp(config.policy, "pinned") && !config.census);
        if (learns && !args->policy && args->warm_steps == 0)
            continue;
        const moxie_status status = moxie_trace_simulate(p->trace, &config, &hits, NULL, error);
        if (status != MOXIE_OK)
            return status;
        if (with_best)
            add_row(p, "best", hits.best_hits, &hits, true);
        with_best = false;
        add_row(p, config.policy, hits.hits, &hits, false);
    }
    return MOXIE_OK;
}

static void print(policies *p)
{
    const trace_arguments *args = p->args;
    json_t *object = cli_json_begin("trace");
    if (args->json) {
        cli_json_merge(object, cli_pack("{s:s, s:s, s:I, s:i, s:i, s:I, s:I, s:I, s:O}", "action", "simulate", "trace",
                                        cli_utf8(args->inputs[0]), "tokens", (json_int_t)p->info.tokens, "layers",
                                        (int)p->info.layers, "experts", (int)p->info.experts, "warm_steps",
                                        (json_int_t)args->warm_steps, "max_inserts", (json_int_t)args->max_inserts,
                                        "bytes_per_expert", (json_int_t)args->expert_bytes, "rows", p->rows));
        cli_json_end(object);
        return;
    }
    json_decref(object);
    printf("%s: %lld %s, %lld %s, %lld %s; slots are of each layer\n\n", cli_printable(args->inputs[0]),
           CLI_COUNT(p->info.tokens, "token"), CLI_COUNT(p->info.layers, "layer"),
           CLI_COUNT(p->info.experts, "expert"));
    cli_table_print(&p->table);
}

int trace_policies(const trace_arguments *args)
{
    static const char *const headings[] = { ">slots",       "policy",         ">hits",        ">hits in decode",
                                            ">reads/token", ">inserts/token", ">bytes/token", ">tokens/s at most" };
    policies p = { .args = args, .info = MOXIE_TRACE_INFO_INIT, .rows = cli_pack("[]") };
    moxie_error error = { 0 };
    cli_table_begin(&p.table, 8, headings);
    moxie_status status = moxie_trace_open(args->inputs[0], &p.trace, &error);
    if (status == MOXIE_OK)
        status = moxie_trace_get_info(p.trace, &p.info, &error);
    if (status == MOXIE_OK && p.info.steps == 0)
        status = cli_error(MOXIE_ERR_MISMATCH, &error, args->inputs[0], "it has no steps, so nothing can be replayed");
    if (status == MOXIE_OK && args->warm_steps >= p.info.steps)
        status = cli_error(MOXIE_ERR_ARGUMENT, &error, args->inputs[0],
                           "it has %lld %s, and --warm takes them all: give fewer", CLI_COUNT(p.info.steps, "step"));
    if (status == MOXIE_OK)
        status = choose_slots(&p, &error);
    if (status == MOXIE_OK)
        status = read_census(&p, &error);
    for (int i = 0; status == MOXIE_OK && i < p.n_slots; i++)
        status = simulate(&p, p.slots[i], &error);
    if (status == MOXIE_OK)
        print(&p);
    cli_table_free(&p.table);
    json_decref(p.rows);
    free(p.census.at);
    moxie_trace_close(p.trace);
    return status == MOXIE_OK ? CLI_OK : cli_fail("trace", args->json, status, &error);
}
