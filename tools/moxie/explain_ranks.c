/* SPDX-License-Identifier: Apache-2.0
 *
 * explain_ranks.c - which experts and rows each rank has, and the bytes that one token sends in each exchange
 * (docs/ranks.md, "What it costs").
 *
 * The rows of a token are counted over a sample: every token chooses K of the E experts, all sets alike, and belongs to
 * one rank after the other. A row that stays on its rank does not count.
 */
#include "explain_comm.h"
#include "explain_ranks.h"

#include <stdlib.h>
#include <string.h>

enum { SAMPLE = 4096 };

/* ---- who has what ---------------------------------------------------------------------------------- */

/* The map as slots, also where only a kind is named. */
static moxie_status find_map(explain_ranks *r, moxie_error *error)
{
    const cli_placement *p = &r->placement;
    const int32_t experts = (int32_t)r->config.experts;
    if (p->maps.expert_of) {
        r->map = p->map;
        return MOXIE_OK;
    }
    moxie_status status = balance_map_create(1, experts, experts, p->ep, "", &r->own, error);
    if (status == MOXIE_OK)
        status = moxie_slot_map_default((moxie_expert_map_kind)p->ep_map, experts, experts, p->ep, r->own.expert_of,
                                        r->own.first_slot, error);
    if (status == MOXIE_OK)
        r->map = balance_map_at(&r->own, 0);
    return status;
}

static bool on_device(const explain_ranks *r)
{
    return r->backend == MOXIE_BACKEND_CUDA;
}

static moxie_status find_ranks(explain_ranks *r, moxie_mode mode, moxie_error *error)
{
    const cli_placement *p = &r->placement;
    moxie_status status = MOXIE_OK;
    r->rank = cli_alloc((size_t)p->ranks * sizeof *r->rank);
    for (int32_t i = 0; i < p->ranks && status == MOXIE_OK; i++) {
        explain_rank *rank = &r->rank[i];
        const int32_t first = r->map.first_slot[i / p->tp];
        *rank = (explain_rank) { .ep_rank = i / p->tp,
                                 .tp_rank = i % p->tp,
                                 .experts = r->map.expert_of + first,
                                 .slots = r->map.first_slot[i / p->tp + 1] - first };
        for (int32_t s = 0; s < rank->slots; s++)
            rank->count += rank->experts[s] >= 0;
        status =
            moxie_tp_slice_in_mode(&r->config, mode, p->tp, rank->tp_rank, rank->w13, rank->w2, &rank->columns, error);
        if (status == MOXIE_OK)
            status = moxie_tp_slice_shared(&r->config, on_device(r), p->tp, rank->tp_rank, rank->shared13,
                                           rank->shared2, rank->shared_bytes, error);
    }
    return status;
}

/* ---- what travels ---------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t z)
{
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* K of the E experts, in the first places of `order`. */
static void choose(int32_t *order, int64_t experts, int64_t top_k, uint64_t seed)
{
    for (int64_t j = 0; j < top_k && j < experts; j++) {
        const int64_t other = j + (int64_t)(mix(seed + (uint64_t)j) % (uint64_t)(experts - j));
        const int32_t kept = order[j];
        order[j] = order[other];
        order[other] = kept;
    }
}

static int32_t rank_of(const moxie_slot_map *map, int32_t slot)
{
    int32_t rank = 0;
    while (slot >= map->first_slot[rank + 1])
        rank++;
    return rank;
}

/* Means over the sample: other ranks that get a token's row, and rows [H] of results that come from other ranks. Of an
 * expert on the token's own ranks, the part of columns that is the owner's does not travel. */
