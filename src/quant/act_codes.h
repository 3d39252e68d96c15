/* SPDX-License-Identifier: Apache-2.0
 *
 * act_codes.h - the loops of the activation quantizers, written so that compilers vectorise them.
 *
 *     x [count]     -> amax, the largest magnitude
 *     x [cols]      -> codes [cols], scales [groups]      by the rules of act_rules.h
 *     codes [count] -> values [count], without scales
 *
 * act_codes.c, act_codes_avx2.c and act_codes_avx512.c compile these lines for their instruction sets. No operation of
 * act_rules.h is changed or fused, so all give the same bits. Thread-safe.
 */
#ifndef MOX_QUANT_ACT_CODES_H
#define MOX_QUANT_ACT_CODES_H

#include "format/format.h"
#include "quant/act_rules.h"

/* What all groups of a row have in common. */
typedef struct mox_act_groups {
    mox_act_rule rule;
    mox_act_input input; /* its amax is set per group */
    bool whole;          /* one scale for the whole tensor: groups need no amax */
    moxie_dtype element; /* one of the list in act_quant.c */
    int32_t rounding;    /* for I8 */
    int64_t cols, group; /* columns of a row, of a group */
} mox_act_groups;

typedef struct mox_act_loops {
    /* mox_act_max_abs() over x, then mox_act_finite() of the result. */
    float (*amax)(const float *x, int64_t count);
    void (*row)(const mox_act_groups *groups, const float *x, uint8_t *codes, float *scales);
    void (*values)(moxie_dtype element, const uint8_t *codes, int64_t count, float *values);
} mox_act_loops;

/* The pointers are NULL when the build has no such instructions. */
extern const mox_act_loops mox_act_loops_any, mox_act_loops_avx2, mox_act_loops_avx512;
/* The best that this processor and MOXIE_MAX_ISA allow. */
const mox_act_loops *mox_act_loops_best(void);

/* Magnitudes have the order of their bit patterns, and NaN is above infinity. So the maximum is taken of integers. */
static inline __attribute__((always_inline)) float mox_act_amax_of(const float *x, int64_t count)
{
    int32_t largest = 0;
    for (int64_t i = 0; i < count; i++) {
        const uint32_t bits = mox_f32_encode(x[i]) & 0x7fffffffu;
        const int32_t number = bits > MOX_F32_INF ? 0 : (int32_t)bits;
        largest = number > largest ? number : largest;
    }
    return mox_act_finite(mox_f32_decode((uint32_t)largest));
}

/* What numbers are multiplied or divided by: one, or one for each number. All but `by` and `limit` are constants after
 * inlining. */
typedef struct mox_act_encoding {
    bool divide, each;
    bool clamp; /* false for integers, whose encoding saturates */
    float limit;
    const float *by; /* [1], or [count] */
} mox_act_encoding;

static inline __attribute__((always_inline)) void mox_act_encode(uint32_t (*encode)(float), mox_act_encoding e,
                                                                 const float *restrict x, int64_t count,
                                                                 uint8_t *restrict codes)
{
    const float *restrict by = e.by;
    const float one = by[0];
    for (int64_t i = 0; i < count; i++) {
        const float b = e.each ? by[i] : one;
        const float scaled = e.divide ? x[i] / b : x[i] * b;
        codes[i] = (uint8_t)encode(e.clamp ? mox_act_clamp(scaled, e.limit) : scaled);
    }
}

static inline __attribute__((always_inline)) void mox_act_encode_any(uint32_t (*encode)(float), mox_act_encoding e,
                                                                     const float *x, int64_t count, uint8_t *codes)
{
    const bool divide = e.divide;
    e.divide = true;
    if (divide)
        mox_act_encode(encode, e, x, count, codes);
    e.divide = false;
    if (!divide)
        mox_act_encode(encode, e, x, count, codes);
}

/* `each` is a constant after inlining. */
static inline __attribute__((always_inline)) void mox_act_codes_of(moxie_dtype element, int32_t rounding, bool divide,
                                                                   bool each, const float *by, float limit,
                                                                   const float *x, int64_t count, uint8_t *codes)
{
    const mox_act_encoding floats = { divide, each, true, limit, by }, ints = { divide, each, false, limit, by };
    switch (element) {
    case MOXIE_F8_E4M3: mox_act_encode_any(mox_f8_e4m3_encode, floats, x, count, codes); break;
    case MOXIE_F8_E5M2: mox_act_encode_any(mox_f8_e5m2_encode, floats, x, count, codes); break;
    case MOXIE_F6_E3M2: mox_act_encode_any(mox_f6_e3m2_encode, floats, x, count, codes); break;
    case MOXIE_F6_E2M3: mox_act_encode_any(mox_f6_e2m3_encode, floats, x, count, codes); break;
    case MOXIE_F4_E2M1: mox_act_encode_any(mox_f4_e2m1_encode, floats, x, count, codes); break;
    default:
        if (rounding == MOXIE_ROUND_EVEN)
            mox_act_encode_any(mox_i8_encode, ints, x, count, codes);
        for (int64_t i = 0; rounding != MOXIE_ROUND_EVEN && i < count; i++) {
            const mox_act_step step = { .by = by[each ? i : 0], .divide = divide };
            codes[i] = mox_act_int8_code(mox_act_scaled(&step, x[i]), rounding);
        }
    }
}

