/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_int8_amx.c - kernel amx_int8: i8 weights times int8 activations, exact in int32.
 *
 *     step      A tile [rows, 64 columns] x B tile [16 quad lines of a panel: two steps of 32] -> C tile [rows, 16] i32
 *     segment   C from zero over its steps, stored, then  sum[r] = fma(f32(C[r]) * sa[r], sw, sum[r])
 *
 * A panel's quad lines are what TDPBSSD reads, so nothing is decoded. When the number of 32-column steps is odd, the
 * last one is completed with zeros in scratch. The loops are those of amx_bf16 (amx_square.h).
 */
#include "cpu/expert_gemm/amx/amx_plan.h"

#if defined(__AMX_INT8__) && defined(__AMX_BF16__) && defined(__AVX512VBMI__) && defined(__AVX512FP16__)

#include "cpu/expert_gemm/amx/amx_square.h"
#include "cpu/expert_gemm/panel_scales.h"

enum { STEP = MOX_AMX_I8_STEP, STEP_BYTES = MOX_AMX_I8_STEP_BYTES };

/* The record holds lines, as it does for weights of bf16. */
static const mox_amx_variant VARIANT = { MOXIE_BF16, false, MOX_AMX_SCALE_PER_SEGMENT, .ints = true };

static int64_t steps_of(int64_t cols, int64_t steps)
{
    return mox_min_i64(mox_ceil_div(cols, STEP), steps);
}

/* The last step with zeros behind the panel's columns; NULL: the panel's own is whole. */
static const uint8_t *complete(const uint8_t *codes, int64_t held, int64_t steps, uint8_t *last)
{
    const int64_t before = (steps - 1) * STEP_BYTES;
    if (held == steps * STEP_BYTES)
        return NULL;
    memset(last, 0, STEP_BYTES);
    memcpy(last, codes + before, (size_t)(held - before));
    return last;
}

static void open_panel(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels, int64_t steps,
                       float *scale, uint8_t *last, mox_amx_stream *out)
{
    const uint8_t *codes = m->panels + (uint64_t)panel * m->panel_bytes;
    const uint8_t *next = codes + (uint64_t)panels * m->panel_bytes;
    mox_panel_scales(m, weight->scale, panel, scale);
    *out = (mox_amx_stream) { .codes = codes,
                              .next = next - steps * STEP_BYTES,
                              .next_scales = next + m->scale_at,
                              .scale = scale,
                              .lines = (uint8_t *)(uintptr_t)codes,
                              .last = complete(codes, m->steps * (int64_t)m->step_bytes, steps, last) };
}

static void multiply(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,
                     const mox_panel_rows *a, float *c, void *scratch)
{
    const int64_t steps = mox_ceil_div(m->cols, STEP);
    mox_carver carver = mox_carver_of(scratch);
    mox_amx_int8_scratch sc;
    mox_amx_int8_lay_out(&carver, m->groups, &sc);
    mox_amx_job j = { .a = a->data,
                      .a_scales = a->scales,
                      .rows = a->rows,
                      .a_scale_stride = a->scale_stride,
                      .panels = panels,
                      .steps = steps,
                      .step_bytes = STEP_BYTES,
                      .scale_lines = (int64_t)(m->panel_bytes - m->scale_at) / 64,
                      .slots = INT64_MAX,
                      .block = a->rows > 32 ? MOX_AMX_BLOCK_STEPS : steps,
                      .group_steps = steps_of(m->group_cols, steps),
                      .act_steps = a->scales != NULL ? steps_of(a->group_cols, steps) : steps,
                      .scaled = true,
                      .buffer = sc.buffer,
                      .pending = sc.pending,
                      .c = c };
    j.segment_steps = mox_min_i64(j.group_steps, j.act_steps);
    j.segments = mox_ceil_div(steps, j.segment_steps);
    for (int p = 0; p < panels; p++)
        open_panel(m, weight, panel + p, panels, steps, sc.scale[p], sc.last[p], &j.panel[p]);
    if (panels == 1)
        j.panel[1] = j.panel[0];
    const unsigned mxcsr = _mm_getcsr();
    _mm_setcsr(mxcsr | MOX_FLUSH_SUBNORMALS);
    mox_amx_all_square(VARIANT, true, &j);
    _tile_release();
    _mm_setcsr(mxcsr);
}

const mox_panel_multiply_fn mox_amx_int8_multiply = multiply;

#else

const mox_panel_multiply_fn mox_amx_int8_multiply = NULL;

#endif
