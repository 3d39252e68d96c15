/* SPDX-License-Identifier: Apache-2.0
 *
 * panel_block_avx2.h - kernel avx2_fma on block types (pack/panel/block_panel.h): weights with two levels of scales.
 *
 *     w = S (level - offset) - M          S = d s, M = m t: exact in f32; one rounding, as ggml's decoder has it
 *
 * S and M are vectors of 8 rows, made once for every run of 16 or 32 columns. Four columns of 8 rows take
 *
 *     codes      load, shift, mask; the upper bits likewise
 *     floats     both bytes of a bf16 looked up by code; or the code under 0x43, which is 128 + code, less 128 + offset
 *     weights    one multiplication, or one multiply-subtract where there is a minimum
 *
 * A weight is a float that no scale follows, so segments only end where the activations' groups do, and the sum is
 * FMA_STEPS of plain floats (panel_kernel.h).
 *
 *     narrow     one or two rows: multiplies as it decodes. Vectors by row (panel_decode_avx2.h) take the fewest
 *                operations. One row takes both halves of a panel in turn; two take one after the other, so that their
 *                chains fit the registers
 *     wide       decodes to the slab, which mox_ymm_wide() multiplies. Vectors by pair: one broadcast serves two
 *                columns
 *
 * Parameters of the always-inline functions are constants where they are called: the row `f` of block_fields.def,
 * `weights` of a block, R rows of activations.
 */
#ifndef MOX_CPU_PANEL_BLOCK_AVX2_H
#define MOX_CPU_PANEL_BLOCK_AVX2_H

#include "cpu/expert_gemm/avx2/panel_fma_avx2.h"
#include "pack/panel/block_panel.h"

/* One block type: functions of one row and of two (NULL: those of more rows), and the decoder to the slab. */
typedef struct mox_ymm_block_variant {
    moxie_dtype element;
    void (*one)(const mox_ymm_job *j);
    void (*two)(const mox_ymm_job *j);
    void (*expand)(const mox_ymm_job *j, int p, const mox_ymm_pos *start, int64_t count);
} mox_ymm_block_variant;
/* NULL: the type has none. */
const mox_ymm_block_variant *mox_ymm_block_variant_of(moxie_dtype element);

/* ---- scales --------------------------------------------------------------------------------------- */

/* S and M of 8 rows. */
typedef struct mox_ymm_run {
    __m256 s, m;
} mox_ymm_run;

/* d and m of 8 rows as floats, where prepare_blocks() (expert_gemm_avx2.c) put them. */
MOX_KERNEL_INLINE mox_ymm_run mox_ymm_block_d(const mox_ymm_job *j, const mox_block_fields *f, int p, int64_t block,
                                              int half)
{
    const int64_t at = p * j->panel_floats + (1 + block) * MOX_PANEL_ROWS + 8 * half;
    return (mox_ymm_run) { _mm256_load_ps(j->scale + at),
                           f->m_at >= 0 ? _mm256_load_ps(j->zero + at) : _mm256_setzero_ps() };
}

/* 8 signed bytes as floats. */
MOX_KERNEL_INLINE __m256 mox_ymm_integers(__m128i bytes)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
}

/* S and M of run `run` of the 16 blocks at `blocks`. */
MOX_KERNEL_INLINE mox_ymm_run mox_ymm_block_run(const mox_block_fields *f, const mox_block_panel *form,
                                                const uint8_t *blocks, mox_ymm_run d, int run, int half)
{
    const uint8_t *at = blocks + run * MOX_PANEL_ROWS + 8 * half;
    const __m128i nibble = _mm_set1_epi8(0x0f);
    if (f->integers == MOX_BLOCK_NONE)
        return d;
    __m128i s = _mm_loadl_epi64((const __m128i *)(const void *)(at + form->s_at)), t = s;
    if (f->integers == MOX_BLOCK_NIBBLES) {
        t = _mm_and_si128(_mm_srli_epi16(s, 4), nibble);
        s = _mm_and_si128(s, nibble);
    }
    if (f->integers == MOX_BLOCK_SIX_AND_SIX)
        t = _mm_loadl_epi64((const __m128i *)(const void *)(at + form->t_at));
    d.s = _mm256_mul_ps(d.s, mox_ymm_integers(s));
    if (f->m_at >= 0)
        d.m = _mm256_mul_ps(d.m, mox_ymm_integers(t));
    return d;
}

/* What belongs to vector `v` of a pair: that of four rows, twice each. */
MOX_KERNEL_INLINE __m256 mox_ymm_twice(__m256 by_row, int v)
{
    return v == 0 ? _mm256_unpacklo_ps(by_row, by_row) : _mm256_unpackhi_ps(by_row, by_row);
}

/* ---- weights -------------------------------------------------------------------------------------- */

/* Field `g` of a plane of `bits` bits, moved to bit `up` of every byte. `by_pair`: the codes of a column pair become
 * neighbours. */
