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
 * A pool may have places: its threads are pinned to one processor each, one a core while there are cores. The caller's
 * thread is not, because threads that it starts later would inherit that.
 *
 * After a loop the pool's threads spin for a while before they sleep; with MOXIE_SPIN=0 they sleep at once.
 */
#include "base/executor.h"

#include <pthreadpool.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/cpu_features.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/pool_start.h"
#include "base/status.h"
#include "base/topology.h"

typedef struct pool {
    moxie_executor executor; /* what the caller holds; executor.self is this pool */
    pthreadpool_t threads;   /* NULL: one worker, the caller */
    pid_t owner;             /* process that `threads` belongs to */
    uint32_t flags;          /* of every loop: whether threads spin or sleep after it */
    int32_t nodes;           /* that its workers divide experts among; 1 without places */
    int32_t memory;          /* where records go: a node's index or a MOX_MEMORY_* */
    mox_place *places;       /* [workers] where each worker is; NULL: anywhere */
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

/* ---- places ----------------------------------------------------------------------------------------- */

typedef struct pinning {
    const pool *pool;
    _Atomic int32_t arrived, refused;
} pinning;

/* Strand i runs on thread i: no thread takes two, since each waits for all others. */
static void pin_strand(void *argument, size_t strand)
{
    pinning *all = argument;
    union {
        cpu_set_t set;
        mox_processor_set processors;
    } mask;
    memset(&mask, 0, sizeof mask);
    const int32_t processor = all->pool->places[strand].processor;
    atomic_fetch_add(&all->arrived, 1);
    while (atomic_load(&all->arrived) < all->pool->executor.workers)
        sched_yield();
    if (strand == 0 || processor < 0 || processor >= (int32_t)(8 * sizeof mask.processors.bits))
        return;
    mask.processors.bits[processor / 8] |= (unsigned char)(1u << processor % 8);
    if (sched_setaffinity(0, sizeof mask, &mask.set) != 0)
        atomic_fetch_add(&all->refused, 1);
}

static void pin(const pool *p)
{
    pinning all = { .pool = p };
    if (p->places != NULL && p->threads != NULL && mox_topology_here()->real)
        pthreadpool_parallelize_1d(p->threads, pin_strand, &all, (size_t)p->executor.workers, p->flags);
    if (atomic_load(&all.refused) > 0) /* they only move about */
        mox_log(MOXIE_LOG_WARN, "the system refused to pin %d of %d threads", (int)atomic_load(&all.refused),
                (int)p->executor.workers);
}

/* ---- the pool --------------------------------------------------------------------------------------- */

static void restart(pool *p)
{
    p->threads = NULL;
    mox_pool_start(p->executor.workers, &p->threads, NULL);
    p->owner = getpid();
    pin(p);
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

/* What `numa` asks for. */
typedef struct numa_wish {
    bool pins, automatic, interleaves;
    int32_t node; /* an index; -1: all */
} numa_wish;

/* Gives the pool's workers places. */
static moxie_status place_workers(pool *p, const numa_wish *wish, moxie_error *error)
{
    const mox_topology *t = mox_topology_here();
    p->places = mox_calloc((uint64_t)t->processors, sizeof *p->places);
    MOX_FAIL_IF(p->places == NULL, MOXIE_ERR_MEMORY, error, "out of memory for an executor");
    const int32_t count = mox_topology_places(t, wish->node, p->places);
    MOX_FAIL_IF(p->executor.workers > count, MOXIE_ERR_ARGUMENT, error,
                "an executor of %d pinned threads was asked for, and this process may use %d processors there: ask for "
                "%d or fewer, or for numa \"off\"",
                (int)p->executor.workers, (int)count, (int)count);
    p->memory = wish->node;
    if (wish->node < 0) {
        p->memory = wish->interleaves ? MOX_MEMORY_INTERLEAVED : MOX_MEMORY_BY_EXPERT;
        p->nodes = wish->interleaves ? 1 : t->nodes < p->executor.workers ? t->nodes : p->executor.workers;
    }
    return MOXIE_OK;
}

static moxie_status parse_node(const char *text, int32_t *node, moxie_error *error)
{
    const mox_topology *t = mox_topology_here();
    char *end = NULL;
    const long number = strtol(text, &end, 10);
    MOX_FAIL_IF(end == text || *end != '\0' || number < 0 || number > INT32_MAX, MOXIE_ERR_ARGUMENT, error,
                "numa is \"node=%s\"; give the number of a node, as in node=0", text);
    MOX_FAIL_IF(!t->known, MOXIE_ERR_UNSUPPORTED, error,
                "numa is \"node=%ld\", and the nodes of this machine are not known: %s. Use auto or off", number,
                t->found_by);
    *node = mox_topology_node(t, (int32_t)number);
    MOX_FAIL_IF(*node < 0, MOXIE_ERR_ARGUMENT, error,
                "numa is \"node=%ld\", and this process may use no processor of a node %ld; it may use %d node%s, the "
                "first is %d",
                number, number, (int)t->nodes, t->nodes == 1 ? "" : "s", (int)t->node_number[0]);
    return MOXIE_OK;
}

static moxie_status parse_numa(const char *numa, numa_wish *out, moxie_error *error)
{
    *out = (numa_wish) { .node = -1 };
    if (numa == NULL || strcmp(numa, "off") == 0)
        return MOXIE_OK;
    out->automatic = strcmp(numa, "auto") == 0;
    out->interleaves = strcmp(numa, "interleave") == 0;
    if (out->automatic || out->interleaves) {
        out->pins = mox_topology_here()->nodes > 1;
        return MOXIE_OK;
    }
    MOX_FAIL_IF(strncmp(numa, "node=", 5) != 0, MOXIE_ERR_ARGUMENT, error,
                "numa is \"%s\"; it is auto, off, interleave or node=NUMBER", numa);
    out->pins = true;
    return parse_node(numa + 5, &out->node, error);
}

/* One a processor of the node, or of all; no more than a container's share of time. */
static int32_t default_workers(const numa_wish *wish)
{
    const mox_topology *t = mox_topology_here();
    const int32_t all = mox_processor_count();
    int32_t count = 0;
    for (int32_t i = 0; wish->pins && t->known && i < t->processors; i++)
        count += wish->node < 0 || t->places[i].node == wish->node;
    return count > 0 && count < all ? count : all;
}

/* "auto" pins where it can help: not one thread, nor threads that share processors. */
static bool is_pinned(const pool *p, const numa_wish *wish)
{
    const int32_t workers = p->executor.workers;
    return wish->pins && (!wish->automatic || (workers > 1 && workers <= mox_topology_here()->processors));
}

static moxie_status start(pool *p, const numa_wish *wish, moxie_error *error)
{
    if (is_pinned(p, wish))
        MOX_TRY(place_workers(p, wish, error));
    else if (wish->pins && p->executor.workers > 1)
        mox_log(MOXIE_LOG_INFO,
                "numa \"auto\" leaves %d threads where the system puts them: this process may use %d processors",
                (int)p->executor.workers, (int)mox_topology_here()->processors);
    if (p->executor.workers > 1)
        MOX_TRY(mox_pool_start(p->executor.workers, &p->threads, error));
    pin(p);
    return MOXIE_OK;
}

static void free_pool(pool *p)
{
    mox_free(p->places);
    mox_free(p);
}

moxie_status mox_executor_create_on(int32_t threads, const char *numa, moxie_executor **out, moxie_error *error)
{
    numa_wish wish;
    MOX_FAIL_IF(threads < 0 || threads > MOX_MAX_WORKERS, MOXIE_ERR_ARGUMENT, error,
                "an executor of %d threads was asked for; give 1 to %d, or 0 for one per processor", threads,
                MOX_MAX_WORKERS);
    MOX_FAIL_IF(threads > MOX_MAX_WORKERS_EACH * mox_processor_count(), MOXIE_ERR_ARGUMENT, error,
                "an executor of %d threads was asked for, and %d is the limit, %d for each processor that this process "
                "may use: ask for fewer",
                threads, MOX_MAX_WORKERS_EACH * mox_processor_count(), MOX_MAX_WORKERS_EACH);
    MOX_TRY(parse_numa(numa, &wish, error));
    const int32_t found = threads == 0 ? default_workers(&wish) : threads;
    const int32_t workers = found < MOX_MAX_WORKERS ? found : MOX_MAX_WORKERS;

    pool *p = mox_calloc(1, sizeof *p);
    MOX_FAIL_IF(!p, MOXIE_ERR_MEMORY, error, "out of memory for an executor");
    p->executor = (moxie_executor) { .self = p, .workers = workers, .run = run_pool };
    p->owner = getpid();
    p->flags = idle_flags();
    p->nodes = 1;
    p->memory = MOX_MEMORY_ANYWHERE;
    const moxie_status status = start(p, &wish, error);
    if (status != MOXIE_OK) {
        free_pool(p);
        return status;
    }
    *out = &p->executor;
    return MOXIE_OK;
}

moxie_status mox_executor_create(int32_t threads, moxie_executor **out, moxie_error *error)
{
    return mox_executor_create_on(threads, "off", out, error);
}

/* NULL: not a pool. */
static const pool *pool_of(const moxie_executor *executor)
{
    return executor->run == run_pool ? executor->self : NULL;
}

int32_t mox_executor_nodes(const moxie_executor *executor)
{
    const pool *p = pool_of(executor);
    return p != NULL ? p->nodes : 1;
}

int32_t mox_executor_node(const moxie_executor *executor, int32_t worker)
{
    const pool *p = pool_of(executor);
    return p != NULL && p->nodes > 1 ? p->places[worker].node : 0;
}

int32_t mox_executor_memory(const moxie_executor *executor)
{
    const pool *p = pool_of(executor);
    return p != NULL ? p->memory : MOX_MEMORY_ANYWHERE;
}

void mox_executor_destroy(moxie_executor *executor)
{
    if (!executor)
        return;
    pool *p = executor->self;
    if (p->threads && p->owner == getpid())
        pthreadpool_destroy(p->threads);
    free_pool(p);
}
