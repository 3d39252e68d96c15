/* SPDX-License-Identifier: Apache-2.0
 *
 * panel_int8_avx2.h - kernel avx2_int8: int8 weights times int8 activations, in 256-bit registers. Two files compile it
 * with different flags:
 *
 *     with AVX-VNNI    VPDPBUSD adds four products of unsigned by signed bytes
 *     without          bytes are widened to 16 bits and VPMADDWD adds two products. (VPMADDUBSW adds two products of
 *                      bytes, but saturates at 16 bits: 2 * 255 * -128 does not fit.)
 *
 *     segment   D[r, n] = sum of count[n, k] a[r, k],   counts 0 .. 255 from the element's least value
 *               C = D - zero[n] * sum of a[r, k]        exact in int32; the sum starts from the second term
 *               c[r] = fma(C * sa[r], sw, c[r])         as in panel_kernel.h
 *
 * Lane n is a row of the panel, so a line of QUADS is four columns of 16 rows. Activations are broadcast four at a
 * time. The sums stay in registers over a segment: up to BLOCK rows by one panel, or one row by two panels.
 */
#ifndef MOX_CPU_PANEL_INT8_AVX2_H
#define MOX_CPU_PANEL_INT8_AVX2_H

#include "base/sizes.h"
#include "cpu/expert_gemm/avx2/avx2_plan.h"

enum { MOX_INT8_BLOCK = 6, MOX_INT8_WIDTH = 2 * MOX_PANEL_ROWS, MOX_INT8_PREFETCH_BYTES = 2048 };

/* One call. Arrays by group hold both panels, one after the other. */
typedef struct mox_int8_job {
    const mox_panel_matrix *matrix;
    const mox_panel_rows *a;
    int panels;
    const uint8_t *codes;            /* of the first panel */
    const float *scale;              /* [panels][groups][16] */
    const int32_t *zero;             /* likewise: counts */
    const int32_t *sums;             /* [rows][segments]: of the activations */
    int64_t panel_values;            /* groups * 16 */
    int64_t segments, segment_quads; /* the last segment may be shorter */
    int64_t group_quads, act_quads;  /* of a weight group and of an activation group */
    int64_t quads, row_bytes;        /* of a row of activations */
    uint8_t flip;                    /* makes codes counts */
    bool scaled;
    float *c; /* [rows][32], zero */
} mox_int8_job;

/* The products of a call; MXCSR flushes subnormals. The same code, compiled with different flags. The second is NULL if
 * the compiler has no AVX-VNNI. */
typedef void (*mox_int8_panels_fn)(const mox_int8_job *j);
void mox_int8_panels_avx2(const mox_int8_job *j);
extern const mox_int8_panels_fn mox_int8_panels_avxvnni;

#if defined(__AVX2__) && defined(__FMA__)

#include <immintrin.h>

/* Rows of one tile of activations that are multiplied at once. */
typedef struct mox_int8_rows {
    const int8_t *data; /* first row of the block in the tile's first step of 64 columns */
    int64_t held;       /* rows of the tile: a step is held * 64 bytes */
    int64_t row;        /* first row of the block among all */
} mox_int8_rows;

MOX_KERNEL_INLINE __m256i mox_int8_counts(const uint8_t *line, __m256i flip)
{
    return _mm256_xor_si256(_mm256_load_si256((const __m256i *)(const void *)line), flip);
}

/* Four bytes in every lane. */
MOX_KERNEL_INLINE __m256i mox_int8_broadcast(const void *four)
{
    return _mm256_castps_si256(_mm256_broadcast_ss((const float *)four));
}

/* Only the first block of rows prefetches: the others find the codes in the cache. */
MOX_KERNEL_INLINE int64_t mox_int8_ahead(const mox_int8_rows *rows)
{
    return rows->row == 0 ? MOX_INT8_PREFETCH_BYTES : 0;
}

/* Adds quads first .. last - 1 to the sums of R rows by H half panels. `codes`: of the first panel. */
#ifdef __AVXVNNI__

/* sum + counts . four */
MOX_KERNEL_INLINE __m256i mox_int8_dot(__m256i counts, __m256i four, __m256i sum)
{
    MOX_YMM_DPBUSD(sum, counts, four);
    return sum;
}

