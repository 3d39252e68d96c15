/* SPDX-License-Identifier: Apache-2.0
 *
 * pool_yields.c - a wrapper of the thread pool for emulated builds (--wrap, tests/CMakeLists.txt): workers go to sleep
 * after every loop. Otherwise each worker first spins a million times around PAUSE. Each PAUSE leaves the emulator, so
 * that would cost up to a second of processor time after every loop.
 */
#include <pthreadpool.h>

void __real_pthreadpool_parallelize_1d(pthreadpool_t pool, pthreadpool_task_1d_t task, void *context, size_t range,
                                       uint32_t flags);
void __wrap_pthreadpool_parallelize_1d(pthreadpool_t pool, pthreadpool_task_1d_t task, void *context, size_t range,
                                       uint32_t flags);

void __wrap_pthreadpool_parallelize_1d(pthreadpool_t pool, pthreadpool_task_1d_t task, void *context, size_t range,
                                       uint32_t flags)
{
    __real_pthreadpool_parallelize_1d(pool, task, context, range, flags | PTHREADPOOL_FLAG_YIELD_WORKERS);
}