static moxie_status count_rows(const explain_ranks *r, double *copies, double *results, moxie_error *error)
{
    const int64_t experts = r->config.experts, k = r->config.top_k < experts ? r->config.top_k : experts;
    const int32_t ep = r->placement.ep, tp = r->placement.tp;
    int32_t *order = cli_alloc((size_t)experts * sizeof *order), *slots = cli_alloc((size_t)k * sizeof *slots);
    bool *reached = cli_alloc((size_t)ep * sizeof *reached);
    moxie_status status = MOXIE_OK;
    *copies = *results = 0;
    for (int32_t e = 0; e < experts; e++)
        order[e] = e;
    for (int32_t t = 0; t < SAMPLE && status == MOXIE_OK; t++) {
        const int32_t own = t % r->placement.ranks / tp;
        memset(reached, 0, (size_t)ep * sizeof *reached);
        choose(order, experts, k, (uint64_t)t << 16);
        status = moxie_slot_map_serve(&r->map, own, t, order, 1, k, slots, error);
        for (int64_t j = 0; j < k && status == MOXIE_OK; j++) {
            const int32_t to = rank_of(&r->map, slots[j]);
            *copies += reached[to] ? 0 : tp - (to == own);
            *results += to == own ? (double)(tp - 1) / tp : 1;
            reached[to] = true;
        }
    }
    *copies /= SAMPLE;
    *results /= SAMPLE;
    free(order);
    free(slots);
    free(reached);
    return status;
}

static bool cuts_shared(const explain_ranks *r)
{
    for (int32_t i = 0; i < r->placement.ranks; i++)
        if (r->rank[i].shared_bytes[0] != r->rank[i].shared_bytes[1])
            return true;
    return false;
}

/* Each token is known to its whole group, which shares the expert. */
static void find_shared(explain_ranks *r)
{
    const moxie_layer_config *c = &r->config;
    const int64_t others = cuts_shared(r) ? r->placement.tp - 1 : 0;
    const uint64_t width = c->dtype == MOXIE_F32 ? 4 : 2, of_act = c->shared.a2.element ? 4 : width;
    const bool sharded = r->options->tokens_as == MOXIE_TOKENS_SHARDED;
    r->exchange[4] = (explain_exchange) { "shared_x", (uint64_t)c->hidden * width, sharded ? (double)others : 0,
                                          sharded ? others : 0, true };
    r->exchange[5] =
        (explain_exchange) { "shared_act", (uint64_t)c->shared.intermediate * of_act, (double)others, others, true };
    r->exchange[6] =
        (explain_exchange) { "shared_y", (uint64_t)c->hidden * 4, (double)others / r->placement.tp, others > 0, true };
}

static moxie_status find_exchanges(explain_ranks *r, moxie_error *error)
{
    const moxie_layer_config *c = &r->config;
    const int64_t ep = r->placement.ep, tp = r->placement.tp, k = c->top_k;
    const int32_t layout = r->options->tokens_as;
    const bool wide = c->a2.element || c->dtype == MOXIE_F32 || r->adapters; /* activations travel as f32 */
    const uint64_t width = c->dtype == MOXIE_F32 ? 4 : 2, of_act = wide ? 4 : 2;
    const int64_t others = k < ep - 1 ? k : ep - 1, with_own = k < ep ? k : ep;
    const int64_t most = others * tp > with_own * tp - 1 ? others * tp : with_own * tp - 1;
    const bool sharded = layout == MOXIE_TOKENS_SHARDED, replicated = layout == MOXIE_TOKENS_REPLICATED;
    double copies = 0, results = 0;
    uint64_t row = 0, result = 0;
    moxie_options sent = MOXIE_OPTIONS_INIT;
    sent.backend = r->backend;
    sent.max_adapter_rank = r->adapters;
    moxie_status status = moxie_exchange_row_bytes_with(c, &sent, &row, &result, error);
    if (status == MOXIE_OK)
        status = count_rows(r, &copies, &results, error);
    r->exchange[0] = (explain_exchange) { "dispatch", row, sharded ? copies : 0, sharded ? most : 0 };
    const bool sums = r->rank[0].columns != 0;
    r->exchange[1] =
        (explain_exchange) { sums ? "sum" : "act", sums ? (uint64_t)c->hidden * 4 : (uint64_t)c->intermediate * of_act,
                             (double)(k * (tp - 1)), k * (tp - 1), true };
    r->exchange[2] = (explain_exchange) { "return", result, results, r->placement.ranks > 1 ? k : 0 };
    r->exchange[3] =
        (explain_exchange) { "gather", (uint64_t)c->hidden * width, replicated ? (double)(r->placement.ranks - 1) : 0,
                             replicated ? r->placement.ranks - 1 : 0 };
    find_shared(r);
    return status;
}

