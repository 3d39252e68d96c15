/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor_parts.h - the rows, codes and orders that vendor layouts are composed of. Each is drawn where it is defined.
 */
#ifndef MOX_PACK_VENDOR_PARTS_H
#define MOX_PACK_VENDOR_PARTS_H

#include "pack/vendor/vendor.h"

/* ---- rows (vendor_rows.c) ---- */
extern const mox_vendor_rows mox_rows_w31, mox_rows_gated, mox_rows_shuffle_32, mox_rows_shuffle_16,
    mox_rows_shuffle_gated_w31, mox_rows_shuffle_16_w31;

/* ---- codes (vendor_codes.c) ---- */
extern const mox_vendor_code mox_code_u4b8_to_i4, mox_code_bf16_to_f32;

/* ---- orders (vendor_orders.c) ---- */
extern const mox_vendor_order mox_order_plain, mox_order_vector, mox_order_block_major, mox_order_scales_128x4;

/* ---- Triton's orders (vendor_orders_triton.c, vendor_orders.c) ---- */
extern const mox_vendor_order mox_order_hopper_values, mox_order_hopper_values_pad64, mox_order_hopper_values_mma2,
    mox_order_hopper_scales_8, mox_order_hopper_scales_4, mox_order_blackwell_values, mox_order_blackwell_tiles,
    mox_order_blackwell_scales;

#endif
