/* SPDX-License-Identifier: Apache-2.0
 *
 * run_ranks.c - the chain of a run over ranks (run_ranks.h).
 */
#include "layer/run/run_ranks.h"

#include "base/sizes.h"
#include "layer/plan/plan_ranks.h"
#include "layer/run/exchange_agree.h"
#include "layer/run/exchange_codes.h"
#include "layer/run/ranks_device.h"
#include "layer/run/ranks_place.h"
#include "layer/run/ranks_streams.h"
#include "layer/run/run_degraded.h"
#include "layer/run/run_fetch.h"
#include "layer/run/run_pass.h"
#include "layer/run/run_route.h"
#include "layer/run/run_shared.h"
#include "layer/run/run_tp.h"

static void *at(const mox_run *run, uint64_t offset)
{
    return run->space + offset;
}

/* ---- dispatch ---------------------------------------------------------------------------------------- */

/* An array of a dispatch: its rows in memory, and their size. `run`: they may be on its device; NULL: on the host. */
typedef struct dispatched {
    void *send, *recv;
    uint64_t bytes;
    const mox_run *run;
} dispatched;

static uint64_t row_bytes(const moxie_plan *plan, int array)
{
    return mox_exchange_array_bytes(&plan->config, mox_ranks_dispatch(plan->ranks), array);
}

static moxie_status start_arrays(const moxie_plan *plan, const dispatched *arrays, mox_ranks_side *side,
                                 moxie_error *error)
{
    const mox_ranks *x = plan->ranks;
    const mox_ranks_counts *n = &x->counts;
    for (int i = 0; i < MOX_DISPATCHED; i++) {
        moxie_comm_rows *rows = &side->rows[side->open];
        if (arrays[i].bytes == 0)
            continue;
        *rows = (moxie_comm_rows) { .send = arrays[i].send,
                                    .recv = arrays[i].recv,
                                    .row_bytes = arrays[i].bytes,
                                    .send_rows = n->rows,
                                    .send_at = n->at,
                                    .recv_rows = n->from_rows,
                                    .recv_at = n->from };
        if (arrays[i].run != NULL)
            mox_ranks_mark_early(arrays[i].run, rows);
        MOX_TRY(mox_comm_start_alltoallv(x->comm, rows, &side->requests[side->open], error));
        side->open++;
    }
    return MOXIE_OK;
}

static moxie_status start_dispatch(const mox_run *run, mox_ranks_side *side, moxie_error *error)
{
    const moxie_plan *plan = run->plan;
    const mox_ranks_space *s = &plan->ranks->space;
    const bool placed = plan->ranks->places;
    const mox_run *rows = mox_ranks_rows_of(run), *numbers = placed ? rows : run->host, *there = placed ? run : NULL;
    const dispatched arrays[MOX_DISPATCHED] = {
        { at(rows, s->send_x), at(rows, s->recv_x), row_bytes(plan, 0), run },
        { at(numbers, s->send_ids), at(numbers, s->recv_ids), row_bytes(plan, 1), there },
        { at(numbers, s->send_weights), at(numbers, s->recv_weights), row_bytes(plan, 2), there },
        { at(numbers, s->send_adapters), at(numbers, s->recv_adapters), row_bytes(plan, 3), there },
    };
    return start_arrays(plan, arrays, side, error);
}

static moxie_status wait_for_arrays(const moxie_plan *plan, mox_ranks_side *side, moxie_error *error)
{
    for (; side->open > 0; side->open--)
        MOX_TRY(mox_comm_wait(plan->ranks->comm, side->requests[side->open - 1], error));
    return MOXIE_OK;
}

/* Where all ranks have all tokens, nothing was dispatched; with a fixed capacity it came with the message. */
static moxie_status finish_dispatch(const mox_run *run, mox_ranks_side *side, moxie_error *error)
{
    const bool came = side->open > 0;
    MOX_TRY(wait_for_arrays(run->plan, side, error));
    mox_run_drop_rows(run->host);
    if (came && !run->plan->ranks->places)
        MOX_TRY(mox_exchange_check_rows(run->host, error));
    return mox_ranks_upload_received(run, error);
}

