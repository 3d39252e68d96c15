/* SPDX-License-Identifier: Apache-2.0
 *
 * capture_cuda.h - runs on a GPU as a graph that their caller launches (moxie_cuda_plan_capture).
 *
 *     run each once (the driver loads its kernels) -> [capture: run 0, run 1, ...] -> graph
 */
#ifndef MOX_LAYER_CAPTURE_CUDA_H
#define MOX_LAYER_CAPTURE_CUDA_H

#include "layer/run/run.h"

/* Body of moxie_cuda_plan_capture. */
moxie_status mox_cuda_capture(moxie_plan *const *plans, const moxie_run_args *const *args, int32_t count, void **graph,
                              moxie_error *error);

#endif
