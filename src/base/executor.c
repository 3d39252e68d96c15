/* SPDX-License-Identifier: Apache-2.0
 *
 * executor.c - parallel-for on pthreadpool, and the serial one.
 *
 * pthreadpool runs `workers` strands, each strand once. A strand takes tasks from one shared counter
 * until there are none:
 *
 *     strand 0:  task 0, task 3, task 4, ...
 *     strand 1:  task 1, task 5, ...              worker number = strand number
 *     strand 2:  task 2, task 6, ...
 *
 * So tasks of unequal length balance themselves, and one worker never has two tasks at a time even if
 * one thread runs several strands (then one after the other).
 *
 * Fork: a child inherits the pool's memory but not its threads, and a lock in it may be held for ever.
 * The pool remembers its process; in another one it is left alone (leaked, in the child only) and a
 * new one is made. If that fails the child runs its tasks on the calling thread.
 *
 * Threads that cannot start: pthreadpool ignores it and waits for them for ever. So as many threads are
 * started first, all at once, that do nothing but end. What is left is a race: the limit may be reached
 * by others between that and the pool's own start.
 */
#include "base/executor.h"

#include <errno.h>
#include <pthread.h>
#include <pthreadpool.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/cpu_features.h"
#include "base/memory.h"
#include "base/status.h"

typedef struct pool {
    moxie_executor executor; /* what the caller holds; executor.self is this pool */
    pthreadpool_t threads;   /* NULL: one worker, the caller */
    pid_t owner;             /* process that `threads` belongs to */
} pool;

/* One parallel-for; lives on the caller's stack until every strand is done. */
typedef struct loop {
    moxie_task_fn fn;
    void *context;
    int64_t tasks;
    _Atomic int64_t next;
    /* The pool orders the caller and its threads by means of its own. This pair says the same in C11
     * terms, for race detectors that cannot look inside the pool. */
    _Atomic int32_t begun, ended;
} loop;

static void run_serial(void *self, int64_t tasks, moxie_task_fn fn, void *context)
{
    (void)self;
    for (int64_t task = 0; task < tasks; task++)
        fn(context, task, 0);
}

const moxie_executor mox_executor_serial = { .self = NULL, .workers = 1, .run = run_serial };

static void run_as(void *self, int64_t tasks, moxie_task_fn fn, void *context)
{
    for (int64_t task = 0; task < tasks; task++)
        fn(context, task, *(const int32_t *)self);
}

moxie_executor mox_executor_here(const int32_t *worker)
{
    return (moxie_executor) { .self = (void *)(uintptr_t)worker, .workers = *worker + 1, .run = run_as };
}

static void run_strand(void *argument, size_t strand)
{
    loop *l = argument;
    atomic_load_explicit(&l->begun, memory_order_acquire);
    for (;;) {
        const int64_t task = atomic_fetch_add_explicit(&l->next, 1, memory_order_relaxed);
        if (task >= l->tasks)
            break;
        l->fn(l->context, task, (int32_t)strand);
    }
    atomic_fetch_add_explicit(&l->ended, 1, memory_order_release);
}

/* ---- threads that can be started -------------------------------------------------------------------- */

/* Threads of this process; 0: the system does not tell. */
static uint64_t count_threads(void)
{
    struct stat tasks;
    return stat("/proc/self/task", &tasks) == 0 && tasks.st_nlink > 2 ? (uint64_t)tasks.st_nlink - 2 : 0;
}

/* A joined thread counts against limits for a moment more, and the pool is to start as many at once. */
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

/* Starts as many threads, which are all there until the last one is, and ends them. Returns how many there were;
 * *cause is the error number of the first that was not, or of no memory for their list. */
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

/* ---- the pool --------------------------------------------------------------------------------------- */

static void restart(pool *p)
{
    int cause;
    const int32_t others = p->executor.workers - 1;
    p->threads = try_threads(others, &cause) == others ? pthreadpool_create((size_t)p->executor.workers) : NULL;
    p->owner = getpid();
}

static void run_pool(void *self, int64_t tasks, moxie_task_fn fn, void *context)
{
    pool *p = self;
    if (p->threads && p->owner != getpid())
        restart(p);
    if (!p->threads || tasks <= 1) {
        run_serial(NULL, tasks, fn, context);
        return;
    }

    loop l = { .fn = fn, .context = context, .tasks = tasks };
    const int64_t strands = tasks < p->executor.workers ? tasks : p->executor.workers;
    atomic_store_explicit(&l.begun, 1, memory_order_release);
    pthreadpool_parallelize_1d(p->threads, run_strand, &l, (size_t)strands, 0);
    atomic_load_explicit(&l.ended, memory_order_acquire);
}

static moxie_status start(pool *p, moxie_error *error)
{
    const int32_t workers = p->executor.workers;
    int cause;
    if (workers == 1)
        return MOXIE_OK;
    const int32_t started = try_threads(workers - 1, &cause);
    MOX_FAIL_IF(started < workers - 1, MOXIE_ERR_MEMORY, error,
                "an executor of %d threads was asked for, and besides the caller's the system starts %d (%s): ask for "
                "%d or fewer, or raise its limits of processes (ulimit -u, the cgroup's pids.max) and memory",
                (int)workers, (int)started, strerror(cause), (int)started + 1);
    p->threads = pthreadpool_create((size_t)workers);
    MOX_FAIL_IF(!p->threads, MOXIE_ERR_MEMORY, error, "no memory for a pool of %d threads; ask for fewer",
                (int)workers);
    return MOXIE_OK;
}

moxie_status mox_executor_create(int32_t threads, moxie_executor **out, moxie_error *error)
{
    MOX_FAIL_IF(threads < 0 || threads > MOX_MAX_WORKERS, MOXIE_ERR_ARGUMENT, error,
                "an executor of %d threads was asked for; give 1 to %d, or 0 for one per processor", threads,
                MOX_MAX_WORKERS);
    const int32_t found = threads == 0 ? mox_processor_count() : threads;
    const int32_t workers = found < MOX_MAX_WORKERS ? found : MOX_MAX_WORKERS;

    pool *p = mox_alloc(sizeof *p);
    MOX_FAIL_IF(!p, MOXIE_ERR_MEMORY, error, "out of memory for an executor");
    p->executor = (moxie_executor) { .self = p, .workers = workers, .run = run_pool };
    p->owner = getpid();
    const moxie_status status = start(p, error);
    if (status != MOXIE_OK) {
        mox_free(p);
        return status;
    }
    *out = &p->executor;
    return MOXIE_OK;
}

void mox_executor_destroy(moxie_executor *executor)
{
    if (!executor)
        return;
    pool *p = executor->self;
    if (p->threads && p->owner == getpid())
        pthreadpool_destroy(p->threads);
    mox_free(p);
}
