/* SPDX-License-Identifier: Apache-2.0
 *
 * pool_start.h - pools of threads that all start.
 */
#ifndef MOX_BASE_POOL_START_H
#define MOX_BASE_POOL_START_H

#include <pthreadpool.h>

#include "base/status.h"

/* A pool of `workers` (2 or more), of which the caller is one; pthreadpool_destroy() it. MOXIE_ERR_MEMORY when its
 * threads do not start, and then *out is untouched. */
moxie_status mox_pool_start(int32_t workers, pthreadpool_t *out, moxie_error *error);

#endif
