/* SPDX-License-Identifier: Apache-2.0
 *
 * pool_start.c - creates thread pools whose threads have all started (pool_start.h).
 *
 * pthreadpool_create() does not check whether its threads start, and waits forever for one that did not. So there are
 * two steps:
 *
 *     trial     starts the same number of threads, all alive at once; they end without doing anything
 *     creation  a maker thread calls pthreadpool_create(), and the caller watches it. When threads of the pool stay
 *               missing, because others reached a limit after the trial, the caller abandons the maker
 *
 * So starting a pool needs one thread more than the pool has.
 */
#include "base/pool_start.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"

/* ---- a trial ------------------------------------------------------------------------------------------ */

/* The number of threads of this process; 0: unknown. */
static uint64_t count_threads(void)
{
    struct stat tasks;
    return stat("/proc/self/task", &tasks) == 0 && tasks.st_nlink > 2 ? (uint64_t)tasks.st_nlink - 2 : 0;
}

/* Joined threads count against limits a moment longer, and the pool will start as many threads next. */
static void wait_for_end(uint64_t threads_before)
{
    for (int patience = 0; patience < 500 && count_threads() > threads_before; patience++)
        usleep(100);
}

static void *pass_gate(void *gate)
{
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

/* Starts `count` threads that live until all have started, and ends them. Returns how many started; *cause is the error
 * number of the first that did not, or ENOMEM without memory for their list. */
static int32_t try_threads(int32_t count, int *cause)
{
    const uint64_t before = count_threads();
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_t *threads = mox_calloc((uint64_t)count, sizeof *threads);
    int32_t started = 0;
    *cause = threads == NULL ? ENOMEM : 0;
    pthread_mutex_lock(&gate);
    while (*cause == 0 && started < count) {
        *cause = pthread_create(&threads[started], NULL, pass_gate, &gate);
        started += *cause == 0;
    }
    pthread_mutex_unlock(&gate);
    for (int32_t t = 0; t < started; t++)
        pthread_join(threads[t], NULL);
    pthread_mutex_destroy(&gate);
    mox_free(threads);
    wait_for_end(before);
    return started;
}

/* ---- creation ----------------------------------------------------------------------------------------- */

/* Freed by the last user: the caller, or an abandoned maker thread that finished after all. */
typedef struct maker {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int32_t workers;
    pthreadpool_t made; /* NULL: no memory */
    bool ended, abandoned;
} maker;

static void free_maker(maker *m)
{
    pthread_cond_destroy(&m->changed);
    pthread_mutex_destroy(&m->lock);
    mox_free(m);
}

static void *make(void *context)
{
    maker *m = context;
    const pthreadpool_t made = pthreadpool_create((size_t)m->workers);
    pthread_mutex_lock(&m->lock);
    m->made = made;
    m->ended = true;
    const bool abandoned = m->abandoned;
    pthread_cond_signal(&m->changed);
    pthread_mutex_unlock(&m->lock);
    if (abandoned) {
        pthreadpool_destroy(made);
        free_maker(m);
    }
    return NULL;
}

/* Milliseconds: between two polls; how long threads may be missing, since on a loaded machine the maker waits for a
 * processor, too; in all, when their number is unknown. */
enum { POLL = 10, MISSING = 5000, PATIENCE = 10000 };

static void wait_for_change(maker *m)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += POLL * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&m->changed, &m->lock, &until);
}

/* A started thread counts even before it runs. False: the maker is abandoned. */
static bool wait_for_maker(maker *m, uint64_t threads_expected)
{
    int waited = 0, missing = 0;
    pthread_mutex_lock(&m->lock);
    while (!m->ended && waited < PATIENCE && missing < MISSING) {
        wait_for_change(m);
        const uint64_t now = count_threads();
        waited += POLL;
        missing = now > 0 && now < threads_expected ? missing + POLL : 0;
    }
    const bool ended = m->ended;
    m->abandoned = !ended;
    pthread_mutex_unlock(&m->lock);
    return ended;
}

static maker *create_maker(int32_t workers)
{
    maker *m = mox_alloc(sizeof *m);
    pthread_condattr_t clock;
    if (!m)
        return NULL;
    m->workers = workers;
    pthread_mutex_init(&m->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&m->changed, &clock);
    pthread_condattr_destroy(&clock);
    return m;
}

/* The pool, or NULL. */
static pthreadpool_t make_watched(int32_t workers)
{
    const uint64_t before = count_threads();
    maker *m = create_maker(workers);
    pthread_t thread;
    if (!m || pthread_create(&thread, NULL, make, m) != 0) {
        if (m)
            free_maker(m);
        return NULL;
    }
    if (!wait_for_maker(m, before + (uint64_t)workers)) {
        pthread_detach(thread);
        return NULL;
    }
    pthread_join(thread, NULL);
    const pthreadpool_t made = m->made;
    free_maker(m);
    return made;
}

moxie_status mox_pool_start(int32_t workers, pthreadpool_t *out, moxie_error *error)
{
    int cause;
    const int32_t started = try_threads(workers, &cause);
    MOX_FAIL_IF(
        started<
            workers, MOXIE_ERR_MEMORY, error,
            "an executor of %d threads was asked for, whose start takes one more, and besides the caller's the system "
            "starts %d (%s): ask for %d or fewer, or raise its limits of processes (ulimit -u, the cgroup's pids.max) "
            "and memory",
            (int)workers, (int)started, strerror(cause), started> 1
            ? (int)started
            : 1);
    const pthreadpool_t made = make_watched(workers);
    MOX_FAIL_IF(!made, MOXIE_ERR_MEMORY, error,
                "an executor of %d threads was asked for, and memory or threads for it ran out: ask for fewer",
                (int)workers);
    *out = made;
    return MOXIE_OK;
}
