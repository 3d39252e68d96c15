/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_avx512_vnni.c - kernel avx512_vnni: integer weights times int8 activations, summed in int32 by VPDPBUSD.
 *
 *     C = sum over a segment of (code - zero) a,     VPDPBUSD:  lane n += sum_{i<4} unsigned byte * signed byte
 *
 * VPDPBUSD wants one unsigned operand. So activations become a + 128, and 128 times the sum of the weights is
 * subtracted when a segment ends. That sum does not depend on the activations: the first block of rows makes it, the
 * others read it. Sums are modulo 2^32, which is exact when C itself fits int32: |C| <= 128 * 128 * columns, so
 * segments may have up to 131071 columns, or half of that with zero points.
 *
 *     segment   8 columns (a slice) at a time: two lines of QUADS, or one of NIBBLES
 *     block     up to BLOCK rows of activations by one or two panels: 2 x BLOCK sums in registers
 *     copy      the rows of a block, a + 128 as bytes. For NIBBLES every 8 bytes are in the order in which a mask and a
 *               shift deliver the columns: 0 4 1 5 2 6 3 7
 *
 * Weights become signed bytes: i8 as it is, u8b128 with its upper bit flipped, 4 bits minus their zero point (8 when
 * there is none, because both formats count from -8). Eight bits minus a zero point would need nine; there, zero times
 * the sum of the activations is subtracted from C.
 */
#include "cpu/expert_gemm/avx512/avx512_plan.h"

#ifdef __AVX512VNNI__

#include "cpu/expert_gemm/avx512/segment_iter_avx512.h"

enum { BLOCK = MOX_VNNI_BLOCK, SLICE = 8 };

typedef struct job {
    mox_segment_iter iter; /* its steps are segments */
    bool zeros;
    int64_t slices, segment_slices; /* of 8 columns, in a row and in a segment */
    int64_t row_bytes;              /* of the activations and of the copy */
    uint8_t *copy;                  /* [BLOCK][row_bytes] */
    int32_t *sums;                  /* [BLOCK][segments] of the copy's activations, if wants_sums() */
    int32_t *offsets;               /* [panel][segment][16]: 128 times the sum of the weights */
    float *c;                       /* [rows][2][16] */
    __m512i flip; /* flipped bits of codes: NIBBLES then count from the least value, QUADS are signed */
} job;

/* Rows [row, row + rows) of activations to the block's copy. Column by column: neighbouring rows of a tile are
 * neighbours in memory. */
static void copy_rows(bool nibbles, const job *j, int64_t row, int64_t rows)
{
    const __m512i turn = _mm512_set1_epi8((char)0x80);
    const __m512i order = _mm512_broadcast_i32x4(_mm_set_epi8(15, 11, 14, 10, 13, 9, 12, 8, 7, 3, 6, 2, 5, 1, 4, 0));
    const uint8_t *from[BLOCK];
    int64_t stride[BLOCK];
    for (int64_t r = 0; r < rows; r++) {
        const int64_t tile = (row + r) / 16 * 16;
        from[r] = (const uint8_t *)j->iter.a->data + tile * j->row_bytes + (row + r - tile) * 64;
        stride[r] = mox_min_i64(16, j->iter.a->rows - tile);
    }
    for (int64_t k = 0; k < j->row_bytes; k += 64)
        for (int64_t r = 0; r < rows; r++) {
            const __m512i counted = _mm512_xor_si512(_mm512_load_si512(from[r] + k * stride[r]), turn);
            _mm512_store_si512(j->copy + r * j->row_bytes + k, nibbles ? _mm512_shuffle_epi8(counted, order) : counted);
        }
}

/* True when the weights are bytes with zero points. */
static bool wants_sums(bool nibbles, const job *j)
{
    return j->zeros && !nibbles;
}

/* Sums the rows of the copy over each segment. The padding of a row is zero. */
static void sum_rows(const job *j, int64_t rows)
{
    for (int64_t r = 0; r < rows; r++) {
        const uint8_t *a = j->copy + r * j->row_bytes;
        for (int64_t s = 0; s < j->iter.steps; s++) {
            const int64_t first = s * j->segment_slices * SLICE;
            const int64_t last = s == j->iter.steps - 1 ? j->row_bytes : first + j->segment_slices * SLICE;
            __m128i total = _mm_setzero_si128();
            for (int64_t k = first; k < last; k += 16)
                total = _mm_add_epi64(
                    total, _mm_sad_epu8(_mm_load_si128((const __m128i *)(const void *)(a + k)), _mm_setzero_si128()));
            total = _mm_add_epi64(total, _mm_unpackhi_epi64(total, total));
            j->sums[r * j->iter.steps + s] = _mm_cvtsi128_si32(total) - (int32_t)(last - first) * 128;
        }
    }
}

/* ---- one block ----------------------------------------------------------------------------------- */

