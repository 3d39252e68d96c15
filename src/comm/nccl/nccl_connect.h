/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_connect.h - makes a communicator of NCCL that blocks, within a deadline.
 */
#ifndef MOX_COMM_NCCL_CONNECT_H
#define MOX_COMM_NCCL_CONNECT_H

#include "comm/device_memory.h"
#include "comm/nccl/nccl_library.h"

/* ncclCommInitRankConfig on a thread of its own, since it waits for all ranks, and nothing can end it. *code: what it
 * returned; *out is NULL where it failed. MOXIE_ERR_TIMEOUT: it has not returned within deadline_ms. Then its thread is
 * left behind, and drops what it still gets. Collective. */
moxie_status mox_nccl_connect(const mox_nccl_library *nccl, const mox_nccl_id *id, int32_t ranks, int32_t rank,
                              const mox_comm_device *device, int32_t deadline_ms, mox_nccl_comm *out, int *code,
                              moxie_error *error);

#endif
