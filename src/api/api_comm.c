/* SPDX-License-Identifier: Apache-2.0
 *
 * api_comm.c - the calls of moxie_comm.h. Each checks its arguments; src/comm does the work.
 */
#include <moxie/moxie_comm.h>

#include "api/api_need.h"
#include "comm/comm.h"
#include "comm/comm_check.h"
#include "comm/mpi_loader.h"
#include "comm/nccl/nccl_create.h"
#include "comm/transport_list.h"
#include "layer/config/comm_device.h"
#include "layer/config/reserved.h"
#include "layer/config/struct_size.h"
#include "layer/plan/exchange_bytes.h"
#include "layer/plan/plan_ranks.h"
#include "layer/weights/mover.h"

int moxie_transport_at(int32_t index, moxie_transport_info *out)
{
    moxie_transport_info known = MOXIE_TRANSPORT_INFO_INIT;
    if (!out || mox_struct_check(out, MOX_STRUCT(moxie_transport_info), NULL) != MOXIE_OK ||
        !mox_transport_at(index, &known))
        return 0;
    mox_struct_write(&known, out, MOX_STRUCT(moxie_transport_info));
    return 1;
}

/* *deadline_ms: the option's, or 0. */
static moxie_status read_options(const moxie_comm_options *options, int32_t *deadline_ms, moxie_error *error)
{
    moxie_comm_options known = MOXIE_COMM_OPTIONS_INIT;
    if (options)
        MOX_TRY(mox_struct_read(options, &known, MOX_STRUCT(moxie_comm_options), error));
    MOX_FAIL_IF(known.deadline_ms < 0, MOXIE_ERR_ARGUMENT, error,
                "moxie_comm_options: deadline_ms is %d; it must be 0 (30000) or more", known.deadline_ms);
    *deadline_ms = known.deadline_ms;
    return MOXIE_OK;
}

moxie_status moxie_comm_create(const moxie_transport *transport, const moxie_comm_options *options, moxie_comm **out,
                               moxie_error *error)
{
    moxie_transport known;
    int32_t deadline_ms;
    NEED(transport);
    NEED(out);
    MOX_TRY(mox_struct_read(transport, &known, MOX_STRUCT(moxie_transport), error));
    MOX_TRY(mox_comm_check_transport(&known, error));
    const moxie_status status = read_options(options, &deadline_ms, error);
    if (status != MOXIE_OK) {
        known.destroy(known.self); /* from here on it is ours */
        return status;
    }
    return mox_comm_create(&known, deadline_ms, out, error);
}

moxie_status moxie_exchange_row_bytes(const moxie_layer_config *config, uint64_t *dispatch, uint64_t *result,
                                      moxie_error *error)
{
    return moxie_exchange_row_bytes_with(config, NULL, dispatch, result, error);
}

moxie_status moxie_exchange_row_bytes_with(const moxie_layer_config *config, const moxie_options *options,
                                           uint64_t *dispatch, uint64_t *result, moxie_error *error)
{
    moxie_layer_config read;
    moxie_options known;
    NEED(config);
    NEED(dispatch);
    NEED(result);
    MOX_TRY(mox_config_read(config, &read, error));
    MOX_TRY(mox_options_read(options, &known, error));
    MOX_TRY(mox_config_check_layout(&known, error));
    const bool on_host = mox_backend_of((moxie_backend)known.backend) == &mox_backend_host;
    const mox_dispatch sent = mox_exchange_dispatch(&read, on_host, known.max_adapter_rank > 0);
    *dispatch = known.token_layout == MOXIE_TOKENS_SHARDED ? mox_exchange_dispatch_bytes(&read, sent) : 0;
    *result = mox_exchange_result_bytes(&read);
    return MOXIE_OK;
}

moxie_status moxie_comm_local_create(int32_t ranks, const moxie_comm_options *options, moxie_comm **out,
                                     moxie_error *error)
{
    int32_t deadline_ms;
    NEED(out);
    MOX_FAIL_IF(ranks < 1 || ranks > MOXIE_MAX_RANKS, MOXIE_ERR_ARGUMENT, error,
                "moxie_comm_local_create: %d ranks; 1 to %d are possible", ranks, MOXIE_MAX_RANKS);
    MOX_TRY(read_options(options, &deadline_ms, error));
    return mox_comm_local_create(ranks, deadline_ms, out, error);
}

