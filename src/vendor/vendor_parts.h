/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor_parts.h - the rows, codes, orders and constants that vendor layouts are composed of. Each is drawn where it is
 * defined.
 */
#ifndef MOX_VENDOR_PARTS_H
#define MOX_VENDOR_PARTS_H

#include "vendor/vendor.h"

/* ---- rows (vendor_rows.c) ---- */
extern const mox_vendor_rows mox_rows_w31, mox_rows_gated, mox_rows_shuffle_32, mox_rows_shuffle_16,
    mox_rows_shuffle_gated_w31, mox_rows_shuffle_16_w31, mox_rows_runs_8, mox_rows_lanes, mox_rows_lanes_runs_8;

/* ---- codes (vendor_codes.c) ---- */
extern const mox_vendor_code mox_code_u4b8_to_i4, mox_code_bf16_to_f32, mox_code_f32_to_e8m0, mox_code_e8m0_pad_ones;

/* ---- orders (vendor_orders.c) ---- */
extern const mox_vendor_order mox_order_plain, mox_order_vector, mox_order_block_major, mox_order_scales_128x4,
    mox_order_scales_128x4_2d, mox_order_word_columns, mox_order_f32_columns;

/* ---- Triton's orders (vendor_orders_triton.c, vendor_orders.c) ---- */
extern const mox_vendor_order mox_order_hopper_values, mox_order_hopper_values_pad16, mox_order_hopper_values_pad64,
    mox_order_hopper_values_mma2, mox_order_hopper_scales_8, mox_order_hopper_scales_8_by_4, mox_order_hopper_scales_4,
    mox_order_blackwell_values, mox_order_blackwell_tiles, mox_order_blackwell_scales;

/* ---- FlashInfer's (vendor_rows.c, vendor_codes_flashinfer.c, vendor_orders_sm90.c, vendor_orders_atoms.c) ---- */
extern const mox_vendor_rows mox_rows_runs_64_w31;
extern const mox_vendor_code mox_code_f32_at_least, mox_code_fp4_no_minus_zero, mox_code_fp4_minus_zeros,
    mox_code_e8m0_offset;
extern const mox_vendor_order mox_order_lines, mox_order_scales_8x4, mox_order_sm90_fp4, mox_order_sm90_int4,
    mox_order_sm90_fp4_fp8, mox_order_sm90_folded_8, mox_order_sm90_folded_16;

/* The shape of a tensor of rank 1 that holds all items. */
int32_t mox_vendor_vector_shape(const mox_vendor_matrix *m, int64_t shape[MOXIE_MAX_RANK]);

/* ---- constants (vendor_constants.c) ---- */

typedef float mox_vendor_value(const mox_vendor_plan *plan, const moxie_expert *expert);

/* Alpha, beta and limit of the activation; whether the caller passes alpha, beta; whether it passes a limit. */
mox_vendor_value mox_value_alpha, mox_value_beta, mox_value_limit;
bool mox_use_has_alpha(const mox_vendor_use *use), mox_use_has_limit(const mox_vendor_use *use);
/* The largest static activation scales of the layer: a1 and a2 multiply codes, gscales are their reciprocals. */
mox_vendor_value mox_value_a1_scale, mox_value_a1_gscale, mox_value_a2_gscale;
/* Multipliers of accumulators. The scalar of a weight is its global, or its scale when the matrix has only one:
 *     g1_alpha      scalar of gate (or of the only matrix) * a1
 *     g1_scale_c    scalar of up * a1 / a2, which quantizes the gated product, too; without a gate 1 / a2
 *     g1_over_a2    the same, divided by a2 where g1_scale_c multiplies by its reciprocal
 *     g2_alpha      scalar of down * a2 */
mox_vendor_value mox_value_g1_alpha, mox_value_g1_scale_c, mox_value_g1_over_a2, mox_value_g2_alpha;

/* What the offsets leave out of E8M0 scales (vendor_humming.c): 2^(low - 128), for w13 and w2. */
mox_vendor_value mox_value_residual13, mox_value_residual2;

/* ---- checks that the target can represent an expert (vendor_constants.c, vendor_humming.c) ---- */

typedef bool mox_vendor_holds(const mox_vendor_plan *plan, const moxie_expert *expert, char *reason, size_t size);

/* plain: the activation has no alpha, beta, limit. swiglu: it may, as one number each for the layer. one_scalar:
 * swiglu, and gate and up have the same scalar (above). */
mox_vendor_holds mox_holds_plain, mox_holds_swiglu, mox_holds_one_scalar;
/* The E8M0 scales of a projection fit 4-bit offsets, except in groups of zeros. */
mox_vendor_holds mox_holds_offsets;

/* ---- Marlin and moe_wna16 (vendor_codes_marlin.c, vendor_codes_marlin_scales.c, vendor_orders_marlin.c,
 *      vendor_orders_marlin_scales.c) ---- */
extern const mox_vendor_code mox_code_i4_to_u4b8, mox_code_u4b8_to_s4m, mox_code_u4_to_s4m_of, mox_code_zeros_plus,
    mox_code_zeros_symmetric;
extern const mox_vendor_code mox_code_times_512, mox_code_int8_scales, mox_code_fp8_scales_bf16,
    mox_code_fp8_scales_f16, mox_code_fp8_scales_plain, mox_code_e8m0_plus_6, mox_code_s0e5m3_bf16, mox_code_s0e5m3_f16,
    mox_code_small_scales_bf16, mox_code_small_scales_f16;
extern const mox_vendor_order mox_order_marlin, mox_order_marlin_a8, mox_order_marlin_scales, mox_order_marlin_single,
    mox_order_marlin_fp4_scales, mox_order_marlin_bias, mox_order_marlin_zeros, mox_order_marlin_zeros_a8,
    mox_order_row_pairs;
/* log2 of the factor f of NVFP4 scales; `max`: the largest scale of the layer. */
int mox_marlin_nvfp4_shift(float max);

#endif
