/* SPDX-License-Identifier: Apache-2.0
 *
 * panel_activations.c - stores rows of activations in the order of a panel kernel, and reads them back. The orders are
 * drawn in panel_activations.h.
 */
#include "cpu/expert_gemm/panel_activations.h"

#include "base/stream.h"

static uint16_t bf16_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static float float_of(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* One loop for each order, so that the compiler vectorizes them. */
void mox_act_order_narrow(mox_act_order order, const float *values, int64_t count, void *out)
{
    float *f32 = out;
    uint16_t *bf16 = out;
    int8_t *i8 = out;
    if (order == MOX_ACT_ORDER_F32)
        memcpy(f32, values, (size_t)count * sizeof *f32);
    else if (order == MOX_ACT_ORDER_BF16)
        for (int64_t k = 0; k < count; k++)
            bf16[k] = bf16_of(values[k]);
    else
        for (int64_t k = 0; k < count; k++)
            i8[k] = (int8_t)values[k];
}

/* Stores `count` values, then zeros up to the end of the run. */
static void put_run(mox_act_order order, void *at, const float *values, int64_t count, int64_t run)
{
    const int64_t bytes = mox_act_order_bytes(order);
    mox_act_order_narrow(order, values, count, at);
    if (count < run)
        memset((uint8_t *)at + count * bytes, 0, (size_t)((run - count) * bytes));
}

void mox_act_order_put(mox_act_order order, void *data, int64_t rows, int64_t cols, int64_t row, const float *values)
{
    const int64_t run = mox_act_order_run(order, cols);
    for (int64_t col = 0; col < cols; col += run)
        put_run(order, mox_act_order_at(order, data, rows, cols, row, col), values + col, mox_min_i64(run, cols - col),
                run);
}

void mox_act_order_put_row(mox_act_order order, void *data, int64_t rows, int64_t cols, int64_t row, const void *from,
                           bool stream)
{
    const int64_t tile = row / 16 * 16, step = mox_min_i64(16, rows - tile) * 64;
    const int64_t bytes = cols * mox_act_order_bytes(order);
    uint8_t *to = mox_act_order_at(order, data, rows, cols, row, 0);
    int64_t at = 0;
    if (order == MOX_ACT_ORDER_F32) {
        memcpy(to, from, (size_t)bytes);
        memset(to + bytes, 0, (size_t)((int64_t)mox_act_order_row_bytes(order, cols) - bytes));
        return;
    }
    for (; stream && at + 64 <= bytes; at += 64, to += step)
        mox_stream(to, (const uint8_t *)from + at, 64);
    for (; at + 64 <= bytes; at += 64, to += step)
        memcpy(to, (const uint8_t *)from + at, 64);
    if (at < bytes) {
        memset(to, 0, 64);
        memcpy(to, (const uint8_t *)from + at, (size_t)(bytes - at));
    }
}

void mox_act_order_scatter(mox_act_order order, void *data, int64_t rows, int64_t cols, int64_t row,
                           const int32_t *place, int64_t count, const float *values)
{
    const int64_t run = mox_act_order_run(order, cols);
    uint8_t *const base = mox_act_order_at(order, data, rows, cols, row, 0);
    const int64_t step = cols > run ? (uint8_t *)mox_act_order_at(order, data, rows, cols, row, run) - base : 0;
    for (int64_t n = 0; n < count; n++) {
        uint8_t *const from = base + place[n] / run * step;
        const int64_t col = place[n] % run;
        if (order == MOX_ACT_ORDER_F32)
            memcpy(from + col * 4, &values[n], sizeof *values);
        else if (order == MOX_ACT_ORDER_BF16)
            ((uint16_t *)(void *)from)[col] = bf16_of(values[n]);
        else
            ((int8_t *)from)[col] = (int8_t)values[n];
    }
}

void mox_act_order_get(mox_act_order order, const void *data, int64_t rows, int64_t cols, int64_t row,
                       const int32_t *place, float *values)
{
    for (int64_t k = 0; k < cols; k++) {
        const int64_t col = place != NULL ? place[k] : k;
        const void *at = mox_act_order_at(order, (void *)(uintptr_t)data, rows, cols, row, col);
        if (order == MOX_ACT_ORDER_F32)
            values[k] = *(const float *)at;
        else if (order == MOX_ACT_ORDER_BF16)
            values[k] = float_of(*(const uint16_t *)at);
        else
            values[k] = *(const int8_t *)at;
    }
}
