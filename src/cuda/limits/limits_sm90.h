/* SPDX-License-Identifier: Apache-2.0
 *
 * limits_sm90.h - the probe that only compiles for sm_90a, for the launchers of limits_probes.cu.
 */
#ifndef MOX_CUDA_LIMITS_SM90_H
#define MOX_CUDA_LIMITS_SM90_H

#include "cuda/limits/cuda_limits_args.h"

/* Launches the probe of e4m3 or of bf16. Returns a cudaError_t. */
int mox_limits_launch_wgmma(bool e4m3, const mox_cuda_limits_args *args, void *stream);

#endif
