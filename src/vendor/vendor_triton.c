/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor_triton.c - MXFP4 experts as OpenAI's Triton kernels read them, which vLLM calls for gpt-oss.
 *
 *     layout                       values                           scales                      for
 *     triton-mxfp4                 rows as they are                 rows as they are            before Hopper
 *     triton-hopper-mxfp4          mixed for mma 3, twiddled        mixed for 8 warps           Hopper; its versions
 *                                                                                               pad in different ways
 *       -warps4                    the same                         mixed for 4 warps           Hopper with EP
 *     triton-mma2-mxfp4            mixed for mma 2, twiddled        mixed for 8 warps           mma_version 2
 *     triton-blackwell-mxfp4       columns padded to 128 bytes      128x4 atoms, columns by 8   Blackwell
 *       -tiles                     tiles of 256 rows x 64 bytes     the same                    the newest Triton
 *
 * w13's rows are gate0 up0 gate1 up1 ... as in gpt-oss; biases are f32. Memory is drawn in docs/formats/triton.md.
 * Source: triton_kernels' tensor_details/layout_details and vLLM's mxfp4_utils.py (what becomes of the tensors).
 */
#include "vendor/vendor_parts.h"

#define LIMITS                                                                                                         \
    {                                                                                                                  \
        { MOX_VENDOR_HIDDEN, 32, false, "a scale is for 32 columns" },                                                 \
            { MOX_VENDOR_INTERMEDIATE, 64, true, "vLLM allocates multiples of 64 for Triton" },                        \
    }
#define PARTS(values, scales)                                                                                          \
    {                                                                                                                  \
        { "w13_weight", MOX_VENDOR_W13, MOX_VENDOR_CODES, MOXIE_U8, &mox_rows_gated, NULL, &values },                  \
            { "w13_weight_scale", MOX_VENDOR_W13, MOX_VENDOR_SCALES, MOXIE_U8, &mox_rows_gated, NULL, &scales },       \
            { "w13_bias",      MOX_VENDOR_W13,        MOX_VENDOR_BIAS,  MOXIE_F32,                                     \
              &mox_rows_gated, &mox_code_bf16_to_f32, &mox_order_vector },                                             \
            { "w2_weight", MOX_VENDOR_W2, MOX_VENDOR_CODES, MOXIE_U8, NULL, NULL, &values },                           \
            { "w2_weight_scale", MOX_VENDOR_W2, MOX_VENDOR_SCALES, MOXIE_U8, NULL, NULL, &scales },                    \
            { "w2_bias", MOX_VENDOR_W2, MOX_VENDOR_BIAS, MOXIE_F32, NULL, &mox_code_bf16_to_f32, &mox_order_vector },  \
    }
#define TAKES                                                                                                          \
    {                                                                                                                  \
        .elements = { MOXIE_F4_E2M1 }, .scales = { MOXIE_F8_E8M0 }, .group_cols = { 32 }, .no_zeros = true,            \
        .bias = true, .biases = {                                                                                      \
            MOXIE_BF16,                                                                                                \
            MOXIE_F32                                                                                                  \
        }                                                                                                              \
    }
#define CALLER "triton_kernels matmul_ogs"

const mox_vendor_layout mox_vendor_triton_mxfp4 = {
    .name = "triton-mxfp4",
    .summary = "MXFP4 rows as they are, gate and up alternating",
    .caller = CALLER ", StridedLayout",
    .accepts = TAKES,
    .limits = LIMITS,
    .parts = PARTS(mox_order_plain, mox_order_plain),
};

/* Versions of one layout: they pad in different ways. */
#define HOPPER(padding, where, values, scales)                                                                         \
    {                                                                                                                  \
        .name = "triton-hopper-mxfp4",                                                                                 \
        .summary = "MXFP4 mixed and twiddled for mma 3, scales for 8 warps; rows padded to " padding,                  \
        .caller = CALLER where ", HopperMXValueLayout (mma_version 3) and HopperMXScaleLayout (num_warps 8)",          \
        .accepts = TAKES, .limits = LIMITS, .parts = PARTS(values, scales),                                            \
    }

const mox_vendor_layout mox_vendor_triton_hopper = HOPPER(
    "16, columns to 64", " of vLLM, its Triton 3.5", mox_order_hopper_values_pad16, mox_order_hopper_scales_8_by_4);
const mox_vendor_layout mox_vendor_triton_hopper_rows256 =
    HOPPER("256, columns to 128", "", mox_order_hopper_values, mox_order_hopper_scales_8);
const mox_vendor_layout mox_vendor_triton_hopper_rows64 =
    HOPPER("64, columns to 128", " of vLLM, its Triton 3.6", mox_order_hopper_values_pad64, mox_order_hopper_scales_8);

const mox_vendor_layout mox_vendor_triton_hopper_warps4 = {
    .name = "triton-hopper-mxfp4-warps4",
    .summary = "MXFP4 mixed and twiddled for mma 3, scales for 4 warps; rows padded to 256",
    .caller = CALLER ", HopperMXValueLayout (mma_version 3) and HopperMXScaleLayout (num_warps 4)",
    .accepts = TAKES,
    .limits = LIMITS,
    .parts = PARTS(mox_order_hopper_values, mox_order_hopper_scales_4),
};

const mox_vendor_layout mox_vendor_triton_mma2 = {
    .name = "triton-mma2-mxfp4",
    .summary = "MXFP4 mixed and twiddled for mma 2, scales for 8 warps; rows padded to 256",
    .caller = CALLER ", HopperMXValueLayout (mma_version 2) and HopperMXScaleLayout (num_warps 8)",
    .accepts = TAKES,
    .limits = LIMITS,
    .parts = PARTS(mox_order_hopper_values_mma2, mox_order_hopper_scales_8),
};

const mox_vendor_layout mox_vendor_triton_blackwell = {
    .name = "triton-blackwell-mxfp4",
    .summary = "MXFP4 rows padded to 128 bytes, swizzled scales",
    .caller = CALLER ", BlackwellMXValueLayout and BlackwellMXScaleLayout",
    .accepts = TAKES,
    .limits = LIMITS,
    .parts = PARTS(mox_order_blackwell_values, mox_order_blackwell_scales),
};

const mox_vendor_layout mox_vendor_triton_blackwell_tiles = {
    .name = "triton-blackwell-mxfp4-tiles",
    .summary = "MXFP4 in tiles of 256 rows x 64 bytes, swizzled scales",
    .caller = CALLER ", BlackwellMX4ValueShuffledLayout (block_k 128, block_n 256) and BlackwellMXScaleLayout",
    .accepts = TAKES,
    .limits = LIMITS,
    .parts = PARTS(mox_order_blackwell_tiles, mox_order_blackwell_scales),
};
