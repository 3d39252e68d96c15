/* SPDX-License-Identifier: Apache-2.0
 *
 * ref_bounds.h - how far a correct kernel may be from the oracle.
 *
 * u = 2^-24 is half an ulp of 1 in fp32. A sum of products in fp32 in which no term passes through more than d
 * additions satisfies |got - exact| <= gamma(d + 1) * sum |x||w|, gamma(m) = m u / (1 - m u), with or without fma
 * (Higham, Accuracy and Stability of Numerical Algorithms, sections 3.1 and 4.2). The contract bounds d far below the
 * length: sums run in segments, each from zero, added in order, so d is the longest segment plus the number of
 * segments. A product rounds once. The factors of partial sums (weight scale, activation scale, the two globals) round
 * up to four times more, and the bias is one addition: gamma(d + 6). Each of the n terms may also underflow:
 * (n + 6) * 2^-149.
 */
#ifndef MOX_REF_REF_BOUNDS_H
#define MOX_REF_REF_BOUNDS_H

#include <math.h>
#include <stdint.h>

#include <moxie/moxie.h>

static inline double mox_gamma(double n)
{
    const double u = 0x1p-24;
    return n * u / (1.0 - n * u);
}

/* The longest segment that a kernel may sum from zero, in columns. */
#define MOX_SUM_SEGMENT 512

/* Additions that a term of a dot product of length n passes through at most, when segments end at every multiple of
 * the weights' group, of the activations' group (n or more: none) and of MOX_SUM_SEGMENT. */
static inline int64_t mox_dot_depth(int64_t n, int64_t weight_group, int64_t act_group)
{
    const int64_t limits[3] = { weight_group, act_group, MOX_SUM_SEGMENT };
    int64_t longest = n, segments = 0;
    for (int i = 0; i < 3 && n > 0; i++) {
        longest = limits[i] < longest ? limits[i] : longest;
        segments += n / limits[i] + 1;
    }
    return longest + segments;
}

/* The bound of an fp32 dot product of length n and depth mox_dot_depth(), where magnitude = sum |x||w|. */
static inline double mox_bound_dot(int64_t n, int64_t depth, double magnitude)
{
    return mox_gamma((double)depth + 6.0) * magnitude + ((double)n + 6.0) * 0x1p-149;
}

/* The bound of a dot product on tensor cores that accumulate over all of K. An instruction aligns its products and the
 * accumulator to the largest of them, and keeps `bits` bits below it.
 *     23   one rounding per instruction, of 16 columns. Where sums of c = 128 columns or fewer start from zero, and
 *          are scaled and added in fp32, a term passes through c / 16 instructions, and n / c + 2 roundings of half as
 *          much: fewer than n / 16 + 8
 *     13   instructions of 32 columns. `aligned` is the sum over instructions of the largest magnitude that each adds,
 *          the accumulator included. Every 128 columns start from zero and are added in fp32
 *     31   the sum is of integers and exact: only later steps round */
static inline double mox_bound_mma(int64_t n, int32_t bits, double magnitude, double aligned)
{
    const double steps = (double)(bits < 23 ? n / 128 : bits < 31 ? n / 16 : 0) + 8.0;
    return steps * 0x1p-23 * magnitude + (bits < 23 ? 33.0 * 0x1p-13 * aligned : 0.0) + ((double)n + 6.0) * 0x1p-149;
}

/* What units that flush subnormal numbers to zero may lose in addition. A flushed operand is below 2^-126 and costs
 * that times the other operand. A flushed product or partial sum is below 2^-126, too, and costs that times the later
 * factors: the weights' scales, at most 2^16 |w| (no nonzero code is smaller than 2^-16), and the globals, whose
 * product is `global`. `weights` and `acts`: sums of |w| and |x|. */
static inline double mox_bound_flush(int64_t n, double weights, double acts, double global)
{
    return 0x1p-110 * ((double)n * (1.0 + fabs(global)) + weights + acts);
}

/* What is lost when the activations of a step are rounded to multiples of m / 127, m being their largest magnitude:
 * half a multiple each, and a little in the division. `steps` is the sum of m * sum |w| over all steps. */
static inline double mox_bound_bytes(double steps)
{
    return 0.501 / 127.0 * steps;
}

/* What a kernel loses that multiplies levels and minimums of block types apart: w = S level - M, and a run of a step
 * adds S I - M D with I = sum d level, D = sum d, d being the activations' bytes. S, M, I and D are exact in fp32. A
 * step has two runs at most, so its first product passes through four roundings of sums up to
 * unit sum |d| (|w| + 2 |M|), and unit |d| <= 2 |x|, since rounding to a byte at most doubles a number. No other bound
 * has this: w may be small where S level and M are large. `magnitude`: sum |x||w|. `minimums`: sum |x||M|. */
static inline double mox_bound_minimums(double magnitude, double minimums)
{
    return mox_gamma(8.0) * (magnitude + 2.0 * minimums);
}

/* sum |x||w| of a kernel that sums levels and minimums of block types apart: w = W - M with |W| <= |w| + |M|, and both
 * sums have terms of their own. The bounds of sums hold as they are: minimums are one more sum, for 64 columns or for
 * 256 of fp32 sums of 32 columns, and ggml, whose w the oracle has, rounds it once. */
static inline double mox_magnitude_apart(double magnitude, double minimums)
{
    return magnitude + 2.0 * minimums;
}

/* The bound of an activation in fp32; `sensitivity` from mox_ref_activate(). */
static inline double mox_bound_act(double sensitivity)
{
    return 8.0 * 0x1p-24 * sensitivity;
}

/* Two routing keys that are closer than this, relative to |score| + |bias|, may have either order in fp32. A softmax
 * score is off by up to E roundings of its sum, and by two for each unit of x - max, which is below 104. */
static inline double mox_tolerance_keys(int64_t experts)
{
    return mox_gamma((double)experts + 256.0);
}

/* The relative error of a capped logit in fp32. */
#define MOX_REF_CAP_ERROR (10 * 0x1p-24)

/* The rounding of a result to `dtype`: half an ulp of `value`, plus half of the smallest subnormal. */
static inline double mox_bound_round(moxie_dtype dtype, double value)
{
    const double a = fabs(value);
    switch (dtype) {
    case MOXIE_BF16: return a * 0x1p-8 + 0x1p-134;
    case MOXIE_F16: return a * 0x1p-11 + 0x1p-25;
    default: return a * 0x1p-24 + 0x1p-150;
    }
}

#endif
