/* SPDX-License-Identifier: Apache-2.0
 *
 * device_timer.c - timers from a pool (device_timer.h).
 *
 * A thread first takes a place of the pool, then makes its events. Where a place was looked at, filled and only then
 * taken, two ranks shared one: each destroyed the other's events, and the process ended with a segmentation fault.
 */
#include "cuda/device/device_timer.h"

#include <stdatomic.h>

#include "cuda/device/device_error.h"

typedef struct timer {
    atomic_bool taken;
    cudaEvent_t start, stop;
} timer;
static timer timers[MOX_DEVICE_TIMERS];

static timer *take(void)
{
    for (int i = 0; i < MOX_DEVICE_TIMERS; i++)
        if (!atomic_exchange(&timers[i].taken, true))
            return &timers[i];
    return NULL;
}

static moxie_status create_events(timer *t, moxie_error *error)
{
    MOX_TRY(mox_cuda_status(cudaEventCreate(&t->start), "creating a timer", error));
    const moxie_status status = mox_cuda_status(cudaEventCreate(&t->stop), "creating a timer", error);
    if (status != MOXIE_OK)
        cudaEventDestroy(t->start);
    return status;
}

moxie_status mox_device_timer_create(void **out, moxie_error *error)
{
    timer *t = take();
    MOX_FAIL_IF(t == NULL, MOXIE_ERR_MEMORY, error, "CUDA: all %d timers are in use: destroy one", MOX_DEVICE_TIMERS);
    const moxie_status status = create_events(t, error);
    if (status == MOXIE_OK)
        *out = t;
    else
        atomic_store(&t->taken, false);
    return status;
}

void mox_device_timer_destroy(void *object)
{
    timer *t = object;
    if (t == NULL)
        return;
    cudaEventDestroy(t->start);
    cudaEventDestroy(t->stop);
    atomic_store(&t->taken, false);
}

moxie_status mox_device_timer_start(void *object, mox_cuda_stream stream, moxie_error *error)
{
    return mox_cuda_status(cudaEventRecord(((timer *)object)->start, (cudaStream_t)stream), "starting a timer", error);
}

moxie_status mox_device_timer_stop(void *object, mox_cuda_stream stream, float *milliseconds, moxie_error *error)
{
    const timer *t = object;
    MOX_TRY(mox_cuda_status(cudaEventRecord(t->stop, (cudaStream_t)stream), "stopping a timer", error));
    MOX_TRY(mox_cuda_status(cudaEventSynchronize(t->stop), "waiting for a timer", error));
    return mox_cuda_status(cudaEventElapsedTime(milliseconds, t->start, t->stop), "reading a timer", error);
}
