/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor_flashinfer.c - what FlashInfer's CUTLASS and CuTe-DSL fused MoE kernels read.
 *
 *     layout                                  w13 rows       weights            scales
 *     flashinfer-cutlass-fp8                  w31            rows               in constants
 *     flashinfer-cutlass-fp8-block            w31            rows               f32 per 128 x 128, w31, at least 1e-10
 *     flashinfer-cutlass-nvfp4                w31            rows, as int64     e4m3 per 16, 128x4 atoms, as int32
 *     flashinfer-cutlass-mxfp4-mxfp8          w31            rows               e8m0 per 32, 128x4 atoms
 *     flashinfer-cutedsl-nvfp4                runs of 64     rows               e4m3 per 16, 128x4 atoms
 *     flashinfer-sm90-mxfp4-bf16              w31            sm90 fp4           e8m0 per 32, folded
 *     flashinfer-sm90-mxfp4-bf16-lines        w31            sm90 fp4           e8m0 per 32, lines
 *     flashinfer-sm90-mxfp4-bf16-rows         w31            rows               e8m0 per 32, lines
 *     flashinfer-sm90-mxfp4-fp8               w31            sm90 fp4_fp8       offsets of e8m0 per 32, folded
 *     flashinfer-sm90-int4-fp8                w31            sm90 int4          bf16 per 128, folded
 *     flashinfer-sm90-int4-fp8-lines          w31            sm90 int4          bf16 per 128, lines
 *
 * The sm90 kernels changed what they read twice; callers of each version are named in docs/formats/flashinfer.md,
 * where memory is drawn too.
 * Source: vLLM's preparation of weights for FlashInfer and FlashInfer's fused_moe/prepare.py (functions' results).
 */
#include "vendor/vendor_parts.h"
#include "vendor/vendor_tables.h"

#define FP8_WHY     "tensor maps begin rows at 16 bytes"
#define BLOCK_WHY   "each block of 128 x 128 has a scale, and halves of w13 begin with a block"
#define NVFP4_H_WHY "rows of fp4 are read 16 bytes at a time"
#define NVFP4_WHY   "the scales of gate and up fill atoms of 128 rows, and w2's groups come in fours"
#define MXFP4_WHY   "rows and columns are read in tiles of 128"
#define INT4_WHY    "a group has 128 columns, and 64 rows of scales are folded"
#define CUTE_WHY    "gate and up alternate in runs of 64 rows"

#define W31(name, of, dtype, code, order) MOX_VENDOR_BOTH(name, of, dtype, &mox_rows_w31, NULL, code, order)

const mox_vendor_layout mox_vendor_flashinfer_cutlass_fp8 = {
    .name = "flashinfer-cutlass-fp8",
    .summary = "fp8 with a scale per matrix: up before gate, scales in constants",
    .caller = "FlashInfer cutlass_fused_moe",
    .accepts = MOX_VENDOR_FP8_TENSOR,
    .surveys = true,
    .holds = mox_holds_one_scalar,
    .limits = { { MOX_VENDOR_HIDDEN, 16, false, FP8_WHY, 0 }, { MOX_VENDOR_INTERMEDIATE, 16, true, FP8_WHY, 128 } },
    .parts = { W31("weight", MOX_VENDOR_CODES, MOXIE_F8_E4M3, NULL, &mox_order_plain) },
    .constants = { { "w13_input_scale", mox_value_a1_scale, NULL },
                   { "a2_gscale", mox_value_a2_gscale, NULL },
                   { "g1_alphas", mox_value_g1_alpha, NULL },
                   { "g2_alphas", mox_value_g2_alpha, NULL },
                   MOX_VENDOR_SWIGLU },
};

const mox_vendor_layout mox_vendor_flashinfer_cutlass_fp8_block = {
    .name = "flashinfer-cutlass-fp8-block",
    .summary = "fp8 with an f32 scale per 128 x 128 (DeepSeek): up before gate",
    .caller = "FlashInfer cutlass_fused_moe, use_deepseek_fp8_block_scale",
    .accepts = MOX_VENDOR_FP8_BLOCK,
    .holds = mox_holds_swiglu,
    .limits = { MOX_VENDOR_EXTENTS(128, false, BLOCK_WHY) },
    .parts = { W31("weight", MOX_VENDOR_CODES, MOXIE_F8_E4M3, NULL, &mox_order_plain), MOX_VENDOR_CLAMPED_SCALES },
    .constants = { MOX_VENDOR_SWIGLU },
};

#define NVFP4_CONSTANTS                                                                                                \
    {                                                                                                                  \
        { "a1_gscale", mox_value_a1_gscale, NULL }, { "a2_gscale", mox_value_a2_gscale, NULL },                        \
            { "g1_alphas", mox_value_g1_alpha, NULL }, { "g2_alphas", mox_value_g2_alpha, NULL }, MOX_VENDOR_SWIGLU    \
    }

const mox_vendor_layout mox_vendor_flashinfer_cutlass_nvfp4 = {
    .name = "flashinfer-cutlass-nvfp4",
    .summary = "fp4 with an e4m3 scale per 16 and a global: up before gate, swizzled scales",
    .caller = "FlashInfer cutlass_fused_moe",
    .accepts = MOX_VENDOR_NVFP4,
    .surveys = true,
    .holds = mox_holds_one_scalar,
    .limits = { { MOX_VENDOR_HIDDEN, 32, false, NVFP4_H_WHY, 0 },
                { MOX_VENDOR_INTERMEDIATE, 64, false, NVFP4_WHY, 128 } },
    .parts = { W31("weight", MOX_VENDOR_CODES, MOXIE_I64, NULL, &mox_order_plain),
               W31("weight_scale", MOX_VENDOR_SCALES, MOXIE_I32, NULL, &mox_order_scales_128x4_2d) },
    .constants = NVFP4_CONSTANTS,
};

const mox_vendor_layout mox_vendor_flashinfer_cutedsl_nvfp4 = {
    .name = "flashinfer-cutedsl-nvfp4",
    .summary = "fp4 with an e4m3 scale per 16 and a global: up and gate in runs of 64 rows, swizzled scales",
    .caller = "FlashInfer cute_dsl_fused_moe_nvfp4",
    .accepts = MOX_VENDOR_NVFP4,
    .surveys = true,
    .holds = mox_holds_one_scalar,
    .limits = { { MOX_VENDOR_HIDDEN, 256, true, "columns of w13 are read in tiles of 256", 0 },
                { MOX_VENDOR_INTERMEDIATE, 64, true, CUTE_WHY, 128 } },
    .parts = { MOX_VENDOR_BOTH("weight", MOX_VENDOR_CODES, MOXIE_U8, &mox_rows_runs_64_w31, NULL, NULL,
                               &mox_order_plain),
               MOX_VENDOR_BOTH("weight_scale", MOX_VENDOR_SCALES, MOXIE_F8_E4M3, &mox_rows_runs_64_w31, NULL, NULL,
                               &mox_order_scales_128x4_2d) },
    .constants = NVFP4_CONSTANTS,
};

/* ---- mxfp4 ---------------------------------------------------------------------------------------- */

/* One table for layouts that differ only in two orders. */
#define MXFP4(title, text, where, values, scale_order)                                                                 \
    {                                                                                                                  \
        .name = title, .summary = text, .caller = where,                                                               \
        .accepts = { .elements = { MOXIE_F4_E2M1 },                                                                    \
                     .scales = { MOXIE_F8_E8M0 },                                                                      \
                     .group_cols = { 32 },                                                                             \
                     .no_zeros = true,                                                                                 \
                     .bias = true,                                                                                     \
                     .biases = { MOXIE_BF16 } },                                                                       \
        .holds = mox_holds_swiglu, .limits = { MOX_VENDOR_EXTENTS(128, true, MXFP4_WHY) },                             \
        .parts = { W31("weight", MOX_VENDOR_CODES, MOXIE_U8, NULL, &values),                                           \
                   W31("weight_scale", MOX_VENDOR_SCALES, MOXIE_U8, NULL, &scale_order),                               \
                   W31("bias", MOX_VENDOR_BIAS, MOXIE_BF16, NULL, &mox_order_vector) },                                \
        .constants = { MOX_VENDOR_SWIGLU },                                                                            \
    }

const mox_vendor_layout mox_vendor_flashinfer_cutlass_mxfp4_mxfp8 =
    MXFP4("flashinfer-cutlass-mxfp4-mxfp8", "fp4 with an e8m0 scale per 32: up before gate, swizzled scales (sm100)",
          "FlashInfer cutlass_fused_moe, use_mxfp8_act_scaling", mox_order_plain, mox_order_scales_128x4_2d);
const mox_vendor_layout mox_vendor_flashinfer_sm90_mxfp4_bf16 =
    MXFP4("flashinfer-sm90-mxfp4-bf16", "fp4 with an e8m0 scale per 32: up before gate, twiddled, folded scales",
          "FlashInfer cutlass_fused_moe, use_w4_group_scaling, since pull request 3738", mox_order_sm90_fp4,
          mox_order_sm90_folded_8);
const mox_vendor_layout mox_vendor_flashinfer_sm90_mxfp4_bf16_lines = MXFP4(
    "flashinfer-sm90-mxfp4-bf16-lines", "fp4 with an e8m0 scale per 32: up before gate, twiddled, scales in lines",
    "FlashInfer cutlass_fused_moe, use_w4_group_scaling, from pull request 3084 to 3738", mox_order_sm90_fp4,
    mox_order_lines);
const mox_vendor_layout mox_vendor_flashinfer_sm90_mxfp4_bf16_rows =
    MXFP4("flashinfer-sm90-mxfp4-bf16-rows", "fp4 with an e8m0 scale per 32: up before gate, scales in lines",
          "FlashInfer cutlass_fused_moe, use_w4_group_scaling, before pull request 3084 (vLLM)", mox_order_plain,
          mox_order_lines);

#define FOR_UNDO(name, projection, of, code, how)                                                                      \
    {                                                                                                                  \
        "moxie." name, projection, of, MOXIE_U8, NULL, code, &mox_order_plain, how                                     \
    }

/* No padding: the scales of padding would be the lowest and change the offsets of the others. */
const mox_vendor_layout mox_vendor_flashinfer_sm90_mxfp4_fp8 = {
    .name = "flashinfer-sm90-mxfp4-fp8",
    .summary = "fp4 with an e8m0 scale per 32: up before gate, mixed rows, scales split (Humming)",
    .caller = "FlashInfer cutlass_fused_moe, use_wfp4afp8_humming",
    .accepts = { .elements = { MOXIE_F4_E2M1 },
                 .scales = { MOXIE_F8_E8M0 },
                 .group_cols = { 32 },
                 .whole_groups = true,
                 .no_zeros = true,
                 .bias = true,
                 .biases = { MOXIE_BF16 } },
    .measures = true,
    .holds = mox_holds_offsets,
    .limits = { MOX_VENDOR_EXTENTS(128, false, MXFP4_WHY) },
    .parts = { W31("weight", MOX_VENDOR_CODES, MOXIE_U8, &mox_code_fp4_no_minus_zero, &mox_order_sm90_fp4_fp8),
               { "w13_weight_scale", MOX_VENDOR_W13, MOX_VENDOR_SCALES, MOXIE_U8, &mox_rows_w31, &mox_code_e8m0_offset,
                 &mox_order_sm90_folded_8, MOX_VENDOR_DERIVED },
               { "w2_weight_scale", MOX_VENDOR_W2, MOX_VENDOR_SCALES, MOXIE_U8, NULL, &mox_code_e8m0_offset,
                 &mox_order_sm90_folded_8, MOX_VENDOR_DERIVED },
               W31("bias", MOX_VENDOR_BIAS, MOXIE_BF16, NULL, &mox_order_vector),
               FOR_UNDO("w13_weight_scale", MOX_VENDOR_W13, MOX_VENDOR_SCALES, NULL, 0),
               FOR_UNDO("w2_weight_scale", MOX_VENDOR_W2, MOX_VENDOR_SCALES, NULL, 0),
               FOR_UNDO("w13_minus_zeros", MOX_VENDOR_W13, MOX_VENDOR_CODES, &mox_code_fp4_minus_zeros,
                        MOX_VENDOR_PATCH),
               FOR_UNDO("w2_minus_zeros", MOX_VENDOR_W2, MOX_VENDOR_CODES, &mox_code_fp4_minus_zeros,
                        MOX_VENDOR_PATCH) },
    .constants = { { "w13_residual", mox_value_residual13, NULL },
                   { "w2_residual", mox_value_residual2, NULL },
                   MOX_VENDOR_SWIGLU },
};

/* ---- int4 ----------------------------------------------------------------------------------------- */

#define INT4(title, text, where, scale_order)                                                                          \
    {                                                                                                                  \
        .name = title, .summary = text, .caller = where,                                                               \
        .accepts = { .elements = { MOXIE_U4B8, MOXIE_I4 },                                                             \
                     .scales = { MOXIE_BF16 },                                                                         \
                     .group_cols = { 128 },                                                                            \
                     .whole_groups = true,                                                                             \
                     .no_zeros = true },                                                                               \
        .holds = mox_holds_swiglu, .limits = { MOX_VENDOR_EXTENTS(128, false, INT4_WHY) },                             \
        .parts = { W31("weight", MOX_VENDOR_CODES, MOXIE_U8, &mox_code_u4b8_to_i4, &mox_order_sm90_int4),              \
                   W31("weight_scale", MOX_VENDOR_SCALES, MOXIE_BF16, NULL, &scale_order) },                           \
        .constants = { MOX_VENDOR_SWIGLU },                                                                            \
    }

const mox_vendor_layout mox_vendor_flashinfer_sm90_int4_fp8 =
    INT4("flashinfer-sm90-int4-fp8", "int4 with a bf16 scale per 128: up before gate, mixed rows, folded scales",
         "FlashInfer cutlass_fused_moe, use_w4_group_scaling, since pull request 3738", mox_order_sm90_folded_16);
const mox_vendor_layout mox_vendor_flashinfer_sm90_int4_fp8_lines = INT4(
    "flashinfer-sm90-int4-fp8-lines", "int4 with a bf16 scale per 128: up before gate, mixed rows, scales in lines",
    "FlashInfer cutlass_fused_moe, use_w4_group_scaling, from pull request 3084 to 3738", mox_order_lines);
