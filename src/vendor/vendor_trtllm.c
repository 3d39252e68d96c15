/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor_trtllm.c - what FlashInfer's TRT-LLM-gen fused MoE kernels read.
 *
 *     layout                       w13 rows               weights        scales
 *     trtllm-mxint4                shuffle(gated(w31))    block major    bf16 per 32, same rows, 128x4 atoms
 *     trtllm-mxfp4                 shuffle(gated(w31))    rows           e8m0 per 32, same rows, 128x4 atoms
 *     trtllm-mxfp8                 shuffle(gated(w31))    rows           e8m0 per 32, same rows, 128x4 atoms
 *     trtllm-nvfp4                 shuffle(gated(w31))    rows           e4m3 per 16, same rows, 128x4 atoms
 *     trtllm-fp8-tensor            shuffle(gated(w31))    rows           in constants
 *     trtllm-fp8-block             w31                    rows           f32 per 128 x 128, w31, at least 1e-10
 *     trtllm-fp8-block-shuffled    shuffle_16(w31)        block major    f32 per 128 x 128, w31, at least 1e-10
 *     trtllm-bf16                  shuffle(gated(w31))    block major    -
 *
 * w2's rows are only shuffled; biases of trtllm-mxfp4 are f32 in the rows' order. Memory is drawn in
 * docs/formats/trtllm.md. In gpt-oss gate and up rows alternate; its preparation swaps each pair and shuffles, which is
 * shuffle(gated(w31)) of what an expert's views call gate and up. Source: vLLM's prepare_static_weights_for_trtllm_*
 * and prepare_fp8_moe_layer_for_fi, and FlashInfer's fused_moe preparation (functions' results).
 */
#include "vendor/vendor_parts.h"
#include "vendor/vendor_tables.h"

#define INT4_WHY    "int4 is read in blocks of 256 columns, rows in tiles of 128"
#define MXFP4_H_WHY "rows and columns of hidden are read in tiles of 256"
#define MXFP8_WHY   "scales are read in atoms of 128 rows and 4 groups of 32 columns"
#define NVFP4_WHY   "scales are read in atoms of 128 rows of gate and up, and 4 groups of 16 columns"
#define NVFP4_H_WHY MXFP4_H_WHY
#define FP8_WHY     "gate and up rows are shuffled in blocks of 32"
#define FP8_H_WHY   "rows and columns of hidden are read in tiles of 128"
#define BLOCK_WHY   "each block of 128 x 128 has a scale, and halves of w13 begin with a block"
#define BF16_WHY    "bf16 is read in blocks of 64 columns"

#define SHUFFLED(name, of, dtype, code, order)                                                                         \
    MOX_VENDOR_BOTH(name, of, dtype, &mox_rows_shuffle_gated_w31, &mox_rows_shuffle_32, code, order)

const mox_vendor_layout mox_vendor_trtllm_mxint4 = {
    .name = "trtllm-mxint4",
    .summary = "int4 with a bf16 scale per 32: shuffled rows, block-major, swizzled scales",
    .caller = "FlashInfer trtllm_mxint4_block_scale_moe",
    .accepts = { .elements = { MOXIE_U4B8, MOXIE_I4 },
                 .scales = { MOXIE_BF16 },
                 .group_cols = { 32 },
                 .no_zeros = true },
    .holds = mox_holds_plain,
    .limits = { MOX_VENDOR_EXTENTS(256, false, INT4_WHY) },
    .parts = { SHUFFLED("weight_packed", MOX_VENDOR_CODES, MOXIE_U8, &mox_code_u4b8_to_i4, &mox_order_block_major),
               SHUFFLED("weight_scale", MOX_VENDOR_SCALES, MOXIE_BF16, NULL, &mox_order_scales_128x4) },
};