moxie_status moxie_comm_local_without(const moxie_comm *comm, const int32_t *dead, int32_t count,
                                      const moxie_comm_options *options, moxie_comm **out, moxie_error *error)
{
    int32_t deadline_ms;
    NEED(comm);
    NEED(out);
    MOX_FAIL_IF(count > 0 && dead == NULL, MOXIE_ERR_ARGUMENT, error, "dead is NULL");
    MOX_TRY(read_options(options, &deadline_ms, error));
    return mox_comm_local_without(comm, dead, count, deadline_ms, out, error);
}

moxie_status moxie_comm_mpi_create(const void *communicator, const moxie_comm_options *options, moxie_comm **out,
                                   moxie_error *error)
{
    int32_t deadline_ms;
    NEED(out);
    MOX_TRY(read_options(options, &deadline_ms, error));
    return mox_comm_mpi_create(communicator, deadline_ms, 0, out, error);
}

moxie_status moxie_comm_nccl_id(void *id, moxie_error *error)
{
    NEED(id);
    return mox_nccl_make_id(id, error);
}

static moxie_status check_nccl(const moxie_nccl_options *o, moxie_error *error)
{
    const int ways = (o->id != NULL) + (o->over != NULL) + (o->file != NULL);
    MOX_FAIL_IF(ways != 1, MOXIE_ERR_ARGUMENT, error,
                "moxie_nccl_options: %d of id, over and file are set; one must be: how the ranks find each other",
                ways);
    MOX_FAIL_IF(o->over == NULL && (o->ranks < 1 || o->ranks > MOXIE_MAX_RANKS), MOXIE_ERR_ARGUMENT, error,
                "moxie_nccl_options: %d ranks; 1 to %d are possible", o->ranks, MOXIE_MAX_RANKS);
    MOX_FAIL_IF(o->over == NULL && (o->rank < 0 || o->rank >= o->ranks), MOXIE_ERR_ARGUMENT, error,
                "moxie_nccl_options: rank %d is not one of 0 to %d", o->rank, o->ranks - 1);
    return MOXIE_OK;
}

moxie_status moxie_comm_nccl_create(const moxie_nccl_options *nccl, const moxie_comm_options *options, moxie_comm **out,
                                    moxie_error *error)
{
    moxie_nccl_options known;
    mox_comm_device device;
    int32_t deadline_ms;
    NEED(nccl);
    NEED(out);
    MOX_TRY(mox_struct_read(nccl, &known, MOX_STRUCT(moxie_nccl_options), error));
    MOX_TRY(check_nccl(&known, error));
    MOX_TRY(read_options(options, &deadline_ms, error));
    MOX_TRY(mox_comm_device_find(known.device, &device, error));
    return mox_comm_nccl_create(&known, &device, deadline_ms, out, error);
}

moxie_status moxie_comm_mpi_launch(moxie_error *error)
{
    return mox_comm_mpi_launch(error);
}

void moxie_comm_mpi_finish(void)
{
    mox_comm_mpi_finish();
}

void moxie_comm_destroy(moxie_comm *comm)
{
    mox_comm_destroy(comm);
}

int32_t moxie_comm_ranks(const moxie_comm *comm)
{
    return comm ? mox_comm_ranks(comm) : 0;
}

int32_t moxie_comm_rank(const moxie_comm *comm)
{
    return comm ? mox_comm_rank(comm) : -1;
}

const char *moxie_comm_name(const moxie_comm *comm)
{
    return comm ? mox_comm_name(comm) : NULL;
}

moxie_status moxie_comm_counts(moxie_comm *comm, const int64_t *send, int64_t *recv, int64_t each, moxie_error *error)
{
    mox_comm_request request;
    NEED(comm);
    MOX_TRY(mox_comm_start_counts(comm, send, recv, each, &request, error));
    return mox_comm_wait(comm, request, error);
}

