/* SPDX-License-Identifier: Apache-2.0
 *
 * run_ranks.c - the chain of a run over ranks (run_ranks.h).
 */
#include "layer/run/run_ranks.h"

#include "base/sizes.h"
#include "layer/plan/plan_ranks.h"
#include "layer/run/exchange_agree.h"
#include "layer/run/run_degraded.h"
#include "layer/run/run_pass.h"
#include "layer/run/run_route.h"
#include "layer/run/run_tp.h"

static void *at(const mox_run *run, uint64_t offset)
{
    return run->space + offset;
}

/* ---- dispatch ---------------------------------------------------------------------------------------- */

static moxie_status start_dispatch(const mox_run *run, mox_ranks_side *side, moxie_error *error)
{
    const mox_ranks *x = run->plan->ranks;
    const mox_ranks_counts *n = &x->counts;
    const mox_ranks_space *s = &x->space;
    const moxie_layer_config *c = &run->plan->config;
    const uint64_t k = (uint64_t)c->top_k;
    const struct {
        uint64_t send, recv, bytes;
    } arrays[MOX_DISPATCHED] = { { s->send_x, s->recv_x, (uint64_t)(c->hidden * mox_dtype_bytes(c->dtype)) },
                                 { s->send_ids, s->recv_ids, k * sizeof(int32_t) },
                                 { s->send_weights, s->recv_weights, k * sizeof(float) } };
    const int count = c->routing.on_input ? MOX_DISPATCHED : MOX_DISPATCHED - 1;
    for (int i = 0; i < count; i++) {
        side->rows[i] = (moxie_comm_rows) { .send = at(run, arrays[i].send),
                                            .recv = at(run, arrays[i].recv),
                                            .row_bytes = arrays[i].bytes,
                                            .send_rows = n->rows,
                                            .send_at = n->at,
                                            .recv_rows = n->from_rows,
                                            .recv_at = n->from };
        MOX_TRY(mox_comm_start_alltoallv(x->comm, &side->rows[i], &side->requests[i], error));
        side->open = i + 1;
    }
    return MOXIE_OK;
}

/* Where all ranks have all tokens, nothing was dispatched. */
static moxie_status finish_dispatch(const mox_run *run, mox_ranks_side *side, moxie_error *error)
{
    const bool came = side->open > 0;
    for (; side->open > 0; side->open--)
        MOX_TRY(mox_comm_wait(run->plan->ranks->comm, side->requests[side->open - 1], error));
    mox_run_drop_rows(run);
    return came ? mox_exchange_check_rows(run, error) : MOXIE_OK;
}

/* ---- the experts of this rank ------------------------------------------------------------------------ */

/* Rows of y in the order of the pairs of a pass, without those that other ranks compute. Returns their number. */
static int64_t order_of(const mox_run *run, int64_t *order)
{
    int64_t count = 0;
    for (int64_t p = 0; p < run->tokens * run->plan->config.top_k; p++)
        if (run->permutation.position[p] >= 0)
            order[count++] = run->permutation.position[p];
    return count;
}

/* Computes the rows that came, pass by pass, and puts the results in the order in which they go back. */
static moxie_status compute(const mox_run *own, moxie_error *error)
{
    const moxie_plan *plan = own->plan;
    const mox_ranks *x = plan->ranks;
    const int64_t cols = x->col[x->tp_rank + 1] - x->col[x->tp_rank];
    const int64_t rows = x->counts.from[x->count - 1] + x->counts.from_rows[x->count - 1];
    float *results = at(own, x->space.results);
    mox_run run = *own;
    run.args.tokens = rows;
    run.args.hidden = at(own, x->space.recv_x);
    run.ids = at(own, x->space.recv_ids);
    run.weights = plan->config.routing.on_input ? at(own, x->space.recv_weights) : NULL;
    int64_t passes;
    MOX_TRY(mox_run_tp_passes(own, rows, &passes, error));
    for (int64_t i = 0; i < passes || (x->one_chunk && i == 0); i++) {
        MOX_TRY(mox_run_begin_pass(&run, mox_min_i64(i * plan->pass_tokens, rows), error));
        MOX_TRY(mox_run_pass(&run, false, error));
        int64_t *order = at(own, x->space.order);
        const int64_t count = order_of(&run, order);
        mox_run_tp_own_columns(&run);
        MOX_TRY(mox_run_scatter(&run, order, count, cols, results, error));
        results += count * cols;
    }
    return MOXIE_OK;
}

/* ---- return ------------------------------------------------------------------------------------------ */

/* Starts to send results back. A row of the exchange is `unit` columns, so that ranks of a group may have different
 * numbers of columns. */
