/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_avx512_bf16.c - kernel avx512_bf16: weights are decoded to bf16 and multiplied by VDPBF16PS, two columns
 * in one instruction.
 *
 *     chain     16 columns:  t[r] = 0, then for every pair line (panel_decode_avx512.h) in order
 *               t[r] = fma(odd column, t[r]),  t[r] = fma(even column, t[r])        as the instruction is defined
 *     segment   C[r] = 0 + step + step ..., where a step is two chains, or one when weight groups have 16 columns;
 *               then  c[r] = fma(C[r] * sa[r], sw, c[r])                            DOT_STEPS, panel_kernel.h
 *
 * A block is up to BLOCK rows of activations. It decodes a quarter of a step and multiplies it from registers, because
 * decoding and products use different ports. Up to PAIRED rows are multiplied by two panels at once: one panel has too
 * few chains to hide the latency of a product, 6 cycles. If there are more rows than one block has, the first block
 * stores SLAB steps of decoded lines, which stay in the L1 cache for the other blocks.
 *
 *     slab      [step][pair line 16][row of the panel 16] two bf16
 *
 * For processors where VDPBF16PS takes no longer than a multiply-add (cpu_features.h), so that it is twice as fast as
 * avx512_fma. All of them have VBMI.
 * Source: Intel SDM vol. 2, VDPBF16PS; a Zen 4 was seen to do the same.
 */
#include "cpu/expert_gemm/avx512/avx512_plan.h"

#if defined(__AVX512BF16__) && defined(__AVX512VBMI__)

#include "base/sizes.h"
#include "cpu/expert_gemm/avx512/segment_iter_avx512.h"

enum { BLOCK = 8, PAIRED = 3, SLAB = MOX_DOT_SLAB, TILE = 16, LINE = MOX_DOT_LINE };

typedef struct job {
    mox_segment_iter iter;
    int64_t step_bytes; /* of codes */
    int64_t row_bytes;  /* of activations */
    float *c, *part;    /* [rows][2][16]: sums, and those of segments that are not finished */
    uint8_t *slab;
    mox_pair_tables tables;
} job;

/* Some rows of activations times some steps of panel p, or of both panels (panels_at_once()). */
typedef struct block {
    const uint8_t *a; /* of the first row at step 0; rows are a line apart */
    int64_t stride;   /* bytes from a step of 32 columns to the next */
    int64_t row;      /* the first one, of c */
    int p;
    int64_t step, last; /* [step, last) */
    mox_segment_pos at; /* of `step` */
    uint8_t *slab;      /* decoded lines are stored here, or read; NULL: neither */
} block;

typedef void (*block_fn)(const job *j, const block *b);

/* ---- products ------------------------------------------------------------------------------------ */

MOX_KERNEL_INLINE __m512bh pair(const uint8_t *a)
{
    int32_t bits;
    memcpy(&bits, a, sizeof bits);
    return (__m512bh)_mm512_set1_epi32(bits);
}

/* Adds to t the products of four lines of panel i and R rows, whose pairs begin at `a`. */
MOX_KERNEL_INLINE void add_lines(int R, const __m512i lines[4], const uint8_t *a, int i, __m512 t[BLOCK][2])
{
    MOX_KERNEL_UNROLL
    for (int l = 0; l < 4; l++) {
        MOX_KERNEL_UNROLL
        for (int r = 0; r < R; r++)
            t[r][i] = _mm512_dpbf16_ps(t[r][i], pair(a + r * LINE + 4 * l), (__m512bh)lines[l]);
    }
}

/* The lines of quarter q of a step: decoded, and stored if there is a slab; or else read from the slab. */
MOX_KERNEL_INLINE void quarter_lines(moxie_dtype element, bool zeros, bool decode, const job *j, const uint8_t *codes,
                                     int q, __m512i zero, uint8_t *slab, __m512i lines[4])
{
    if (decode)
        mox_pairs_quarter(element, zeros, &j->tables, codes, q, zero, lines);
    else
        for (int l = 0; l < 4; l++)
            lines[l] = _mm512_load_si512(slab + (4 * q + l) * LINE);
    for (int l = 0; l < 4 && decode && slab != NULL; l++)
        _mm512_store_si512(slab + (4 * q + l) * LINE, lines[l]);
}

