/* SPDX-License-Identifier: Apache-2.0
 *
 * ptx_approximate.cuh - src/cuda/ptx/ptx_approximate.cuh, emulated.
 */
#ifndef MOX_CUDA_PTX_APPROXIMATE_CUH
#define MOX_CUDA_PTX_APPROXIMATE_CUH

#include <math.h>

static inline float mox_exp2_approximate(float x)
{
    return exp2f(x);
}

static inline float mox_reciprocal_approximate(float x)
{
    return 1.0f / x;
}

#endif
