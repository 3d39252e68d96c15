/* SPDX-License-Identifier: Apache-2.0
 *
 * run_tp.c - the gathers and sums between the ranks of a tensor parallel group (run_tp.h).
 *
 *     mine [pairs, cols_r] f32 -> pieces of 16 columns [pairs, pieces_r] -> to every rank of the group
 *     from rank q: pieces [pairs, pieces_q] -> columns [first_q, first_q + cols_q) of out [pairs, cols] f32
 *
 * An act that is not quantized travels in the type of the hidden states: W2 reads act rounded to it, and rounding twice
 * is rounding once. Quantizers and adapters read f32, so then it travels as f32; so does y. An all-to-all with no rows
 * for ranks of other groups does the work of a gather in each group.
 *
 * On a device copy_rows (cuda_table.h) packs and unpacks; ranks_device.h says how pieces travel from there.
 */
#include "layer/run/run_tp.h"

#include <string.h>

#include "base/executor.h"
#include "base/sizes.h"
#include "comm/comm.h"
#include "format/format.h"
#include "layer/plan/plan_tp.h"
#include "layer/run/exchange.h"
#include "layer/run/ranks_device.h"

typedef struct gather {
    const moxie_plan *plan;
    mox_expert_kind kind;
    mox_projection projection;
    const int64_t *share; /* [tp_size] pairs of each rank of the group, one after the other: each gets its own; NULL:
                           * each gets all */
    moxie_dtype dtype;
    int64_t piece_bytes, pairs, cols; /* cols: of out */
    mox_tp_rows own;
    const float *mine;
    float *out;
    char *send;
    const char *recv;
    const int64_t *recv_at; /* [tp_size] first piece of each rank of the group */
} gather;

/* Pairs that come back, of which there are pieces of all ranks. */
static int64_t pairs_in(const gather *g)
{
    return g->share != NULL ? g->share[g->plan->config.tp_rank] : g->pairs;
}

static mox_tp_rows columns_of(const gather *g, int32_t rank)
{
    return mox_tp_columns(g->plan, g->kind, g->projection, rank);
}

/* ---- one pair ------------------------------------------------------------------------------------- */

static void pack_pair(void *context, int64_t pair, int32_t worker)
{
    (void)worker;
    const gather *g = context;
    const int64_t cols = g->own.count, bytes = mox_tp_pieces(cols) * g->piece_bytes;
    const float *from = g->mine + pair * cols;
    char *to = g->send + pair * bytes;
    const int64_t used = cols * mox_dtype_bytes(g->dtype);
    if (g->dtype == MOXIE_F32)
        memcpy(to, from, (size_t)used);
    else
        mox_narrow(g->dtype, from, to, cols);
    memset(to + used, 0, (size_t)(bytes - used));
}

static void unpack_pair(void *context, int64_t pair, int32_t worker)
{
    (void)worker;
    const gather *g = context;
    for (int32_t r = 0; r < mox_config_tp_ranks(&g->plan->config); r++) {
        const mox_tp_rows part = columns_of(g, r);
        const char *from = g->recv + (g->recv_at[r] + pair * mox_tp_pieces(part.count)) * g->piece_bytes;
        float *to = g->out + pair * g->cols + part.first;
        if (part.count == 0)
            continue;
        if (g->dtype == MOXIE_F32)
            memcpy(to, from, (size_t)part.count * sizeof *to);
        else
            mox_widen(g->dtype, from, to, part.count);
    }
}

/* ---- all pairs ------------------------------------------------------------------------------------ */

static bool on_device(const mox_run *run)
{
    return run->plan->backend->on_device;
}

static moxie_status copy_rows(const mox_run *run, const mox_cuda_copy_rows_args *args, moxie_error *error)
{
    return run->queue.table->copy_rows(args, run->queue.stream, error);
}

