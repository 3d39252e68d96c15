/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_amx.c - row amx_bf16: panels decoded to bf16 tiles between the tile operations that consume them.
 *
 *     step      A tile [rows, 32 columns] x B tile [16 pair lines of a panel] -> C tile [rows, 16] f32
 *     segment   C from zero over its steps, stored, then  sum[r] = fma(C[r] * sa[r], sw, sum[r])  in vector registers
 *
 * Scales that leave codes exact in bf16 (E8M0, and E4M3 on f4_e2m1) are folded into the decoded lines, and C stays in
 * its tile along the whole row: storing a tile costs as much as multiplying one. Others end segments.
 *
 *     B lines   codes -> registers -> a ring of 4 steps in the first-level cache -> tile; bf16 weights load from the
 *               record. With more than two tiles of rows the decoded lines of both panels are kept in scratch, so
 *               that codes are decoded once.
 *
 * Three ways through a panel pair, all of the same arithmetic (fold32, panel_kernel.h):
 *
 *     square    tiles of rows by two, panels by two, sums in c: long segments, hence all folded formats
 *     narrow    short segments, up to 8 rows: both panels at once, 2 x rows sums in registers
 *     tall      short segments: tiles of up to 16 rows, a panel at a time, 16 sums in registers
 *
 * Activations with scales per group of columns go square or tall, with all lines decoded beforehand.
 *
 * Tile loads and stores are inline assembly to the compiler without memory operands: fences keep its order. C tiles of
 * short segments alternate between two pairs, because a tile that is being stored holds up the next that is zeroed.
 * VPERMW is two operations here and VPSRLW shares a port with one of them, VPMULHUW does not: see
 * docs/kernels-cpu.md for the count.
 */
#include "cpu/expert_gemm/panel_kernel.h"

#if defined(__AMX_BF16__) && defined(__AVX512VBMI__) && defined(__AVX512FP16__)

#include <immintrin.h>
#include <math.h>

#include "base/sizes.h"
#include "cpu/expert_gemm/amx_tiles.h"
#include "cpu/expert_gemm/panel_decode_avx512.h"
#include "cpu/expert_gemm/panel_scales.h"

enum { LINES = 1024, RING = 4, TILE = 256, NARROW = 8, AHEAD = 16, SQUARE_STEPS = 4 };

/* What becomes of a scale: it ends a segment, or is folded into lines. */
typedef enum folding { DRAINED, FOLD_E8M0, FOLD_E4M3 } folding;

/* Formats of one order differ in their tables only; `like` stands for all of them in the code. */
typedef struct form {
    moxie_dtype like;
    bool zeros;
    folding fold;
} form;

/* ---- one call ------------------------------------------------------------------------------------ */

/* One of the two panels. */
typedef struct stream {
    const uint8_t *codes, *next; /* this panel's, and those of the panel that comes after the pair */
    const uint8_t *next_scales;  /* of that panel */
    const uint8_t *zero;         /* [groups][16] or NULL */
    const uint8_t *exponent;     /* [groups][16] E8M0 when folded */
    const float *scale;          /* [groups][16]; FOLD_E4M3: [groups][16][2] f16 */
    uint8_t *lines;              /* [steps], or the ring; bf16: in the record */
    bool wide;                   /* folded scales leave the range of the fast way */
    float end[MOX_PANEL_ROWS];   /* what folding left out, powers of two */
} stream;

typedef struct job {
    const struct job *self; /* the original: copies whose address goes nowhere stay in registers */
    const uint8_t *a;
    const float *a_scales; /* NULL: none */
    int64_t rows, a_scale_stride;
    mox_pair_tables tables;
    __m512i halves; /* f4_e2m1 as f16, FOLD_E4M3 */
    stream panel[2];
    int panels;
    int64_t steps, step_bytes, scale_lines; /* cache lines of scales a panel */
    int64_t lines_mask;                     /* step s is at lines + (s & lines_mask) * LINES */
    int64_t segment_steps, segments;        /* of what is drained */
    int64_t group_steps, act_steps;         /* of a weight group and of an activation group */
    bool scaled;                            /* segments have scales of weights */
    float *buffer;                          /* [4][16][16] */
    float *c;                               /* [rows][32] */
} job;

/* The smallest normal bf16 is 2^-126: folded lines of f4_e2m1 are held at 2^-16 of their value (fold_e4m3). */
#define E4M3_END 0x1p16f

static void *carve(uint8_t *base, uint64_t *at, uint64_t bytes)
{
    void *here = base != NULL ? base + *at : NULL;
    *at = (*at + bytes + 63) & ~UINT64_C(63);
    return here;
}

/* What open_stream() fills. */
typedef struct scale_space {
    float *scale;   /* [groups][16] */
    uint8_t *codes; /* [groups][16], for panels whose rows share a scale */
} scale_space;

static uint64_t lay_out(int64_t steps, int64_t groups, uint8_t *base, job *j, scale_space space[2])
{
    uint64_t at = 0;
    j->buffer = carve(base, &at, 4 * TILE * sizeof(float));
    for (int p = 0; p < 2; p++) {
        space[p].scale = carve(base, &at, (uint64_t)groups * MOX_PANEL_ROWS * sizeof(float));
        space[p].codes = carve(base, &at, (uint64_t)groups * MOX_PANEL_ROWS);
        j->panel[p].lines = carve(base, &at, (uint64_t)mox_max_i64(steps, RING) * LINES);
    }
    return at;
}

/* ---- decoding ------------------------------------------------------------------------------------ */

