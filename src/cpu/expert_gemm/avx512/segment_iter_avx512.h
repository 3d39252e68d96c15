/* SPDX-License-Identifier: Apache-2.0
 *
 * segment_iter_avx512.h - iterates over the columns of one or two panels, step by step; scales and adds the sums at the
 * end of each segment. Shared by all AVX-512 kernels.
 *
 *     segment   a run of steps inside one weight group and one activation group. The kernel chooses what a step is: 16
 *               columns, 32, or the whole segment
 *     end       c[r, n] = fma(C[r, n] * sa[r], sw[n], c[r, n])
 *                   C   the sum over the segment
 *                   sa  the scale of the activations, sw that of the weights; a missing scale is left out
 *
 * mox_segment_iter_init() converts the weights' scales to floats, [panel][group][16], before the product begins. It
 * must run before mox_segment_flush_subnormals(), because subnormal f16 scales count.
 */
#ifndef MOX_CPU_SEGMENT_ITER_AVX512_H
#define MOX_CPU_SEGMENT_ITER_AVX512_H

#include <immintrin.h>

#include "base/sizes.h"
#include "cpu/expert_gemm/avx512/panel_decode_avx512.h"
#include "cpu/expert_gemm/panel_kernel.h"
#include "cpu/expert_gemm/panel_scales.h"

typedef struct mox_segment_iter {
    const mox_panel_rows *a;
    int panels;
    const uint8_t *codes[2];
    const uint8_t *zero[2]; /* [groups][16] */
    const float *scale[2];  /* [groups][16] */
    bool scaled;            /* weights have scales */
    /* A Zen core has too few outstanding L1 misses to read memory at its full rate: prefetching to L2 reads 11 % more.
     * True where the processor has full_rate_bf16, which only Zen has. */
    bool prefetch_to_l2;
    int64_t codes_bytes, panel_bytes;
    int64_t steps;
    int64_t group_steps, act_steps, segment_steps; /* of a weight group, an activation group, the shorter of both */
} mox_segment_iter;

/* The position of a step. It counts down instead of dividing: a division takes as long as the products of a step. */
typedef struct mox_segment_pos {
    int64_t group, act_group;
    int64_t group_left, act_left, segment_left, left; /* steps left, this one included; `left`: in the matrix */
} mox_segment_pos;

MOX_KERNEL_INLINE mox_segment_pos mox_segment_begin(const mox_segment_iter *iter)
{
    return (mox_segment_pos) { .group_left = iter->group_steps,
                               .act_left = iter->act_steps,
                               .segment_left = iter->segment_steps,
                               .left = iter->steps };
}

/* True for the first step of a segment. */
MOX_KERNEL_INLINE bool mox_segment_is_first(const mox_segment_iter *iter, const mox_segment_pos *at)
{
    return at->segment_left == iter->segment_steps;
}

MOX_KERNEL_INLINE bool mox_segment_is_last(const mox_segment_pos *at)
{
    return at->segment_left == 1 || at->left == 1;
}

MOX_KERNEL_INLINE void mox_segment_next(const mox_segment_iter *iter, mox_segment_pos *at)
{
    at->left--;
    if (--at->segment_left == 0)
        at->segment_left = iter->segment_steps;
    if (--at->group_left == 0)
        at->group++, at->group_left = iter->group_steps;
    if (--at->act_left == 0)
        at->act_group++, at->act_left = iter->act_steps;
}

/* ---- ends of segments ---------------------------------------------------------------------------- */

typedef struct mox_segment_scales {
    const float *act; /* of the first row, rows `act_stride` apart */
    int64_t act_stride;
    __m512 weight[2];
    bool scaled;
} mox_segment_scales;

/* The scales of the segment at `at`, for rows of activations from `row` on. */
MOX_KERNEL_INLINE mox_segment_scales mox_segment_scales_at(const mox_segment_iter *iter, const mox_segment_pos *at,
                                                           int64_t row)
{
    const float *act = iter->a->scales;
    return (mox_segment_scales) {
        .act = act != NULL ? act + row * iter->a->scale_stride + at->act_group : NULL,
        .act_stride = iter->a->scale_stride,
        .weight = { _mm512_load_ps(iter->scale[0] + at->group * MOX_PANEL_ROWS),
                    _mm512_load_ps(iter->scale[1] + at->group * MOX_PANEL_ROWS) },
        .scaled = iter->scaled,
    };
}