MOX_KERNEL_INLINE void multiply_block(moxie_dtype element, bool zeros, bool decode, int Q, int R, int P, const job *j,
                                      const block *b)
{
    const int64_t step_bytes = j->step_bytes, stride = b->stride, to = (2 * b->row + b->p) * MOX_PANEL_ROWS;
    float *c = j->c + to, *part = j->part + to;
    mox_segment_pos at = b->at;
    uint8_t *slab = b->slab;
    for (int64_t s = b->step; s < b->last; s++, mox_segment_next(&j->iter, &at)) {
        const uint8_t *a = Q == 4 ? b->a + s * stride : b->a + s / 2 * stride + s % 2 * (LINE / 2);
        __m512i zero[2];
        __m512 t[2][BLOCK][2];
        MOX_KERNEL_UNROLL
        for (int i = 0; i < P; i++) {
            zero[i] = zeros ? mox_pairs_zeros(element, j->iter.zero[b->p + i] + at.group * MOX_PANEL_ROWS)
                            : mox_pairs_no_zeros(element);
            if (decode)
                mox_segment_prefetch(true, &j->iter, b->p + i, P, s, (int)step_bytes);
        }
        MOX_KERNEL_UNROLL
        for (int h = 0; h < Q / 2; h++) {
            MOX_KERNEL_UNROLL
            for (int r = 0; r < R; r++)
                t[h][r][0] = t[h][r][1] = _mm512_setzero_ps();
            MOX_KERNEL_UNROLL
            for (int q = 2 * h; q < 2 * h + 2; q++) {
                __m512i lines[2][4];
                MOX_KERNEL_UNROLL
                for (int i = 0; i < P; i++)
                    quarter_lines(element, zeros, decode, j, j->iter.codes[b->p + i] + s * step_bytes, q, zero[i], slab,
                                  lines[i]);
                MOX_KERNEL_UNROLL
                for (int i = 0; i < P; i++)
                    add_lines(R, lines[i], a + 16 * q, i, t[h]);
            }
        }
        MOX_KERNEL_UNROLL
        for (int r = 0; r < R; r++) {
            MOX_KERNEL_UNROLL
            for (int i = 0; i < P; i++)
                t[0][r][i] = Q == 4 ? _mm512_add_ps(t[0][r][i], t[1][r][i]) : t[0][r][i];
        }
        mox_segment_add_step(R, P, &j->iter, &at, b->row, b->p, c, part, t[0]);
        if (slab != NULL)
            slab += 4 * Q * LINE;
    }
}

MOX_KERNEL_INLINE int panels_at_once(bool decode, int R)
{
    return decode && R <= PAIRED ? 2 : 1;
}

#define MULTIPLY(name, element, zeros, decode, Q, R)                                                                   \
    static void name##_##R(const job *j, const block *b)                                                               \
    {                                                                                                                  \
        multiply_block(element, zeros, decode, Q, R, panels_at_once(decode, R), j, b);                                 \
    }
