/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor_humming.c - MXFP4 for FP8 activations on Hopper (FlashInfer's "Humming"). Each E8M0 scale is split: an offset
 * of 4 bits goes into the exponent of the FP8 code, the rest is one f32 per projection of an expert.
 *
 *     highest, lowest    scales of the projection as bytes (exponents)
 *     low                highest - min(highest - lowest, 11)
 *     offset             max(scale, low) - low + 1             what the tensor of scales holds: 1 .. 12
 *     residual           2^(low - 127) / 2
 *     codes              minus zero becomes zero
 *
 * A scale below `low` would be raised to it, and its codes rounded. Such an expert is rejected, unless all weights of
 * the group are zero. For undo the scales are stored too, and a bit per code that says whether it was minus zero.
 * Source: FlashInfer's preprocess_moe_weights_for_sm90_mixed_gemm_humming (its result).
 */
#include <math.h>
#include <stdio.h>

#include "pack/grid_move.h"
#include "vendor/vendor_internal.h"
#include "vendor/vendor_parts.h"

enum { RANGE = 11, GROUP = 32, NAN_SCALE = 255 };

/* ---- codes ---------------------------------------------------------------------------------------- */

/* Sets bit 0 of every nibble whose magnitude is not zero. */
static inline uint32_t with_magnitude(uint32_t codes)
{
    return (codes | codes >> 1 | codes >> 2) & 0x11111111u;
}

static void drop_minus_zeros(const mox_vendor_context *context, const uint8_t *in, int64_t count, uint8_t *out)
{
    (void)context;
    for (int64_t i = 0; i < count / 2; i++)
        out[i] = (uint8_t)(in[i] & (0x77u | with_magnitude(in[i]) << 3));
}

static void same_codes(const mox_vendor_context *context, const uint8_t *in, int64_t count, uint8_t *out)
{
    (void)context;
    memcpy(out, in, (size_t)(count / 2));
}

const mox_vendor_code mox_code_fp4_no_minus_zero = { .name = "fp4 without minus zero",
                                                     .of = MOXIE_F4_E2M1,
                                                     .in_bits = 4,
                                                     .out_bits = 4,
                                                     .forward = drop_minus_zeros,
                                                     .backward = same_codes };

/* Compresses bit 0 of eight nibbles to eight bits; and back. */
static inline uint32_t squeeze(uint32_t x)
{
    x = (x | x >> 3) & 0x03030303u;
    x = (x | x >> 6) & 0x000f000fu;
    return (x | x >> 12) & 0xffu;
}

static inline uint32_t stretch(uint32_t x)
{
    x = (x | x << 12) & 0x000f000fu;
    x = (x | x << 6) & 0x03030303u;
    return (x | x << 3) & 0x11111111u;
}

static void find_minus_zeros(const mox_vendor_context *context, const uint8_t *in, int64_t count, uint8_t *out)
{
    (void)context;
    for (int64_t i = 0; i < count / 8; i++) {
        uint32_t codes;
        memcpy(&codes, in + 4 * i, sizeof codes);
        out[i] = (uint8_t)squeeze(codes >> 3 & 0x11111111u & ~with_magnitude(codes));
    }
}

static void put_minus_zeros(const mox_vendor_context *context, const uint8_t *in, int64_t count, uint8_t *out)
{
    (void)context;
    for (int64_t i = 0; i < count / 8; i++) {
        uint32_t codes;
        memcpy(&codes, out + 4 * i, sizeof codes);
        codes |= stretch(in[i]) << 3;
        memcpy(out + 4 * i, &codes, sizeof codes);
    }
}

const mox_vendor_code mox_code_fp4_minus_zeros = { .name = "where fp4 is minus zero",
                                                   .of = MOXIE_F4_E2M1,
                                                   .in_bits = 4,
                                                   .out_bits = 1,
                                                   .forward = find_minus_zeros,
                                                   .backward = put_minus_zeros };

/* ---- scales --------------------------------------------------------------------------------------- */

static int exponent_of(float scale)
{
    return ilogbf(scale) + 127;
}

/* The lowest scale that an offset expresses exactly, as an exponent byte. Lower scales get the same offset. */
static int low_of(const mox_vendor_facts *own, int which)
{
    const int max = exponent_of(own->scale_max[which]), min = exponent_of(own->scale_min[which]);
    return max - (max - min < RANGE ? max - min : RANGE);
}

static void offsets(const mox_vendor_context *context, const uint8_t *in, int64_t count, uint8_t *out)
{
    const int low = low_of(context->own, context->projection);
    for (int64_t i = 0; i < count; i++)
        out[i] = (uint8_t)(((in[i] > low ? in[i] : low) - low + 1) & 15);
}

static const char *reject_nan(const mox_vendor_context *context, const uint8_t *in, int64_t count)
{
    (void)context;
    return memchr(in, NAN_SCALE, (size_t)count) != NULL
               ? "a scale is NaN, which the target's 4-bit offsets cannot express"
               : NULL;
}

const mox_vendor_code mox_code_e8m0_offset = { .name = "e8m0 to offsets",
                                               .of = MOXIE_F8_E8M0,
                                               .in_bits = 8,
                                               .out_bits = 8,
                                               .forward = offsets,
                                               .reject = reject_nan };

static float residual_of(const moxie_expert *expert, int which)
{
    mox_vendor_facts own = { .a13_max = 0 };
    moxie_expert projection = { .a13_scale = 0 };
    if (which == MOX_VENDOR_W13) {
        projection.gate = expert->gate;
        projection.up = expert->up;
    } else {
        projection.down = expert->down;
    }
    mox_vendor_measure(&projection, &own);
    return ldexpf(0.5f, low_of(&own, which) - 127);
}

float mox_value_residual13(const mox_vendor_plan *plan, const moxie_expert *expert)
{
    (void)plan;
    return residual_of(expert, MOX_VENDOR_W13);
}

float mox_value_residual2(const mox_vendor_plan *plan, const moxie_expert *expert)
{
    (void)plan;
    return residual_of(expert, MOX_VENDOR_W2);
}

/* ---- experts that cannot be represented --------------------------------------------------------------- */

static bool is_zero_group(const moxie_grid *codes, int64_t row, int64_t group)
{
    for (int64_t k = group * GROUP; k < codes->cols && k < (group + 1) * GROUP; k++)
        if (mox_grid_code(codes, row, k) & 7)
            return false;
    return true;
}

static bool holds_matrix(const moxie_matrix *matrix, const mox_vendor_facts *own, int which, char *reason, size_t size)
{
    if (matrix->codes.data == NULL || own->scale_max[which] == 0)
        return true;
    const int low = low_of(own, which), min = exponent_of(own->scale_min[which]);
    for (int64_t r = 0; min < low && r < matrix->scale.rows; r++)
        for (int64_t g = 0; g < matrix->scale.cols; g++)
            if ((int)mox_grid_code(&matrix->scale, r, g) < low && !is_zero_group(&matrix->codes, r, g)) {
                snprintf(
                    reason, size,
                    "scales of one projection span 2^%d to 2^%d; beyond a factor of 2^%d the target rounds weights",
                    min - 127, exponent_of(own->scale_max[which]) - 127, RANGE);
                return false;
            }
    return true;
}

bool mox_holds_offsets(const mox_vendor_plan *plan, const moxie_expert *expert, char *reason, size_t size)
{
    mox_vendor_facts own = { .a13_max = 0 };
    mox_vendor_measure(expert, &own);
    return mox_holds_swiglu(plan, expert, reason, size) &&
           holds_matrix(&expert->gate, &own, MOX_VENDOR_W13, reason, size) &&
           holds_matrix(&expert->up, &own, MOX_VENDOR_W13, reason, size) &&
           holds_matrix(&expert->down, &own, MOX_VENDOR_W2, reason, size);
}
