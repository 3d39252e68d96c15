/* SPDX-License-Identifier: Apache-2.0
 *
 * int_dot_words_avx512.h - kernel avx512_fma for 4-bit weights and more rows than limbs serve (int_dot_avx512.h): steps
 * in which no multiply-add rounds are multiplied as 16-bit integers (VPDPWSSD), two columns of 16 rows at a time.
 *
 *     A = H 2^s + L       the activations of a step in units (mox_int_dot_units). H has 16 bits. L is zero but for few
 *                         small activations; the pairs of columns that have one are multiplied a second time
 *     sum A W             (sum H W) 2^s + sum L W, exact in int32; rounded once, as int_dot_avx512.h explains
 *
 * Of the steps of normal bf16 activations that do not round 82 % have no L, and 99.9 % at most two pairs with one.
 * Steps with more than four, and those that round, are multiplied in floats, from codes.
 *
 *     slab      [pair of columns][panel 2][row 16] two words: the weights of a step
 *     records   [step][row] of this struct; one of a step in floats is not read
 *     order     [step] rows sorted by kind: SHORT, LONG (two pairs with L, four), floats (mox_int_dot_sort_rows)
 *
 * For files compiled with AVX-512 F, BW, DQ, VL and VNNI.
 */
#ifndef MOX_CPU_INT_DOT_WORDS_AVX512_H
#define MOX_CPU_INT_DOT_WORDS_AVX512_H

#include "cpu/expert_gemm/avx512/int_dot_panels_avx512.h"

enum { MOX_WORDS_SHORT = 0, MOX_WORDS_LONG = 1, MOX_WORDS_BLOCK = 8, MOX_WORDS_FLOAT_ROWS = 3, MOX_WORDS_TRIAL = 4 };
enum {
    MOX_WORDS_SHORT_PAIRS = 2,
    MOX_WORDS_LONG_PAIRS = 4,
    MOX_WORDS_PAIR_BYTES = 2 * 64,
    MOX_WORDS_STEP_BYTES = 4 * 64
};

/* One row's step. */
typedef struct mox_words_row {
    int16_t high[32];                      /* H */
    int16_t low[2 * MOX_WORDS_LONG_PAIRS]; /* L of the pairs that have one, then zeros */
    uint16_t at[MOX_WORDS_LONG_PAIRS];     /* where these pairs lie in the slab, in bytes */
    int32_t shift;                         /* s */
    float unit;
} mox_words_row;
_Static_assert(sizeof(mox_words_row) == MOX_WORDS_ROW_BYTES, "scratch has room for it");

typedef struct mox_words_job {
    mox_fma_job fma;
    mox_int_dot_format *format;
    mox_words_row *rows;
    uint8_t *order, *slab;
    int64_t *float_steps; /* number of (row, step) that are multiplied in floats */
} mox_words_job;

/* ---- conversion of the activations ----------------------------------------------------------------- */

MOX_KERNEL_INLINE __m512i mox_words_pairs(__m512i even, __m512i odd)
{
    return _mm512_mask_blend_epi16(0xaaaaaaaa, even, _mm512_slli_epi32(odd, 16));
}

MOX_KERNEL_INLINE __m128i mox_words_first_four(__m512i x)
{
    return _mm256_castsi256_si128(_mm512_castsi512_si256(x));
}

MOX_KERNEL_INLINE __m512i mox_words_magnitude(__m512i x)
{
    return _mm512_xor_si512(x, _mm512_srai_epi32(x, 31));
}

