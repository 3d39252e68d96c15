/* SPDX-License-Identifier: Apache-2.0
 *
 * exchange.c - the order of rows in an exchange (exchange.h). Indices on the calling thread, rows on the executor.
 */
#include "layer/run/exchange.h"

#include "base/executor.h"
#include "base/sizes.h"
#include "layer/run/exchange_codes.h"
#include "layer/run/run_adapters.h"
#include "route/replica.h"

/* ---- who owns which token ---------------------------------------------------------------------------- */

static int64_t first_token(const mox_run *run, int32_t rank)
{
    const mox_ranks *x = run->plan->ranks;
    return x->layout == MOXIE_TOKENS_SHARDED ? 0 : mox_ranks_first_token(x, run->args.tokens, rank);
}

static int64_t end_token(const mox_run *run, int32_t rank)
{
    const mox_ranks *x = run->plan->ranks;
    return x->layout == MOXIE_TOKENS_SHARDED ? run->args.tokens : mox_ranks_first_token(x, run->args.tokens, rank + 1);
}

/* The most tokens that a rank owns in this run. Of tokens that all ranks have, the same number on all. */
static int64_t most_own(const mox_run *run)
{
    const mox_ranks *x = run->plan->ranks;
    return x->layout == MOXIE_TOKENS_SHARDED ? run->args.tokens : mox_ceil_div(run->args.tokens, x->count);
}

static int64_t chunk_tokens(const mox_run *run)
{
    const mox_ranks *x = run->plan->ranks;
    return x->capacity > 0 ? x->capacity : mox_ranks_even_chunk(most_own(run), x->chunk_tokens);
}

mox_chunk mox_exchange_chunk(const mox_run *run, int32_t rank, int64_t number)
{
    const int64_t size = chunk_tokens(run), end = end_token(run, rank);
    const int64_t first = mox_min_i64(first_token(run, rank) + number * size, end);
    return (mox_chunk) { number, first, mox_min_i64(size, end - first) };
}

int64_t mox_exchange_own_tokens(const mox_run *run)
{
    const int32_t rank = run->plan->ranks->rank;
    return end_token(run, rank) - first_token(run, rank);
}

/* A rank with one token less may need a chunk less; it takes part in all, and may be the only one that is left. */
int64_t mox_exchange_chunks(const mox_run *run)
{
    return mox_max_i64(mox_ceil_div(most_own(run), run->plan->ranks->chunk_tokens), 1);
}

/* ---- who computes which choice ----------------------------------------------------------------------- */

static int32_t group_of(const mox_ranks *x, int32_t home, int64_t expert, int64_t turn)
{
    const int32_t group = mox_replica_group(x->first_replica, x->replica, home, (int32_t)expert, turn);
    const int32_t first = x->first_replica[expert], count = x->first_replica[expert + 1] - first;
    const bool others = x->degraded != MOXIE_DEGRADED_NONE && x->layout == MOXIE_TOKENS_SHARDED && group != home;
    for (int32_t i = 0; others && i < count; i++)
        if (!mox_comm_is_lost(x->comm, x->replica[first + (turn + i) % count]))
            return x->replica[first + (turn + i) % count];
    return group;
}

/* groups[j]: who computes choice j of token t, which rank `source` owns; -1: it is skipped, or a zero expert's. */
static void choose_groups(const mox_run *run, int32_t source, int64_t t, int32_t *groups)
{
    const mox_ranks *x = run->plan->ranks;
    const moxie_layer_config *c = &run->plan->config;
    for (int64_t j = 0; j < c->top_k; j++) {
        const int32_t expert = run->ids[t * c->top_k + j];
        const bool computed = expert >= 0 && expert < c->experts;
        groups[j] = computed ? group_of(x, source / x->tp_size, expert, t + j) : -1;
    }
}

/* Whether choice j is the first of its token for its group. */
static bool begins_row(const int32_t *groups, int64_t j)
{
    for (int64_t i = 0; i < j; i++)
        if (groups[i] == groups[j])
            return false;
    return true;
}

/* ---- rows -------------------------------------------------------------------------------------------- */

/* Rows that are made of own tokens, and what each is a copy of; -1: of nothing. */
typedef struct row_buffers {
    char *x;
    int64_t *token;
    int32_t *ids;
    float *weights;    /* NULL: not needed */
    int32_t *adapters; /* NULL: the plan has none */
} row_buffers;

