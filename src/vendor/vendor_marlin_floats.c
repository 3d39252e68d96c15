/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor_marlin_floats.c - FP8 and FP4 weights as vLLM's Marlin MoE kernel reads them.
 *
 *     layout               weights            scales                                              stored for undo
 *     marlin-fp8-bf16      tiles, 16-bit act  bf16 times 2^120, a row of N for each 128 of K      scales
 *     marlin-fp8-f16       the same           f16 times 2^8, the same                             scales
 *     marlin-fp8-fp8       tiles, 8-bit act   bf16, the same                                      scales
 *     marlin-mxfp4         tiles, 16-bit act  e8m0 permuted                                       -
 *     marlin-mxfp4-fp8     tiles, 8-bit act   e8m0 plus 6                                         -
 *     marlin-nvfp4-bf16    tiles, 16-bit act  s0e5m3 with the layer's factor f, globals over f    globals, small scales
 *     marlin-nvfp4-f16     the same           s0e5m3                                              globals, small scales
 *
 * Rows of w13 are gate's, then up's; but MXFP4's alternate where the checkpoint's do and the activation has an alpha
 * (gpt-oss), since vLLM leaves them so and its kernel for that activation reads pairs.
 * The name ends with the dtype of activations where that matters. FP8 may have one scale per matrix, row or block of
 * 128 x 128; the kernel reads one for each row of N, so scales are repeated. Memory is drawn in docs/formats/marlin.md.
 * Source: vLLM's prepare_fp8_moe_layer_for_marlin, prepare_moe_mxfp4_layer_for_marlin and
 * prepare_nvfp4_moe_layer_for_marlin (names, shapes, dtypes).
 */
#include <math.h>
#include <stdio.h>

#include "vendor/vendor_parts.h"

#define HALVES                                                                                                         \
    {                                                                                                                  \
        MOXIE_F16, MOXIE_BF16                                                                                          \
    }
#define BOTH(name, of, dtype, code, order, how)                                                                        \
    { "w13_" name, MOX_VENDOR_W13, of, dtype, NULL, code, order, how },                                                \
    {                                                                                                                  \
        "w2_" name, MOX_VENDOR_W2, of, dtype, NULL, code, order, how                                                   \
    }
#define WEIGHTS(order)  BOTH("weight", MOX_VENDOR_CODES, MOXIE_I32, NULL, order, 0)
#define BIASES_HOW(how) BOTH("bias", MOX_VENDOR_BIAS, MOXIE_DTYPE_NONE, NULL, &mox_order_marlin_bias, how)
#define BIASES          BIASES_HOW(0)
/* Rows of w13 in the checkpoint's order: gpt-oss's alternate, and vLLM's activation for it reads pairs. */
#define STORED_WEIGHTS(order) BOTH("weight", MOX_VENDOR_CODES, MOXIE_I32, NULL, order, MOX_VENDOR_AS_STORED)
#define STORED_BIASES         BIASES_HOW(MOX_VENDOR_AS_STORED)

/* ---- FP8 ------------------------------------------------------------------------------------------ */

#define FP8(id, text, input, order, dtype, code, scale_order)                                                          \
    .name = id, .summary = "Marlin tiles of FP8, " text,                                                               \
    .caller = "vLLM fused_marlin_moe, parameters of fp8, activations " input,                                          \
    .accepts = { .elements = { MOXIE_F8_E4M3 },                                                                        \
                 .scales = { MOXIE_F32, MOXIE_BF16, MOXIE_F16 },                                                       \
                 .group_cols = { 128, -1 },                                                                            \
                 .group_rows = { 128, 1, -1 },                                                                         \
                 .whole_groups = true,                                                                                 \
                 .bias = true,                                                                                         \
                 .biases = HALVES,                                                                                     \
                 .ungated = true },                                                                                    \
    .limits = { { MOX_VENDOR_HIDDEN, 128, false, "Marlin's thread blocks work on 128 of K and 64 of N" },              \
                { MOX_VENDOR_INTERMEDIATE, 64, false, "Marlin's thread blocks work on 64 of K and 64 of N" } },        \
    .parts = { WEIGHTS(order),                                                                                         \
               BOTH("weight_scale", MOX_VENDOR_SCALES, dtype, code, scale_order,                                       \
                    MOX_VENDOR_DERIVED | MOX_VENDOR_SPREAD),                                                           \
               { "moxie.w13_weight_scale", MOX_VENDOR_W13, MOX_VENDOR_SCALES, MOXIE_DTYPE_NONE, NULL, NULL,            \
                 &mox_order_plain, 0 },                                                                                \
               { "moxie.w2_weight_scale", MOX_VENDOR_W2, MOX_VENDOR_SCALES, MOXIE_DTYPE_NONE, NULL, NULL,              \
                 &mox_order_plain, 0 },                                                                                \
               BIASES }