/* The message and the rows of a fixed capacity, both at once. A rank that refuses its run takes part in both, so a
 * failure here breaks nothing. A graph has no message. */
static moxie_status dispatch_fixed(const mox_run *run, mox_ranks_side *side, moxie_error *error)
{
    const mox_ranks *x = run->plan->ranks;
    const bool sharded = x->layout == MOXIE_TOKENS_SHARDED, on_host = !x->places || x->staged;
    mox_exchange_expect_fixed(run);
    if (!run->captured)
        MOX_TRY(mox_exchange_announce(run->host, &side->announced, error));
    if (sharded)
        MOX_TRY(start_dispatch(run, side, error));
    if (!run->captured)
        MOX_TRY(mox_comm_wait(x->comm, side->announced, error));
    MOX_TRY(wait_for_arrays(run->plan, side, error));
    if (!run->captured)
        MOX_TRY(mox_exchange_compare(run, error));
    mox_run_drop_rows(run->host);
    return sharded && on_host ? mox_exchange_check_rows(run->host, error) : MOXIE_OK;
}

/* The rows of a run that is refused: any, from and to memory of the plan. */
static void dispatch_refusal(const moxie_plan *plan)
{
    mox_ranks *x = plan->ranks;
    char *next = x->refusal;
    dispatched arrays[MOX_DISPATCHED];
    mox_ranks_side *side = &x->sides[0];
    const mox_run any = { .plan = plan }; /* on the device's default stream */
    if (next == NULL)
        return;
    mox_ranks_use(x, 0);
    for (int i = 0; i < MOX_DISPATCHED; i++) {
        const uint64_t bytes = row_bytes(plan, i), block = bytes * (uint64_t)x->capacity;
        char *at_x = i == 0 && x->refusal_x != NULL ? x->refusal_x : next;
        arrays[i] = (dispatched) { at_x, at_x + block, bytes, i == 0 || x->places ? &any : NULL };
        next += block * (1 + (uint64_t)x->count);
    }
    for (int32_t r = 0; r < x->count; r++) {
        x->counts.rows[r] = x->counts.from_rows[r] = x->capacity;
        x->counts.at[r] = 0;
        x->counts.from[r] = r * x->capacity;
    }
    side->open = 0;
    if (start_arrays(plan, arrays, side, NULL) == MOXIE_OK)
        wait_for_arrays(plan, side, NULL);
}

/* ---- the experts of this rank ------------------------------------------------------------------------ */

/* Rows of y in the order of the pairs of a pass, without those that other ranks compute. *count: their number. `done`
 * results of the chunk come before them. */
static moxie_status set_order(const mox_run *run, int64_t done, int64_t *order, int64_t *count, moxie_error *error)
{
    if (run->plan->backend->on_device)
        return mox_ranks_order(run, done, count, error);
    *count = 0;
    for (int64_t p = 0; p < run->tokens * run->plan->config.top_k; p++)
        if (run->permutation.position[p] >= 0)
            order[(*count)++] = run->permutation.position[p];
    return MOXIE_OK;
}

/* A return on the exchanges' stream (ranks_streams.h), while the next chunk is computed. */
typedef struct returning {
    mox_run away; /* the run there; its pass is the chunk's own tokens */
    int64_t number;
    moxie_comm_rows rows;
    mox_comm_request request;
    bool open;
} returning;

static moxie_status end_request(returning *r, moxie_error *error)
{
    if (!r->open)
        return MOXIE_OK;
    r->open = false;
    return mox_comm_wait(r->away.plan->ranks->comm, r->request, error);
}

