/* SPDX-License-Identifier: Apache-2.0
 *
 * block_levels_narrow_avx512.h - up to three rows of activations in kernel avx512_block_levels: codes are multiplied as
 * they are decoded, and the sums stay in registers. The bits are those of block_levels_avx512.h.
 *
 * A step in which no multiply-add rounds is multiplied as integers: every activation is A u, u a power of two, and
 * (largest level) * (sum of |A|) is at most 2^24 over each chain. int_dot_avx512.h explains why the bits are the same.
 *
 *     line      A as limbs of 8 bits, l0 + 2^8 l1 + 2^16 l2; offset * sum of A and u
 *     kind      of a step of all rows: two limbs, three, or floats
 *     product   VPDPBUSD multiplies four columns of 16 rows by a limb
 *
 * For activations without scales.
 */
#ifndef MOX_CPU_BLOCK_LEVELS_NARROW_AVX512_H
#define MOX_CPU_BLOCK_LEVELS_NARROW_AVX512_H

#include "cpu/expert_gemm/avx512/block_bytes_avx512.h"
#include "cpu/expert_gemm/avx512/block_levels_avx512.h"
#include "cpu/expert_gemm/avx512/int_dot_avx512.h"

/* ---- activations to limbs -------------------------------------------------------------------------------- */

/* The larger sum of magnitudes of the columns in `mask`, in all lanes: of the even ones or of the odd ones. */
MOX_KERNEL_INLINE __m512 mox_levels_larger_chain(__mmask16 mask, __m512 even, __m512 odd)
{
    const __m512 sign = _mm512_set1_ps(-0.0f), none = _mm512_setzero_ps();
    return mox_int_dot_larger_sum(_mm512_mask_mov_ps(none, mask, _mm512_andnot_ps(sign, even)),
                                  _mm512_mask_mov_ps(none, mask, _mm512_andnot_ps(sign, odd)));
}

/* The even columns `x` and the odd ones `y`, as columns 0 .. 15 and 16 .. 31. */
MOX_KERNEL_INLINE void mox_levels_columns(__m512i x, __m512i y, __m512i out[2])
{
    const __m512i first = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
    const __m512 even = _mm512_castsi512_ps(x), odd = _mm512_castsi512_ps(y);
    out[0] = _mm512_castps_si512(_mm512_permutex2var_ps(even, first, odd));
    out[1] = _mm512_castps_si512(_mm512_permutex2var_ps(even, second, odd));
}

/* Lane 0. */
MOX_KERNEL_INLINE int32_t mox_levels_first(__m512i x)
{
    return _mm_cvtsi128_si32(_mm256_castsi256_si128(_mm512_castsi512_si256(x)));
}

/* Stores the limbs of A, the even columns `x` and the odd ones `y`. */
MOX_KERNEL_INLINE void mox_levels_put_limbs(__m512i x, __m512i y, mox_levels_line *out)
{
    const __m512i carry = _mm512_set1_epi32(0x00808080); /* the bytes of A + 0x808080 are the limbs + 128 */
    __m512i columns[2];
    mox_levels_columns(x, y, columns);
    for (int half = 0; half < 2; half++) {
        const __m512i limbs = _mm512_xor_si512(_mm512_add_epi32(columns[half], carry), carry);
        __m128i *to = (__m128i *)(void *)((int8_t *)out + 16 * half); /* limb 0; 32 bytes on, limb 1 */
        _mm_store_si128(to, _mm512_cvtepi32_epi8(limbs));
        _mm_store_si128(to + 2, _mm512_cvtepi32_epi8(_mm512_srli_epi32(limbs, 8)));
        _mm_store_si128(to + 4, _mm512_cvtepi32_epi8(_mm512_srli_epi32(limbs, 16)));
    }
}

