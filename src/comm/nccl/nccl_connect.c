/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_connect.c - makes a communicator of NCCL that blocks, within a deadline (nccl_connect.h).
 */
#include "comm/nccl/nccl_connect.h"

#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <time.h>

#include "base/memory.h"

/* The last to leave, caller or thread, frees it. */
typedef struct attempt {
    const mox_nccl_library *nccl;
    mox_nccl_id id;
    int32_t ranks, rank;
    mox_comm_device device;
    pthread_mutex_t lock;
    pthread_cond_t change;
    bool ended, abandoned; /* the thread has; the caller did not wait for it */
    mox_nccl_comm comm;
    int code;
} attempt;

static void free_attempt(attempt *a)
{
    pthread_cond_destroy(&a->change);
    pthread_mutex_destroy(&a->lock);
    mox_free(a);
}

/* In progress: with NCCL_COMM_BLOCKING=0. */
static bool is_made(int code)
{
    return code == MOX_NCCL_SUCCESS || code == MOX_NCCL_IN_PROGRESS;
}

static void *connect(void *user)
{
    attempt *a = user;
    mox_nccl_config config = { .size = sizeof config,
                               .magic = MOX_NCCL_MAGIC,
                               .version = MOX_NCCL_VERSION,
                               .blocking = 1,
                               .cga_size = INT_MIN,
                               .min_blocks = INT_MIN,
                               .max_blocks = INT_MIN,
                               .split_share = INT_MIN,
                               .traffic_class = INT_MIN };
    const bool used = a->device.use(a->device.ordinal, NULL) == MOXIE_OK;
    const int code = used ? a->nccl->comm_init(&a->comm, a->ranks, a->id, a->rank, &config) : MOX_NCCL_SYSTEM_ERROR;
    pthread_mutex_lock(&a->lock);
    const bool abandoned = a->abandoned;
    a->code = code;
    a->ended = true;
    pthread_cond_signal(&a->change);
    pthread_mutex_unlock(&a->lock);
    if (abandoned) {
        if (is_made(code))
            (void)a->nccl->comm_abort(a->comm);
        free_attempt(a);
    }
    return NULL;
}

static attempt *new_attempt(void)
{
    pthread_condattr_t monotonic;
    attempt *a = mox_calloc(1, sizeof *a);
    if (a == NULL)
        return NULL;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->change, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return a;
}

/* Whether the thread has ended in time; else it is abandoned. */
static bool wait_for(attempt *a, int32_t deadline_ms)
{
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += deadline_ms / 1000;
    end.tv_nsec += deadline_ms % 1000 * 1000000L;
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    int waited = 0;
    pthread_mutex_lock(&a->lock);
    while (!a->ended && waited == 0)
        waited = pthread_cond_timedwait(&a->change, &a->lock, &end);
    const bool ended = a->ended;
    a->abandoned = !ended;
    pthread_mutex_unlock(&a->lock);
    return ended;
}

moxie_status mox_nccl_connect(const mox_nccl_library *nccl, const mox_nccl_id *id, int32_t ranks, int32_t rank,
                              const mox_comm_device *device, int32_t deadline_ms, mox_nccl_comm *out, int *code,
                              moxie_error *error)
{
    pthread_t thread;
    attempt *a = new_attempt();
    MOX_FAIL_IF(a == NULL, MOXIE_ERR_MEMORY, error, "moxie_comm_nccl_create: no memory for %d ranks", ranks);
    a->nccl = nccl;
    a->id = *id;
    a->ranks = ranks;
    a->rank = rank;
    a->device = *device;
    if (pthread_create(&thread, NULL, connect, a) != 0) {
        free_attempt(a);
        return mox_fail(MOXIE_ERR_MEMORY, error, "moxie_comm_nccl_create: no thread to call NCCL on");
    }
    if (!wait_for(a, deadline_ms)) {
        pthread_detach(thread);
        return mox_fail(MOXIE_ERR_TIMEOUT, error,
                        "moxie_comm_nccl_create: not all of %d ranks took part within %d ms (deadline_ms); NCCL does "
                        "not say which did not; every rank must call it",
                        ranks, deadline_ms);
    }
    pthread_join(thread, NULL);
    *code = a->code;
    *out = is_made(*code) ? a->comm : NULL;
    free_attempt(a);
    return MOXIE_OK;
}
