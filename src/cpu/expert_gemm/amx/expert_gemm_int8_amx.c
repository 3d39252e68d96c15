/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_int8_amx.c - kernel amx_int8: i8 weights times int8 activations, exact in int32.
 *
 *     step      A tile [rows, 64 columns] x B tile [16 quad lines of a panel: two steps of 32] -> C tile [rows, 16] i32
 *     segment   C from zero over its steps, stored, then  sum[r] = fma(f32(C[r]) * sa[r], sw, sum[r])
 *
 * A panel's quad lines are what TDPBSSD reads, so nothing is decoded. When the number of 32-column steps is odd, the
 * last one is completed with zeros in scratch. Two tiles of rows by two panels are multiplied at once; sums lie in c
 * (panel_kernel.h).
 */
#include "cpu/expert_gemm/amx/amx_plan.h"

#if defined(__AMX_INT8__) && defined(__AVX512VBMI__)

#include <immintrin.h>

#include "cpu/expert_gemm/amx/amx_tiles.h"
#include "cpu/expert_gemm/panel_scales.h"

enum { TILE = MOX_AMX_TILE_FLOATS, STEP = MOX_AMX_I8_STEP, STEP_BYTES = MOX_AMX_I8_STEP_BYTES, PREFETCH_BYTES = 8192 };

typedef struct job {
    const mox_panel_rows *a;
    const uint8_t *codes[2];
    const float *scale[2];  /* [groups][16] */
    const uint8_t *last[2]; /* the last step, complete */
    int panels;
    int64_t steps, segment_steps, segments; /* of 64 columns */
    int64_t group_steps, act_steps;
    int32_t *buffer; /* [4][16][16] */
    float *c;
} job;

static const uint8_t *lines_of(const job *j, int p, int64_t s)
{
    return s + 1 < j->steps ? j->codes[p] + s * STEP_BYTES : j->last[p];
}

static void step(const uint8_t *a0, const uint8_t *a1, const uint8_t *b0, const uint8_t *b1)
{
    MOX_FENCE();
    _tile_loadd(4, a0, 64);
    _tile_loadd(5, b0, 64);
    _tile_dpbssd(0, 4, 5);
    if (a1 != NULL) {
        _tile_loadd(7, a1, 64);
        _tile_dpbssd(2, 7, 5);
    }
    if (b1 != NULL) {
        _tile_loadd(5, b1, 64);
        _tile_dpbssd(1, 4, 5);
        if (a1 != NULL)
            _tile_dpbssd(3, 7, 5);
    }
    _tile_zero(4);
    _tile_zero(5);
    if (a1 != NULL)
        _tile_zero(7);
    MOX_FENCE();
}

static void prefetch(const job *j, int64_t s)
{
    for (int p = 0; p < j->panels; p++)
        for (int i = 0; i < STEP_BYTES; i += 64)
            _mm_prefetch((const char *)j->codes[p] + s * STEP_BYTES + PREFETCH_BYTES + i, _MM_HINT_T0);
}

/* sum = fma(f32(C) * sa, sw, sum) */
static void add(const job *j, int p, int64_t row, int64_t rows, const int32_t *tile, int64_t segment)
{
    const __m512 scale = _mm512_load_ps(j->scale[p] + segment * j->segment_steps / j->group_steps * MOX_PANEL_ROWS);
    for (int64_t r = 0; r < rows; r++) {
        float *c = j->c + (row + r) * 32 + p * 16;
        __m512 part = _mm512_cvtepi32_ps(_mm512_load_si512(tile + r * 16));
        if (j->a->scales != NULL)
            part = _mm512_mul_ps(
                part, _mm512_set1_ps(
                          j->a->scales[(row + r) * j->a->scale_stride + segment * j->segment_steps / j->act_steps]));
        const __m512 before = segment == 0 ? _mm512_setzero_ps() : _mm512_load_ps(c);
        _mm512_store_ps(c, _mm512_fmadd_ps(part, scale, before));
    }
}

