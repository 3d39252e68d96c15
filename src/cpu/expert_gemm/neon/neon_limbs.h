/* SPDX-License-Identifier: Apache-2.0
 *
 * neon_limbs.h - activations as integers of 8 bits, for the integer products of neon_int_dot.h.
 *
 *     a = 2^(e - 150) * (2^23 + fraction)     an activation
 *     u = the smallest of their lowest set bits over a step
 *     A = a / u = l0 + 2^8 l1 + 2^16 l2       exact; limbs from -128 to 127
 *
 *     limbs   [step][row] | l0 of the columns | l1 | l2 | unit f32 | limbs, sum i32 |      4 bytes a column
 *             columns of a quarter: 0 4 1 5, 2 6 3 7, as nibbles lie (neon_decode.h); for weights of 8 bits in order
 *
 * A step whose integers would not be exact has 0 limbs. For bytes (class TOL) there is one limb, rounded.
 */
#ifndef MOX_CPU_NEON_LIMBS_H
#define MOX_CPU_NEON_LIMBS_H

#include "cpu/expert_gemm/neon/panel_neon.h"

/* A unit 2^x is stored as x + BIAS (e + trailing zeros + 127 of its activation). Units from MIN_UNIT to MAX_UNIT keep
 * sums and their unit in range. TWO_LIMBS: the largest A of two limbs. */
enum {
    MOX_LIMB_BIAS = 277,
    MOX_LIMB_MIN_UNIT = MOX_LIMB_BIAS - 124,
    MOX_LIMB_MAX_UNIT = MOX_LIMB_BIAS + 90,
    MOX_LIMB_ABSENT = 0x7fff,
    MOX_LIMB_TWO = 0x7f7f
};

/* What follows the limbs of a step. */
typedef struct mox_neon_ends {
    float unit;    /* of A times that of the weights */
    int32_t limbs; /* 1 to 3; 0: multiply as floats */
    int32_t sum;   /* of bytes (class TOL), for weights of 8 bits */
} mox_neon_ends;

/* The limbs of a step of one row. */
MOX_KERNEL_INLINE int8_t *mox_neon_limbs_at(const mox_neon_job *j, int64_t step, int64_t row)
{
    return j->sc.limbs + (step * j->a->rows + row) * j->step_cols * 4;
}

MOX_KERNEL_INLINE const mox_neon_ends *mox_neon_ends_at(const mox_neon_job *j, const int8_t *limbs)
{
    return (const mox_neon_ends *)(const void *)(limbs + 3 * j->step_cols);
}

/* Measured over a step. NaN and infinity carry over to the sums; subnormal activations count as zero, as in floats. */
typedef struct mox_neon_extent {
    int32_t unit;    /* stored as above */
    float even, odd; /* sums of magnitudes by column */
    float largest;   /* magnitude */
} mox_neon_extent;

static inline mox_neon_extent mox_neon_measure(const float *a, int64_t cols)
{
    const uint32x4_t one = vdupq_n_u32(0x00800000);
    uint32x4_t unit = vdupq_n_u32(MOX_LIMB_ABSENT);
    float32x4_t sum = vdupq_n_f32(0.0f), largest = sum;
    for (int64_t k = 0; k < cols; k += 4) {
        const uint32x4_t bits = vandq_u32(vreinterpretq_u32_f32(vld1q_f32(a + k)), vdupq_n_u32(0x7fffffff));
        const uint32x4_t e = vshrq_n_u32(bits, 23), absent = vceqzq_u32(e);
        const uint32x4_t whole = vorrq_u32(vandq_u32(bits, vdupq_n_u32(0x007fffff)), one);
        const uint32x4_t lowest = vandq_u32(whole, vreinterpretq_u32_s32(vnegq_s32(vreinterpretq_s32_u32(whole))));
        const uint32x4_t zeros = vshrq_n_u32(vreinterpretq_u32_f32(vcvtq_f32_u32(lowest)), 23);
        const float32x4_t value = vreinterpretq_f32_u32(vbicq_u32(bits, absent));
        unit = vminq_u32(unit, vorrq_u32(vaddq_u32(e, zeros), vshrq_n_u32(absent, 17)));
        sum = vaddq_f32(sum, value);
        largest = vmaxq_f32(largest, value);
    }
    return (mox_neon_extent) { .unit = (int32_t)vminvq_u32(unit),
                               .even = vgetq_lane_f32(sum, 0) + vgetq_lane_f32(sum, 2),
                               .odd = vgetq_lane_f32(sum, 1) + vgetq_lane_f32(sum, 3),
                               .largest = vmaxvq_f32(largest) };
}

