/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor_codes.c - conversions of elements, one by one.
 *
 *     u4b8_to_i4      code - 8 in two's complement: the top bit of every nibble flipped
 *     i4_to_u4b8      the inverse, which is the same operation
 *     bf16_to_f32     the same number, wider
 *     e8m0_pad_ones   unchanged; padding is 2^0 instead of 2^-127
 *     f32_to_e8m0     the exponent of a power of two; other numbers, and powers without a code, are rejected
 */
#include "vendor/vendor_parts.h"

static void flip_top_bits(const mox_vendor_context *context, const uint8_t *in, int64_t count, uint8_t *out)
{
    (void)context;
    for (int64_t i = 0; i < (count + 1) / 2; i++)
        out[i] = in[i] ^ 0x88;
}

const mox_vendor_code mox_code_u4b8_to_i4 = { .name = "u4b8 to i4",
                                              .of = MOXIE_U4B8,
                                              .in_bits = 4,
                                              .out_bits = 4,
                                              .forward = flip_top_bits,
                                              .backward = flip_top_bits };

const mox_vendor_code mox_code_i4_to_u4b8 = { .name = "i4 to u4b8",
                                              .of = MOXIE_I4,
                                              .in_bits = 4,
                                              .out_bits = 4,
                                              .forward = flip_top_bits,
                                              .backward = flip_top_bits };

static void widen_bf16(const mox_vendor_context *context, const uint8_t *in, int64_t count, uint8_t *out)
{
    (void)context;
    for (int64_t i = 0; i < count; i++) {
        uint16_t half;
        memcpy(&half, in + 2 * i, sizeof half);
        const uint32_t word = (uint32_t)half << 16;
        memcpy(out + 4 * i, &word, sizeof word);
    }
}

static void narrow_to_bf16(const mox_vendor_context *context, const uint8_t *in, int64_t count, uint8_t *out)
{
    (void)context;
    for (int64_t i = 0; i < count; i++)
        memcpy(out + 2 * i, in + 4 * i + 2, 2);
}

const mox_vendor_code mox_code_bf16_to_f32 = { .name = "bf16 to f32",
                                               .of = MOXIE_BF16,
                                               .in_bits = 16,
                                               .out_bits = 32,
                                               .forward = widen_bf16,
                                               .backward = narrow_to_bf16 };

static void exponents(const mox_vendor_context *context, const uint8_t *in, int64_t count, uint8_t *out)
{
    (void)context;
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, in + 4 * i, sizeof bits);
        out[i] = (uint8_t)(bits >> 23);
    }
}

static void powers(const mox_vendor_context *context, const uint8_t *in, int64_t count, uint8_t *out)
{
    (void)context;
    for (int64_t i = 0; i < count; i++) {
        const uint32_t bits = (uint32_t)in[i] << 23;
        memcpy(out + 4 * i, &bits, sizeof bits);
    }
}

/* f32 exponent fields 0 and 255 are zero and infinity; the same e8m0 codes are 2^-127 and NaN. */
static const char *reject_other_than_powers(const mox_vendor_context *context, const uint8_t *in, int64_t count)
{
    (void)context;
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, in + 4 * i, sizeof bits);
        if ((bits & 0x807fffff) != 0 || bits == 0 || bits == 0x7f800000)
            return "a scale is no power of two between 2^-126 and 2^127, and the target stores only exponents; weights "
                   "quantized with scales rounded up to powers of two would do";
    }
    return NULL;
}

const mox_vendor_code mox_code_f32_to_e8m0 = { .name = "f32 to e8m0",
                                               .of = MOXIE_F32,
                                               .in_bits = 32,
                                               .out_bits = 8,
                                               .forward = exponents,
                                               .backward = powers,
                                               .reject = reject_other_than_powers };

static void copy_bytes(const mox_vendor_context *context, const uint8_t *in, int64_t count, uint8_t *out)
{
    (void)context;
    memcpy(out, in, (size_t)count);
}

const mox_vendor_code mox_code_e8m0_pad_ones = { .name = "e8m0, padded by ones",
                                                 .of = MOXIE_F8_E8M0,
                                                 .in_bits = 8,
                                                 .out_bits = 8,
                                                 .padding = 127,
                                                 .forward = copy_bytes,
                                                 .backward = copy_bytes };