MOX_KERNEL_INLINE __m256i mox_ymm_field(bool by_pair, const uint8_t *plane, int bits, int up, int half, int g)
{
    const __m256i order =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15));
    const int fields = 8 / bits, shift = bits * (g % fields) - up;
    const __m256i loaded = _mm256_load_si256((const __m256i *)(const void *)(plane + (2 * (g / fields) + half) * 32));
    const __m256i x = by_pair ? _mm256_shuffle_epi8(loaded, order) : loaded;
    const __m256i moved = shift > 0 ? _mm256_srli_epi16(x, shift) : shift < 0 ? _mm256_slli_epi16(x, -shift) : x;
    return bits == 8 ? moved : _mm256_and_si256(moved, _mm256_set1_epi8((char)(((1 << bits) - 1) << up)));
}

/* Codes of columns 4 g .. 4 g + 3 of a step and of 8 rows, a byte each. */
MOX_KERNEL_INLINE __m256i mox_ymm_codes(const mox_block_fields *f, bool by_pair, const uint8_t *step, int half, int g)
{
    const __m256i low = mox_ymm_field(by_pair, step, f->low.bits, 0, half, g);
    if (f->high.bits == 0)
        return low;
    return _mm256_or_si256(low, mox_ymm_field(by_pair, step + 64 * f->low.bits, f->high.bits, f->low.bits, half, g));
}

/* Codes of 4 bits or fewer are looked up: less their offset, as bf16. Others have at most 7. */
MOX_KERNEL_INLINE bool mox_ymm_has_table(const mox_block_fields *f)
{
    return f->low.bits <= 4 && f->high.bits == 0;
}

/* The weights of those columns. By row w[v] is column 4 g + v; by pair w[0] and w[1] are columns 4 g and 4 g + 1. */
MOX_KERNEL_INLINE void mox_ymm_block_columns(const mox_block_fields *f, bool by_pair, const mox_half_tables *tables,
                                             const uint8_t *step, mox_ymm_run run, int half, int g, __m256 w[4])
{
    const bool by_table = mox_ymm_has_table(f);
    const __m256i codes = mox_ymm_codes(f, by_pair, step, half, g);
    const __m256i low = by_table ? _mm256_shuffle_epi8(tables->t[0], codes) : codes;
    const __m256i high = by_table ? _mm256_shuffle_epi8(tables->t[1], codes) : _mm256_set1_epi8(0x43);
    const __m256i words[2] = { _mm256_unpacklo_epi8(low, high), _mm256_unpackhi_epi8(low, high) };
    MOX_KERNEL_UNROLL
    for (int v = 0; v < 4; v++) {
        const __m256i zero = _mm256_setzero_si256();
        __m256 level = _mm256_castsi256_ps(v % 2 == 0 ? _mm256_unpacklo_epi16(zero, words[v / 2])
                                                      : _mm256_unpackhi_epi16(zero, words[v / 2]));
        if (!by_table)
            level = _mm256_sub_ps(level, _mm256_set1_ps(128.0f + (float)f->offset));
        const __m256 S = by_pair ? mox_ymm_twice(run.s, v % 2) : run.s;
        const __m256 M = by_pair ? mox_ymm_twice(run.m, v % 2) : run.m;
        w[v] = f->m_at >= 0 ? _mm256_fmsub_ps(level, S, M) : _mm256_mul_ps(level, S);
    }
}

/* ---- narrow --------------------------------------------------------------------------------------- */

MOX_KERNEL_INLINE void mox_ymm_block_prefetch(const uint8_t *step, int64_t bytes)
{
    for (int64_t b = 0; b < bytes + 63; b += 64)
        _mm_prefetch((const char *)step + MOX_YMM_PREFETCH_BYTES + b, _MM_HINT_T0);
}

/* A call begins with d and m of all its blocks: those of the next call's block, in the place of `blocks`. */
MOX_KERNEL_INLINE void mox_ymm_block_prefetch_d(const mox_ymm_job *j, const mox_block_panel *form,
                                                const uint8_t *blocks)
{
    const char *next = (const char *)blocks + j->panels * (int64_t)j->matrix->panel_bytes;
    _mm_prefetch(next, _MM_HINT_T0);
    if (form->bytes % 64 != 0)
        _mm_prefetch(next + form->m_at + 2 * MOX_PANEL_ROWS - 1, _MM_HINT_T0);
}

