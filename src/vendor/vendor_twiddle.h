/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor_twiddle.h - eight e2m1 codes in a word, with their bits spread ("twiddled") so that a kernel makes bf16 of
 * them with masks and shifts of whole words.
 *
 *     word of four bytes x0 x1 x2 x3, x0 lowest; low nibbles go to bits 0 .. 15, high nibbles to bits 16 .. 31:
 *
 *                 15   14   13   12   11   10    9    8    7    6    5    4    3    2    1    0
 *                 s0   s3   m3   s1  e3.1 e3.0  s2  e0.1 e0.0  m0  e1.1 e1.0  m1  e2.1 e2.0  m2
 *
 *     s sign, e.1 e.0 exponent, m mantissa bit of slots 0 .. 3. Under the mask 0x81c081c0 the word, and the word
 *     shifted left by 3 and by 6, are slots 0, 1 and 2 as pairs of bf16 of value * 2^-126. Slot 3 is made from the
 *     remaining bits.
 *
 * In the flow: orders call it that put four bytes side by side (Triton's Hopper values, FlashInfer's sm90 "fp4").
 * Sources: triton_kernels' hopper_value.py and FlashInfer's moe_gemm_mixed_utils.cu, which agree bit for bit.
 */
#ifndef MOX_VENDOR_TWIDDLE_H
#define MOX_VENDOR_TWIDDLE_H

#include "pack/transpose.h"

/* Plain word operations without branches, so that compilers vectorize loops over them. */
static inline uint32_t mox_twiddle4(uint32_t word)
{
    /* Nibbles l0 h0 l1 h1 l2 h2 l3 h3, low first, to l0 l2 l1 l3 h0 h2 h1 h3: one delta swap, of h0 h1 with l2 l3. */
    const uint32_t t = (word ^ word >> 12) & 0x0000f0f0u;
    word ^= t ^ t << 12;
    return (word & 0x00080008u) << 12 | (word & 0x00070007u) << 6 | (word & 0x00800080u) << 2 |
           (word & 0x18001800u) << 1 | (word & 0x80008000u) >> 1 | (word & 0x60006000u) >> 3 |
           (word & 0x00700070u) >> 4 | (word & 0x07000700u) >> 5;
}

static inline uint32_t mox_untwiddle4(uint32_t word)
{
    word = (word >> 12 & 0x00080008u) | (word >> 6 & 0x00070007u) | (word >> 2 & 0x00800080u) |
           (word >> 1 & 0x18001800u) | (word << 1 & 0x80008000u) | (word << 3 & 0x60006000u) |
           (word << 4 & 0x00700070u) | (word << 5 & 0x07000700u);
    const uint32_t t = (word ^ word >> 12) & 0x0000f0f0u;
    return word ^ t ^ t << 12;
}

/* ---- the four bytes that are side by side, from two rows ------------------------------------------- */

/* 32 bytes of two rows, or the 64 bytes that they become. */
typedef union mox_twiddle_block {
    mox_words v[4];
    uint32_t words[16];
} mox_twiddle_block;

/* Transposes 4 x 4 bytes in every lane: bytes t of the words of four vectors become the words of vector t. */
MOX_PACK_INLINE void mox_transpose_bytes(mox_words v[4])
{
    const mox_words even = { 0x00ff00ff, 0x00ff00ff, 0x00ff00ff, 0x00ff00ff };
    const mox_words low = { 0xffff, 0xffff, 0xffff, 0xffff };
    const mox_words a = (v[0] & even) | (v[1] & even) << 8, b = (v[0] >> 8 & even) | (v[1] & ~even);
    const mox_words c = (v[2] & even) | (v[3] & even) << 8, d = (v[2] >> 8 & even) | (v[3] & ~even);
    v[0] = (a & low) | c << 16;
    v[1] = (b & low) | d << 16;
    v[2] = a >> 16 | (c & ~low);
    v[3] = b >> 16 | (d & ~low);
}

/* Interleaves two rows: word 4 * t + i of the result is bytes a[8i + t], b[8i + t], a[8i + 4 + t], b[8i + 4 + t]. */
MOX_PACK_INLINE void mox_interleave_rows(const uint8_t *a, const uint8_t *b, mox_twiddle_block *out)
{
    const mox_words a0 = mox_load_v4u32(a), a1 = mox_load_v4u32(a + 16);
    const mox_words b0 = mox_load_v4u32(b), b1 = mox_load_v4u32(b + 16);
    out->v[0] = MOX_PICK_WORDS(a0, a1, 0, 2, 4, 6);
    out->v[1] = MOX_PICK_WORDS(b0, b1, 0, 2, 4, 6);
    out->v[2] = MOX_PICK_WORDS(a0, a1, 1, 3, 5, 7);
    out->v[3] = MOX_PICK_WORDS(b0, b1, 1, 3, 5, 7);
    mox_transpose_bytes(out->v);
}

MOX_PACK_INLINE void mox_deinterleave_rows(mox_twiddle_block *in, uint8_t *a, uint8_t *b)
{
    mox_transpose_bytes(in->v);
    mox_store_v4u32(a, MOX_PICK_WORDS(in->v[0], in->v[2], 0, 4, 1, 5));
    mox_store_v4u32(a + 16, MOX_PICK_WORDS(in->v[0], in->v[2], 2, 6, 3, 7));
    mox_store_v4u32(b, MOX_PICK_WORDS(in->v[1], in->v[3], 0, 4, 1, 5));
    mox_store_v4u32(b + 16, MOX_PICK_WORDS(in->v[1], in->v[3], 2, 6, 3, 7));
}

#endif