/* Before results take the place of those of the chunk before, which `r` returns; NULL: they have left. */
static moxie_status await_return(const mox_run *run, returning *r, moxie_error *error)
{
    if (r == NULL || !r->open)
        return MOXIE_OK;
    MOX_TRY(end_request(r, error));
    MOX_TRY(mox_ranks_reach(&r->away, MOX_RANKS_RETURNED, error));
    return mox_ranks_await(run, MOX_RANKS_RETURNED, error);
}

/* Computes rows that came, pass by pass, and puts the results in the order in which they go back. */
static moxie_status compute_passes(mox_run *run, returning *before, moxie_error *error)
{
    const moxie_plan *plan = run->plan;
    const mox_ranks *x = plan->ranks;
    const int64_t cols = x->col[x->tp_rank + 1] - x->col[x->tp_rank], rows = run->args.tokens;
    const moxie_dtype dtype = mox_exchange_result_dtype(&plan->config);
    char *results = at(run, x->space.results);
    int64_t passes, done = 0, count;
    MOX_TRY(mox_run_tp_passes(run->own, rows, &passes, error));
    for (int64_t i = 0; i < passes || (x->one_chunk && i == 0); i++) {
        MOX_TRY(mox_run_begin_pass(run, mox_min_i64(i * plan->pass_tokens, rows), plan->pass_tokens, error));
        MOX_TRY(mox_run_pass(run, false, error));
        int64_t *order = x->capacity > 0 ? run->permutation.position : at(run, x->space.order);
        if (x->capacity > 0)
            count = run->tokens * plan->config.top_k;
        else
            MOX_TRY(set_order(run, done, order, &count, error));
        MOX_TRY(mox_run_tp_own_columns(run, error));
        MOX_TRY(await_return(run, before, error));
        MOX_TRY(mox_run_scatter(run, order, count, cols, dtype, results, error));
        results += count * cols * mox_dtype_bytes(dtype);
        done += count;
    }
    return MOXIE_OK;
}

/* Computes the rows that came. Experts of a store are one step of its cache. */
static moxie_status compute(const mox_run *own, returning *before, moxie_error *error)
{
    const mox_ranks *x = own->plan->ranks;
    mox_run run = *own;
    run.args.tokens = x->counts.from[x->count - 1] + x->counts.from_rows[x->count - 1];
    run.args.hidden = at(own, x->space.recv_x);
    run.args.adapter_ids = at(own, x->space.recv_adapters);
    run.coded = x->coded;
    run.ids = at(own, x->space.recv_ids);
    run.weights = own->plan->config.routing.on_input ? at(own, x->space.recv_weights) : NULL;
    MOX_TRY(mox_run_fetch_begin(&run, error));
    return mox_run_fetch_end(&run, compute_passes(&run, before, error), error);
}

/* ---- return ------------------------------------------------------------------------------------------ */

/* Starts to send results back. A row of the exchange is `unit` columns, so that ranks of a group may have different
 * numbers of columns. `last`: no exchange of this run follows, so the host waits for this one. */
static moxie_status start_return(const mox_run *run, bool last, moxie_comm_rows *rows, mox_comm_request *request,
                                 moxie_error *error)
{
    const mox_ranks *x = run->plan->ranks;
    const mox_ranks_counts *n = &x->counts;
    const int64_t cols = x->col[x->tp_rank + 1] - x->col[x->tp_rank];
    int64_t sent = 0;
    for (int32_t r = 0; r < x->count; r++) {
        const int64_t *col = &x->col[r % x->tp_size];
        n->out[r] = n->from_pairs[r] * (cols / x->unit);
        n->out_at[r] = sent;
        sent += n->out[r];
        n->in[r] = n->pairs[r] * ((col[1] - col[0]) / x->unit);
        n->in_at[r] = n->pairs_at[r] * (run->plan->config.hidden / x->unit) + n->pairs[r] * (col[0] / x->unit);
    }
    const uint64_t unit_bytes = (uint64_t)(x->unit * mox_dtype_bytes(mox_exchange_result_dtype(&run->plan->config)));
    MOX_TRY(mox_ranks_download(run, x->space.results, (uint64_t)sent * unit_bytes, error));
    *rows = (moxie_comm_rows) { .send = at(mox_ranks_rows_of(run), x->space.results),
                                .recv = at(mox_ranks_rows_of(run), x->space.returned),
                                .row_bytes = unit_bytes,
                                .send_rows = n->out,
                                .send_at = n->out_at,
                                .recv_rows = n->in,
                                .recv_at = n->in_at };
    if (last)
        mox_ranks_mark(run, rows);
    else
        mox_ranks_mark_early(run, rows);
    return mox_comm_start_alltoallv(x->comm, rows, request, error);
}

