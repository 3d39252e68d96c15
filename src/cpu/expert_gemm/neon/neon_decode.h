/* SPDX-License-Identifier: Apache-2.0
 *
 * neon_decode.h - codes of layout panel16 to numbers, for the NEON kernels. A unit is 4 rows (4m .. 4m+3) x 8 columns
 * (8q .. 8q+7) of a step:
 *
 *     codes of a unit --> 4 registers of bf16, register i:  | row 4m: k=8q+2i, 8q+2i+1 | row 4m+1 | 4m+2 | 4m+3 |
 *
 * which are exact for every format but f16. A register is a quarter of a pair line (panel.h).
 *
 *     NIBBLES     both bytes of a bf16 looked up by code (TBL). With zero points code - zero is a 5-bit index
 *     PLANES      the same by 6 bits, from 64 entries
 *     E4M3        a look-up of the upper byte by the upper nibble; magnitudes below 16 from small tables, as TBL gives
 *                 0 for an index above 15
 *     E5M2        the upper byte of an f16: FCVTL, whose results' upper halves are kept
 *     QUADS       8-bit integers less their zero point: widened and converted, kept likewise
 *     PAIRS       as they are
 *
 * Instructions for a unit of 32 weights, without loads: NIBBLES 10, with zero points 12, PLANES 20, E4M3 24, E5M2 16,
 * QUADS 36, PAIRS 0.
 *
 * Parameter `decode` is a constant where a function is called. Source: Arm Architecture Reference Manual for A-profile.
 */
#ifndef MOX_CPU_NEON_DECODE_H
#define MOX_CPU_NEON_DECODE_H

#include <arm_neon.h>
#include <string.h>

#include "cpu/expert_gemm/neon/neon_plan.h"
#include "cpu/expert_gemm/panel_kernel.h"
#include "pack/panel/element_traits.h"

/* Tables by code, and what is flipped in codes first so that they count from the least value (NIBBLES with zero
 * points) or are two's complement (QUADS). */
typedef struct mox_neon_tables {
    uint8x16x4_t low, high; /* bytes of the bf16; E4M3: low[0] and high[0] for magnitudes below 16, high[1] by nibble */
    uint8x16_t flip;
} mox_neon_tables;

/* ---- tables ----------------------------------------------------------------------------------------------------- */

static inline void mox_neon_table(const float values[16], uint8x16_t *low, uint8x16_t *high)
{
    uint8_t bytes[2][16];
    for (int i = 0; i < 16; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        bytes[0][i] = (uint8_t)(bits >> 16);
        bytes[1][i] = (uint8_t)(bits >> 24);
    }
    *low = vld1q_u8(bytes[0]);
    *high = vld1q_u8(bytes[1]);
}

/* The lower byte of a larger magnitude is its lower nibble moved up; so the table of low bytes holds what differs from
 * that. */
static inline void mox_neon_tables_e4m3(mox_neon_tables *t)
{
    const float *values = mox_format_table(MOXIE_F8_E4M3);
    const uint8x16_t index = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
    float coarse[16];
    uint8x16_t unused;
    for (int i = 0; i < 16; i++)
        coarse[i] = values[16 * i];
    mox_neon_table(coarse, &unused, &t->high.val[1]);
    mox_neon_table(values, &t->low.val[0], &t->high.val[0]);
    t->low.val[0] = veorq_u8(t->low.val[0], vshlq_n_u8(index, 4));
}

static inline mox_neon_tables mox_neon_tables_of(mox_neon_class decode, moxie_dtype element)
{
    mox_neon_tables t;
    memset(&t, 0, sizeof t);
    if (decode == MOX_NEON_NIBBLES_ZEROS)
        t.flip = vdupq_n_u8(mox_element_sign_bits(element));
    if (decode == MOX_NEON_QUADS)
        t.flip = vdupq_n_u8(mox_element_sign_bits(element) ^ 0x80);
    if (decode == MOX_NEON_E4M3)
        mox_neon_tables_e4m3(&t);
    const int count = decode == MOX_NEON_NIBBLES         ? 1
                      : decode == MOX_NEON_NIBBLES_ZEROS ? 2
                      : decode == MOX_NEON_PLANES        ? 4
                                                         : 0;
    for (int i = 0; i < count; i++) {
        float values[16];
        for (int v = 0; v < 16; v++)
            values[v] =
                decode == MOX_NEON_NIBBLES_ZEROS ? (float)(16 * i + v - 16) : mox_format_table(element)[16 * i + v];
        mox_neon_table(values, &t.low.val[i], &t.high.val[i]);
    }
    return t;
}

