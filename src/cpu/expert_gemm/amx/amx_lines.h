/* SPDX-License-Identifier: Apache-2.0
 *
 * amx_lines.h - decodes the codes of a step to the 16 pair lines of a B tile, for kernel amx_bf16.
 *
 *     codes of a step, in quarters -> four lines of bf16 -> times the scale, if it is exact -> ring or predecoded lines
 *
 * Scales that leave codes exact in bf16 are applied here. E8M0 scales are added to exponents. E4M3 scales of f4_e2m1
 * are multiplied in f16, which is exact (amx_job.h). Weights of bf16 are lines already: tiles load them from the
 * record.
 *
 * The instructions are chosen by port: VPERMW is two operations on this unit, and VPSRLW shares a port with one of
 * them, while VPMULHUW does not. docs/kernels-cpu.md has the count.
 */
#ifndef MOX_CPU_AMX_LINES_H
#define MOX_CPU_AMX_LINES_H

#include <immintrin.h>

#include "cpu/expert_gemm/amx/amx_job.h"

enum { MOX_AMX_PREFETCH_STEPS = 16 };

/* 16 bytes, each in both 16-bit halves of its lane: in the halves' upper bytes, or else in the lower ones. */
MOX_KERNEL_INLINE __m512i mox_amx_both_halves(const uint8_t *code, bool upper)
{
    const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i words = _mm512_or_si512(lane, _mm512_slli_epi32(lane, 16));
    const __m512i none = _mm512_set1_epi16(upper ? 0x0080 : (short)0x8000);
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)code)),
                               _mm512_or_si512(upper ? _mm512_slli_epi16(words, 8) : words, none));
}

/* The exponents to apply, for E8M0 scales, in the exponent field of bf16. Codes of 4 bits come from a table of
 * 2^TABLE_EXPONENT times their value, so for them it is the excess to subtract: with saturation, which keeps zero at
 * zero. Other codes add (exponent - 127). */
MOX_KERNEL_INLINE __m512i mox_amx_exponents(moxie_dtype decode_class, const uint8_t *code)
{
    const __m512i field = _mm512_slli_epi16(mox_amx_both_halves(code, false), 7);
    if (mox_pairs_order(decode_class) == MOX_PANEL_NIBBLES)
        return _mm512_sub_epi16(_mm512_set1_epi16((127 + MOX_AMX_TABLE_EXPONENT) << 7), field);
    return _mm512_sub_epi16(field, _mm512_set1_epi16(127 << 7));
}

/* Pairs times powers of two. Zeros stay, and so do infinities and NaN of f8. */
MOX_KERNEL_INLINE __m512i mox_amx_times_powers(moxie_dtype decode_class, __m512i pairs, __m512i exponent)
{
    if (mox_pairs_order(decode_class) == MOX_PANEL_NIBBLES)
        return _mm512_subs_epu16(pairs, exponent);
    __mmask32 numbers = _mm512_test_epi16_mask(pairs, _mm512_set1_epi16(0x7fff));
    if (mox_pairs_order(decode_class) == MOX_PANEL_ZIPPED)
        numbers =
            _mm512_mask_cmplt_epu16_mask(numbers, _mm512_add_epi16(pairs, pairs), _mm512_set1_epi16((short)0xff00));
    return _mm512_mask_add_epi16(pairs, numbers, pairs, exponent);
}

/* 16 E4M3 scales with their fields moved to those of f16, which is 2^-8 of the value. Subnormals stay subnormal. */
MOX_KERNEL_INLINE __m512i mox_amx_e4m3_as_f16(const uint8_t *code)
{
    return _mm512_and_si512(_mm512_srai_epi16(mox_amx_both_halves(code, true), 1), _mm512_set1_epi16((short)0xbfff));
}

/* f16 to bf16 of 2^-112 of the value: all bits but the sign move down 3, where bf16's exponent ends. */
MOX_KERNEL_INLINE __m512i mox_amx_bf16_of_f16(__m512i half)
{
    return _mm512_and_si512(_mm512_srai_epi16(half, 3), _mm512_set1_epi16((short)0x8fff));
}