/* Stores `count` limbs of all columns, in order or as nibbles lie. */
static inline void mox_neon_put_limbs(const float *a, int64_t cols, bool nibbles, float per_unit, int count,
                                      int8_t *out)
{
    const int32x4_t offset = vdupq_n_s32(0x00808080);
    const uint8x8_t in_order = { 0, 4, 8, 12, 16, 20, 24, 28 }, as_nibbles = { 0, 16, 4, 20, 8, 24, 12, 28 };
    const uint8x8_t lanes = nibbles ? as_nibbles : in_order;
    for (int64_t k = 0; k < cols; k += 8) {
        int32x4_t whole[2];
        for (int i = 0; i < 2; i++) {
            whole[i] = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(a + k + 4 * i), per_unit));
            whole[i] = veorq_s32(vaddq_s32(whole[i], offset), offset);
        }
        const uint8x16x2_t bytes = { { vreinterpretq_u8_s32(whole[0]), vreinterpretq_u8_s32(whole[1]) } };
        for (int d = 0; d < count; d++)
            vst1_s8(out + d * cols + k, vreinterpret_s8_u8(vqtbl2_u8(bytes, vadd_u8(lanes, vdup_n_u8((uint8_t)d)))));
    }
}

static inline float mox_neon_power(int32_t exponent)
{
    return mox_scale_of((uint32_t)(exponent + 127) << 23);
}

/* Stores a step as limbs; 0 when integers are not exact: when a chain of products may exceed 2^24 units. (A sum is
 * exact up to 2^24 units, and a larger one is never rounded to below that.) */
static inline mox_neon_ends mox_neon_put_step(const float *a, int64_t cols, bool nibbles,
                                              const mox_panel_counts *format, int8_t *out)
{
    mox_neon_extent x = mox_neon_measure(a, cols);
    if (x.unit == MOX_LIMB_ABSENT)
        x.unit = MOX_LIMB_BIAS;
    if (x.unit < MOX_LIMB_MIN_UNIT || x.unit > MOX_LIMB_MAX_UNIT)
        return (mox_neon_ends) { .limbs = 0 };
    const float per_unit = mox_neon_power(MOX_LIMB_BIAS - x.unit), factor = per_unit * format->max;
    if (!(x.even * factor <= 0x1p24f) || !(x.odd * factor <= 0x1p24f))
        return (mox_neon_ends) { .limbs = 0 };
    const int limbs = x.largest * per_unit <= (float)MOX_LIMB_TWO ? 2 : 3;
    mox_neon_put_limbs(a, cols, nibbles, per_unit, limbs, out);
    return (mox_neon_ends) { .unit = mox_neon_power(x.unit - MOX_LIMB_BIAS) * format->h, .limbs = limbs };
}

/* Stores a step as bytes; 0 when sum BYTE_ACTIVATIONS wants floats. Magnitudes compare as their bits do, with NaN above
 * infinity. */
static inline mox_neon_ends mox_neon_put_bytes(const float *a, int64_t cols, bool nibbles,
                                               const mox_panel_counts *format, int8_t *out)
{
    uint32x4_t largest = vdupq_n_u32(0);
    for (int64_t k = 0; k < cols; k += 4)
        largest = vmaxq_u32(largest, vandq_u32(vreinterpretq_u32_f32(vld1q_f32(a + k)), vdupq_n_u32(0x7fffffff)));
    const uint32_t bits = vmaxvq_u32(largest);
    const bool none = bits < 1u << 23;
    const float max = mox_scale_of(bits);
    if (!none && (bits < (127u - 60) << 23 || bits > (127u + 60) << 23))
        return (mox_neon_ends) { .limbs = 0 };
    mox_neon_put_limbs(a, cols, nibbles, none ? 0.0f : 127.0f / max, 1, out);
    int32_t sum = 0;
    for (int64_t k = 0; k < cols && !nibbles; k += 16)
        sum += vaddlvq_s8(vld1q_s8(out + k));
    return (mox_neon_ends) { none ? 0.0f : max * (1.0f / 127.0f) * format->h, 1, sum };
}

/* Stores the limbs of all rows; returns the number of (row, step) left to floats. */
static inline int64_t mox_neon_put_rows(const mox_neon_job *j, bool bytes, const mox_panel_counts *format)
{
    const bool nibbles = j->decode != MOX_NEON_QUADS;
    int64_t floats = 0;
    for (int64_t row = 0; row < j->a->rows; row++) {
        const mox_neon_rows x = mox_neon_rows_at(MOX_ACT_ORDER_F32, j, row);
        for (int64_t s = 0; s < j->steps; s++) {
            const float *a = (const float *)(const void *)mox_neon_x(MOX_ACT_ORDER_F32, &x, s * j->step_cols);
            int8_t *out = mox_neon_limbs_at(j, s, row);
            const mox_neon_ends ends =
                (bytes ? mox_neon_put_bytes : mox_neon_put_step)(a, j->step_cols, nibbles, format, out);
            memcpy(out + 3 * j->step_cols, &ends, sizeof ends);
            floats += ends.limbs == 0;
        }
    }
    return floats;
}

#endif