/* The scales are e8m0 bytes; callers view them as e4m3 to pass the kernel's check of types. */
#define MXFP4(tile, why)                                                                                               \
    {                                                                                                                  \
        .name = "trtllm-mxfp4",                                                                                        \
        .summary = "fp4 with an e8m0 scale per 32 (gpt-oss): shuffled rows, swizzled scales, f32 biases",              \
        .caller = "FlashInfer trtllm_fp4_block_scale_moe",                                                             \
        .accepts = { .elements = { MOXIE_F4_E2M1 },                                                                    \
                     .scales = { MOXIE_F8_E8M0 },                                                                      \
                     .group_cols = { 32 },                                                                             \
                     .no_zeros = true,                                                                                 \
                     .bias = true },                                                                                   \
        .holds = mox_holds_swiglu,                                                                                     \
        .limits = { { MOX_VENDOR_HIDDEN, 256, true, MXFP4_H_WHY, 0 },                                                  \
                    { MOX_VENDOR_INTERMEDIATE, tile, true, why, 0 } },                                                 \
        .parts = { SHUFFLED("weight", MOX_VENDOR_CODES, MOXIE_U8, NULL, &mox_order_plain),                             \
                   SHUFFLED("weight_scale", MOX_VENDOR_SCALES, MOXIE_F8_E4M3, NULL, &mox_order_scales_128x4_2d),       \
                   SHUFFLED("bias", MOX_VENDOR_BIAS, MOXIE_F32, &mox_code_bf16_to_f32, &mox_order_vector) },           \
        .constants = { MOX_VENDOR_SWIGLU },                                                                            \
    }

const mox_vendor_layout mox_vendor_trtllm_mxfp4 =
    MXFP4(128, "scales are read in atoms of 128 rows and 4 groups of 32 columns");
const mox_vendor_layout mox_vendor_trtllm_mxfp4_i256 = MXFP4(256, "vLLM 0.18 allocates multiples of 256");

const mox_vendor_layout mox_vendor_trtllm_mxfp8 = {
    .name = "trtllm-mxfp8",
    .summary = "fp8 with an e8m0 scale per 32: shuffled rows, swizzled scales",
    .caller = "FlashInfer trtllm_fp8_block_scale_moe, MxFp8",
    .accepts = { .elements = { MOXIE_F8_E4M3 },
                 .scales = { MOXIE_F8_E8M0 },
                 .group_cols = { 32 },
                 .no_zeros = true,
                 .ungated = true },
    .holds = mox_holds_swiglu,
    .limits = { { MOX_VENDOR_HIDDEN, 256, true, MXFP4_H_WHY, 0 },
                { MOX_VENDOR_INTERMEDIATE, 128, true, MXFP8_WHY, 0 } },
    .parts = { SHUFFLED("weight", MOX_VENDOR_CODES, MOXIE_F8_E4M3, NULL, &mox_order_plain),
               SHUFFLED("weight_scale", MOX_VENDOR_SCALES, MOXIE_U8, &mox_code_e8m0_pad_ones,
                        &mox_order_scales_128x4_2d) },
    .constants = { MOX_VENDOR_SWIGLU },
};

const mox_vendor_layout mox_vendor_trtllm_nvfp4 = {
    .name = "trtllm-nvfp4",
    .summary = "fp4 with an e4m3 scale per 16 and a global: shuffled rows, swizzled scales",
    .caller = "FlashInfer trtllm_fp4_block_scale_moe",
    .accepts = MOX_VENDOR_NVFP4,
    .surveys = true,
    .holds = mox_holds_plain,
    .limits = { { MOX_VENDOR_HIDDEN, 256, true, NVFP4_H_WHY, 0 },
                { MOX_VENDOR_INTERMEDIATE, 64, true, NVFP4_WHY, 128 } },
    .parts = { SHUFFLED("weight", MOX_VENDOR_CODES, MOXIE_U8, NULL, &mox_order_plain),
               SHUFFLED("weight_scale", MOX_VENDOR_SCALES, MOXIE_F8_E4M3, NULL, &mox_order_scales_128x4_2d) },
    .constants = { { "a1_gscale", mox_value_a1_gscale, NULL },
                   { "a2_gscale", mox_value_a2_gscale, NULL },
                   { "g1_alphas", mox_value_g1_alpha, NULL },
                   { "g1_scale_c", mox_value_g1_scale_c, NULL },
                   { "g2_alphas", mox_value_g2_alpha, NULL } },
};

