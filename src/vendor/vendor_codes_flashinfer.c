/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor_codes_flashinfer.c - block scales for FlashInfer's CUTLASS kernels.
 *
 *     f32_at_least    f32 or bf16 to f32, clamped to at least 1e-10; a part of its own stores the original scales
 *
 * Source: the smallest block scale that vLLM passes to the kernel.
 */
#include "vendor/vendor_parts.h"

/* FlashInfer's CUTLASS kernel for sm90 makes NaN of a block whose scale is smaller; vLLM clamps scales for that
 * reason. */
#define MIN_SCALE 1e-10f

static void clamp_f32(const mox_vendor_context *context, const uint8_t *in, int64_t count, uint8_t *out)
{
    (void)context;
    for (int64_t i = 0; i < count; i++) {
        float value;
        memcpy(&value, in + 4 * i, sizeof value);
        value = value < MIN_SCALE ? MIN_SCALE : value;
        memcpy(out + 4 * i, &value, sizeof value);
    }
}

static const char *reject_negative_f32(const mox_vendor_context *context, const uint8_t *in, int64_t count)
{
    (void)context;
    for (int64_t i = 0; i < count; i++) {
        float value;
        memcpy(&value, in + 4 * i, sizeof value);
        if (value < 0)
            return "a scale is negative, and the target needs scales of at least 1e-10: clamping would change weights";
    }
    return NULL;
}

static void clamp_bf16(const mox_vendor_context *context, const uint8_t *in, int64_t count, uint8_t *out)
{
    for (int64_t i = 0; i < count; i++) {
        const uint8_t wide[4] = { 0, 0, in[2 * i], in[2 * i + 1] };
        clamp_f32(context, wide, 1, out + 4 * i);
    }
}

static const char *reject_negative_bf16(const mox_vendor_context *context, const uint8_t *in, int64_t count)
{
    const char *why = NULL;
    for (int64_t i = 0; i < count && why == NULL; i++) {
        const uint8_t wide[4] = { 0, 0, in[2 * i], in[2 * i + 1] };
        why = reject_negative_f32(context, wide, 1);
    }
    return why;
}

static const mox_vendor_code bf16_at_least = { .name = "bf16 to f32, at least 1e-10",
                                               .of = MOXIE_BF16,
                                               .in_bits = 16,
                                               .out_bits = 32,
                                               .forward = clamp_bf16,
                                               .reject = reject_negative_bf16 };
const mox_vendor_code mox_code_f32_at_least = { .name = "f32, at least 1e-10",
                                                .of = MOXIE_F32,
                                                .in_bits = 32,
                                                .out_bits = 32,
                                                .forward = clamp_f32,
                                                .reject = reject_negative_f32,
                                                .fallback = &bf16_at_least };
