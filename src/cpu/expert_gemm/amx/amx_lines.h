/* SPDX-License-Identifier: Apache-2.0
 *
 * amx_lines.h - codes of a step to the 16 pair lines of a B tile, scales folded in, for row amx_bf16.
 *
 *     codes -> mox_pairs_quarter() -> four lines of bf16 -> scale -> the ring or the kept lines -> tile
 *
 * Scales that leave codes exact in bf16 are folded: E8M0 by adding to exponents, E4M3 (of f4_e2m1) by an exact product
 * in f16 (amx_job.h); row amx_folded folds those of 4-bit integers, too, by one that is rounded. bf16 weights are lines
 * already, and tiles load them from the record.
 *
 * VPERMW is two operations here and VPSRLW shares a port with one of them, VPMULHUW does not: see docs/kernels-cpu.md
 * for the count.
 */
#ifndef MOX_CPU_AMX_LINES_H
#define MOX_CPU_AMX_LINES_H

#include <immintrin.h>

#include "cpu/expert_gemm/amx/amx_job.h"

enum { MOX_AMX_AHEAD = 16 };

/* 16 codes of scales, one in both halves of each lane: in their lower bytes, or the upper ones. */
MOX_KERNEL_INLINE __m512i mox_amx_twice(const uint8_t *code, bool upper)
{
    const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i words = _mm512_or_si512(lane, _mm512_slli_epi32(lane, 16));
    const __m512i none = _mm512_set1_epi16(upper ? 0x0080 : (short)0x8000);
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)code)),
                               _mm512_or_si512(upper ? _mm512_slli_epi16(words, 8) : words, none));
}

/* Codes of 4 bits come from a table of 2^TOP times their value, and what that is too much is subtracted from the
 * exponent: with saturation, so that zero, a plain 0 in the table, stays zero. Other codes add (exponent - 127). */
MOX_KERNEL_INLINE __m512i mox_amx_exponents(moxie_dtype like, const uint8_t *code)
{
    const __m512i field = _mm512_slli_epi16(mox_amx_twice(code, false), 7);
    if (mox_pairs_order(like) == MOX_PANEL_NIBBLES)
        return _mm512_sub_epi16(_mm512_set1_epi16((127 + MOX_AMX_TOP) << 7), field);
    return _mm512_sub_epi16(field, _mm512_set1_epi16(127 << 7));
}

/* Powers of two on the exponents of what is not zero, and of f8 not infinite or NaN. */
MOX_KERNEL_INLINE __m512i mox_amx_fold_e8m0(moxie_dtype like, __m512i pairs, __m512i exponent)
{
    if (mox_pairs_order(like) == MOX_PANEL_NIBBLES)
        return _mm512_subs_epu16(pairs, exponent);
    __mmask32 numbers = _mm512_test_epi16_mask(pairs, _mm512_set1_epi16(0x7fff));
    if (mox_pairs_order(like) == MOX_PANEL_ZIPPED)
        numbers =
            _mm512_mask_cmplt_epu16_mask(numbers, _mm512_add_epi16(pairs, pairs), _mm512_set1_epi16((short)0xff00));
    return _mm512_mask_add_epi16(pairs, numbers, pairs, exponent);
}

/* The fields of E4M3 in those of f16, 2^-8 of the value; subnormals are subnormal. */
MOX_KERNEL_INLINE __m512i mox_amx_half_scales(const uint8_t *code)
{
    return _mm512_and_si512(_mm512_srai_epi16(mox_amx_twice(code, true), 1), _mm512_set1_epi16((short)0xbfff));
}

/* The 16 scales of a group, f16, one in both halves of each lane. */
MOX_KERNEL_INLINE __m512i mox_amx_halves_twice(const uint8_t *scales)
{
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_load_si256((const __m256i *)(const void *)scales));
    return _mm512_or_si512(wide, _mm512_slli_epi32(wide, 16));
}

/* f16 to bf16 at 2^-112 of the value: moved down 3 bits, so that its exponent ends bf16's. */
MOX_KERNEL_INLINE __m512i mox_amx_from_half(__m512i half)
{
    return _mm512_and_si512(_mm512_srai_epi16(half, 3), _mm512_set1_epi16((short)0x8fff));
}

