/* SPDX-License-Identifier: Apache-2.0
 *
 * panel_whole_avx2.h - kernel avx2_bytes on one or two rows and both panels of a call, where every step of 32 columns
 * is a segment: weights of 4 or 8 bits in groups of 32 columns, without zero points, activations without scales (Q8_0,
 * Q4_0, MXFP4). The sums are those of panel_quad_bytes_avx2.h and int_dot_avx2.h, with less around them: c stays in
 * registers through all steps, and all addresses only move on.
 *
 * Parameters of the always-inline functions are constants where they are called: R rows, where codes come from.
 */
#ifndef MOX_CPU_PANEL_WHOLE_AVX2_H
#define MOX_CPU_PANEL_WHOLE_AVX2_H

#include "cpu/expert_gemm/avx2/int_dot_avx2.h"
#include "cpu/expert_gemm/avx2/panel_quad_bytes_avx2.h"

enum { MOX_WHOLE_ROWS = 2, MOX_WHOLE_LIMBS = 4 * MOX_YMM_INT_DOT_LINE };

/* What the codes are. */
typedef enum mox_whole_codes {
    MOX_WHOLE_QUADS, /* 8-bit integers */
    MOX_WHOLE_TABLE, /* nibbles: W + offset is looked up, one row */
    MOX_WHOLE_PLAIN  /* nibbles: the code is W + offset */
} mox_whole_codes;

/* True when the functions below take the call. */
static inline bool mox_whole_takes(const mox_ymm_job *j)
{
    return j->a->rows <= MOX_WHOLE_ROWS && j->panels == 2 && j->quarters == 4 && j->segment_steps == 1 && j->scaled &&
           !j->zeros && j->a->scales == NULL;
}

/* Bytes of a row's activations in a step. */
MOX_KERNEL_INLINE int64_t mox_whole_acts(mox_whole_codes codes)
{
    return codes == MOX_WHOLE_QUADS ? MOX_YMM_BYTES_LINE : MOX_WHOLE_LIMBS;
}

/* The integer sums of a step of 8-bit codes, which are at `at`, and each row's unit. */
MOX_KERNEL_INLINE void mox_whole_quads(int R, const mox_ymm_job *j, const uint8_t *at, const int8_t *acts,
                                       __m256i sum[][4], __m256 unit[])
{
    const mox_bytes_line *lines = (const mox_bytes_line *)(const void *)acts;
    const __m256i flip = _mm256_xor_si256(j->tables.t[0], _mm256_set1_epi8((char)0x80));
    MOX_KERNEL_UNROLL
    for (int i = 0; i < 4 * R; i++)
        sum[i / 4][i % 4] = _mm256_setzero_si256();
    MOX_KERNEL_UNROLL
    for (int g = 0; g < MOX_PANEL_STEP / 4; g++)
        mox_quad_line(R, 4, at, (int64_t)j->matrix->panel_bytes, flip, lines, g, sum);
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++)
        unit[r] = _mm256_broadcast_ss(&lines[r].unit);
}

/* The same of a step of nibbles. */
MOX_KERNEL_INLINE void mox_whole_nibbles(mox_whole_codes codes, int R, const mox_ymm_job *j, const uint8_t *at,
                                         const int8_t *acts, __m256i sum[][4], __m256 unit[])
{
    const mox_ymm_int_dot_codes from = { .codes = at, .second = (int64_t)j->matrix->panel_bytes };
    if (codes == MOX_WHOLE_TABLE) {
        mox_ymm_int_dot_sums(MOX_INT_DOT_TABLE, 4, 1, j, from, NULL, 0, acts, MOX_WHOLE_LIMBS, sum);
        unit[0] = _mm256_broadcast_ss((const float *)(const void *)(acts + 12));
        return;
    }
    const int8_t *const rows[MOX_WHOLE_ROWS] = { acts, acts + MOX_WHOLE_LIMBS };
    mox_ymm_int_dot_plain(4, R, j, &from, 0, rows, sum);
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++) {
        const __m256i start = mox_ymm_int_dot_start(rows[r], NULL, 0, 0);
        unit[r] = _mm256_broadcast_ss((const float *)(const void *)(rows[r] + 12));
        MOX_KERNEL_UNROLL
        for (int h = 0; h < 4; h++)
            sum[r][h] = _mm256_add_epi32(sum[r][h], start);
    }
}

MOX_KERNEL_INLINE void mox_whole(mox_whole_codes codes, int R, const mox_ymm_job *j)
{
    const int8_t *acts = j->limbs;
    const float *scale = j->scale;
    const uint8_t *at = j->codes;
    const int64_t bytes = codes == MOX_WHOLE_QUADS ? MOX_QUAD_STEP_BYTES : MOX_QUAD_STEP_BYTES / 2;
    __m256 c[MOX_WHOLE_ROWS][4];
    MOX_KERNEL_UNROLL
    for (int i = 0; i < 4 * R; i++)
        c[i / 4][i % 4] = _mm256_setzero_ps();
    for (int64_t s = 0; s < j->steps; s++, at += bytes, scale += MOX_PANEL_ROWS, acts += R * mox_whole_acts(codes)) {
        __m256i sum[3][4];
        __m256 unit[MOX_WHOLE_ROWS];
        mox_ymm_prefetch(true, j, 0, s);
        mox_ymm_prefetch(true, j, 1, s);
        if (codes == MOX_WHOLE_QUADS)
            mox_whole_quads(R, j, at, acts, sum, unit);
        else
            mox_whole_nibbles(codes, R, j, at, acts, sum, unit);
        MOX_KERNEL_UNROLL
        for (int i = 0; i < 4 * R; i++) {
            const int r = i / 4, h = i % 4;
            const __m256 total = _mm256_mul_ps(_mm256_cvtepi32_ps(sum[r][h]), unit[r]);
            c[r][h] = _mm256_fmadd_ps(total, _mm256_load_ps(scale + h / 2 * j->panel_floats + h % 2 * 8), c[r][h]);
        }
    }
    MOX_KERNEL_UNROLL
    for (int i = 0; i < 4 * R; i++)
        _mm256_store_ps(j->c + i / 4 * MOX_YMM_WIDTH + i % 4 * 8, c[i / 4][i % 4]);
}

#endif
