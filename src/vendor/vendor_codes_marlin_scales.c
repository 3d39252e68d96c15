/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor_codes_marlin_scales.c - scales as Marlin reads them. The kernel widens codes by moving their bits into a
 * 16-bit float without correcting the bias of the exponent; the scales make up for it, exactly.
 *
 *     times_512         scales of int4 codes that become e4m3 subnormals (FP8 activations)
 *     int8_scales       round(s / max * 4096) as int16, rounded in the 16-bit type first; undo reads the originals
 *     fp8_bf16, _f16    f32 or 16-bit scales rounded to bf16 or f16, then times 2^120 or 2^8; originals are stored too
 *     fp8_plain_bf16    the same without the factor, for FP8 activations
 *     e8m0_plus_6       2^6 more: FP4 codes become e4m3 ones (FP8 activations)
 *     s0e5m3_bf16, _f16 a scale that is not negative, times f * 2^7, as the upper byte of an f16 without its sign.
 *                       f16: f = 1. bf16: the power of two that brings the layer's largest scale to 224 < s <= 448
 *
 *         e4m3     0 eeee mmm      e > 0      byte = code + 8 * (15 + log2 f)
 *         s0e5m3     EEEEE mmm     e = 0      m * 2^-9 is a normal number there; 8 values
 *
 *     small_scales      where s0e5m3 has zero for a scale above zero: the e4m3 code, below 8. For undo
 *
 * The bf16 kernel reads bytes without their top bit as nearly zero. vLLM makes them zero for both kernels: scales with
 * f * s * 2^7 < 2, which are e4m3 subnormals.
 *
 * Sources: vLLM's marlin_utils, marlin_utils_fp8 and marlin_utils_fp4; the factor f from its pull request 37502.
 */
#include <float.h>
#include <math.h>

#include "base/sizes.h"
#include "vendor/vendor_parts.h"

enum { RUN = 256 };

/* ---- 16-bit scales times a factor ------------------------------------------------------------------- */

static void round_run(moxie_dtype dtype, float *run, int64_t n)
{
    uint16_t halves[RUN];
    mox_narrow(dtype, run, halves, n);
    mox_widen(dtype, halves, run, n);
}

/* Loads a run of scales, rounded to the dtype of the target, whose tensors have that dtype before they are
 * multiplied. */
static void load_run(const mox_vendor_code *c, const uint8_t *in, int64_t n, float *run)
{
    mox_widen(c->of, in, run, n);
    if (c->of != c->to)
        round_run(c->to, run, n);
}

/* True when every scale is zero, or normal before and after: then the factor is an addition to the exponent field. */
static bool only_exponents(const mox_vendor_code *c, const uint8_t *in, int64_t count)
{
    if (c->of != c->to || c->of == MOXIE_F32)
        return false;
    const int mantissa = c->of == MOXIE_F16 ? 10 : 7, max_exponent = c->of == MOXIE_F16 ? 31 : 255;
    const uint16_t past = (uint16_t)((max_exponent - ilogbf(c->factor)) << mantissa);
    uint16_t max = 0, min = UINT16_MAX; /* min: the smallest that is not zero, less one */
    for (int64_t i = 0; i < count; i++) {
        uint16_t code;
        memcpy(&code, in + 2 * i, sizeof code);
        const uint16_t magnitude = code & 0x7fff, less = (uint16_t)(magnitude - 1);
        max = magnitude > max ? magnitude : max;
        min = less < min ? less : min;
    }
    return max < past && min >= (1 << mantissa) - 1;
}

static void add_exponents(const mox_vendor_code *c, const uint8_t *in, int64_t count, uint8_t *out)
{
    const uint16_t add = (uint16_t)(ilogbf(c->factor) << (c->of == MOXIE_F16 ? 10 : 7));
    for (int64_t i = 0; i < count; i++) {
        uint16_t code;
        memcpy(&code, in + 2 * i, sizeof code);
        code = (uint16_t)(code + ((code & 0x7fff) != 0 ? add : 0));
        memcpy(out + 2 * i, &code, sizeof code);
    }
}

static void scale_floats(const mox_vendor_context *context, const uint8_t *in, int64_t count, uint8_t *out)
{
    const mox_vendor_code *c = context->code;
    float run[RUN];
    if (only_exponents(c, in, count)) {
        add_exponents(c, in, count, out);
        return;
    }
    for (int64_t i = 0; i < count; i += RUN) {
        const int64_t n = mox_min_i64(RUN, count - i);
        load_run(c, in + i * mox_dtype_bytes(c->of), n, run);
        for (int64_t j = 0; j < n; j++)
            run[j] *= c->factor;
        mox_narrow(c->to, run, out + 2 * i, n);
    }
}

