/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor_codes_marlin.c - integer codes and zero points as Marlin and moe_wna16 read them.
 *
 *     u4b8_to_s4m       n >= 8 ? n - 8 : 15 - n: sign and magnitude, less one when negative. For int4 weights with FP8
 *                       activations: the kernel turns such codes into e4m3 subnormals
 *     u4_to_s4m_of      the same for AWQ's codes, which count from the zero point z of their group:
 *                       n >= z ? n - z : 15 - n. Codes below z map to 16 - z or more, the others to less: so z tells
 *                       them apart, for the kernel and for undo
 *     zeros_plus        the stored zero point plus what the checkpoint's reader adds: GPTQ v1 stores one less
 *     zeros_symmetric   unchanged; rejected unless it is the middle of the codes, since the target has no zero points
 *
 * Sources: vLLM's marlin_int4_fp8_preprocess, awq_marlin and moe_wna16.
 */
#include "base/cpu_features.h"
#include "vendor/vendor_by_zeros_tmpl.h"
#include "vendor/vendor_parts.h"

/* ---- INT4 under FP8 activations ------------------------------------------------------------------- */

/* In every nibble whose top bit, xor `flip`, is one: flips the low three bits. Then flips all top bits. */
static inline uint64_t flip_word(uint64_t x, uint64_t flip)
{
    const uint64_t tops = 0x8888888888888888u, one = (x ^ flip) >> 3 & (tops >> 3);
    return x ^ tops ^ (one | one << 1 | one << 2);
}

/* Works on words of 8 bytes; the baseline has no vector products of bytes. */
static void flip_magnitudes(const uint8_t *in, int64_t bytes, uint64_t flip, uint8_t *out)
{
    const int64_t whole = bytes / 8 * 8;
    uint64_t x = 0;
    for (int64_t i = 0; i < whole; i += 8) {
        memcpy(&x, in + i, 8);
        x = flip_word(x, flip);
        memcpy(out + i, &x, 8);
    }
    memcpy(&x, in + whole, (size_t)(bytes - whole));
    x = flip_word(x, flip);
    memcpy(out + whole, &x, (size_t)(bytes - whole));
}

static void to_s4m(const mox_vendor_context *context, const uint8_t *in, int64_t count, uint8_t *out)
{
    (void)context;
    flip_magnitudes(in, (count + 1) / 2, ~UINT64_C(0), out);
}

static void from_s4m(const mox_vendor_context *context, const uint8_t *in, int64_t count, uint8_t *out)
{
    (void)context;
    flip_magnitudes(in, (count + 1) / 2, 0, out);
}

const mox_vendor_code mox_code_u4b8_to_s4m = {
    .name = "u4b8 to s4m", .of = MOXIE_U4B8, .in_bits = 4, .out_bits = 4, .forward = to_s4m, .backward = from_s4m
};

/* ---- INT4 with zero points under FP8 activations -------------------------------------------------- */

static void count_codes(bool back, const mox_vendor_context *context, const uint8_t *in, int64_t count, uint8_t *out)
{
    if (mox_cpu()->allowed >= MOX_ISA_AVX2)
        mox_by_zeros_avx2(back, context, in, count, out);
    else
        by_zeros(back, context, in, count, out);
}

static void to_s4m_of(const mox_vendor_context *context, const uint8_t *in, int64_t count, uint8_t *out)
{
    count_codes(false, context, in, count, out);
}

static void from_s4m_of(const mox_vendor_context *context, const uint8_t *in, int64_t count, uint8_t *out)
{
    count_codes(true, context, in, count, out);
}

#define S4M_OF(dtype)                                                                                                  \
    .name = "u4 to s4m by zero points", .of = (dtype), .in_bits = 4, .out_bits = 4, .forward = to_s4m_of,              \
    .backward = from_s4m_of

static const mox_vendor_code i4_to_s4m_of = { S4M_OF(MOXIE_I4) };
const mox_vendor_code mox_code_u4_to_s4m_of = { S4M_OF(MOXIE_U4B8), .fallback = &i4_to_s4m_of };

/* ---- zero points ---------------------------------------------------------------------------------- */

/* Signed codes differ from unsigned ones in the top bit. */
static uint8_t sign_flip(const mox_vendor_context *context)
{
    return context->code->of == MOXIE_I4 ? 0x88 : 0;
}

