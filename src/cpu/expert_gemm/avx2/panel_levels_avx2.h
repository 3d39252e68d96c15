/* SPDX-License-Identifier: Apache-2.0
 *
 * panel_levels_avx2.h - the AVX2 kernels of block types on the types of block_levels.def, whose panels hold blocks as
 * they are in the file (pack/panel/block_panel.h).
 *
 *     16 blocks  ->  32 levels of each of 8 rows, one row after the other (format/block_levels.h)
 *                ->  transposed: vectors of four columns of 8 rows
 *                ->  slab of floats, times the scale (panel_fma_avx2.h), or slab of bytes (panel_block_bytes_avx2.h)
 *
 * Code books take a look-up in memory for 4 or 8 weights, so one row of activations goes through the slab, too.
 */
#ifndef MOX_CPU_PANEL_LEVELS_AVX2_H
#define MOX_CPU_PANEL_LEVELS_AVX2_H

#include "cpu/expert_gemm/avx2/panel_block_bytes_avx2.h"
#include "format/block_levels.h"

/* As those for block_fields.def; NULL: not in block_levels.def. */
const mox_ymm_block_variant *mox_ymm_levels_variant_of(moxie_dtype element);
mox_ymm_block_bytes_fn mox_ymm_levels_bytes_of(moxie_dtype element);

typedef void (*mox_levels_step_fn)(const uint8_t *block, float d, int32_t s, int8_t *level, float scale[2]);
/* mox_levels_half() of a type. Not inline: both kernels then decode with the same code. */
typedef void (*mox_levels_half_fn)(const mox_ymm_job *j, int p, int64_t step, int half, __m256i w[8], __m256 scale[2]);

/* Four columns of 8 rows in each of w: 8 rows of 8 words, transposed. */
MOX_KERNEL_INLINE void mox_levels_transpose(const int8_t *rows, __m256i w[8])
{
    __m256 x[8], two[8], four[8];
    MOX_KERNEL_UNROLL
    for (int r = 0; r < 8; r++)
        x[r] = _mm256_load_ps((const float *)(const void *)(rows + 32 * r));
    MOX_KERNEL_UNROLL
    for (int r = 0; r < 8; r += 2) {
        two[r] = _mm256_unpacklo_ps(x[r], x[r + 1]);
        two[r + 1] = _mm256_unpackhi_ps(x[r], x[r + 1]);
    }
    MOX_KERNEL_UNROLL
    for (int r = 0; r < 8; r += 4) {
        four[r] = _mm256_shuffle_ps(two[r], two[r + 2], 0x44);
        four[r + 1] = _mm256_shuffle_ps(two[r], two[r + 2], 0xee);
        four[r + 2] = _mm256_shuffle_ps(two[r + 1], two[r + 3], 0x44);
        four[r + 3] = _mm256_shuffle_ps(two[r + 1], two[r + 3], 0xee);
    }
    MOX_KERNEL_UNROLL
    for (int g = 0; g < 4; g++) {
        w[g] = _mm256_castps_si256(_mm256_permute2f128_ps(four[g], four[g + 4], 0x20));
        w[g + 4] = _mm256_castps_si256(_mm256_permute2f128_ps(four[g], four[g + 4], 0x31));
    }
}

/* Step `step` of half a panel: levels, and the scales of its two halves of 16 columns. `weights`, `bytes`: of a block.
 */
MOX_KERNEL_INLINE void mox_levels_half(mox_levels_step_fn decode, int weights, int bytes, const mox_ymm_job *j, int p,
                                       int64_t step, int half, __m256i w[8], __m256 scale[2])
{
    const int steps = weights / MOX_PANEL_STEP;
    const int64_t block = step / steps;
    const float *d = j->scale + p * j->panel_floats + (1 + block) * MOX_PANEL_ROWS + 8 * half;
    const uint8_t *from = j->codes + p * (int64_t)j->matrix->panel_bytes + (block * MOX_PANEL_ROWS + 8 * half) * bytes;
    int8_t level[8][MOX_PANEL_STEP] __attribute__((aligned(32)));
    float scales[2][8] __attribute__((aligned(32)));
    for (int r = 0; r < 8; r++, from += bytes) {
        float both[2];
        _mm_prefetch((const char *)from + MOX_YMM_PREFETCH_BYTES, _MM_HINT_T0);
        decode(from, d[r], (int32_t)(step % steps), level[r], both);
        scales[0][r] = both[0];
        scales[1][r] = both[1];
    }
    mox_levels_transpose(level[0], w);
    scale[0] = _mm256_load_ps(scales[0]);
    scale[1] = _mm256_load_ps(scales[1]);
}

/* Decodes `count` steps of panel p to a slab of floats, by pair. */
MOX_KERNEL_INLINE void mox_levels_expand(mox_levels_half_fn decode, const mox_ymm_job *j, int p, int64_t first,
                                         int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        for (int half = 0; half < 2; half++) {
            float *to = j->slab + (2 * i + half) * MOX_YMM_HALF;
            __m256i w[8];
            __m256 scale[2];
            decode(j, p, first + i, half, w, scale);
            MOX_KERNEL_UNROLL
            for (int g = 0; g < 8; g++, to += 32) {
                __m256 x[4];
                MOX_KERNEL_UNROLL
                for (int v = 0; v < 4; v++) {
                    const __m256i level = _mm256_srai_epi32(_mm256_slli_epi32(w[g], 24 - 8 * v), 24);
                    x[v] = _mm256_mul_ps(_mm256_cvtepi32_ps(level), scale[g / 4]);
                }
                MOX_KERNEL_UNROLL
                for (int v = 0; v < 4; v += 2) {
                    _mm256_store_ps(to + 8 * v, _mm256_unpacklo_ps(x[v], x[v + 1]));
                    _mm256_store_ps(to + 8 * v + 8, _mm256_unpackhi_ps(x[v], x[v + 1]));
                }
            }
        }
}

/* Decodes `count` steps of panel p to a slab of bytes. */
MOX_KERNEL_INLINE void mox_levels_expand_bytes(mox_levels_half_fn decode, int runs, const mox_ymm_job *j, int p,
                                               int64_t first, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        uint8_t *to = (uint8_t *)j->slab + i * MOX_BYTES_STEP;
        float *scales = (float *)(uintptr_t)mox_bytes_scales(j, i);
        for (int half = 0; half < 2; half++) {
            __m256i w[8];
            __m256 scale[2];
            decode(j, p, first + i, half, w, scale);
            for (int r = 0; r < runs; r++, scales += 16)
                _mm256_store_ps(scales, scale[r]);
            MOX_KERNEL_UNROLL
            for (int g = 0; g < 8; g++, to += 32)
                _mm256_store_si256((__m256i *)(void *)to, w[g]);
        }
    }
}

/* One row of step `at`, as floats: decoded behind the slab of bytes. */
MOX_KERNEL_INLINE void mox_levels_float_step(mox_levels_half_fn decode, const mox_ymm_job *j, const mox_ymm_pos *at,
                                             int p, int64_t row)
{
    mox_ymm_job one = *j;
    one.slab += MOX_YMM_SLAB * MOX_YMM_HALF;
    mox_levels_expand(decode, &one, p, at->step, 1);
    mox_ymm_wide(MOX_DECODE_NIBBLES, 1, &one, p, at, 1, row);
}
_Static_assert(MOX_YMM_SLAB *(MOX_BYTES_STEP + 4 * MOX_BYTES_SCALES) <= MOX_YMM_SLAB * MOX_YMM_HALF * 4,
               "the slab of bytes fills half of that of floats at most");

#endif