static row_buffers buffers(const mox_run *run, bool send)
{
    const mox_ranks_space *s = &run->plan->ranks->space;
    const bool weights = run->plan->config.routing.on_input != 0, adapters = run->plan->ranks->adapted;
    return (row_buffers) {
        .x = run->space + (send ? s->send_x : s->recv_x),
        .token = (int64_t *)(run->space + s->token),
        .ids = (int32_t *)(run->space + (send ? s->send_ids : s->recv_ids)),
        .weights = weights ? (float *)(run->space + (send ? s->send_weights : s->recv_weights)) : NULL,
        .adapters = adapters ? (int32_t *)(run->space + (send ? s->send_adapters : s->recv_adapters)) : NULL,
    };
}

/* `from`: the number of token t among the rows that are copied. */
static void begin_row(const mox_run *run, const row_buffers *b, int64_t row, int64_t t, int64_t from)
{
    const int64_t k = run->plan->config.top_k;
    b->token[row] = from;
    if (b->adapters != NULL)
        b->adapters[row] = mox_run_adapter_of_token(run, t);
    for (int64_t j = 0; j < k; j++) {
        b->ids[row * k + j] = -1;
        if (b->weights != NULL)
            b->weights[row * k + j] = run->weights[t * k + j];
    }
}

/* Rows that a fixed capacity leaves unused. */
static void pad_rows(const mox_run *run, const row_buffers *b, int64_t first, int64_t end)
{
    const int64_t k = run->plan->config.top_k;
    for (int64_t row = first; row < end; row++)
        b->token[row] = -1;
    for (int64_t row = first; b->adapters != NULL && row < end; row++)
        b->adapters[row] = -1;
    for (int64_t i = first * k; i < end * k; i++)
        b->ids[i] = -1;
}

enum { ROWS_PER_TASK = 16 };

typedef struct row_copy {
    const row_buffers *buffers;
    const char *from; /* the row of token 0 */
    int64_t rows;
    size_t bytes;
} row_copy;

static void copy_some(void *context, int64_t task, int32_t worker)
{
    const row_copy *c = context;
    const int64_t first = task * ROWS_PER_TASK, end = mox_min_i64(first + ROWS_PER_TASK, c->rows);
    (void)worker;
    for (int64_t row = first; row < end; row++)
        if (c->buffers->token[row] >= 0)
            memcpy(c->buffers->x + (size_t)row * c->bytes, c->from + (size_t)c->buffers->token[row] * c->bytes,
                   c->bytes);
}

static void copy_rows(const mox_run *run, const row_buffers *b, const char *from, int64_t rows)
{
    if (run->plan->backend->on_device) /* mox_ranks_gather_hidden does it */
        return;
    row_copy copy = { b, from, rows, (size_t)run->plan->ranks->row_bytes };
    mox_parallel(run->queue.executor, mox_ceil_div(rows, ROWS_PER_TASK), copy_some, &copy);
}

/* ---- own tokens -------------------------------------------------------------------------------------- */

/* Counts of a group are kept at its first rank; the others of the group get the same rows. */
static void count_rows(const mox_run *run, const mox_chunk *chunk)
{
    const mox_ranks *x = run->plan->ranks;
    const mox_ranks_counts *n = &x->counts;
    int32_t groups[MOXIE_MAX_TOP_K];
    for (int32_t r = 0; r < x->count; r++)
        n->rows[r] = n->pairs[r] = 0;
    for (int64_t t = chunk->first; t < chunk->first + chunk->tokens; t++) {
        choose_groups(run, x->rank, t, groups);
        for (int64_t j = 0; j < run->plan->config.top_k; j++)
            if (groups[j] >= 0) {
                n->rows[groups[j] * x->tp_size] += begins_row(groups, j);
                n->pairs[groups[j] * x->tp_size]++;
            }
    }
}

/* Where each group's rows and results begin; then the same numbers for all ranks of a group. */
static int64_t place_rows(const mox_ranks *x)
{
    const mox_ranks_counts *n = &x->counts;
    int64_t row = 0, pair = 0;
    for (int32_t first = 0; first < x->count; first += x->tp_size) {
        for (int32_t r = first; r < first + x->tp_size; r++) {
            n->rows[r] = n->rows[first];
            n->pairs[r] = n->pairs[first];
            n->at[r] = n->next_row[r] = row;
            n->pairs_at[r] = n->next_pair[r] = pair;
        }
        row += n->rows[first];
        pair += n->pairs[first];
    }
    return row;
}

