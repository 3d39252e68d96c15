/* SPDX-License-Identifier: Apache-2.0
 *
 * panel_activations.h - the activations of one expert in the orders that panel kernels read (mox_act_order).
 *
 *     F32   | row 0: K f32, 0 .. | row 1 | ...
 *     BF16  | tile 0 | tile 1 | ...      tile of r rows: | step 0: r x 64 bytes | step 1: r x 64 bytes | ...
 *     I8    likewise, 64 columns in 64 bytes
 *
 * A tile holds 16 rows, the last tile the rest. So m rows of an expert take exactly m * mox_act_order_row_bytes(), and
 * the rows of all experts lie one after another in the order of the permutation. Padding behind the last column is
 * zero.
 *
 * In the flow: quant_act, or the gathering of cpu/fused, -> [here] -> panel kernels.
 */
#ifndef MOX_CPU_PANEL_ACTIVATIONS_H
#define MOX_CPU_PANEL_ACTIVATIONS_H

#include "base/sizes.h"
#include "cpu/expert_gemm/panel_kernel.h"

/* Bytes of a number. */
static inline int64_t mox_act_order_bytes(mox_act_order order)
{
    return order == MOX_ACT_ORDER_F32 ? 4 : order == MOX_ACT_ORDER_BF16 ? 2 : 1;
}

/* Columns of a row that lie together: a step, or the whole row. */
static inline int64_t mox_act_order_run(mox_act_order order, int64_t cols)
{
    switch (order) {
    case MOX_ACT_ORDER_BF16: return 32;
    case MOX_ACT_ORDER_I8: return 64;
    default: return mox_ceil_div(cols, 32) * 32;
    }
}

/* Where column `col` of row `row` lies in `data`, the activations of an expert with `rows` rows. */
static inline void *mox_act_order_at(mox_act_order order, void *data, int64_t rows, int64_t cols, int64_t row,
                                     int64_t col)
{
    const int64_t row_bytes = (int64_t)mox_act_order_row_bytes(order, cols);
    if (order == MOX_ACT_ORDER_F32)
        return (uint8_t *)data + row * row_bytes + col * 4;
    const int64_t tile = row / 16 * 16, held = mox_min_i64(16, rows - tile);
    const int64_t width = order == MOX_ACT_ORDER_BF16 ? 32 : 64;
    const int64_t at = tile * row_bytes + (col / width * held + (row - tile)) * 64;
    return (uint8_t *)data + at + col % width * (64 / width);
}

/* Values, which are exact in the order's type, in that type: f32, bf16 or i8. */
void mox_act_order_narrow(mox_act_order order, const float *values, int64_t count, void *out);
/* Stores one row of `cols` values, which are exact in the order's type, and its padding. */
void mox_act_order_put(mox_act_order order, void *data, int64_t rows, int64_t cols, int64_t row, const float *values);
/* The same from a row that is narrowed already. `stream`: past the caches, then mox_stream_end() must follow. */
void mox_act_order_put_row(mox_act_order order, void *data, int64_t rows, int64_t cols, int64_t row, const void *from,
                           bool stream);
/* Stores `count` values of a row, exact likewise, at columns place[0], place[1], ... */
void mox_act_order_scatter(mox_act_order order, void *data, int64_t rows, int64_t cols, int64_t row,
                           const int32_t *place, int64_t count, const float *values);
/* Reads a row back: values[k] is column k, or column place[k] where `place` is not NULL. */
void mox_act_order_get(mox_act_order order, const void *data, int64_t rows, int64_t cols, int64_t row,
                       const int32_t *place, float *values);

#endif
