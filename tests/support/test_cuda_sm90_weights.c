/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_sm90_weights.c - decodes records for the tensor cores, a function for each form (test_cuda_sm90_weights.h).
 */
#include "test_cuda_sm90_weights.h"

#include <math.h>
#include <string.h>

#include "quant/quant.h"
#include "test_support.h"

/* A weight of layout hopper, in row `in` of a tile of `rows`. */
static double weight(const gemm_problem *p, const uint8_t *base, int64_t rows, int64_t in, int64_t k)
{
    const mox_sm90_args *a = p->a;
    const int64_t chunk = k / p->per, at = k % p->per * p->size;
    const double w =
        (double)mox_load(p->element, base + chunk * rows * 128 + in * 128 + (at / 16 ^ in % 8) * 16 + at % 16);
    return a->scale_bytes == 0
               ? w
               : w * (double)mox_load(MOXIE_F32, base + a->chunks * rows * 128 + (chunk * rows / 8 + in / 8) * 4);
}

static double bf16(uint32_t bits)
{
    const uint16_t code = (uint16_t)bits;
    return (double)mox_load(MOXIE_BF16, &code);
}

static uint32_t turned(uint32_t word, int32_t turn)
{
    return (uint32_t)(((uint64_t)word << 32 | word) << turn >> 32);
}

/* A code of 8 bits of layout hopper_codes as a bf16, as the arguments have it. */
static double code_of_byte(const gemm_problem *p, const uint8_t *base, int64_t rows, int64_t in, int64_t k)
{
    const mox_sm90_w8_format *format = &p->a->w8;
    const int64_t lane = in % 8 * 4 + k % 8 / 2, number = k % 64 / 16 * 2 + k % 16 / 8;
    uint32_t word, code = 0;
    memcpy(&word, base + k / 64 * rows * 64 + in / 16 * 1024 + number / 4 * 512 + lane * 16 + number % 4 * 4, 4);
    for (int i = 0; i < 2; i++)
        code |= turned(word, format->rotate[i]) & format->second_mask[i];
    code = (in % 16 / 8 == 0 ? word & format->first_mask : code) >> 16 * (k % 2) & 0xffff;
    return bf16(code) + bf16(format->zero_point & 0xffff);
}

/* A weight of 8 bits with a scale for each block. */
static double scaled_byte(const gemm_problem *p, const uint8_t *base, int64_t rows, int64_t in, int64_t k)
{
    const mox_sm90_args *a = p->a;
    const uint8_t *scales = base + a->chunks * rows * 64 + (k / 64 >> a->scale_shift) * rows * 4;
    const int64_t at = (in / 16 * 8 + in % 8) * 2 + in % 16 / 8;
    assert_int_equal(a->scale_bytes, 128 * 4);
    return code_of_byte(p, base, rows, in, k) * bf16(a->w8.unit & 0xffff) *
           (double)mox_load(MOXIE_F32, scales + 4 * at);
}

/* Another weight of 8 bits. */
static double decoded_byte(const gemm_problem *p, const uint8_t *base, int64_t rows, int64_t in, int64_t k)
{
    const mox_sm90_args *a = p->a;
    const int64_t size = a->w8.high_word ? 2 : 1, at = ((in / 16 * 8 + in % 8) * 2 + in % 16 / 8) * 2 + k % 64 / 32;
    const uint8_t *scales = base + a->chunks * rows * 64 + (k / 64 >> a->scale_shift) * rows * 2 * size;
    assert_int_equal(a->scale_bytes, 256 * size);
    return code_of_byte(p, base, rows, in, k) *
           (size == 2 ? (double)mox_load(MOXIE_BF16, scales + 2 * at) : bf16((uint32_t)scales[at] << 7));
}

/* Of 6 bits. */
static double decoded_six(const gemm_problem *p, const uint8_t *base, int64_t rows, int64_t in, int64_t k)
{
    const mox_sm90_args *a = p->a;
    const int64_t lane = in % 8 * 4 + k % 8 / 2, i = in % 16 / 8 + k % 16 / 8 * 2, j = k % 64 / 16;
    const uint8_t *warp = base + k / 64 * rows * 48 + in / 16 * 768;
    const uint8_t *scales = base + a->chunks * rows * 48 + k / 64 * rows * 2;
    uint32_t four, two;
    assert_true(a->scale_bytes == 256 && a->scale_shift == 0);
    memcpy(&four, warp + lane * 16 + j * 4, 4);
    memcpy(&two, warp + 512 + lane * 8 + j / 2 * 4, 4);
    const uint32_t code =
        (turned(four, 4 * (int32_t)i) & a->w6.mask4) | (turned(two, a->w6.rotate[j % 2][i]) & a->w6.mask2);
    return bf16(code >> 16 * (k % 2) & 0xffff) *
           bf16((uint32_t)scales[((in / 16 * 8 + in % 8) * 2 + in % 16 / 8) * 2 + k % 64 / 32] << 7);
}