static void nibbles_plus(const mox_vendor_context *context, const uint8_t *in, int64_t count, uint8_t *out)
{
    const int add = (int)context->zero_add;
    const uint8_t flip = sign_flip(context);
    for (int64_t i = 0; i < (count + 1) / 2; i++) {
        const int from = in[i] ^ flip;
        out[i] = (uint8_t)(((from + add) & 0x0f) | ((from + 16 * add) & 0xf0));
    }
}

static void nibbles_minus(const mox_vendor_context *context, const uint8_t *in, int64_t count, uint8_t *out)
{
    const int add = (int)context->zero_add;
    const uint8_t flip = sign_flip(context);
    for (int64_t i = 0; i < (count + 1) / 2; i++)
        out[i] = (uint8_t)(((in[i] - add) & 0x0f) | ((in[i] - 16 * add) & 0xf0)) ^ flip;
}

static void bytes_plus(const mox_vendor_context *context, const uint8_t *in, int64_t count, uint8_t *out)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = (uint8_t)(in[i] + (int)context->zero_add);
}

static void bytes_minus(const mox_vendor_context *context, const uint8_t *in, int64_t count, uint8_t *out)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = (uint8_t)(in[i] - (int)context->zero_add);
}

/* Element i as an unsigned code. */
static int zero_at(const mox_vendor_context *context, const uint8_t *in, int64_t i)
{
    return context->code->in_bits == 8 ? in[i] : (in[i / 2] ^ sign_flip(context)) >> i % 2 * 4 & 15;
}

static const char *reject_sums(const mox_vendor_context *context, const uint8_t *in, int64_t count)
{
    const int max = context->code->in_bits == 8 ? 255 : 15;
    if (context->zero_add == 0)
        return NULL;
    if (context->zero_add != 1)
        return "the checkpoint's reader adds something other than 0 or 1 to zero points";
    for (int64_t i = 0; i < count; i++)
        if (zero_at(context, in, i) == max)
            return "a zero point is stored as the largest code and its reader adds one, which the target's zero points "
                   "cannot hold";
    return NULL;
}

static const char *reject_asymmetric(const mox_vendor_context *context, const uint8_t *in, int64_t count)
{
    const float middle = context->code->in_bits == 8 ? 128 : 8;
    for (int64_t i = 0; i < count; i++)
        if ((float)zero_at(context, in, i) + context->zero_add != middle)
            return "a zero point is not in the middle of the codes, and the target has no zero points";
    return NULL;
}

static void copy_bits(const mox_vendor_context *context, const uint8_t *in, int64_t count, uint8_t *out)
{
    memcpy(out, in, (size_t)((count * context->code->in_bits + 7) / 8));
}

#define ZEROS(bits, make, unmake, check)                                                                               \
    .in_bits = (bits), .out_bits = (bits), .forward = (make), .backward = (unmake), .reject = (check)

static const mox_vendor_code bytes_zeros_plus = { .name = "zeros plus",
                                                  .of = MOXIE_U8B128,
                                                  ZEROS(8, bytes_plus, bytes_minus, reject_sums) };
static const mox_vendor_code signed_zeros_plus = { .name = "zeros plus",
                                                   .of = MOXIE_I4,
                                                   ZEROS(4, nibbles_plus, nibbles_minus, reject_sums),
                                                   .fallback = &bytes_zeros_plus };
const mox_vendor_code mox_code_zeros_plus = { .name = "zeros plus",
                                              .of = MOXIE_U4B8,
                                              ZEROS(4, nibbles_plus, nibbles_minus, reject_sums),
                                              .fallback = &signed_zeros_plus };

static const mox_vendor_code bytes_zeros_symmetric = { .name = "zeros symmetric",
                                                       .of = MOXIE_U8B128,
                                                       ZEROS(8, copy_bits, copy_bits, reject_asymmetric) };
static const mox_vendor_code signed_zeros_symmetric = { .name = "zeros symmetric",
                                                        .of = MOXIE_I4,
                                                        ZEROS(4, copy_bits, copy_bits, reject_asymmetric),
                                                        .fallback = &bytes_zeros_symmetric };
const mox_vendor_code mox_code_zeros_symmetric = { .name = "zeros symmetric",
                                                   .of = MOXIE_U4B8,
                                                   ZEROS(4, copy_bits, copy_bits, reject_asymmetric),
                                                   .fallback = &signed_zeros_symmetric };