/* What a plan's step of family "exchange" says. */
static void find_step(const moxie_plan *plan, const char *role, char *text, size_t size)
{
    const moxie_plan_step *step;
    for (int32_t i = 0; (step = moxie_plan_step_at(plan, i)) != NULL; i++)
        if (!strcmp(step->family, "exchange") && !strcmp(step->role, role))
            snprintf(text, size, "%s", step->reason);
}

/* What the plan of rank 0 says: of ranks on the host, or of ranks on GPUs over NCCL. */
static moxie_status find_chunks(explain_ranks *r, const moxie_options *given, moxie_error *error)
{
    const int32_t ranks = r->placement.ranks;
    const bool sharded = r->options->tokens_as == MOXIE_TOKENS_SHARDED;
    moxie_layer_config config = r->config;
    moxie_options o = *given;
    moxie_plan *plan = NULL;
    explain_comms comms;
    moxie_status status = explain_comms_create(ranks, given, &comms, error);
    r->tokens = o.max_tokens = sharded ? (given->max_tokens + ranks - 1) / ranks : given->max_tokens;
    o.comm = comms.at[0];
    o.token_layout = r->options->tokens_as;
    o.exchange_capacity = r->options->capacity;
    o.exchange_chunk = r->options->chunk;
    o.exchange_streams = r->options->streams;
    cli_placement_apply(&r->placement, 0, &config);
    if (status == MOXIE_OK)
        status = moxie_plan_explain(&config, &o, &plan, error);
    if (status == MOXIE_OK) {
        find_step(plan, "chunks", r->chunks, sizeof r->chunks);
        find_step(plan, "streams", r->streams, sizeof r->streams);
    }
    moxie_plan_destroy(plan);
    explain_comms_free(&comms);
    return status;
}

moxie_status explain_ranks_find(const cli_ranks_options *options, const cli_layer *source, const moxie_options *plan,
                                explain_ranks *out, moxie_error *error)
{
    *out = (explain_ranks) {
        .options = options, .config = source->config, .backend = plan->backend, .adapters = plan->max_adapter_rank > 0
    };
    moxie_status status = cli_placement_make(options, source, &out->placement, error);
    if (status == MOXIE_OK)
        status = find_map(out, error);
    if (status == MOXIE_OK)
        status = find_ranks(out, (moxie_mode)plan->mode, error);
    if (status == MOXIE_OK)
        status = find_exchanges(out, error);
    return status == MOXIE_OK ? find_chunks(out, plan, error) : status;
}

void explain_ranks_free(explain_ranks *r)
{
    free(r->rank);
    balance_map_free(&r->own);
    cli_placement_free(&r->placement);
}

/* ---- output ---------------------------------------------------------------------------------------- */

/* "0-7 9": runs of experts, as many as fit. Returns `text`. */
static const char *name_experts(const explain_rank *rank, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int32_t s = 0; s < rank->slots && used + 16 < size; s++) {
        int32_t last = s;
        if (rank->experts[s] < 0)
            continue;
        while (last + 1 < rank->slots && rank->experts[last + 1] == rank->experts[last] + 1)
            last++;
        used += (size_t)snprintf(text + used, size - used, last > s ? "%s%d-%d" : "%s%d", used ? " " : "",
                                 (int)rank->experts[s], (int)rank->experts[last]);
        s = last;
    }
    if (used + 16 >= size)
        snprintf(text + used, size - used, " ...");
    return text;
}

static void add_rows(cli_table *table, const int64_t rows[2])
{
    if (rows[0] < rows[1])
        cli_table_add(table, "%lld-%lld", (long long)rows[0], (long long)rows[1] - 1);
    else
        cli_table_add(table, "none");
}