/* Waits for the results of own tokens. */
static moxie_status finish_return(const mox_run *run, mox_comm_request request, moxie_error *error)
{
    const mox_ranks *x = run->plan->ranks;
    const int32_t last = x->count - 1;
    const int64_t pairs = x->counts.pairs_at[last] + x->counts.pairs[last];
    MOX_TRY(mox_comm_wait(x->comm, request, error));
    return mox_ranks_upload(run, x->space.returned, (uint64_t)pairs * mox_exchange_result_bytes(&run->plan->config),
                            error);
}

/* ---- own tokens -------------------------------------------------------------------------------------- */

/* Where the outputs of the chunk go. */
static char *output_of(const mox_run *run)
{
    const mox_ranks *x = run->plan->ranks;
    const int64_t bytes = run->plan->config.hidden * mox_dtype_bytes(run->plan->config.dtype);
    if (x->layout == MOXIE_TOKENS_REPLICATED)
        return at(run, x->space.output);
    return (char *)run->args.output + (run->first - mox_exchange_chunk(run, x->rank, 0).first) * bytes;
}

static moxie_status combine(mox_run *run, moxie_error *error)
{
    const mox_ranks *x = run->plan->ranks;
    if (run->tokens == 0)
        return MOXIE_OK;
    const void *rows = at(run, x->space.returned);
    if (x->tp_size > 1)
        MOX_TRY(mox_run_tp_join(run, &rows, error));
    const bool rounded = run->plan->config.round_results != 0;
    mox_combine_args args = mox_run_combine_args(run, rounded ? NULL : rows, at(run, x->space.position));
    args.y16 = rounded ? rows : NULL;
    args.out = output_of(run);
    MOX_TRY(mox_run_drop_results(run, &args, error));
    return mox_run_combine(run, &args, error);
}

/* Every rank gets the outputs of all. */
static moxie_status gather(const mox_run *run, int64_t chunk, moxie_error *error)
{
    const mox_ranks *x = run->plan->ranks;
    const mox_ranks_counts *n = &x->counts;
    const moxie_layer_config *c = &run->plan->config;
    mox_comm_request request;
    for (int32_t r = 0; r < x->count; r++) {
        const mox_chunk theirs = mox_exchange_chunk(run, r, chunk);
        n->in[r] = theirs.tokens;
        n->in_at[r] = theirs.first;
    }
    n->out[0] = run->tokens;
    n->out_at[0] = 0;
    const uint64_t row = (uint64_t)(c->hidden * mox_dtype_bytes(c->dtype));
    MOX_TRY(mox_ranks_download(run, x->space.output, (uint64_t)run->tokens * row, error));
    moxie_comm_rows rows = { .send = at(mox_ranks_rows_of(run), x->space.output),
                             .recv = mox_ranks_outputs(run, n->in_at, n->in),
                             .row_bytes = row,
                             .send_rows = n->out,
                             .send_at = n->out_at,
                             .recv_rows = n->in,
                             .recv_at = n->in_at };
    mox_ranks_mark(run, &rows);
    MOX_TRY(mox_comm_start_allgatherv(x->comm, &rows, &request, error));
    MOX_TRY(mox_comm_wait(x->comm, request, error));
    MOX_TRY(mox_ranks_place_outputs(run, chunk, error));
    return mox_run_drop_outputs(run, chunk, error);
}