/* Adds `part`, the sum over a segment, to `sum`, for row r and panel p. */
MOX_KERNEL_INLINE __m512 mox_segment_finish(const mox_segment_scales *ending, int r, int p, __m512 part, __m512 sum)
{
    if (ending->act != NULL)
        part = _mm512_mul_ps(part, _mm512_set1_ps(ending->act[r * ending->act_stride]));
    else if (!ending->scaled)
        return part; /* without scales there is only one segment */
    return _mm512_fmadd_ps(part, ending->weight[p], sum);
}

/* Adds t, the sums of the step at `at`, for R rows from `row` on and P panels from p on. They go to `part` [R][2][16]
 * while the segment has more steps, and scaled to c [R][2][16] when it ends. Both point to row `row` and panel p. */
MOX_KERNEL_INLINE void mox_segment_add_step(int R, int P, const mox_segment_iter *iter, const mox_segment_pos *at,
                                            int64_t row, int p, float *c, float *part, __m512 t[][2])
{
    /* Read before anything is stored: for the compiler a store might change *iter. */
    const mox_segment_scales ending = mox_segment_scales_at(iter, at, row);
    const bool last = mox_segment_is_last(at), first = mox_segment_is_first(iter, at);
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++) {
        MOX_KERNEL_UNROLL
        for (int i = 0; i < P; i++) {
            const __m512 before = first ? _mm512_setzero_ps() : _mm512_load_ps(part + (2 * r + i) * MOX_PANEL_ROWS);
            t[r][i] = _mm512_add_ps(before, t[r][i]);
        }
    }
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++) {
        MOX_KERNEL_UNROLL
        for (int i = 0; i < P; i++) {
            float *sum = c + (2 * r + i) * MOX_PANEL_ROWS;
            if (last)
                _mm512_store_ps(sum, mox_segment_finish(&ending, r, p + i, t[r][i], _mm512_load_ps(sum)));
            else
                _mm512_store_ps(part + (2 * r + i) * MOX_PANEL_ROWS, t[r][i]);
        }
    }
}

/* ---- prefetching --------------------------------------------------------------------------------- */

/* _mm_prefetch() wants a constant. */
MOX_KERNEL_INLINE void mox_segment_prefetch_line(bool to_l2, const uint8_t *line)
{
    if (to_l2)
        _mm_prefetch((const char *)line, _MM_HINT_T1);
    else
        _mm_prefetch((const char *)line, _MM_HINT_T0);
}

/* Before step `step` of panel p, one of P panels that are multiplied at once; `bytes` are those of a step. Prefetches
 * the codes 2 KB further on, or 4 KB for L2; past the end of the panel, those of the panel that follows. Also
 * prefetches, a line at a time, the scales of the panel that the next call begins with. */
MOX_KERNEL_INLINE void mox_segment_prefetch(bool to_l2, const mox_segment_iter *iter, int p, int P, int64_t step,
                                            int bytes)
{
    const int64_t ahead = step * bytes + (to_l2 ? 4096 : 2048), past = P * iter->panel_bytes - iter->codes_bytes;
    const uint8_t *codes = iter->codes[p] + ahead + (ahead < iter->codes_bytes ? 0 : past);
    for (int i = 0; i < bytes; i += 64)
        mox_segment_prefetch_line(to_l2, codes + i);
    const int64_t scales = iter->codes_bytes + step * 64;
    if (scales < iter->panel_bytes)
        mox_segment_prefetch_line(to_l2, iter->codes[p] + iter->panels * iter->panel_bytes + scales);
}

/* ---- scales -------------------------------------------------------------------------------------- */

/* Codes are exponents. Code 0, which is 2^-127, becomes zero: subnormal factors count as zero anyway. */
MOX_KERNEL_INLINE __m512 mox_segment_scale_powers(__m128i codes)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu8_epi32(codes), 23));
}

/* `count` scales, a multiple of 16; code 255 is NaN. */
MOX_KERNEL_INLINE void mox_segment_scales_e8m0(const uint8_t *codes, int64_t count, float *out)
{
    const __m128i highest = _mm_set1_epi8(-1);
    for (int64_t i = 0; i < count; i += MOX_PANEL_ROWS) {
        const __m128i group = _mm_loadu_si128((const __m128i *)(const void *)(codes + i));
        const __mmask16 nan = _mm_cmpeq_epi8_mask(group, highest);
        _mm512_store_ps(out + i, mox_segment_scale_powers(group));
        if (__builtin_expect(nan != 0, 0))
            _mm512_mask_store_ps(out + i, nan, _mm512_set1_ps(__builtin_nanf("")));
    }
}

