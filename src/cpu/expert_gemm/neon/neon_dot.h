/* SPDX-License-Identifier: Apache-2.0
 *
 * neon_dot.h - dot products of four int8, exact in int32: by SDOT, or by SMULL and pairwise sums on processors without.
 * And what products by SMMLA share, which adds 2 x 2 sums: two rows of activations by two rows of weights, 8 columns.
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

#ifdef __ARM_FEATURE_MATMUL_INT8

/* W of 8 columns and four rows, columns 0 .. 3 and 4 .. 7 of each, to two operands of SMMLA at `to`. */
MOX_KERNEL_INLINE void mox_neon_put_pairs(int8_t *to, int8x16_t first, int8x16_t last)
{
    const int32x4_t a = vreinterpretq_s32_s8(first), b = vreinterpretq_s32_s8(last);
    vst1q_s8(to, vreinterpretq_s8_s32(vzip1q_s32(a, b)));
    vst1q_s8(to + 16, vreinterpretq_s8_s32(vzip2q_s32(a, b)));
}

/* 8 columns of rows r and r + 1, of R rows; a last row without another is taken twice. */
MOX_KERNEL_INLINE int8x16_t mox_neon_row_pair(int R, int r, const int8_t *x, int64_t row)
{
    const int8x8_t a = vld1_s8(x + r * row), b = r + 1 < R ? vld1_s8(x + (r + 1) * row) : a;
    return vcombine_s8(a, b);
}

/* Row r of the sums of a pair of rows, of weight rows 4m .. 4m+3. */
MOX_KERNEL_INLINE int32x4_t mox_neon_row_sums(const int32x4_t pair[8], int r, int m)
{
    const int64x2_t a = vreinterpretq_s64_s32(pair[2 * m]), b = vreinterpretq_s64_s32(pair[2 * m + 1]);
    return vreinterpretq_s32_s64(r % 2 == 0 ? vzip1q_s64(a, b) : vzip2q_s64(a, b));
}

#endif

#endif