moxie_status moxie_comm_alltoallv(moxie_comm *comm, const moxie_comm_rows *rows, moxie_error *error)
{
    mox_comm_request request;
    NEED(comm);
    NEED(rows);
    MOX_RESERVED(moxie_comm_rows, rows, "rows", error);
    MOX_TRY(mox_comm_start_alltoallv(comm, rows, &request, error));
    return mox_comm_wait(comm, request, error);
}

moxie_status moxie_comm_allgatherv(moxie_comm *comm, const moxie_comm_rows *rows, moxie_error *error)
{
    mox_comm_request request;
    NEED(comm);
    NEED(rows);
    MOX_RESERVED(moxie_comm_rows, rows, "rows", error);
    MOX_TRY(mox_comm_start_allgatherv(comm, rows, &request, error));
    return mox_comm_wait(comm, request, error);
}

moxie_status moxie_comm_reduce_scatter(moxie_comm *comm, const moxie_comm_rows *rows, moxie_error *error)
{
    mox_comm_request request;
    NEED(comm);
    NEED(rows);
    MOX_RESERVED(moxie_comm_rows, rows, "rows", error);
    MOX_TRY(mox_comm_start_reduce_scatter(comm, rows, &request, error));
    return mox_comm_wait(comm, request, error);
}

moxie_status moxie_comm_allreduce(moxie_comm *comm, void *values, int64_t n, moxie_comm_sum how, moxie_error *error)
{
    mox_comm_request request;
    NEED(comm);
    MOX_TRY(mox_comm_start_allreduce(comm, values, n, how, &request, error));
    return mox_comm_wait(comm, request, error);
}

moxie_status moxie_comm_agree(moxie_comm *comm, moxie_status status, moxie_error *error)
{
    NEED(comm);
    return mox_comm_agree(comm, status, "do its part", error);
}

moxie_status moxie_comm_barrier(moxie_comm *comm, moxie_error *error)
{
    mox_comm_request request;
    NEED(comm);
    MOX_TRY(mox_comm_start_barrier(comm, &request, error));
    return mox_comm_wait(comm, request, error);
}

int32_t moxie_comm_lost(const moxie_comm *comm, int32_t rank)
{
    return comm && rank >= 0 && rank < mox_comm_ranks(comm) && mox_comm_is_lost(comm, rank);
}

moxie_status moxie_plan_losses(const moxie_plan *plan, moxie_losses *out, moxie_error *error)
{
    moxie_losses found = MOXIE_LOSSES_INIT;
    NEED(plan);
    NEED(out);
    MOX_TRY(mox_struct_check(out, MOX_STRUCT(moxie_losses), error));
    if (plan->ranks)
        mox_plan_ranks_losses(plan->ranks, &found);
    mox_struct_write(&found, out, MOX_STRUCT(moxie_losses));
    return MOXIE_OK;
}

moxie_status moxie_mover_create(moxie_layer *layer, const moxie_slot_map *target, const moxie_mover_options *options,
                                moxie_mover **out, moxie_error *error)
{
    moxie_slot_map map;
    moxie_mover_options known;
    moxie_weights weights;
    NEED(layer);
    NEED(target);
    NEED(options);
    NEED(out);
    MOX_TRY(mox_struct_read(target, &map, MOX_STRUCT(moxie_slot_map), error));
    MOX_TRY(mox_struct_read(options, &known, MOX_STRUCT(moxie_mover_options), error));
    if (known.weights) {
        MOX_TRY(mox_struct_read(known.weights, &weights, MOX_STRUCT(moxie_weights), error));
        known.weights = &weights;
    }
    return mox_mover_create(layer, &map, &known, out, error);
}

void moxie_mover_destroy(moxie_mover *mover)
{
    mox_mover_destroy(mover);
}

moxie_status moxie_mover_step(moxie_mover *mover, moxie_mover_report *report, moxie_error *error)
{
    moxie_mover_report made = MOXIE_MOVER_REPORT_INIT;
    NEED(mover);
    if (report)
        MOX_TRY(mox_struct_check(report, MOX_STRUCT(moxie_mover_report), error));
    MOX_TRY(mox_mover_step(mover, &made, error));
    if (report)
        mox_struct_write(&made, report, MOX_STRUCT(moxie_mover_report));
    return MOXIE_OK;
}