/* Moves the fields to those of f16, whose bias is larger by 8. */
MOX_KERNEL_INLINE __m512 mox_segment_scales_e4m3(__m128i codes)
{
    const __m256i words = _mm256_cvtepu8_epi16(codes), magnitude = _mm256_and_si256(words, _mm256_set1_epi16(0x7f));
    const __m256i sign = _mm256_slli_epi16(_mm256_xor_si256(words, magnitude), 8);
    const __m256i half = _mm256_or_si256(_mm256_slli_epi16(magnitude, 7), sign);
    const __mmask16 nan = _mm256_cmpeq_epi16_mask(magnitude, _mm256_set1_epi16(0x7f));
    const __m512 value = _mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(256.0f));
    return _mm512_mask_mov_ps(value, nan, _mm512_set1_ps(__builtin_nanf("")));
}

/* mox_panel_scales(), written by hand for the two common 8-bit types: 7 and 20 cycles for a group of 16. */
static inline void mox_segment_load_scales(const mox_panel_matrix *matrix, moxie_dtype dtype, int64_t panel, float *out)
{
    const uint8_t *codes = matrix->panels + (uint64_t)panel * matrix->panel_bytes + matrix->scale_at;
    if (matrix->scale_lanes != MOX_PANEL_ROWS || (dtype != MOXIE_F8_E8M0 && dtype != MOXIE_F8_E4M3)) {
        mox_panel_scales(matrix, dtype, panel, out);
        return;
    }
    const int64_t count = matrix->groups * MOX_PANEL_ROWS;
    if (dtype == MOXIE_F8_E8M0) {
        mox_segment_scales_e8m0(codes, count, out);
        return;
    }
    for (int64_t i = 0; i < count; i += MOX_PANEL_ROWS)
        _mm512_store_ps(out + i, mox_segment_scales_e4m3(_mm_loadu_si128((const __m128i *)(const void *)(codes + i))));
}

/* ---- preparation --------------------------------------------------------------------------------- */

static inline int64_t mox_segment_steps_of(int64_t cols, int64_t step_cols, int64_t steps)
{
    return mox_min_i64(mox_ceil_div(cols, step_cols), steps);
}

/* Iterates over panels [panel, panel + panels) in steps of `step_cols` columns, and fills `scale` [2][groups][16]. A
 * single panel is entered as both panels. */
static inline void mox_segment_iter_init(mox_segment_iter *iter, const mox_panel_matrix *m, const moxie_quant *weight,
                                         int64_t panel, int panels, const mox_panel_rows *a, int64_t step_cols,
                                         float *scale)
{
    const int64_t steps = mox_ceil_div(m->cols, step_cols);
    *iter = (mox_segment_iter) { .a = a,
                                 .panels = panels,
                                 .scaled = m->scale_lanes > 0,
                                 .codes_bytes = m->steps * (int64_t)m->step_bytes,
                                 .panel_bytes = (int64_t)m->panel_bytes,
                                 .steps = steps,
                                 .prefetch_to_l2 = mox_cpu()->full_rate_bf16,
                                 .group_steps = mox_segment_steps_of(m->group_cols, step_cols, steps),
                                 .act_steps = a->scales != NULL ? mox_segment_steps_of(a->group_cols, step_cols, steps)
                                                                : steps };
    iter->segment_steps = mox_min_i64(iter->group_steps, iter->act_steps);
    for (int p = 0; p < panels; p++) {
        float *to = scale + p * m->groups * MOX_PANEL_ROWS;
        mox_segment_load_scales(m, weight->scale, panel + p, to);
        iter->scale[p] = to;
        iter->codes[p] = m->panels + (uint64_t)(panel + p) * m->panel_bytes;
        iter->zero[p] = iter->codes[p] + m->zero_at;
    }
    if (panels == 1) {
        iter->scale[1] = iter->scale[0];
        iter->codes[1] = iter->codes[0];
        iter->zero[1] = iter->zero[0];
    }
}

/* Sets "flush to zero" and "denormals are zero"; returns the old MXCSR, which the caller must restore. */
static inline unsigned mox_segment_flush_subnormals(void)
{
    const unsigned mxcsr = _mm_getcsr();
    _mm_setcsr(mxcsr | 0x8040u);
    return mxcsr;
}

#endif