static moxie_status start_return(const mox_run *run, moxie_comm_rows *rows, mox_comm_request *request,
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
    *rows = (moxie_comm_rows) { .send = at(run, x->space.results),
                                .recv = at(run, x->space.returned),
                                .row_bytes = (uint64_t)x->unit * sizeof(float),
                                .send_rows = n->out,
                                .send_at = n->out_at,
                                .recv_rows = n->in,
                                .recv_at = n->in_at };
    return mox_comm_start_alltoallv(x->comm, rows, request, error);
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
    const float *rows = x->tp_size > 1 ? mox_run_tp_join(run) : at(run, x->space.returned);
    mox_combine_args args = mox_run_combine_args(run, rows, at(run, x->space.position));
    args.out = output_of(run);
    mox_run_drop_results(run, &args);
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
    const moxie_comm_rows rows = { .send = at(run, x->space.output),
                                   .recv = run->args.output,
                                   .row_bytes = (uint64_t)(c->hidden * mox_dtype_bytes(c->dtype)),
                                   .send_rows = n->out,
                                   .send_at = n->out_at,
                                   .recv_rows = n->in,
                                   .recv_at = n->in_at };
    MOX_TRY(mox_comm_start_allgatherv(x->comm, &rows, &request, error));
    MOX_TRY(mox_comm_wait(x->comm, request, error));
    mox_run_drop_outputs(run, chunk);
    return MOXIE_OK;
}

/* ---- the chain --------------------------------------------------------------------------------------- */

/* Agrees on a chunk and starts to send its rows. */
static moxie_status begin_chunk(const mox_run *run, int64_t number, int64_t *chunks, moxie_error *error)
{
    mox_ranks *x = run->plan->ranks;
    const mox_chunk chunk = mox_exchange_chunk(run, x->rank, number);
    const bool sharded = x->layout == MOXIE_TOKENS_SHARDED;
    mox_ranks_use(x, number);
    mox_exchange_send(run, &chunk);
    if (!sharded)
        mox_exchange_take(run, number);
    MOX_TRY(mox_exchange_agree(run, number, chunks, error));
    return sharded ? start_dispatch(run, &x->sides[number % 2], error) : MOXIE_OK;
}

/* From the rows of a chunk to its outputs. The shared expert is computed while results travel. */
static moxie_status finish_chunk(mox_run *run, int64_t number, moxie_error *error)
{
    mox_ranks *x = run->plan->ranks;
    const mox_chunk chunk = mox_exchange_chunk(run, x->rank, number);
    moxie_comm_rows rows;
    mox_comm_request request;
    mox_ranks_use(x, number);
    MOX_TRY(finish_dispatch(run, &x->sides[number % 2], error));
    MOX_TRY(compute(run, error));
    MOX_TRY(start_return(run, &rows, &request, error));
    run->first = chunk.first;
    run->tokens = chunk.tokens;
    if (mox_plan_has_shared(run->plan))
        MOX_TRY(mox_run_shared(run, error));
    MOX_TRY(mox_comm_wait(x->comm, request, error));
    MOX_TRY(combine(run, error));
    return x->layout == MOXIE_TOKENS_REPLICATED ? gather(run, number, error) : MOXIE_OK;
}

/* All chunks; each is dispatched before the one before it is computed. */
static moxie_status run_chunks(mox_run *run, int64_t chunks, moxie_error *error)
{
    for (int64_t i = 0; i < chunks; i++) {
        if (i + 1 < chunks)
            MOX_TRY(begin_chunk(run, i + 1, &chunks, error));
        MOX_TRY(finish_chunk(run, i, error));
    }
    return MOXIE_OK;
}

static moxie_status route(mox_run *run, moxie_error *error)
{
    if (run->args.tokens == 0)
        return MOXIE_OK;
    MOX_TRY(mox_run_route(run, run->ids == NULL, true, error));
    return mox_run_copy_routing(run, error);
}

moxie_status mox_run_ranks_refuse(const moxie_plan *plan, moxie_status status)
{
    plan->ranks->calls++;
    mox_exchange_tell_failure(plan, status);
    return status;
}

moxie_status mox_run_ranks(mox_run *run, moxie_error *error)
{
    mox_ranks *x = run->plan->ranks;
    moxie_error reason = { .code = MOXIE_OK };
    int64_t chunks = 1;
    moxie_status status = route(run, error);
    if (status != MOXIE_OK)
        return mox_run_ranks_refuse(run->plan, status);
    run->own = run;
    mox_plan_ranks_follow(run->plan);
    x->calls++;
    x->sides[0].open = x->sides[1].open = 0;
    mox_run_degraded_begin(run->plan);
    status = begin_chunk(run, 0, &chunks, &reason);
    if (status == MOXIE_OK) {
        status = run_chunks(run, chunks, &reason);
        if (status != MOXIE_OK) /* other ranks wait for this one, and rows may be under way to the workspace */
            mox_comm_break(x->comm, &reason);
    }
    mox_run_degraded_end(run->plan);
    if (status != MOXIE_OK && error != NULL)
        *error = reason;
    return status;
}