/* A panel's 16 scales of one group, as floats. */
MOX_KERNEL_INLINE __m512 e8m0_row(const uint8_t *codes)
{
    float row[MOX_PANEL_ROWS];
    mox_scales_read(MOXIE_F8_E8M0, codes, MOX_PANEL_ROWS, row);
    return _mm512_loadu_ps(row);
}

MOX_KERNEL_INLINE __m512 e4m3_row(const uint8_t *codes)
{
    float row[MOX_PANEL_ROWS];
    mox_scales_read(MOXIE_F8_E4M3, codes, MOX_PANEL_ROWS, row);
    return _mm512_loadu_ps(row);
}

/* (exponent - 127) in the exponent field of both halves of each lane. */
MOX_KERNEL_INLINE __m512i exponents(const uint8_t *code)
{
    const __m512i twice = _mm512_set_epi32((int)0x800f800f, (int)0x800e800e, (int)0x800d800d, (int)0x800c800c,
                                           (int)0x800b800b, (int)0x800a800a, (int)0x80098009, (int)0x80088008,
                                           (int)0x80078007, (int)0x80068006, (int)0x80058005, (int)0x80048004,
                                           (int)0x80038003, (int)0x80028002, (int)0x80018001, (int)0x80008000);
    const __m512i words =
        _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)code)), twice);
    return _mm512_sub_epi16(_mm512_slli_epi16(words, 7), _mm512_set1_epi16(127 << 7));
}

/* Powers of two are added to the exponents of what is not zero, and of f8 not infinite or NaN. */
MOX_KERNEL_INLINE __m512i fold_e8m0(moxie_dtype like, __m512i pairs, __m512i exponent)
{
    __mmask32 numbers = _mm512_test_epi16_mask(pairs, _mm512_set1_epi16(0x7fff));
    if (mox_pairs_order(like) == MOX_PANEL_ZIPPED)
        numbers =
            _mm512_mask_cmplt_epu16_mask(numbers, _mm512_add_epi16(pairs, pairs), _mm512_set1_epi16((short)0xff00));
    return _mm512_mask_add_epi16(pairs, numbers, pairs, exponent);
}

/* f4_e2m1 as f16 times E4M3 as f16 is exact and has at most 6 significant bits, 2^-10 to 2688. Moved down 3 bits, its
 * 5 bits of exponent end those of bf16; setting the bits worth 96 makes that 2^-16 of the value, a normal number. */
MOX_KERNEL_INLINE __m512i fold_e4m3(__m512i halves, __m512i scale)
{
    const __m512i product = _mm512_castph_si512(_mm512_mul_ph(_mm512_castsi512_ph(halves), _mm512_castsi512_ph(scale)));
    const __mmask32 nonzero = _mm512_test_epi16_mask(product, _mm512_set1_epi16(0x7fff));
    const __m512i moved = _mm512_srai_epi16(product, 3);
    /* 0xea: (a & b) | c */
    const __m512i joined =
        _mm512_ternarylogic_epi32(moved, _mm512_set1_epi16((short)0x8fff), _mm512_set1_epi16(0x3000), 0xea);
    return _mm512_maskz_mov_epi16(nonzero, joined);
}

/* The same for any scale: NaN, and products that are infinite or subnormal. */
static __m512i fold_wide(__m512i pairs, __m512 scale)
{
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000);
    const __m512 even = _mm512_mul_ps(_mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)), scale);
    const __m512 odd = _mm512_mul_ps(_mm512_castsi512_ps(_mm512_and_si512(pairs, upper)), scale);
    return _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(even), 16),
                           _mm512_and_si512(_mm512_castps_si512(odd), upper));
}

/* Groups of one step are common, divisions are not cheap. */
MOX_KERNEL_INLINE int64_t group_of(const job *j, int64_t s)
{
    return j->group_steps == 1 ? s : s / j->group_steps;
}

MOX_KERNEL_INLINE __m512i zeros_of(form f, const job *j, const stream *from, int64_t s)
{
    return f.zeros ? mox_pairs_zeros(f.like, from->zero + group_of(j, s) * MOX_PANEL_ROWS) : mox_pairs_no_zeros(f.like);
}

/* What folds into quarter q of step s. */
MOX_KERNEL_INLINE __m512i folded_scale(form f, const job *j, const stream *from, int64_t s, int q)
{
    if (f.fold == FOLD_E8M0)
        return exponents(from->exponent + group_of(j, s) * MOX_PANEL_ROWS);
    if (f.fold == FOLD_E4M3)
        return _mm512_load_si512(from->scale + (2 * s + q / 2) * MOX_PANEL_ROWS);
    return _mm512_setzero_si512();
}

/* Quarter q of step s of a panel, its scale folded, to its place in `to`. */
MOX_KERNEL_INLINE void decode_quarter(form f, const job *j, const stream *from, int64_t s, int q, __m512i scale,
                                      uint8_t *to)
{
    __m512i pairs[4];
    mox_pair_tables tables = j->tables;
    if (f.fold == FOLD_E4M3)
        tables.t[0] = j->halves;
    mox_pairs_quarter(f.like, f.zeros, &tables, from->codes + s * j->step_bytes, q, zeros_of(f, j, from, s), pairs);
    for (int i = 0; i < 4; i++) {
        if (f.fold == FOLD_E8M0)
            pairs[i] = fold_e8m0(f.like, pairs[i], scale);
        else if (f.fold == FOLD_E4M3)
            pairs[i] = fold_e4m3(pairs[i], scale);
        _mm512_store_si512(to + (4 * q + i) * 64, pairs[i]);
    }
}