/* Stores a step whose activations are multiples of `unit`, and returns its kind. */
MOX_KERNEL_INLINE int mox_words_split(__m512i even, __m512i odd, __m512i unit, float h, mox_words_row *out)
{
    const __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i most = _mm512_set1_epi32(INT16_MAX);
    const uint32_t largest =
        _mm512_reduce_max_epu32(_mm512_max_epu32(mox_words_magnitude(even), mox_words_magnitude(odd)));
    const int32_t shift = largest < 1u << 15 ? 0 : 17 - __builtin_clz(largest);
    const __m512i by = _mm512_set1_epi32(shift), half = _mm512_set1_epi32((1 << shift) >> 1);
    /* Where rounding up would leave 16 bits, H stays below and L is larger. */
    const __m512i high_even = _mm512_min_epi32(_mm512_srav_epi32(_mm512_add_epi32(even, half), by), most);
    const __m512i high_odd = _mm512_min_epi32(_mm512_srav_epi32(_mm512_add_epi32(odd, half), by), most);
    const __m512i low = mox_words_pairs(_mm512_sub_epi32(even, _mm512_sllv_epi32(high_even, by)),
                                        _mm512_sub_epi32(odd, _mm512_sllv_epi32(high_odd, by)));
    const __mmask16 has_low = _mm512_test_epi32_mask(low, low);
    const int pairs = __builtin_popcount(has_low);
    if (pairs > MOX_WORDS_LONG_PAIRS)
        return MOX_INT_DOT_FLOATS;
    const __m512i at = _mm512_maskz_compress_epi32(has_low, _mm512_slli_epi32(lanes, 7));
    const __m128i low_pairs = mox_words_first_four(_mm512_maskz_compress_epi32(has_low, low));
    _mm512_storeu_ps(out->high, _mm512_castsi512_ps(mox_words_pairs(high_even, high_odd)));
    _mm_storeu_si128((__m128i *)(void *)out->low, low_pairs);
    _mm_storel_epi64((__m128i *)(void *)out->at, _mm256_castsi256_si128(_mm512_cvtepi32_epi16(at)));
    out->shift = shift;
    out->unit = _mm_cvtss_f32(_mm_castsi128_ps(mox_words_first_four(unit))) * h;
    return pairs > MOX_WORDS_SHORT_PAIRS ? MOX_WORDS_LONG : MOX_WORDS_SHORT;
}

/* True when more than an eighth of the rows' steps must be floats. Then all are, from a slab: that is faster. */
static inline bool mox_words_too_few(int64_t float_steps, int64_t rows, int64_t steps)
{
    return 8 * float_steps > rows * steps;
}

/* Gives up after the first TRIAL steps where words are too few: behind an activation function a sixth to a fifth of the
 * steps round, and converting all would cost a tenth of the product. */
static inline void mox_words_convert(const mox_words_job *j, int64_t steps, int64_t rows)
{
    const mox_fma_job *fma = &j->fma;
    const mox_int_dot_format format = *j->format;
    uint8_t kinds[MOX_PANEL_BLOCK];
    *j->float_steps = 0;
    for (int64_t s = 0; s < steps; s++) {
        uint8_t *order = j->order + s * mox_int_dot_order_bytes(rows);
        for (int64_t row = 0; row < rows; row++) {
            __m512 even, odd;
            __m512i a, b, unit;
            mox_int_dot_load_f32(fma->values + row * fma->stride + s * MOX_PANEL_STEP, MOX_PANEL_STEP, &even, &odd);
            kinds[row] = (uint8_t)(mox_int_dot_units(&format, even, odd, &a, &b, &unit)
                                       ? mox_words_split(a, b, unit, format.h, &j->rows[s * rows + row])
                                       : MOX_INT_DOT_FLOATS);
        }
        mox_int_dot_sort_rows(kinds, rows, order);
        *j->float_steps += rows - order[MOX_WORDS_LONG];
        if (s + 1 == MOX_WORDS_TRIAL && mox_words_too_few(*j->float_steps, rows, s + 1)) {
            *j->float_steps = rows * steps;
            return;
        }
    }
}

/* What the first call for its activations does. */
static inline void mox_words_prepare(const mox_words_job *j, moxie_dtype element, bool zeros, int64_t steps,
                                     int64_t rows)
{
    const unsigned mxcsr = mox_segment_flush_subnormals();
    mox_panel_counts format;
    mox_panel_count(element, zeros, &format);
    *j->format = mox_int_dot_format_of(&format, zeros);
    mox_words_convert(j, steps, rows);
    _mm_setcsr(mxcsr);
}

/* ---- weights ------------------------------------------------------------------------------------- */

/* W by code, in words, twice. */
MOX_KERNEL_INLINE __m512i mox_words_table(const mox_int_dot_format *format, bool zeros)
{
    const __m512i counts = _mm512_cvtepu8_epi32(mox_words_first_four(format->counts));
    const __m512i values = zeros ? counts : _mm512_sub_epi32(counts, _mm512_set1_epi32(format->offset));
    const __m256i words = _mm512_cvtepi32_epi16(values);
    return _mm512_inserti64x4(_mm512_castsi256_si512(words), words, 1);
}