/* One step of panel p, both halves, times R rows from `row` on. `s`: the step's number in its block. */
MOX_KERNEL_INLINE void mox_ymm_block_step(const mox_block_fields *f, int weights, int R, const mox_ymm_job *j,
                                          const mox_ymm_pos *at, int p, int64_t row, const uint8_t *blocks,
                                          const mox_ymm_run d[2], int64_t s)
{
    const mox_block_panel form = mox_block_panel_of(f, weights);
    const uint8_t *step = blocks + form.codes_at + s * form.step_bytes;
    const float *a = (const float *)j->a->data + row * j->stride + at->step * MOX_PANEL_STEP;
    const mox_ymm_sink sink = mox_ymm_sink_of(j, at, row);
    const int runs = f->run >= MOX_PANEL_STEP ? 1 : MOX_PANEL_STEP / f->run;
    const int64_t first_run = f->integers == MOX_BLOCK_NONE ? 0 : s * MOX_PANEL_STEP / f->run;
    __m256 chains[2][MOX_YMM_NARROW][2], sum[MOX_YMM_NARROW][4];
    mox_ymm_run run[2] = { d[0], d[1] };
    mox_ymm_block_prefetch(step, form.step_bytes);
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++)
        chains[0][r][0] = chains[0][r][1] = chains[1][r][0] = chains[1][r][1] = _mm256_setzero_ps();
    MOX_KERNEL_UNROLL
    for (int i = 0; i < 16; i++) {
        const int g = R == 1 ? i / 2 : i % 8, half = R == 1 ? i % 2 : i / 8;
        __m256 w[4];
        if (g % (8 / runs) == 0)
            run[half] = mox_ymm_block_run(f, &form, blocks, d[half], (int)first_run + g / (8 / runs), half);
        mox_ymm_block_columns(f, false, &j->tables, step, run[half], half, g, w);
        MOX_KERNEL_UNROLL
        for (int pair = 0; pair < 2; pair++)
            mox_ymm_add_pair(MOX_DECODE_PAIRS, R, a + 4 * g + 2 * pair, j->stride, w + 2 * pair, chains[half]);
    }
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++) {
        sum[r][0] = mox_ymm_step_sum(MOX_DECODE_PAIRS, chains[0][r]);
        sum[r][1] = mox_ymm_step_sum(MOX_DECODE_PAIRS, chains[1][r]);
    }
    mox_ymm_add_step(R, 2, false, &sink, p, 0, sum);
}

MOX_KERNEL_INLINE void mox_ymm_block_narrow(const mox_block_fields *f, int weights, int R, const mox_ymm_job *j)
{
    const mox_block_panel form = mox_block_panel_of(f, weights);
    const int64_t count = j->matrix->cols / weights;
    for (int p = 0; p < j->panels; p++) {
        const uint8_t *blocks = j->codes + p * (int64_t)j->matrix->panel_bytes;
        mox_ymm_pos at = { 0 };
        for (int64_t b = 0; b < count; b++, blocks += form.bytes) {
            const mox_ymm_run d[2] = { mox_ymm_block_d(j, f, p, b, 0), mox_ymm_block_d(j, f, p, b, 1) };
            mox_ymm_block_prefetch_d(j, &form, blocks);
            for (int64_t s = 0; s < form.steps; s++, mox_ymm_next(j, &at))
                mox_ymm_block_step(f, weights, R, j, &at, p, 0, blocks, d, s);
        }
    }
}

/* ---- wide ----------------------------------------------------------------------------------------- */

/* Decodes `count` steps of panel p to the slab. */
MOX_KERNEL_INLINE void mox_ymm_block_expand(const mox_block_fields *f, int weights, const mox_ymm_job *j, int p,
                                            const mox_ymm_pos *start, int64_t count)
{
    const mox_block_panel form = mox_block_panel_of(f, weights);
    const uint8_t *panel = j->codes + p * (int64_t)j->matrix->panel_bytes;
    const int runs = f->run >= MOX_PANEL_STEP ? 1 : MOX_PANEL_STEP / f->run;
    for (int64_t i = 0; i < count; i++) {
        const int64_t block = (start->step + i) / form.steps, s = (start->step + i) % form.steps;
        const uint8_t *blocks = panel + block * form.bytes, *step = blocks + form.codes_at + s * form.step_bytes;
        const int64_t first_run = f->integers == MOX_BLOCK_NONE ? 0 : s * MOX_PANEL_STEP / f->run;
        mox_ymm_block_prefetch(step, form.step_bytes);
        MOX_KERNEL_UNROLL
        for (int half = 0; half < 2; half++) {
            const mox_ymm_run d = mox_ymm_block_d(j, f, p, block, half);
            float *to = j->slab + (2 * i + half) * MOX_YMM_HALF;
            mox_ymm_run run = d;
            MOX_KERNEL_UNROLL
            for (int g = 0; g < 8; g++, to += 32) {
                __m256 w[4];
                if (g % (8 / runs) == 0)
                    run = mox_ymm_block_run(f, &form, blocks, d, (int)first_run + g / (8 / runs), half);
                mox_ymm_block_columns(f, true, &j->tables, step, run, half, g, w);
                MOX_KERNEL_UNROLL
                for (int v = 0; v < 4; v++)
                    _mm256_store_ps(to + 8 * v, w[v]);
            }
        }
    }
}

#endif
