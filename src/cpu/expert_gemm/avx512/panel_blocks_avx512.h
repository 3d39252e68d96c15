/* SPDX-License-Identifier: Apache-2.0
 *
 * panel_blocks_avx512.h - decodes block types (pack/panel/block_panel.h) for the AVX-512 kernels: 16 rows of a panel in
 * a register.
 *
 *     w = S (level - offset) - M          S = d s, M = m t: exact in f32; one rounding, as ggml's decoder has it
 *
 *     line      64 bytes of a plane of codes; VPSHUFB makes the codes of row n the 32-bit lane n: for each of the 8/b
 *               fields of b bits four columns
 *     index     a shift takes the codes of two columns, c and c + 2, to the lowest bits of both words of a lane;
 *               VPTERNLOG joins the codes' upper bits
 *     level     lower word: VPERMPS looks up 4 bits, VPERMI2PS 5. Upper word: VPERMW looks up a bf16, which is that
 *               f32. They ignore the bits above; tables of shorter codes repeat. Codes of 6 bits become 2^23 + code,
 *               or 128 + code, and the offset is subtracted
 *
 * Types of block_levels.def are decoded row by row, 32 columns at a time, then gathered to lanes.
 *
 * Parameters of the always-inline functions are constants where they are called: the row `f` of block_fields.def,
 * `weights` of a block.
 */
#ifndef MOX_CPU_PANEL_BLOCKS_AVX512_H
#define MOX_CPU_PANEL_BLOCKS_AVX512_H

#include <immintrin.h>
#include <string.h>

#include "cpu/expert_gemm/panel_kernel.h"
#include "format/block_levels.h"
#include "pack/panel/block_panel.h"

/* Before loops over the columns of a step, which must be unrolled completely. */
#if !defined(MOX_UNROLL_STEP) && defined(__clang__)
#define MOX_UNROLL_STEP MOX_KERNEL_UNROLL
#elif !defined(MOX_UNROLL_STEP)
#define MOX_UNROLL_STEP _Pragma("GCC unroll 32")
#endif

/* Level less offset of each code, as f32 and as bf16; codes of fewer than 5 bits repeat. */
typedef struct mox_zmm_tables {
    float level[32] __attribute__((aligned(64)));
    uint16_t word[32] __attribute__((aligned(64)));
} mox_zmm_tables;

/* S and M of 16 rows. */
typedef struct mox_zmm_run {
    __m512 s, m;
} mox_zmm_run;

/* The codes of a step: lines of the low bits and of the high bits. */
typedef struct mox_zmm_codes {
    __m512i low[4], high[2];
} mox_zmm_codes;

MOX_KERNEL_INLINE int mox_zmm_code_bits(const mox_block_fields *f)
{
    return f->low.bits + f->high.bits;
}

/* Runs with scales of their own in a step. */
MOX_KERNEL_INLINE int mox_zmm_runs(const mox_block_fields *f)
{
    return f->run >= MOX_PANEL_STEP ? 1 : MOX_PANEL_STEP / f->run;
}

/* Number of the first run of step s of a block. */
MOX_KERNEL_INLINE int mox_zmm_first_run(const mox_block_fields *f, int64_t s)
{
    return f->integers == MOX_BLOCK_NONE ? 0 : (int)s * MOX_PANEL_STEP / f->run;
}

static inline void mox_zmm_tables_init(const mox_block_fields *f, mox_zmm_tables *tables)
{
    const int mask = (1 << mox_zmm_code_bits(f)) - 1;
    for (int i = 0; i < 32; i++) {
        uint32_t bits;
        tables->level[i] = (float)((f->levels ? mox_block_level(i & mask) : (i & mask)) - f->offset);
        memcpy(&bits, &tables->level[i], sizeof bits);
        tables->word[i] = (uint16_t)(bits >> 16);
    }
}

/* ---- scales ---------------------------------------------------------------------------------------------- */

MOX_KERNEL_INLINE __m512 mox_zmm_halves(const uint8_t *from)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)from));
}