/* Groups per chunk (mox_act_chunk_of), and columns of groups that are too short for a loop of their own. */
enum { MOX_ACT_CHUNK = 64, MOX_ACT_SHORT = 32 };

/* amax [count] -> scales [count], by [count]. Returns true when numbers are divided by `by`, false when multiplied. */
static inline __attribute__((always_inline)) bool mox_act_steps(mox_act_rule rule, const mox_act_input *of,
                                                                const float *restrict amax, int64_t count,
                                                                float *restrict scales, float *restrict by)
{
    bool divide = false;
    for (int64_t g = 0; g < count; g++) {
        mox_act_input input = *of;
        input.amax = amax[g];
        const mox_act_step step = mox_act_step_of(rule, &input);
        scales[g] = step.scale;
        by[g] = step.by;
        divide = step.divide;
    }
    return divide;
}

/* A chunk of groups: all maxima, then all scales, then all codes. One short group after the other would mostly wait for
 * latencies. `rule` and `element` may be constants. */
static inline __attribute__((always_inline)) void mox_act_chunk_of(const mox_act_groups *groups, mox_act_rule rule,
                                                                   moxie_dtype element, const float *x, int64_t cols,
                                                                   uint8_t *codes, float *scales)
{
    const int64_t group = groups->group, count = (cols + group - 1) / group;
    const float limit = groups->input.largest;
    float amax[MOX_ACT_CHUNK] = { 0 }, by[MOX_ACT_CHUNK], each[MOX_ACT_CHUNK * MOX_ACT_SHORT];
    for (int64_t g = 0; g < count && !groups->whole; g++)
        amax[g] = mox_act_amax_of(x + g * group, (g + 1) * group <= cols ? group : cols - g * group);
    const bool divide = mox_act_steps(rule, &groups->input, amax, count, scales, by);
    if (group <= MOX_ACT_SHORT) {
        for (int64_t g = 0; g < count; g++)
            for (int64_t i = 0; i < group; i++)
                each[g * group + i] = by[g];
        mox_act_codes_of(element, groups->rounding, divide, true, each, limit, x, cols, codes);
        return;
    }
    for (int64_t at = 0, g = 0; g < count; g++, at += group)
        mox_act_codes_of(element, groups->rounding, divide, false, &by[g], limit, x + at,
                         at + group <= cols ? group : cols - at, codes + at);
}

static inline void mox_act_row_of(const mox_act_groups *groups, const float *x, uint8_t *codes, float *scales)
{
    const int64_t chunk = groups->group * MOX_ACT_CHUNK;
    for (int64_t k = 0; k < groups->cols; k += chunk, scales += MOX_ACT_CHUNK) {
        const int64_t left = groups->cols - k, cols = left < chunk ? left : chunk;
        if (groups->rule == MOX_ACT_NVFP4_GROUP)
            mox_act_chunk_of(groups, MOX_ACT_NVFP4_GROUP, MOXIE_F4_E2M1, x + k, cols, codes + k, scales);
        else
            mox_act_chunk_of(groups, groups->rule, groups->element, x + k, cols, codes + k, scales);
    }
}

/* `decode` is a constant after inlining. */
static inline __attribute__((always_inline)) void mox_act_decode(float (*decode)(uint32_t), const uint8_t *codes,
                                                                 int64_t count, float *values)
{
    for (int64_t i = 0; i < count; i++)
        values[i] = decode(codes[i]);
}

static inline void mox_act_values_of(moxie_dtype element, const uint8_t *codes, int64_t count, float *values)
{
    switch (element) {
    case MOXIE_F8_E4M3: mox_act_decode(mox_f8_e4m3_decode, codes, count, values); break;
    case MOXIE_F8_E5M2: mox_act_decode(mox_f8_e5m2_decode, codes, count, values); break;
    case MOXIE_F6_E3M2: mox_act_decode(mox_f6_e3m2_decode, codes, count, values); break;
    case MOXIE_F6_E2M3: mox_act_decode(mox_f6_e2m3_decode, codes, count, values); break;
    case MOXIE_F4_E2M1: mox_act_decode(mox_f4_e2m1_decode, codes, count, values); break;
    default: mox_act_decode(mox_i8_decode, codes, count, values); break;
    }
}

#endif
