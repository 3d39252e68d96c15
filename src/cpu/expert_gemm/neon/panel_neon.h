/* SPDX-License-Identifier: Apache-2.0
 *
 * panel_neon.h - what the NEON kernels of expert_gemm share: where steps and activations lie, segments, and what a call
 * does first. neon_loops.h has the loops over the steps.
 *
 *     sink         sum of the segment so far; at its end:  [* sa] -> fma(sum, sw, c)
 *
 * A step has 16 columns when the weights' groups have 16, else 32.
 *
 * fp32 is rounded to nearest with FPCR.FZ set. (Arm flushes a result that is subnormal before rounding, x86 one that is
 * subnormal after it. So a result that rounds up to the least normal number is 0 here.)
 */
#ifndef MOX_CPU_PANEL_NEON_H
#define MOX_CPU_PANEL_NEON_H

#include "base/sizes.h"
#include "cpu/expert_gemm/neon/neon_decode.h"
#include "cpu/expert_gemm/panel_activations.h"
#include "cpu/expert_gemm/panel_scales.h"

/* Rows of activations in one tile. Column k of row r: at + r * row + k / width * next + (k % width) * bytes. */
typedef struct mox_neon_rows {
    const uint8_t *at;
    int64_t row, next;
} mox_neon_rows;

/* Column `col` of the first row. */
MOX_KERNEL_INLINE const uint8_t *mox_neon_x(mox_act_order order, const mox_neon_rows *x, int64_t col)
{
    switch (order) {
    case MOX_ACT_ORDER_BF16: return x->at + col / 32 * x->next + col % 32 * 2;
    case MOX_ACT_ORDER_I8: return x->at + col / 64 * x->next + col % 64;
    default: return x->at + col * 4;
    }
}

typedef struct mox_neon_job {
    const mox_panel_matrix *matrix;
    const mox_panel_rows *a;
    moxie_dtype element; /* of the weights */
    mox_neon_class decode;
    mox_neon_tables tables;
    bool scaled; /* weights have scales */
    int64_t step_cols, steps, group_steps, act_steps, segment_steps, segments;
    mox_neon_scratch sc;
    int8x16_t counts; /* of neon_int_dot.h: W by nibble; of 8-bit weights, what is flipped */
    /* of the panel at hand */
    const uint8_t *codes;
    const float *scale;
    const uint32_t *zero;
    float *c; /* [rows][32] */
} mox_neon_job;

static inline mox_neon_rows mox_neon_rows_at(mox_act_order order, const mox_neon_job *j, int64_t row)
{
    const uint8_t *at = mox_act_order_at(order, (void *)(uintptr_t)j->a->data, j->a->rows, j->matrix->cols, row, 0);
    if (order == MOX_ACT_ORDER_F32)
        return (mox_neon_rows) { at, (int64_t)mox_act_order_row_bytes(order, j->matrix->cols), 0 };
    return (mox_neon_rows) { at, 64, mox_min_i64(16, j->a->rows - row / 16 * 16) * 64 };
}

/* Where step s of the panel begins; a step of 16 columns is half a step of the layout. */
MOX_KERNEL_INLINE const uint8_t *mox_neon_step(const mox_neon_job *j, int64_t s, int64_t *quarter)
{
    const int64_t col = s * j->step_cols;
    *quarter = col % MOX_PANEL_STEP / 8;
    return j->codes + (uint64_t)(col / MOX_PANEL_STEP) * j->matrix->step_bytes;
}

/* ---- segments --------------------------------------------------------------------------------------------------- */

/* The place of a step: its groups and segment, and how many steps of them come before it. */
typedef struct mox_neon_pos {
    int64_t step, group, act_group, segment;
    int64_t in_group, in_act, in_segment;
} mox_neon_pos;

/* Steps of the run that begins at `at`: at most `run`, whose multiples it does not cross. */
MOX_KERNEL_INLINE int64_t mox_neon_run_steps(const mox_neon_job *j, int64_t run, const mox_neon_pos *at)
{
    const int64_t most = mox_min_i64(run - at->step % run, j->segment_steps - at->in_segment);
    return mox_min_i64(most, j->steps - at->step);
}

/* Past the run of `steps` steps. */
MOX_KERNEL_INLINE void mox_neon_next(const mox_neon_job *j, int64_t steps, mox_neon_pos *at)
{
    at->step += steps;
    at->in_segment += steps;
    at->in_group += steps;
    at->in_act += steps;
    if (at->in_segment == j->segment_steps)
        at->in_segment = 0, at->segment++;
    if (at->in_group == j->group_steps)
        at->in_group = 0, at->group++;
    if (at->in_act == j->act_steps)
        at->in_act = 0, at->act_group++;
}

