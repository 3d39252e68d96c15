/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_connect.c - makes a communicator of NCCL that blocks, within a deadline (nccl_connect.h).
 */
#include "comm/nccl/nccl_connect.h"

#include <limits.h>
#include <stdbool.h>

#include "base/memory.h"
#include "comm/nccl/nccl_apart.h"

typedef struct connection {
    const mox_nccl_library *nccl;
    mox_nccl_id id;
    int32_t ranks, rank;
    mox_comm_device device;
    mox_nccl_comm comm;
} connection;

/* In progress: with NCCL_COMM_BLOCKING=0. */
static bool is_made(int code)
{
    return code == MOX_NCCL_SUCCESS || code == MOX_NCCL_IN_PROGRESS;
}

static int make(void *user)
{
    connection *c = user;
    mox_nccl_config config = { .size = sizeof config,
                               .magic = MOX_NCCL_MAGIC,
                               .version = MOX_NCCL_VERSION,
                               .blocking = 1,
                               .cga_size = INT_MIN,
                               .min_blocks = INT_MIN,
                               .max_blocks = INT_MIN,
                               .split_share = INT_MIN,
                               .traffic_class = INT_MIN };
    if (c->device.use(c->device.ordinal, NULL) != MOXIE_OK)
        return MOX_NCCL_SYSTEM_ERROR;
    return c->nccl->comm_init(&c->comm, c->ranks, c->id, c->rank, &config);
}

static void drop(void *user, int code)
{
    connection *c = user;
    if (is_made(code))
        (void)c->nccl->comm_abort(c->comm);
    mox_free(c);
}

moxie_status mox_nccl_connect(const mox_nccl_library *nccl, const mox_nccl_id *id, int32_t ranks, int32_t rank,
                              const mox_comm_device *device, int32_t deadline_ms, mox_nccl_comm *out, int *code,
                              moxie_error *error)
{
    connection *c = mox_calloc(1, sizeof *c);
    MOX_FAIL_IF(c == NULL, MOXIE_ERR_MEMORY, error, "moxie_comm_nccl_create: no memory for %d ranks", ranks);
    *c = (connection) { .nccl = nccl, .id = *id, .ranks = ranks, .rank = rank, .device = *device };
    const moxie_status status = mox_nccl_call_apart(&(mox_nccl_call) { make, drop, c }, deadline_ms, code);
    MOX_FAIL_IF(status == MOXIE_ERR_TIMEOUT, status, error,
                "moxie_comm_nccl_create: not all of %d ranks took part within %d ms (deadline_ms); NCCL does not say "
                "which did not; every rank must call it",
                ranks, deadline_ms);
    if (status == MOXIE_OK)
        *out = is_made(*code) ? c->comm : NULL;
    mox_free(c);
    MOX_FAIL_IF(status != MOXIE_OK, status, error, "moxie_comm_nccl_create: no thread to call NCCL on");
    return MOXIE_OK;
}
