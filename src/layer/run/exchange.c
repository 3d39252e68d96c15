/* SPDX-License-Identifier: Apache-2.0
 *
 * exchange.c - the order of rows in an exchange (exchange.h). Indices on the calling thread, rows on the executor.
 */
#include "layer/run/exchange.h"

#include "base/executor.h"
#include "base/sizes.h"

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

mox_chunk mox_exchange_chunk(const mox_run *run, int32_t rank, int64_t number)
{
    const int64_t size = run->plan->ranks->chunk_tokens, end = end_token(run, rank);
    const int64_t first = mox_min_i64(first_token(run, rank) + number * size, end);
    return (mox_chunk) { number, first, mox_min_i64(size, end - first) };
}

int64_t mox_exchange_chunks(const mox_run *run)
{
    const mox_ranks *x = run->plan->ranks;
    const int64_t tokens = end_token(run, x->rank) - first_token(run, x->rank);
    return mox_max_i64(mox_ceil_div(tokens, x->chunk_tokens), 1);
}

/* ---- who computes which choice ----------------------------------------------------------------------- */

static int32_t group_of(const mox_ranks *x, int32_t home, int64_t expert, int64_t turn)
{
    const int32_t first = x->first_replica[expert], count = x->first_replica[expert + 1] - first;
    for (int32_t i = 0; i < count; i++)
        if (x->replica[first + i] == home)
            return home;
    for (int32_t i = 0; x->degraded != MOXIE_DEGRADED_NONE && x->layout == MOXIE_TOKENS_SHARDED && i < count; i++)
        if (!mox_comm_is_lost(x->comm, x->replica[first + (turn + i) % count]))
            return x->replica[first + (turn + i) % count];
    return x->replica[first + turn % count];
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

/* Rows that are made of own tokens, and the token of each. */
typedef struct row_buffers {
    char *x;
    int64_t *token;
    int32_t *ids;
    float *weights; /* NULL: not needed */
} row_buffers;

static row_buffers buffers(const mox_run *run, bool send)
{
    const mox_ranks_space *s = &run->plan->ranks->space;
    const bool weights = run->plan->config.routing.on_input != 0;
    return (row_buffers) {
        .x = run->space + (send ? s->send_x : s->recv_x),
        .token = (int64_t *)(run->space + s->token),
        .ids = (int32_t *)(run->space + (send ? s->send_ids : s->recv_ids)),
        .weights = weights ? (float *)(run->space + (send ? s->send_weights : s->recv_weights)) : NULL,
    };
}

static void begin_row(const mox_run *run, const row_buffers *b, int64_t row, int64_t t)
{
    const int64_t k = run->plan->config.top_k;
    b->token[row] = t;
    for (int64_t j = 0; j < k; j++) {
        b->ids[row * k + j] = -1;
        if (b->weights != NULL)
            b->weights[row * k + j] = run->weights[t * k + j];
    }
}

enum { ROWS_PER_TASK = 16 };

typedef struct row_copy {
    const mox_run *run;
    const row_buffers *buffers;
    int64_t rows;
    size_t bytes;
} row_copy;

static void copy_some(void *context, int64_t task, int32_t worker)
{
    const row_copy *c = context;
    const int64_t first = task * ROWS_PER_TASK, end = mox_min_i64(first + ROWS_PER_TASK, c->rows);
    (void)worker;
    for (int64_t row = first; row < end; row++)
        memcpy(c->buffers->x + (size_t)row * c->bytes,
               (const char *)c->run->args.hidden + (size_t)c->buffers->token[row] * c->bytes, c->bytes);
}

static void copy_hidden(const mox_run *run, const row_buffers *b, int64_t rows)
{
    const moxie_layer_config *c = &run->plan->config;
    row_copy copy = { run, b, rows, (size_t)(c->hidden * mox_dtype_bytes(c->dtype)) };
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

void mox_exchange_send(const mox_run *run, const mox_chunk *chunk)
{
    const mox_ranks *x = run->plan->ranks;
    const mox_ranks_counts *n = &x->counts;
    const int64_t k = run->plan->config.top_k;
    const bool sends = x->layout == MOXIE_TOKENS_SHARDED;
    const row_buffers b = buffers(run, true);
    int64_t *position = (int64_t *)(run->space + x->space.position);
    int32_t groups[MOXIE_MAX_TOP_K];
    count_rows(run, chunk);
    const int64_t rows = place_rows(x);
    for (int64_t t = chunk->first; t < chunk->first + chunk->tokens; t++) {
        choose_groups(run, x->rank, t, groups);
        for (int64_t j = 0; j < k; j++) {
            const int32_t r = groups[j] * x->tp_size;
            position[(t - chunk->first) * k + j] = groups[j] >= 0 ? n->next_pair[r]++ : -1;
            if (groups[j] < 0 || !sends)
                continue;
            if (begins_row(groups, j))
                begin_row(run, &b, n->next_row[r]++, t);
            b.ids[(n->next_row[r] - 1) * k + j] = run->ids[t * k + j];
        }
    }
    if (sends)
        copy_hidden(run, &b, rows);
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
                    begin_row(run, &b, rows++, t);
                b.ids[(rows - 1) * k + j] = run->ids[t * k + j];
                n->from_pairs[s]++;
            }
        }
        n->from_rows[s] = rows - n->from[s];
    }
    copy_hidden(run, &b, rows);
}