/* What the sums of a run are added to, for one row of activations. */
typedef struct mox_neon_sink {
    bool ends, scaled;    /* the segment ends; it has scales */
    const uint32_t *from; /* the segment's sum so far, or zeros */
    const float *scale, *act;
    const uint32_t *zero;
    const int32_t *sums;
    uint32_t *part;
    float *c;
    int64_t from_step, act_step, sums_step; /* to the next row */
} mox_neon_sink;

MOX_KERNEL_INLINE mox_neon_sink mox_neon_sink_at(const mox_neon_job *j, const mox_neon_pos *at, int64_t steps,
                                                 int64_t row)
{
    static const uint32_t none[MOX_PANEL_ROWS];
    static const float one = 1.0f;
    const mox_panel_rows *a = j->a;
    const bool begins = at->in_segment == 0, acts = a->scales != NULL;
    uint32_t *part = j->sc.part + row * MOX_PANEL_ROWS;
    return (mox_neon_sink) { .ends = at->in_segment + steps == j->segment_steps || at->step + steps == j->steps,
                             .scaled = j->scaled || acts,
                             .from = begins ? none : part,
                             .scale = j->scale + at->group * MOX_PANEL_ROWS,
                             .act = acts ? a->scales + row * a->scale_stride + at->act_group : &one,
                             .zero = j->zero + at->group * MOX_PANEL_ROWS,
                             .sums = j->sc.sums != NULL ? j->sc.sums + row * j->segments + at->segment : NULL,
                             .part = part,
                             .c = j->c + row * 2 * MOX_PANEL_ROWS,
                             .from_step = begins ? 0 : MOX_PANEL_ROWS,
                             .act_step = acts ? a->scale_stride : 0,
                             .sums_step = j->segments };
}

/* The sink `rows` rows on. (One that is made from the job again would load all of it after every store to c.) */
MOX_KERNEL_INLINE mox_neon_sink mox_neon_sink_on(const mox_neon_sink *first, int64_t rows)
{
    mox_neon_sink sink = *first;
    sink.from += rows * sink.from_step;
    sink.act += rows * sink.act_step;
    sink.part += rows * MOX_PANEL_ROWS;
    sink.c += rows * 2 * MOX_PANEL_ROWS;
    if (sink.sums != NULL)
        sink.sums += rows * sink.sums_step;
    return sink;
}

/* The segment's sum with that of a run, for 4 rows of the panel. */
MOX_KERNEL_INLINE uint32x4_t mox_neon_sum(bool integers, const mox_neon_sink *k, int m, uint32x4_t t)
{
    const uint32x4_t from = vld1q_u32(k->from + 4 * m);
    if (integers)
        return vaddq_u32(from, t);
    return vreinterpretq_u32_f32(vaddq_f32(vreinterpretq_f32_u32(from), vreinterpretq_f32_u32(t)));
}

/* The finished sum of a segment as f32, before scales. */
MOX_KERNEL_INLINE float32x4_t mox_neon_total(bool integers, const mox_neon_sink *k, int m, uint32x4_t sum)
{
    if (!integers)
        return vreinterpretq_f32_u32(sum);
    if (k->sums != NULL)
        sum = vmlsq_n_u32(sum, vld1q_u32(k->zero + 4 * m), (uint32_t)*k->sums);
    return vcvtq_f32_s32(vreinterpretq_s32_u32(sum));
}

/* Adds sums t of one row, where the segment is i32 or f32. c was zero; its first fma gives what the order says. */
MOX_KERNEL_INLINE void mox_neon_add(bool integers, const mox_neon_sink *k, const uint32x4_t t[4])
{
    uint32x4_t sum[4];
    MOX_KERNEL_UNROLL
    for (int m = 0; m < 4; m++)
        sum[m] = mox_neon_sum(integers, k, m, t[m]);
    if (!k->ends) {
        MOX_KERNEL_UNROLL
        for (int m = 0; m < 4; m++)
            vst1q_u32(k->part + 4 * m, sum[m]);
        return;
    }
    MOX_KERNEL_UNROLL
    for (int m = 0; m < 4; m++) {
        float32x4_t total = mox_neon_total(integers, k, m, sum[m]);
        if (k->scaled)
            total = vfmaq_f32(vld1q_f32(k->c + 4 * m), vmulq_n_f32(total, *k->act), vld1q_f32(k->scale + 4 * m));
        vst1q_f32(k->c + 4 * m, total);
    }
}

/* ---- a call ----------------------------------------------------------------------------------------------------- */

