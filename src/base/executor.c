/* SPDX-License-Identifier: Apache-2.0
 *
 * executor.c - parallel-for on pthreadpool, and the serial one.
 *
 * pthreadpool runs `workers` strands, each once. A strand claims tasks from one shared counter until none are left:
 *
 *     strand 0:  task 0, task 3, task 4, ...
 *     strand 1:  task 1, task 5, ...              worker number = strand number
 *     strand 2:  task 2, task 6, ...
 *
 * So tasks of unequal length balance themselves, and one worker never has two tasks at a time even if
 * one thread runs several strands (then one after the other).
 *
 * Fork: a child inherits the pool's memory but not its threads, and a lock in it may stay locked forever. The pool
 * remembers its process. In a child the old pool is leaked, and a new one is created. If that fails, the child runs its
 * tasks on the calling thread.
 *
 * After a loop the pool's threads spin for a while before they sleep; with MOXIE_SPIN=0 they sleep at once.
 */
#include "base/executor.h"

#include <pthreadpool.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/cpu_features.h"
#include "base/memory.h"
#include "base/pool_start.h"
#include "base/status.h"

typedef struct pool {
    moxie_executor executor; /* what the caller holds; executor.self is this pool */
    pthreadpool_t threads;   /* NULL: one worker, the caller */
    pid_t owner;             /* process that `threads` belongs to */
    uint32_t flags;          /* of every loop: whether threads spin or sleep after it */
} pool;

/* One parallel-for; lives on the caller's stack until every strand is done. */
typedef struct loop {
    moxie_task_fn fn;
    void *context;
    int64_t tasks;
    _Atomic int64_t next;
    /* The pool already orders the caller and its threads. These two state the same order in C11 atomics, for race
     * detectors that cannot see inside the pool. */
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

moxie_executor mox_executor_on_worker(const int32_t *worker)
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

/* ---- the pool --------------------------------------------------------------------------------------- */

static void restart(pool *p)
{
    p->threads = NULL;
    mox_pool_start(p->executor.workers, &p->threads, NULL);
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
    pthreadpool_parallelize_1d(p->threads, run_strand, &l, (size_t)strands, p->flags);
    atomic_load_explicit(&l.ended, memory_order_acquire);
}

/* A thread that spins for some milliseconds begins the next loop sooner. But where more threads run than there are
 * processors, it takes time from one that works. */
static uint32_t idle_flags(void)
{
    const char *spin = secure_getenv("MOXIE_SPIN");
    return spin != NULL && strcmp(spin, "0") == 0 ? PTHREADPOOL_FLAG_YIELD_WORKERS : 0;
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
    p->flags = idle_flags();
    const moxie_status status = workers > 1 ? mox_pool_start(workers, &p->threads, error) : MOXIE_OK;
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
