/* SPDX-License-Identifier: Apache-2.0
 *
 * executor.h - the parallel-for under every threaded step.
 *
 * The default pool is pthreadpool's. Its threads do not survive fork(); the pool remembers the process
 * that started it and starts anew in a child. A plan without an executor uses the serial one.
 */
#ifndef MOX_BASE_EXECUTOR_H
#define MOX_BASE_EXECUTOR_H

#include <moxie/moxie.h>

/* Runs tasks in order on the calling thread. */
extern const moxie_executor mox_executor_serial;

static inline void mox_parallel(const moxie_executor *executor, int64_t tasks, moxie_task_fn fn, void *context)
{
    if (tasks > 0)
        executor->run(executor->self, tasks, fn, context);
}

#endif