/* Ranks of one tp_rank have the same part. */
static void print_shared(const explain_ranks *r)
{
    static const char *const headings[] = { ">tp rank", "shared gate and up rows", "shared down rows", ">bytes",
                                            ">of a whole one" };
    char bytes[2][16];
    cli_table table;
    if (r->config.shared.intermediate == 0 || r->placement.tp == 1)
        return;
    if (!cuts_shared(r)) {
        printf("\nevery rank has the whole shared expert, %s (step tensor_parallel shared says why)\n",
               cli_bytes(bytes[0], r->rank[0].shared_bytes[1]));
        return;
    }
    printf("\nof the shared expert, %lld gate rows and %lld down rows; bytes as in layout rowmajor\n",
           (long long)r->config.shared.intermediate, (long long)r->config.hidden);
    cli_table_begin(&table, 5, headings);
    for (int32_t i = 0; i < r->placement.tp; i++) {
        const explain_rank *rank = &r->rank[i];
        cli_table_add(&table, "%d", (int)i);
        add_rows(&table, rank->shared13);
        add_rows(&table, rank->shared2);
        cli_table_add(&table, "%s", cli_bytes(bytes[0], rank->shared_bytes[0]));
        cli_table_add(&table, "%s", cli_bytes(bytes[1], rank->shared_bytes[1]));
    }
    cli_table_print(&table);
    cli_table_free(&table);
}

static void print_exchanges(const explain_ranks *r)
{
    static const char *const headings[] = { "exchange", ">bytes a row", ">rows", ">bytes", ">at most" };
    char bytes[16];
    cli_table table;
    cli_table_begin(&table, 5, headings);
    for (int i = 0; i < EXPLAIN_EXCHANGES; i++) {
        const explain_exchange *e = &r->exchange[i];
        if (e->most == 0)
            continue;
        cli_table_add(&table, "%s", e->step);
        cli_table_add(&table, "%llu", (unsigned long long)e->row_bytes);
        cli_table_add(&table, "%.2f", e->rows);
        cli_table_add(&table, "%s", cli_bytes(bytes, (uint64_t)(e->rows * (double)e->row_bytes + 0.5)));
        cli_table_add(&table, "%s", cli_bytes(bytes, (uint64_t)e->most * e->row_bytes));
    }
    if (table.rows > 0) {
        printf("\nwhat one token sends to other ranks, where tokens choose all experts alike:\n");
        cli_table_print(&table);
    }
    cli_table_free(&table);
}

/* What a rank sends to every other, however many tokens it has. */
static void find_fixed(const explain_ranks *r, uint64_t bytes[2])
{
    const uint64_t capacity = (uint64_t)r->options->capacity;
    const bool sharded = r->options->tokens_as == MOXIE_TOKENS_SHARDED;
    bytes[0] = sharded ? capacity * r->exchange[0].row_bytes : 0;
    bytes[1] = capacity * (uint64_t)r->config.top_k * r->exchange[2].row_bytes / (uint64_t)r->placement.tp;
}

static void print_chunks(const explain_ranks *r)
{
    if (r->chunks[0])
        printf("\na rank exchanges and computes its %lld %s in chunks: %s%s\n", CLI_COUNT(r->tokens, "token"),
               r->chunks, on_device(r) ? " (over NCCL)" : "");
    if (r->streams[0])
        printf("streams over NCCL: %s\n", r->streams);
}

/* Of exchanges and products: the number with which the plan's sentence begins; the host has none. */
static int streams_of(const explain_ranks *r)
{
    return r->streams[0] ? atoi(r->streams) : 1;
}

static void print_fixed(const explain_ranks *r)
{
    uint64_t bytes[2];
    char text[2][16];
    find_fixed(r, bytes);
    if (r->options->capacity > 0)
        printf(
            "\nwith room for %lld %s of each rank and no counts, a rank sends every other %s of rows and about %s of "
            "results\n",
            CLI_COUNT(r->options->capacity, "token"), cli_bytes(text[0], bytes[0]), cli_bytes(text[1], bytes[1]));
}