/* A whole step in the slow way. */
MOX_KERNEL_INLINE void decode_wide(form f, const job *j, const stream *from, int64_t s, uint8_t *to)
{
    for (int q = 0; q < 4; q++) {
        __m512i pairs[4];
        const int64_t group = f.fold == FOLD_E4M3 ? 2 * s + q / 2 : group_of(j, s);
        __m512 scale;
        if (f.fold == FOLD_E4M3)
            scale = _mm512_mul_ps(e4m3_row(from->exponent + group * MOX_PANEL_ROWS), _mm512_set1_ps(1 / E4M3_END));
        else
            scale = _mm512_div_ps(e8m0_row(from->exponent + group * MOX_PANEL_ROWS), _mm512_loadu_ps(from->end));
        mox_pairs_quarter(f.like, false, &j->tables, from->codes + s * j->step_bytes, q, mox_pairs_no_zeros(f.like),
                          pairs);
        for (int i = 0; i < 4; i++)
            _mm512_store_si512(to + (4 * q + i) * 64, fold_wide(pairs[i], scale));
    }
}

/* One function a form, so that the fast way stays small. */
static __attribute__((noinline)) void decode_any_wide(const job *j, int p, moxie_dtype like, folding fold, int64_t s,
                                                      uint8_t *to)
{
    const stream *from = &j->panel[p];
    if (fold == FOLD_E4M3)
        decode_wide((form) { MOXIE_F4_E2M1, false, FOLD_E4M3 }, j, from, s, to);
    else if (mox_pairs_order(like) == MOX_PANEL_NIBBLES)
        decode_wide((form) { MOXIE_F4_E2M1, false, FOLD_E8M0 }, j, from, s, to);
    else if (mox_pairs_order(like) == MOX_PANEL_PLANES)
        decode_wide((form) { MOXIE_F6_E3M2, false, FOLD_E8M0 }, j, from, s, to);
    else
        decode_wide((form) { MOXIE_F8_E4M3, false, FOLD_E8M0 }, j, from, s, to);
}

/* True when the record holds lines as they are. */
MOX_KERNEL_INLINE bool is_direct(form f)
{
    return mox_pairs_order(f.like) == MOX_PANEL_PAIRS;
}

/* Lines of step s of panel p. */
MOX_KERNEL_INLINE void decode_lines(form f, const job *j, int p, int64_t s)
{
    const stream *from = &j->panel[p];
    if (is_direct(f) || s >= j->steps)
        return;
    uint8_t *to = from->lines + (s & j->lines_mask) * LINES;
    if (f.fold != DRAINED && from->wide) {
        decode_any_wide(j->self, p, f.like, f.fold, s, to);
        return;
    }
    __m512i scale = folded_scale(f, j, from, s, 0);
    for (int q = 0; q < 4; q++) {
        if (f.fold == FOLD_E4M3 && q == 2)
            scale = folded_scale(f, j, from, s, q);
        decode_quarter(f, j, from, s, q, scale, to);
    }
}

/* Brings in codes AHEAD steps on, past the panel's end those of the pair that follows, and that pair's scales. */
MOX_KERNEL_INLINE void prefetch(form f, const job *j, int p, int64_t s)
{
    const stream *from = &j->panel[p];
    const int64_t ahead = s + AHEAD - j->steps;
    const uint8_t *at = ahead < 0 ? from->codes + (s + AHEAD) * j->step_bytes : from->next + ahead * j->step_bytes;
    const int64_t bytes = mox_pairs_order(f.like) == MOX_PANEL_NIBBLES ? 256 : j->step_bytes;
    for (int64_t i = 0; i < bytes; i += 64)
        _mm_prefetch((const char *)at + i, _MM_HINT_T0);
    if (s < j->scale_lines)
        _mm_prefetch((const char *)from->next_scales + 64 * s, _MM_HINT_T0);
}

MOX_KERNEL_INLINE void decode_step(form f, const job *j, int p, int64_t s)
{
    prefetch(f, j, p, s);
    decode_lines(f, j, p, s);
}

MOX_KERNEL_INLINE const uint8_t *lines_of(const job *j, int p, int64_t s)
{
    return j->panel[p].lines + (s & j->lines_mask) * LINES;
}

/* ---- the ends of segments ------------------------------------------------------------------------ */

/* sum = fma(C * sa, sw, sum) */
MOX_KERNEL_INLINE __m512 drained(bool acts, const job *j, const float *c, __m512 scale, int64_t row, int64_t segment,
                                 __m512 sum)
{
    __m512 part = _mm512_load_ps(c);
    if (acts)
        part = _mm512_mul_ps(
            part, _mm512_set1_ps(j->a_scales[row * j->a_scale_stride + segment * j->segment_steps / j->act_steps]));
    return _mm512_fmadd_ps(part, scale, sum);
}

/* Without scales of activations a segment is a group of weights. */
MOX_KERNEL_INLINE __m512 scale_of(bool acts, const job *j, const stream *from, int64_t segment)
{
    if (!j->scaled)
        return _mm512_loadu_ps(from->end);
    const int64_t group = acts ? segment * j->segment_steps / j->group_steps : segment;
    return _mm512_load_ps(from->scale + group * MOX_PANEL_ROWS);
}

/* ---- narrow -------------------------------------------------------------------------------------- */