/* A weight of layout hopper_fp8, less its row's factor: the e4m3 that a byte permutation finds; of integers times the
 * scale of its sums. */
static double decoded_fp8(const gemm_problem *p, const uint8_t *base, int64_t rows, int64_t in, int64_t k)
{
    static const double magnitudes[] = { 0, 0.5, 1, 1.5, 2, 3, 4, 6 };
    const mox_sm90_args *a = p->a;
    const int64_t lane = in % 8 * 4 + k % 16 / 4, number = k % 64 / 32 * 2 + in % 16 / 8, i = k % 4;
    const bool high = k % 32 >= 16;
    const uint8_t *scales = base + a->chunks * rows * 64 + k / 128 * rows * 4;
    uint32_t word;
    memcpy(&word, base + k / 128 * rows * 64 + in / 16 * 1024 + k % 128 / 64 * 512 + lane * 16 + number * 4, 4);
    const uint32_t magnitude = word >> (4 * i + (high ? 16 : 0)) & 7, sign = word >> (8 * i + (high ? 3 : 7)) & 1;
    const int64_t at = (in / 16 * 8 + in % 8) * 2 + in % 16 / 8;
    if (p->kind == MOX_SM90_INT4_FP8) {
        const double scale = (double)mox_load(MOXIE_BF16, base + a->chunks * rows * 64 +
                                                              (k / 128 >> a->scale_shift) * rows * 2 + at * 2);
        assert_int_equal(a->scale_bytes, 256);
        return (sign == 0 ? magnitude : magnitude == 0 ? -8.0 : -(double)magnitude) / 4 * scale;
    }
    const int scale = scales[at * 4 + k % 128 / 32];
    assert_true(a->scale_bytes == 512 && a->scale_shift == 0 && (scale < 12 || magnitude == 0));
    return ldexp(sign ? -magnitudes[magnitude] : magnitudes[magnitude], scale - 5);
}

/* An integer whose sums are multiplied by its scale: the number less its zero point, times the scale. */
static double decoded_int(const gemm_problem *p, const uint8_t *base, int64_t rows, int64_t in, int64_t k)
{
    const mox_sm90_args *a = p->a;
    const bool bytes = p->kind == MOX_SM90_INT8_BLOCKS, f16 = a->ints.scale_shift != 0;
    const int64_t lane = in % 8 * 4 + k % 8 / 2, i = in % 16 / 8 + k % 16 / 8 * 2, j = k % 64 / 16;
    const int64_t groups = p->kind == MOX_SM90_INT4_BLOCKS_LONG ? 1 : 2, bits = bytes ? 8 : 4;
    const int64_t number = (j * 4 + i) * bits / 16, pair = in / 16 * 8 + in % 8;
    const uint8_t *chunk = base + k / 64 * rows * 8 * bits;
    const uint8_t *scales = base + a->chunks * rows * 8 * bits + (k / 64 >> a->scale_shift) * rows * groups * 4;
    const uint8_t *at = scales + ((pair * 2 + in % 16 / 8) * groups + k % 64 / (64 / groups)) * 4;
    uint32_t word;
    uint16_t zero;
    assert_int_equal(a->scale_bytes, 128 * groups * 4);
    memcpy(&word, chunk + in / 16 * 128 * bits + number / 4 * 512 + lane * 16 + number % 4 * 4, 4);
    memcpy(&zero, at + 2, 2);
    const double code = word >> (i * bits % 16 + k % 2 * 16) & ((1u << bits) - 1);
    const double from = bytes ? zero : ldexp(-(double)mox_load(MOXIE_F16, &zero), 17);
    const double scale = (double)mox_load(f16 ? MOXIE_F16 : MOXIE_BF16, at);
    return (code - from) * (f16 && !bytes ? ldexp(scale, -17) : scale);
}

