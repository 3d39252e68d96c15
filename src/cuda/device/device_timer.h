/* SPDX-License-Identifier: Apache-2.0
 *
 * device_timer.h - times between two places of a stream, for the launch table (cuda_table.h). Thread-safe: ranks of one
 * process are threads that make timers at the same time.
 */
#ifndef MOX_CUDA_DEVICE_DEVICE_TIMER_H
#define MOX_CUDA_DEVICE_DEVICE_TIMER_H

#include "cuda/cuda_table.h"

/* Two events of the current device. There are at most MOX_DEVICE_TIMERS at a time. */
enum { MOX_DEVICE_TIMERS = 64 };
moxie_status mox_device_timer_create(void **out, moxie_error *error);
void mox_device_timer_destroy(void *timer);
moxie_status mox_device_timer_start(void *timer, mox_cuda_stream stream, moxie_error *error);
/* Waits for the stream. */
moxie_status mox_device_timer_stop(void *timer, mox_cuda_stream stream, float *milliseconds, moxie_error *error);

#endif
