/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor_codes_flashinfer.c - block scales for FlashInfer's CUTLASS kernels.
 *
 *     f32_at_least    f32 or bf16 to f32, raised to 1e-10: what was raised is kept in a part of its own
 *
 * Source: the smallest block scale that vLLM hands to the kernel.
 */
#include "vendor/vendor_parts.h"

/* Below it, FlashInfer's CUTLASS kernel for sm90 makes NaN of a block (vLLM raises scales for that reason). */
#define LEAST 1e-10f

static void raise_f32(const mox_vendor_context *context, const uint8_t *in, int64_t count, uint8_t *out)
{
    (void)context;
    for (int64_t i = 0; i < count; i++) {
        float value;
        memcpy(&value, in + 4 * i, sizeof value);
        value = value < LEAST ? LEAST : value;
        memcpy(out + 4 * i, &value, sizeof value);
    }
}

static const char *refuse_negative_f32(const mox_vendor_context *context, const uint8_t *in, int64_t count)
{
    (void)context;
    for (int64_t i = 0; i < count; i++) {
        float value;
        memcpy(&value, in + 4 * i, sizeof value);
        if (value < 0)
            return "a scale is negative, and raising it to 1e-10, which the target needs, would change weights";
    }
    return NULL;
}

static void raise_bf16(const mox_vendor_context *context, const uint8_t *in, int64_t count, uint8_t *out)
{
    for (int64_t i = 0; i < count; i++) {
        const uint8_t wide[4] = { 0, 0, in[2 * i], in[2 * i + 1] };
        raise_f32(context, wide, 1, out + 4 * i);
    }
}

static const char *refuse_negative_bf16(const mox_vendor_context *context, const uint8_t *in, int64_t count)
{
    const char *why = NULL;
    for (int64_t i = 0; i < count && why == NULL; i++) {
        const uint8_t wide[4] = { 0, 0, in[2 * i], in[2 * i + 1] };
        why = refuse_negative_f32(context, wide, 1);
    }
    return why;
}

static const mox_vendor_code bf16_at_least = { .name = "bf16 to f32, at least 1e-10",
                                               .of = MOXIE_BF16,
                                               .in_bits = 16,
                                               .out_bits = 32,
                                               .forward = raise_bf16,
                                               .refuse = refuse_negative_bf16 };
const mox_vendor_code mox_code_f32_at_least = { .name = "f32, at least 1e-10",
                                                .of = MOXIE_F32,
                                                .in_bits = 32,
                                                .out_bits = 32,
                                                .forward = raise_f32,
                                                .refuse = refuse_negative_f32,
                                                .otherwise = &bf16_at_least };