const mox_vendor_layout mox_vendor_marlin_fp8_bf16 = { FP8("marlin-fp8-bf16", "bf16 scales times 2^120", "bf16",
                                                           &mox_order_marlin, MOXIE_BF16, &mox_code_fp8_scales_bf16,
                                                           &mox_order_marlin_scales) };
const mox_vendor_layout mox_vendor_marlin_fp8_f16 = { FP8("marlin-fp8-f16", "f16 scales times 2^8", "f16",
                                                          &mox_order_marlin, MOXIE_F16, &mox_code_fp8_scales_f16,
                                                          &mox_order_marlin_scales) };
const mox_vendor_layout mox_vendor_marlin_fp8_fp8 = { FP8("marlin-fp8-fp8", "bf16 scales, for FP8 activations", "fp8",
                                                          &mox_order_marlin_a8, MOXIE_BF16, &mox_code_fp8_scales_plain,
                                                          &mox_order_marlin_single) };

/* ---- MXFP4 ---------------------------------------------------------------------------------------- */

#define MXFP4(id, text, input, order, code, scale_order)                                                               \
    .name = id, .summary = "Marlin tiles of MXFP4, " text,                                                             \
    .caller = "vLLM fused_marlin_moe, parameters of mxfp4, activations " input,                                        \
    .accepts = { .elements = { MOXIE_F4_E2M1 },                                                                        \
                 .scales = { MOXIE_F8_E8M0 },                                                                          \
                 .group_cols = { 32 },                                                                                 \
                 .bias = true,                                                                                         \
                 .biases = HALVES,                                                                                     \
                 .ungated = true },                                                                                    \
    .limits = { { MOX_VENDOR_HIDDEN, 256, true, "Marlin needs 256 of N and 128 of K in both products" },               \
                { MOX_VENDOR_INTERMEDIATE, 128, true, "Marlin needs 256 of N and 128 of K in both products" } },       \
    .parts = { STORED_WEIGHTS(order),                                                                                  \
               BOTH("weight_scale", MOX_VENDOR_SCALES, MOXIE_F8_E8M0, code, scale_order, MOX_VENDOR_AS_STORED),        \
               STORED_BIASES }

const mox_vendor_layout mox_vendor_marlin_mxfp4 = { MXFP4("marlin-mxfp4", "e8m0 scales permuted", "bf16 or f16",
                                                          &mox_order_marlin, NULL, &mox_order_marlin_fp4_scales) };
const mox_vendor_layout mox_vendor_marlin_mxfp4_fp8 = { MXFP4("marlin-mxfp4-fp8", "e8m0 scales plus 6", "fp8",
                                                              &mox_order_marlin_a8, &mox_code_e8m0_plus_6,
                                                              &mox_order_marlin_single) };

/* ---- NVFP4 ---------------------------------------------------------------------------------------- */

/* Gate and up share one global scale in the target. */
static bool has_one_global(const mox_vendor_plan *plan, const moxie_expert *expert, char *reason, size_t size)
{
    if (!plan->shape.gated)
        return true;
    const double gate = mox_grid_value(&expert->gate.global, 0, 0), up = mox_grid_value(&expert->up.global, 0, 0);
    if (gate == up)
        return true;
    snprintf(reason, size, "gate's global scale is %g and up's %g, and the target has one for both", gate, up);
    return false;
}

/* global * 2^(bias - 7) / f. `bias`: the difference of exponent bias that the kernel leaves when it widens e2m1. */
static float global_for(const mox_vendor_plan *plan, const moxie_matrix *matrix, mox_vendor_projection projection,
                        int bias, bool factor)
{
    const float stored = (float)mox_grid_value(&matrix->global, 0, 0);
    const moxie_quant *quant = projection == MOX_VENDOR_W2 ? &plan->shape.w2 : &plan->shape.w13;
    const float global = quant->global == MOXIE_GLOBAL_DIVIDE ? 1 / stored : stored;
    return ldexpf(global, bias - 7 - (factor ? mox_marlin_nvfp4_shift(plan->facts.scale_max[projection]) : 0));
}