/* Decodes a step of panel p to the slab. */
MOX_KERNEL_INLINE void mox_words_decode(bool zeros, const mox_words_job *j, const mox_pair_tables *table,
                                        const mox_int_dot_step *step, int p)
{
    __m512i zero = _mm512_setzero_si512();
    if (zeros) {
        const uint8_t *points = j->fma.iter.zero[p] + step->at.group * MOX_PANEL_ROWS;
        zero = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)points));
        zero = _mm512_or_si512(zero, _mm512_slli_epi32(zero, 16));
    }
    MOX_KERNEL_UNROLL
    for (int q = 0; q < 4; q++) {
        __m512i pairs[4];
        mox_pairs_nibbles(MOXIE_F4_E2M1, false, table, _mm512_loadu_si512(step->codes.codes[p] + 64 * q), zero, pairs);
        MOX_KERNEL_UNROLL
        for (int i = 0; i < 4; i++)
            _mm512_store_si512(j->slab + (4 * q + i) * MOX_WORDS_PAIR_BYTES + 64 * p,
                               zeros ? _mm512_sub_epi16(pairs[i], zero) : pairs[i]);
    }
}

/* ---- products ------------------------------------------------------------------------------------ */

/* sum += w a. In assembly, because gcc 12 copies every sum before and after the instruction: that took as long as the
 * products. */
#ifndef MOX_ZMM_DPWSSD
#define MOX_ZMM_DPWSSD(sum, w, a) __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(w), "v"(a))
#endif

MOX_KERNEL_INLINE __m512i mox_words_broadcast(const int16_t *pair)
{
    return mox_int_dot_broadcast((const uint8_t *)pair);
}

/* From the sums of H to t. */
MOX_KERNEL_INLINE void mox_words_finish(int L, const uint8_t *slab, const mox_words_row *row, __m512i sum[2],
                                        __m512 t[2])
{
    const __m512i shift = _mm512_set1_epi32(row->shift);
    sum[0] = _mm512_sllv_epi32(sum[0], shift);
    sum[1] = _mm512_sllv_epi32(sum[1], shift);
    MOX_KERNEL_UNROLL
    for (int i = 0; i < L; i++) {
        const __m512i a = mox_words_broadcast(row->low + 2 * i);
        MOX_ZMM_DPWSSD(sum[0], _mm512_load_si512(slab + row->at[i]), a);
        MOX_ZMM_DPWSSD(sum[1], _mm512_load_si512(slab + row->at[i] + 64), a);
    }
    for (int p = 0; p < 2; p++)
        t[p] = _mm512_mul_ps(_mm512_cvtepi32_ps(sum[p]), _mm512_set1_ps(row->unit));
}

/* Adds the step sums t of R rows. The usual case, a segment of one step with scales of the weights alone, has no test
 * in its loop. */
MOX_KERNEL_INLINE void mox_words_add(int R, const mox_fma_job *j, const mox_int_dot_step *step, const uint8_t *order,
                                     __m512 t[][2])
{
    if (step->first && step->last && step->scales.scaled && step->scales.act == NULL) {
        const __m512 scale[2] = { step->scales.weight[0], step->scales.weight[1] };
        float *c = j->c;
        MOX_KERNEL_UNROLL
        for (int r = 0; r < R; r++) {
            float *sum = c + order[r] * 2 * MOX_PANEL_ROWS;
            _mm512_store_ps(sum, _mm512_fmadd_ps(t[r][0], scale[0], _mm512_load_ps(sum)));
            sum += MOX_PANEL_ROWS;
            _mm512_store_ps(sum, _mm512_fmadd_ps(t[r][1], scale[1], _mm512_load_ps(sum)));
        }
        return;
    }
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++)
        mox_int_dot_add(j, step, order[r], t[r]);
}

/* R rows, numbered by `order`, by both panels. L: how many pairs are multiplied a second time. */
MOX_KERNEL_INLINE void mox_words_block(int R, int L, const mox_words_job *j, const mox_int_dot_step *step,
                                       const uint8_t *order)
{
    const mox_words_row *row[MOX_WORDS_BLOCK];
    __m512i sum[MOX_WORDS_BLOCK][2];
    const uint8_t *slab = j->slab;
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++) {
        row[r] = (const mox_words_row *)(const void *)step->limbs + order[r];
        sum[r][0] = sum[r][1] = _mm512_setzero_si512();
    }
    for (int k = 0; k < MOX_PANEL_STEP / 2; k++) {
        const __m512i w = _mm512_load_si512(slab + k * MOX_WORDS_PAIR_BYTES);
        const __m512i v = _mm512_load_si512(slab + k * MOX_WORDS_PAIR_BYTES + 64);
        MOX_KERNEL_UNROLL
        for (int r = 0; r < R; r++) {
            const __m512i a = mox_words_broadcast(row[r]->high + 2 * k);
            MOX_ZMM_DPWSSD(sum[r][0], w, a);
            MOX_ZMM_DPWSSD(sum[r][1], v, a);
        }
    }
    __m512 t[MOX_WORDS_BLOCK][2];
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++)
        mox_words_finish(L, slab, row[r], sum[r], t[r]);
    mox_words_add(R, &j->fma, step, order, t);
}