static moxie_status pack(const mox_run *run, const gather *g, moxie_error *error)
{
    const int64_t width = mox_tp_pieces(g->own.count) * MOX_TP_UNIT;
    if (g->own.count == 0)
        return MOXIE_OK;
    if (!on_device(run)) {
        mox_parallel(run->queue.executor, g->pairs, pack_pair, (void *)(uintptr_t)g);
        return MOXIE_OK;
    }
    const mox_cuda_copy_rows_args args = { .rows = g->pairs,
                                           .cols = g->own.count,
                                           .to_cols = width,
                                           .from = g->mine,
                                           .to = g->send,
                                           .from_stride = g->own.count * (int64_t)sizeof(float),
                                           .to_stride = width * mox_dtype_bytes(g->dtype),
                                           .from_dtype = MOXIE_F32,
                                           .to_dtype = g->dtype };
    return copy_rows(run, &args, error);
}

static moxie_status unpack(const mox_run *run, const gather *g, moxie_error *error)
{
    if (!on_device(run)) {
        mox_parallel(run->queue.executor, pairs_in(g), unpack_pair, (void *)(uintptr_t)g);
        return MOXIE_OK;
    }
    for (int32_t r = 0; r < mox_config_tp_ranks(&g->plan->config); r++) {
        const mox_tp_rows part = columns_of(g, r);
        const mox_cuda_copy_rows_args args = { .rows = pairs_in(g),
                                               .cols = part.count,
                                               .to_cols = part.count,
                                               .from = g->recv + g->recv_at[r] * g->piece_bytes,
                                               .to = g->out + part.first,
                                               .from_stride = mox_tp_pieces(part.count) * g->piece_bytes,
                                               .to_stride = g->cols * (int64_t)sizeof(float),
                                               .from_dtype = g->dtype,
                                               .to_dtype = MOXIE_F32 };
        MOX_TRY(copy_rows(run, &args, error));
    }
    return MOXIE_OK;
}

/* ---- the exchange --------------------------------------------------------------------------------- */

/* How many pieces go to and come from each rank of the comm; `space` has 4 numbers a rank. */
static moxie_comm_rows plan_rows(const gather *g, int64_t *space)
{
    const moxie_layer_config *c = &g->plan->config;
    const int32_t ranks = mox_comm_ranks(g->plan->ranks->comm), first = c->ep_rank * mox_config_tp_ranks(c);
    int64_t *send_rows = space, *send_at = space + ranks, *recv_rows = send_at + ranks, *recv_at = recv_rows + ranks;
    int64_t at = 0, before = 0;
    memset(space, 0, 4 * (size_t)ranks * sizeof *space);
    for (int32_t r = 0; r < mox_config_tp_ranks(c); r++) {
        const int64_t pairs = g->share != NULL ? g->share[r] : g->pairs;
        send_rows[first + r] = pairs * mox_tp_pieces(g->own.count);
        send_at[first + r] = g->share != NULL ? before : 0;
        before += send_rows[first + r];
        recv_rows[first + r] = pairs_in(g) * mox_tp_pieces(columns_of(g, r).count);
        recv_at[first + r] = at;
        at += recv_rows[first + r];
    }
    return (moxie_comm_rows) { .send = g->send,
                               .recv = (void *)(uintptr_t)g->recv,
                               .row_bytes = (uint64_t)g->piece_bytes,
                               .send_rows = send_rows,
                               .send_at = send_at,
                               .recv_rows = recv_rows,
                               .recv_at = recv_at };
}

/* Sends `sent` bytes in all to the ranks of the group, and waits for theirs. */
static moxie_status exchange(const mox_run *run, uint64_t sent, moxie_comm_rows *rows, moxie_error *error)
{
    const moxie_plan *plan = run->plan;
    const int32_t first = plan->config.ep_rank * mox_config_tp_ranks(&plan->config);
    mox_comm_request request;
    int64_t came = 0;
    for (int32_t r = 0; r < mox_config_tp_ranks(&plan->config); r++)
        came += rows->recv_rows[first + r];
    MOX_TRY(mox_ranks_lend_pieces(run, sent, rows, error));
    MOX_TRY(mox_comm_start_alltoallv(plan->ranks->comm, rows, &request, error));
    MOX_TRY(mox_comm_wait(plan->ranks->comm, request, error));
    return mox_ranks_bring_pieces(run, (uint64_t)came * rows->row_bytes, error);
}

