/* SPDX-License-Identifier: Apache-2.0
 *
 * neon_dot.h - dot products of four int8, exact in int32: by SDOT, or by SMULL and pairwise sums on processors without.
 */
#ifndef MOX_CPU_NEON_DOT_H
#define MOX_CPU_NEON_DOT_H

#include <arm_neon.h>

#include "cpu/expert_gemm/panel_kernel.h"

/* sum[n] + w[4n] x[4i] + ... + w[4n+3] x[4i+3], where x holds 8 bytes and i, 0 or 1, is a constant. */
MOX_KERNEL_INLINE int32x4_t mox_neon_dot(int32x4_t sum, int8x16_t w, int32x2_t x, int i)
{
#ifdef __ARM_FEATURE_DOTPROD
    const int8x8_t bytes = vreinterpret_s8_s32(x);
    return i == 0 ? vdotq_lane_s32(sum, w, bytes, 0) : vdotq_lane_s32(sum, w, bytes, 1);
#else
    const int8x16_t four = vreinterpretq_s8_s32(i == 0 ? vdupq_lane_s32(x, 0) : vdupq_lane_s32(x, 1));
    const int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8(w), vget_low_s8(four)));
    const int32x4_t high = vpaddlq_s16(vmull_high_s8(w, four));
    return vaddq_s32(sum, vpaddq_s32(low, high));
#endif
}

#endif
