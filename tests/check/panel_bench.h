/* SPDX-License-Identifier: Apache-2.0
 *
 * panel_bench.h - one call of a panel kernel's inner product (panel_kernel.h) for test_kernels_panel.c. An expert has
 * MOX_PANEL_BLOCK pairs. This file arranges the activations as drawn in panel_activations.h, and compares them with the
 * library's own. Arrays have exactly their size. The sums are compared with the referee's.
 */
#ifndef PANEL_BENCH_H
#define PANEL_BENCH_H

#include "cpu/expert_gemm/panel_activations.h"
#include "gemm_referee.h"
#include "test_cpu_state.h"

enum { LANES = MOX_PANEL_ROWS, WIDTH = 2 * LANES };

/* The expert with MOX_PANEL_BLOCK pairs, and the referee's sums for some of its panels. */
typedef struct bench {
    gemm_problem problem;
    int slot;
    int64_t first; /* pair */
    mox_panel_matrix matrix;
    int64_t panel;
    int panels;
    int64_t most;              /* rows to multiply */
    float *want[REFEREE_SUMS]; /* by sum: [most, WIDTH] */
} bench;

/* ---- operands --------------------------------------------------------------------------------------------- */

/* A number as the kernel reads it: times its scale where the scale is multiplied into it. */
static inline float value_at(const gemm_problem *p, int64_t r, int64_t k)
{
    const mox_activations *a = &p->operand;
    const float value = a->values[r * a->stride + k];
    return referee_folds(p) ? value * a->scales[r * a->scale_cols + k / a->group_cols] : value;
}

static inline uint16_t high_half(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

/* Writes row r of `rows`; `values` [cols]. The memory was zeroed. */
static inline void put_row(mox_act_order kind, uint8_t *data, int64_t rows, int64_t cols, int64_t r,
                           const float *values)
{
    const int64_t width = kind == MOX_ACT_ORDER_I8 ? 64 : 32, steps = (cols + width - 1) / width;
    if (kind == MOX_ACT_ORDER_F32) {
        memcpy(data + r * steps * 128, values, (size_t)cols * sizeof *values);
        return;
    }
    const int64_t tile = r / 16, held = rows - tile * 16 < 16 ? rows - tile * 16 : 16;
    for (int64_t k = 0; k < cols; k++) {
        uint8_t *line = data + tile * 16 * steps * 64 + (k / width * held + r % 16) * 64;
        const uint16_t half = high_half(values[k]);
        if (kind == MOX_ACT_ORDER_BF16)
            memcpy(line + k % 32 * 2, &half, sizeof half);
        else
            line[k % 64] = (uint8_t)(int8_t)values[k];
    }
}

/* Checks that the library's functions put every row where the drawing says, and read it back. */
static inline void check_operand(mox_act_order kind, const uint8_t *data, int64_t rows, int64_t cols,
                                 const gemm_problem *p, int64_t first)
{
    check_buffers buffers = { .count = 0 };
    const uint64_t bytes = (uint64_t)rows * mox_act_order_row_bytes(kind, cols);
    uint8_t *made = check_buffer(&buffers, bytes);
    float *values = check_buffer(&buffers, (size_t)cols * sizeof *values);
    float *back = check_buffer(&buffers, (size_t)cols * sizeof *back);
    void *narrow = check_buffer(&buffers, (size_t)cols * sizeof *values);
    for (int twice = 0; twice < 2; twice++) { /* whole, and narrowed */
        memset(made, 0xff, bytes);
        for (int64_t r = 0; r < rows; r++) {
            for (int64_t k = 0; k < cols; k++)
                values[k] = value_at(p, gemm_operand_row(p, first + r), k);
            mox_act_order_narrow(kind, values, cols, narrow);
            if (twice)
                mox_act_order_put_row(kind, made, rows, cols, r, narrow, r % 2 == 0);
            else
                mox_act_order_put(kind, made, rows, cols, r, values);
            mox_act_order_get(kind, made, rows, cols, r, NULL, back);
            assert_memory_equal(values, back, (size_t)cols * sizeof *values);
        }
        assert_memory_equal(made, data, bytes);
    }
    check_buffers_free(&buffers);
}

static inline mox_panel_rows arrange(const bench *b, mox_act_order kind, int64_t rows, check_buffers *buffers)
{
    const gemm_problem *p = &b->problem;
    const mox_activations *a = &p->operand;
    const uint64_t bytes = (uint64_t)rows * mox_act_order_row_bytes(kind, p->cols);
    uint8_t *data = check_buffer(buffers, bytes + MOX_PANEL_OVERREAD_BYTES);
    float *values = check_buffer(buffers, (size_t)p->cols * sizeof *values);
    mox_panel_rows out = { .rows = rows, .data = data };
    memset(data, 0, bytes);
    memset(data + bytes, 0xff, MOX_PANEL_OVERREAD_BYTES);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t k = 0; k < p->cols; k++)
            values[k] = value_at(p, gemm_operand_row(p, b->first + r), k);
        put_row(kind, data, rows, p->cols, r, values);
    }
    if (a->scales == NULL || referee_folds(p) || a->scale_cols == 1)
        return out;
    out.scale_stride = a->scale_cols + rows % 3;
    out.group_cols = a->group_cols;
    float *scales = check_buffer(buffers, (size_t)(rows * out.scale_stride) * sizeof *scales);
    for (int64_t r = 0; r < rows; r++)
        memcpy(scales + r * out.scale_stride, a->scales + gemm_operand_row(p, b->first + r) * a->scale_cols,
               (size_t)a->scale_cols * sizeof *scales);
    out.scales = scales;
    return out;
}