/* d and m of the 16 blocks at `blocks`. What is added is kept negative. VCVTPH2PS keeps subnormals. */
MOX_KERNEL_INLINE mox_zmm_run mox_zmm_block_d(const mox_block_fields *f, const mox_block_panel *form,
                                              const uint8_t *blocks)
{
    mox_zmm_run d = { mox_zmm_halves(blocks), _mm512_setzero_ps() };
    if (f->m_at >= 0)
        d.m = mox_zmm_halves(blocks + form->m_at);
    if (f->m_at >= 0 && f->m_sign > 0)
        d.m = _mm512_xor_ps(d.m, _mm512_set1_ps(-0.0f));
    return d;
}

/* Infinities become NaN: infinity times a level of 0 is NaN, and a sum of levels does not show it. */
MOX_KERNEL_INLINE __m512 mox_zmm_mark_infinities(__m512 x)
{
    return _mm512_add_ps(x, _mm512_sub_ps(x, x));
}

/* d and m of the 16 blocks at `blocks`, marked. */
MOX_KERNEL_INLINE mox_zmm_run mox_zmm_marked_d(const mox_block_fields *f, const mox_block_panel *form,
                                               const uint8_t *blocks)
{
    mox_zmm_run d = mox_zmm_block_d(f, form, blocks);
    d.s = mox_zmm_mark_infinities(d.s);
    if (f->m_at >= 0)
        d.m = mox_zmm_mark_infinities(d.m);
    return d;
}

/* 16 signed bytes as floats. */
MOX_KERNEL_INLINE __m512 mox_zmm_integers(__m128i bytes)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
}

/* S and M of run `run` of the 16 blocks at `blocks`. */
MOX_KERNEL_INLINE mox_zmm_run mox_zmm_block_run(const mox_block_fields *f, const mox_block_panel *form,
                                                const uint8_t *blocks, mox_zmm_run d, int run)
{
    const uint8_t *at = blocks + run * MOX_PANEL_ROWS;
    const __m128i nibble = _mm_set1_epi8(0x0f);
    if (f->integers == MOX_BLOCK_NONE)
        return d;
    __m128i s = _mm_loadu_si128((const __m128i *)(const void *)(at + form->s_at)), t = s;
    if (f->integers == MOX_BLOCK_NIBBLES) {
        t = _mm_and_si128(_mm_srli_epi16(s, 4), nibble);
        s = _mm_and_si128(s, nibble);
    }
    if (f->integers == MOX_BLOCK_SIX_AND_SIX)
        t = _mm_loadu_si128((const __m128i *)(const void *)(at + form->t_at));
    d.s = _mm512_mul_ps(d.s, mox_zmm_integers(s));
    if (f->m_at >= 0)
        d.m = _mm512_mul_ps(d.m, mox_zmm_integers(t));
    return d;
}

/* ---- codes ----------------------------------------------------------------------------------------------- */

MOX_KERNEL_INLINE __m512i mox_zmm_line(const uint8_t *line)
{
    const __m512i by_row = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    return _mm512_shuffle_epi8(_mm512_loadu_si512(line), by_row);
}

/* The codes of the step at `step`. */
MOX_KERNEL_INLINE mox_zmm_codes mox_zmm_step_codes(const mox_block_fields *f, const uint8_t *step)
{
    mox_zmm_codes codes;
    MOX_KERNEL_UNROLL
    for (int u = 0; u < f->low.bits; u++)
        codes.low[u] = mox_zmm_line(step + 64 * u);
    MOX_KERNEL_UNROLL
    for (int u = 0; u < f->high.bits; u++)
        codes.high[u] = mox_zmm_line(step + 64 * (f->low.bits + u));
    return codes;
}

/* Lanes of 32 bits moved right by a constant, or left by a negative one. */
MOX_KERNEL_INLINE __m512i mox_zmm_shift(__m512i x, int right)
{
    return right > 0 ? _mm512_srli_epi32(x, (unsigned)right) : right < 0 ? _mm512_slli_epi32(x, (unsigned)-right) : x;
}

/* Field `g` (columns 4 g .. 4 g + 3) of lines with `bits` bits, moved right by `more` bits and left by `up`. */
MOX_KERNEL_INLINE __m512i mox_zmm_field(const __m512i *lines, int bits, int g, int more, int up)
{
    const int fields = 8 / bits;
    return mox_zmm_shift(lines[g / fields], more + bits * (g % fields) - up);
}

/* Bits of `low` where `mask` is 1, of `high` elsewhere. */
MOX_KERNEL_INLINE __m512i mox_zmm_join(__m512i mask, __m512i low, __m512i high)
{
    return _mm512_ternarylogic_epi32(mask, low, high, 0xca);
}