static inline int64_t mox_neon_steps_of(const mox_neon_job *j, int64_t cols)
{
    return mox_min_i64(mox_ceil_div(cols, j->step_cols), j->steps);
}

/* Zero points as decoders want them. NIBBLES: zero - 16 in four bytes; QUADS: a number that is subtracted. */
static inline void mox_neon_zeros(mox_neon_class decode, const mox_panel_matrix *m, int64_t panel, uint32_t *out)
{
    const uint8_t *zeros = m->panels + (uint64_t)panel * m->panel_bytes + m->zero_at;
    for (int64_t i = 0; i < m->groups * MOX_PANEL_ROWS; i++) {
        const uint32_t zero = m->zero_at != 0 ? zeros[i] : 128;
        out[i] = decode == MOX_NEON_QUADS ? zero - 128 : (zero - 16) % 256 * 0x01010101u;
    }
}

/* Sums of int8 activations over each segment. */
static inline void mox_neon_sum_rows(const mox_neon_job *j)
{
    for (int64_t r = 0; r < j->a->rows && !j->a->again; r++) {
        const mox_neon_rows x = mox_neon_rows_at(MOX_ACT_ORDER_I8, j, r);
        for (int64_t g = 0; g < j->segments; g++) {
            const int64_t end = mox_min_i64((g + 1) * j->segment_steps, j->steps);
            int32_t sum = 0;
            for (int64_t s = g * j->segment_steps; s < end; s++) {
                const int8_t *codes = (const int8_t *)mox_neon_x(MOX_ACT_ORDER_I8, &x, s * j->step_cols);
                for (int64_t k = 0; k < j->step_cols; k++)
                    sum += codes[k];
            }
            j->sc.sums[r * j->segments + g] = sum;
        }
    }
}

/* bytes: for kernel neon_bytes. */
static inline void mox_neon_prepare(mox_act_order order, bool bytes, mox_neon_job *j, const mox_panel_matrix *m,
                                    const moxie_quant *weight, const mox_panel_rows *a, void *scratch)
{
    const bool by_16 = m->groups > 1 && m->group_cols == MOX_PANEL_STEP / 2;
    mox_carver carver = mox_carver_of(scratch);
    *j = (mox_neon_job) {
        .matrix = m, .a = a, .element = weight->element, .decode = mox_neon_class_of(weight->element, m->zero_at != 0)
    };
    j->tables = mox_neon_tables_of(j->decode, weight->element);
    j->scaled = m->scale_lanes > 0;
    j->step_cols = by_16 ? MOX_PANEL_STEP / 2 : MOX_PANEL_STEP;
    j->steps = mox_ceil_div(m->cols, j->step_cols);
    j->group_steps = m->groups > 1 ? mox_neon_steps_of(j, m->group_cols) : j->steps;
    j->act_steps = a->scales != NULL ? mox_neon_steps_of(j, a->group_cols) : j->steps;
    j->segment_steps = mox_min_i64(j->group_steps, j->act_steps);
    j->segments = mox_ceil_div(j->steps, j->segment_steps);
    const bool sums = order == MOX_ACT_ORDER_I8 && m->zero_at != 0;
    mox_neon_sizes sizes = { .groups = m->groups, .segments = sums ? j->segments : 0 };
    if (order == MOX_ACT_ORDER_F32)
        sizes = mox_neon_float_sizes(bytes, weight->element, m->cols, m->groups);
    mox_neon_lay_out(&carver, &sizes, &j->sc);
    if (sums)
        mox_neon_sum_rows(j);
}

static inline void mox_neon_open_panel(mox_neon_job *j, const moxie_quant *weight, int64_t panel, float *c)
{
    const mox_panel_matrix *m = j->matrix;
    j->codes = m->panels + (uint64_t)panel * m->panel_bytes;
    j->scale = j->sc.scale;
    j->zero = j->sc.zero;
    j->c = c;
    for (int64_t r = 0; r < j->a->rows; r++)
        memset(c + r * 2 * MOX_PANEL_ROWS, 0, MOX_PANEL_ROWS * sizeof *c);
    mox_panel_scales(m, weight->scale, panel, j->sc.scale);
    if (j->decode == MOX_NEON_QUADS || j->decode == MOX_NEON_NIBBLES_ZEROS)
        mox_neon_zeros(j->decode, m, panel, j->sc.zero);
}

static inline uint64_t mox_neon_control(void)
{
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    return fpcr;
}

static inline void mox_neon_set_control(uint64_t fpcr)
{
    __asm__ volatile("msr fpcr, %0" ::"r"(fpcr) : "memory");
}

#define MOX_NEON_FLUSH ((uint64_t)1 << 24) /* FPCR.FZ */

#endif