/* Stores the step of activations at `a` as limbs and returns its kind. */
MOX_KERNEL_INLINE int mox_levels_put_line(const mox_block_fields *f, float max_level, const float *a,
                                          mox_levels_line *out)
{
    const int runs = mox_zmm_runs(f);
    const __mmask16 of_run[2] = { runs == 1 ? 0xffff : 0x00ff, 0xff00 };
    __m512 even, odd;
    __m512i x, y, unit;
    mox_int_dot_load_f32(a, MOX_PANEL_STEP, &even, &odd);
    __m512 most = mox_levels_larger_chain(of_run[0], even, odd);
    if (runs == 2)
        most = _mm512_max_ps(most, mox_levels_larger_chain(of_run[1], even, odd));
    if (!mox_int_dot_units_of(most, max_level, even, odd, &x, &y, &unit))
        return MOX_INT_DOT_FLOATS;
    /* Zeros below the lowest bit of all A go to the unit. */
    const uint32_t bits = (uint32_t)_mm512_reduce_or_epi32(_mm512_or_si512(x, y));
    const int zeros = bits == 0 ? 0 : __builtin_ctz(bits);
    x = _mm512_srav_epi32(x, _mm512_set1_epi32(zeros));
    y = _mm512_srav_epi32(y, _mm512_set1_epi32(zeros));
    const int32_t scaled = mox_levels_first(unit) + (int32_t)((uint32_t)zeros << 23);
    memcpy(&out->unit, &scaled, sizeof out->unit);
    const __m512i pairs = _mm512_add_epi32(x, y);
    for (int i = 0; i < runs; i++)
        out->offset[i] =
            f->offset *
            mox_levels_first(mox_int_dot_total(_mm512_mask_mov_epi32(_mm512_setzero_si512(), of_run[i], pairs)));
    mox_levels_put_limbs(x, y, out);
    return mox_int_dot_fit_two_limbs(x, y) ? MOX_INT_DOT_TWO_LIMBS : MOX_INT_DOT_THREE_LIMBS;
}

/* The largest magnitude of a level. */
static inline float mox_levels_largest(const mox_block_fields *f)
{
    const int codes = 1 << mox_zmm_code_bits(f), last = codes - 1 - f->offset;
    return f->levels ? 127.0f : (float)(last > f->offset ? last : f->offset);
}

/* Stores the lines of all rows, and the kind of each step. */
static inline void mox_levels_put_lines(const mox_block_fields *f, const mox_fma_job *j, mox_levels_line *line,
                                        uint8_t *kinds)
{
    const float max_level = mox_levels_largest(f);
    for (int64_t s = 0; s < j->iter.steps; s++) {
        int kind = MOX_INT_DOT_TWO_LIMBS;
        for (int64_t row = 0; row < j->iter.a->rows; row++, line++) {
            const int of_row =
                mox_levels_put_line(f, max_level, j->values + row * j->stride + s * MOX_PANEL_STEP, line);
            kind = of_row > kind ? of_row : kind;
        }
        kinds[s] = (uint8_t)kind;
    }
}

/* ---- products -------------------------------------------------------------------------------------------- */

/* Four columns of a limb. */
MOX_KERNEL_INLINE __m512i mox_levels_four(const mox_levels_line *line, int limb, int g)
{
    int32_t four;
    memcpy(&four, line->limb[limb] + 4 * g, sizeof four);
    return _mm512_set1_epi32(four);
}

/* I of run i of a step by R rows of L limbs. */
MOX_KERNEL_INLINE void mox_levels_run_limbs(const mox_block_fields *f, int R, int L, const mox_zmm_codes *codes, int i,
                                            const mox_levels_line *line, __m512 levels[])
{
    const int of_run = MOX_PANEL_STEP / 4 / mox_zmm_runs(f);
    __m512i dot[MOX_BLOCK_LEVELS_NARROW][3];
    MOX_KERNEL_UNROLL
    for (int n = 0; n < 3 * R; n++)
        dot[n / 3][n % 3] = _mm512_setzero_si512();
    MOX_KERNEL_UNROLL
    for (int g = i * of_run; g < (i + 1) * of_run; g++) {
        const __m512i w = mox_zmm_bytes(f, codes, g);
        MOX_KERNEL_UNROLL
        for (int r = 0; r < R; r++) {
            MOX_KERNEL_UNROLL
            for (int l = 0; l < L; l++)
                dot[r][l] = _mm512_dpbusd_epi32(dot[r][l], w, mox_levels_four(&line[r], l, g));
        }
    }
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++) {
        __m512i sum = _mm512_add_epi32(dot[r][0], _mm512_slli_epi32(dot[r][1], 8));
        if (L == 3)
            sum = _mm512_add_epi32(sum, _mm512_slli_epi32(dot[r][2], 16));
        if (f->offset != 0)
            sum = _mm512_sub_epi32(sum, _mm512_set1_epi32(line[r].offset[i]));
        levels[r] = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), _mm512_set1_ps(line[r].unit));
    }
}