MOX_KERNEL_INLINE void mox_int8_quads(int R, int H, const mox_int8_job *j, const mox_int8_rows *rows,
                                      const uint8_t *codes, int64_t first, int64_t last, __m256i sum[][4])
{
    const __m256i flip = _mm256_set1_epi8((char)j->flip);
    const int64_t second = (int64_t)j->matrix->panel_bytes, ahead = mox_int8_ahead(rows);
    const int8_t *a = rows->data + first / 16 * rows->held * 64 + first % 16 * 4;
    const uint8_t *line = codes + first * 64, *end = codes + last * 64;
    for (; line < end; line += 64) {
        __m256i counts[4];
        _mm_prefetch((const char *)line + ahead, _MM_HINT_T0);
        if (H == 4)
            _mm_prefetch((const char *)line + second + ahead, _MM_HINT_T0);
        MOX_KERNEL_UNROLL
        for (int h = 0; h < H; h++)
            counts[h] = mox_int8_counts(line + (h < 2 ? 0 : second) + h % 2 * 32, flip);
        MOX_KERNEL_UNROLL
        for (int r = 0; r < R; r++) {
            const __m256i four = mox_int8_broadcast(a + 64 * r);
            MOX_KERNEL_UNROLL
            for (int h = 0; h < H; h++)
                sum[r][h] = mox_int8_dot(counts[h], four, sum[r][h]);
        }
        /* Past 64 columns comes the next step of the tile. */
        first++;
        a += first % 16 == 0 ? rows->held * 64 - 60 : 4;
    }
}

#else

/* Columns 0 and 2 of each quad as words, and columns 1 and 3. */
MOX_KERNEL_INLINE void mox_int8_widen(const int8_t *a, int32_t even[16], int32_t odd[16])
{
    MOX_KERNEL_UNROLL
    for (int i = 0; i < 2; i++) {
        const __m256i bytes = _mm256_load_si256((const __m256i *)(const void *)(a + 32 * i));
        _mm256_store_si256((__m256i *)(void *)(even + 8 * i), _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8));
        _mm256_store_si256((__m256i *)(void *)(odd + 8 * i), _mm256_srai_epi16(bytes, 8));
    }
}

/* Adds `count` quads, from quad `from` on, of one step of 64 columns. */
MOX_KERNEL_INLINE void mox_int8_step(int R, int H, const mox_int8_job *j, const int8_t *a, int64_t ahead,
                                     const uint8_t *line, int64_t from, int64_t count, __m256i sum[][4])
{
    int32_t words[MOX_INT8_BLOCK][2][16] __attribute__((aligned(32)));
    const __m256i flip = _mm256_set1_epi8((char)j->flip), lower = _mm256_set1_epi16(0xff);
    const int64_t second = (int64_t)j->matrix->panel_bytes;
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++)
        mox_int8_widen(a + 64 * r, words[r][0], words[r][1]);
    for (int64_t i = from; i < from + count; i++, line += 64) {
        _mm_prefetch((const char *)line + ahead, _MM_HINT_T0);
        if (H == 4)
            _mm_prefetch((const char *)line + second + ahead, _MM_HINT_T0);
        MOX_KERNEL_UNROLL
        for (int h = 0; h < H; h++) {
            const __m256i counts = mox_int8_counts(line + (h < 2 ? 0 : second) + h % 2 * 32, flip);
            const __m256i even = _mm256_and_si256(counts, lower), odd = _mm256_srli_epi16(counts, 8);
            MOX_KERNEL_UNROLL
            for (int r = 0; r < R; r++) {
                sum[r][h] = _mm256_add_epi32(sum[r][h], _mm256_madd_epi16(even, mox_int8_broadcast(&words[r][0][i])));
                sum[r][h] = _mm256_add_epi32(sum[r][h], _mm256_madd_epi16(odd, mox_int8_broadcast(&words[r][1][i])));
            }
        }
    }
}

MOX_KERNEL_INLINE void mox_int8_quads(int R, int H, const mox_int8_job *j, const mox_int8_rows *rows,
                                      const uint8_t *codes, int64_t first, int64_t last, __m256i sum[][4])
{
    while (first < last) {
        const int64_t from = first % 16, count = mox_min_i64(last - first, 16 - from);
        mox_int8_step(R, H, j, rows->data + first / 16 * rows->held * 64, mox_int8_ahead(rows), codes + first * 64,
                      from, count, sum);
        first += count;
    }
}

#endif

/* What a sum starts from: minus the zero point times the sum of the activations. */
MOX_KERNEL_INLINE __m256i mox_int8_start(const mox_int8_job *j, const int32_t *zero, int32_t total)
{
    const __m256i sum = _mm256_set1_epi32(-total);
    if (j->matrix->zero_at == 0)
        return _mm256_slli_epi32(sum, 7);
    return _mm256_mullo_epi32(sum, _mm256_load_si256((const __m256i *)(const void *)zero));
}