/* The phase of an exchange: where phases are timed on a device, one of its own. */
static mox_phase enter_exchange(const mox_run *run, mox_phase phase)
{
    return mox_run_enter(run, run->plan->ranks->timed ? phase : MOX_PHASE_EXCHANGE);
}

/* ---- the chain --------------------------------------------------------------------------------------- */

/* A rank whose device fails tells the others, who wait for its numbers or rows. For a graph nobody waits. */
static moxie_status or_break(const mox_run *run, moxie_status status, const moxie_error *reason)
{
    if (status != MOXIE_OK && !run->captured)
        mox_comm_break(run->plan->ranks->comm, reason);
    return status;
}

/* Agrees on a chunk and starts to send its rows. `error` is not NULL. */
static moxie_status begin_chunk(const mox_run *run, int64_t number, int64_t *chunks, moxie_error *error)
{
    mox_ranks *x = run->plan->ranks;
    const mox_chunk chunk = mox_exchange_chunk(run, x->rank, number);
    const bool sharded = x->layout == MOXIE_TOKENS_SHARDED;
    mox_ranks_use(x, number);
    if (x->places)
        MOX_TRY(or_break(run, mox_ranks_place(run, &chunk, error), error));
    else
        mox_exchange_send(run->host, &chunk);
    if (!sharded && !x->places)
        mox_exchange_take(run->host, number);
    if (!x->places)
        MOX_TRY(or_break(run, mox_ranks_gather_hidden(run, sharded, chunk.tokens, error), error));
    if (x->capacity > 0 && !x->places)
        MOX_TRY(or_break(run, mox_ranks_wait(run, error), error));
    if (x->capacity > 0)
        return dispatch_fixed(run, &x->sides[number % 2], error);
    MOX_TRY(mox_exchange_agree(run->host, number, chunks, error));
    MOX_TRY(or_break(run, mox_ranks_wait(run, error), error));
    return sharded ? start_dispatch(run, &x->sides[number % 2], error) : MOXIE_OK;
}

/* The shared expert, if there is one. A failed capture breaks nothing, so it leaves no request open. */
static moxie_status compute_shared(mox_run *run, int64_t number, mox_comm_request request, moxie_error *error)
{
    const moxie_status status = mox_run_shared(run, number, error);
    if (status != MOXIE_OK && run->captured)
        (void)mox_comm_wait(run->plan->ranks->comm, request, NULL);
    return status;
}

/* From the rows of a chunk to its outputs. The shared expert is computed while results travel. */
static moxie_status finish_chunk(mox_run *run, int64_t number, bool last, moxie_error *error)
{
    mox_ranks *x = run->plan->ranks;
    const mox_chunk chunk = mox_exchange_chunk(run, x->rank, number);
    moxie_comm_rows rows;
    mox_comm_request request;
    mox_ranks_use(x, number);
    (void)enter_exchange(run, MOX_PHASE_DISPATCH);
    MOX_TRY(finish_dispatch(run, &x->sides[number % 2], error));
    MOX_TRY(compute(run, NULL, error));
    (void)enter_exchange(run, MOX_PHASE_RETURN);
    MOX_TRY(start_return(run, last, &rows, &request, error));
    run->first = chunk.first;
    run->tokens = chunk.tokens;
    MOX_TRY(compute_shared(run, number, request, error));
    MOX_TRY(finish_return(run, request, error));
    MOX_TRY(combine(run, error));
    return x->layout == MOXIE_TOKENS_REPLICATED ? gather(run, number, error) : MOXIE_OK;
}

/* All chunks; each is dispatched before the one before it is computed. */
static moxie_status run_chunks(mox_run *run, int64_t chunks, moxie_error *error)
{
    for (int64_t i = 0; i < chunks; i++) {
        if (i + 1 < chunks)
            MOX_TRY(begin_chunk(run, i + 1, &chunks, error));
        MOX_TRY(finish_chunk(run, i, i + 1 == chunks, error));
    }
    return MOXIE_OK;
}

