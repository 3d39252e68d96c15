/* SPDX-License-Identifier: Apache-2.0
 *
 * glu_lanes.h - the arithmetic of family glu in fp32: one lane per number, in the compiler's vector types. Each file
 * that includes it gets code for its own instruction set. On CUDA a vector is a class that holds one number
 * (cuda/glu/glu_one_lane.cuh). All give the same bits.
 *
 *     lane    one number         register   MOX_GLU_LANES lanes         pack   MOX_GLU_PACK registers
 *
 * The bits are equal because every step is an IEEE 754 sum, product or quotient, in the order written. None is fused
 * (-ffp-contract=off), and no library function is called. With u = 2^-24:
 *
 *     exp       x = n ln 2 + r; e^r by a polynomial of degree 6 (its error 0.2 u, the total below 2 u). The factor 2^n
 *               is applied in two steps, or by VSCALEFPS: overflow gives infinity, underflow rounds once
 *     sigmoid   1 / (1 + exp(-x))
 *     tanh      for |x| < 0.625 an odd polynomial of degree 11 (0.1 u), else (1 - e) / (1 + e), e = exp(-2 |x|)
 *     normal    (1 + erf(x / sqrt 2)) / 2 from erfc(t) = exp(-t P(t)), P of degree 11. Its error is 0.1 u of erfc(t)
 *               up to t = 3, and 2^-10 of it at t = 6. For negative x, 1 + erf would cancel; erfc keeps its digits
 *
 * Coefficients: minimax fits made for this file, of (e^r - 1 - r) / r^2 on |r| <= ln(2) / 2, of tanh x / x - 1 on
 * 0 .. 0.63, and of -log(erfc(t)) on 0 .. 10 with weight erfc(t)^0.3. The last fit keeps growing beyond 10.
 *
 * Limits pass NaN on: comparisons are written so that a NaN is never replaced.
 */
#ifndef MOX_CPU_GLU_LANES_H
#define MOX_CPU_GLU_LANES_H

#include "cpu/glu/glu_tile.h"

#ifndef MOX_GLU_LANES /* CUDA defines its own registers of one lane */
#define MOX_GLU_INLINE static inline __attribute__((always_inline))

/* The lanes of one register of this instruction set, and operations that have an instruction there: minimum and maximum
 * (the second argument when one is NaN), and x 2^n, rounded once. */
#if defined(__AVX512F__)
#include <immintrin.h>
#define MOX_GLU_LANES        16
#define MOX_GLU_MIN(a, b)    ((mox_lanes)_mm512_min_ps((__m512)(a), (__m512)(b)))
#define MOX_GLU_MAX(a, b)    ((mox_lanes)_mm512_max_ps((__m512)(a), (__m512)(b)))
#define MOX_GLU_SCALED(x, n) ((mox_lanes)_mm512_scalef_ps((__m512)(x), (__m512)(n)))
#elif defined(__AVX2__)
#include <immintrin.h>
#define MOX_GLU_LANES     8
#define MOX_GLU_MIN(a, b) ((mox_lanes)_mm256_min_ps((__m256)(a), (__m256)(b)))
#define MOX_GLU_MAX(a, b) ((mox_lanes)_mm256_max_ps((__m256)(a), (__m256)(b)))
#else
#define MOX_GLU_LANES 4
#endif
typedef float mox_lanes __attribute__((vector_size(4 * MOX_GLU_LANES)));
/* For loads and stores at any address. (gcc splits a memcpy of a register into two halves, which stalls the load.) */
typedef float mox_lanes_unaligned __attribute__((vector_size(4 * MOX_GLU_LANES), aligned(4), may_alias));
typedef int32_t mox_lane_ints __attribute__((vector_size(4 * MOX_GLU_LANES)));
#endif

/* A pack: the registers that a function processes side by side. One register is a chain of some 30 dependent
 * operations, which leaves the arithmetic units idle; several chains interleaved fill them. */
#ifndef MOX_GLU_PACK
#if defined(__AVX512F__)
#define MOX_GLU_PACK 4
#else
#define MOX_GLU_PACK 2
#endif
#endif

/* ---- functions ----------------------------------------------------------------------------------- */

MOX_GLU_INLINE mox_lanes mox_lane_broadcast(float x)
{
    const mox_lanes none = { 0 };
    return none + x;
}

