/* SPDX-License-Identifier: Apache-2.0
 *
 * panel_neon.h - what the NEON kernels of expert_gemm share: decoding the codes of a step, and the loop over the steps
 * and segments of a panel.
 *
 *     for each step:   codes -> lines (once)
 *                      for each row of activations:  lines x activations -> 16 sums -> added to part
 *     segment end:     part -> [* sa] -> fma(part, sw, c)
 *
 *     lines  [line][16] of 32 bits, lane n for row n of the panel:
 *            pair lines   bf16 of (column 2j, column 2j+1), 16 a step. A shift or a mask makes them fp32; BFMLALB and
 *                         BFMLALT multiply them as they are
 *            quad lines   int8 of columns 4q .. 4q+3, 8 a step: what SDOT multiplies
 *
 * A step has 16 columns when the weights' groups have 16, else 32. The files differ in how they make 16 sums
 * (mox_neon_sums_fn) and are compiled for the instructions this needs; the loop is inlined into each.
 *
 * fp32 sums follow "FMA_STEPS" (panel_kernel.h) with FPCR.FZ set. (Arm flushes a result that is subnormal before
 * rounding, x86 one that is subnormal after it. So a result that rounds up to the least normal number is 0 here.)
 *
 * Sources: Arm Architecture Reference Manual for A-profile (FPCR; TBL, TRN1, SRI, BFMLALB, SDOT).
 */
#ifndef MOX_CPU_PANEL_NEON_H
#define MOX_CPU_PANEL_NEON_H

#include <arm_neon.h>

#include "base/carver.h"
#include "base/sizes.h"
#include "cpu/expert_gemm/panel_activations.h"
#include "cpu/expert_gemm/panel_scales.h"
#include "pack/panel/element_traits.h"

#define MOX_NEON_LINES 16 /* upper limit for a step */

/* Multiplies one row of activations x by `count` lines and stores the 16 sums to t, as the bits of f32 or i32. */
typedef void (*mox_neon_sums_fn)(const uint32_t *restrict lines, int64_t count, const void *restrict x,
                                 uint32x4_t t[4]);

/* What an instance of the loop is made for; all constants. */
typedef struct mox_neon_variant {
    mox_act_order order; /* I8: quad lines and sums in i32; else pair lines and sums in f32 */
    mox_neon_sums_fn sums;
} mox_neon_variant;

/* ---- codes to lines ------------------------------------------------------------------------------ */

typedef struct mox_neon_decoder {
    mox_panel_order order;
    uint8x16_t low, high; /* NIBBLES: lower and upper byte of the bf16, by code */
    uint8x16_t flip;      /* QUADS: bits to flip, so that the code is two's complement */
} mox_neon_decoder;

static inline mox_neon_decoder mox_neon_decoder_of(moxie_dtype element)
{
    mox_neon_decoder d = { .order = mox_panel_order_of(element) };
    d.low = d.high = vdupq_n_u8(0);
    d.flip = vdupq_n_u8(mox_element_sign_bits(element) ^ 0x80);
    if (d.order == MOX_PANEL_NIBBLES) {
        const float *values = mox_format_table(element);
        uint8_t bytes[2][16];
        for (int i = 0; i < 16; i++) {
            uint32_t bits;
            memcpy(&bits, &values[i], sizeof bits);
            bytes[0][i] = (uint8_t)(bits >> 16);
            bytes[1][i] = (uint8_t)(bits >> 24);
        }
        d.low = vld1q_u8(bytes[0]);
        d.high = vld1q_u8(bytes[1]);
    }
    return d;
}

/* Decodes one register of nibbles to four rows of four pair lines. The bytes of a lane hold columns (0, 2) (4, 6) (1,
 * 3) (5, 7) of its quarter, low nibble first. So the results for bytes 0 and 2 make a pair, and those for 1 and 3. */
static inline void mox_neon_nibbles(const mox_neon_decoder *d, uint8x16_t codes, uint32_t *lines)
{
    const uint8x16_t even = vandq_u8(codes, vdupq_n_u8(0x0f)), odd = vshrq_n_u8(codes, 4);
    const uint8x16_t even_low = vqtbl1q_u8(d->low, even), even_high = vqtbl1q_u8(d->high, even);
    const uint8x16_t odd_low = vqtbl1q_u8(d->low, odd), odd_high = vqtbl1q_u8(d->high, odd);
    vst1q_u32(lines, vreinterpretq_u32_u8(vtrn1q_u8(even_low, even_high)));
    vst1q_u32(lines + 16, vreinterpretq_u32_u8(vtrn1q_u8(odd_low, odd_high)));
    vst1q_u32(lines + 32, vreinterpretq_u32_u8(vtrn2q_u8(even_low, even_high)));
    vst1q_u32(lines + 48, vreinterpretq_u32_u8(vtrn2q_u8(odd_low, odd_high)));
}