/* Four lines of 4-bit codes times f16. `round`: the bits that are cut off hold something; a half goes up. VPERMB sees
 * the low 6 bits of a byte, so codes need no mask. */
MOX_KERNEL_INLINE void mox_amx_halved_quarter(bool round, __m512i halves, const uint8_t *codes, __m512i scale,
                                              __m512i pairs[4])
{
    const __m512i words = _mm512_loadu_si512(codes);
    const __m512i upper = _mm512_set1_epi16((short)0xff00);
    const __m512i even = _mm512_permutexvar_epi8(words, halves);
    const __m512i odd = _mm512_permutexvar_epi8(_mm512_srli_epi16(words, 4), halves);
    const __m512i code[4] = { _mm512_slli_epi16(even, 8), _mm512_slli_epi16(odd, 8), _mm512_and_si512(even, upper),
                              _mm512_and_si512(odd, upper) };
    for (int i = 0; i < 4; i++) {
        __m512i product = _mm512_castph_si512(_mm512_mul_ph(_mm512_castsi512_ph(code[i]), _mm512_castsi512_ph(scale)));
        if (round)
            product = _mm512_add_epi16(product, _mm512_set1_epi16(4));
        pairs[i] = mox_amx_from_half(product);
    }
}

/* Shuffles bytes 2 pair and 2 pair + 1 of each lane to the upper bytes of its words. */
MOX_KERNEL_INLINE __m512i mox_amx_upper_bytes(int pair)
{
    const int first = 0x01800080 + pair * 0x02000200;
    return _mm512_broadcast_i32x4(
        _mm_add_epi32(_mm_set1_epi32(first), _mm_set_epi32(0x0c000c00, 0x08000800, 0x04000400, 0)));
}

/* Four lines of 8-bit integers at 2^-104 of the value: 2^8 times it is a word, then f16. */
MOX_KERNEL_INLINE void mox_amx_bytes_quarter(moxie_dtype like, const uint8_t *codes, __m512i pairs[4])
{
    for (int i = 0; i < 2; i++) {
        __m512i bytes = _mm512_loadu_si512(codes + 64 * i);
        if (mox_element_sign_bits(like) == 0)
            bytes = _mm512_xor_si512(bytes, _mm512_set1_epi8((char)0x80));
        for (int pair = 0; pair < 2; pair++) {
            const __m512i words = _mm512_shuffle_epi8(bytes, mox_amx_upper_bytes(pair));
            pairs[2 * i + pair] = mox_amx_from_half(_mm512_castph_si512(_mm512_cvtepi16_ph(words)));
        }
    }
}

/* s / group_steps, for up to 2^20 steps: a division would cost as much as a tile product. */
MOX_KERNEL_INLINE int64_t mox_amx_group_of(const mox_amx_job *j, int64_t s)
{
    return (int64_t)((uint64_t)s * j->group_inverse >> 40);
}

MOX_KERNEL_INLINE __m512i mox_amx_zeros_of(mox_amx_form f, const mox_amx_job *j, const mox_amx_stream *from, int64_t s)
{
    return f.zeros ? mox_pairs_zeros(f.like, from->zero + mox_amx_group_of(j, s) * MOX_PANEL_ROWS)
                   : mox_pairs_no_zeros(f.like);
}

/* What folds into quarter q of step s. */
MOX_KERNEL_INLINE __m512i mox_amx_folded_scale(mox_amx_form f, const mox_amx_job *j, const mox_amx_stream *from,
                                               int64_t s, int q)
{
    if (mox_amx_is_drained(f.fold))
        return _mm512_setzero_si512();
    if (f.fold == MOX_AMX_FOLD_E4M3)
        return mox_amx_half_scales(from->folded + (2 * s + q / 2) * MOX_PANEL_ROWS);
    if (f.fold == MOX_AMX_FOLD_INTS)
        return mox_amx_halves_twice(from->folded + mox_amx_group_of(j, s) * 2 * MOX_PANEL_ROWS);
    return mox_amx_exponents(f.like, from->folded + mox_amx_group_of(j, s) * MOX_PANEL_ROWS);
}

