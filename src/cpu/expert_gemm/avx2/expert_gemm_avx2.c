/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_avx2.c - kernels avx2_fma and avx2_bytes over layout panel16.
 *
 *     c[r, n] = sum over segments of  (sum over the segment's columns k of a[r, k] w[n, k]) [* sa[r]] * sw[n]
 *
 *     avx2_fma    decodes any format to fp32 and multiplies by fused multiply-adds (panel_fma_avx2.h); 4-bit weights as
 *                 integers where that is exact (int_dot_avx2.h)
 *     avx2_bytes  rounds the activations of each step to bytes (class TOL): 4-bit weights, always as integers, and
 *                 8-bit integer weights (panel_quad_bytes_avx2.h)
 *     avx2_block_bytes, avx2_block_int8   the same for block types, and for activations that are int8 already
 *                 (panel_block_bytes_avx2.h)
 *
 * Here are one variant per decode class, and what a call does first; avx2_plan.c has the choice and the scratch. With
 * one row of activations decoding dominates: 4-bit codes take 19 instructions on the three vector ports for 8
 * multiply-adds. With many rows the multiply-adds dominate.
 */
#include "cpu/expert_gemm/avx2/avx2_plan.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include "base/sizes.h"
#include "cpu/expert_gemm/avx2/int_dot_avx2.h"
#include "cpu/expert_gemm/avx2/panel_levels_avx2.h"
#include "cpu/expert_gemm/avx2/panel_quad_bytes_avx2.h"
#include "cpu/expert_gemm/avx2/panel_whole_avx2.h"
#include "cpu/expert_gemm/panel_scales.h"

/* ---- variants ------------------------------------------------------------------------------------ */

typedef void (*narrow_fn)(const mox_ymm_job *j);
typedef void (*expand_fn)(const mox_ymm_job *j, int p, const mox_ymm_pos *start, int64_t count);
typedef void (*wide_fn)(const mox_ymm_job *j, int p, const mox_ymm_pos *start, int64_t count, int64_t row);

typedef struct variant {
    narrow_fn one, one_pair, two; /* one row, one row by two panels, two rows; NULL: always wide */
    expand_fn expand;
} variant;

#define NARROW(name, decode, R, H)                                                                                     \
    static void name(const mox_ymm_job *j)                                                                             \
    {                                                                                                                  \
        mox_ymm_narrow(decode, R, H, j);                                                                               \
    }
#define EXPAND(name, decode)                                                                                           \
    static void name(const mox_ymm_job *j, int p, const mox_ymm_pos *start, int64_t count)                             \
    {                                                                                                                  \
        mox_ymm_expand(decode, j, p, start, count);                                                                    \
    }
#define VARIANT(name, decode)                                                                                          \
    NARROW(one_##name, decode, 1, 2)                                                                                   \
    NARROW(pair_##name, decode, 1, 4)                                                                                  \
    NARROW(two_##name, decode, 2, 2)                                                                                   \
    EXPAND(expand_##name, decode)                                                                                      \
    static const variant variant_##name = { one_##name, pair_##name, two_##name, expand_##name };
VARIANT(pairs, MOX_DECODE_PAIRS)
VARIANT(quads, MOX_DECODE_QUADS)
VARIANT(e4m3, MOX_DECODE_E4M3)
VARIANT(e5m2, MOX_DECODE_E5M2)
VARIANT(nibbles, MOX_DECODE_NIBBLES)
VARIANT(nibbles_zeros, MOX_DECODE_NIBBLES_ZEROS)
VARIANT(planes, MOX_DECODE_PLANES)
EXPAND(expand_halves, MOX_DECODE_HALVES)
static const variant variant_halves = { .expand = expand_halves };

static const variant *const variants[] = {
    [MOX_DECODE_PAIRS] = &variant_pairs,   [MOX_DECODE_HALVES] = &variant_halves,
    [MOX_DECODE_QUADS] = &variant_quads,   [MOX_DECODE_E4M3] = &variant_e4m3,
    [MOX_DECODE_E5M2] = &variant_e5m2,     [MOX_DECODE_NIBBLES] = &variant_nibbles,
    [MOX_DECODE_PLANES] = &variant_planes, [MOX_DECODE_NIBBLES_ZEROS] = &variant_nibbles_zeros,
};

/* In the slab only the order of the lanes matters: by pair, as NIBBLES are. */
#define WIDE(name, decode, R)                                                                                          \
    static void name(const mox_ymm_job *j, int p, const mox_ymm_pos *start, int64_t count, int64_t row)                \
    {                                                                                                                  \
        mox_ymm_wide(decode, R, j, p, start, count, row);                                                              \
    }
WIDE(by_pair_1, MOX_DECODE_NIBBLES, 1)
WIDE(by_pair_2, MOX_DECODE_NIBBLES, 2)
WIDE(by_pair_3, MOX_DECODE_NIBBLES, 3)
WIDE(by_pair_4, MOX_DECODE_NIBBLES, 4)
WIDE(by_pair_5, MOX_DECODE_NIBBLES, 5)
WIDE(by_pair_6, MOX_DECODE_NIBBLES, 6)
static const wide_fn by_pair[MOX_YMM_BLOCK + 1] = { NULL,      by_pair_1, by_pair_2, by_pair_3,
                                                    by_pair_4, by_pair_5, by_pair_6 };

/* Three to eight rows of 4-bit weights, by number of rows. */
#define BY_HALF(name, R, S)                                                                                            \
    static void name(const mox_ymm_job *j)                                                                             \
    {                                                                                                                  \
        mox_ymm_narrow_halves(MOX_DECODE_NIBBLES, R, S, j);                                                            \
    }
BY_HALF(by_half_3, 3, 0)
BY_HALF(by_half_4, 4, 0)
BY_HALF(by_half_5, 5, 0)
BY_HALF(by_half_6, 3, 3)
BY_HALF(by_half_7, 4, 3)
BY_HALF(by_half_8, 4, 4)
static const narrow_fn by_half[MOX_YMM_NARROW_HALVES + 1] = { NULL,      NULL,      NULL,      by_half_3, by_half_4,
                                                              by_half_5, by_half_6, by_half_7, by_half_8 };

/* VCVTPH2PS keeps subnormals whatever MXCSR says, but some emulators flush them. So f16 is decoded under the caller's
 * MXCSR. */
static void expand_slab(const mox_ymm_job *j, mox_decode_class decode, int p, const mox_ymm_pos *start, int64_t count)
{
    if (j->blocks != NULL) {
        j->blocks->expand(j, p, start, count);
        return;
    }
    if (decode == MOX_DECODE_HALVES)
        _mm_setcsr(j->mxcsr);
    variants[decode]->expand(j, p, start, count);
    if (decode == MOX_DECODE_HALVES)
        _mm_setcsr(j->mxcsr | MOX_FLUSH_SUBNORMALS);
}

static void all_wide(const mox_ymm_job *j, mox_decode_class decode)
{
    const int64_t rows = j->a->rows, blocks = mox_ceil_div(rows, MOX_YMM_BLOCK);
    for (int p = 0; p < j->panels; p++) {
        mox_ymm_pos at = { 0 };
        while (at.step < j->steps) {
            const int64_t count = mox_min_i64(MOX_YMM_SLAB, j->steps - at.step);
            expand_slab(j, decode, p, &at, count);
            /* Blocks of nearly the same size, so that none is short at the end. */
            for (int64_t b = 0; b < blocks; b++) {
                const int64_t row = b * rows / blocks;
                by_pair[(b + 1) * rows / blocks - row](j, p, &at, count, row);
            }
            for (int64_t s = 0; s < count; s++)
                mox_ymm_next(j, &at);
        }
    }
}

static bool has_narrow(const mox_ymm_job *j, mox_decode_class decode)
{
    return j->blocks != NULL ? j->blocks->one != NULL : variants[decode]->one != NULL;
}

static void all_narrow(const mox_ymm_job *j, mox_decode_class decode)
{
    if (j->blocks != NULL) {
        (j->a->rows == 2 ? j->blocks->two : j->blocks->one)(j);
        return;
    }
    if (j->a->rows == 2)
        variants[decode]->two(j);
    else
        (j->panels == 2 ? variants[decode]->one_pair : variants[decode]->one)(j);
}

/* ---- every step a segment ------------------------------------------------------------------------- */

#define WHOLE(name, codes, R)                                                                                          \
    static void name(const mox_ymm_job *j)                                                                             \
    {                                                                                                                  \
        mox_whole(codes, R, j);                                                                                        \
    }
WHOLE(whole_quads_1, MOX_WHOLE_QUADS, 1)
WHOLE(whole_quads_2, MOX_WHOLE_QUADS, 2)
WHOLE(whole_table_1, MOX_WHOLE_TABLE, 1)
WHOLE(whole_plain_1, MOX_WHOLE_PLAIN, 1)
WHOLE(whole_plain_2, MOX_WHOLE_PLAIN, 2)
static const narrow_fn by_whole[][MOX_WHOLE_ROWS] = { [MOX_WHOLE_QUADS] = { whole_quads_1, whole_quads_2 },
                                                      [MOX_WHOLE_TABLE] = { whole_table_1, NULL },
                                                      [MOX_WHOLE_PLAIN] = { whole_plain_1, whole_plain_2 } };

/* False when the call is not of that form, or when `floats` steps must be multiplied as floats. */
static bool multiply_whole(const mox_ymm_job *j, mox_whole_codes codes, int64_t floats)
{
    if (floats > 0 || !mox_whole_takes(j) || by_whole[codes][j->a->rows - 1] == NULL)
        return false;
    by_whole[codes][j->a->rows - 1](j);
    return true;
}

/* ---- 4-bit weights as integers --------------------------------------------------------------------- */

static mox_ymm_int_dot_fn int_dot_products(void)
{
    return mox_ymm_has_vnni() ? mox_ymm_int_dot_avxvnni : mox_ymm_int_dot_avx2;
}

/* False when floats are faster: when integers are exact in hardly any step. Never for bytes. */
static bool multiply_int_dot(mox_ymm_job *j, moxie_dtype element, mox_ymm_int_dot_head *head)
{
    const int64_t rows = j->a->rows;
    mox_panel_counts format;
    if (rows > mox_ymm_int_dot_max_rows(j->bytes) || !mox_panel_count(element, j->zeros, &format))
        return false;
    j->plain = mox_ymm_int_dot_is_plain(&format, rows);
    const int32_t swapped = mox_ymm_int_dot_swapped(j) && !j->zeros ? format.offset : 0;
    j->counts = _mm256_sub_epi8(mox_half_both(format.counts), _mm256_set1_epi8((char)swapped));
    const mox_ymm_int_dot_format int_format = { .h = format.h,
                                                .max = (int32_t)format.max,
                                                .offset = j->zeros ? 1 : format.offset - swapped };
    if (!j->a->again)
        head->floats = mox_ymm_int_dot_prepare(j, &int_format);
    if (!j->bytes && rows > MOX_YMM_NARROW && head->floats * 4 > rows * j->steps * 3)
        return false;
    if (j->bytes && !mox_ymm_has_vnni() &&
        multiply_whole(j, j->plain ? MOX_WHOLE_PLAIN : MOX_WHOLE_TABLE, head->floats))
        return true;
    int_dot_products()(j);
    return true;
}

/* ---- one call ------------------------------------------------------------------------------------ */

static int64_t steps_of(int64_t cols, int64_t step, int64_t steps)
{
    return mox_min_i64(mox_ceil_div(cols, step), steps);
}

/* 16 f16 as floats, negated if so asked. VCVTPH2PS keeps subnormals whatever MXCSR says, on processors. */
static void halves_to_floats(const uint8_t *from, bool negate, float *out)
{
    const __m256 sign = _mm256_set1_ps(negate ? -0.0f : 0.0f);
    for (int i = 0; i < MOX_PANEL_ROWS; i += 8) {
        const __m128i halves = _mm_loadu_si128((const __m128i *)(const void *)(from + 2 * i));
        _mm256_store_ps(out + i, _mm256_xor_ps(_mm256_cvtph_ps(halves), sign));
    }
}

/* Infinities become NaN: infinity times a level of 0 is NaN, and a sum of levels does not show it. */
static void mark_infinities(float *values)
{
    for (int i = 0; i < MOX_PANEL_ROWS; i += 8) {
        const __m256 x = _mm256_load_ps(values + i);
        _mm256_store_ps(values + i, _mm256_add_ps(x, _mm256_sub_ps(x, x)));
    }
}

/* What codes of 4 bits or fewer stand for, by code. */
static void block_tables_init(const mox_block_fields *f, mox_half_tables *tables)
{
    float values[16];
    for (int code = 0; code < 16; code++)
        values[code] = (float)((f->levels ? mox_block_level(code) : code) - f->offset);
    tables->t[0] = mox_half_bytes(values, 0);
    tables->t[1] = mox_half_bytes(values, 1);
}

/* d of 16 blocks that lie as in the file. */
static void levels_to_floats(const mox_block_levels *row, int32_t bytes, const uint8_t *from, float *out)
{
    uint16_t halves[MOX_PANEL_ROWS] __attribute__((aligned(32)));
    for (int n = 0; n < MOX_PANEL_ROWS; n++, from += bytes)
        halves[n] = (uint16_t)mox_block_levels_d(from, row->d_at);
    halves_to_floats((const uint8_t *)halves, false, out);
}

/* d and m of the blocks of a panel, 16 rows at a time. What is added is kept negative. */
static void prepare_fields(const mox_ymm_job *j, const mox_block_fields *f, int64_t blocks, int64_t bytes,
                           const uint8_t *from, float *d, float *m)
{
    for (int64_t b = 0; b < blocks; b++, from += bytes, d += MOX_PANEL_ROWS, m += MOX_PANEL_ROWS) {
        halves_to_floats(from, false, d);
        if (f->m_at >= 0)
            halves_to_floats(from + 2 * MOX_PANEL_ROWS, f->m_sign > 0, m);
        if (j->bytes)
            mark_infinities(d);
        if (j->bytes && f->m_at >= 0)
            mark_infinities(m);
    }
}

static void prepare_levels(const mox_ymm_job *j, const mox_block_levels *row, int64_t blocks, int32_t block_bytes,
                           const uint8_t *from, float *d)
{
    for (int64_t b = 0; b < blocks; b++, from += MOX_PANEL_ROWS * (int64_t)block_bytes, d += MOX_PANEL_ROWS) {
        levels_to_floats(row, block_bytes, from, d);
        if (j->bytes)
            mark_infinities(d);
    }
}

/* Scales of 1 for the only group, then d and m of each block. */
static void prepare_blocks(mox_ymm_job *j, const mox_panel_matrix *m, moxie_dtype element, const mox_ymm_scratch *sc)
{
    const int64_t bytes = mox_block_panel_bytes(element), blocks = m->cols / mox_block_panel_cols(element);
    const mox_block_fields *f = mox_block_fields_of(element);
    j->panel_floats = (1 + blocks) * MOX_PANEL_ROWS;
    if (f != NULL)
        block_tables_init(f, &j->tables);
    for (int p = 0; p < j->panels; p++) {
        const uint8_t *from = j->codes + (uint64_t)p * m->panel_bytes;
        float *d = sc->scale + p * j->panel_floats, *minimum = sc->zero + p * j->panel_floats;
        mox_scales_fill(d, MOX_PANEL_ROWS, 1.0f);
        if (f != NULL)
            prepare_fields(j, f, blocks, bytes, from, d + MOX_PANEL_ROWS, minimum + MOX_PANEL_ROWS);
        else
            prepare_levels(j, mox_block_levels_of(element), blocks, mox_block_of(element)->bytes, from,
                           d + MOX_PANEL_ROWS);
    }
}

/* The scales of all groups of panel `panel`. */
static void group_scales(const mox_panel_matrix *m, moxie_dtype dtype, int64_t panel, float *out)
{
    const uint8_t *halves = m->panels + (uint64_t)panel * m->panel_bytes + m->scale_at;
    if (dtype != MOXIE_F16 || m->scale_lanes != MOX_PANEL_ROWS) {
        mox_panel_scales(m, dtype, panel, out);
        return;
    }
    for (int64_t g = 0; g < m->groups; g++)
        halves_to_floats(halves + 2 * MOX_PANEL_ROWS * g, false, out + MOX_PANEL_ROWS * g);
}

static void prepare_groups(mox_ymm_job *j, const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel,
                           const mox_ymm_scratch *sc)
{
    j->panel_floats = m->groups * MOX_PANEL_ROWS;
    mox_half_tables_init(weight->element, j->zeros, &j->tables);
    for (int p = 0; p < j->panels; p++) {
        const uint8_t *counts = j->codes + (uint64_t)p * m->panel_bytes + m->zero_at;
        group_scales(m, weight->scale, panel + p, sc->scale + p * j->panel_floats);
        for (int64_t i = 0; j->zeros && i < j->panel_floats; i++)
            sc->zero[p * j->panel_floats + i] = (float)counts[i];
    }
}

static void prepare(mox_ymm_job *j, const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel,
                    const mox_ymm_scratch *sc)
{
    const bool by_16 = m->groups > 1 && m->group_cols == MOX_PANEL_STEP / 2;
    const int64_t step = by_16 ? MOX_PANEL_STEP / 2 : MOX_PANEL_STEP;
    j->stride = m->steps * MOX_PANEL_STEP;
    j->codes = m->panels + (uint64_t)panel * m->panel_bytes;
    j->scaled = m->scale_lanes > 0;
    j->zeros = m->zero_at != 0;
    j->quarters = by_16 ? 2 : 4;
    j->steps = mox_ceil_div(m->cols, step);
    j->group_steps = m->groups > 1 ? steps_of(m->group_cols, step, j->steps) : j->steps;
    j->act_steps = j->a->scales != NULL ? steps_of(j->a->group_cols, step, j->steps) : j->steps;
    j->segment_steps = mox_min_i64(j->group_steps, j->act_steps);
    j->blocks = mox_quant_is_block(weight) ? mox_ymm_block_variant_of(weight->element) : NULL;
    if (j->blocks != NULL)
        prepare_blocks(j, m, weight->element, sc);
    else
        prepare_groups(j, m, weight, panel, sc);
    j->scale = sc->scale;
    j->zero = sc->zero;
    j->slab = sc->slab;
    j->part = sc->part;
    j->limbs = sc->limbs;
    j->order = sc->order;
    for (int64_t r = 0; r < j->a->rows; r++)
        memset(j->c + r * MOX_YMM_WIDTH, 0, (size_t)j->panels * MOX_PANEL_ROWS * sizeof *j->c);
}

/* 8-bit integers times activations that are rounded to bytes. Each line keeps the sum of its bytes. */
static void multiply_quad_bytes(const mox_ymm_job *j, mox_ymm_int_dot_head *head)
{
    static const mox_block_fields whole = { .m_at = -1, .run = MOX_PANEL_STEP, .offset = 1 };
    if (!j->a->again)
        head->floats = mox_block_bytes_prepare(j->a, j->steps, &whole, false, (mox_bytes_line *)(void *)j->limbs);
    if (multiply_whole(j, MOX_WHOLE_QUADS, head->floats))
        return;
    if (j->zeros)
        mox_quad_all(true, j, head->floats > 0);
    else
        mox_quad_all(false, j, head->floats > 0);
}

/* Block types times activations of 8 bits. */
static void multiply_block_bytes(const mox_ymm_job *j, moxie_dtype element, mox_ymm_acts acts,
                                 mox_ymm_int_dot_head *head)
{
    static const mox_block_fields levels = { .m_at = -1, .run = 32 };
    const mox_block_fields *f = mox_block_fields_of(element);
    if (!j->a->again)
        head->floats = mox_block_bytes_prepare(j->a, j->steps, f != NULL ? f : &levels, acts == MOX_YMM_ACTS_CODES,
                                               (mox_bytes_line *)(void *)j->limbs);
    mox_ymm_block_bytes_of(element)(j, head->floats > 0);
}

static void multiply_any(mox_ymm_acts acts, const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel,
                         int panels, const mox_panel_rows *a, float *c, void *base)
{
    mox_ymm_job j = {
        .matrix = m, .a = a, .panels = panels, .bytes = acts != MOX_YMM_ACTS_EXACT, .c = c, .mxcsr = _mm_getcsr()
    };
    mox_carver carver = mox_carver_of(base);
    mox_ymm_scratch sc;
    mox_ymm_lay_out(&carver, acts, weight->element, m->cols, m->groups, a->rows, &sc);
    prepare(&j, m, weight, panel, &sc);
    /* Block types are decoded by row, as PAIRS are. */
    const mox_decode_class decode =
        j.blocks != NULL ? MOX_DECODE_PAIRS : (mox_decode_class)mox_decode_class_of(weight->element, j.zeros);
    _mm_setcsr(j.mxcsr | MOX_FLUSH_SUBNORMALS);
    if (j.blocks != NULL && j.bytes) {
        multiply_block_bytes(&j, weight->element, acts, sc.head);
    } else if (j.bytes && decode == MOX_DECODE_QUADS) {
        multiply_quad_bytes(&j, sc.head);
    } else if (!multiply_int_dot(&j, weight->element, sc.head)) {
        if (a->rows <= MOX_YMM_NARROW && has_narrow(&j, decode))
            all_narrow(&j, decode);
        else if (a->rows <= MOX_YMM_NARROW_HALVES && decode == MOX_DECODE_NIBBLES)
            by_half[a->rows](&j);
        else
            all_wide(&j, decode);
    }
    _mm_setcsr(j.mxcsr);
}

#define MULTIPLY(name, acts)                                                                                           \
    static void name(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,                  \
                     const mox_panel_rows *a, float *c, void *base)                                                    \
    {                                                                                                                  \
        multiply_any(acts, m, weight, panel, panels, a, c, base);                                                      \
    }
MULTIPLY(multiply, MOX_YMM_ACTS_EXACT)
MULTIPLY(multiply_bytes, MOX_YMM_ACTS_ROUNDED)
MULTIPLY(multiply_codes, MOX_YMM_ACTS_CODES)

const mox_panel_multiply_fn mox_avx2_fma_multiply = multiply, mox_avx2_bytes_multiply = multiply_bytes,
                            mox_avx2_block_int8_multiply = multiply_codes,
                            mox_avx2_block_bytes_multiply = multiply_bytes;

#else

const mox_panel_multiply_fn mox_avx2_fma_multiply = NULL, mox_avx2_bytes_multiply = NULL,
                            mox_avx2_block_int8_multiply = NULL, mox_avx2_block_bytes_multiply = NULL;

#endif