/* Byte b of each lane as a float. */
static inline uint32x4_t mox_neon_byte(int8x16_t codes, int b)
{
    const int32x4_t top = vshlq_s32(vreinterpretq_s32_s8(codes), vdupq_n_s32(24 - 8 * b));
    return vreinterpretq_u32_f32(vcvtq_f32_s32(vshrq_n_s32(top, 24)));
}

/* Decodes one register of bytes to four rows of two pair lines. 8-bit integers are exact in bf16. */
static inline void mox_neon_bytes(int8x16_t codes, uint32_t *lines)
{
    for (int i = 0; i < 2; i++)
        vst1q_u32(lines + 16 * i, vsriq_n_u32(mox_neon_byte(codes, 2 * i + 1), mox_neon_byte(codes, 2 * i), 16));
}

/* Decodes `quarters` quarters of the step at `step`, from quarter `first` on, to pair lines. */
static inline void mox_neon_pairs(const mox_neon_decoder *d, const uint8_t *step, int64_t first, int64_t quarters,
                                  uint32_t *lines)
{
    for (int64_t q = first; q < first + quarters; q++, lines += 4 * 16)
        for (int m = 0; m < 4; m++) {
            if (d->order == MOX_PANEL_NIBBLES)
                mox_neon_nibbles(d, vld1q_u8(step + 64 * q + 16 * m), lines + 4 * m);
            for (int i = 0; i < 2 && d->order == MOX_PANEL_QUADS; i++) {
                const uint8x16_t codes = veorq_u8(vld1q_u8(step + 64 * (2 * q + i) + 16 * m), d->flip);
                mox_neon_bytes(vreinterpretq_s8_u8(codes), lines + 32 * i + 4 * m);
            }
            for (int i = 0; i < 4 && d->order == MOX_PANEL_PAIRS; i++)
                memcpy(lines + 16 * i + 4 * m, step + 64 * (4 * q + i) + 16 * m, 16);
        }
}

/* The same to quad lines. */
static inline void mox_neon_quads(const mox_neon_decoder *d, const uint8_t *step, int64_t first, int64_t quarters,
                                  uint32_t *lines)
{
    for (int64_t i = 8 * first; i < 8 * (first + quarters); i++, lines += 4)
        vst1q_u32(lines, vreinterpretq_u32_u8(veorq_u8(vld1q_u8(step + 16 * i), d->flip)));
}

/* ---- steps and segments ------------------------------------------------------------------------------------ */

typedef struct mox_neon_job {
    const mox_panel_matrix *matrix;
    const mox_panel_rows *a;
    mox_neon_decoder decoder;
    bool scaled; /* weights have scales */
    int64_t step_cols, steps, group_steps, act_steps, segment_steps;
    float *scale;   /* [2][groups][16] */
    uint32_t *part; /* [rows][16]: sums of the current segment */
} mox_neon_job;

static inline int64_t mox_neon_steps_of(const mox_neon_job *j, int64_t cols)
{
    return mox_min_i64(mox_ceil_div(cols, j->step_cols), j->steps);
}

static inline void mox_neon_prepare(mox_neon_job *j, const mox_panel_matrix *m, const moxie_quant *weight,
                                    int64_t panel, int panels, const mox_panel_rows *a, void *scratch)
{
    const bool by_16 = m->groups > 1 && m->group_cols == MOX_PANEL_STEP / 2;
    mox_carver carver = mox_carver_of(scratch);
    mox_neon_scratch sc;
    mox_neon_lay_out(&carver, m->groups, &sc);
    *j = (mox_neon_job) {
        .matrix = m, .a = a, .decoder = mox_neon_decoder_of(weight->element), .scale = sc.scale, .part = sc.part
    };
    j->scaled = m->scale_lanes > 0;
    j->step_cols = by_16 ? MOX_PANEL_STEP / 2 : MOX_PANEL_STEP;
    j->steps = mox_ceil_div(m->cols, j->step_cols);
    j->group_steps = m->groups > 1 ? mox_neon_steps_of(j, m->group_cols) : j->steps;
    j->act_steps = a->scales != NULL ? mox_neon_steps_of(j, a->group_cols) : j->steps;
    j->segment_steps = mox_min_i64(j->group_steps, j->act_steps);
    for (int p = 0; p < panels; p++)
        mox_panel_scales(m, weight->scale, panel + p, j->scale + p * m->groups * MOX_PANEL_ROWS);
}