/* One step of `P` panels into C tiles 0, 1 (even) or 2, 3. */
MOX_KERNEL_INLINE void narrow_step(bool even, int P, const uint8_t *a, const uint8_t *b0, const uint8_t *b1)
{
    MOX_FENCE();
    if (even) {
        _tile_loadd(4, a, 64);
        _tile_loadd(5, b0, 64);
        _tile_dpbf16ps(0, 4, 5);
        if (P == 2) {
            _tile_loadd(6, b1, 64);
            _tile_dpbf16ps(1, 4, 6);
        }
    } else {
        _tile_loadd(7, a, 64);
        _tile_loadd(5, b0, 64);
        _tile_dpbf16ps(2, 7, 5);
        if (P == 2) {
            _tile_loadd(6, b1, 64);
            _tile_dpbf16ps(3, 7, 6);
        }
    }
    MOX_FENCE();
}

MOX_KERNEL_INLINE void narrow_zero(bool even, int P)
{
    if (even) {
        _tile_zero(0);
        if (P == 2)
            _tile_zero(1);
    } else {
        _tile_zero(2);
        if (P == 2)
            _tile_zero(3);
    }
}

MOX_KERNEL_INLINE void narrow_drain(bool even, int R, int P, const job *j, int64_t segment, __m512 sum[2][NARROW])
{
    float *buffer = j->buffer + (even ? 0 : 2 * TILE);
    MOX_FENCE();
    if (even) {
        _tile_stored(0, buffer, 64);
        if (P == 2)
            _tile_stored(1, buffer + TILE, 64);
    } else {
        _tile_stored(2, buffer, 64);
        if (P == 2)
            _tile_stored(3, buffer + TILE, 64);
    }
    MOX_FENCE();
    for (int p = 0; p < P; p++) {
        const __m512 scale = scale_of(false, j, &j->panel[p], segment);
        for (int r = 0; r < R; r++)
            sum[p][r] = drained(false, j, buffer + p * TILE + r * 16, scale, r, segment, sum[p][r]);
    }
}

MOX_KERNEL_INLINE void narrow_segment(form f, bool even, int R, int P, const job *j, int64_t segment,
                                      __m512 sum[2][NARROW])
{
    const int64_t first = segment * j->segment_steps, last = mox_min_i64(first + j->segment_steps, j->steps);
    narrow_zero(even, P);
    for (int64_t s = first; s < last; s++) {
        narrow_step(even, P, j->a + s * j->rows * 64, lines_of(j, 0, s), lines_of(j, 1, s));
        for (int p = 0; p < P; p++)
            decode_step(f, j, p, s + 1);
    }
    narrow_drain(even, R, P, j, segment, sum);
}

/* R: rows of the sums kept, at least the rows there are. */
MOX_KERNEL_INLINE void narrow(form f, int R, int P, const job *j)
{
    __m512 sum[2][NARROW];
    for (int p = 0; p < P; p++)
        for (int r = 0; r < R; r++)
            sum[p][r] = _mm512_setzero_ps();
    for (int p = 0; p < P; p++)
        decode_step(f, j, p, 0);
    for (int64_t segment = 0; segment < j->segments; segment += 2) {
        narrow_segment(f, true, R, P, j, segment, sum);
        if (segment + 1 < j->segments)
            narrow_segment(f, false, R, P, j, segment + 1, sum);
    }
    for (int r = 0; r < R; r++)
        for (int p = 0; p < P && r < j->rows; p++)
            _mm512_store_ps(j->c + r * 32 + p * 16, sum[p][r]);
}

/* ---- tall ---------------------------------------------------------------------------------------- */

MOX_KERNEL_INLINE void tall_step(bool even, const uint8_t *a, const uint8_t *b)
{
    MOX_FENCE();
    if (even) {
        _tile_loadd(4, a, 64);
        _tile_loadd(5, b, 64);
        _tile_dpbf16ps(0, 4, 5);
    } else {
        _tile_loadd(7, a, 64);
        _tile_loadd(6, b, 64);
        _tile_dpbf16ps(2, 7, 6);
    }
    MOX_FENCE();
}

MOX_KERNEL_INLINE void tall_drain(bool even, bool acts, const job *j, int p, int64_t row, int64_t segment,
                                  __m512 sum[16])
{
    float *buffer = j->buffer + (even ? 0 : 2 * TILE);
    MOX_FENCE();
    if (even)
        _tile_stored(0, buffer, 64);
    else
        _tile_stored(2, buffer, 64);
    MOX_FENCE();
    const __m512 scale = scale_of(acts, j, &j->panel[p], segment);
    for (int r = 0; r < 16; r++)
        sum[r] = drained(acts, j, buffer + r * 16, scale, mox_min_i64(row + r, j->rows - 1), segment, sum[r]);
}

MOX_KERNEL_INLINE void tall_segment(form f, bool even, bool first, bool acts, const job *j, int p, int64_t row,
                                    int64_t tile_rows, int64_t segment, const uint8_t *a, __m512 sum[16])
{
    const int64_t s0 = segment * j->segment_steps, s1 = mox_min_i64(s0 + j->segment_steps, j->steps);
    if (even)
        _tile_zero(0);
    else
        _tile_zero(2);
    for (int64_t s = s0; s < s1; s++) {
        tall_step(even, a + s * tile_rows * 64, lines_of(j, p, s));
        if (first)
            decode_step(f, j, p, s + 1);
    }
    tall_drain(even, acts, j, p, row, segment, sum);
}