static moxie_status gather_columns(const mox_run *run, gather *g, moxie_error *error)
{
    const moxie_plan *plan = run->plan;
    const moxie_layer_config *c = &plan->config;
    g->plan = plan;
    g->dtype = mox_tp_dtype(plan, g->kind, g->projection);
    g->cols = g->projection == MOX_W2 ? c->hidden : plan->experts[g->kind].shape.intermediate;
    g->own = columns_of(g, c->tp_rank);
    g->send = run->space + plan->space.tp_send;
    g->recv = run->space + plan->space.tp_recv;
    g->piece_bytes = MOX_TP_UNIT * mox_dtype_bytes(g->dtype);
    moxie_comm_rows rows = plan_rows(g, plan->ranks->tp_numbers);
    g->recv_at = rows.recv_at + c->ep_rank * mox_config_tp_ranks(c);
    const uint64_t sent = (uint64_t)(g->pairs * mox_tp_pieces(g->own.count) * g->piece_bytes);
    const mox_phase before = mox_run_enter(run, MOX_PHASE_EXCHANGE);
    MOX_TRY(pack(run, g, error));
    MOX_TRY(exchange(run, sent, &rows, error));
    MOX_TRY(unpack(run, g, error));
    return mox_run_back(run, before, MOXIE_OK);
}

moxie_status mox_run_tp_gather(const mox_run *run, mox_expert_kind kind, mox_projection projection, int64_t pairs,
                               const float *mine, float *out, moxie_error *error)
{
    gather g = { .kind = kind, .projection = projection, .pairs = pairs, .mine = mine, .out = out };
    return gather_columns(run, &g, error);
}

/* ---- the shared expert ----------------------------------------------------------------------------- */

static int64_t tokens_of_group(const moxie_plan *plan, const int64_t *share)
{
    int64_t tokens = 0;
    for (int32_t r = 0; r < mox_config_tp_ranks(&plan->config); r++)
        tokens += share[r];
    return tokens;
}

moxie_status mox_run_tp_return_shared(const mox_run *run, const int64_t *share, const float *mine, float *out,
                                      moxie_error *error)
{
    gather g = { .kind = MOX_SHARED_EXPERT,
                 .projection = MOX_W2,
                 .share = share,
                 .pairs = tokens_of_group(run->plan, share),
                 .mine = mine,
                 .out = out };
    return gather_columns(run, &g, error);
}

static int64_t hidden_bytes(const mox_run *run)
{
    return run->plan->config.hidden * mox_dtype_bytes(run->plan->config.dtype);
}

/* Hidden states of a chunk of own or of all tokens. */
static moxie_status copy_hidden(const mox_run *run, const mox_chunk *chunk, char *to, moxie_error *error)
{
    const moxie_layer_config *c = &run->plan->config;
    const int64_t bytes = hidden_bytes(run);
    const char *from = (const char *)run->args.hidden + chunk->first * bytes;
    if (!on_device(run)) {
        if (chunk->tokens > 0)
            memcpy(to, from, (size_t)(chunk->tokens * bytes));
        return MOXIE_OK;
    }
    const mox_cuda_copy_rows_args args = { .rows = chunk->tokens,
                                           .cols = c->hidden,
                                           .to_cols = c->hidden,
                                           .from = from,
                                           .to = to,
                                           .from_stride = bytes,
                                           .to_stride = bytes,
                                           .from_dtype = c->dtype,
                                           .to_dtype = c->dtype };
    return copy_rows(run, &args, error);
}