/* Every group has room for all own tokens. */
int64_t mox_exchange_place_fixed(const mox_ranks *x, int64_t top_k)
{
    const mox_ranks_counts *n = &x->counts;
    for (int32_t r = 0; r < x->count; r++) {
        const int32_t group = r / x->tp_size;
        n->rows[r] = x->capacity;
        n->pairs[r] = x->capacity * top_k;
        n->at[r] = n->next_row[r] = group * x->capacity;
        n->pairs_at[r] = n->at[r] * top_k;
    }
    return x->groups * x->capacity;
}

/* Where the result of choice j comes to, whose row for rank r was the last to begin. */
static int64_t next_result(const mox_ranks *x, int32_t r, int64_t top_k, int64_t j)
{
    return x->capacity > 0 ? (x->counts.next_row[r] - 1) * top_k + j : x->counts.next_pair[r]++;
}

/* Begins the rows of own token t, and sets where its results come to. Sends nothing where all ranks have all tokens. */
static void send_token(const mox_run *run, const mox_chunk *chunk, const row_buffers *b, int64_t t)
{
    const mox_ranks *x = run->plan->ranks;
    const int64_t k = run->plan->config.top_k;
    const bool sends = x->layout == MOXIE_TOKENS_SHARDED;
    int64_t *next_row = x->counts.next_row;
    int64_t *position = (int64_t *)(run->space + x->space.position) + (t - chunk->first) * k;
    int32_t groups[MOXIE_MAX_TOP_K];
    choose_groups(run, x->rank, t, groups);
    for (int64_t j = 0; j < k; j++) {
        const int32_t r = groups[j] * x->tp_size;
        position[j] = -1;
        if (groups[j] < 0)
            continue;
        const bool begins = begins_row(groups, j);
        if (begins && sends)
            begin_row(run, b, next_row[r], t, x->coded ? t - chunk->first : t);
        next_row[r] += begins;
        position[j] = next_result(x, r, k, j);
        if (sends)
            b->ids[(next_row[r] - 1) * k + j] = run->ids[t * k + j];
    }
}

void mox_exchange_send(const mox_run *run, const mox_chunk *chunk)
{
    const mox_ranks *x = run->plan->ranks;
    const mox_ranks_counts *n = &x->counts;
    const row_buffers b = buffers(run, true);
    if (x->capacity == 0)
        count_rows(run, chunk);
    const int64_t rows = x->capacity > 0 ? mox_exchange_place_fixed(x, run->plan->config.top_k) : place_rows(x);
    for (int64_t t = chunk->first; t < chunk->first + chunk->tokens; t++)
        send_token(run, chunk, &b, t);
    if (x->layout != MOXIE_TOKENS_SHARDED)
        return;
    for (int32_t r = 0; x->capacity > 0 && r < x->count; r += x->tp_size)
        pad_rows(run, &b, n->next_row[r], n->at[r] + x->capacity);
    if (x->coded)
        mox_exchange_quantize(run, chunk->first, chunk->tokens);
    copy_rows(run, &b, x->coded ? run->space + x->space.coded : run->args.hidden, rows);
}

/* ---- all tokens -------------------------------------------------------------------------------------- */

void mox_exchange_take(const mox_run *run, int64_t number)
{
    const mox_ranks *x = run->plan->ranks;
    const mox_ranks_counts *n = &x->counts;
    const int64_t k = run->plan->config.top_k;
    const row_buffers b = buffers(run, false);
    int32_t groups[MOXIE_MAX_TOP_K];
    int64_t rows = 0;
    for (int32_t s = 0; s < x->count; s++) {
        const mox_chunk chunk = mox_exchange_chunk(run, s, number);
        n->from[s] = rows;
        n->from_pairs[s] = 0;
        for (int64_t t = chunk.first; t < chunk.first + chunk.tokens; t++) {
            choose_groups(run, s, t, groups);
            for (int64_t j = 0; j < k; j++) {
                if (groups[j] != x->group)
                    continue;
                if (begins_row(groups, j))
                    begin_row(run, &b, rows++, t, t);
                b.ids[(rows - 1) * k + j] = run->ids[t * k + j];
                n->from_pairs[s]++;
            }
        }
        if (x->capacity > 0) {
            pad_rows(run, &b, rows, n->from[s] + x->capacity);
            rows = n->from[s] + x->capacity;
            n->from_pairs[s] = x->capacity * k;
        }
        n->from_rows[s] = rows - n->from[s];
    }
    copy_rows(run, &b, run->args.hidden, rows);
}
