/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_routing.c - the experts of every token, drawn anew for every run from (seed, number of the draw):
 *
 *     uniform   every token chooses K different experts, all equally likely
 *     zipf      rank r of the experts is chosen in proportion to 1/r, without replacement; every run assigns
 *               ranks to experts anew
 *     one-hot   every token chooses the same K experts
 *     skewed    one expert is chosen by six times the mean of tokens, T K / E (by all, if those are fewer), the other
 *               choices are uniform
 *     a file    the ids of a real router, the first T rows
 *
 * A draw has two halves. First, ranks are drawn as above: they say which tokens share an expert. Then each rank gets an
 * expert: the ones that were read longest ago, so that their weights come from memory. Any expert will do, as all cost
 * the same time. A file's ids are ranks in this sense, too.
 */
#include "bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* How many times the mean of tokens the one expert of a skewed routing has. */
#define CROWD 6.0

/* splitmix64, restarted for every draw. */
typedef struct rng {
    uint64_t state;
} rng;

static uint64_t next(rng *r)
{
    uint64_t z = (r->state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double unit(rng *r)
{
    return (double)(next(r) >> 11) * 0x1p-53;
}

static int64_t below(rng *r, int64_t bound)
{
    return (int64_t)(unit(r) * (double)bound);
}

static void shuffle(rng *r, int32_t *list, int64_t count)
{
    for (int64_t i = count - 1; i > 0; i--) {
        const int64_t other = below(r, i + 1);
        const int32_t kept = list[i];
        list[i] = list[other];
        list[other] = kept;
    }
}

/* ---- the pattern, in ranks ------------------------------------------------------------------------- */

static int32_t zipf_rank(const bench_routing *g, rng *r)
{
    const double at = unit(r) * g->cumulative[g->experts - 1];
    int64_t low = 0, high = g->experts - 1;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (g->cumulative[middle] > at)
            high = middle;
        else
            low = middle + 1;
    }
    return (int32_t)low;
}

static bool among(const int32_t *list, int64_t count, int32_t value)
{
    for (int64_t i = 0; i < count; i++)
        if (list[i] == value)
            return true;
    return false;
}

/* Whether token t chooses the skewed routing's one expert. Its tokens are spread evenly over the batch, give or take
 * one; `offset`, within [0, 1), shifts them. */
static bool joins_crowd(const bench_routing *g, int64_t t, double offset)
{
    const double share = fmin(CROWD * (double)g->top_k / (double)g->experts, 1);
    return floor((double)(t + 1) * share + offset) > floor((double)t * share + offset);
}

/* K different ranks for one token of a skewed routing; the one expert's rank is 0. */
static void draw_skewed(const bench_routing *g, rng *r, bool joins, int32_t *ranks)
{
    ranks[0] = 0;
    for (int64_t j = joins; j < g->top_k; j++)
        do
            ranks[j] = 1 + (int32_t)below(r, g->experts - 1);
        while (among(ranks, j, ranks[j]));
}

/* K different ranks for one token, of the other kinds. */
static void draw_token(const bench_routing *g, rng *r, int32_t *ranks)
{
    for (int64_t j = 0; j < g->top_k; j++) {
        if (g->kind == BENCH_ONE_HOT) {
            ranks[j] = (int32_t)j;
            continue;
        }
        do
            ranks[j] = g->kind == BENCH_ZIPF ? zipf_rank(g, r) : (int32_t)below(r, g->spread);
        while (among(ranks, j, ranks[j]));
    }
}

/* Token t of a file is row (first + t) mod file_tokens. */
static void take_rows(bench_routing *g, int64_t tokens, int64_t first)
{
    const size_t row = (size_t)g->top_k;
    for (int64_t t = 0; t < tokens; t++)
        memcpy(g->ids + (size_t)t * row, g->file_ids + (size_t)((first + t) % g->file_tokens) * row,
               row * sizeof *g->ids);
}

static void draw_pattern(bench_routing *g, rng *r, int64_t tokens, int64_t first)
{
    if (g->kind == BENCH_FILE) {
        take_rows(g, tokens, first);
        return;
    }
    const double offset = g->kind == BENCH_SKEWED ? unit(r) : 0;
    for (int64_t t = 0; t < tokens; t++) {
        int32_t *ranks = g->ids + t * g->top_k;
        if (g->kind == BENCH_SKEWED)
            draw_skewed(g, r, joins_crowd(g, t, offset), ranks);
        else
            draw_token(g, r, ranks);
    }
    for (int64_t i = 0; i < tokens * g->top_k && g->skips; i++)
        g->ids[i] = -1;
}

/* ---- ranks become experts --------------------------------------------------------------------------- */

typedef struct aged {
    uint64_t last_read;
    int32_t place, expert; /* place: random, decides between experts of one age */
} aged;

static int by_age(const void *a, const void *b)
{
    const aged *x = a, *y = b;
    return x->last_read != y->last_read ? (x->last_read > y->last_read ? 1 : -1) : x->place - y->place;
}

/* The `count` experts that were read longest ago, in random order. */
static void take_oldest(const bench_routing *g, rng *r, const uint64_t *last_read, int64_t count, int32_t *out)
{
    aged all[MOXIE_MAX_EXPERTS];
    int32_t place[MOXIE_MAX_EXPERTS];
    for (int64_t e = 0; e < g->experts; e++)
        place[e] = (int32_t)e;
    shuffle(r, place, g->experts);
    for (int64_t e = 0; e < g->experts; e++)
        all[e] = (aged) { last_read[e], place[e], (int32_t)e };
    qsort(all, (size_t)g->experts, sizeof all[0], by_age);
    for (int64_t i = 0; i < count; i++)
        out[i] = all[i].expert;
    shuffle(r, out, count);
}

/* label[rank] for every rank that occurs; -1 for the others. Fills `used`, `touched`, `pairs` and `fullest`. */
static void deal_experts(bench_routing *g, rng *r, int64_t tokens, const uint64_t *last_read)
{
    int32_t ranks[MOXIE_MAX_EXPERTS], count[MOXIE_MAX_EXPERTS] = { 0 };
    g->touched = g->pairs = g->fullest = 0;
    for (int64_t e = 0; e < g->experts; e++)
        g->label[e] = -1;
    for (int64_t i = 0; i < tokens * g->top_k; i++) {
        const int32_t rank = g->ids[i];
        g->pairs += rank >= 0;
        if (rank >= 0 && g->label[rank] < 0) {
            g->label[rank] = 0;
            ranks[g->touched++] = rank;
        }
        if (rank >= 0 && ++count[rank] > g->fullest)
            g->fullest = count[rank];
    }
    take_oldest(g, r, last_read, g->touched, g->used);
    for (int64_t i = 0; i < g->touched; i++)
        g->label[ranks[i]] = g->used[i];
    for (int64_t i = 0; i < tokens * g->top_k; i++)
        if (g->ids[i] >= 0)
            g->ids[i] = g->label[g->ids[i]];
}

static void draw_weights(bench_routing *g, rng *r, int64_t tokens)
{
    for (int64_t t = 0; t < tokens; t++) {
        float *w = g->weights + t * g->top_k, sum = 0;
        for (int64_t j = 0; j < g->top_k; j++)
            sum += w[j] = (float)(0.25 + unit(r));
        for (int64_t j = 0; j < g->top_k; j++)
            w[j] /= sum;
    }
}

static rng next_draw(bench_routing *g)
{
    rng r = { .state = g->seed * 0xd1342543de82ef95u + ++g->draws };
    next(&r);
    return r;
}

void bench_routing_pattern(bench_routing *g, int64_t tokens, int64_t first)
{
    rng r = next_draw(g);
    draw_pattern(g, &r, tokens, first);
}

void bench_routing_shuffle(bench_routing *g)
{
    rng r = { .state = g->seed };
    for (int64_t e = 0; e < g->experts; e++)
        g->used[e] = (int32_t)e;
    shuffle(&r, g->used, g->experts);
}

void bench_routing_draw(bench_routing *g, int64_t tokens, const uint64_t *last_read)
{
    rng r = next_draw(g);
    draw_pattern(g, &r, tokens, 0);
    deal_experts(g, &r, tokens, last_read);
    if (g->file_weights)
        memcpy(g->weights, g->file_weights, (size_t)(tokens * g->top_k) * sizeof *g->weights);
    else
        draw_weights(g, &r, tokens);
}

/* ---- life ---------------------------------------------------------------------------------------------- */

static moxie_status allocate(bench_routing *g, moxie_error *error)
{
    g->label = calloc((size_t)g->experts, sizeof *g->label);
    g->used = calloc((size_t)g->experts, sizeof *g->used);
    g->cumulative = calloc((size_t)g->experts, sizeof *g->cumulative);
    if (!g->label || !g->used || !g->cumulative)
        return cli_error(MOXIE_ERR_MEMORY, error, "", "no memory to route to %lld %s", CLI_COUNT(g->experts, "expert"));
    for (int64_t e = 0; e < g->experts; e++)
        g->cumulative[e] = (e > 0 ? g->cumulative[e - 1] : 0) + 1 / (double)(e + 1);
    return MOXIE_OK;
}

static const char *const names[] = { "uniform", "zipf", "one-hot", "skewed", NULL };
const cli_names bench_routing_names = { .kind = "routing", .fixed = names };

moxie_status bench_routing_open(const char *name, const moxie_layer_config *config, int64_t layer, uint64_t seed,
                                bench_routing *out, moxie_error *error)
{
    *out = (bench_routing) { .kind = BENCH_FILE,
                             .name = name,
                             .layer = layer,
                             .experts = config->experts,
                             .spread = config->experts,
                             .top_k = config->top_k,
                             .seed = seed };
    const int32_t named = cli_find_name(&bench_routing_names, name);
    if (named >= 0)
        out->kind = (bench_routing_kind)named;
    const moxie_status status = allocate(out, error);
    if (status != MOXIE_OK || out->kind != BENCH_FILE)
        return status;
    return bench_routing_read(out, error);
}

moxie_status bench_routing_reserve(bench_routing *g, int64_t tokens, moxie_error *error)
{
    if (g->kind == BENCH_FILE && tokens > g->file_tokens)
        return cli_error(MOXIE_ERR_MISMATCH, error, g->name,
                         "%lld %s asked for, but it routes %lld: give --tokens up to that, or a longer file",
                         CLI_COUNT_OF(tokens, "token was", "tokens were"), (long long)g->file_tokens);
    g->ids = malloc((size_t)(tokens * g->top_k) * sizeof *g->ids);
    g->weights = malloc((size_t)(tokens * g->top_k) * sizeof *g->weights);
    if (g->ids && g->weights)
        return MOXIE_OK;
    return cli_error(MOXIE_ERR_MEMORY, error, "", "no memory to route %lld %s", CLI_COUNT(tokens, "token"));
}

void bench_routing_free(bench_routing *g)
{
    free(g->cumulative);
    free(g->file_ids);
    free(g->file_weights);
    free(g->ids);
    free(g->weights);
    free(g->used);
    free(g->label);
    *g = (bench_routing) { 0 };
}