#define BLOCKS(name, element, zeros, decode, Q)                                                                        \
    MULTIPLY(name, element, zeros, decode, Q, 1)                                                                       \
    MULTIPLY(name, element, zeros, decode, Q, 2)                                                                       \
    MULTIPLY(name, element, zeros, decode, Q, 3)                                                                       \
    MULTIPLY(name, element, zeros, decode, Q, 4)                                                                       \
    MULTIPLY(name, element, zeros, decode, Q, 5)                                                                       \
    MULTIPLY(name, element, zeros, decode, Q, 6)                                                                       \
    MULTIPLY(name, element, zeros, decode, Q, 7)                                                                       \
    MULTIPLY(name, element, zeros, decode, Q, 8)                                                                       \
    static const block_fn name[BLOCK + 1] = { NULL,     name##_1, name##_2, name##_3, name##_4,                        \
                                              name##_5, name##_6, name##_7, name##_8 };
BLOCKS(predecoded, MOXIE_BF16, false, false, 4)
BLOCKS(predecoded_by_16, MOXIE_BF16, false, false, 2)
/* One per decode class: its other formats differ only in their tables. */
BLOCKS(pairs, MOXIE_BF16, false, true, 4)
BLOCKS(zipped, MOXIE_F8_E4M3, false, true, 4)
BLOCKS(planes, MOXIE_F6_E3M2, false, true, 4)
BLOCKS(nibbles, MOXIE_F4_E2M1, false, true, 4)
BLOCKS(nibbles_by_16, MOXIE_F4_E2M1, false, true, 2)
BLOCKS(i4_zeros, MOXIE_I4, true, true, 4)
BLOCKS(i4_zeros_by_16, MOXIE_I4, true, true, 2)
BLOCKS(u4b8_zeros, MOXIE_U4B8, true, true, 4)
BLOCKS(u4b8_zeros_by_16, MOXIE_U4B8, true, true, 2)
BLOCKS(i8, MOXIE_I8, false, true, 4)
BLOCKS(i8_zeros, MOXIE_I8, true, true, 4)
BLOCKS(u8b128, MOXIE_U8B128, false, true, 4)
BLOCKS(u8b128_zeros, MOXIE_U8B128, true, true, 4)

/* ---- one call ------------------------------------------------------------------------------------ */

/* All rows times steps [b->step, b->last). The rows of a tile lie together and are cut into blocks of nearly the same
 * size. The very first block decodes, the others read. */
static void all_rows(const job *j, const block_fn *decoding, const block_fn *reading, block *b)
{
    const int64_t rows = j->iter.a->rows;
    const block_fn *times = decoding;
    for (int64_t tile = 0; tile < rows; tile += TILE) {
        const int64_t held = mox_min_i64(TILE, rows - tile), blocks = mox_ceil_div(held, BLOCK);
        const uint8_t *a = (const uint8_t *)j->iter.a->data + tile * j->row_bytes;
        b->stride = held * LINE;
        for (int64_t i = 0; i < blocks; i++) {
            const int64_t first = i * held / blocks;
            b->row = tile + first;
            b->a = a + first * LINE;
            times[(i + 1) * held / blocks - first](j, b);
            times = reading;
        }
    }
}

/* All rows times panel p, or times as many panels from p on as are multiplied at once. */
static void multiply_panel(const job *j, const block_fn *decoding, const block_fn *reading, int p)
{
    const bool many = j->iter.a->rows > BLOCK;
    block b = { .p = p, .at = mox_segment_begin(&j->iter), .slab = many ? j->slab : NULL };
    while (b.step < j->iter.steps) {
        b.last = many ? mox_min_i64(b.step + SLAB, j->iter.steps) : j->iter.steps;
        all_rows(j, decoding, reading, &b);
        for (; b.step < b.last; b.step++)
            mox_segment_next(&j->iter, &b.at);
    }
}

/* Blocks that decode, and blocks that read the slab; steps of `step_cols` columns. */
static void multiply(const block_fn *decoding, const block_fn *reading, int64_t step_cols, const mox_panel_matrix *m,
                     const moxie_quant *weight, int64_t panel, int panels, const mox_panel_rows *a, float *c,
                     void *scratch)
{
    mox_carver carver = mox_carver_of(scratch);
    mox_dot_scratch sc;
    mox_dot_lay_out(&carver, m->groups, &sc);
    job j = { .c = c,
              .step_bytes = (int64_t)m->step_bytes * step_cols / MOX_PANEL_STEP,
              .row_bytes = m->steps * LINE,
              .part = sc.part,
              .slab = sc.slab };
    mox_segment_iter_init(&j.iter, m, weight, panel, panels, a, step_cols, sc.scale);
    mox_pairs_tables(weight->element, weight->has_zero != 0, &j.tables);
    const unsigned mxcsr = mox_segment_flush_subnormals();
    memset(c, 0, (size_t)a->rows * 2 * MOX_PANEL_ROWS * sizeof *c);
    multiply_panel(&j, decoding, reading, 0);
    if (panels == 2 && a->rows > PAIRED)
        multiply_panel(&j, decoding, reading, 1);
    _mm_setcsr(mxcsr);
}

/* ---- variants ------------------------------------------------------------------------------------ */

#define VARIANT(blocks, reading, step_cols)                                                                            \
    static void times_##blocks(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,        \
                               const mox_panel_rows *a, float *c, void *scratch)                                       \
    {                                                                                                                  \
        multiply(blocks, reading, step_cols, m, weight, panel, panels, a, c, scratch);                                 \
    }
VARIANT(pairs, predecoded, 32)
VARIANT(zipped, predecoded, 32)
VARIANT(planes, predecoded, 32)
VARIANT(nibbles, predecoded, 32)
VARIANT(nibbles_by_16, predecoded_by_16, 16)
VARIANT(i4_zeros, predecoded, 32)
VARIANT(i4_zeros_by_16, predecoded_by_16, 16)
VARIANT(u4b8_zeros, predecoded, 32)
VARIANT(u4b8_zeros_by_16, predecoded_by_16, 16)
VARIANT(i8, predecoded, 32)
VARIANT(i8_zeros, predecoded, 32)
VARIANT(u8b128, predecoded, 32)
VARIANT(u8b128_zeros, predecoded, 32)
#undef VARIANT

static const mox_panel_variant variants[] = {
    { MOXIE_BF16, false, times_pairs, NULL },
    { MOXIE_F8_E4M3, false, times_zipped, NULL },
    { MOXIE_F8_E5M2, false, times_zipped, NULL },
    { MOXIE_F6_E3M2, false, times_planes, NULL },
    { MOXIE_F4_E2M1, false, times_nibbles, times_nibbles_by_16 },
    { MOXIE_I4, true, times_i4_zeros, times_i4_zeros_by_16 },
    { MOXIE_U4B8, true, times_u4b8_zeros, times_u4b8_zeros_by_16 },
    { MOXIE_I8, false, times_i8, NULL },
    { MOXIE_I8, true, times_i8_zeros, NULL },
    { MOXIE_U8B128, false, times_u8b128, NULL },
    { MOXIE_U8B128, true, times_u8b128_zeros, NULL },
};
const mox_panel_variants mox_avx512_bf16_variants = { variants, sizeof variants / sizeof variants[0] };

#else

const mox_panel_variants mox_avx512_bf16_variants = { NULL, 0 };

#endif
