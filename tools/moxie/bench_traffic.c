/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_traffic.c - what a step moves between ranks: counts choices, rows and messages of every rank for drawn or read
 * routings.
 *
 *     owner s of a token -> ids -> slots (moxie_slot_map_serve) -> rank d of each
 *         choices[d]++          one row for each d != s out of s and into d          one f32 row a choice back
 *
 * Experts lie linearly, and as EPLB places them: one slot more on every rank, from the loads of other tokens (of a
 * file: of all its tokens). A popular expert is a random one, the same in every draw; a file's ids are taken as they
 * are.
 */
#include "bench_simulate.h"

#include <moxie/moxie_comm.h>
#include <stdlib.h>
#include <string.h>

enum { HISTORY_TOKENS = 16384, COUNT_BYTES = 32 };

/* One rank's part of a draw. */
typedef struct rank_count {
    int64_t choices, rows_out, rows_in, back_out, back_in, peers_out, peers_in;
} rank_count;

typedef struct counter {
    const simulation *sim;
    bench_routing *routing;
    moxie_slot_map map;
    int64_t tokens;                            /* of each rank */
    int32_t *expert_of, *first_slot, *rank_of; /* rank_of [slots] */
    int32_t *slots;                            /* [tokens, K] */
    int64_t *met;                              /* [ranks] the last token + 1 that went there */
    uint8_t *talks;                            /* [ranks] whether this source has sent there */
    rank_count *ranks;
} counter;

static void count_free(counter *c)
{
    free(c->expert_of);
    free(c->first_slot);
    free(c->rank_of);
    free(c->slots);
    free(c->met);
    free(c->talks);
    free(c->ranks);
    *c = (counter) { 0 };
}

static moxie_status no_memory(int64_t ranks, moxie_error *error)
{
    return cli_error(MOXIE_ERR_MEMORY, error, "", "no memory to simulate %lld %s", CLI_COUNT(ranks, "rank"));
}

static moxie_status count_open(counter *c, int64_t ranks, int64_t slots, moxie_error *error)
{
    const int64_t experts = c->sim->whole.experts;
    c->expert_of = malloc((size_t)slots * sizeof *c->expert_of);
    c->first_slot = malloc((size_t)(ranks + 1) * sizeof *c->first_slot);
    c->rank_of = malloc((size_t)slots * sizeof *c->rank_of);
    c->slots = malloc((size_t)(c->tokens * c->sim->whole.top_k) * sizeof *c->slots);
    c->met = calloc((size_t)ranks, sizeof *c->met);
    c->talks = calloc((size_t)ranks, 1);
    c->ranks = calloc((size_t)ranks, sizeof *c->ranks);
    if (!c->expert_of || !c->first_slot || !c->rank_of || !c->slots || !c->met || !c->talks || !c->ranks)
        return no_memory(ranks, error);
    c->map = (moxie_slot_map)MOXIE_SLOT_MAP_INIT;
    c->map.ranks = (int32_t)ranks;
    c->map.experts = (int32_t)experts;
    c->map.slots = (int32_t)slots;
    c->map.expert_of = c->expert_of;
    c->map.first_slot = c->first_slot;
    return MOXIE_OK;
}

/* ---- placement ------------------------------------------------------------------------------------- */

static int64_t slots_of(const simulation *sim, int64_t ranks, bool eplb)
{
    const int64_t experts = sim->whole.experts, spare = (experts + ranks - 1) / ranks + 1;
    if (!eplb)
        return experts;
    return spare < experts ? ranks * spare : ranks * experts;
}

/* The drawn rank of an expert is its popularity, the same expert in every draw. */
static int32_t expert_of_id(const bench_routing *g, int32_t id)
{
    return id < 0 ? -1 : g->kind == BENCH_FILE ? id : g->used[id];
}

static moxie_status place(counter *c, bool eplb, const double *loads, moxie_error *error)
{
    const int32_t experts = c->map.experts, slots = c->map.slots, ranks = c->map.ranks;
    moxie_status status;
    if (eplb) {
        moxie_eplb_config config = MOXIE_EPLB_CONFIG_INIT;
        config.layers = config.distinct = 1;
        config.experts = experts;
        config.slots = slots;
        config.ranks = ranks;
        status = moxie_eplb_balance(&config, loads, c->expert_of, c->first_slot, NULL, error);
    } else {
        status = moxie_slot_map_default(MOXIE_MAP_LINEAR, experts, slots, ranks, c->expert_of, c->first_slot, error);
    }
    for (int32_t r = 0; r < ranks && status == MOXIE_OK; r++)
        for (int32_t p = c->first_slot[r]; p < c->first_slot[r + 1]; p++)
            c->rank_of[p] = r;
    return status;
}

static int64_t most_experts(const counter *c)
{
    int64_t most = 0;
    for (int32_t r = 0; r < c->map.ranks; r++) {
        const int64_t here = c->first_slot[r + 1] - c->first_slot[r];
        most = here > most ? here : most;
    }
    return most;
}

/* ---- counts ---------------------------------------------------------------------------------------- */

/* One choice of a token of rank `source`, served by rank `to`; `token` is its number + 1. */
static void count_choice(counter *c, int32_t source, int32_t to, int64_t token)
{
    c->ranks[to].choices++;
    if (to == source)
        return;
    c->ranks[to].back_out++;
    c->ranks[source].back_in++;
    if (c->met[to] == token)
        return;
    c->met[to] = token;
    c->ranks[source].rows_out++;
    c->ranks[to].rows_in++;
    if (c->talks[to])
        return;
    c->talks[to] = 1;
    c->ranks[source].peers_out++;
    c->ranks[to].peers_in++;
}

