/* SPDX-License-Identifier: Apache-2.0
 *
 * neon_int_dot.h - kernels neon_fma and neon_bytes: weights times activations as integers (SDOT). Three files compile
 * it, for processors with SDOT, with SMMLA and without both.
 *
 *     t[n] = sum over a step's columns k of  a[k] w[n, k]  =  u h sum A[k] W[n, k]
 *
 * A and W are integers, u and h powers of two. While no chain of multiply-adds could exceed 2^24 units, none of them
 * rounds, and the integer sum, converted, times u h is the same float (int_dot_avx2.h has the argument). Steps that
 * fail the test (neon_limbs.h) are multiplied as floats (neon_fma.h).
 *
 *     W        4 bits: one look-up of a nibble, less the zero point: -16 .. 16
 *              8 bits, neon_bytes alone: the code in two's complement; the zero point times the sum of A is subtracted
 *     slab     [quarter][columns 0 4 1 5, columns 2 6 3 7][16 rows] four bytes: W of one step, for two rows or more.
 *              8 bits: columns 0 .. 3, columns 4 .. 7. neon_bytes with SMMLA: [quarter][8 pairs of rows] of
 *              | row 2i: the 8 columns in that order | row 2i+1 |
 *
 * For 32 weights one row takes a load, a mask, a shift, two look-ups and two SDOT a limb; floats take 8 multiply-adds,
 * 8 instructions that make f32 of bf16, and 10 that make bf16. neon_bytes (class TOL, sum BYTE_ACTIVATIONS) has one
 * limb.
 */
#ifndef MOX_CPU_NEON_INT_DOT_H
#define MOX_CPU_NEON_INT_DOT_H

#include "cpu/expert_gemm/neon/neon_dot.h"
#include "cpu/expert_gemm/neon/neon_fma.h"
#include "cpu/expert_gemm/neon/neon_limbs.h"

/* W of a unit: columns 0 4 1 5 and 2 6 3 7; of 8-bit weights 0 .. 3 and 4 .. 7. */
typedef struct neon_counts {
    int8x16_t of[2];
} neon_counts;

MOX_KERNEL_INLINE neon_counts neon_count(mox_neon_class decode, int8x16_t table, const uint8_t *step, int64_t q, int m,
                                         const uint32_t *zero)
{
    if (decode == MOX_NEON_QUADS) {
        const int8_t *at = (const int8_t *)step + 128 * q + 16 * m;
        return (neon_counts) { { veorq_s8(vld1q_s8(at), table), veorq_s8(vld1q_s8(at + 64), table) } };
    }
    const mox_neon_nibbles codes = mox_neon_split(vld1q_u8(step + 64 * q + 16 * m));
    neon_counts w = { { vqtbl1q_s8(table, codes.even), vqtbl1q_s8(table, codes.odd) } };
    for (int i = 0; i < 2 && decode == MOX_NEON_NIBBLES_ZEROS; i++)
        w.of[i] = vsubq_s8(w.of[i], vreinterpretq_s8_u32(vld1q_u32(zero + 4 * m))); /* zero - 16, as in the table */
    return w;
}

/* A step: where its W is, what its rows share. */
typedef struct neon_int_step {
    const mox_neon_job *j;
    const mox_neon_pos *pos;
    const uint8_t *codes;
    int64_t first; /* quarter of the codes */
    const uint32_t *zero;
} neon_int_step;

/* The sums of a step as floats, of weight rows 4m .. 4m+3. */
MOX_KERNEL_INLINE uint32x4_t neon_int_total(mox_neon_class decode, const neon_int_step *step, int m,
                                            const mox_neon_ends *ends, int32x4_t sum)
{
    if (decode == MOX_NEON_QUADS)
        sum = vmlsq_n_s32(sum, vreinterpretq_s32_u32(vld1q_u32(step->zero + 4 * m)), ends->sum);
    return vreinterpretq_u32_f32(vmulq_n_f32(vcvtq_f32_s32(sum), ends->unit));
}

