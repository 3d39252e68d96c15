/* SPDX-License-Identifier: Apache-2.0
 *
 * pool_start.h - creates thread pools, or says that their threads do not start.
 */
#ifndef MOX_BASE_POOL_START_H
#define MOX_BASE_POOL_START_H

#include <pthreadpool.h>

#include "base/status.h"

/* A pool of `workers` (2 or more), the calling thread included. Destroy with pthreadpool_destroy(). MOXIE_ERR_MEMORY,
 * and *out untouched, when its threads do not start. */
moxie_status mox_pool_start(int32_t workers, pthreadpool_t *out, moxie_error *error);

#endif