void explain_ranks_print(const explain_ranks *r)
{
    const bool columns = r->rank[0].columns != 0;
    const char *const headings[] = { ">rank", ">experts", "gate and up rows", columns ? "down columns" : "down rows",
                                     "which experts" };
    char which[80];
    cli_table table;
    printf("\n%lld %s, --tp %d, experts %s, tokens %s; of an expert %lld gate rows and %lld down %s\n",
           CLI_COUNT(r->placement.ranks, "rank"), (int)r->placement.tp, cli_printable(r->placement.name),
           cli_tokens_as(r->options->tokens_as), (long long)r->config.intermediate,
           (long long)(columns ? r->config.intermediate : r->config.hidden), columns ? "columns" : "rows");
    cli_table_begin(&table, 5, headings);
    for (int32_t i = 0; i < r->placement.ranks; i++) {
        const explain_rank *rank = &r->rank[i];
        cli_table_add(&table, "%d", (int)i);
        cli_table_add(&table, "%d", (int)rank->count);
        add_rows(&table, rank->w13);
        add_rows(&table, rank->w2);
        cli_table_add(&table, "%s", name_experts(rank, which, sizeof which));
    }
    cli_table_print(&table);
    cli_table_free(&table);
    print_shared(r);
    print_exchanges(r);
    print_chunks(r);
    print_fixed(r);
}

json_t *explain_ranks_json(const explain_ranks *r)
{
    json_t *ranks = json_array(), *exchanges = json_array();
    for (int32_t i = 0; i < r->placement.ranks; i++) {
        const explain_rank *rank = &r->rank[i];
        json_t *experts = json_array();
        for (int32_t s = 0; s < rank->slots; s++)
            cli_json_append(experts, json_integer(rank->experts[s]));
        cli_json_append(
            ranks,
            cli_pack("{s:i, s:i, s:i, s:i, s:o, s:[I,I], s:[I,I], s:[I,I], s:[I,I], s:[I,I], s:I, s:I}", "rank", (int)i,
                     "ep_rank", (int)rank->ep_rank, "tp_rank", (int)rank->tp_rank, "experts", (int)rank->count, "slots",
                     experts, "w13_rows", (json_int_t)rank->w13[0], (json_int_t)rank->w13[1], "w2_rows",
                     rank->columns ? (json_int_t)0 : (json_int_t)rank->w2[0],
                     rank->columns ? (json_int_t)r->config.hidden : (json_int_t)rank->w2[1], "w2_columns",
                     rank->columns ? (json_int_t)rank->w2[0] : (json_int_t)0,
                     rank->columns ? (json_int_t)rank->w2[1] : (json_int_t)r->config.intermediate, "shared_w13_rows",
                     (json_int_t)rank->shared13[0], (json_int_t)rank->shared13[1], "shared_w2_rows",
                     (json_int_t)rank->shared2[0], (json_int_t)rank->shared2[1], "shared_bytes",
                     (json_int_t)rank->shared_bytes[0], "shared_whole_bytes", (json_int_t)rank->shared_bytes[1]));
    }
    for (int i = 0; i < EXPLAIN_EXCHANGES; i++) {
        const explain_exchange *e = &r->exchange[i];
        cli_json_append(exchanges,
                        cli_pack("{s:s, s:I, s:f, s:f, s:I}", "step", e->step, "row_bytes", (json_int_t)e->row_bytes,
                                 "rows", e->rows, "bytes", e->rows * (double)e->row_bytes, "most_bytes",
                                 (json_int_t)((uint64_t)e->most * e->row_bytes)));
    }
    uint64_t fixed[2];
    find_fixed(r, fixed);
    return cli_pack("{s:i, s:i, s:i, s:s, s:s, s:o, s:o, s:s, s:i, s:I, s:I, s:I}", "count", (int)r->placement.ranks,
                    "ep", (int)r->placement.ep, "tp", (int)r->placement.tp, "ep_map", cli_utf8(r->placement.name),
                    "tokens_as", cli_tokens_as(r->options->tokens_as), "ranks", ranks, "exchange_per_token", exchanges,
                    "chunks", r->chunks, "exchange_streams", streams_of(r), "exchange_capacity",
                    (json_int_t)r->options->capacity, "fixed_dispatch_bytes", (json_int_t)fixed[0],
                    "fixed_return_bytes", (json_int_t)fixed[1]);
}