/* Half i of slice t of panel p: 4 columns (NIBBLES: in the copy's order) as signed bytes. */
MOX_KERNEL_INLINE __m512i weights(bool nibbles, const job *j, int p, int64_t t, int i, __m512i zero)
{
    const uint8_t *codes = j->iter.codes[p];
    if (!nibbles)
        return _mm512_xor_si512(_mm512_load_si512(codes + t * 128 + i * 64), j->flip);
    const __m512i line = _mm512_xor_si512(_mm512_load_si512(codes + t * 64), j->flip);
    const __m512i moved = i == 0 ? line : _mm512_srli_epi16(line, 4);
    return _mm512_sub_epi8(_mm512_and_si512(moved, _mm512_set1_epi8(0x0f)), zero);
}

/* Adds slice t to acc; with `sum_weights` also 128 times its weights to `offset`. */
MOX_KERNEL_INLINE void add_slice(bool nibbles, bool sum_weights, int R, int P, const job *j, int64_t t,
                                 const __m512i zero[2], __m512i acc[BLOCK][2], __m512i offset[2])
{
    MOX_KERNEL_UNROLL
    for (int i = 0; i < 2; i++) {
        __m512i w[2];
        MOX_KERNEL_UNROLL
        for (int p = 0; p < P; p++) {
            w[p] = weights(nibbles, j, p, t, i, zero[p]);
            if (sum_weights)
                offset[p] = _mm512_dpbusd_epi32(offset[p], _mm512_set1_epi8((char)0x80), w[p]);
        }
        MOX_KERNEL_UNROLL
        for (int r = 0; r < R; r++) {
            int32_t four;
            memcpy(&four, j->copy + r * j->row_bytes + t * SLICE + 4 * i, sizeof four);
            MOX_KERNEL_UNROLL
            for (int p = 0; p < P; p++) {
                acc[r][p] = _mm512_dpbusd_epi32(acc[r][p], _mm512_set1_epi32(four), w[p]);
                MOX_ZMM_KEEP(acc[r][p]); /* gcc 12 otherwise copies every sum twice */
            }
        }
    }
}

/* zero * sum of row r's activations over segment `segment`, whose weights are in group `group`. Zeros count from -128.
 */
MOX_KERNEL_INLINE __m512i zero_part(const job *j, int p, int64_t group, int r, int64_t segment)
{
    const __m128i *counts = (const __m128i *)(const void *)(j->iter.zero[p] + group * MOX_PANEL_ROWS);
    const __m512i zero = _mm512_sub_epi32(_mm512_cvtepu8_epi32(_mm_loadu_si128(counts)), _mm512_set1_epi32(128));
    return _mm512_mullo_epi32(zero, _mm512_set1_epi32(j->sums[r * j->iter.steps + segment]));
}

/* Adds the sums of segment `segment` to c. */
MOX_KERNEL_INLINE void end_segment(bool nibbles, int R, int P, const job *j, const mox_segment_pos *at, int64_t segment,
                                   int64_t row, __m512i acc[BLOCK][2], const __m512i offset[2])
{
    const mox_segment_scales ending = mox_segment_scales_at(&j->iter, at, row);
    float *c = j->c + row * 2 * MOX_PANEL_ROWS;
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++) {
        MOX_KERNEL_UNROLL
        for (int p = 0; p < P; p++) {
            float *sum = c + (2 * r + p) * MOX_PANEL_ROWS;
            __m512i total = _mm512_sub_epi32(acc[r][p], offset[p]);
            if (wants_sums(nibbles, j))
                total = _mm512_sub_epi32(total, zero_part(j, p, at->group, r, segment));
            const __m512 part = _mm512_cvtepi32_ps(total);
            _mm512_store_ps(sum, mox_segment_finish(&ending, r, p, part, _mm512_load_ps(sum)));
        }
    }
}

/* Multiplies the rows of the copy, [row, row + R), by P panels. */
MOX_KERNEL_INLINE void block(bool nibbles, bool sum_weights, int R, int P, const job *j, int64_t row)
{
    const int bytes = nibbles ? 64 : 128;
    mox_segment_pos at = mox_segment_begin(&j->iter);
    for (int64_t segment = 0, t = 0; segment < j->iter.steps; segment++, mox_segment_next(&j->iter, &at)) {
        const int64_t end = mox_min_i64(t + j->segment_slices, j->slices);
        __m512i acc[BLOCK][2], offset[2], zero[2];
        MOX_KERNEL_UNROLL
        for (int p = 0; p < P; p++) {
            const int32_t *known = j->offsets + (p * j->iter.steps + segment) * MOX_PANEL_ROWS;
            offset[p] = sum_weights ? _mm512_setzero_si512() : _mm512_load_si512(known);
            zero[p] = nibbles && j->zeros ? mox_pairs_zeros(MOXIE_U4B8, j->iter.zero[p] + at.group * MOX_PANEL_ROWS)
                                          : _mm512_set1_epi8(8);
            MOX_KERNEL_UNROLL
            for (int r = 0; r < R; r++)
                acc[r][p] = _mm512_setzero_si512();
        }
        for (; t < end; t++) {
            for (int p = 0; sum_weights && p < P; p++)
                mox_segment_prefetch(j->iter.prefetch_to_l2, &j->iter, p, P, t, bytes);
            add_slice(nibbles, sum_weights, R, P, j, t, zero, acc, offset);
        }
        end_segment(nibbles, R, P, j, &at, segment, row, acc, offset);
        for (int p = 0; sum_weights && p < P; p++)
            _mm512_store_si512(j->offsets + (p * j->iter.steps + segment) * MOX_PANEL_ROWS, offset[p]);
    }
}