/* `yes` in lanes where `mask` is -1, `no` where it is 0. */
MOX_GLU_INLINE mox_lanes mox_lane_select(mox_lane_ints mask, mox_lanes yes, mox_lanes no)
{
    return (mox_lanes)((mask & (mox_lane_ints)yes) | (~mask & (mox_lane_ints)no));
}

#ifndef MOX_GLU_MIN
#define MOX_GLU_MIN(a, b) mox_lane_select((a) < (b), a, b)
#define MOX_GLU_MAX(a, b) mox_lane_select((a) > (b), a, b)
#endif

MOX_GLU_INLINE mox_lanes mox_lane_min(mox_lanes x, float limit)
{
    const mox_lanes limits = mox_lane_broadcast(limit);
    return MOX_GLU_MIN(limits, x);
}

MOX_GLU_INLINE mox_lanes mox_lane_max(mox_lanes x, float limit)
{
    const mox_lanes limits = mox_lane_broadcast(limit);
    return MOX_GLU_MAX(limits, x);
}

MOX_GLU_INLINE mox_lanes mox_lane_abs(mox_lanes x)
{
    return (mox_lanes)((mox_lane_ints)x & 0x7fffffff);
}

typedef struct mox_lane_pack {
    mox_lanes v[MOX_GLU_PACK];
} mox_lane_pack;

/* Adding 1.5 * 2^23 rounds to an integer n, which then stands in the low 9 bits. A NaN gives some harmless n. */
#define MOX_GLU_UNITS 0x1.8p23f

/* x 2^n from sum = n + UNITS. */
MOX_GLU_INLINE mox_lanes mox_lane_times_power(mox_lanes x, mox_lanes sum)
{
#ifdef MOX_GLU_SCALED
    return MOX_GLU_SCALED(x, sum - MOX_GLU_UNITS);
#else
    const mox_lane_ints n = (((mox_lane_ints)sum & 0x1ff) ^ 0x100) - 0x100, half = n >> 1;
    const mox_lane_ints first = (half + 127) << 23, second = (n - half + 127) << 23;
    return x * (mox_lanes)first * (mox_lanes)second;
#endif
}

MOX_GLU_INLINE mox_lane_pack mox_lane_exp(mox_lane_pack x)
{
    mox_lane_pack sum, r, power, tail;
    for (int i = 0; i < MOX_GLU_PACK; i++) {
        /* Past these bounds the result is infinity, or rounds to zero. */
        const mox_lanes at = mox_lane_max(mox_lane_min(x.v[i], 100.0f), -104.0f);
        sum.v[i] = at * 1.44269504f + MOX_GLU_UNITS;
        const mox_lanes whole = sum.v[i] - MOX_GLU_UNITS;
        /* ln 2 in two parts; the first has 9 bits, so its product with n is exact. */
        r.v[i] = (at - whole * 0x1.63p-1f) + whole * 0x1.bd0106p-13f;
        tail.v[i] = mox_lane_broadcast(0.00139413234f);
    }
    static const float coefficients[] = { 0.00836329519f, 0.0416663729f, 0.166665763f, 0.5f };
    for (int c = 0; c < 4; c++)
        for (int i = 0; i < MOX_GLU_PACK; i++)
            tail.v[i] = coefficients[c] + r.v[i] * tail.v[i];
    for (int i = 0; i < MOX_GLU_PACK; i++) {
        power.v[i] = 1.0f + (r.v[i] + r.v[i] * r.v[i] * tail.v[i]);
        power.v[i] = mox_lane_times_power(power.v[i], sum.v[i]);
    }
    return power;
}

MOX_GLU_INLINE mox_lane_pack mox_lane_sigmoid(mox_lane_pack x)
{
    for (int i = 0; i < MOX_GLU_PACK; i++)
        x.v[i] = -x.v[i];
    x = mox_lane_exp(x);
    for (int i = 0; i < MOX_GLU_PACK; i++)
        x.v[i] = 1.0f / (1.0f + x.v[i]);
    return x;
}

