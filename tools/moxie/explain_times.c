/* SPDX-License-Identifier: Apache-2.0
 *
 * explain_times.c - expected times of exchanges and products on ranks (explain_times.h).
 */
#include "explain_times.h"

#include <math.h>
#include <string.h>

/* ---- options --------------------------------------------------------------------------------------- */

enum { OPT_LIMITS = 1400, OPT_LINK_GB_S, OPT_LINK_US };

static const struct argp_option times_options[] = {
    { "limits", OPT_LIMITS, "FILE", 0,
      "what a rank's machine can do, for expected times: of `moxie info --limits FILE`", 0 },
    { "link-gb-s", OPT_LINK_GB_S, "B", 0, "GB/s of a rank's link, in each direction", 0 },
    { "link-us", OPT_LINK_US, "L", 0, "microseconds that a message costs besides its bytes", 0 },
    { 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    explain_times_options *options = state->input;
    switch (key) {
    case OPT_LIMITS:
        options->limits = arg;
        options->lone = "--limits";
        return 0;
    case OPT_LINK_GB_S:
        options->link_gb_s = cli_parse_real(state, "--link-gb-s", arg, false);
        options->lone = "--link-gb-s";
        return 0;
    case OPT_LINK_US:
        options->link_us = cli_parse_real(state, "--link-us", arg, true);
        options->lone = "--link-us";
        return 0;
    case ARGP_KEY_END:
        if ((options->link_gb_s < 0) != (options->link_us < 0))
            argp_error(state, "--link-gb-s and --link-us go together: what is the link between the ranks?");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

const struct argp explain_times_argp = { times_options, parse, NULL, NULL, NULL, NULL, NULL };

explain_times_options explain_times_none(void)
{
    return (explain_times_options) { .link_gb_s = -1, .link_us = -1 };
}

/* ---- weights --------------------------------------------------------------------------------------- */

static double groups_of(int64_t length, int32_t group)
{
    return group == -1 ? 1 : ceil((double)length / (group > 0 ? group : 1));
}

/* Bits of a weight, with the scales of its block if it is of a block type. */
static double weight_bits(moxie_dtype element)
{
    int32_t bytes = 0;
    const int32_t weights = moxie_dtype_block(element, &bytes);
    return weights > 0 ? 8.0 * bytes / weights : moxie_dtype_bits(element);
}

static double matrix_bytes(const moxie_quant *q, int64_t rows, int64_t cols)
{
    const double scales = groups_of(rows, q->group_rows) * groups_of(cols, q->group_cols ? q->group_cols : -1);
    const double bits = weight_bits(q->element);
    const double of_scale = (q->scale ? moxie_dtype_bits(q->scale) : 0) + (q->has_zero ? bits : 0);
    return ((double)rows * (double)cols * bits + scales * of_scale) / 8;
}

static double expert_bytes(const moxie_layer_config *c, const moxie_quant *w13, const moxie_quant *w2,
                           int64_t intermediate)
{
    const int64_t rows = moxie_act_is_gated(c->activation.kind) ? 2 * intermediate : intermediate;
    return intermediate > 0 ? matrix_bytes(w13, rows, c->hidden) + matrix_bytes(w2, c->hidden, intermediate) : 0;
}

moxie_status explain_times_find(const explain_times_options *options, const explain_ranks *ranks, explain_times *out,
                                moxie_error *error)
{
    const moxie_layer_config *c = &ranks->config;
    *out = (explain_times) { .ranks = ranks,
                             .options = options,
                             .knows_link = options->link_gb_s > 0,
                             .expert_bytes = expert_bytes(c, &c->w13, &c->w2, c->intermediate),
                             .shared_bytes = expert_bytes(c, &c->shared.w13, &c->shared.w2, c->shared.intermediate) };
    if (!options->limits)
        return MOXIE_OK;
    out->knows_limits = true;
    return cli_limits_read(options->limits, &out->limits, error);
}

/* ---- times ----------------------------------------------------------------------------------------- */

static double link_seconds(const explain_times *times, double bytes, double messages)
{
    return bytes / (times->options->link_gb_s * 1e9) + messages * times->options->link_us * 1e-6;
}

/* Of one rank: bytes and messages to others are spread evenly. One message of counts goes before what comes first. */
static double exchange_seconds(const explain_times *times, int i, int64_t tokens)
{
    const explain_ranks *r = times->ranks;
    const explain_exchange *e = &r->exchange[i];
    const bool sharded = r->options->tokens_as == MOXIE_TOKENS_SHARDED;
    const bool first = strcmp(e->step, sharded ? "dispatch" : "return") == 0;
    const double others = e->of_group ? r->placement.tp - 1 : r->placement.ranks - 1;
    if (e->most == 0 || tokens == 0)
        return 0;
    return link_seconds(times, e->rows * (double)e->row_bytes * (double)tokens / r->placement.ranks,
                        first ? 2 * others : others);
}

static double product_seconds(const explain_times *times, int64_t tokens)
{
    const explain_ranks *r = times->ranks;
    const moxie_layer_config *c = &r->config;
    const moxie_limits *limits = &times->limits.found;
    const double t = (double)tokens, ranks = r->placement.ranks, tp = r->placement.tp;
    const double matrices = moxie_act_is_gated(c->activation.kind) ? 3 : 2;
    const double unread = pow(1 - fmin(1, (double)c->top_k / (double)c->experts), t);
    int32_t held = 0;
    for (int32_t i = 0; i < r->placement.ranks; i++)
        held = r->rank[i].count > held ? r->rank[i].count : held;
    const uint64_t *shared = r->rank[0].shared_bytes;
    const double part = shared[1] > 0 ? (double)shared[0] / (double)shared[1] : 0;
    const double bytes = held * (1 - unread) * times->expert_bytes / tp + (tokens > 0 ? part * times->shared_bytes : 0);
    const double flop = 2 * matrices * (double)c->hidden * t / ranks *
                        ((double)c->top_k * (double)c->intermediate + (double)c->shared.intermediate);
    return fmax(bytes / (limits->read_gb_s * 1e9), flop / (limits->bf16_tflop_s * 1e12));
}

explain_time explain_times_at(const explain_times *times, int64_t tokens)
{
    explain_time out = { .products = times->knows_limits ? product_seconds(times, tokens) : -1 };
    out.step = times->knows_limits && times->knows_link ? out.products : -1;
    for (int i = 0; i < EXPLAIN_EXCHANGES; i++) {
        const bool travels = times->ranks->exchange[i].most > 0;
        out.exchange[i] = !travels ? 0 : times->knows_link ? exchange_seconds(times, i, tokens) : -1;
        out.step += out.step >= 0 ? out.exchange[i] : 0;
    }
    return out;
}

/* ---- output ---------------------------------------------------------------------------------------- */

static const char no_limits[] = "products: what a rank's machine can do is not known: give --limits FILE, which `moxie "
                                "info --limits FILE` writes on it";
static const char no_link[] = "exchanges: the link between the ranks is not known: give --link-gb-s and --link-us";

static void add_ms(cli_table *table, double seconds)
{
    if (seconds < 0)
        cli_table_add(table, "not known");
    else
        cli_table_add(table, "%.4g", seconds * 1e3);
}

void explain_times_print(const explain_times *times, const cli_sizes *tokens)
{
    const explain_ranks *r = times->ranks;
    const char *headings[EXPLAIN_EXCHANGES + 3] = { ">tokens", ">products ms" };
    char names[EXPLAIN_EXCHANGES][16];
    cli_table table;
    int32_t columns = 2;
    for (int i = 0; i < EXPLAIN_EXCHANGES; i++)
        if (r->exchange[i].most > 0) {
            snprintf(names[i], sizeof names[i], ">%s ms", r->exchange[i].step);
            headings[columns++] = names[i];
        }
    headings[columns++] = ">step ms";
    printf("\nexpected times of a rank, where tokens choose all experts alike; tokens: of all ranks\n");
    cli_table_begin(&table, columns, headings);
    for (int t = 0; t < tokens->count; t++) {
        const explain_time time = explain_times_at(times, tokens->at[t]);
        cli_table_add(&table, "%lld", (long long)tokens->at[t]);
        add_ms(&table, time.products);
        for (int i = 0; i < EXPLAIN_EXCHANGES; i++)
            if (r->exchange[i].most > 0)
                add_ms(&table, time.exchange[i]);
        add_ms(&table, time.step);
    }
    cli_table_print(&table);
    cli_table_free(&table);
    if (times->knows_limits)
        printf(
            "products: floors by %s: %.4g GB/s, %.4g TFLOP/s of bf16 on %d threads, which each rank has for itself\n",
            cli_printable(times->options->limits), times->limits.found.read_gb_s, times->limits.found.bf16_tflop_s,
            (int)times->limits.found.workers);
    else
        printf("%s\n", no_limits);
    if (times->knows_link)
        printf("exchanges: a link of %g GB/s, and %g us a message; nothing overlaps\n", times->options->link_gb_s,
               times->options->link_us);
    else
        printf("%s\n", no_link);
}

static json_t *ms_json(double seconds)
{
    return seconds < 0 ? json_null() : json_real(seconds * 1e3);
}

json_t *explain_times_json(const explain_times *times, const cli_sizes *tokens)
{
    json_t *rows = json_array(), *unknown = json_array();
    for (int t = 0; t < tokens->count; t++) {
        const explain_time time = explain_times_at(times, tokens->at[t]);
        json_t *row =
            cli_pack("{s:I, s:o}", "tokens", (json_int_t)tokens->at[t], "products_ms", ms_json(time.products));
        for (int i = 0; i < EXPLAIN_EXCHANGES; i++) {
            char key[32];
            snprintf(key, sizeof key, "%s_ms", times->ranks->exchange[i].step);
            cli_json_set(row, key, ms_json(time.exchange[i]));
        }
        cli_json_set(row, "step_ms", ms_json(time.step));
        cli_json_append(rows, row);
    }
    if (!times->knows_limits)
        cli_json_append(unknown, cli_json_string(no_limits));
    if (!times->knows_link)
        cli_json_append(unknown, cli_json_string(no_link));
    return cli_pack("{s:o, s:o}", "rows", rows, "unknown", unknown);
}