/* Where all ranks have all tokens. */
static moxie_status take_hidden(const mox_run *run, int64_t number, moxie_error *error)
{
    const mox_ranks *x = run->plan->ranks;
    char *to = MOX_RUN_AT(run, char, tp_recv);
    for (int32_t r = 0; r < x->tp_size; r++) {
        const mox_chunk theirs = mox_exchange_chunk(run, x->group * x->tp_size + r, number);
        MOX_TRY(copy_hidden(run, &theirs, to, error));
        to += theirs.tokens * hidden_bytes(run);
    }
    return MOXIE_OK;
}

static moxie_comm_rows plan_hidden(const mox_run *run, const int64_t *share)
{
    const mox_ranks *x = run->plan->ranks;
    int64_t *send_rows = x->tp_numbers, *send_at = send_rows + x->count, *recv_rows = send_at + x->count,
            *recv_at = recv_rows + x->count, at = 0;
    memset(send_rows, 0, 4 * (size_t)x->count * sizeof *send_rows);
    for (int32_t r = 0; r < x->tp_size; r++) {
        const int32_t rank = x->group * x->tp_size + r;
        send_rows[rank] = share[x->tp_rank];
        recv_rows[rank] = share[r];
        recv_at[rank] = at;
        at += share[r];
    }
    return (moxie_comm_rows) { .send = MOX_RUN_AT(run, char, tp_send),
                               .recv = MOX_RUN_AT(run, char, tp_recv),
                               .row_bytes = (uint64_t)hidden_bytes(run),
                               .send_rows = send_rows,
                               .send_at = send_at,
                               .recv_rows = recv_rows,
                               .recv_at = recv_at };
}

moxie_status mox_run_tp_gather_hidden(const mox_run *run, const int64_t *share, int64_t number, const void **out,
                                      moxie_error *error)
{
    const mox_ranks *x = run->plan->ranks;
    const mox_chunk own = mox_exchange_chunk(run, x->rank, number);
    const int64_t bytes = hidden_bytes(run), rows = share[x->tp_rank];
    char *send = MOX_RUN_AT(run, char, tp_send);
    *out = MOX_RUN_AT(run, char, tp_recv);
    if (x->layout != MOXIE_TOKENS_SHARDED)
        return take_hidden(run, number, error);
    moxie_comm_rows all = plan_hidden(run, share);
    const mox_phase before = mox_run_enter(run, MOX_PHASE_EXCHANGE);
    MOX_TRY(copy_hidden(run, &own, send, error));
    MOX_TRY(mox_ranks_clear(run, send + own.tokens * bytes, (uint64_t)((rows - own.tokens) * bytes), error));
    MOX_TRY(exchange(run, (uint64_t)(rows * bytes), &all, error));
    return mox_run_back(run, before, MOXIE_OK);
}

bool mox_run_tp_gathers_y(const mox_run *run)
{
    return run->own == NULL || run->plan->kernels.expert_norm != NULL;
}

moxie_status mox_run_tp_passes(const mox_run *run, int64_t rows, int64_t *passes, moxie_error *error)
{
    const mox_ranks *x = run->plan->ranks;
    mox_comm_request request;
    *passes = mox_ceil_div(rows, run->plan->pass_tokens);
    if (run->plan->tp_cut == MOX_TP_WHOLE || x->groups == 1)
        return MOXIE_OK;
    if (x->capacity > 0 && run->own != NULL) /* rows of an exchange: as many on all ranks */
        return MOXIE_OK;
    MOX_TRY(mox_comm_start_allreduce(x->comm, passes, 1, MOXIE_COMM_MAX_I64, &request, error));
    return mox_comm_wait(x->comm, request, error);
}

/* ---- sums ------------------------------------------------------------------------------------------ */

typedef struct sums {
    const moxie_plan *plan;
    int64_t pairs;
    const float *parts, *recv; /* of this rank [pairs, H]; of all ranks [tp_size][pairs, own pieces] */
    float *send, *out;         /* for rank 0 [pairs, pieces_0], for rank 1 ...; [pairs, H_r] */
} sums;