/* ---- a unit ----------------------------------------------------------------------------------------------------- */

/* The two nibbles of every byte. The bytes of a lane hold columns (0, 2) (4, 6) (1, 3) (5, 7), low nibble first. So
 * even: columns 0 4 1 5, odd: 2 6 3 7. */
typedef struct mox_neon_nibbles {
    uint8x16_t even, odd;
} mox_neon_nibbles;

MOX_KERNEL_INLINE mox_neon_nibbles mox_neon_split(uint8x16_t codes)
{
    return (mox_neon_nibbles) { vandq_u8(codes, vdupq_n_u8(0x0f)), vshrq_n_u8(codes, 4) };
}

/* The bf16 of both halves of split codes, by tables of `entries` entries, as pairs. */
MOX_KERNEL_INLINE void mox_neon_look_up(int entries, const mox_neon_tables *t, mox_neon_nibbles codes,
                                        uint32x4_t out[4])
{
    const uint8x16_t index[2] = { codes.even, codes.odd };
    MOX_KERNEL_UNROLL
    for (int i = 0; i < 2; i++) {
        uint8x16_t low, high;
        if (entries == 16) {
            low = vqtbl1q_u8(t->low.val[0], index[i]);
            high = vqtbl1q_u8(t->high.val[0], index[i]);
        } else if (entries == 32) {
            const uint8x16x2_t lows = { { t->low.val[0], t->low.val[1] } };
            const uint8x16x2_t highs = { { t->high.val[0], t->high.val[1] } };
            low = vqtbl2q_u8(lows, index[i]);
            high = vqtbl2q_u8(highs, index[i]);
        } else {
            low = vqtbl4q_u8(t->low, index[i]);
            high = vqtbl4q_u8(t->high, index[i]);
        }
        out[i] = vreinterpretq_u32_u8(vtrn1q_u8(low, high));
        out[2 + i] = vreinterpretq_u32_u8(vtrn2q_u8(low, high));
    }
}

/* Nibbles joined with the two upper bits of the same codes, of quarter q. A byte of `fields` has those of half a word's
 * columns: of the word's lower byte for even q. */
MOX_KERNEL_INLINE mox_neon_nibbles mox_neon_join_planes(mox_neon_nibbles low, uint8x16_t fields, int64_t q)
{
    const int8x16_t even = vreinterpretq_s8_u16(vdupq_n_u16(0x0004)), odd = vreinterpretq_s8_u16(vdupq_n_u16(0xfe02));
    const uint8x16_t both = q % 2 == 0 ? vtrn1q_u8(fields, fields) : vtrn2q_u8(fields, fields);
    const uint8x16_t mask = vdupq_n_u8(0x30);
    low.even = vorrq_u8(low.even, vandq_u8(vshlq_u8(both, even), mask));
    low.odd = vorrq_u8(low.odd, vandq_u8(vshlq_u8(both, odd), mask));
    return low;
}

/* 16 codes as bytes to bf16: columns 0, 1 of 4 rows, then columns 2, 3. NaN gets an exponent of ones. */
MOX_KERNEL_INLINE void mox_neon_e4m3(const mox_neon_tables *t, uint8x16_t codes, uint32x4_t out[2])
{
    const uint8x16_t nan = vdupq_n_u8(0x7f), magnitude = vandq_u8(codes, nan);
    uint8x16_t high = vqtbl1q_u8(t->high.val[1], vshrq_n_u8(codes, 4));
    high = vorrq_u8(high, vqtbl1q_u8(t->high.val[0], magnitude));
    high = vorrq_u8(high, vandq_u8(vceqq_u8(magnitude, nan), nan));
    const uint8x16_t low = veorq_u8(vshlq_n_u8(codes, 4), vqtbl1q_u8(t->low.val[0], magnitude));
    out[0] = vreinterpretq_u32_u8(vzip1q_u8(low, high));
    out[1] = vreinterpretq_u32_u8(vzip2q_u8(low, high));
}

