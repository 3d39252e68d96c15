/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor_deepgemm.c - experts as DeepGEMM reads them: grouped FP8 products, and the fused FP8 x FP4 layer.
 *
 *     layout               w13 rows         weights    scales
 *     deepgemm-fp8-sm90    [gate; up]       plain      f32 for 128 x 128, plain
 *     deepgemm-fp8-sm100   [gate; up]       plain      exponents for each row, four in a word, columns of words
 *     deepgemm-mega-fp4    runs of 8        plain      the same, rows by lanes of 128
 *
 * The exponent of 128 x 128 weights is repeated for its 128 rows; the original scales are stored too. Memory is drawn
 * in docs/formats/deepgemm.md. Scales of activations are mox_order_f32_columns and mox_order_word_columns. Source:
 * DeepGEMM's layout functions (smxx_layout, layout.hpp) and its preparation of weights for the fused layer.
 */
#include "vendor/vendor_parts.h"

#define SCALE_WHY "scales cover blocks of 128 rows and columns, and no block may hold gate and up"

#define LIMITS                                                                                                         \
    {                                                                                                                  \
        { MOX_VENDOR_HIDDEN, 128, false, SCALE_WHY }, { MOX_VENDOR_INTERMEDIATE, 128, false, SCALE_WHY },              \
    }

const mox_vendor_layout mox_vendor_deepgemm_sm90 = {
    .name = "deepgemm-fp8-sm90",
    .summary = "FP8 rows as they are, an f32 scale for 128 x 128",
    .caller = "DeepGEMM m_grouped_fp8_gemm_nt on Hopper",
    .accepts = { .elements = { MOXIE_F8_E4M3 },
                 .scales = { MOXIE_F32 },
                 .group_cols = { 128 },
                 .group_rows = { 128 },
                 .no_zeros = true },
    .limits = LIMITS,
    .parts = { { "w13_weight", MOX_VENDOR_W13, MOX_VENDOR_CODES, MOXIE_F8_E4M3, NULL, NULL, &mox_order_plain, 0 },
               { "w13_weight_scale_inv", MOX_VENDOR_W13, MOX_VENDOR_SCALES, MOXIE_F32, NULL, NULL, &mox_order_plain,
                 0 },
               { "w2_weight", MOX_VENDOR_W2, MOX_VENDOR_CODES, MOXIE_F8_E4M3, NULL, NULL, &mox_order_plain, 0 },
               { "w2_weight_scale_inv", MOX_VENDOR_W2, MOX_VENDOR_SCALES, MOXIE_F32, NULL, NULL, &mox_order_plain,
                 0 } },
};

#define SPREAD (MOX_VENDOR_DERIVED | MOX_VENDOR_SPREAD)

const mox_vendor_layout mox_vendor_deepgemm_sm100 = {
    .name = "deepgemm-fp8-sm100",
    .summary = "FP8 rows as they are, exponents of scales four in a word, column by column",
    .caller = "DeepGEMM m_grouped_fp8_gemm_nt on Blackwell",
    .accepts = { .elements = { MOXIE_F8_E4M3 },
                 .scales = { MOXIE_F32, MOXIE_F8_E8M0 },
                 .group_cols = { 128, 32 },
                 .group_rows = { 128, 1 },
                 .no_zeros = true },
    .limits = LIMITS,
    .parts = { { "w13_weight", MOX_VENDOR_W13, MOX_VENDOR_CODES, MOXIE_F8_E4M3, NULL, NULL, &mox_order_plain, 0 },
               { "w13_weight_scale_inv", MOX_VENDOR_W13, MOX_VENDOR_SCALES, MOXIE_I32, NULL, &mox_code_f32_to_e8m0,
                 &mox_order_word_columns, SPREAD },
               { "moxie.w13_scale", MOX_VENDOR_W13, MOX_VENDOR_SCALES, MOXIE_DTYPE_NONE, NULL, NULL, &mox_order_plain,
                 0 },
               { "w2_weight", MOX_VENDOR_W2, MOX_VENDOR_CODES, MOXIE_F8_E4M3, NULL, NULL, &mox_order_plain, 0 },
               { "w2_weight_scale_inv", MOX_VENDOR_W2, MOX_VENDOR_SCALES, MOXIE_I32, NULL, &mox_code_f32_to_e8m0,
                 &mox_order_word_columns, SPREAD },
               { "moxie.w2_scale", MOX_VENDOR_W2, MOX_VENDOR_SCALES, MOXIE_DTYPE_NONE, NULL, NULL, &mox_order_plain,
                 0 } },
};

const mox_vendor_layout mox_vendor_deepgemm_mega = {
    .name = "deepgemm-mega-fp4",
    .summary = "FP4 rows, gate and up in runs of 8, exponents four in a word, rows by lanes",
    .caller = "DeepGEMM fp8_fp4_mega_moe",
    .accepts = { .elements = { MOXIE_F4_E2M1 },
                 .scales = { MOXIE_F8_E8M0, MOXIE_F32 },
                 .group_cols = { 32 },
                 .no_zeros = true },
    .limits = LIMITS,
    .parts = { { "w13_weight", MOX_VENDOR_W13, MOX_VENDOR_CODES, MOXIE_U8, &mox_rows_runs_8, NULL, &mox_order_plain,
                 0 },
               { "w13_weight_scale", MOX_VENDOR_W13, MOX_VENDOR_SCALES, MOXIE_I32, &mox_rows_lanes_runs_8,
                 &mox_code_f32_to_e8m0, &mox_order_word_columns, 0 },
               { "w2_weight", MOX_VENDOR_W2, MOX_VENDOR_CODES, MOXIE_U8, NULL, NULL, &mox_order_plain, 0 },
               { "w2_weight_scale", MOX_VENDOR_W2, MOX_VENDOR_SCALES, MOXIE_I32, &mox_rows_lanes, &mox_code_f32_to_e8m0,
                 &mox_order_word_columns, 0 } },
};