/* Ends the segment whose last step is s: adds part [16] of one row to c [16]. */
static inline void mox_neon_add_segment(const mox_neon_job *j, bool integers, int64_t s, int64_t row,
                                        const float *scale, float *c)
{
    const uint32_t *part = j->part + row * MOX_PANEL_ROWS;
    const float *sw = scale + s / j->group_steps * MOX_PANEL_ROWS;
    const float *sa = j->a->scales != NULL ? j->a->scales + row * j->a->scale_stride + s / j->act_steps : NULL;
    for (int m = 0; m < 16; m += 4) {
        const uint32x4_t bits = vld1q_u32(part + m);
        float32x4_t total = integers ? vcvtq_f32_s32(vreinterpretq_s32_u32(bits)) : vreinterpretq_f32_u32(bits);
        if (sa != NULL)
            total = vmulq_n_f32(total, *sa);
        if (sa != NULL || j->scaled)
            total = vfmaq_f32(s < j->segment_steps ? vdupq_n_f32(0.0f) : vld1q_f32(c + m), total, vld1q_f32(sw + m));
        vst1q_f32(c + m, total);
    }
}

static inline void mox_neon_add_sums(bool integers, bool first, const uint32x4_t t[4], uint32_t *part)
{
    for (int m = 0; m < 4; m++) {
        const uint32x4_t before = first ? vdupq_n_u32(0) : vld1q_u32(part + 4 * m);
        vst1q_u32(part + 4 * m, integers ? vaddq_u32(before, t[m])
                                         : vreinterpretq_u32_f32(
                                               vaddq_f32(vreinterpretq_f32_u32(before), vreinterpretq_f32_u32(t[m]))));
    }
}

/* One panel. `codes`, `scale` and `c` [rows][32] point to its own. */
static inline __attribute__((always_inline)) void mox_neon_panel(mox_neon_variant variant, const mox_neon_job *j,
                                                                 const uint8_t *codes, const float *scale, float *c)
{
    const bool integers = variant.order == MOX_ACT_ORDER_I8;
    const int64_t quarters = j->step_cols / 8, count = integers ? 2 * quarters : 4 * quarters;
    uint32_t lines[MOX_NEON_LINES * MOX_PANEL_ROWS];
    for (int64_t s = 0; s < j->steps; s++) {
        const int64_t col = s * j->step_cols, begin = col % MOX_PANEL_STEP / 8;
        const uint8_t *step = codes + (uint64_t)(col / MOX_PANEL_STEP) * j->matrix->step_bytes;
        const bool first = s % j->segment_steps == 0;
        const bool last = (s + 1) % j->segment_steps == 0 || s + 1 == j->steps;
        if (integers)
            mox_neon_quads(&j->decoder, step, begin, quarters, lines);
        else
            mox_neon_pairs(&j->decoder, step, begin, quarters, lines);
        for (int64_t r = 0; r < j->a->rows; r++) {
            uint32x4_t t[4];
            variant.sums(
                lines, count,
                mox_act_order_at(variant.order, (void *)(uintptr_t)j->a->data, j->a->rows, j->matrix->cols, r, col), t);
            mox_neon_add_sums(integers, first, t, j->part + r * MOX_PANEL_ROWS);
            if (last)
                mox_neon_add_segment(j, integers, s, r, scale, c + r * 2 * MOX_PANEL_ROWS);
        }
    }
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

/* The body of a mox_panel_multiply_fn. */
static inline __attribute__((always_inline)) void mox_neon_multiply(mox_neon_variant variant, const mox_panel_matrix *m,
                                                                    const moxie_quant *weight, int64_t panel,
                                                                    int panels, const mox_panel_rows *a, float *c,
                                                                    void *scratch)
{
    const uint64_t flush_to_zero = 1 << 24, before = mox_neon_control();
    mox_neon_job j;
    mox_neon_prepare(&j, m, weight, panel, panels, a, scratch);
    mox_neon_set_control(before | flush_to_zero);
    for (int p = 0; p < panels; p++)
        mox_neon_panel(variant, &j, m->panels + (uint64_t)(panel + p) * m->panel_bytes,
                       j.scale + p * m->groups * MOX_PANEL_ROWS, c + p * MOX_PANEL_ROWS);
    mox_neon_set_control(before);
}

#endif
