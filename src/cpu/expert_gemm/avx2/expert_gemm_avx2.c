/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_avx2.c - kernels avx2_fma and avx2_bytes over layout panel16.
 *
 *     c[r, n] = sum over segments of  (sum over the segment's columns k of a[r, k] w[n, k]) [* sa[r]] * sw[n]
 *
 *     avx2_fma    decodes any format to fp32 and multiplies by fused multiply-adds (panel_fma_avx2.h); 4-bit weights as
 *                 integers where that is exact (int_dot_avx2.h)
 *     avx2_bytes  rounds the activations of each step to bytes (class TOL): 4-bit weights, always as integers
 *
 * Here are one variant per decode class, the scratch, and what a call does first. With one row of activations decoding
 * dominates: 4-bit codes take 19 instructions on the three vector ports for 8 multiply-adds. With many rows the
 * multiply-adds dominate.
 */
#include "cpu/expert_gemm/panel_kernel.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include "base/carver.h"
#include "base/sizes.h"
#include "cpu/expert_gemm/avx2/int_dot_avx2.h"
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

/* In the slab only the order of the lanes matters: PAIRS stands for all classes by row, NIBBLES for all by pair. */
#define WIDE(name, decode, R)                                                                                          \
    static void name(const mox_ymm_job *j, int p, const mox_ymm_pos *start, int64_t count, int64_t row)                \
    {                                                                                                                  \
        mox_ymm_wide(decode, R, j, p, start, count, row);                                                              \
    }
WIDE(by_row_1, MOX_DECODE_PAIRS, 1)
WIDE(by_row_2, MOX_DECODE_PAIRS, 2)
WIDE(by_row_3, MOX_DECODE_PAIRS, 3)
WIDE(by_row_4, MOX_DECODE_PAIRS, 4)
WIDE(by_row_5, MOX_DECODE_PAIRS, 5)
WIDE(by_row_6, MOX_DECODE_PAIRS, 6)
WIDE(by_pair_3, MOX_DECODE_NIBBLES, 3)
WIDE(by_pair_4, MOX_DECODE_NIBBLES, 4)
WIDE(by_pair_5, MOX_DECODE_NIBBLES, 5)
WIDE(by_pair_6, MOX_DECODE_NIBBLES, 6)
static const wide_fn by_row[MOX_YMM_BLOCK + 1] = { NULL, by_row_1, by_row_2, by_row_3, by_row_4, by_row_5, by_row_6 };
/* By pair, wide starts at 3 rows; then every block has at least 3. */
static const wide_fn by_pair[MOX_YMM_BLOCK + 1] = { NULL, NULL, NULL, by_pair_3, by_pair_4, by_pair_5, by_pair_6 };

/* VCVTPH2PS keeps subnormals whatever MXCSR says, but some emulators flush them. So f16 is decoded under the caller's
 * MXCSR. */
static void expand_slab(const mox_ymm_job *j, mox_decode_class decode, int p, const mox_ymm_pos *start, int64_t count)
{
    if (decode == MOX_DECODE_HALVES)
        _mm_setcsr(j->mxcsr);
    variants[decode]->expand(j, p, start, count);
    if (decode == MOX_DECODE_HALVES)
        _mm_setcsr(j->mxcsr | MOX_FLUSH_SUBNORMALS);
}

static void all_wide(const mox_ymm_job *j, mox_decode_class decode)
{
    const wide_fn *const times = mox_half_by_pair(decode) ? by_pair : by_row;
    const int64_t rows = j->a->rows, blocks = mox_ceil_div(rows, MOX_YMM_BLOCK);
    for (int p = 0; p < j->panels; p++) {
        mox_ymm_pos at = { 0 };
        while (at.step < j->steps) {
            const int64_t count = mox_min_i64(MOX_YMM_SLAB, j->steps - at.step);
            expand_slab(j, decode, p, &at, count);
            /* Blocks of nearly the same size, so that none is short at the end. */
            for (int64_t b = 0; b < blocks; b++) {
                const int64_t row = b * rows / blocks;
                times[(b + 1) * rows / blocks - row](j, p, &at, count, row);
            }
            for (int64_t s = 0; s < count; s++)
                mox_ymm_next(j, &at);
        }
    }
}

static void all_narrow(const mox_ymm_job *j, mox_decode_class decode)
{
    if (j->a->rows == 2)
        variants[decode]->two(j);
    else
        (j->panels == 2 ? variants[decode]->one_pair : variants[decode]->one)(j);
}

/* ---- 4-bit weights as integers --------------------------------------------------------------------- */

static mox_ymm_int_dot_fn int_dot_products(void)
{
    return mox_cpu()->avx_vnni && mox_ymm_int_dot_avxvnni != NULL ? mox_ymm_int_dot_avxvnni : mox_ymm_int_dot_avx2;
}

/* Up to how many rows integers are faster. Limbs without AVX-VNNI: only as many as are multiplied while decoding. */
static int64_t int_dot_max_rows(bool bytes)
{
    return int_dot_products() == mox_ymm_int_dot_avx2 && !bytes ? MOX_YMM_NARROW : MOX_PANEL_BLOCK;
}

/* Upper limit of the steps in a row; 0 for formats that are never multiplied as integers. */
static int64_t int_dot_max_steps(moxie_dtype element, int64_t cols)
{
    return mox_panel_order_of(element) == MOX_PANEL_NIBBLES ? mox_ceil_div(cols, MOX_PANEL_STEP / 2) : 0;
}

/* False when floats are faster: when integers are exact in hardly any step. Never for bytes. */
static bool multiply_int_dot(mox_ymm_job *j, moxie_dtype element, mox_ymm_int_dot_head *head)
{
    const int64_t rows = j->a->rows;
    mox_panel_counts format;
    if (rows > int_dot_max_rows(j->bytes) || !mox_panel_count(element, j->zeros, &format))
        return false;
    j->counts = mox_half_both(format.counts);
    const mox_ymm_int_dot_format int_format = { .h = format.h,
                                                .max = (int32_t)format.max,
                                                .offset = j->zeros ? 1 : format.offset };
    if (!j->a->again)
        head->floats = mox_ymm_int_dot_prepare(j, &int_format);
    if (!j->bytes && rows > MOX_YMM_NARROW && head->floats * 4 > rows * j->steps * 3)
        return false;
    int_dot_products()(j);
    return true;
}

/* ---- one call ------------------------------------------------------------------------------------ */

typedef struct scratch {
    mox_ymm_int_dot_head *head;
    float *scale, *zero;
} scratch;

static void lay_out(mox_carver *carver, bool bytes, moxie_dtype element, int64_t cols, int64_t groups, mox_ymm_job *j,
                    scratch *sc)
{
    const uint64_t floats = 2 * (uint64_t)groups * MOX_PANEL_ROWS;
    const int64_t steps = (int_dot_max_steps(element, cols) + 1) / 2 * 2; /* whole steps of 32 columns */
    const int64_t rows = int_dot_max_rows(bytes);
    sc->head = mox_carve(carver, 1, sizeof *sc->head);
    j->limbs = mox_carve(carver, (uint64_t)(rows * steps), 2 * MOX_YMM_INT_DOT_LINE);
    j->order = mox_carve(carver, (uint64_t)steps, (uint64_t)mox_ymm_int_dot_order_bytes(rows));
    j->slab = mox_carve(carver, MOX_YMM_SLAB * 2 * MOX_YMM_HALF, sizeof *j->slab);
    j->part = mox_carve(carver, MOX_PANEL_BLOCK * MOX_YMM_WIDTH, sizeof *j->part);
    sc->scale = mox_carve(carver, floats, sizeof *sc->scale);
    sc->zero = mox_carve(carver, floats, sizeof *sc->zero);
}

static int64_t steps_of(int64_t cols, int64_t step, int64_t steps)
{
    return mox_min_i64(mox_ceil_div(cols, step), steps);
}

static void prepare(mox_ymm_job *j, const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel,
                    const scratch *sc)
{
    const bool by_16 = m->groups > 1 && m->group_cols == MOX_PANEL_STEP / 2;
    const int64_t step = by_16 ? MOX_PANEL_STEP / 2 : MOX_PANEL_STEP;
    j->stride = m->steps * MOX_PANEL_STEP;
    j->codes = m->panels + (uint64_t)panel * m->panel_bytes;
    j->panel_floats = m->groups * MOX_PANEL_ROWS;
    j->scaled = m->scale_lanes > 0;
    j->zeros = m->zero_at != 0;
    j->quarters = by_16 ? 2 : 4;
    j->steps = mox_ceil_div(m->cols, step);
    j->group_steps = m->groups > 1 ? steps_of(m->group_cols, step, j->steps) : j->steps;
    j->act_steps = j->a->scales != NULL ? steps_of(j->a->group_cols, step, j->steps) : j->steps;
    j->segment_steps = mox_min_i64(j->group_steps, j->act_steps);
    mox_half_tables_init(weight->element, j->zeros, &j->tables);
    for (int p = 0; p < j->panels; p++) {
        const uint8_t *counts = j->codes + (uint64_t)p * m->panel_bytes + m->zero_at;
        mox_panel_scales(m, weight->scale, panel + p, sc->scale + p * j->panel_floats);
        for (int64_t i = 0; j->zeros && i < j->panel_floats; i++)
            sc->zero[p * j->panel_floats + i] = (float)counts[i];
    }
    j->scale = sc->scale;
    j->zero = sc->zero;
    for (int64_t r = 0; r < j->a->rows; r++)
        memset(j->c + r * MOX_YMM_WIDTH, 0, (size_t)j->panels * MOX_PANEL_ROWS * sizeof *j->c);
}

static void multiply_any(bool bytes, const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,
                         const mox_panel_rows *a, float *c, void *base)
{
    mox_ymm_job j = { .matrix = m, .a = a, .panels = panels, .bytes = bytes, .c = c, .mxcsr = _mm_getcsr() };
    mox_carver carver = mox_carver_of(base);
    scratch sc;
    lay_out(&carver, bytes, weight->element, m->cols, m->groups, &j, &sc);
    prepare(&j, m, weight, panel, &sc);
    const mox_decode_class decode = (mox_decode_class)mox_decode_class_of(weight->element, j.zeros);
    _mm_setcsr(j.mxcsr | MOX_FLUSH_SUBNORMALS);
    if (!multiply_int_dot(&j, weight->element, sc.head)) {
        if (a->rows <= MOX_YMM_NARROW && variants[decode]->one != NULL)
            all_narrow(&j, decode);
        else
            all_wide(&j, decode);
    }
    _mm_setcsr(j.mxcsr);
}

static void multiply(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,
                     const mox_panel_rows *a, float *c, void *base)
{
    multiply_any(false, m, weight, panel, panels, a, c, base);
}

static void multiply_bytes(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,
                           const mox_panel_rows *a, float *c, void *base)
{
    multiply_any(true, m, weight, panel, panels, a, c, base);
}

/* ---- choice ------------------------------------------------------------------------------------- */

mox_panel_multiply_fn mox_expert_gemm_avx2_fma_bind(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    const moxie_quant *weight = problem->weight;
    if (mox_decode_class_of(weight->element, weight->has_zero != 0) < 0) {
        mox_reject(why, "quantize the weights, or store them in 16 bits", "cannot decode %s",
                   mox_quant_dtype_name(weight->element));
        return NULL;
    }
    return mox_panel_admit_floats(problem, why) ? multiply : NULL;
}

mox_panel_multiply_fn mox_expert_gemm_avx2_bytes_bind(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    return mox_panel_admit_bytes(problem, why) ? multiply_bytes : NULL;
}

static uint64_t bytes_of_scratch(bool bytes, const mox_expert_gemm_problem *problem)
{
    const int64_t cols = mox_expert_gemm_cols(problem);
    mox_carver carver = mox_carver_of(NULL);
    mox_ymm_job unused;
    scratch sc;
    lay_out(&carver, bytes, problem->weight->element, cols, mox_scale_cols(problem->weight, cols), &unused, &sc);
    return carver.used;
}

uint64_t mox_expert_gemm_avx2_fma_scratch_bytes(const mox_expert_gemm_problem *problem)
{
    return bytes_of_scratch(false, problem);
}

uint64_t mox_expert_gemm_avx2_bytes_scratch_bytes(const mox_expert_gemm_problem *problem)
{
    return bytes_of_scratch(true, problem);
}

#else

MOX_PANEL_GEMM_ABSENT(avx2_fma, "x86-64 with AVX2, FMA and F16C")
MOX_PANEL_GEMM_ABSENT(avx2_bytes, "x86-64 with AVX2, FMA and F16C")

#endif
