/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_apart.c - calls on threads that may be left behind (nccl_apart.h).
 */
#include "comm/nccl/nccl_apart.h"

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

#include "base/memory.h"

/* The last to leave, caller or thread, frees it. */
typedef struct attempt {
    mox_nccl_call call;
    pthread_mutex_t lock;
    pthread_cond_t change;
    bool ended, abandoned; /* the thread has; the caller did not wait for it */
    int code;
} attempt;

static void free_attempt(attempt *a)
{
    pthread_cond_destroy(&a->change);
    pthread_mutex_destroy(&a->lock);
    mox_free(a);
}

static void *make_call(void *user)
{
    attempt *a = user;
    const int code = a->call.call(a->call.user);
    pthread_mutex_lock(&a->lock);
    const bool abandoned = a->abandoned;
    a->code = code;
    a->ended = true;
    pthread_cond_signal(&a->change);
    pthread_mutex_unlock(&a->lock);
    if (abandoned) {
        a->call.left(a->call.user, code);
        free_attempt(a);
    }
    return NULL;
}

static attempt *new_attempt(const mox_nccl_call *call)
{
    pthread_condattr_t monotonic;
    attempt *a = mox_calloc(1, sizeof *a);
    if (a == NULL)
        return NULL;
    a->call = *call;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->change, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return a;
}

/* Whether the thread has ended in time; else it is abandoned. */
static bool wait_for(attempt *a, int32_t ms)
{
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += ms / 1000;
    end.tv_nsec += ms % 1000 * 1000000L;
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

moxie_status mox_nccl_call_apart(const mox_nccl_call *call, int32_t ms, int *code)
{
    pthread_t thread;
    attempt *a = new_attempt(call);
    if (a == NULL)
        return MOXIE_ERR_MEMORY;
    if (pthread_create(&thread, NULL, make_call, a) != 0) {
        free_attempt(a);
        return MOXIE_ERR_MEMORY;
    }
    if (!wait_for(a, ms)) {
        pthread_detach(thread);
        return MOXIE_ERR_TIMEOUT;
    }
    pthread_join(thread, NULL);
    *code = a->code;
    free_attempt(a);
    return MOXIE_OK;
}