/* The upper halves of 8 numbers. */
MOX_KERNEL_INLINE uint32x4_t mox_neon_upper(float32x4_t a, float32x4_t b)
{
    return vreinterpretq_u32_u16(vuzp2q_u16(vreinterpretq_u16_f32(a), vreinterpretq_u16_f32(b)));
}

MOX_KERNEL_INLINE uint32x4_t mox_neon_e5m2(uint8x8_t codes)
{
    const float16x8_t halves = vreinterpretq_f16_u16(vshll_n_u8(codes, 8));
    return mox_neon_upper(vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves));
}

/* Byte b of each lane, less `zero`, as a float. */
MOX_KERNEL_INLINE uint32x4_t mox_neon_byte(int8x16_t codes, int b, int32x4_t zero)
{
    const int32x4_t top = vshlq_s32(vreinterpretq_s32_s8(codes), vdupq_n_s32(24 - 8 * b));
    return vreinterpretq_u32_f32(vcvtq_f32_s32(vsubq_s32(vshrq_n_s32(top, 24), zero)));
}

/* X(name, class) for every class that mox_neon_unit() decodes. */
#define MOX_NEON_UNITS(X)                                                                                              \
    X(pairs, MOX_NEON_PAIRS)                                                                                           \
    X(quads, MOX_NEON_QUADS)                                                                                           \
    X(e4m3, MOX_NEON_E4M3)                                                                                             \
    X(e5m2, MOX_NEON_E5M2)                                                                                             \
    X(nibbles, MOX_NEON_NIBBLES)                                                                                       \
    X(nibbles_zeros, MOX_NEON_NIBBLES_ZEROS)                                                                           \
    X(planes, MOX_NEON_PLANES)

/* Unit (q, m) of the step at `step`. `zero`: of rows 4m .. 4m+3, as mox_neon_zeros() stores them. */
MOX_KERNEL_INLINE void mox_neon_unit(mox_neon_class decode, const mox_neon_tables *t, const uint8_t *step, int64_t q,
                                     int m, const uint32_t *zero, uint32x4_t out[4])
{
    const uint8_t *at = step + 16 * m;
    if (decode == MOX_NEON_NIBBLES) {
        mox_neon_look_up(16, t, mox_neon_split(vld1q_u8(at + 64 * q)), out);
    } else if (decode == MOX_NEON_NIBBLES_ZEROS) {
        mox_neon_nibbles codes = mox_neon_split(veorq_u8(vld1q_u8(at + 64 * q), t->flip));
        const uint8x16_t less = vreinterpretq_u8_u32(vld1q_u32(zero + 4 * m)); /* zero - 16 */
        codes.even = vsubq_u8(codes.even, less);
        codes.odd = vsubq_u8(codes.odd, less);
        mox_neon_look_up(32, t, codes, out);
    } else if (decode == MOX_NEON_PLANES) {
        const mox_neon_nibbles low = mox_neon_split(vld1q_u8(at + 64 * q));
        mox_neon_look_up(64, t, mox_neon_join_planes(low, vld1q_u8(at + 256 + 64 * (q / 2)), q), out);
    }
    MOX_KERNEL_UNROLL
    for (int i = 0; i < 2; i++) {
        const uint8_t *line = at + 64 * (2 * q + i);
        if (decode == MOX_NEON_E4M3)
            mox_neon_e4m3(t, vld1q_u8(line), out + 2 * i);
        if (decode == MOX_NEON_E5M2) {
            out[2 * i] = mox_neon_e5m2(vld1_u8(line));
            out[2 * i + 1] = mox_neon_e5m2(vld1_u8(line + 8));
        }
        if (decode == MOX_NEON_QUADS) {
            const int8x16_t codes = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(line), t->flip));
            const int32x4_t less = vreinterpretq_s32_u32(vld1q_u32(zero + 4 * m));
            out[2 * i] = vsriq_n_u32(mox_neon_byte(codes, 1, less), mox_neon_byte(codes, 0, less), 16);
            out[2 * i + 1] = vsriq_n_u32(mox_neon_byte(codes, 3, less), mox_neon_byte(codes, 2, less), 16);
        }
    }
    MOX_KERNEL_UNROLL
    for (int i = 0; i < 4 && decode == MOX_NEON_PAIRS; i++)
        out[i] = vreinterpretq_u32_u8(vld1q_u8(at + 64 * (4 * q + i)));
}

#endif