/* R rows from `row` on, of L limbs. look_up: W is made of codes, not read from the slab. */
MOX_KERNEL_INLINE void neon_int_rows(bool look_up, mox_neon_class decode, int R, int L, const neon_int_step *step,
                                     int64_t row)
{
    const mox_neon_job *j = step->j;
    const int64_t cols = j->step_cols, row_bytes = cols * 4;
    const int8_t *limbs = mox_neon_limbs_at(j, step->pos->step, row);
    const mox_neon_sink first = mox_neon_sink_at(j, step->pos, 1, row);
    int32x4_t sum[MOX_NEON_ROWS][3][4];
    MOX_KERNEL_UNROLL
    for (int i = 0; i < 4 * R * L; i++)
        sum[i / 4 / L][i / 4 % L][i % 4] = vdupq_n_s32(0);
    for (int64_t q = 0; q < cols / 8; q += 2) {
        MOX_KERNEL_UNROLL
        for (int u = 0; u < 8; u++) {
            const int64_t at = q + u / 4;
            const int8_t *slab = (const int8_t *)j->sc.slab + 128 * at + 16 * (u % 4);
            neon_counts w;
            if (look_up)
                w = neon_count(decode, j->counts, step->codes, step->first + at, u % 4, step->zero);
            else
                w = (neon_counts) { { vld1q_s8(slab), vld1q_s8(slab + 64) } };
            MOX_KERNEL_UNROLL
            for (int i = 0; i < R * L; i++) {
                const int32x2_t x = vreinterpret_s32_s8(vld1_s8(limbs + i / L * row_bytes + i % L * cols + 8 * at));
                int32x4_t *to = &sum[i / L][i % L][u % 4];
                *to = mox_neon_dot(mox_neon_dot(*to, w.of[0], x, 0), w.of[1], x, 1);
            }
        }
    }
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++) {
        const mox_neon_sink sink = mox_neon_sink_on(&first, r);
        const mox_neon_ends *const ends = mox_neon_ends_at(j, limbs + r * row_bytes);
        uint32x4_t t[4];
        MOX_KERNEL_UNROLL
        for (int m = 0; m < 4; m++) {
            int32x4_t all = sum[r][0][m];
            if (L > 1)
                all = vaddq_s32(all, vshlq_n_s32(sum[r][1][m], 8));
            if (L > 2)
                all = vaddq_s32(all, vshlq_n_s32(sum[r][2][m], 16));
            t[m] = neon_int_total(decode, step, m, ends, all);
        }
        mox_neon_add(false, &sink, t);
    }
}

#ifdef __ARM_FEATURE_MATMUL_INT8

/* R rows of bytes from `row` on, 1 .. 4, by the slab's pairs of rows. */
MOX_KERNEL_INLINE void neon_int_pairs(mox_neon_class decode, int R, const neon_int_step *step, int64_t row)
{
    const mox_neon_job *j = step->j;
    const int64_t cols = j->step_cols, row_bytes = cols * 4;
    const int8_t *limbs = mox_neon_limbs_at(j, step->pos->step, row);
    const mox_neon_sink first = mox_neon_sink_at(j, step->pos, 1, row);
    int32x4_t sum[MOX_NEON_ROWS / 2][8];
    MOX_KERNEL_UNROLL
    for (int i = 0; i < 8 * ((R + 1) / 2); i++)
        sum[i / 8][i % 8] = vdupq_n_s32(0);
    for (int64_t q = 0; q < cols / 8; q++) {
        const int8_t *slab = (const int8_t *)j->sc.slab + 128 * q;
        int8x16_t xs[MOX_NEON_ROWS / 2];
        MOX_KERNEL_UNROLL
        for (int r = 0; r < R; r += 2)
            xs[r / 2] = mox_neon_row_pair(R, r, limbs + 8 * q, row_bytes);
        MOX_KERNEL_UNROLL
        for (int i = 0; i < 8; i++) {
            const int8x16_t two = vld1q_s8(slab + 16 * i);
            MOX_KERNEL_UNROLL
            for (int r = 0; r < (R + 1) / 2; r++)
                sum[r][i] = vmmlaq_s32(sum[r][i], xs[r], two);
        }
    }
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++) {
        const mox_neon_sink sink = mox_neon_sink_on(&first, r);
        const mox_neon_ends *const ends = mox_neon_ends_at(j, limbs + r * row_bytes);
        uint32x4_t t[4];
        MOX_KERNEL_UNROLL
        for (int m = 0; m < 4; m++)
            t[m] = neon_int_total(decode, step, m, ends, mox_neon_row_sums(sum[r / 2], r, m));
        mox_neon_add(false, &sink, t);
    }
}