MOX_GLU_INLINE mox_lane_pack mox_lane_tanh(mox_lane_pack x)
{
    mox_lane_pack e, out;
    for (int i = 0; i < MOX_GLU_PACK; i++)
        e.v[i] = -2.0f * mox_lane_abs(x.v[i]);
    e = mox_lane_exp(e);
    for (int i = 0; i < MOX_GLU_PACK; i++) {
        const mox_lanes square = x.v[i] * x.v[i], cube = x.v[i] * square;
        const mox_lanes large = (1.0f - e.v[i]) / (1.0f + e.v[i]);
        const mox_lanes with_sign = (mox_lanes)((mox_lane_ints)large | ((mox_lane_ints)x.v[i] & INT32_MIN));
        mox_lanes p = 0.0206061777f - square * 0.00566697713f;
        p = -0.053730008f + square * p;
        p = 0.13331331f + square * p;
        p = -0.333332781f + square * p;
        out.v[i] = mox_lane_select(mox_lane_abs(x.v[i]) < 0.625f, x.v[i] + cube * p, with_sign);
    }
    return out;
}

MOX_GLU_INLINE mox_lane_pack mox_lane_normal(mox_lane_pack x)
{
    static const float coefficients[] = { -2.45906073e-7f, 3.82163513e-6f, -3.48491009e-5f, 2.05800327e-4f,
                                          -8.02835438e-4f, 1.85306617e-3f, -2.68573943e-4f, -1.91284977e-2f,
                                          0.102781271f,    0.636617163f,   1.12837938f,     0.0f };
    mox_lane_pack t, p;
    for (int i = 0; i < MOX_GLU_PACK; i++) {
        t.v[i] = mox_lane_abs(x.v[i] * 0.707106781f);
        p.v[i] = mox_lane_broadcast(7.03798095e-9f);
    }
    for (int c = 0; c < 12; c++)
        for (int i = 0; i < MOX_GLU_PACK; i++)
            p.v[i] = p.v[i] * t.v[i] + coefficients[c];
    for (int i = 0; i < MOX_GLU_PACK; i++)
        p.v[i] = -p.v[i];
    p = mox_lane_exp(p);
    for (int i = 0; i < MOX_GLU_PACK; i++) {
        const mox_lanes beyond = 0.5f * p.v[i];
        p.v[i] = mox_lane_select(x.v[i] < 0.0f, beyond, 1.0f - beyond);
    }
    return p;
}

/* ---- the operations of activation_formulas.h, on packs ------------------------------------------- */

#define MOX_NUM_INLINE MOX_GLU_INLINE
typedef mox_lane_pack mox_num;
typedef float mox_real;
typedef mox_glu_parameters mox_num_parameters;

/* One operation on each register of a pack. */
#define MOX_GLU_EACH(name, parameters, result)                                                                         \
    MOX_GLU_INLINE mox_num name parameters                                                                             \
    {                                                                                                                  \
        for (int i = 0; i < MOX_GLU_PACK; i++)                                                                         \
            x.v[i] = result;                                                                                           \
        return x;                                                                                                      \
    }
MOX_GLU_EACH(num_mul, (mox_num x, mox_num y), x.v[i] * y.v[i])
MOX_GLU_EACH(num_add, (mox_num x, mox_num y), x.v[i] + y.v[i])
MOX_GLU_EACH(num_div, (mox_num x, mox_num y), x.v[i] / y.v[i])
MOX_GLU_EACH(num_scale, (mox_num x, mox_real c), x.v[i] * c)
MOX_GLU_EACH(num_over, (mox_num x, mox_real c), x.v[i] / c)
MOX_GLU_EACH(num_plus, (mox_num x, mox_real c), x.v[i] + c)
MOX_GLU_EACH(num_min, (mox_num x, mox_real c), mox_lane_min(x.v[i], c))
MOX_GLU_EACH(num_max, (mox_num x, mox_real c), mox_lane_max(x.v[i], c))
MOX_GLU_EACH(num_abs, (mox_num x), mox_lane_abs(x.v[i]))

MOX_GLU_INLINE mox_num num_exp(mox_num x)
{
    return mox_lane_exp(x);
}

MOX_GLU_INLINE mox_num num_tanh(mox_num x)
{
    return mox_lane_tanh(x);
}

MOX_GLU_INLINE mox_num num_sigmoid(mox_num x)
{
    return mox_lane_sigmoid(x);
}

/* Equal to (1 + tanh(x / 2)) / 2, whose sum would cancel for negative x. */
MOX_GLU_INLINE mox_num num_half_tanh(mox_num x)
{
    return mox_lane_sigmoid(x);
}

MOX_GLU_INLINE mox_num num_normal(mox_num x)
{
    return mox_lane_normal(x);
}

#include "activation/activation_formulas.h"

#endif