/* Exact: the factor is a power of two, and its products are finite and not subnormal. */
static void unscale_floats(const mox_vendor_context *context, const uint8_t *in, int64_t count, uint8_t *out)
{
    const mox_vendor_code *c = context->code;
    float run[RUN];
    for (int64_t i = 0; i < count; i += RUN) {
        const int64_t n = mox_min_i64(RUN, count - i);
        mox_widen(c->to, in + 2 * i, run, n);
        for (int64_t j = 0; j < n; j++)
            run[j] /= c->factor;
        mox_narrow(c->of, run, out + 2 * i, n);
    }
}

static const char *reject_floats(const mox_vendor_context *context, const uint8_t *in, int64_t count)
{
    const mox_vendor_code *c = context->code;
    float value[RUN], run[RUN];
    bool large = false, small = false;
    if (only_exponents(c, in, count))
        return NULL;
    for (int64_t i = 0; i < count; i += RUN) {
        const int64_t n = mox_min_i64(RUN, count - i);
        mox_widen(c->of, in + i * mox_dtype_bytes(c->of), value, n);
        load_run(c, in + i * mox_dtype_bytes(c->of), n, run);
        for (int64_t j = 0; j < n; j++) {
            small |= run[j] == 0 && value[j] != 0;
            run[j] *= c->factor;
        }
        round_run(c->to, run, n);
        for (int64_t j = 0; j < n; j++)
            large |= !(fabsf(run[j]) <= FLT_MAX);
    }
    return large   ? "a scale is not a number, or too large for the target's 16-bit scales and their factor"
           : small ? "a scale is too small for the target's 16-bit scales"
                   : NULL;
}

/* Scales of any of three dtypes to 16 bits, for parts whose originals are stored too. */
#define ROUNDED_FLOATS(from, size, into, by)                                                                           \
    .name = "scales of 16 bits", .of = (from), .in_bits = (size), .out_bits = 16, .forward = scale_floats,             \
    .reject = reject_floats, .to = (into), .factor = (by)

static const mox_vendor_code fp8_bf16_of_f16 = { ROUNDED_FLOATS(MOXIE_F16, 16, MOXIE_BF16, 0x1p120f) };
static const mox_vendor_code fp8_bf16_of_bf16 = { ROUNDED_FLOATS(MOXIE_BF16, 16, MOXIE_BF16, 0x1p120f),
                                                  .fallback = &fp8_bf16_of_f16 };
const mox_vendor_code mox_code_fp8_scales_bf16 = { ROUNDED_FLOATS(MOXIE_F32, 32, MOXIE_BF16, 0x1p120f),
                                                   .fallback = &fp8_bf16_of_bf16 };

static const mox_vendor_code fp8_f16_of_bf16 = { ROUNDED_FLOATS(MOXIE_BF16, 16, MOXIE_F16, 0x1p8f) };
static const mox_vendor_code fp8_f16_of_f16 = { ROUNDED_FLOATS(MOXIE_F16, 16, MOXIE_F16, 0x1p8f),
                                                .fallback = &fp8_f16_of_bf16 };
const mox_vendor_code mox_code_fp8_scales_f16 = { ROUNDED_FLOATS(MOXIE_F32, 32, MOXIE_F16, 0x1p8f),
                                                  .fallback = &fp8_f16_of_f16 };

static const mox_vendor_code fp8_plain_of_f16 = { ROUNDED_FLOATS(MOXIE_F16, 16, MOXIE_BF16, 1) };
static const mox_vendor_code fp8_plain_of_bf16 = { ROUNDED_FLOATS(MOXIE_BF16, 16, MOXIE_BF16, 1),
                                                   .fallback = &fp8_plain_of_f16 };
const mox_vendor_code mox_code_fp8_scales_plain = { ROUNDED_FLOATS(MOXIE_F32, 32, MOXIE_BF16, 1),
                                                    .fallback = &fp8_plain_of_bf16 };

#define TIMES_512(dtype)                                                                                               \
    .name = "times 512", .of = (dtype), .in_bits = 16, .out_bits = 16, .forward = scale_floats,                        \
    .backward = unscale_floats, .reject = reject_floats, .to = (dtype), .factor = 512

static const mox_vendor_code times_512_bf16 = { TIMES_512(MOXIE_BF16) };
const mox_vendor_code mox_code_times_512 = { TIMES_512(MOXIE_F16), .fallback = &times_512_bf16 };

/* ---- INT8 activations ----------------------------------------------------------------------------- */