#define BLOCK_OF(nibbles, sum_weights, R, P)                                                                           \
    static void block_##nibbles##sum_weights##R##P(const job *j, int64_t row)                                          \
    {                                                                                                                  \
        block(nibbles, sum_weights, R, P, j, row);                                                                     \
    }
#define BLOCKS_OF(nibbles, sum_weights, P)                                                                             \
    BLOCK_OF(nibbles, sum_weights, 1, P)                                                                               \
    BLOCK_OF(nibbles, sum_weights, 2, P)                                                                               \
    BLOCK_OF(nibbles, sum_weights, 3, P)                                                                               \
    BLOCK_OF(nibbles, sum_weights, 4, P)                                                                               \
    BLOCK_OF(nibbles, sum_weights, 5, P)                                                                               \
    BLOCK_OF(nibbles, sum_weights, 6, P)
BLOCKS_OF(0, 0, 1)
BLOCKS_OF(0, 0, 2)
BLOCKS_OF(0, 1, 1)
BLOCKS_OF(0, 1, 2)
BLOCKS_OF(1, 0, 1)
BLOCKS_OF(1, 0, 2)
BLOCKS_OF(1, 1, 1)
BLOCKS_OF(1, 1, 2)
#undef BLOCK_OF
#undef BLOCKS_OF

#define BLOCKS_OF(nibbles, sum_weights, P)                                                                             \
    {                                                                                                                  \
        block_##nibbles##sum_weights##1##P, block_##nibbles##sum_weights##2##P, block_##nibbles##sum_weights##3##P,    \
            block_##nibbles##sum_weights##4##P, block_##nibbles##sum_weights##5##P, block_##nibbles##sum_weights##6##P \
    }
/* [nibbles][sum_weights][panels - 1][rows - 1] */
static void (*const blocks[2][2][2][BLOCK])(const job *j, int64_t row) = {
    { { BLOCKS_OF(0, 0, 1), BLOCKS_OF(0, 0, 2) }, { BLOCKS_OF(0, 1, 1), BLOCKS_OF(0, 1, 2) } },
    { { BLOCKS_OF(1, 0, 1), BLOCKS_OF(1, 0, 2) }, { BLOCKS_OF(1, 1, 1), BLOCKS_OF(1, 1, 2) } },
};
#undef BLOCKS_OF

/* ---- one call ------------------------------------------------------------------------------------ */

/* 4-bit codes become counts from the least value, 8-bit ones two's complement. */
static __m512i flip_of(moxie_dtype element)
{
    const int sign_bits = mox_element_sign_bits(element);
    return _mm512_set1_epi8((char)(mox_pairs_order(element) == MOX_PANEL_QUADS ? sign_bits ^ 0x80 : sign_bits));
}

static void multiply(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,
                     const mox_panel_rows *a, float *c, void *scratch)
{
    const bool nibbles = mox_dtype_bits(weight->element) == 4;
    const int64_t act_cols = a->scales != NULL ? mox_min_i64(a->group_cols, m->cols) : m->cols;
    const int64_t segment_cols = mox_min_i64(m->group_cols, act_cols);
    mox_carver carver = mox_carver_of(scratch);
    mox_vnni_scratch sc;
    mox_vnni_lay_out(&carver, m->cols, m->groups, &sc);
    job j = { .zeros = m->zero_at != 0,
              .slices = mox_ceil_div(m->cols, SLICE),
              .segment_slices = mox_ceil_div(segment_cols, SLICE),
              .row_bytes = (int64_t)mox_act_order_row_bytes(MOX_ACT_ORDER_I8, m->cols),
              .copy = sc.copy,
              .sums = sc.sums,
              .offsets = sc.offsets,
              .c = c,
              .flip = flip_of(weight->element) };
    mox_segment_iter_init(&j.iter, m, weight, panel, panels, a, segment_cols, sc.scale);
    memset(c, 0, (size_t)a->rows * 2 * MOX_PANEL_ROWS * sizeof *c);
    const unsigned mxcsr = mox_segment_flush_subnormals();
    const int64_t count = mox_ceil_div(a->rows, BLOCK);
    for (int64_t b = 0, row = 0, rows; b < count; b++, row += rows) {
        rows = mox_ceil_div(a->rows - row, count - b);
        copy_rows(nibbles, &j, row, rows);
        if (wants_sums(nibbles, &j))
            sum_rows(&j, rows);
        blocks[nibbles][b == 0][panels - 1][rows - 1](&j, row);
    }
    _mm_setcsr(mxcsr);
}

const mox_panel_multiply_fn mox_avx512_vnni_multiply = multiply;

#else

const mox_panel_multiply_fn mox_avx512_vnni_multiply = NULL;

#endif