/* The codes of columns 4 g + odd and 4 g + odd + 2, in the words of a lane. */
MOX_KERNEL_INLINE __m512i mox_zmm_index(const mox_block_fields *f, const mox_zmm_codes *codes, int g, int odd)
{
    const __m512i low = mox_zmm_field(codes->low, f->low.bits, g, 8 * odd, 0);
    if (f->high.bits == 0)
        return low;
    return mox_zmm_join(_mm512_set1_epi16((short)((1 << f->low.bits) - 1)), low,
                        mox_zmm_field(codes->high, f->high.bits, g, 8 * odd, f->low.bits));
}

/* Codes of 6 bits as floats: in the lower word the lowest bits of 2^23, in the upper one those of 128. */
MOX_KERNEL_INLINE __m512 mox_zmm_counted(const mox_block_fields *f, __m512i index, bool upper)
{
    const int mask = (1 << mox_zmm_code_bits(f)) - 1;
    const __m512i counted =
        _mm512_ternarylogic_epi32(index, _mm512_set1_epi32(upper ? mask << 16 : mask),
                                  _mm512_set1_epi32(upper ? 0x43000000 : 0x4b000000), 0xea); /* (a & b) | c */
    return _mm512_sub_ps(_mm512_castsi512_ps(counted), _mm512_set1_ps((upper ? 128.0f : 0x1p23f) + (float)f->offset));
}

/* Level less offset of the code in the lower or in the upper word of `index`. */
MOX_KERNEL_INLINE __m512 mox_zmm_level(const mox_block_fields *f, const mox_zmm_tables *tables, __m512i index,
                                       bool upper)
{
    const int bits = mox_zmm_code_bits(f);
    if (bits > 5)
        return mox_zmm_counted(f, index, upper);
    if (upper)
        return _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(0xaaaaaaaa, index, _mm512_load_si512(tables->word)));
    if (bits <= 4)
        return _mm512_permutexvar_ps(index, _mm512_load_ps(tables->level));
    return _mm512_permutex2var_ps(_mm512_load_ps(tables->level), index, _mm512_load_ps(tables->level + 16));
}

/* The weights of the columns in one word of `index`. */
MOX_KERNEL_INLINE __m512 mox_zmm_column(const mox_block_fields *f, const mox_zmm_tables *tables, __m512i index,
                                        bool upper, mox_zmm_run run)
{
    const __m512 level = mox_zmm_level(f, tables, index, upper);
    return f->m_at >= 0 ? _mm512_fmsub_ps(level, run.s, run.m) : _mm512_mul_ps(level, run.s);
}

/* ---- types of block_levels.def --------------------------------------------------------------------------- */

typedef void (*mox_levels_step_fn)(const uint8_t *block, float d, int32_t s, int8_t *level, float scale[2]);

/* Step s of the 16 blocks at `blocks`, of `bytes` each: four signed columns of each row in a lane of each of w, and the
 * scales of both halves of 16 columns. `mark`: an infinite d counts as NaN. */
MOX_KERNEL_INLINE void mox_zmm_levels(mox_levels_step_fn decode, bool mark, int bytes, int d_at, const uint8_t *blocks,
                                      int32_t s, __m512i w[8], __m512 scale[2])
{
    const __m512i rows = _mm512_setr_epi32(0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120);
    int8_t level[MOX_PANEL_ROWS][MOX_PANEL_STEP] __attribute__((aligned(64)));
    float scales[2][MOX_PANEL_ROWS] __attribute__((aligned(64)));
    for (int r = 0; r < MOX_PANEL_ROWS; r++, blocks += bytes) {
        const uint32_t half = mox_block_levels_d(blocks, d_at);
        const float d = _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128((int)half)));
        float both[2];
        _mm_prefetch((const char *)blocks + 2048, _MM_HINT_T0);
        decode(blocks, mark ? d + (d - d) : d, s, level[r], both);
        scales[0][r] = both[0];
        scales[1][r] = both[1];
    }
    MOX_KERNEL_UNROLL
    for (int g = 0; g < 8; g++)
        w[g] = _mm512_i32gather_epi32(rows, level[0] + 4 * g, 4);
    scale[0] = _mm512_load_ps(scales[0]);
    scale[1] = _mm512_load_ps(scales[1]);
}

#endif
