/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor_tables.h - macros that tables of several layouts share (TRT-LLM and FlashInfer kernels).
 */
#ifndef MOX_VENDOR_TABLES_H
#define MOX_VENDOR_TABLES_H

#include "vendor/vendor_parts.h"

/* The same part for both projections; names begin with w13_ and w2_. */
#define MOX_VENDOR_BOTH(name, of, dtype, rows13, rows2, code, order)                                                   \
    { "w13_" name, MOX_VENDOR_W13, of, dtype, rows13, code, order, 0 },                                                \
    {                                                                                                                  \
        "w2_" name, MOX_VENDOR_W2, of, dtype, rows2, code, order, 0                                                    \
    }
#define MOX_VENDOR_EXTENTS(multiple, pads, why)                                                                        \
    { MOX_VENDOR_HIDDEN, multiple, pads, why, 0 },                                                                     \
    {                                                                                                                  \
        MOX_VENDOR_INTERMEDIATE, multiple, pads, why, 0                                                                \
    }
#define MOX_VENDOR_SWIGLU                                                                                              \
    { "gemm1_alpha", mox_value_alpha, mox_use_has_alpha }, { "gemm1_beta", mox_value_beta, mox_use_has_alpha },        \
    {                                                                                                                  \
        "gemm1_clamp_limit", mox_value_limit, mox_use_has_limit                                                        \
    }
/* Scales of 128 x 128 blocks, up's before gate's, as vLLM passes them to FlashInfer: at least 1e-10. Undo reads the
 * original ones. */
#define MOX_VENDOR_CLAMPED_SCALES                                                                                      \
    { "w13_weight_scale_inv", MOX_VENDOR_W13,         MOX_VENDOR_SCALES, MOXIE_F32,                                    \
      &mox_rows_w31,          &mox_code_f32_at_least, &mox_order_plain,  MOX_VENDOR_DERIVED },                         \
        { "w2_weight_scale_inv",  MOX_VENDOR_W2,    MOX_VENDOR_SCALES, MOXIE_F32, NULL,                                \
          &mox_code_f32_at_least, &mox_order_plain, MOX_VENDOR_DERIVED },                                              \
        { "moxie.w13_weight_scale_inv",                                                                                \
          MOX_VENDOR_W13,                                                                                              \
          MOX_VENDOR_SCALES,                                                                                           \
          MOXIE_DTYPE_NONE,                                                                                            \
          NULL,                                                                                                        \
          NULL,                                                                                                        \
          &mox_order_plain,                                                                                            \
          0 },                                                                                                         \
    {                                                                                                                  \
        "moxie.w2_weight_scale_inv", MOX_VENDOR_W2, MOX_VENDOR_SCALES, MOXIE_DTYPE_NONE, NULL, NULL, &mox_order_plain, \
            0                                                                                                          \
    }

/* Accepted weights: fp8 with one scale per matrix and static activations; fp8 in blocks of 128 x 128; NVFP4. */
#define MOX_VENDOR_FP8_TENSOR                                                                                          \
    {                                                                                                                  \
        .elements = { MOXIE_F8_E4M3 }, .scales = { MOXIE_F32, MOXIE_BF16 }, .group_cols = { -1 },                      \
        .group_rows = { -1 }, .no_zeros = true, .ungated = true, .static_acts = true                                   \
    }
#define MOX_VENDOR_FP8_BLOCK                                                                                           \
    {                                                                                                                  \
        .elements = { MOXIE_F8_E4M3 }, .scales = { MOXIE_F32, MOXIE_BF16 }, .group_cols = { 128 },                     \
        .group_rows = { 128 }, .no_zeros = true                                                                        \
    }
#define MOX_VENDOR_NVFP4                                                                                               \
    {                                                                                                                  \
        .elements = { MOXIE_F4_E2M1 }, .scales = { MOXIE_F8_E4M3 }, .group_cols = { 16 }, .no_zeros = true,            \
        .ungated = true, .global = MOXIE_GLOBAL_MULTIPLY, .static_acts = true                                          \
    }

#endif
