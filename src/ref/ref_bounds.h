/* SPDX-License-Identifier: Apache-2.0
 *
 * ref_bounds.h - how far a right kernel may be from the oracle.
 *
 * u = 2^-24 is half an ulp of 1 in fp32. A sum of n products in fp32, in any order, with or without fma,
 * satisfies |got - exact| <= gamma(n) * sum |x||w|, gamma(m) = m u / (1 - m u)  (Higham, Accuracy and
 * Stability of Numerical Algorithms, section 3.1). Each product carries one rounding and up to four more for
 * the factors that are applied to partial sums (weight scale, activation scale, the two globals), and the bias
 * one addition: gamma(n + 6). Results below the smallest normal add underflow: (n + 6) * 2^-149.
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

/* Of an fp32 dot product of length n whose magnitudes sum to `magnitude`. */
static inline double mox_bound_dot(int64_t n, double magnitude)
{
    return mox_gamma((double)n + 6.0) * magnitude + ((double)n + 6.0) * 0x1p-149;
}

/* Of an activation evaluated in fp32; `sensitivity` from mox_ref_activate(). */
static inline double mox_bound_act(double sensitivity)
{
    return 8.0 * 0x1p-24 * sensitivity;
}

/* How close two routing keys must be, relative to |score| + |bias|, before fp32 may order them either way: a softmax
 * score is off by up to E roundings of the sum, and two for each unit of x - max, which is below 104. */
static inline double mox_tolerance_keys(int64_t experts)
{
    return mox_gamma((double)experts + 256.0);
}

/* Half an ulp of `value` in a float type, plus its smallest subnormal's half: the one rounding at the end. */
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