/* Some of `like` rows of bytes; returns how many. */
MOX_KERNEL_INLINE int64_t neon_int_bytes(mox_neon_class decode, const neon_int_step *step, int64_t row, int64_t like)
{
    switch (like) {
    case 1: neon_int_pairs(decode, 1, step, row); break;
    case 2: neon_int_pairs(decode, 2, step, row); break;
    case 3: neon_int_pairs(decode, 3, step, row); break;
    default: neon_int_pairs(decode, MOX_NEON_ROWS, step, row); break;
    }
    return like;
}

#else

MOX_KERNEL_INLINE int64_t neon_int_bytes(mox_neon_class decode, const neon_int_step *step, int64_t row, int64_t like)
{
    if (like < MOX_NEON_ROWS) {
        neon_int_rows(false, decode, 1, 1, step, row);
        return 1;
    }
    neon_int_rows(false, decode, MOX_NEON_ROWS, 1, step, row);
    return MOX_NEON_ROWS;
}

#endif

static void neon_int_floats(const neon_int_step *step, int64_t row)
{
    const mox_neon_rows x = mox_neon_rows_at(NEON_ORDER, step->j, row);
    switch (step->j->decode) {
    case MOX_NEON_QUADS: neon_one_run(MOX_NEON_QUADS, step->j, step->pos, 1, row, &x); break;
    case MOX_NEON_NIBBLES_ZEROS: neon_one_run(MOX_NEON_NIBBLES_ZEROS, step->j, step->pos, 1, row, &x); break;
    default: neon_one_run(MOX_NEON_NIBBLES, step->j, step->pos, 1, row, &x); break;
    }
}

/* Rows from `row` on with W in the slab; returns how many it took. Neighbours with as many limbs are taken together. */
MOX_KERNEL_INLINE int64_t neon_int_some(bool bytes, mox_neon_class decode, const neon_int_step *step, int64_t row)
{
    const mox_neon_job *j = step->j;
    int64_t like = 1;
    const int32_t limbs = mox_neon_ends_at(j, mox_neon_limbs_at(j, step->pos->step, row))->limbs;
    while (like < MOX_NEON_ROWS && row + like < j->a->rows &&
           mox_neon_ends_at(j, mox_neon_limbs_at(j, step->pos->step, row + like))->limbs == limbs)
        like++;
    if (limbs == 0) {
        neon_int_floats(step, row);
        return 1;
    }
    if (bytes)
        return neon_int_bytes(decode, step, row, like);
    if (limbs == 3)
        neon_int_rows(false, decode, 1, 3, step, row);
    else if (like == 1)
        neon_int_rows(false, decode, 1, 2, step, row);
    else
        neon_int_rows(false, decode, 2, 2, step, row);
    return limbs == 2 && like > 1 ? 2 : 1;
}

MOX_KERNEL_INLINE void neon_int_one(bool bytes, mox_neon_class decode, const neon_int_step *step)
{
    const int32_t limbs = mox_neon_ends_at(step->j, mox_neon_limbs_at(step->j, step->pos->step, 0))->limbs;
    if (limbs == 0)
        neon_int_floats(step, 0);
    else if (bytes)
        neon_int_rows(true, decode, 1, 1, step, 0);
    else if (limbs == 2)
        neon_int_rows(true, decode, 1, 2, step, 0);
    else
        neon_int_rows(true, decode, 1, 3, step, 0);
}

/* Stores W of a unit in a quarter of the slab. */
MOX_KERNEL_INLINE void neon_int_put(bool bytes, int8_t *to, int m, neon_counts w)
{
#ifdef __ARM_FEATURE_MATMUL_INT8
    if (bytes) {
        mox_neon_put_pairs(to + 32 * m, w.of[0], w.of[1]);
        return;
    }
#endif
    (void)bytes;
    vst1q_s8(to + 16 * m, w.of[0]);
    vst1q_s8(to + 64 + 16 * m, w.of[1]);
}