/* What the quarters of one step of a panel have in common. */
typedef struct mox_amx_feed {
    const uint8_t *codes;
    uint8_t *to;
    __m512i zero, scale;
} mox_amx_feed;

MOX_KERNEL_INLINE mox_amx_feed mox_amx_feed_of(mox_amx_form f, const mox_amx_job *j, const mox_amx_stream *from,
                                               int64_t s)
{
    return (mox_amx_feed) { .codes = from->codes + s * j->step_bytes,
                            .to = from->lines + (s & j->lines_mask) * MOX_AMX_LINES,
                            .zero = mox_amx_zeros_of(f, j, from, s),
                            .scale = mox_amx_folded_scale(f, j, from, s, 0) };
}

/* Quarter q, its scale folded, to its lines. */
MOX_KERNEL_INLINE void mox_amx_decode_quarter(mox_amx_form f, const mox_amx_job *j, const mox_amx_feed *feed, int q)
{
    __m512i pairs[4];
    if (mox_amx_is_half(f.fold))
        mox_amx_halved_quarter(f.fold == MOX_AMX_FOLD_INTS, j->halves, feed->codes + q * 64, feed->scale, pairs);
    else if (f.fold == MOX_AMX_DRAINED_HALF)
        mox_amx_bytes_quarter(f.like, feed->codes + q * 128, pairs);
    else
        mox_pairs_quarter(f.like, f.zeros, &j->tables, feed->codes, q, feed->zero, pairs);
    for (int i = 0; i < 4; i++) {
        if (f.fold == MOX_AMX_FOLD_E8M0)
            pairs[i] = mox_amx_fold_e8m0(f.like, pairs[i], feed->scale);
        _mm512_store_si512(feed->to + (4 * q + i) * 64, pairs[i]);
    }
}

/* True when the record holds lines as they are. */
MOX_KERNEL_INLINE bool mox_amx_is_direct(mox_amx_form f)
{
    return mox_pairs_order(f.like) == MOX_PANEL_PAIRS;
}

/* Lines of step s of panel p. */
MOX_KERNEL_INLINE void mox_amx_decode_lines(mox_amx_form f, const mox_amx_job *j, int p, int64_t s)
{
    if (mox_amx_is_direct(f) || s >= j->steps)
        return;
    mox_amx_feed feed = mox_amx_feed_of(f, j, &j->panel[p], s);
    for (int q = 0; q < 4; q++) {
        if (f.fold == MOX_AMX_FOLD_E4M3 && q == 2)
            feed.scale = mox_amx_folded_scale(f, j, &j->panel[p], s, q);
        mox_amx_decode_quarter(f, j, &feed, q);
    }
}

/* Brings in codes AHEAD steps on, past the panel's end those of the pair that follows, and that pair's scales. */
MOX_KERNEL_INLINE void mox_amx_prefetch(mox_amx_form f, const mox_amx_job *j, int p, int64_t s)
{
    const mox_amx_stream *from = &j->panel[p];
    const int64_t bytes = mox_pairs_order(f.like) == MOX_PANEL_NIBBLES ? 256 : j->step_bytes;
    const uint8_t *at = (s + MOX_AMX_AHEAD < j->steps ? from->codes : from->next) + (s + MOX_AMX_AHEAD) * bytes;
    for (int64_t i = 0; i < bytes; i += 64)
        _mm_prefetch((const char *)at + i, _MM_HINT_T0);
    if (s < j->scale_lines)
        _mm_prefetch((const char *)from->next_scales + 64 * s, _MM_HINT_T0);
}

MOX_KERNEL_INLINE void mox_amx_decode_step(mox_amx_form f, const mox_amx_job *j, int p, int64_t s)
{
    mox_amx_prefetch(f, j, p, s);
    mox_amx_decode_lines(f, j, p, s);
}

MOX_KERNEL_INLINE const uint8_t *mox_amx_lines_of(const mox_amx_job *j, int p, int64_t s)
{
    return j->panel[p].lines + (s & j->lines_mask) * MOX_AMX_LINES;
}

#endif