const mox_vendor_layout mox_vendor_trtllm_fp8_tensor = {
    .name = "trtllm-fp8-tensor",
    .summary = "fp8 with a scale per matrix: shuffled rows, scales in constants",
    .caller = "FlashInfer trtllm_fp8_per_tensor_scale_moe",
    .accepts = MOX_VENDOR_FP8_TENSOR,
    .surveys = true,
    .holds = mox_holds_plain,
    .limits = { { MOX_VENDOR_HIDDEN, 128, false, FP8_H_WHY, 0 }, { MOX_VENDOR_INTERMEDIATE, 16, true, FP8_WHY, 128 } },
    .parts = { SHUFFLED("weight", MOX_VENDOR_CODES, MOXIE_F8_E4M3, NULL, &mox_order_plain) },
    .constants = { { "w13_input_scale", mox_value_a1_scale, NULL },
                   { "w2_input_scale_inv", mox_value_a2_gscale, NULL },
                   { "output1_scales_gate_scalar", mox_value_g1_alpha, NULL },
                   { "output1_scales_scalar", mox_value_g1_over_a2, NULL },
                   { "output2_scales_scalar", mox_value_g2_alpha, NULL } },
};

const mox_vendor_layout mox_vendor_trtllm_fp8_block = {
    .name = "trtllm-fp8-block",
    .summary = "fp8 with an f32 scale per 128 x 128 (DeepSeek): up before gate, rows as they are",
    .caller = "FlashInfer trtllm_fp8_block_scale_moe, MajorK, not shuffled",
    .accepts = MOX_VENDOR_FP8_BLOCK,
    .holds = mox_holds_plain,
    .limits = { MOX_VENDOR_EXTENTS(128, false, BLOCK_WHY) },
    .parts = { MOX_VENDOR_BOTH("weight", MOX_VENDOR_CODES, MOXIE_F8_E4M3, &mox_rows_w31, NULL, NULL, &mox_order_plain),
               MOX_VENDOR_CLAMPED_SCALES },
};

const mox_vendor_layout mox_vendor_trtllm_fp8_block_shuffled = {
    .name = "trtllm-fp8-block-shuffled",
    .summary = "fp8 with an f32 scale per 128 x 128 (DeepSeek): up before gate, shuffled rows, block-major",
    .caller = "FlashInfer trtllm_fp8_block_scale_moe, BlockMajorK, shuffled",
    .accepts = MOX_VENDOR_FP8_BLOCK,
    .holds = mox_holds_plain,
    .limits = { MOX_VENDOR_EXTENTS(128, false, BLOCK_WHY) },
    .parts = { MOX_VENDOR_BOTH("weight", MOX_VENDOR_CODES, MOXIE_F8_E4M3, &mox_rows_shuffle_16_w31,
                               &mox_rows_shuffle_16, NULL, &mox_order_block_major),
               MOX_VENDOR_CLAMPED_SCALES },
};

const mox_vendor_layout mox_vendor_trtllm_bf16 = {
    .name = "trtllm-bf16",
    .summary = "bf16: shuffled rows, block-major",
    .caller = "FlashInfer trtllm_bf16_moe",
    .accepts = { .elements = { MOXIE_BF16 }, .no_zeros = true },
    .holds = mox_holds_plain,
    .limits = { MOX_VENDOR_EXTENTS(64, false, BF16_WHY) },
    .parts = { SHUFFLED("weight", MOX_VENDOR_CODES, MOXIE_BF16, NULL, &mox_order_block_major) },
};
