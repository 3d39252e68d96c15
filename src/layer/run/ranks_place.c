/* SPDX-License-Identifier: Apache-2.0
 *
 * ranks_place.c - rows that the device places (ranks_place.h).
 */
#include "layer/run/ranks_place.h"

#include "layer/plan/plan_ranks.h"
#include "layer/run/exchange.h"
#include "layer/run/ranks_device.h"

moxie_status mox_ranks_look_at_stream(mox_run *run, moxie_error *error)
{
    const mox_ranks *x = run->plan->ranks;
    int32_t captured = 0;
    if (!run->plan->backend->on_device)
        return MOXIE_OK;
    MOX_TRY(run->queue.table->capturing(run->queue.stream, &captured, error));
    run->captured = captured != 0;
    MOX_FAIL_IF(run->captured && !mox_ranks_fit_graph(x), MOXIE_ERR_UNSUPPORTED, error,
                "the stream is being captured, and the host takes part in this run over ranks, so no graph can hold "
                "it: set options.exchange_capacity without options.degraded, and use a comm whose rows travel from "
                "device to device (moxie_comm_nccl_create)");
    MOX_FAIL_IF(run->captured && x->tables_generation != x->generation, MOXIE_ERR_UNSUPPORTED, error,
                "the stream is being captured, and experts have moved since the last run: run the plan once on all "
                "ranks before the capture");
    return MOXIE_OK;
}

/* What all launches share. */
static mox_cuda_place_rows_args arguments(const mox_run *run)
{
    const mox_ranks *x = run->plan->ranks;
    const moxie_layer_config *c = &run->plan->config;
    return (mox_cuda_place_rows_args) { .ids = run->ids,
                                        .weights = c->routing.on_input ? run->weights : NULL,
                                        .adapters = run->args.adapters != NULL ? run->args.adapter_ids : NULL,
                                        .tokens = run->args.tokens,
                                        .top_k = c->top_k,
                                        .experts = c->experts,
                                        .capacity = x->chunk_tokens,
                                        .ranks = x->layout == MOXIE_TOKENS_SHARDED ? 0 : x->count,
                                        .tp_size = x->tp_size,
                                        .first_replica = x->tables,
                                        .replica = x->tables + c->experts + 1 };
}

/* The rows to send, or those that the others would send. */
static void set_rows(const mox_run *run, bool send, mox_cuda_place_rows_args *args)
{
    const mox_ranks *x = run->plan->ranks;
    const mox_ranks_space *s = &x->space;
    args->token = (int64_t *)(run->space + s->token);
    args->row_ids = (int32_t *)(run->space + (send ? s->send_ids : s->recv_ids));
    if (args->weights != NULL)
        args->row_weights = (float *)(run->space + (send ? s->send_weights : s->recv_weights));
    if (x->adapted)
        args->row_adapters = (int32_t *)(run->space + (send ? s->send_adapters : s->recv_adapters));
}

/* Own tokens: where their results come to; where tokens are sharded, also their rows. */
static moxie_status place_own(const mox_run *run, const mox_chunk *chunk, moxie_error *error)
{
    const mox_ranks *x = run->plan->ranks;
    const mox_ranks_space *s = &x->space;
    const bool sharded = x->layout == MOXIE_TOKENS_SHARDED;
    mox_cuda_place_rows_args args = arguments(run);
    if (sharded) {
        args.ids += chunk->first * args.top_k;
        args.weights = args.weights != NULL ? args.weights + chunk->first * args.top_k : NULL;
        args.adapters = args.adapters != NULL ? args.adapters + chunk->first : NULL;
        args.tokens = chunk->tokens;
        set_rows(run, true, &args);
    }
    args.first_source = x->rank;
    args.sources = 1;
    args.groups = x->groups;
    args.position = (int64_t *)(run->space + s->position);
    args.own_offsets = (int64_t *)(run->space + s->shared_offsets);
    args.counts = x->capacity == 0 ? (int64_t *)(run->space + s->placed) : NULL;
    return run->queue.table->place_rows(&args, run->queue.stream, error);
}

/* Tokens that all ranks have: the rows that the others would send. */
static moxie_status place_taken(const mox_run *run, moxie_error *error)
{
    const mox_ranks *x = run->plan->ranks;
    mox_cuda_place_rows_args args = arguments(run);
    set_rows(run, false, &args);
    args.sources = x->count;
    args.first_group = x->group;
    args.groups = 1;
    return run->queue.table->place_rows(&args, run->queue.stream, error);
}

moxie_status mox_ranks_place(const mox_run *run, const mox_chunk *chunk, moxie_error *error)
{
    const mox_ranks *x = run->plan->ranks;
    const bool sharded = x->layout == MOXIE_TOKENS_SHARDED;
    const int64_t rows = (sharded ? x->groups : x->count) * x->chunk_tokens;
    MOX_TRY(mox_plan_ranks_update_tables(run->plan, error));
    MOX_TRY(place_own(run, chunk, error));
    if (x->capacity == 0)
        MOX_TRY(mox_ranks_fetch_counts(run, error));
    else
        mox_exchange_place_fixed(x, run->plan->config.top_k);
    if (!sharded)
        MOX_TRY(place_taken(run, error));
    MOX_TRY(mox_ranks_copy_hidden(run, sharded ? chunk->first : 0, sharded ? x->space.send_x : x->space.recv_x, rows,
                                  error));
    if (x->capacity == 0)
        return mox_ranks_read_counts(run, error);
    return sharded ? mox_ranks_download_sent(run, error) : MOXIE_OK;
}
