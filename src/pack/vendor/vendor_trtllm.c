/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor_trtllm.c - what FlashInfer's TRT-LLM-gen fused MoE kernels read.
 *
 *     layout          w13 rows               weights        scales
 *     trtllm-mxint4   shuffle(gated(w31))    block major    bf16 per 32, same rows, 128x4 atoms
 *
 * w2's rows are only shuffled. Memory is drawn in docs/formats/trtllm.md.
 * Source: vLLM's prepare_static_weights_for_trtllm_* and FlashInfer's fused_moe preparation (functions' results).
 */
#include "pack/vendor/vendor_parts.h"

#define MXINT4_WHY "int4 is read in blocks of 256 columns, rows in tiles of 128"

const mox_vendor_layout mox_vendor_trtllm_mxint4 = {
    .name = "trtllm-mxint4",
    .summary = "int4 with a bf16 scale per 32: shuffled rows, block-major, swizzled scales",
    .caller = "FlashInfer trtllm_mxint4_block_scale_moe",
    .takes = { .elements = { MOXIE_U4B8, MOXIE_I4 }, .scales = { MOXIE_BF16 }, .group_cols = { 32 }, .no_zeros = true },
    .limits = { { MOX_VENDOR_HIDDEN, 256, false, MXINT4_WHY }, { MOX_VENDOR_INTERMEDIATE, 256, false, MXINT4_WHY } },
    .parts = { { "gemm1_weights", MOX_VENDOR_W13, MOX_VENDOR_CODES, MOXIE_U8, &mox_rows_shuffle_gated_w31,
                 &mox_code_u4b8_to_i4, &mox_order_block_major },
               { "gemm1_scales", MOX_VENDOR_W13, MOX_VENDOR_SCALES, MOXIE_BF16, &mox_rows_shuffle_gated_w31, NULL,
                 &mox_order_scales_128x4 },
               { "gemm2_weights", MOX_VENDOR_W2, MOX_VENDOR_CODES, MOXIE_U8, &mox_rows_shuffle_32, &mox_code_u4b8_to_i4,
                 &mox_order_block_major },
               { "gemm2_scales", MOX_VENDOR_W2, MOX_VENDOR_SCALES, MOXIE_BF16, &mox_rows_shuffle_32, NULL,
                 &mox_order_scales_128x4 } },
};