static int64_t width_of(const moxie_plan *plan, int32_t rank)
{
    return mox_tp_pieces(mox_tp_columns(plan, MOX_ROUTED, MOX_W2, rank).count) * MOX_TP_UNIT;
}

static void send_pair(void *context, int64_t pair, int32_t worker)
{
    const sums *s = context;
    const float *from = s->parts + pair * s->plan->config.hidden;
    int64_t before = 0;
    (void)worker;
    for (int32_t r = 0; r < mox_config_tp_ranks(&s->plan->config); r++) {
        const mox_tp_rows columns = mox_tp_columns(s->plan, MOX_ROUTED, MOX_W2, r);
        const int64_t width = width_of(s->plan, r);
        float *to = s->send + before * s->pairs + pair * width;
        memcpy(to, from + columns.first, (size_t)columns.count * sizeof *to);
        memset(to + columns.count, 0, (size_t)(width - columns.count) * sizeof *to);
        before += width;
    }
}

static void add_pair(void *context, int64_t pair, int32_t worker)
{
    const sums *s = context;
    const int32_t own = s->plan->config.tp_rank;
    const int64_t cols = mox_tp_columns(s->plan, MOX_ROUTED, MOX_W2, own).count, width = width_of(s->plan, own);
    float *to = s->out + pair * cols;
    (void)worker;
    for (int32_t r = 0; r < mox_config_tp_ranks(&s->plan->config); r++) {
        const float *from = s->recv + (r * s->pairs + pair) * width;
        for (int64_t i = 0; i < cols; i++)
            to[i] = r == 0 ? from[i] : to[i] + from[i];
    }
}

/* How many pieces go to and come from each rank of the group; `space` has 4 numbers a rank of the comm. */
static moxie_comm_rows plan_sums(const sums *s, int64_t *space)
{
    const moxie_layer_config *c = &s->plan->config;
    const int32_t ranks = mox_comm_ranks(s->plan->ranks->comm), first = c->ep_rank * mox_config_tp_ranks(c);
    const int64_t own = width_of(s->plan, c->tp_rank) / MOX_TP_UNIT * s->pairs;
    int64_t *send_rows = space, *send_at = space + ranks, *recv_rows = send_at + ranks, *recv_at = recv_rows + ranks;
    int64_t at = 0;
    memset(space, 0, 4 * (size_t)ranks * sizeof *space);
    for (int32_t r = 0; r < mox_config_tp_ranks(c); r++) {
        send_rows[first + r] = width_of(s->plan, r) / MOX_TP_UNIT * s->pairs;
        send_at[first + r] = at;
        at += send_rows[first + r];
        recv_rows[first + r] = own;
        recv_at[first + r] = r * own;
    }
    return (moxie_comm_rows) { .send = s->send,
                               .recv = (void *)(uintptr_t)s->recv,
                               .row_bytes = MOX_TP_UNIT * sizeof(float),
                               .send_rows = send_rows,
                               .send_at = send_at,
                               .recv_rows = recv_rows,
                               .recv_at = recv_at };
}

moxie_status mox_run_tp_sum(mox_run *run, moxie_error *error)
{
    const moxie_plan *plan = run->plan;
    const sums s = { .plan = plan,
                     .pairs = run->permutation.offsets[plan->layer->slots],
                     .parts = run->y,
                     .recv = MOX_RUN_AT(run, float, tp_recv),
                     .send = MOX_RUN_AT(run, float, tp_send),
                     .out = MOX_RUN_AT(run, float, tp_y) };
    const moxie_comm_rows rows = plan_sums(&s, plan->ranks->tp_numbers);
    const mox_phase before = mox_run_enter(run, MOX_PHASE_EXCHANGE);
    mox_comm_request request;
    mox_parallel(run->queue.executor, s.pairs, send_pair, (void *)(uintptr_t)&s);
    MOX_TRY(mox_comm_start_alltoallv(plan->ranks->comm, &rows, &request, error));
    MOX_TRY(mox_comm_wait(plan->ranks->comm, request, error));
    mox_parallel(run->queue.executor, s.pairs, add_pair, (void *)(uintptr_t)&s);
    mox_run_enter(run, before);
    return mox_run_tp_gathers_y(run)
               ? mox_run_tp_gather(run, MOX_ROUTED, MOX_W2, s.pairs, s.out, (float *)(uintptr_t)run->y, error)
               : MOXIE_OK;
}

