/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_apart.h - calls of NCCL that wait for other ranks on the host, and that nothing can end. Each is made on a
 * thread of its own, and the caller waits for it as long as it wants to.
 */
#ifndef MOX_COMM_NCCL_APART_H
#define MOX_COMM_NCCL_APART_H

#include "base/status.h"

typedef struct mox_nccl_call {
    int (*call)(void *user); /* returns NCCL's code */
    /* After a call whose end the caller did not wait for, on its thread: `user` is its own. */
    void (*left)(void *user, int code);
    void *user;
} mox_nccl_call;

/* *code: what the call returned. MOXIE_ERR_TIMEOUT: it has not returned within `ms`; its thread is left behind, and
 * `user` is no longer the caller's. MOXIE_ERR_MEMORY: nothing was called. */
moxie_status mox_nccl_call_apart(const mox_nccl_call *call, int32_t ms, int *code);

#endif
