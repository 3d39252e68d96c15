/* SPDX-License-Identifier: Apache-2.0
 *
 * time_cuda.h - measures how long runs on a GPU take.
 */
#ifndef MOX_LAYER_TIME_CUDA_H
#define MOX_LAYER_TIME_CUDA_H

#include <moxie/moxie_cuda.h>

#include "base/status.h"

/* Body of moxie_cuda_time_runs; pointers are not NULL. */
moxie_status mox_cuda_time_runs(const moxie_cuda_timed_run *timed, int32_t count, int32_t repeats, double *seconds,
                                moxie_error *error);
/* Body of moxie_cuda_time_host; the same. */
moxie_status mox_cuda_time_host(const moxie_cuda_timed_run *timed, int32_t repeats, double *equal, double *kernels,
                                moxie_error *error);

#endif