/* Rows [row, row + tile_rows) of panel p. The first tile of rows decodes. */
MOX_KERNEL_INLINE void tall(form f, bool first, bool acts, const job *j, int p, int64_t row, int64_t tile_rows)
{
    const uint8_t *a = j->a + row * j->steps * 64;
    __m512 sum[16];
    for (int r = 0; r < 16; r++)
        sum[r] = _mm512_setzero_ps();
    if (first)
        decode_step(f, j, p, 0);
    for (int64_t segment = 0; segment < j->segments; segment += 2) {
        tall_segment(f, true, first, acts, j, p, row, tile_rows, segment, a, sum);
        if (segment + 1 < j->segments)
            tall_segment(f, false, first, acts, j, p, row, tile_rows, segment + 1, a, sum);
    }
    for (int r = 0; r < 16 && r < tile_rows; r++)
        _mm512_store_ps(j->c + (row + r) * 32 + p * 16, sum[r]);
}

/* ---- square -------------------------------------------------------------------------------------- */

/* Where one step's operands lie. */
typedef struct square_tiles {
    const uint8_t *a0, *a1; /* a1 NULL: one tile of rows */
    const uint8_t *b0, *b1; /* b1 NULL: one panel */
} square_tiles;

/* One step, and between its tile operations the lines of the step after it. */
MOX_KERNEL_INLINE void square_step(form f, bool first, const job *j, square_tiles t, int64_t s)
{
    MOX_FENCE();
    _tile_loadd(4, t.a0, 64);
    _tile_loadd(5, t.b0, 64);
    _tile_dpbf16ps(0, 4, 5);
    MOX_FENCE();
    if (first) {
        decode_step(f, j, 0, s + 1);
    }
    MOX_FENCE();
    if (t.b1 != NULL) {
        _tile_loadd(6, t.b1, 64);
        _tile_dpbf16ps(1, 4, 6);
    }
    MOX_FENCE();
    if (first && t.b1 != NULL)
        decode_step(f, j, 1, s + 1);
    MOX_FENCE();
    if (t.a1 != NULL) {
        _tile_loadd(7, t.a1, 64);
        _tile_dpbf16ps(2, 7, 5);
        if (t.b1 != NULL)
            _tile_dpbf16ps(3, 7, 6);
    }
    MOX_FENCE();
}

MOX_KERNEL_INLINE void square_add(bool acts, const job *j, int p, int64_t row, int64_t rows, const float *tile,
                                  int64_t segment)
{
    const __m512 scale = scale_of(acts, j, &j->panel[p], segment);
    for (int64_t r = 0; r < rows; r++) {
        float *c = j->c + (row + r) * 32 + p * 16;
        const __m512 before = segment == 0 ? _mm512_setzero_ps() : _mm512_load_ps(c);
        _mm512_store_ps(c, drained(acts, j, tile + r * 16, scale, row + r, segment, before));
    }
}

MOX_KERNEL_INLINE void square_drain(bool acts, const job *j, int64_t row, int64_t high, int64_t low, int64_t segment)
{
    float *buffer = j->buffer;
    MOX_FENCE();
    _tile_stored(0, buffer, 64);
    if (j->panels == 2)
        _tile_stored(1, buffer + TILE, 64);
    if (low > 0) {
        _tile_stored(2, buffer + 2 * TILE, 64);
        if (j->panels == 2)
            _tile_stored(3, buffer + 3 * TILE, 64);
    }
    MOX_FENCE();
    for (int p = 0; p < j->panels; p++) {
        square_add(acts, j, p, row, high, buffer + p * TILE, segment);
        square_add(acts, j, p, row + high, low, buffer + (2 + p) * TILE, segment);
    }
}

/* Rows [row, row + high + low): `high` in the first tile, `low` in the second. */
MOX_KERNEL_INLINE void square(form f, bool first, bool acts, const job *j, int64_t row, int64_t high, int64_t low)
{
    const uint8_t *above = j->a + row * j->steps * 64, *below = above + high * j->steps * 64;
    for (int p = 0; first && p < j->panels; p++)
        decode_step(f, j, p, 0);
    for (int64_t segment = 0; segment < j->segments; segment++) {
        const int64_t s0 = segment * j->segment_steps, s1 = mox_min_i64(s0 + j->segment_steps, j->steps);
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        for (int64_t s = s0; s < s1; s++) {
            const square_tiles t = { .a0 = above + s * high * 64,
                                     .a1 = low > 0 ? below + s * low * 64 : NULL,
                                     .b0 = lines_of(j, 0, s),
                                     .b1 = j->panels == 2 ? lines_of(j, 1, s) : NULL };
            square_step(f, first, j, t, s);
        }
        square_drain(acts, j, row, high, low, segment);
    }
}

/* ---- one format ---------------------------------------------------------------------------------- */

/* The last panel of an odd number is alone: one form is enough for it. */
MOX_KERNEL_INLINE void all_narrow(form f, const job *j)
{
    mox_amx_configure((int)j->rows, (int)j->rows);
    if (j->panels == 1)
        narrow(f, NARROW, 1, j);
    else if (j->rows == 1)
        narrow(f, 1, 2, j);
    else if (j->rows <= 4)
        narrow(f, 4, 2, j);
    else
        narrow(f, NARROW, 2, j);
}

/* Tiles of rows after the first find the lines decoded, whatever the format was. The jobs are copied, so that the
 * compiler keeps their fields in registers across fences. */
static void tall_again(const job *from, int p, int64_t row, int64_t rows)
{
    const job j = *from;
    const form none = { MOXIE_BF16, false, DRAINED };
    if (j.a_scales != NULL)
        tall(none, false, true, &j, p, row, rows);
    else
        tall(none, false, false, &j, p, row, rows);
}