/* Adds a finished segment to c. */
MOX_KERNEL_INLINE void mox_int8_finish(const mox_int8_job *j, const float *scale, const float *act, __m256i sum,
                                       float *c)
{
    __m256 total = _mm256_cvtepi32_ps(sum);
    if (act != NULL)
        total = _mm256_mul_ps(total, _mm256_broadcast_ss(act));
    if (act != NULL || j->scaled)
        total = _mm256_fmadd_ps(total, _mm256_load_ps(scale), _mm256_load_ps(c));
    _mm256_store_ps(c, total);
}

/* Segment s of R rows by H half panels, from panel p on. */
MOX_KERNEL_INLINE void mox_int8_segment(int R, int H, const mox_int8_job *j, const mox_int8_rows *rows, int p,
                                        int64_t s)
{
    const int64_t first = s * j->segment_quads, last = mox_min_i64(first + j->segment_quads, j->quads);
    const int64_t values = p * j->panel_values + first / j->group_quads * MOX_PANEL_ROWS;
    const uint8_t *codes = j->codes + p * (int64_t)j->matrix->panel_bytes;
    __m256i sum[MOX_INT8_BLOCK][4];
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++) {
        const int32_t total = j->sums[(rows->row + r) * j->segments + s];
        MOX_KERNEL_UNROLL
        for (int h = 0; h < H; h++)
            sum[r][h] = mox_int8_start(j, j->zero + values + h / 2 * j->panel_values + h % 2 * 8, total);
    }
    mox_int8_quads(R, H, j, rows, codes, first, last, sum);
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++) {
        const float *act = j->a->scales;
        if (act != NULL)
            act += (rows->row + r) * j->a->scale_stride + first / j->act_quads;
        MOX_KERNEL_UNROLL
        for (int h = 0; h < H; h++)
            mox_int8_finish(j, j->scale + values + h / 2 * j->panel_values + h % 2 * 8, act, sum[r][h],
                            j->c + (rows->row + r) * MOX_INT8_WIDTH + p * MOX_PANEL_ROWS + h * 8);
    }
}

/* All segments. */
MOX_KERNEL_INLINE void mox_int8_block(int R, int H, const mox_int8_job *j, const mox_int8_rows *rows)
{
    for (int p = 0; p < j->panels; p += H / 2)
        for (int64_t s = 0; s < j->segments; s++)
            mox_int8_segment(R, H, j, rows, p, s);
}

typedef void (*mox_int8_block_fn)(const mox_int8_job *j, const mox_int8_rows *rows);

#define MOX_INT8_VARIANT(name, R, H)                                                                                   \
    static void name(const mox_int8_job *j, const mox_int8_rows *rows)                                                 \
    {                                                                                                                  \
        mox_int8_block(R, H, j, rows);                                                                                 \
    }
MOX_INT8_VARIANT(int8_one_pair, 1, 4)
MOX_INT8_VARIANT(int8_1, 1, 2)
MOX_INT8_VARIANT(int8_2, 2, 2)
MOX_INT8_VARIANT(int8_3, 3, 2)
MOX_INT8_VARIANT(int8_4, 4, 2)
MOX_INT8_VARIANT(int8_5, 5, 2)
MOX_INT8_VARIANT(int8_6, 6, 2)

/* All rows: each tile of 16 is cut into blocks of nearly the same size. */
static inline void mox_int8_all(const mox_int8_job *j)
{
    static const mox_int8_block_fn variants[MOX_INT8_BLOCK + 1] = {
        NULL, int8_1, int8_2, int8_3, int8_4, int8_5, int8_6
    };
    for (int64_t tile = 0; tile < j->a->rows; tile += 16) {
        const int64_t held = mox_min_i64(16, j->a->rows - tile), blocks = mox_ceil_div(held, MOX_INT8_BLOCK);
        const int8_t *data = (const int8_t *)j->a->data + tile * j->row_bytes;
        for (int64_t b = 0; b < blocks; b++) {
            const int64_t first = b * held / blocks, count = (b + 1) * held / blocks - first;
            const mox_int8_rows rows = { .data = data + first * 64, .held = held, .row = tile + first };
            if (count == 1 && j->panels == 2)
                int8_one_pair(j, &rows);
            else
                variants[count](j, &rows);
        }
    }
}

#endif
#endif
