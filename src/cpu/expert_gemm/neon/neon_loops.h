/* SPDX-License-Identifier: Apache-2.0
 *
 * neon_loops.h - the loops of a NEON kernel over the steps of a panel. The kernel's file defines the functions below
 * and then includes this one, so that the loops are compiled for its instructions.
 *
 *     one row      for each run of steps:   codes -> registers, times x -> 16 sums -> sink
 *     more rows    for each slab of steps:  codes -> slab (once)
 *                      for each 4 rows, for each run of steps:  slab times x -> 16 sums a row -> sink
 *
 * A run is steps whose sums stay in registers: NEON_RUN steps or fewer, inside a slab and a segment. Both ways give the
 * same bits. What the file provides; a unit is 4 rows x 8 columns (neon_decode.h), of numbers or of codes:
 *
 *     NEON_ORDER, NEON_X_BYTES         order of the activations (I8: sums are i32, else f32), bytes of one
 *     NEON_RUN                         most steps in a run
 *     NEON_QUARTER_BYTES               of 16 rows x 8 columns in the slab
 *     NEON_CLASSES(X)                  X(name, class) for each class that neon_unit() decodes
 *     NEON_OTHER                       variants of other classes, whose one row goes through the slab
 *     neon_unit(class, tables, step, q, m, zero, u)    decodes a unit to registers u[4]
 *     neon_put(slab, q, m, u)          stores a unit in quarter q of the slab
 *     neon_sums, neon_one(u, x, m, sums), neon_total(sums, m)
 *                                      adds the unit times 8 activations x to the sums of a row; the sums of a run
 *     neon_more(R, run, t)             a run of the slab times R rows, 1 .. 4: t[row][m]
 */
#ifndef MOX_CPU_NEON_LOOPS_H
#define MOX_CPU_NEON_LOOPS_H

#include "cpu/expert_gemm/neon/panel_neon.h"

/* Steps of the slab, and rows of activations. */
typedef struct neon_run {
    const uint8_t *slab;
    mox_neon_rows x;
    int64_t col; /* of the first step */
    int64_t steps, quarters;
} neon_run;
MOX_KERNEL_INLINE void neon_more(int R, const neon_run *run, uint32x4_t t[MOX_NEON_ROWS][4]);

/* ---- one row ---------------------------------------------------------------------------------------------------- */

/* A run of `steps` steps times one row. */
MOX_KERNEL_INLINE void neon_one_run(mox_neon_class decode, const mox_neon_job *j, const mox_neon_pos *pos,
                                    int64_t steps, int64_t row, const mox_neon_rows *x)
{
    const mox_neon_sink sink = mox_neon_sink_at(j, pos, steps, row);
    neon_sums sums;
    memset(&sums, 0, sizeof sums);
    for (int64_t s = pos->step; s < pos->step + steps; s++) {
        int64_t q;
        const uint8_t *step = mox_neon_step(j, s, &q), *at = mox_neon_x(NEON_ORDER, x, s * j->step_cols);
        const int64_t last = q + j->step_cols / 8;
        __builtin_prefetch(step + MOX_NEON_PREFETCH_BYTES);
        for (; q < last; q += 2, at += 16 * NEON_X_BYTES) {
            MOX_KERNEL_UNROLL
            for (int i = 0; i < 8; i++) {
                uint32x4_t u[4];
                neon_unit(decode, &j->tables, step, q + i / 4, i % 4, sink.zero, u);
                neon_one(u, at + i / 4 * 8 * NEON_X_BYTES, i % 4, &sums);
            }
        }
    }
    uint32x4_t t[4];
    MOX_KERNEL_UNROLL
    for (int m = 0; m < 4; m++)
        t[m] = neon_total(&sums, m);
    mox_neon_add(NEON_ORDER == MOX_ACT_ORDER_I8, &sink, t);
}

MOX_KERNEL_INLINE void neon_one_row(mox_neon_class decode, const mox_neon_job *j)
{
    const mox_neon_rows x = mox_neon_rows_at(NEON_ORDER, j, 0);
    mox_neon_pos pos = { 0 };
    while (pos.step < j->steps) {
        const int64_t steps = mox_neon_run_steps(j, NEON_RUN, &pos);
        neon_one_run(decode, j, &pos, steps, 0, &x);
        mox_neon_next(j, steps, &pos);
    }
}

/* ---- more rows -------------------------------------------------------------------------------------------------- */

/* Decodes steps [s, s + count) to the slab. */
MOX_KERNEL_INLINE void neon_fill(mox_neon_class decode, const mox_neon_job *j, int64_t s, int64_t count)
{
    int64_t to = 0;
    for (const int64_t end = s + count; s < end; s++) {
        int64_t q;
        const uint8_t *step = mox_neon_step(j, s, &q);
        const uint32_t *zero = j->zero + s / j->group_steps * MOX_PANEL_ROWS;
        __builtin_prefetch(step + MOX_NEON_PREFETCH_BYTES);
        for (const int64_t last = q + j->step_cols / 8; q < last; q++, to++) {
            MOX_KERNEL_UNROLL
            for (int m = 0; m < 4; m++) {
                uint32x4_t u[4];
                neon_unit(decode, &j->tables, step, q, m, zero, u);
                neon_put(j->sc.slab, to, m, u);
            }
        }
    }
}