/* Four lines of 4-bit codes times scales of f16. VPERMB sees the low 6 bits of a byte, so codes need no mask. */
MOX_KERNEL_INLINE void mox_amx_decode_quarter_f16(__m512i f16_codes, const uint8_t *codes, __m512i scale,
                                                  __m512i pairs[4])
{
    const __m512i words = _mm512_loadu_si512(codes);
    const __m512i upper = _mm512_set1_epi16((short)0xff00);
    const __m512i even = _mm512_permutexvar_epi8(words, f16_codes);
    const __m512i odd = _mm512_permutexvar_epi8(_mm512_srli_epi16(words, 4), f16_codes);
    const __m512i code[4] = { _mm512_slli_epi16(even, 8), _mm512_slli_epi16(odd, 8), _mm512_and_si512(even, upper),
                              _mm512_and_si512(odd, upper) };
    for (int i = 0; i < 4; i++) {
        const __m512h product = _mm512_mul_ph(_mm512_castsi512_ph(code[i]), _mm512_castsi512_ph(scale));
        pairs[i] = mox_amx_bf16_of_f16(_mm512_castph_si512(product));
    }
}

/* A shuffle that moves bytes 2 * pair and 2 * pair + 1 of each lane to the upper bytes of the lane's words. */
MOX_KERNEL_INLINE __m512i mox_amx_upper_bytes(int pair)
{
    const int first = 0x01800080 + pair * 0x02000200;
    return _mm512_broadcast_i32x4(
        _mm_add_epi32(_mm_set1_epi32(first), _mm_set_epi32(0x0c000c00, 0x08000800, 0x04000400, 0)));
}

/* Four lines of 8-bit integers, at 2^-104 of their value. As the upper byte of a word an integer is 2^8 times its
 * value, which is converted to f16. */
MOX_KERNEL_INLINE void mox_amx_decode_quarter_i8(moxie_dtype decode_class, const uint8_t *codes, __m512i pairs[4])
{
    for (int i = 0; i < 2; i++) {
        __m512i bytes = _mm512_loadu_si512(codes + 64 * i);
        if (mox_element_sign_bits(decode_class) == 0)
            bytes = _mm512_xor_si512(bytes, _mm512_set1_epi8((char)0x80));
        for (int pair = 0; pair < 2; pair++) {
            const __m512i words = _mm512_shuffle_epi8(bytes, mox_amx_upper_bytes(pair));
            pairs[2 * i + pair] = mox_amx_bf16_of_f16(_mm512_castph_si512(_mm512_cvtepi16_ph(words)));
        }
    }
}

/* s / group_steps, for up to 2^20 steps. A division would take as long as a tile product. */
MOX_KERNEL_INLINE int64_t mox_amx_group_of(const mox_amx_job *j, int64_t s)
{
    return (int64_t)((uint64_t)s * j->group_inverse >> 40);
}

MOX_KERNEL_INLINE __m512i mox_amx_zeros_of(mox_amx_variant v, const mox_amx_job *j, const mox_amx_stream *from,
                                           int64_t s)
{
    return v.zeros ? mox_pairs_zeros(v.decode_class, from->zero + mox_amx_group_of(j, s) * MOX_PANEL_ROWS)
                   : mox_pairs_no_zeros(v.decode_class);
}

/* What mox_amx_decode_quarter() applies to quarter q of step s. */
MOX_KERNEL_INLINE __m512i mox_amx_scale_for_quarter(mox_amx_variant v, const mox_amx_job *j, const mox_amx_stream *from,
                                                    int64_t s, int q)
{
    if (mox_amx_is_per_segment(v.scaling))
        return _mm512_setzero_si512();
    if (v.scaling == MOX_AMX_E4M3_IN_WEIGHT)
        return mox_amx_e4m3_as_f16(from->scale_codes + (2 * s + q / 2) * MOX_PANEL_ROWS);
    return mox_amx_exponents(v.decode_class, from->scale_codes + mox_amx_group_of(j, s) * MOX_PANEL_ROWS);
}

/* What the four quarters of one step of a panel share. */
typedef struct mox_amx_decode_state {
    const uint8_t *codes;
    uint8_t *to;
    __m512i zero, scale;
} mox_amx_decode_state;