/* ---- the chain on two streams -------------------------------------------------------------------------- */

/* The rows of a chunk have come, when products reach this. */
static moxie_status await_rows(const mox_run *away, int64_t number, moxie_error *error)
{
    MOX_TRY(finish_dispatch(away, &away->plan->ranks->sides[number % 2], error));
    return mox_ranks_reach(away, MOX_RANKS_DISPATCHED, error);
}

/* The results of a chunk leave, and the shared expert is computed. */
static moxie_status start_beside(mox_run *run, int64_t number, bool last, returning *r, moxie_error *error)
{
    mox_ranks *x = run->plan->ranks;
    const mox_chunk chunk = mox_exchange_chunk(run, x->rank, number);
    mox_ranks_use(x, number);
    MOX_TRY(mox_ranks_reach(run, MOX_RANKS_COMPUTED, error));
    MOX_TRY(mox_ranks_await(&r->away, MOX_RANKS_COMPUTED, error));
    MOX_TRY(start_return(&r->away, last, &r->rows, &r->request, error));
    r->open = true;
    r->number = number;
    run->first = chunk.first;
    run->tokens = chunk.tokens;
    if (number > 0)
        MOX_TRY(mox_ranks_await(run, MOX_RANKS_COMBINED, error));
    MOX_TRY(mox_run_shared(run, number, error));
    r->away.first = run->first;
    r->away.tokens = run->tokens;
    r->away.shared_y = run->shared_y;
    r->away.shared_weight = run->shared_weight;
    return mox_ranks_reach(run, MOX_RANKS_SHARED, error);
}

/* The results of a chunk's own tokens have come back: their sums. */
static moxie_status finish_beside(returning *r, moxie_error *error)
{
    mox_ranks *x = r->away.plan->ranks;
    mox_ranks_use(x, r->number);
    MOX_TRY(end_request(r, error));
    MOX_TRY(mox_ranks_await(&r->away, MOX_RANKS_SHARED, error));
    MOX_TRY(combine(&r->away, error));
    MOX_TRY(mox_ranks_reach(&r->away, MOX_RANKS_COMBINED, error));
    return x->layout == MOXIE_TOKENS_REPLICATED ? gather(&r->away, r->number, error) : MOXIE_OK;
}

/* All chunks; the first is agreed on. The host waits for the numbers of the next chunk, and where it places rows for
 * those and for results, when the products of this one are enqueued. */
static moxie_status run_beside(mox_run *run, int64_t chunks, returning *r, moxie_error *error)
{
    MOX_TRY(await_rows(&r->away, 0, error));
    for (int64_t i = 0; i < chunks; i++) {
        mox_ranks_use(run->plan->ranks, i);
        MOX_TRY(mox_ranks_await(run, MOX_RANKS_DISPATCHED, error));
        MOX_TRY(compute(run, r, error));
        (void)enter_exchange(run, MOX_PHASE_RETURN);
        if (i > 0)
            MOX_TRY(finish_beside(r, error));
        if (i + 1 < chunks) {
            MOX_TRY(begin_chunk(&r->away, i + 1, &chunks, error));
            MOX_TRY(await_rows(&r->away, i + 1, error));
        }
        MOX_TRY(start_beside(run, i, i + 1 == chunks, r, error));
    }
    return finish_beside(r, error);
}

/* Exchanges come after what is on the caller's stream. */
static moxie_status part_streams(const mox_run *run, const mox_run *away, moxie_error *error)
{
    MOX_TRY(mox_ranks_reach(run, MOX_RANKS_ROUTED, error));
    return mox_ranks_await(away, MOX_RANKS_ROUTED, error);
}

/* What comes next on the caller's stream comes after them. Also of a run that has failed: a capture ends only when its
 * streams have joined, and leaves no request open. */
