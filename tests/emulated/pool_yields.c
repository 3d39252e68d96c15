/* SPDX-License-Identifier: Apache-2.0
 *
 * pool_yields.c - in emulated builds, test programs call the thread pool by way of this (--wrap, tests/CMakeLists.txt):
 * its workers go to sleep after every loop. Else each spins a million times round PAUSE first, which leaves the
 * emulator each time: up to a second of processor time after every loop.
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