typedef void (*mox_words_block_fn)(const mox_words_job *j, const mox_int_dot_step *step, const uint8_t *order);

#define MOX_WORDS_FN(R, L)                                                                                             \
    static void mox_words_block_##R##L(const mox_words_job *j, const mox_int_dot_step *step, const uint8_t *order)     \
    {                                                                                                                  \
        mox_words_block(R, L, j, step, order);                                                                         \
    }
#define MOX_WORDS_FNS(R)                                                                                               \
    MOX_WORDS_FN(R, 2)                                                                                                 \
    MOX_WORDS_FN(R, 4)
MOX_WORDS_FNS(1)
MOX_WORDS_FNS(2)
MOX_WORDS_FNS(3)
MOX_WORDS_FNS(4)
MOX_WORDS_FNS(5)
MOX_WORDS_FNS(6)
MOX_WORDS_FNS(7)
MOX_WORDS_FNS(8)
#undef MOX_WORDS_FNS
#undef MOX_WORDS_FN

#define MOX_WORDS_FNS(L)                                                                                               \
    {                                                                                                                  \
        mox_words_block_1##L, mox_words_block_2##L, mox_words_block_3##L, mox_words_block_4##L, mox_words_block_5##L,  \
            mox_words_block_6##L, mox_words_block_7##L, mox_words_block_8##L                                           \
    }
/* [kind][rows - 1] */
static const mox_words_block_fn mox_words_blocks[2][MOX_WORDS_BLOCK] = { MOX_WORDS_FNS(2), MOX_WORDS_FNS(4) };
#undef MOX_WORDS_FNS

/* ---- steps in floats ----------------------------------------------------------------------------- */

/* R rows, numbered by `order`: columns of each panel are multiplied as they are decoded. */
MOX_KERNEL_INLINE void mox_words_floats(bool zeros, int R, const mox_fma_job *j, const mox_int_dot_step *step,
                                        const uint8_t *order)
{
    __m512 t[MOX_WORDS_FLOAT_ROWS][2];
    MOX_KERNEL_UNROLL
    for (int p = 0; p < 2; p++) {
        const __m512 zero = mox_fma_zero(MOXIE_I4, zeros, j, &step->at, p);
        __m512 even[MOX_WORDS_FLOAT_ROWS], odd[MOX_WORDS_FLOAT_ROWS];
        MOX_KERNEL_UNROLL
        for (int r = 0; r < R; r++)
            even[r] = odd[r] = _mm512_setzero_ps();
        MOX_KERNEL_UNROLL
        for (int q = 0; q < 4; q++) {
            __m512 w[2][4];
            mox_floats_quarter(MOXIE_I4, zeros, &j->tables, step->codes.codes[p], q, zero, w[0], w[1]);
            MOX_KERNEL_UNROLL
            for (int i = 0; i < 4; i++) {
                MOX_KERNEL_UNROLL
                for (int r = 0; r < R; r++) {
                    const float *x = j->values + order[r] * j->stride + step->s * MOX_PANEL_STEP + 8 * q + 2 * i;
                    even[r] = _mm512_fmadd_ps(w[0][i], _mm512_set1_ps(x[0]), even[r]);
                    odd[r] = _mm512_fmadd_ps(w[1][i], _mm512_set1_ps(x[1]), odd[r]);
                }
            }
        }
        MOX_KERNEL_UNROLL
        for (int r = 0; r < R; r++)
            t[r][p] = _mm512_add_ps(_mm512_setzero_ps(), _mm512_add_ps(even[r], odd[r]));
    }
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++)
        mox_int_dot_add(j, step, order[r], t[r]);
}

MOX_KERNEL_INLINE void mox_words_all_floats(bool zeros, const mox_fma_job *j, const mox_int_dot_step *step,
                                            const uint8_t *order, int64_t rows)
{
    for (int64_t row = 0, count; row < rows; row += count) {
        count = mox_min_i64(MOX_WORDS_FLOAT_ROWS, rows - row);
        if (count == 1)
            mox_words_floats(zeros, 1, j, step, order + row);
        else if (count == 2)
            mox_words_floats(zeros, 2, j, step, order + row);
        else
            mox_words_floats(zeros, 3, j, step, order + row);
    }
}