/* A run of `steps` steps of the slab that begins with step `first`, times rows [row, row + R). */
MOX_KERNEL_INLINE void neon_more_run(int R, const mox_neon_job *j, int64_t first, const mox_neon_pos *pos,
                                     int64_t steps, int64_t row, const mox_neon_rows *x)
{
    const int64_t quarters = j->step_cols / 8;
    const neon_run run = { .slab = j->sc.slab + (pos->step - first) * quarters * NEON_QUARTER_BYTES,
                           .x = *x,
                           .col = pos->step * j->step_cols,
                           .steps = steps,
                           .quarters = quarters };
    uint32x4_t t[MOX_NEON_ROWS][4];
    const mox_neon_sink first_sink = mox_neon_sink_at(j, pos, steps, row);
    neon_more(R, &run, t);
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++) {
        const mox_neon_sink sink = mox_neon_sink_on(&first_sink, r);
        mox_neon_add(NEON_ORDER == MOX_ACT_ORDER_I8, &sink, t[r]);
    }
}

MOX_KERNEL_INLINE void neon_block(int R, const mox_neon_job *j, const mox_neon_pos *first, int64_t count, int64_t row)
{
    const mox_neon_rows x = mox_neon_rows_at(NEON_ORDER, j, row);
    mox_neon_pos pos = *first;
    while (pos.step < first->step + count) {
        const int64_t steps = mox_neon_run_steps(j, NEON_RUN, &pos);
        neon_more_run(R, j, first->step, &pos, steps, row, &x);
        mox_neon_next(j, steps, &pos);
    }
}

/* Functions of their own, so that the loops of one do not take registers from another's. */
#define NEON_BLOCK(R)                                                                                                  \
    static __attribute__((noinline)) void neon_block_##R(const mox_neon_job *j, const mox_neon_pos *first,             \
                                                         int64_t count, int64_t row)                                   \
    {                                                                                                                  \
        neon_block(R, j, first, count, row);                                                                           \
    }
NEON_BLOCK(1)
NEON_BLOCK(2)
NEON_BLOCK(3)
NEON_BLOCK(4)
#undef NEON_BLOCK

/* `count` steps from `first` on, which the slab holds; returns the place behind them. */
static mox_neon_pos neon_slab(const mox_neon_job *j, const mox_neon_pos *first, int64_t count)
{
    mox_neon_pos pos = *first;
    for (int64_t row = 0; row < j->a->rows; row += MOX_NEON_ROWS)
        switch (j->a->rows - row) {
        case 1: neon_block_1(j, first, count, row); break;
        case 2: neon_block_2(j, first, count, row); break;
        case 3: neon_block_3(j, first, count, row); break;
        default: neon_block_4(j, first, count, row); break;
        }
    while (pos.step < first->step + count)
        mox_neon_next(j, mox_neon_run_steps(j, NEON_RUN, &pos), &pos);
    return pos;
}

/* ---- a call ----------------------------------------------------------------------------------------------------- */

typedef struct neon_variant {
    void (*one)(const mox_neon_job *j);
    void (*fill)(const mox_neon_job *j, int64_t s, int64_t count);
} neon_variant;

#define NEON_VARIANT(name, decode)                                                                                     \
    static void neon_one_##name(const mox_neon_job *j)                                                                 \
    {                                                                                                                  \
        neon_one_row(decode, j);                                                                                       \
    }                                                                                                                  \
    static void neon_fill_##name(const mox_neon_job *j, int64_t s, int64_t count)                                      \
    {                                                                                                                  \
        neon_fill(decode, j, s, count);                                                                                \
    }
NEON_CLASSES(NEON_VARIANT)
#undef NEON_VARIANT

static const neon_variant neon_variants[MOX_NEON_CLASSES] = {
#define NEON_VARIANT(name, decode) [decode] = { neon_one_##name, neon_fill_##name },
    NEON_CLASSES(NEON_VARIANT) NEON_OTHER
#undef NEON_VARIANT
};

static void neon_panel(const mox_neon_job *j)
{
    const neon_variant *variant = &neon_variants[j->decode];
    if (j->a->rows == 1 && variant->one != NULL) {
        variant->one(j);
        return;
    }
    for (mox_neon_pos pos = { 0 }; pos.step < j->steps;) {
        const int64_t count = mox_min_i64(MOX_NEON_SLAB, j->steps - pos.step);
        variant->fill(j, pos.step, count);
        pos = neon_slab(j, &pos, count);
    }
}

#endif