static void square_again(const job *from, int64_t row, int64_t high, int64_t low)
{
    const job j = *from;
    const form none = { MOXIE_BF16, false, DRAINED };
    if (j.a_scales != NULL)
        square(none, false, true, &j, row, high, low);
    else
        square(none, false, false, &j, row, high, low);
}

MOX_KERNEL_INLINE void all_tall(form f, bool decoded, const job *j)
{
    for (int64_t row = 0; row < j->rows; row += 16) {
        const int64_t rows = mox_min_i64(16, j->rows - row);
        mox_amx_configure((int)rows, (int)rows);
        for (int p = 0; p < j->panels; p++) {
            if (row == 0 && !decoded)
                tall(f, true, false, j, p, row, rows);
            else
                tall_again(j, p, row, rows);
        }
    }
}

MOX_KERNEL_INLINE void all_square(form f, bool decoded, const job *j)
{
    for (int64_t row = 0; row < j->rows; row += 32) {
        const int64_t high = mox_min_i64(16, j->rows - row), low = mox_min_i64(16, j->rows - row - high);
        mox_amx_configure((int)high, low > 0 ? (int)low : 1);
        if (row == 0 && !decoded)
            square(f, true, false, j, row, high, low);
        else
            square_again(j, row, high, low);
    }
}

MOX_KERNEL_INLINE void decode_all(form f, const job *j)
{
    for (int p = 0; p < j->panels; p++)
        for (int64_t s = 0; s < j->steps; s++)
            decode_step(f, j, p, s);
}

/* Folded formats have one segment, or those of the activations' groups. */
MOX_KERNEL_INLINE void compute(form f, const job *from)
{
    const job j = *from;
    const bool acts = j.a_scales != NULL;
    const bool long_segments = j.segments == 1 || j.segment_steps >= SQUARE_STEPS;
    if (acts)
        decode_all(f, &j);
    if (f.fold != DRAINED && !acts)
        all_square(f, false, &j);
    else if (long_segments && (acts || j.segments == 1 || j.rows > NARROW))
        all_square(f, acts, &j);
    else if (j.rows <= NARROW && !acts)
        all_narrow(f, &j);
    else
        all_tall(f, acts, &j);
}

/* Steps of groups of `cols` columns. */
static int64_t steps_of(int64_t cols, int64_t steps)
{
    return mox_min_i64(mox_ceil_div(cols, MOX_PANEL_STEP), steps);
}

/* True when a folded scale is NaN, or brings a code below or above normal numbers. Powers of two: the smallest code
 * that is not zero is 2^-16 or more, the largest below 2^16. */
static bool is_wide(folding fold, const uint8_t *codes, int64_t count)
{
    const __m512i magnitude = _mm512_set1_epi8(fold == FOLD_E4M3 ? 0x7f : -1);
    __m512i low = _mm512_set1_epi8(-1), high = _mm512_setzero_si512();
    for (int64_t i = 0; i < count; i += 64) {
        const __mmask64 there = count - i >= 64 ? ~UINT64_C(0) : (UINT64_C(1) << (count - i)) - 1;
        const __m512i code = _mm512_and_si512(_mm512_maskz_loadu_epi8(there, codes + i), magnitude);
        low = _mm512_mask_min_epu8(low, there, low, code);
        high = _mm512_max_epu8(high, code);
    }
    if (fold == FOLD_E4M3)
        return _mm512_cmpeq_epi8_mask(high, _mm512_set1_epi8(0x7f)) != 0;
    return (_mm512_cmplt_epu8_mask(low, _mm512_set1_epi8(20)) |
            _mm512_cmpgt_epu8_mask(high, _mm512_set1_epi8((char)236))) != 0;
}

/* Scales as f16 in both halves of each lane. The fields of E4M3 moved to those of f16 are 2^-8 of the value; the
 * product brings subnormals along. */
static void halve_scales(const uint8_t *codes, int64_t groups, float *out)
{
    const __m256h shift = _mm256_castsi256_ph(_mm256_set1_epi16(0x5c00));
    for (int64_t g = 0; g < groups; g++) {
        const __m256i code = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(codes + g * MOX_PANEL_ROWS)));
        const __m256i magnitude = _mm256_slli_epi16(_mm256_and_si256(code, _mm256_set1_epi16(0x7f)), 7);
        const __m256i value = _mm256_castph_si256(_mm256_mul_ph(_mm256_castsi256_ph(magnitude), shift));
        /* 0xf8: a | (b & c) */
        const __m256i half =
            _mm256_ternarylogic_epi32(value, _mm256_slli_epi16(code, 8), _mm256_set1_epi16((short)0x8000), 0xf8);
        const __m512i wide = _mm512_cvtepu16_epi32(half);
        _mm512_store_si512(out + g * MOX_PANEL_ROWS, _mm512_or_si512(wide, _mm512_slli_epi32(wide, 16)));
    }
}

/* Rows whose largest weights are too large for bf16 are folded at a fraction of their value, however far their
 * exponents reach: what gets lost at the lower end is nothing beside the row's largest weight. */
static void lower_rows(stream *out, int64_t groups)
{
    for (int n = 0; n < MOX_PANEL_ROWS; n++) {
        int high = 0;
        for (int64_t g = 0; g < groups; g++) {
            const int code = out->exponent[g * MOX_PANEL_ROWS + n];
            high = code != 255 && code > high ? code : high;
        }
        out->end[n] = high > 230 ? ldexpf(1.0f, high - 230) : 1.0f;
    }
}