static void end_segment(const job *j, int64_t row, int64_t high, int64_t low, int64_t segment)
{
    int32_t *buffer = j->buffer;
    MOX_FENCE();
    MOX_TILE_STORE(0, buffer);
    if (j->panels == 2)
        MOX_TILE_STORE(1, buffer + TILE);
    if (low > 0) {
        MOX_TILE_STORE(2, buffer + 2 * TILE);
        if (j->panels == 2)
            MOX_TILE_STORE(3, buffer + 3 * TILE);
    }
    MOX_FENCE();
    for (int p = 0; p < j->panels; p++) {
        add(j, p, row, high, buffer + p * TILE, segment);
        add(j, p, row + high, low, buffer + (2 + p) * TILE, segment);
    }
}

/* Rows [row, row + high + low): `high` in the first tile, `low` in the second. */
static void square(const job *j, int64_t row, int64_t high, int64_t low)
{
    const uint8_t *above = (const uint8_t *)j->a->data + row * j->steps * STEP;
    const uint8_t *below = above + high * j->steps * STEP;
    for (int64_t segment = 0; segment < j->segments; segment++) {
        const int64_t s0 = segment * j->segment_steps, s1 = mox_min_i64(s0 + j->segment_steps, j->steps);
        for (int64_t s = s0; s < s1; s++) {
            if (row == 0)
                prefetch(j, s);
            step(above + s * high * STEP, low > 0 ? below + s * low * STEP : NULL, lines_of(j, 0, s),
                 j->panels == 2 ? lines_of(j, 1, s) : NULL);
        }
        end_segment(j, row, high, low, segment);
    }
}

static int64_t steps_of(int64_t cols, int64_t steps)
{
    return mox_min_i64(mox_ceil_div(cols, STEP), steps);
}

static void multiply(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,
                     const mox_panel_rows *a, float *c, void *scratch)
{
    const int64_t steps = mox_ceil_div(m->cols, STEP), held = (int64_t)(m->steps * (int64_t)m->step_bytes);
    mox_carver carver = mox_carver_of(scratch);
    mox_amx_int8_scratch sc;
    mox_amx_int8_lay_out(&carver, m->groups, &sc);
    job j = { .a = a,
              .panels = panels,
              .steps = steps,
              .group_steps = steps_of(m->group_cols, steps),
              .buffer = sc.buffer,
              .c = c };
    j.act_steps = a->scales != NULL ? steps_of(a->group_cols, steps) : steps;
    j.segment_steps = mox_min_i64(j.group_steps, j.act_steps);
    j.segments = mox_ceil_div(steps, j.segment_steps);
    for (int p = 0; p < panels; p++) {
        const int64_t before = (steps - 1) * STEP_BYTES;
        j.codes[p] = m->panels + (uint64_t)(panel + p) * m->panel_bytes;
        mox_panel_scales(m, weight->scale, panel + p, sc.scale[p]);
        j.scale[p] = sc.scale[p];
        memset(sc.last[p], 0, STEP_BYTES);
        memcpy(sc.last[p], j.codes[p] + before, (size_t)(held - before));
        j.last[p] = sc.last[p];
    }
    const unsigned mxcsr = _mm_getcsr();
    _mm_setcsr(mxcsr | MOX_FLUSH_SUBNORMALS);
    for (int64_t row = 0; row < a->rows; row += 32) {
        const int64_t high = mox_min_i64(16, a->rows - row), low = mox_min_i64(16, a->rows - row - high);
        mox_amx_configure((int)high, low > 0 ? (int)low : 1);
        square(&j, row, high, low);
    }
    _tile_release();
    _mm_setcsr(mxcsr);
}

const mox_panel_multiply_fn mox_amx_int8_multiply = multiply;

#else

const mox_panel_multiply_fn mox_amx_int8_multiply = NULL;

#endif