static moxie_status join_streams(const mox_run *run, returning *r, moxie_status status, moxie_error *error)
{
    if (status != MOXIE_OK && run->captured)
        (void)end_request(r, NULL);
    error = status == MOXIE_OK ? error : NULL;
    moxie_status joined = mox_ranks_reach(&r->away, MOX_RANKS_ENDED, error);
    if (joined == MOXIE_OK)
        joined = mox_ranks_await(run, MOX_RANKS_ENDED, error);
    return status == MOXIE_OK ? joined : status;
}

/* ---- the run ------------------------------------------------------------------------------------------- */

static moxie_status check_capacity(const mox_run *run, moxie_error *error)
{
    const mox_ranks *x = run->plan->ranks;
    const int64_t own = mox_exchange_own_tokens(run);
    MOX_FAIL_IF(x->capacity > 0 && own > x->capacity, MOXIE_ERR_ARGUMENT, error,
                "rank %d has %lld tokens, but the exchange has room for %lld of each rank: raise "
                "options.exchange_capacity, or make a plan without it for such batches",
                (int)x->rank, (long long)own, (long long)x->capacity);
    return MOXIE_OK;
}

static moxie_status route(mox_run *run, moxie_error *error)
{
    MOX_TRY(mox_exchange_check_scale(run, error));
    MOX_TRY(check_capacity(run, error));
    if (run->args.tokens == 0)
        return MOXIE_OK;
    MOX_TRY(mox_run_route(run, run->ids == NULL, true, error));
    return mox_run_copy_routing(run, error);
}

moxie_status mox_run_ranks_refuse(const moxie_plan *plan, moxie_status status)
{
    plan->ranks->calls++;
    mox_run_degraded_begin(plan); /* a lost rank must not keep this one's word from the others */
    mox_exchange_tell_failure(plan, status);
    dispatch_refusal(plan);
    mox_run_degraded_end(plan);
    return status;
}

/* From the first chunk on; the streams have parted. `error` is not NULL. */
static moxie_status run_parted(mox_run *run, returning *beside, moxie_error *error)
{
    int64_t chunks = 1;
    moxie_status status = begin_chunk(beside != NULL ? &beside->away : run, 0, &chunks, error);
    const bool begun = status == MOXIE_OK;
    if (begun)
        status = beside != NULL ? run_beside(run, chunks, beside, error) : run_chunks(run, chunks, error);
    if (beside != NULL)
        status = join_streams(run, beside, status, error);
    if (status == MOXIE_OK)
        status = mox_ranks_end(run, error);
    if (begun) /* others wait for this one, and rows may be under way to the workspace */
        (void)or_break(run, status, error);
    return status;
}

moxie_status mox_run_ranks(mox_run *run, moxie_error *error)
{
    mox_ranks *x = run->plan->ranks;
    moxie_error reason = { .code = MOXIE_OK };
    mox_run host;
    returning beside = { .open = false };
    mox_plan_ranks_follow(run->plan);
    moxie_status status = mox_ranks_look_at_stream(run, error);
    if (status == MOXIE_OK)
        status = route(run, error);
    run->own = run;
    if (status == MOXIE_OK)
        status = mox_ranks_begin(run, &host, error);
    const bool two = status == MOXIE_OK && mox_ranks_beside(run);
    if (two) {
        beside.away = mox_ranks_away(run);
        host.own = &beside.away; /* whose stream has the numbers that only the device knows */
        status = part_streams(run, &beside.away, error);
    }
    if (status != MOXIE_OK)
        return run->captured ? status : mox_run_ranks_refuse(run->plan, status);
    (void)enter_exchange(run, MOX_PHASE_DISPATCH); /* and back to it after each stage */
    x->calls += run->captured ? 0 : 1;
    x->sides[0].open = x->sides[1].open = 0;
    mox_run_degraded_begin(run->plan);
    status = run_parted(run, two ? &beside : NULL, &reason);
    mox_run_degraded_end(run->plan);
    if (status != MOXIE_OK && error != NULL)
        *error = reason;
    return status;
}
