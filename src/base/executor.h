/* SPDX-License-Identifier: Apache-2.0
 *
 * executor.h - the parallel-for under every threaded step.
 *
 * The default pool is pthreadpool's. Its threads do not survive fork(), so in a child process the pool starts
 * new ones. A plan without an executor uses the serial one.
 */
#ifndef MOX_BASE_EXECUTOR_H
#define MOX_BASE_EXECUTOR_H

#include <moxie/moxie.h>

#define MOX_MAX_WORKERS 4096
/* The most of a processor: all threads of a new pool spin for some milliseconds before they sleep. */
#define MOX_MAX_WORKERS_EACH 64

/* Bodies of moxie_executor_create, moxie_executor_create_on and moxie_executor_destroy. threads: 0 to
 * MOX_MAX_WORKERS. */
moxie_status mox_executor_create(int32_t threads, moxie_executor **out, moxie_error *error);
moxie_status mox_executor_create_on(int32_t threads, const char *numa, moxie_executor **out, moxie_error *error);
void mox_executor_destroy(moxie_executor *executor);

/* Of a pool whose workers have places (topology.h): among how many nodes experts are divided, and the node of worker
 * `worker`, an index of mox_topology_here(). Any other executor is on one node, 0. */
int32_t mox_executor_nodes(const moxie_executor *executor);
int32_t mox_executor_node(const moxie_executor *executor, int32_t worker);

/* Where a layer's records should lie that this executor's workers read: the index of a node, or one of these. */
enum { MOX_MEMORY_ANYWHERE = -1, MOX_MEMORY_BY_EXPERT = -2, MOX_MEMORY_INTERLEAVED = -3 };
int32_t mox_executor_memory(const moxie_executor *executor);

/* Runs tasks in order on the calling thread. */
extern const moxie_executor mox_executor_serial;

/* Runs tasks in order on the calling thread, as worker *worker, which must outlive it: for loops inside a task. */
moxie_executor mox_executor_on_worker(const int32_t *worker);

/* Calls fn once for each task in [0, tasks). A task must not start another loop on the same executor. */
static inline void mox_parallel(const moxie_executor *executor, int64_t tasks, moxie_task_fn fn, void *context)
{
    if (tasks > 0)
        executor->run(executor->self, tasks, fn, context);
}

#endif