/* A weight of a block type. */
static double decoded_block(const gemm_problem *p, const uint8_t *base, int64_t rows, int64_t in, int64_t k)
{
    static const double levels[16] = { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 };
    const mox_sm90_args *a = p->a;
    const bool six = p->kind == MOX_SM90_GGUF6, five = p->kind == MOX_SM90_GGUF5;
    const int64_t lane = in % 8 * 4 + k % 8 / 2, i = in % 16 / 8 + k % 16 / 8 * 2, j = k % 64 / 16,
                  bits = six    ? 6
                         : five ? 5
                                : 4;
    const int64_t row_bytes = a->block.row_bytes, run = k % 64 / (six ? 16 : 32);
    const uint8_t *warp = base + k / 64 * rows * 8 * bits + in / 16 * 128 * bits;
    const uint8_t *scales = base + a->chunks * rows * 8 * bits + k / 256 * rows * row_bytes +
                            ((in / 16 * 8 + in % 8) * 2 + in % 16 / 8) * row_bytes;
    const uint8_t *integers = scales + 4 + (k % 256 / 64 << a->block.chunk_shift);
    uint32_t four, two;
    assert_true(a->scale_bytes == 128 * row_bytes && a->scale_shift == 2);
    memcpy(&four, warp + lane * 16 + j * 4, 4);
    const double scale = (double)mox_load(MOXIE_F16, scales) * (int8_t)integers[run];
    if (six) {
        memcpy(&two, warp + 512 + lane * 8 + j / 2 * 4, 4);
        const uint32_t high = turned(four, 4 * (int32_t)i) >> (4 + 16 * (k % 2)) & 15,
                       low = turned(two, 2 * (int32_t)i + 8 * (j % 2)) >> (2 + 16 * (k % 2)) & 3;
        return scale * ((double)(high << 2 | low) - 32);
    }
    if (p->kind == MOX_SM90_GGUF4_LEVELS)
        return scale * levels[four >> (4 * (i % 2 + 2 * (k % 2)) + 16 * (i / 2)) & 15];
    assert_true(a->block.minimum_unit < 0);
    uint32_t code = four >> (4 * i + 16 * (k % 2)) & 15;
    if (five) {
        memcpy(&two, warp + 512 + lane * 4, 4);
        code = (turned(four, 4 * (int32_t)i) >> (4 + 16 * (k % 2)) & 15) << 1 |
               (turned(two, (int32_t)(i + 4 * j)) >> (3 + 16 * (k % 2)) & 1);
    }
    return scale * code - (double)mox_load(MOXIE_F16, scales + 2) * integers[2 + run];
}

/* The same of layout hopper_codes, less its row's factor: what the code is as a bf16, times its multiplier. */
static double decoded_weight(const gemm_problem *p, const uint8_t *base, int64_t rows, int64_t in, int64_t k)
{
    static const int turns[4] = { 0, 4, 10, 14 };
    const mox_sm90_args *a = p->a;
    const int64_t thread = in % 64 / 16 * 32 + in % 8 * 4 + k % 8 / 2, i = in % 16 / 8 + k % 16 / 8 * 2;
    const bool nvfp4 = p->kind == MOX_SM90_NVFP4, floats = nvfp4 || p->kind == MOX_SM90_MXFP4;
    const bool f16 = p->element == MOXIE_F16,
               whole = p->kind == MOX_SM90_INT4_LONG || p->kind == MOX_SM90_INT4_F16_LONG;
    const int64_t size = floats ? 1 : f16 ? 4 : 2, groups = whole ? 1 : nvfp4 ? 4 : 2;
    const uint8_t *scales = base + a->chunks * rows * 32 + (k / 64 >> a->scale_shift) * rows * groups * size;
    const int64_t at = ((in / 16 * 8 + in % 8) * 2 + in % 16 / 8) * groups + k % 64 / (64 / groups);
    uint32_t word, placed;
    if (MOX_SM90_TO_FP8(p->kind))
        return decoded_fp8(p, base, rows, in, k);
    if (p->kind == MOX_SM90_MXFP6)
        return decoded_six(p, base, rows, in, k);
    if (p->kind == MOX_SM90_W8)
        return decoded_byte(p, base, rows, in, k);
    if (p->kind == MOX_SM90_W8_BLOCKS || p->kind == MOX_SM90_W8_BLOCKS_QACT)
        return scaled_byte(p, base, rows, in, k);
    if (p->kind == MOX_SM90_INT8_BLOCKS || p->kind == MOX_SM90_INT4_BLOCKS_SHORT ||
        p->kind == MOX_SM90_INT4_BLOCKS_LONG)
        return decoded_int(p, base, rows, in, k);
    if (p->kind >= MOX_SM90_GGUF4 && p->kind <= MOX_SM90_GGUF6)
        return decoded_block(p, base, rows, in, k);
    memcpy(&word, base + k / 64 * rows * 32 + in / 64 * 2048 + thread * 16 + k % 64 / 16 * 4, 4);
    const uint32_t code = word >> (4 * i + 16 * (k % 2)) & 15;
    if (f16)
        return (ldexp(code, -17) + (double)mox_load(MOXIE_F16, scales + at * 4 + 2)) *
               (double)mox_load(MOXIE_F16, scales + at * 4);
    if (!floats)
        return (bf16(code << 4) - ldexp(8, -129)) * (double)mox_load(MOXIE_BF16, scales + at * 2);
    placed = turned(word, turns[i]);
    if (i == 3)
        placed = (placed & ~UINT32_C(0x00400040)) | (turned(word, 6) & 0x00400040);
    return bf16(placed >> (16 * (k % 2)) & 0x81c0) *
           (nvfp4 ? ldexp(bf16((uint32_t)scales[at] << 4), 238) : bf16((uint32_t)scales[at] << 7));
}

double test_cuda_sm90_weight(const gemm_problem *p, const uint8_t *base, int64_t rows, int64_t in, int64_t k)
{
    return (MOX_SM90_DECODES(p->kind) ? decoded_weight : weight)(p, base, rows, in, k);
}