/* ---- one call ------------------------------------------------------------------------------------ */

/* Blocks of nearly the same size. The last row of a block is the one with the most pairs to multiply again. */
MOX_KERNEL_INLINE void mox_words_rows(const mox_words_job *j, const mox_int_dot_step *step)
{
    const int64_t all = step->order[MOX_WORDS_LONG], blocks = mox_ceil_div(all, MOX_WORDS_BLOCK);
    for (int64_t b = 0, row = 0, rows; b < blocks; b++, row += rows) {
        rows = mox_ceil_div(all - row, blocks - b);
        const int kind = row + rows > step->order[MOX_WORDS_SHORT] ? MOX_WORDS_LONG : MOX_WORDS_SHORT;
        mox_words_blocks[kind][rows - 1](j, step, step->order + 2 + row);
    }
}

MOX_KERNEL_INLINE mox_int_dot_step mox_words_enter_step(const mox_words_job *j, const mox_segment_pos *at, int64_t s)
{
    const mox_segment_iter *iter = &j->fma.iter;
    const int64_t rows = iter->a->rows;
    for (int p = 0; p < iter->panels; p++)
        mox_segment_prefetch(iter->prefetch_to_l2, iter, p, iter->panels, s, MOX_WORDS_STEP_BYTES);
    return (mox_int_dot_step) { .s = s,
                                .at = *at,
                                .first = mox_segment_is_first(iter, at),
                                .last = mox_segment_is_last(at),
                                .scales = mox_segment_scales_at(iter, at, 0),
                                .limbs = (const uint8_t *)(j->rows + s * rows),
                                .order = j->order + s * mox_int_dot_order_bytes(rows),
                                .codes.codes = { iter->codes[0] + s * MOX_WORDS_STEP_BYTES,
                                                 iter->codes[1] + s * MOX_WORDS_STEP_BYTES } };
}

MOX_KERNEL_INLINE void mox_words_steps(bool zeros, const mox_words_job *j)
{
    const int64_t rows = j->fma.iter.a->rows;
    const mox_pair_tables table = { .t = { mox_words_table(j->format, zeros) } };
    mox_segment_pos at = mox_segment_begin(&j->fma.iter);
    memset(j->fma.c, 0, (size_t)rows * 2 * MOX_PANEL_ROWS * sizeof *j->fma.c);
    for (int64_t s = 0; s < j->fma.iter.steps; s++, mox_segment_next(&j->fma.iter, &at)) {
        const mox_int_dot_step step = mox_words_enter_step(j, &at, s);
        const int64_t words = step.order[MOX_WORDS_LONG];
        for (int p = 0; p < 2 && words > 0; p++)
            mox_words_decode(zeros, j, &table, &step, p);
        mox_words_rows(j, &step);
        mox_words_all_floats(zeros, &j->fma, &step, step.order + 2 + words, rows - words);
    }
}

MOX_KERNEL_INLINE void mox_words_multiply(moxie_dtype decode_class, bool zeros, const mox_panel_matrix *matrix,
                                          const moxie_quant *weight, int64_t panel, int panels, const mox_panel_rows *a,
                                          float *c, void *scratch)
{
    mox_carver carver = mox_carver_of(scratch);
    mox_words_scratch sc;
    mox_words_lay_out(&carver, matrix->steps, matrix->groups, a->rows, &sc);
    mox_words_job j = { .fma = { .values = a->data,
                                 .stride = matrix->steps * MOX_PANEL_STEP,
                                 .c = c,
                                 .part = sc.fma.part,
                                 .slab = sc.fma.slab },
                        .format = sc.format,
                        .rows = sc.rows,
                        .order = sc.order,
                        .slab = sc.slab,
                        .float_steps = sc.float_steps };
    if (!a->again)
        mox_words_prepare(&j, weight->element, zeros, matrix->steps, a->rows);
    if (mox_words_too_few(*j.float_steps, a->rows, matrix->steps)) {
        mox_fma_multiply(decode_class, zeros, 4, matrix, weight, panel, panels, a, c, scratch);
        return;
    }
    mox_segment_iter_init(&j.fma.iter, matrix, weight, panel, panels, a, MOX_PANEL_STEP, sc.fma.scale);
    mox_floats_tables(weight->element, &j.fma.tables);
    const unsigned mxcsr = mox_segment_flush_subnormals();
    mox_words_steps(zeros, &j);
    _mm_setcsr(mxcsr);
}

#endif
