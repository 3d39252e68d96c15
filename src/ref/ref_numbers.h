/* SPDX-License-Identifier: Apache-2.0
 *
 * ref_numbers.h - the numbers that the oracle evaluates activations with (activation/activation_formulas.h): a value in
 * double, and how far a straightforward fp32 evaluation may be from it.
 *
 *     |fp32 - value| <= 8 u error,   u = 2^-24                     (running error analysis, to first order in u)
 *
 * So `error` is in units of 8 roundings: an operation that rounds once adds |value| / 8. An error e of an argument
 * becomes |f'| e. Three facts about fp32 are used: a sum, product or quotient rounds once (u of its result); exp, erf
 * and tanh are within 4 ulp (8 u of their results); a constant factor may be rounded, too.
 *
 * Underflow comes on top: sigmoid may be off by 2^-126 (1 / (1 + e^-x) is 0 when e^-x overflows) and any product by
 * 2^-150, and the factors that follow enlarge it. So every operation but a sum adds TINY = 2^-102, for 8 u TINY =
 * 2^-123. Overflow is not covered: where an intermediate passes FLT_MAX and the exact one does not, the error is
 * infinite.
 */
#ifndef MOX_REF_REF_NUMBERS_H
#define MOX_REF_REF_NUMBERS_H

#include <math.h>

#include "ref/ref.h"

#define MOX_NUM_INLINE static inline
#define MOX_NUM_TINY   0x1p-102

typedef struct mox_num {
    double value, error;
} mox_num;
typedef double mox_real;
typedef mox_ref_act mox_num_parameters;

/* factor * error, where no error remains none under an infinite factor. */
static inline double mox_num_spread(double factor, double error)
{
    return factor == 0 || error == 0 ? 0 : fabs(factor) * error;
}

/* ---- one rounding -------------------------------------------------------------------------------- */

static inline mox_num num_mul(mox_num x, mox_num y)
{
    const double value = x.value * y.value;
    return (mox_num) { value, mox_num_spread(x.value, y.error) + mox_num_spread(y.value, x.error) + fabs(value) / 8 +
                                  MOX_NUM_TINY };
}

static inline mox_num num_div(mox_num x, mox_num y)
{
    const double value = x.value / y.value;
    return (mox_num) { value,
                       (x.error + mox_num_spread(value, y.error)) / fabs(y.value) + fabs(value) / 8 + MOX_NUM_TINY };
}

/* The magnitudes instead of the sum: it may be one fused step with a product before or after it. */
static inline mox_num num_add(mox_num x, mox_num y)
{
    return (mox_num) { x.value + y.value, x.error + y.error + (fabs(x.value) + fabs(y.value)) / 8 };
}

static inline mox_num num_plus(mox_num x, double c)
{
    return (mox_num) { x.value + c, x.error + (fabs(x.value) + fabs(c)) / 8 };
}

/* One rounding of the product, and one of c where fp32 does not have it. */
static inline mox_num num_scale(mox_num x, double c)
{
    const double value = x.value * c, roundings = (float)c == c ? 1 : 2;
    return (mox_num) { value, mox_num_spread(c, x.error) + roundings * fabs(value) / 8 + MOX_NUM_TINY };
}

static inline mox_num num_over(mox_num x, double c)
{
    const double value = x.value / c;
    return (mox_num) { value, x.error / fabs(c) + fabs(value) / 8 + MOX_NUM_TINY };
}

/* ---- exact --------------------------------------------------------------------------------------- */

/* NaN passes. A number that is past the limit by more than its error becomes the limit in fp32, too. */
static inline mox_num num_min(mox_num x, double limit)
{
    const bool surely = x.value - 8 * 0x1p-24 * x.error > limit;
    return (mox_num) { x.value > limit ? limit : x.value, surely ? 0 : x.error };
}

static inline mox_num num_max(mox_num x, double limit)
{
    const bool surely = x.value + 8 * 0x1p-24 * x.error < limit;
    return (mox_num) { x.value < limit ? limit : x.value, surely ? 0 : x.error };
}

static inline mox_num num_abs(mox_num x)
{
    return (mox_num) { fabs(x.value), x.error };
}

/* ---- functions ----------------------------------------------------------------------------------- */

static inline double mox_ref_sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static inline mox_num num_exp(mox_num x)
{
    const double value = exp(x.value);
    return (mox_num) { value, mox_num_spread(value, x.error + 1) + MOX_NUM_TINY };
}

static inline mox_num num_tanh(mox_num x)
{
    const double value = tanh(x.value);
    return (mox_num) { value, mox_num_spread(1 - value * value, x.error) + fabs(value) + MOX_NUM_TINY };
}

/* With s the value: exp counts 8 (1 - s) roundings, sum and quotient two, 10 in all. The bound has 4 more for the
 * argument: approximate instructions for exp and reciprocal stay within it. */
static inline mox_num num_sigmoid(mox_num x)
{
    const double s = mox_ref_sigmoid(x.value), rest = mox_ref_sigmoid(-x.value);
    const double own = 1.25 + 0.5 * mox_num_spread(rest, fabs(x.value));
    return (mox_num) { s, mox_num_spread(s, own) + mox_num_spread(s * rest, x.error) + MOX_NUM_TINY };
}

/* A kernel may compute the sum 1 + tanh(x / 2), which cancels for negative x: it is exact to the ulp of what it
 * cancels. tanh counts 8 roundings, the sum up to 4. The sigmoid keeps the digits that the sum loses. */
static inline mox_num num_half_tanh(mox_num x)
{
    const double s = mox_ref_sigmoid(x.value), slope = s * mox_ref_sigmoid(-x.value);
    return (mox_num) { s, 0.5 * (0.5 + fabs(tanh(x.value / 2))) + mox_num_spread(slope, x.error) + MOX_NUM_TINY };
}

/* With z = x / sqrt 2: constant and product up to 6 roundings of z, erf 8, and the sum 1 + erf(z) up to 4, which
 * cancels as above. erfc keeps the digits that it loses. */
static inline mox_num num_normal(mox_num x)
{
    const double z = x.value / sqrt(2), slope = 2 / sqrt(acos(-1)) * exp(-z * z);
    const double own = 0.5 * (0.5 + fabs(erf(z)) + 0.75 * mox_num_spread(slope, fabs(z)));
    return (mox_num) { 0.5 * erfc(-z), own + mox_num_spread(slope / (2 * sqrt(2)), x.error) + MOX_NUM_TINY };
}

#endif