/* ---- y -------------------------------------------------------------------------------------------- */

typedef struct column_copy {
    const char *from;
    char *to;
    int64_t element;                                    /* bytes of a column */
    int64_t from_cols, to_cols, first, to_first, count; /* columns [first, first + count) of each row */
} column_copy;

static void copy_columns(void *context, int64_t row, int32_t worker)
{
    (void)worker;
    const column_copy *c = context;
    memcpy(c->to + (row * c->to_cols + c->to_first) * c->element,
           c->from + (row * c->from_cols + c->first) * c->element, (size_t)(c->count * c->element));
}

/* All rows of the copy. */
static moxie_status copy_all(const mox_run *run, column_copy *c, int64_t rows, moxie_error *error)
{
    if (!on_device(run)) {
        mox_parallel(run->queue.executor, rows, copy_columns, c);
        return MOXIE_OK;
    }
    const moxie_dtype dtype = c->element == sizeof(float) ? MOXIE_F32 : MOXIE_BF16; /* any of 16 bits */
    const mox_cuda_copy_rows_args args = { .rows = rows,
                                           .cols = c->count,
                                           .to_cols = c->count,
                                           .from = c->from + c->first * c->element,
                                           .to = c->to + c->to_first * c->element,
                                           .from_stride = c->from_cols * c->element,
                                           .to_stride = c->to_cols * c->element,
                                           .from_dtype = dtype,
                                           .to_dtype = dtype };
    return copy_rows(run, &args, error);
}

moxie_status mox_run_tp_own_columns(mox_run *run, moxie_error *error)
{
    const moxie_plan *plan = run->plan;
    if (plan->tp_cut == MOX_TP_WHOLE)
        return MOXIE_OK;
    const mox_tp_rows own = mox_tp_columns(plan, MOX_ROUTED, MOX_W2, plan->config.tp_rank);
    float *mine = MOX_RUN_AT(run, float, tp_y);
    column_copy copy = { .from = (const char *)run->y,
                         .to = (char *)mine,
                         .element = sizeof *mine,
                         .from_cols = plan->config.hidden,
                         .to_cols = own.count,
                         .first = own.first,
                         .count = own.count };
    run->y = mine;
    return mox_run_tp_gathers_y(run) ? copy_all(run, &copy, mox_ranks_pairs(run), error) : MOXIE_OK;
}

/* The results of group g are in one block of columns for each of its ranks. */
moxie_status mox_run_tp_join(const mox_run *run, const void **out, moxie_error *error)
{
    const mox_ranks *x = run->plan->ranks;
    const int64_t hidden = run->plan->config.hidden;
    const int64_t element = mox_dtype_bytes(mox_exchange_result_dtype(&run->plan->config));
    const char *returned = run->space + x->space.returned;
    char *whole = run->space + x->space.whole;
    for (int32_t r = 0; r < x->count; r++) {
        const int64_t *col = &x->col[r % x->tp_size], pairs = x->counts.pairs[r];
        const int64_t at = x->counts.pairs_at[r] * hidden;
        column_copy copy = { .from = returned + (at + pairs * col[0]) * element,
                             .to = whole + at * element,
                             .element = element,
                             .from_cols = col[1] - col[0],
                             .to_cols = hidden,
                             .to_first = col[0],
                             .count = col[1] - col[0] };
        MOX_TRY(copy_all(run, &copy, pairs, error));
    }
    *out = whole;
    return MOXIE_OK;
}