/* Codes of folded scales, one for every row. */
static const uint8_t *spread(const mox_panel_matrix *m, const uint8_t *codes, uint8_t *out)
{
    if (m->scale_lanes == MOX_PANEL_ROWS)
        return codes;
    for (int64_t g = 0; g < m->groups; g++)
        memset(out + g * MOX_PANEL_ROWS, codes[g], MOX_PANEL_ROWS);
    return out;
}

static void open_stream(stream *out, folding fold, const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel,
                        int panels, const scale_space *space)
{
    const uint8_t *codes = m->panels + (uint64_t)panel * m->panel_bytes;
    out->codes = codes;
    out->next = codes + (uint64_t)panels * m->panel_bytes;
    out->next_scales = out->next + m->scale_at;
    out->zero = m->zero_at != 0 ? codes + m->zero_at : NULL;
    out->scale = space->scale;
    mox_scales_fill(out->end, MOX_PANEL_ROWS, fold == FOLD_E4M3 ? E4M3_END : 1.0f);
    if (fold == DRAINED) {
        mox_panel_scales(m, weight->scale, panel, space->scale);
        return;
    }
    out->exponent = spread(m, codes + m->scale_at, space->codes);
    out->wide = is_wide(fold, out->exponent, m->groups * MOX_PANEL_ROWS);
    if (fold == FOLD_E4M3)
        halve_scales(out->exponent, m->groups, space->scale);
    else if (out->wide)
        lower_rows(out, m->groups);
}

static __m512i halves_of_e2m1(void)
{
    const float *values = mox_format_table(MOXIE_F4_E2M1);
    const __m256i half = _mm512_cvtps_ph(_mm512_loadu_ps(values), _MM_FROUND_TO_NEAREST_INT);
    return _mm512_inserti64x4(_mm512_castsi256_si512(half), half, 1);
}

static void prepare(job *j, folding fold, const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel,
                    int panels, const mox_panel_rows *a, float *c, void *scratch)
{
    scale_space space[2];
    *j = (job) { .self = j,
                 .a = a->data,
                 .a_scales = a->scales,
                 .rows = a->rows,
                 .a_scale_stride = a->scale_stride,
                 .panels = panels,
                 .steps = m->steps,
                 .step_bytes = (int64_t)m->step_bytes,
                 .scale_lines = (int64_t)(m->panel_bytes - m->scale_at) / 64,
                 .scaled = fold == DRAINED && m->scale_lanes > 0 };
    lay_out(m->steps, m->groups, scratch, j, space);
    j->c = c;
    j->group_steps = steps_of(m->group_cols, m->steps);
    j->act_steps = a->scales != NULL ? steps_of(a->group_cols, m->steps) : m->steps;
    j->segment_steps = fold == DRAINED ? mox_min_i64(j->group_steps, j->act_steps) : j->act_steps;
    j->segments = mox_ceil_div(m->steps, j->segment_steps);
    mox_pairs_tables(weight->element, weight->has_zero != 0, &j->tables);
    if (fold == FOLD_E4M3)
        j->halves = halves_of_e2m1();
    for (int p = 0; p < panels; p++)
        open_stream(&j->panel[p], fold, m, weight, panel + p, panels, &space[p]);
    /* Lines of all steps only for a second pass over them. */
    const bool direct = weight->element == MOXIE_BF16, once = a->rows <= 32 && a->scales == NULL;
    j->lines_mask = direct || !once || (j->segments > 1 && j->rows > NARROW) ? -1 : RING - 1;
    for (int p = 0; direct && p < panels; p++)
        j->panel[p].lines = (uint8_t *)(uintptr_t)j->panel[p].codes;
    if (panels == 1)
        j->panel[1] = j->panel[0];
}

MOX_KERNEL_INLINE void multiply(form f, const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,
                                const mox_panel_rows *a, float *c, void *scratch)
{
    job j;
    prepare(&j, f.fold, m, weight, panel, panels, a, c, scratch);
    const unsigned mxcsr = _mm_getcsr();
    _mm_setcsr(mxcsr | MOX_FLUSH_SUBNORMALS);
    compute(f, &j);
    _tile_release();
    _mm_setcsr(mxcsr);
}

/* ---- the row ------------------------------------------------------------------------------------- */

#define MOX_AMX_FORM(name, like, zeros, fold)                                                                          \
    static void name(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,                  \
                     const mox_panel_rows *a, float *c, void *scratch)                                                 \
    {                                                                                                                  \
        multiply((form) { like, zeros, fold }, m, weight, panel, panels, a, c, scratch);                               \
    }
MOX_AMX_FORM(times_pairs, MOXIE_BF16, false, DRAINED)
MOX_AMX_FORM(times_zipped, MOXIE_F8_E4M3, false, DRAINED)
MOX_AMX_FORM(times_zipped_e8m0, MOXIE_F8_E4M3, false, FOLD_E8M0)
MOX_AMX_FORM(times_planes, MOXIE_F6_E3M2, false, DRAINED)
MOX_AMX_FORM(times_planes_e8m0, MOXIE_F6_E3M2, false, FOLD_E8M0)
MOX_AMX_FORM(times_nibbles, MOXIE_F4_E2M1, false, DRAINED)
MOX_AMX_FORM(times_nibbles_e8m0, MOXIE_F4_E2M1, false, FOLD_E8M0)
MOX_AMX_FORM(times_nibbles_e4m3, MOXIE_F4_E2M1, false, FOLD_E4M3)
MOX_AMX_FORM(times_i8, MOXIE_I8, false, DRAINED)
MOX_AMX_FORM(times_u8b128, MOXIE_U8B128, false, DRAINED)
MOX_AMX_FORM(times_i4_zeros, MOXIE_I4, true, DRAINED)
MOX_AMX_FORM(times_u4b8_zeros, MOXIE_U4B8, true, DRAINED)
#undef MOX_AMX_FORM

