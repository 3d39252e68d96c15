/* SPDX-License-Identifier: Apache-2.0
 *
 * explain_comm.c - comms for plans that are only explained (explain_comm.h). For the host its ranks are threads. For
 * a GPU its transport takes rows on the device, as NCCL does, and moves none.
 */
#include "explain_comm.h"

#include <stdlib.h>

#include "cli.h"

static moxie_status refuse(moxie_error *error)
{
    return cli_error(MOXIE_ERR_UNSUPPORTED, error, "", "a plan that is only explained exchanges nothing");
}

static moxie_status counts(void *self, const int64_t *send, int64_t *recv, int64_t each, int64_t *request,
                           moxie_error *error)
{
    (void)self, (void)send, (void)recv, (void)each, (void)request;
    return refuse(error);
}

static moxie_status move_rows(void *self, const moxie_comm_rows *rows, int64_t *request, moxie_error *error)
{
    (void)self, (void)rows, (void)request;
    return refuse(error);
}

static moxie_status allreduce(void *self, void *values, int64_t n, moxie_comm_sum how, int64_t *request,
                              moxie_error *error)
{
    (void)self, (void)values, (void)n, (void)how, (void)request;
    return refuse(error);
}

static moxie_status barrier(void *self, int64_t *request, moxie_error *error)
{
    (void)self, (void)request;
    return refuse(error);
}

static moxie_status progress(void *self, int64_t request, int32_t *done, moxie_error *error)
{
    (void)self, (void)request, (void)done;
    return refuse(error);
}

static int32_t late(void *self, int64_t request)
{
    (void)self, (void)request;
    return -1;
}

static void do_nothing(void *self)
{
    (void)self;
}

/* `device`: a name of options.device; one that begins with no number, sm_90 or NULL, is that of GPU 0. */
static moxie_status create_on_device(int32_t ranks, const char *device, moxie_comm **out, moxie_error *error)
{
    moxie_transport t = MOXIE_TRANSPORT_INIT;
    t.ranks = ranks;
    t.name = "nccl";
    t.device = 1 + (device ? (int32_t)strtol(device, NULL, 10) : 0);
    t.counts = counts;
    t.alltoallv = t.allgatherv = t.reduce_scatter = move_rows;
    t.allreduce = allreduce;
    t.barrier = barrier;
    t.progress = progress;
    t.late = late;
    t.cancel = t.destroy = do_nothing;
    return moxie_comm_create(&t, NULL, out, error);
}

moxie_status explain_comms_create(int32_t ranks, const moxie_options *plan, explain_comms *out, moxie_error *error)
{
    *out = (explain_comms) { .at = cli_alloc((size_t)ranks * sizeof *out->at) };
    const bool on_device = plan->backend == MOXIE_BACKEND_CUDA;
    const moxie_status status = on_device ? create_on_device(ranks, plan->device, out->at, error)
                                          : moxie_comm_local_create(ranks, NULL, out->at, error);
    out->count = status != MOXIE_OK ? 0 : on_device ? 1 : ranks;
    return status;
}

void explain_comms_free(explain_comms *comms)
{
    for (int32_t i = 0; i < comms->count; i++)
        moxie_comm_destroy(comms->at[i]);
    free(comms->at);
    *comms = (explain_comms) { 0 };
}
