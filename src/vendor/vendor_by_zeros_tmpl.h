/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor_by_zeros_tmpl.h - template: 4-bit codes counted from the zero point of their group, for Marlin with FP8
 * activations (vendor_codes_marlin.c), and back. In vectors where bytes can be looked up, else sixteen codes in a word.
 *
 *     code n, zero point z      n >= z:  n - z         0 .. 15 - z
 *                               n <  z:  15 - n   16 - z .. 15
 *
 * vendor_codes_marlin.c and vendor_by_zeros_avx2.c include it; the bytes are the same.
 */
#ifndef MOX_VENDOR_BY_ZEROS_TMPL_H
#define MOX_VENDOR_BY_ZEROS_TMPL_H

#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "base/sizes.h"
#include "vendor/vendor.h"

#define MOX_BY_ZEROS_INLINE static inline __attribute__((always_inline))

/* Converts a row of `count` codes by context->zeros. `back`: from the codes of the target. */
void mox_by_zeros_avx2(bool back, const mox_vendor_context *context, const uint8_t *in, int64_t count, uint8_t *out);

/* ---- words of sixteen nibbles, the zero point in each nibble -------------------------------------------- */

#define TOPS UINT64_C(0x8888888888888888)

/* `choice` in the nibbles whose top bit is set in `tops`, `x` in the others. */
MOX_BY_ZEROS_INLINE uint64_t choose(uint64_t tops, uint64_t choice, uint64_t x)
{
    const uint64_t whole = (tops << 1) - (tops >> 3);
    return x ^ ((x ^ choice) & whole);
}

MOX_BY_ZEROS_INLINE uint64_t above_zero(uint64_t x, uint64_t zero)
{
    const uint64_t same = ~(x ^ zero), more = ((x | TOPS) - (zero & ~TOPS)) ^ (same & TOPS);
    return choose(((~x & zero) | (same & more)) & TOPS, ~x, more); /* where the difference borrows: n < z */
}

MOX_BY_ZEROS_INLINE uint64_t from_above_zero(uint64_t x, uint64_t zero)
{
    const uint64_t sum = ((x & ~TOPS) + (zero & ~TOPS)) ^ ((x ^ zero) & TOPS);
    return choose(((x & zero) | ((x | zero) & ~sum)) & TOPS, ~x, sum); /* where the sum carries */
}

MOX_BY_ZEROS_INLINE uint64_t word_by_zero(bool back, uint64_t x, uint64_t zero, uint64_t flip)
{
    return back ? from_above_zero(x, zero) ^ flip : above_zero(x ^ flip, zero);
}

/* ---- vectors: both nibbles of a byte by a table of sixteen ------------------------------------------ */

#ifdef __AVX2__
enum { VECTOR = 32 };

/* Look-up table: the new code of each code, in low nibbles. */
MOX_BY_ZEROS_INLINE __m256i table_by_zero(bool back, uint8_t zero, uint8_t flip)
{
    const __m128i numbers = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m128i fifteen = _mm_set1_epi8(15), z = _mm_set1_epi8((char)zero), t = _mm_set1_epi8((char)(flip & 15));
    __m128i to;
    if (back) {
        const __m128i sum = _mm_add_epi8(numbers, z);
        to = _mm_blendv_epi8(sum, _mm_sub_epi8(fifteen, numbers), _mm_cmpgt_epi8(sum, fifteen));
        to = _mm_xor_si128(to, t);
    } else {
        const __m128i code = _mm_xor_si128(numbers, t);
        to = _mm_blendv_epi8(_mm_sub_epi8(code, z), _mm_sub_epi8(fifteen, code), _mm_cmpgt_epi8(z, code));
    }
    return _mm256_broadcastsi128_si256(to);
}

MOX_BY_ZEROS_INLINE int64_t vectors_by_zero(bool back, const uint8_t *in, int64_t bytes, uint8_t zero, uint8_t flip,
                                            uint8_t *out)
{
    const __m256i low = table_by_zero(back, zero, flip), high = _mm256_slli_epi16(low, 4);
    const __m256i nibble = _mm256_set1_epi8(15);
    int64_t i = 0;
    for (; i + VECTOR <= bytes; i += VECTOR) {
        const __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)(in + i));
        const __m256i a = _mm256_shuffle_epi8(low, _mm256_and_si256(x, nibble));
        const __m256i b = _mm256_shuffle_epi8(high, _mm256_and_si256(_mm256_srli_epi16(x, 4), nibble));
        _mm256_storeu_si256((__m256i *)(void *)(out + i), _mm256_or_si256(a, b));
    }
    return i;
}
#else
MOX_BY_ZEROS_INLINE int64_t vectors_by_zero(bool back, const uint8_t *in, int64_t bytes, uint8_t zero, uint8_t flip,
                                            uint8_t *out)
{
    (void)back, (void)in, (void)bytes, (void)zero, (void)flip, (void)out;
    return 0;
}
#endif

/* ---- a row ---------------------------------------------------------------------------------------- */

/* Converts codes that share one zero point. A zero point of 16 is rejected by another part; here it acts like 0. */
MOX_BY_ZEROS_INLINE void by_zero(bool back, const uint8_t *restrict in, int64_t bytes, uint8_t zero, uint8_t flip,
                                 uint8_t *restrict out)
{
    const uint64_t nibbles = UINT64_C(0x1111111111111111), zeros = zero * nibbles, flips = (flip & 15) * nibbles;
    uint64_t x = 0;
    int64_t i = vectors_by_zero(back, in, bytes, zero, flip, out);
    for (; i + 8 <= bytes; i += 8) {
        memcpy(&x, in + i, 8);
        x = word_by_zero(back, x, zeros, flips);
        memcpy(out + i, &x, 8);
    }
    if (i < bytes) {
        memcpy(&x, in + i, (size_t)(bytes - i));
        x = word_by_zero(back, x, zeros, flips);
        memcpy(out + i, &x, (size_t)(bytes - i));
    }
}

MOX_BY_ZEROS_INLINE void by_zeros(bool back, const mox_vendor_context *context, const uint8_t *in, int64_t count,
                                  uint8_t *out)
{
    const uint8_t flip = context->code->of == MOXIE_I4 ? 0x88 : 0; /* flips signed codes to unsigned ones */
    const int add = (int)context->zero_add;
    const int64_t bytes = (count + 1) / 2, group = context->group / 2;
    for (int64_t begin = 0, g = 0; begin < bytes; begin += group, g++) {
        const int zero = (((context->zeros[g / 2] ^ flip) >> g % 2 * 4) + add) & 15;
        by_zero(back, in + begin, mox_min_i64(group, bytes - begin), (uint8_t)zero, flip, out + begin);
    }
}

#endif