static moxie_status count_source(counter *c, int32_t source, moxie_error *error)
{
    bench_routing *g = c->routing;
    const int64_t first = source * c->tokens;
    bench_routing_pattern(g, c->tokens, first);
    for (int64_t i = 0; i < c->tokens * g->top_k; i++)
        g->ids[i] = expert_of_id(g, g->ids[i]);
    const moxie_status status =
        moxie_slot_map_serve(&c->map, source, first, g->ids, c->tokens, g->top_k, c->slots, error);
    memset(c->talks, 0, (size_t)c->map.ranks);
    for (int64_t i = 0; i < c->tokens * g->top_k && status == MOXIE_OK; i++)
        if (c->slots[i] >= 0)
            count_choice(c, source, c->rank_of[c->slots[i]], first + i / g->top_k + 1);
    return status;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static double link_seconds(const sim_link *link, double bytes, int64_t messages)
{
    return bytes / (link->gb_s * 1e9) + link->us * 1e-6 * (double)messages;
}

/* Adds a draw's slowest ranks to the means. */
static void add_draw(const counter *c, int draw, sim_traffic *out)
{
    const moxie_layer_config *whole = &c->sim->whole;
    const sim_link *link = &c->sim->link;
    const int64_t others = c->map.ranks - 1;
    uint64_t row_bytes = 0, back_bytes = 0;
    moxie_exchange_row_bytes(whole, &row_bytes, &back_bytes, NULL); /* a configuration that made a plan */
    const double row = (double)row_bytes, back = (double)back_bytes;
    double dispatch = 0, give_back = 0, sum = 0;
    int64_t most = 0, rows = 0, returned = 0;
    for (int32_t r = 0; r < c->map.ranks; r++) {
        const rank_count *n = &c->ranks[r];
        const int64_t peers = larger(n->peers_out, n->peers_in), moved = larger(n->rows_out, n->rows_in);
        const int64_t results = larger(n->back_out, n->back_in);
        const double there = link_seconds(link, (double)moved * row + (double)others * COUNT_BYTES, peers + others);
        const double again = link_seconds(link, (double)results * back, peers);
        dispatch = there > dispatch ? there : dispatch;
        give_back = again > give_back ? again : give_back;
        most = larger(most, n->choices);
        rows = larger(rows, moved);
        returned = larger(returned, results);
        sum += (double)n->choices;
    }
    out->draw_choices[draw] = most;
    out->choices_mean += sum / c->map.ranks / SIM_DRAWS;
    out->choices_max += (double)most / SIM_DRAWS;
    out->rows_max += (double)rows / SIM_DRAWS;
    out->returned_max += (double)returned / SIM_DRAWS;
    out->dispatch += dispatch / SIM_DRAWS;
    out->give_back += give_back / SIM_DRAWS;
}

static moxie_status count_draws(counter *c, sim_traffic *out, moxie_error *error)
{
    moxie_status status = MOXIE_OK;
    *out = (sim_traffic) { .experts = most_experts(c) };
    c->routing->draws = 0;
    for (int draw = 0; draw < SIM_DRAWS && status == MOXIE_OK; draw++) {
        memset(c->ranks, 0, (size_t)c->map.ranks * sizeof *c->ranks);
        memset(c->met, 0, (size_t)c->map.ranks * sizeof *c->met);
        for (int32_t s = 0; s < c->map.ranks && status == MOXIE_OK; s++)
            status = count_source(c, s, error);
        add_draw(c, draw, out);
    }
    return status;
}

/* ---- rows ------------------------------------------------------------------------------------------ */

static moxie_status count_placement(const simulation *sim, bench_routing *routing, const sim_row *row, bool eplb,
                                    const double *loads, sim_traffic *out, moxie_error *error)
{
    counter c = { .sim = sim, .routing = routing, .tokens = row->tokens };
    const int64_t slots = slots_of(sim, row->ranks, eplb);
    moxie_status status = count_open(&c, row->ranks, slots, error);
    if (status == MOXIE_OK)
        status = place(&c, eplb, loads, error);
    if (status == MOXIE_OK)
        status = count_draws(&c, out, error);
    count_free(&c);
    return status;
}

/* Loads of experts over tokens that no step has; of a file, over all of it. */
static void take_history(simulation *sim, bench_routing *g, int64_t at_once, double *loads)
{
    const int64_t wanted = g->file_tokens ? g->file_tokens : HISTORY_TOKENS;
    g->draws = UINT64_C(1) << 40;
    for (sim->history = 0; sim->history < wanted;) {
        const int64_t left = wanted - sim->history, tokens = left < at_once ? left : at_once;
        bench_routing_pattern(g, tokens, sim->history);
        for (int64_t i = 0; i < tokens * g->top_k; i++)
            if (g->ids[i] >= 0)
                loads[expert_of_id(g, g->ids[i])]++;
        sim->history += tokens;
    }
}

moxie_status sim_count_traffic(simulation *sim, bench_routing *routing, moxie_error *error)
{
    double loads[MOXIE_MAX_EXPERTS] = { 0 };
    int64_t most = 0;
    moxie_status status = MOXIE_OK;
    for (int i = 0; i < sim->n_rows; i++)
        most = larger(most, sim->rows[i].tokens);
    bench_routing_shuffle(routing);
    take_history(sim, routing, most, loads);
    for (int i = 0; i < sim->n_rows && status == MOXIE_OK; i++) {
        sim_row *row = &sim->rows[i];
        status = count_placement(sim, routing, row, false, loads, &row->linear.traffic, error);
        if (status == MOXIE_OK)
            status = count_placement(sim, routing, row, true, loads, &row->eplb.traffic, error);
    }
    return status;
}