MOX_KERNEL_INLINE void neon_int_fill(bool bytes, mox_neon_class decode, const neon_int_step *step)
{
    int8_t *to = (int8_t *)step->j->sc.slab;
    for (int64_t q = 0; q < step->j->step_cols / 8; q++, to += 128) {
        MOX_KERNEL_UNROLL
        for (int m = 0; m < 4; m++) {
            const neon_counts w = neon_count(decode, step->j->counts, step->codes, step->first + q, m, step->zero);
            neon_int_put(bytes, to, m, w);
        }
    }
}

MOX_KERNEL_INLINE void neon_int_panel(bool bytes, mox_neon_class decode, const mox_neon_job *j)
{
    for (mox_neon_pos pos = { 0 }; pos.step < j->steps; mox_neon_next(j, 1, &pos)) {
        neon_int_step step = { .j = j, .pos = &pos, .zero = j->zero + pos.group * MOX_PANEL_ROWS };
        step.codes = mox_neon_step(j, pos.step, &step.first);
        __builtin_prefetch(step.codes + MOX_NEON_PREFETCH_BYTES);
        if (j->a->rows == 1) {
            neon_int_one(bytes, decode, &step);
            continue;
        }
        neon_int_fill(bytes, decode, &step);
        for (int64_t row = 0; row < j->a->rows;)
            row += neon_int_some(bytes, decode, &step, row);
    }
}

static void neon_int_dot_panel(const mox_neon_job *j, bool bytes)
{
    const bool zeros = j->decode == MOX_NEON_NIBBLES_ZEROS;
    if (j->decode == MOX_NEON_QUADS)
        neon_int_panel(true, MOX_NEON_QUADS, j);
    else if (bytes && zeros)
        neon_int_panel(true, MOX_NEON_NIBBLES_ZEROS, j);
    else if (bytes)
        neon_int_panel(true, MOX_NEON_NIBBLES, j);
    else if (zeros)
        neon_int_panel(false, MOX_NEON_NIBBLES_ZEROS, j);
    else
        neon_int_panel(false, MOX_NEON_NIBBLES, j);
}

/* Prepares the integers of a call; false when floats are faster. Exact integers of two limbs are faster than floats for
 * any number of rows with SDOT, else only for rows that share no decoding. */
static bool neon_prepare_int_dot(mox_neon_job *j, bool bytes, moxie_dtype element)
{
    const bool zeros = j->decode == MOX_NEON_NIBBLES_ZEROS, quads = j->decode == MOX_NEON_QUADS;
    mox_panel_counts format = { .h = 1 };
    if (j->sc.limbs == NULL || j->a->rows > j->sc.max_rows || (!quads && !mox_panel_count(element, zeros, &format)))
        return false;
    j->counts =
        vsubq_s8(vreinterpretq_s8_u8(vld1q_u8(format.counts)), vdupq_n_s8((int8_t)(zeros ? 16 : format.offset)));
    if (quads)
        j->counts = vreinterpretq_s8_u8(j->tables.flip);
    if (!j->a->again)
        *j->sc.floats = mox_neon_put_rows(j, bytes, &format);
    return bytes || *j->sc.floats * 4 <= j->a->rows * j->steps * 3;
}

static void neon_multiply_any(bool bytes, const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel,
                              int panels, const mox_panel_rows *a, float *c, void *scratch)
{
    const uint64_t before = mox_neon_control();
    mox_neon_job j;
    mox_neon_prepare(NEON_ORDER, bytes, &j, m, weight, a, scratch);
    const bool integers = neon_prepare_int_dot(&j, bytes, weight->element);
    for (int p = 0; p < panels; p++) {
        mox_neon_open_panel(&j, weight, panel + p, c + p * MOX_PANEL_ROWS);
        mox_neon_set_control(before | MOX_NEON_FLUSH);
        if (integers)
            neon_int_dot_panel(&j, bytes);
        else
            neon_panel(&j);
        mox_neon_set_control(before);
    }
}

#ifndef __ARM_FEATURE_MATMUL_INT8 /* which exact integers do not use */

static void neon_multiply_fma(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,
                              const mox_panel_rows *a, float *c, void *scratch)
{
    neon_multiply_any(false, m, weight, panel, panels, a, c, scratch);
}

#endif

static void neon_multiply_bytes(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,
                                const mox_panel_rows *a, float *c, void *scratch)
{
    neon_multiply_any(true, m, weight, panel, panels, a, c, scratch);
}

#endif