MOX_KERNEL_INLINE mox_amx_decode_state mox_amx_decode_state_of(mox_amx_variant v, const mox_amx_job *j,
                                                               const mox_amx_stream *from, int64_t s)
{
    return (mox_amx_decode_state) { .codes = from->codes + s * j->step_bytes,
                                    .to = from->lines + (s & j->lines_mask) * MOX_AMX_STEP_LINES_BYTES,
                                    .zero = mox_amx_zeros_of(v, j, from, s),
                                    .scale = mox_amx_scale_for_quarter(v, j, from, s, 0) };
}

/* Decodes quarter q, its scale applied, to its four lines. */
MOX_KERNEL_INLINE void mox_amx_decode_quarter(mox_amx_variant v, const mox_amx_job *j,
                                              const mox_amx_decode_state *state, int q)
{
    __m512i pairs[4];
    if (v.scaling == MOX_AMX_E4M3_IN_WEIGHT)
        mox_amx_decode_quarter_f16(j->f16_codes, state->codes + q * 64, state->scale, pairs);
    else if (v.scaling == MOX_AMX_SCALE_PER_SEGMENT_F16)
        mox_amx_decode_quarter_i8(v.decode_class, state->codes + q * 128, pairs);
    else
        mox_pairs_quarter(v.decode_class, v.zeros, &j->tables, state->codes, q, state->zero, pairs);
    for (int i = 0; i < 4; i++) {
        if (v.scaling == MOX_AMX_E8M0_IN_WEIGHT)
            pairs[i] = mox_amx_times_powers(v.decode_class, pairs[i], state->scale);
        _mm512_store_si512(state->to + (4 * q + i) * 64, pairs[i]);
    }
}

/* True when the record itself holds lines. */
MOX_KERNEL_INLINE bool mox_amx_is_direct(mox_amx_variant v)
{
    return mox_pairs_order(v.decode_class) == MOX_PANEL_PAIRS;
}

/* Decodes step s of panel p to its lines. */
MOX_KERNEL_INLINE void mox_amx_decode_lines(mox_amx_variant v, const mox_amx_job *j, int p, int64_t s)
{
    if (mox_amx_is_direct(v) || s >= j->steps)
        return;
    mox_amx_decode_state state = mox_amx_decode_state_of(v, j, &j->panel[p], s);
    for (int q = 0; q < 4; q++) {
        if (v.scaling == MOX_AMX_E4M3_IN_WEIGHT && q == 2)
            state.scale = mox_amx_scale_for_quarter(v, j, &j->panel[p], s, q);
        mox_amx_decode_quarter(v, j, &state, q);
    }
}

/* Prefetches codes that are PREFETCH_STEPS ahead: behind the panel's end those of the pair of panels that follows, and
 * that pair's scales. */
MOX_KERNEL_INLINE void mox_amx_prefetch(mox_amx_variant v, const mox_amx_job *j, int p, int64_t s)
{
    const mox_amx_stream *from = &j->panel[p];
    const int64_t bytes = mox_pairs_order(v.decode_class) == MOX_PANEL_NIBBLES ? 256 : j->step_bytes;
    const uint8_t *at =
        (s + MOX_AMX_PREFETCH_STEPS < j->steps ? from->codes : from->next) + (s + MOX_AMX_PREFETCH_STEPS) * bytes;
    for (int64_t i = 0; i < bytes; i += 64)
        _mm_prefetch((const char *)at + i, _MM_HINT_T0);
    if (s < j->scale_lines)
        _mm_prefetch((const char *)from->next_scales + 64 * s, _MM_HINT_T0);
}

MOX_KERNEL_INLINE void mox_amx_decode_step(mox_amx_variant v, const mox_amx_job *j, int p, int64_t s)
{
    mox_amx_prefetch(v, j, p, s);
    mox_amx_decode_lines(v, j, p, s);
}

MOX_KERNEL_INLINE const uint8_t *mox_amx_lines_of(const mox_amx_job *j, int p, int64_t s)
{
    return j->panel[p].lines + (s & j->lines_mask) * MOX_AMX_STEP_LINES_BYTES;
}

#endif
