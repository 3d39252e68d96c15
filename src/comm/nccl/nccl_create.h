/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_create.h - a comm over NCCL, and how its ranks find each other: by an id that rank 0 makes.
 *
 *     given by the caller | sent over another comm | written to a file by rank 0, read by the others
 */
#ifndef MOX_COMM_NCCL_CREATE_H
#define MOX_COMM_NCCL_CREATE_H

#include "comm/comm.h"
#include "comm/device_memory.h"
#include "comm/nccl/nccl_library.h"

/* Body of moxie_comm_nccl_id. */
moxie_status mox_nccl_make_id(void *id, moxie_error *error);
/* Body of moxie_comm_nccl_create; the options are checked. */
moxie_status mox_comm_nccl_create(const moxie_nccl_options *options, const mox_comm_device *device, int32_t deadline_ms,
                                  moxie_comm **out, moxie_error *error);

#endif