/* The same in floats. `a`: the step's activations of the first row. */
MOX_KERNEL_INLINE void mox_levels_run_floats(const mox_block_fields *f, int R, const mox_zmm_tables *tables,
                                             const mox_zmm_codes *codes, int i, const float *a, int64_t stride,
                                             __m512 levels[])
{
    const int of_run = MOX_PANEL_STEP / 4 / mox_zmm_runs(f);
    __m512 chain[MOX_BLOCK_LEVELS_NARROW][2];
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++)
        chain[r][0] = chain[r][1] = _mm512_setzero_ps();
    MOX_KERNEL_UNROLL
    for (int g = i * of_run; g < (i + 1) * of_run; g++) {
        MOX_KERNEL_UNROLL
        for (int odd = 0; odd < 2; odd++) {
            const __m512i index = mox_zmm_index(f, codes, g, odd);
            MOX_KERNEL_UNROLL
            for (int upper = 0; upper < 2; upper++) {
                const __m512 level = mox_zmm_level(f, tables, index, upper);
                MOX_KERNEL_UNROLL
                for (int r = 0; r < R; r++)
                    chain[r][odd] =
                        _mm512_fmadd_ps(level, _mm512_set1_ps(a[r * stride + 4 * g + odd + 2 * upper]), chain[r][odd]);
            }
        }
    }
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++)
        levels[r] = _mm512_add_ps(chain[r][0], chain[r][1]);
}

/* Adds to sum[r][p] the products of step s of a block by R rows, panel p. `at`: the 16 blocks; d: of them; `step`: the
 * number of the step in the matrix. L limbs; 0: floats. */
MOX_KERNEL_INLINE void mox_levels_narrow_step(const mox_block_fields *f, int weights, int R, int L,
                                              const mox_block_levels_job *j, const uint8_t *at, mox_zmm_run d,
                                              int64_t s, int64_t step, int p, __m512 sum[][2])
{
    const mox_block_panel form = mox_block_panel_of(f, weights);
    const mox_zmm_codes codes = mox_zmm_step_codes(f, at + form.codes_at + s * form.step_bytes);
    __m512 t[MOX_BLOCK_LEVELS_NARROW], levels[MOX_BLOCK_LEVELS_NARROW];
    MOX_KERNEL_UNROLL
    for (int i = 0; i < mox_zmm_runs(f); i++) {
        const mox_zmm_run run = mox_zmm_block_run(f, &form, at, d, mox_zmm_first_run(f, s) + i);
        if (L > 0)
            mox_levels_run_limbs(f, R, L, &codes, i, j->lines + step * R, levels);
        else
            mox_levels_run_floats(f, R, &j->block.tables, &codes, i, j->block.fma.values + step * MOX_PANEL_STEP,
                                  j->block.fma.stride, levels);
        MOX_KERNEL_UNROLL
        for (int r = 0; r < R; r++)
            t[r] = mox_block_levels_add_run(i, levels[r], run.s, t[r]);
    }
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++)
        sum[r][p] = _mm512_add_ps(sum[r][p], t[r]);
}

/* Both panels by R rows. There is one segment. */
MOX_KERNEL_INLINE void mox_block_levels_narrow(const mox_block_fields *f, int weights, int R,
                                               const mox_block_levels_job *j)
{
    const mox_block_panel form = mox_block_panel_of(f, weights);
    const mox_segment_iter *iter = &j->block.fma.iter;
    const int64_t blocks = iter->steps / form.steps;
    __m512 sum[MOX_BLOCK_LEVELS_NARROW][2];
    for (int r = 0; r < R; r++)
        sum[r][0] = sum[r][1] = _mm512_setzero_ps();
    for (int64_t b = 0; b < blocks; b++) {
        const uint8_t *at[2] = { iter->codes[0] + b * form.bytes, iter->codes[1] + b * form.bytes };
        const mox_zmm_run d[2] = { mox_zmm_marked_d(f, &form, at[0]), mox_zmm_marked_d(f, &form, at[1]) };
        for (int64_t s = 0; s < form.steps; s++) {
            const int64_t step = b * form.steps + s;
            const int kind = j->kinds[step];
            MOX_KERNEL_UNROLL
            for (int p = 0; p < 2; p++) {
                mox_block_job_prefetch_narrow(iter, p, b * form.bytes + s * form.bytes / form.steps,
                                              form.bytes / form.steps);
                if (kind == MOX_INT_DOT_TWO_LIMBS)
                    mox_levels_narrow_step(f, weights, R, 2, j, at[p], d[p], s, step, p, sum);
                else if (kind == MOX_INT_DOT_THREE_LIMBS)
                    mox_levels_narrow_step(f, weights, R, 3, j, at[p], d[p], s, step, p, sum);
                else
                    mox_levels_narrow_step(f, weights, R, 0, j, at[p], d[p], s, step, p, sum);
            }
        }
    }
    for (int r = 0; r < R; r++)
        for (int p = 0; p < iter->panels; p++)
            _mm512_store_ps(j->block.fma.c + (2 * r + p) * MOX_PANEL_ROWS, sum[r][p]);
}

#endif