static const struct {
    moxie_dtype element;
    bool zeros;
    mox_panel_multiply_fn drained, e8m0, e4m3; /* by what becomes of the scale; NULL: no such form */
} formats[] = {
    { MOXIE_BF16, false, times_pairs, NULL, NULL },
    { MOXIE_F8_E4M3, false, times_zipped, times_zipped_e8m0, NULL },
    { MOXIE_F8_E5M2, false, times_zipped, times_zipped_e8m0, NULL },
    { MOXIE_F6_E3M2, false, times_planes, times_planes_e8m0, NULL },
    { MOXIE_F6_E2M3, false, times_planes, times_planes_e8m0, NULL },
    { MOXIE_F4_E2M1, false, times_nibbles, times_nibbles_e8m0, times_nibbles_e4m3 },
    { MOXIE_I4, false, times_nibbles, times_nibbles_e8m0, NULL },
    { MOXIE_U4B8, false, times_nibbles, times_nibbles_e8m0, NULL },
    { MOXIE_I4, true, times_i4_zeros, NULL, NULL },
    { MOXIE_U4B8, true, times_u4b8_zeros, NULL, NULL },
    { MOXIE_I8, false, times_i8, NULL, NULL },
    { MOXIE_U8B128, false, times_u8b128, NULL, NULL },
};

static int64_t problem_cols(const mox_expert_gemm_problem *problem)
{
    return problem->projection == MOX_W13 ? problem->shape->hidden : problem->shape->intermediate;
}

static bool is_integer(moxie_dtype element)
{
    return mox_format_of(element)->kind == MOX_KIND_INTEGER;
}

/* Operands must be exact in bf16, and sums of integers in fp32. */
static bool takes_operand(const mox_expert_gemm_problem *problem, mox_refusal *why)
{
    const moxie_quant *act = problem->act, *weight = problem->weight;
    if (mox_quant_is_none(act) && problem->dtype != MOXIE_BF16)
        return mox_refuse(why, "run the layer in bf16, or quantize its activations",
                          "multiplies activations that are exact in bf16, these are %s",
                          mox_quant_dtype_name(problem->dtype));
    if (!mox_quant_is_none(act) && mox_dtype_bits(act->element) > 8)
        return mox_refuse(why, "quantize the activations to 8 bits or fewer",
                          "multiplies activations that are exact in bf16, these are %s",
                          mox_quant_dtype_name(act->element));
    if (!mox_quant_is_none(act) && is_integer(act->element) && is_integer(weight->element) &&
        mox_dtype_bits(weight->element) > 4)
        return mox_refuse(why, "leave the activations in 16 bits",
                          "sums in fp32, products of %s and %s are summed in int32",
                          mox_quant_dtype_name(weight->element), mox_quant_dtype_name(act->element));
    return true;
}

/* What the row does with the scales of a problem. */
static mox_panel_multiply_fn form_of(size_t i, const moxie_quant *weight, int64_t group_cols, int64_t groups)
{
    const bool by_16 = groups > 1 && group_cols < MOX_PANEL_STEP;
    if (weight->scale == MOXIE_F8_E8M0 && formats[i].e8m0 != NULL)
        return by_16 ? NULL : formats[i].e8m0;
    if (weight->scale == MOXIE_F8_E4M3 && by_16)
        return formats[i].e4m3;
    return by_16 ? NULL : formats[i].drained;
}

mox_panel_multiply_fn mox_expert_gemm_amx_bf16_bind(const mox_expert_gemm_problem *problem, mox_refusal *why)
{
    const moxie_quant *weight = problem->weight;
    const int64_t cols = problem_cols(problem);
    if (!mox_cpu()->avx512_fp16) {
        mox_refuse(why, "use the avx512 rows", "needs AVX-512 FP16 beside AMX");
        return NULL;
    }
    if (!takes_operand(problem, why))
        return NULL;
    mox_panel_multiply_fn found = NULL;
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (formats[i].element == weight->element && formats[i].zeros == (weight->has_zero != 0))
            found = form_of(i, weight, mox_group_cols(weight, cols), mox_scale_cols(weight, cols));
    if (found == NULL)
        mox_refuse(why, "quantize the weights in groups of 32 columns or more, or store them in bf16",
                   "decodes to bf16, and has no form for %s%s in these groups", mox_quant_dtype_name(weight->element),
                   weight->has_zero ? " with zero points" : "");
    return found;
}

uint64_t mox_expert_gemm_amx_bf16_scratch_bytes(const mox_expert_gemm_problem *problem)
{
    const int64_t cols = problem_cols(problem);
    scale_space space[2];
    job unused;
    return lay_out(mox_ceil_div(cols, MOX_PANEL_STEP), mox_scale_cols(problem->weight, cols), NULL, &unused, space);
}

#else

mox_panel_multiply_fn mox_expert_gemm_amx_bf16_bind(const mox_expert_gemm_problem *problem, mox_refusal *why)
{
    (void)problem;
    mox_refuse(why, "compile for x86-64 with AMX", "is not in this build");
    return NULL;
}

uint64_t mox_expert_gemm_amx_bf16_scratch_bytes(const mox_expert_gemm_problem *problem)
{
    (void)problem;
    return 0;
}

#endif