enum { BIAS_F16 = 14, BIAS_BF16 = 126 };

static float global_13_bf16(const mox_vendor_plan *plan, const moxie_expert *expert)
{
    return global_for(plan, &expert->up, MOX_VENDOR_W13, BIAS_BF16, true);
}

static float global_2_bf16(const mox_vendor_plan *plan, const moxie_expert *expert)
{
    return global_for(plan, &expert->down, MOX_VENDOR_W2, BIAS_BF16, true);
}

static float global_13_f16(const mox_vendor_plan *plan, const moxie_expert *expert)
{
    return global_for(plan, &expert->up, MOX_VENDOR_W13, BIAS_F16, false);
}

static float global_2_f16(const mox_vendor_plan *plan, const moxie_expert *expert)
{
    return global_for(plan, &expert->down, MOX_VENDOR_W2, BIAS_F16, false);
}

/* No real weights have a global scale whose constant is infinite, since block scales reach 448. */
static bool holds_bf16(const mox_vendor_plan *plan, const moxie_expert *expert, char *reason, size_t size)
{
    if (!has_one_global(plan, expert, reason, size))
        return false;
    const float g13 = global_13_bf16(plan, expert), g2 = global_2_bf16(plan, expert);
    if (isfinite(g13) && isfinite(g2))
        return true;
    snprintf(reason, size, "a global scale times 2^119 is past the largest f32; marlin-nvfp4-f16 holds it");
    return false;
}

#define NVFP4(id, input, code, small, hold, global_13, global_2)                                                       \
    .name = id, .summary = "Marlin tiles of NVFP4, scales as s0e5m3, for " input,                                      \
    .caller = "vLLM fused_marlin_moe, parameters of nvfp4, activations " input,                                        \
    .accepts = { .elements = { MOXIE_F4_E2M1 },                                                                        \
                 .scales = { MOXIE_F8_E4M3 },                                                                          \
                 .group_cols = { 16 },                                                                                 \
                 .global = MOXIE_GLOBAL_MULTIPLY,                                                                      \
                 .ungated = true },                                                                                    \
    .surveys = true, .holds = hold,                                                                                    \
    .limits = { { MOX_VENDOR_HIDDEN, 128, false, "Marlin's thread blocks work on 128 of K and 64 of N" },              \
                { MOX_VENDOR_INTERMEDIATE, 64, true, "Marlin's thread blocks work on 64 of K and 64 of N" } },         \
    .parts = { WEIGHTS(&mox_order_marlin),                                                                             \
               BOTH("weight_scale", MOX_VENDOR_SCALES, MOXIE_F8_E4M3, code, &mox_order_marlin_fp4_scales, 0),          \
               { "moxie.w13_small_scales", MOX_VENDOR_W13, MOX_VENDOR_SCALES, MOXIE_U8, NULL, small, &mox_order_plain, \
                 MOX_VENDOR_PATCH },                                                                                   \
               { "moxie.w2_small_scales", MOX_VENDOR_W2, MOX_VENDOR_SCALES, MOXIE_U8, NULL, small, &mox_order_plain,   \
                 MOX_VENDOR_PATCH } },                                                                                 \
    .constants = {                                                                                                     \
        { "w13_weight_scale_2", global_13, NULL },                                                                     \
        { "w2_weight_scale_2", global_2, NULL },                                                                       \
    }

const mox_vendor_layout mox_vendor_marlin_nvfp4_bf16 = { NVFP4("marlin-nvfp4-bf16", "bf16", &mox_code_s0e5m3_bf16,
                                                               &mox_code_small_scales_bf16, holds_bf16, global_13_bf16,
                                                               global_2_bf16) };
const mox_vendor_layout mox_vendor_marlin_nvfp4_f16 = { NVFP4("marlin-nvfp4-f16", "f16", &mox_code_s0e5m3_f16,
                                                              &mox_code_small_scales_f16, has_one_global, global_13_f16,
                                                              global_2_f16) };