/* ---- the referee ------------------------------------------------------------------------------------------ */

/* The checkpoint's matrix that a panel belongs to, and the first of its rows in the panel. */
static inline const moxie_matrix *panel_rows_of(const bench *b, int64_t panel, int64_t *row)
{
    const moxie_matrix *matrix[2];
    int64_t column[2];
    const int count = gemm_matrices(&b->problem, b->slot, matrix, column);
    *row = panel / count * LANES;
    return matrix[panel % count];
}

static inline const float *wanted(bench *b, referee_sum sum)
{
    if (b->want[sum] != NULL)
        return b->want[sum];
    const gemm_problem *p = &b->problem;
    referee_row *row = malloc(sizeof *row);
    float *want = calloc((size_t)b->most * WIDTH, sizeof *want);
    for (int j = 0; j < b->panels; j++) {
        int64_t start;
        const moxie_matrix *matrix = panel_rows_of(b, b->panel + j, &start);
        for (int64_t n = 0; n < mox_min_i64(LANES, matrix->codes.rows - start); n++) {
            referee_weights(sum, p, matrix, start + n, row);
            for (int64_t r = 0; r < b->most; r++) {
                referee_acts(p, gemm_operand_row(p, b->first + r), row);
                want[r * WIDTH + j * LANES + n] = referee_sum_row_fast(sum, row);
            }
        }
    }
    free(row);
    return b->want[sum] = want;
}

static inline void forget(bench *b)
{
    for (int i = 0; i < REFEREE_SUMS; i++) {
        free(b->want[i]);
        b->want[i] = NULL;
    }
}

static inline void compare_sums(const mox_expert_gemm_kernel *row, bench *b, const float *c, int64_t rows)
{
    const float *want = wanted(b, referee_sum_of(row));
    for (int j = 0; j < b->panels; j++) {
        int64_t start;
        const moxie_matrix *matrix = panel_rows_of(b, b->panel + j, &start);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t n = 0; n < mox_min_i64(LANES, matrix->codes.rows - start); n++) {
                const int64_t i = r * WIDTH + j * LANES + n;
                if (referee_agrees(c[i], want[i]))
                    continue;
                char what[512];
                gemm_describe(&b->problem, what, sizeof what);
                fail_msg("%s, %s: %lld rows, panels %lld + %d, row %lld lane %lld of panel %d is %a, not %a",
                         row->base.name, what, (long long)rows, (long long)b->panel, b->panels, (long long)r,
                         (long long)n, j, (double)c[i], (double)want[i]);
            }
    }
}

/* ---- one call --------------------------------------------------------------------------------------------- */

static inline void multiply(const mox_expert_gemm_kernel *row, bench *b, int64_t rows)
{
    const gemm_problem *p = &b->problem;
    mox_expert_gemm_problem asked = p->asked;
    mox_rejection why;
    check_buffers buffers = { .count = 0 };
    asked.max_rows = rows;
    const mox_panel_multiply_fn function = mox_panel_kernel_of(row)->bind(&asked, &why);
    mox_panel_rows a = arrange(b, mox_panel_kernel_of(row)->order, rows, &buffers);
    float *c = check_buffer(&buffers, (size_t)(rows * WIDTH) * sizeof *c);
    void *scratch = check_buffer(&buffers, row->scratch_bytes(&asked));
    if (rows % 7 == 0 || rows == 1)
        check_operand(mox_panel_kernel_of(row)->order, a.data, rows, p->cols, p, b->first);
    /* Few rows twice: what is derived from them stays in scratch. */
    for (int again = 0; again <= (rows <= 4); again++) {
        a.again = again;
        const test_cpu_state before = test_cpu_state_now();
        function(&b->matrix, p->asked.weight, b->panel, b->panels, &a, c, scratch);
        const test_cpu_state after = test_cpu_state_now();
        if (after.control != before.control || after.tiles != 0)
            fail_msg("%s leaves MXCSR %#x, which was %#x, and tiles %u", row->base.name, after.control, before.control,
                     after.tiles);
        if (referee_sum_of(row) != REFEREE_NONE)
            compare_sums(row, b, c, rows);
        memset(c, 0xff, (size_t)(rows * WIDTH) * sizeof *c);
    }
    check_buffers_free(&buffers);
}

#endif