/* Rounds x to the mantissa of the dtype. x is a normal number of it, or so small that it ends as zero. */
static inline __attribute__((always_inline)) float rounded(moxie_dtype dtype, float x)
{
    const int drop = dtype == MOXIE_F16 ? 13 : 16;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits += (1u << (drop - 1)) - 1 + (bits >> drop & 1); /* ties to even */
    bits &= ~0u << drop;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The quotient, at most 1, is rounded to the dtype of the scales, as the target does. Times 4096 it is exact in either
 * dtype. Quotients below the normal numbers of f16 become zero however they are rounded. */
static inline __attribute__((always_inline)) void int8_scales_of(moxie_dtype dtype, float max, const uint8_t *in,
                                                                 int64_t count, uint8_t *out)
{
    float run[RUN];
    for (int64_t i = 0; i < count; i += RUN) {
        const int64_t n = mox_min_i64(RUN, count - i);
        mox_widen(dtype, in + 2 * i, run, n);
        for (int64_t j = 0; j < n; j++) { /* adding 1.5 * 2^23 rounds to whole numbers, ties to even */
            const float steps = rounded(dtype, run[j] / max) * 4096;
            const int16_t scale = (int16_t)(int32_t)(steps + 0x1.8p23f - 0x1.8p23f);
            memcpy(out + 2 * (i + j), &scale, sizeof scale);
        }
    }
}

static void to_int8_scales(const mox_vendor_context *context, const uint8_t *in, int64_t count, uint8_t *out)
{
    const float max = context->facts->scale_max[context->projection];
    if (context->code->of == MOXIE_F16)
        int8_scales_of(MOXIE_F16, max, in, count, out);
    else
        int8_scales_of(MOXIE_BF16, max, in, count, out);
}

/* Codes without their sign bit are ordered like their values, with infinity and NaN last. */
static const char *reject_int8_scales(const mox_vendor_context *context, const uint8_t *in, int64_t count)
{
    const moxie_dtype dtype = context->code->of;
    const float max = context->facts->scale_max[context->projection];
    if (max == 0)
        return "no scale of the layer is above zero, or its experts were not surveyed, and the target divides by the "
               "layer's largest";
    const uint32_t finite = dtype == MOXIE_F16 ? 0x7bff : 0x7f7f;
    uint32_t limit = moxie_encode(dtype, max);
    limit = limit > finite ? finite : limit;
    if (moxie_decode(dtype, limit) > max)
        limit--;
    uint16_t found = 0;
    for (int64_t i = 0; i < count; i++) {
        uint16_t code;
        memcpy(&code, in + 2 * i, sizeof code);
        const uint16_t magnitude = code & 0x7fff;
        found = magnitude > found ? magnitude : found;
    }
    return found > limit ? "a scale is not a number, or larger than the layer's largest" : NULL;
}

#define INT8_SCALES(dtype)                                                                                             \
    .name = "int16 scales", .of = (dtype), .in_bits = 16, .out_bits = 16, .forward = to_int8_scales,                   \
    .reject = reject_int8_scales

static const mox_vendor_code int8_scales_bf16 = { INT8_SCALES(MOXIE_BF16) };
const mox_vendor_code mox_code_int8_scales = { INT8_SCALES(MOXIE_F16), .fallback = &int8_scales_bf16 };

/* ---- e8m0 ----------------------------------------------------------------------------------------- */

enum { E8M0_PLUS = 6 };

static void plus_6(const mox_vendor_context *context, const uint8_t *in, int64_t count, uint8_t *out)
{
    (void)context;
    for (int64_t i = 0; i < count; i++)
        out[i] = (uint8_t)(in[i] + E8M0_PLUS);
}

static void minus_6(const mox_vendor_context *context, const uint8_t *in, int64_t count, uint8_t *out)
{
    (void)context;
    for (int64_t i = 0; i < count; i++)
        out[i] = (uint8_t)(in[i] - E8M0_PLUS);
}

static const char *reject_above_249(const mox_vendor_context *context, const uint8_t *in, int64_t count)
{
    (void)context;
    uint8_t max = 0;
    for (int64_t i = 0; i < count; i++)
        max = in[i] > max ? in[i] : max;
    return max > 255 - E8M0_PLUS ? "a scale's exponent byte is above 249, and the target adds 6 to it" : NULL;
}

const mox_vendor_code mox_code_e8m0_plus_6 = { .name = "e8m0 plus 6",
                                               .of = MOXIE_F8_E8M0,
                                               .in_bits = 8,
                                               .out_bits = 8,
                                               .padding = E8M0_PLUS,
                                               .forward = plus_6,
                                               .backward = minus_6,
                                               .reject = reject_above_249 };

/* ---- s0e5m3 --------------------------------------------------------------------------------------- */

int mox_marlin_nvfp4_shift(float max)
{
    int shift = 0;
    for (float next = max * 2; max > 0 && next <= 448; next *= 2)
        shift++;
    return shift;
}

/* log2 of f. */
static int shift_of(const mox_vendor_context *context)
{
    return context->code->to == MOXIE_BF16 ? mox_marlin_nvfp4_shift(context->facts->scale_max[context->projection]) : 0;
}

/* The byte for m * 2^-9, m from 1 to 7; zero when it would lack the top bit. */
static uint8_t subnormal(int m, int shift)
{
    int e = 2;
    while ((m & 1 << e) == 0)
        e--;
    const int byte = (e - 9 + shift + 7 + 15) << 3 | ((m << (3 - e)) & 7);
    return (uint8_t)(byte & 0x80 ? byte : 0);
}

/* The first loop works on bytes alone, so that compilers vectorize it; rare small codes have a loop of their own. */
static void to_s0e5m3(const mox_vendor_context *context, const uint8_t *in, int64_t count, uint8_t *out)
{
    const int shift = shift_of(context);
    const uint8_t add = (uint8_t)(8 * (15 + shift));
    uint8_t min = 255;
    for (int64_t i = 0; i < count; i++) {
        out[i] = (uint8_t)(in[i] + add);
        min = in[i] < min ? in[i] : min;
    }
    for (int64_t i = 0; min < 8 && i < count; i++)
        if (in[i] < 8)
            out[i] = in[i] == 0 ? 0 : subnormal(in[i], shift);
}

static void from_s0e5m3(const mox_vendor_context *context, const uint8_t *in, int64_t count, uint8_t *out)
{
    const int shift = shift_of(context), min_normal = 8 * (16 + shift);
    const uint8_t less = (uint8_t)(8 * (15 + shift));
    uint8_t min = 255;
    for (int64_t i = 0; i < count; i++) {
        out[i] = (uint8_t)(in[i] - less);
        min = in[i] < min ? in[i] : min;
    }
    if (min >= min_normal)
        return;
    uint8_t bytes[8] = { 0 };
    for (int m = 1; m < 8; m++)
        bytes[m] = subnormal(m, shift);
    for (int64_t i = 0; i < count; i++)
        if (in[i] == 0)
            out[i] = 0; /* or a small scale, which is put back later */
        else
            for (uint8_t m = 1; in[i] < min_normal && m < 8; m++)
                out[i] = in[i] == bytes[m] ? m : out[i];
}

static const char *reject_s0e5m3(const mox_vendor_context *context, const uint8_t *in, int64_t count)
{
    const uint32_t max = context->code->to == MOXIE_BF16
                             ? moxie_encode(MOXIE_F8_E4M3, context->facts->scale_max[context->projection])
                             : 0x7e;
    uint8_t found = 0;
    for (int64_t i = 0; i < count; i++) /* no early exit, so that compilers vectorize it */
        found = in[i] > found ? in[i] : found;
    if (found > max)
        return found >= 0x80 ? "a block scale is negative, and the target's scales have no sign"
                             : "a block scale is NaN or larger than the layer's largest";
    return NULL;
}

#define S0E5M3(reader)                                                                                                 \
    .name = "s0e5m3", .of = MOXIE_F8_E4M3, .in_bits = 8, .out_bits = 8, .forward = to_s0e5m3, .backward = from_s0e5m3, \
    .reject = reject_s0e5m3, .to = (reader)

const mox_vendor_code mox_code_s0e5m3_bf16 = { S0E5M3(MOXIE_BF16) };
const mox_vendor_code mox_code_s0e5m3_f16 = { S0E5M3(MOXIE_F16) };

/* ---- scales that become zero there ------------------------------------------------------------------ */

static uint8_t small_scale(uint8_t code, int shift)
{
    return code > 0 && code < 8 && subnormal(code, shift) == 0 ? code : 0;
}

static void find_small_scales(const mox_vendor_context *context, const uint8_t *in, int64_t count, uint8_t *out)
{
    const int shift = shift_of(context);
    for (int64_t i = 0; i < (count + 1) / 2; i++) {
        const uint8_t high = 2 * i + 1 < count ? small_scale(in[2 * i + 1], shift) : 0;
        out[i] = (uint8_t)(small_scale(in[2 * i], shift) | high << 4);
    }
}

static void put_small_scales(const mox_vendor_context *context, const uint8_t *in, int64_t count, uint8_t *out)
{
    (void)context;
    for (int64_t i = 0; i < count; i++) {
        const uint8_t code = in[i / 2] >> i % 2 * 4 & 15;
        out[i] = code != 0 ? code : out[i];
    }
}

#define SMALL_SCALES(reader)                                                                                           \
    .name = "small scales", .of = MOXIE_F8_E4M3, .in_bits = 8, .out_bits = 4, .forward = find_small_scales,            \
    .backward = put_small_scales, .to = (reader)

const mox_vendor_code mox_code_small_scales_bf16 = { SMALL_SCALES(MOXIE_BF16) };
const mox_vendor_code mox_code_small_scales_f16 = { SMALL_SCALES(MOXIE_F16) };
