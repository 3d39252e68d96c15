/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_amx.c - row amx_bf16: panels decoded to bf16 tiles between the tile operations that consume them.
 *
 *     step      A tile [rows, 32 columns] x B tile [16 pair lines of a panel] -> C tile [rows, 16] f32
 *     segment   C from zero over its steps, stored, then  sum[r] = fma(C[r] * sa[r], sw, sum[r])  in vector registers
 *
 *     B lines   codes -> registers -> a ring of 4 steps in the first-level cache -> tile; bf16 weights load from the
 *               record. With more than one tile of rows the decoded lines of both panels are kept in scratch, so that
 *               codes are decoded once.
 *
 * Three ways through a panel pair, all of the same arithmetic (fma32, panel_kernel.h):
 *
 *     narrow    up to 8 rows: both panels at once, 2 x rows sums in registers
 *     tall      tiles of up to 16 rows, a panel at a time, 16 sums in registers
 *     square    tiles of rows by two, panels by two, sums in c: when segments are long, so that storing C is rare
 *
 * A tile operation takes as many cycles as A has rows, but at least about 10: tiles are configured for the rows there
 * are. C tiles alternate between two pairs, because a tile that is being stored holds up the next that is zeroed.
 *
 * Tile loads and stores are inline assembly to the compiler without memory operands: fences keep its order.
 * _tile_loadconfig of gcc 12 reads only the first 8 bytes as far as the compiler knows, hence our own.
 */
#include "cpu/expert_gemm/panel_kernel.h"

#if defined(__AMX_BF16__) && defined(__AVX512VBMI__)

#include <immintrin.h>

#include "base/sizes.h"
#include "cpu/expert_gemm/amx_tiles.h"
#include "cpu/expert_gemm/panel_decode_avx512.h"
#include "cpu/expert_gemm/panel_scales.h"

enum { LINES = 1024, RING = 4, TILE = 256, NARROW = 8, AHEAD = 16, SQUARE_STEPS = 4 };

/* ---- one call ------------------------------------------------------------------------------------ */

/* One of the two panels. */
typedef struct stream {
    const uint8_t *codes, *next; /* this panel's, and those of the panel that comes after the pair */
    const uint8_t *zero;         /* [groups][16] or NULL */
    const float *scale;          /* [groups][16] */
    uint8_t *kept;               /* [steps] decoded lines */
    const uint8_t *lines;        /* [steps]: kept, or the codes themselves when they are bf16 */
} stream;

typedef struct job {
    const mox_panel_matrix *matrix;
    const mox_panel_rows *a;
    mox_pair_tables tables;
    stream panel[2];
    int panels;
    int64_t steps, step_bytes;
    int64_t segment_steps, segments; /* segment_steps 0: half a step */
    int64_t group_steps, act_steps;  /* of a weight group and of an activation group */
    bool scaled;                     /* weights have scales */
    float *buffer;                   /* [4][16][16] */
    uint8_t *ring;                   /* [2][RING] lines */
    float *c;                        /* [rows][32] */
} job;

static uint64_t carve(uint8_t *base, uint64_t *at, uint64_t bytes, void *out)
{
    void *here = base != NULL ? base + *at : NULL;
    memcpy(out, &here, sizeof here);
    *at = (*at + bytes + 63) & ~UINT64_C(63);
    return *at;
}

static uint64_t lay_out(int64_t steps, int64_t groups, uint8_t *base, job *j, float *scale[2])
{
    uint64_t at = 0;
    carve(base, &at, 4 * TILE * sizeof(float), &j->buffer);
    carve(base, &at, 2 * RING * LINES, &j->ring);
    for (int p = 0; p < 2; p++) {
        carve(base, &at, (uint64_t)groups * MOX_PANEL_ROWS * sizeof(float), &scale[p]);
        carve(base, &at, (uint64_t)steps * LINES, &j->panel[p].kept);
    }
    return at;
}

/* ---- pieces -------------------------------------------------------------------------------------- */

/* Lines of step s of a panel. */
MOX_KERNEL_INLINE void decode(moxie_dtype element, bool zeros, const job *j, const stream *from, int64_t s, uint8_t *to)
{
    const uint8_t *codes = from->codes + s * j->step_bytes;
    const __m512i zero = zeros ? mox_pairs_zeros(element, from->zero + s / j->group_steps * MOX_PANEL_ROWS)
                               : mox_pairs_no_zeros(element);
    for (int q = 0; q < 4; q++) {
        __m512i pairs[4];
        mox_pairs_quarter(element, zeros, &j->tables, codes, q, zero, pairs);
        for (int i = 0; i < 4; i++)
            _mm512_store_si512(to + (4 * q + i) * 64, pairs[i]);
    }
}

/* Brings in codes AHEAD steps on, past the panel's end those of the pair that follows. */
MOX_KERNEL_INLINE void prefetch(moxie_dtype element, const job *j, const stream *from, int64_t s)
{
    const int64_t ahead = s + AHEAD - j->steps;
    const uint8_t *at = ahead < 0 ? from->codes + (s + AHEAD) * j->step_bytes : from->next + ahead * j->step_bytes;
    const int64_t bytes = mox_pairs_order(element) == MOX_PANEL_NIBBLES ? 256 : j->step_bytes;
    for (int64_t i = 0; i < bytes; i += 64)
        _mm_prefetch((const char *)at + i, _MM_HINT_T0);
}

/* sum = fma(C * sa, sw, sum); with neither scale there is one segment and the sum is C itself. */
MOX_KERNEL_INLINE __m512 drained(const job *j, const float *c, __m512 scale, int64_t row, int64_t segment, __m512 sum)
{
    __m512 part = _mm512_load_ps(c);
    if (j->a->scales != NULL)
        part = _mm512_mul_ps(
            part, _mm512_set1_ps(j->a->scales[row * j->a->scale_stride + segment * j->segment_steps / j->act_steps]));
    else if (!j->scaled)
        return part;
    return _mm512_fmadd_ps(part, scale, sum);
}

MOX_KERNEL_INLINE __m512 scale_of(const job *j, const stream *from, int64_t segment)
{
    const int64_t group = j->segment_steps == 0 ? segment : segment * j->segment_steps / j->group_steps;
    return _mm512_load_ps(from->scale + mox_min_i64(group, j->matrix->groups - 1) * MOX_PANEL_ROWS);
}

/* Where lines of step s are once decoded, and whether the record holds them as they are. */
MOX_KERNEL_INLINE bool is_direct(moxie_dtype element)
{
    return mox_pairs_order(element) == MOX_PANEL_PAIRS;
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
        const __m512 scale = scale_of(j, &j->panel[p], segment);
        for (int r = 0; r < R; r++)
            sum[p][r] = drained(j, buffer + p * TILE + r * 16, scale, r, segment, sum[p][r]);
    }
}

/* Lines of step s, for both panels, decoded into the ring. */
MOX_KERNEL_INLINE void ring_step(moxie_dtype element, bool zeros, int P, const job *j, int64_t s)
{
    for (int p = 0; p < P; p++) {
        prefetch(element, j, &j->panel[p], s);
        if (!is_direct(element) && s < j->steps)
            decode(element, zeros, j, &j->panel[p], s, j->ring + (p * RING + s % RING) * LINES);
    }
}

MOX_KERNEL_INLINE const uint8_t *ring_lines(moxie_dtype element, const job *j, int p, int64_t s)
{
    return is_direct(element) ? j->panel[p].codes + s * LINES : j->ring + (p * RING + s % RING) * LINES;
}

MOX_KERNEL_INLINE void narrow_segment(moxie_dtype element, bool zeros, bool even, int R, int P, const job *j,
                                      int64_t segment, const uint8_t *a, __m512 sum[2][NARROW])
{
    const int64_t first = segment * j->segment_steps, last = mox_min_i64(first + j->segment_steps, j->steps);
    narrow_zero(even, P);
    for (int64_t s = first; s < last; s++) {
        narrow_step(even, P, a + s * j->a->rows * 64, ring_lines(element, j, 0, s), ring_lines(element, j, 1, s));
        ring_step(element, zeros, P, j, s + 1);
    }
    narrow_drain(even, R, P, j, segment, sum);
}

/* Groups of 16 columns: both halves of a step are segments. */
MOX_KERNEL_INLINE void narrow_halves(moxie_dtype element, bool zeros, int R, int P, const job *j, int64_t s,
                                     const uint8_t *a, __m512 sum[2][NARROW])
{
    const uint8_t *at = a + s * j->a->rows * 64;
    const uint8_t *b0 = ring_lines(element, j, 0, s), *b1 = ring_lines(element, j, 1, s);
    narrow_zero(true, P);
    narrow_step(true, P, at, b0, b1);
    narrow_zero(false, P);
    narrow_step(false, P, at + 32, b0 + LINES / 2, b1 + LINES / 2);
    ring_step(element, zeros, P, j, s + 1);
    narrow_drain(true, R, P, j, 2 * s, sum);
    if (2 * s + 1 < j->segments)
        narrow_drain(false, R, P, j, 2 * s + 1, sum);
}

/* R: rows of the sums kept, at least the rows there are. */
MOX_KERNEL_INLINE void narrow(moxie_dtype element, bool zeros, bool halves, int R, int P, const job *j)
{
    const uint8_t *a = j->a->data;
    __m512 sum[2][NARROW];
    for (int p = 0; p < P; p++)
        for (int r = 0; r < R; r++)
            sum[p][r] = _mm512_setzero_ps();
    ring_step(element, zeros, P, j, 0);
    if (halves)
        for (int64_t s = 0; s < j->steps; s++)
            narrow_halves(element, zeros, R, P, j, s, a, sum);
    else
        for (int64_t segment = 0; segment < j->segments; segment += 2) {
            narrow_segment(element, zeros, true, R, P, j, segment, a, sum);
            if (segment + 1 < j->segments)
                narrow_segment(element, zeros, false, R, P, j, segment + 1, a, sum);
        }
    for (int64_t r = 0; r < j->a->rows; r++)
        for (int p = 0; p < P; p++)
            _mm512_store_ps(j->c + r * 32 + p * 16, sum[p][r]);
}

/* ---- tall ---------------------------------------------------------------------------------------- */

MOX_KERNEL_INLINE void keep_step(moxie_dtype element, bool zeros, const job *j, int p, int64_t s)
{
    prefetch(element, j, &j->panel[p], s);
    if (!is_direct(element) && s < j->steps)
        decode(element, zeros, j, &j->panel[p], s, j->panel[p].kept + s * LINES);
}

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

MOX_KERNEL_INLINE void tall_drain(bool even, const job *j, int p, int64_t row, int64_t segment, __m512 sum[16])
{
    float *buffer = j->buffer + (even ? 0 : 2 * TILE);
    MOX_FENCE();
    if (even)
        _tile_stored(0, buffer, 64);
    else
        _tile_stored(2, buffer, 64);
    MOX_FENCE();
    const __m512 scale = scale_of(j, &j->panel[p], segment);
    for (int r = 0; r < 16; r++)
        sum[r] = drained(j, buffer + r * 16, scale, mox_min_i64(row + r, j->a->rows - 1), segment, sum[r]);
}

MOX_KERNEL_INLINE void tall_segment(moxie_dtype element, bool zeros, bool even, bool first, const job *j, int p,
                                    int64_t row, int64_t tile_rows, int64_t segment, const uint8_t *a, __m512 sum[16])
{
    const int64_t s0 = segment * j->segment_steps, s1 = mox_min_i64(s0 + j->segment_steps, j->steps);
    if (even)
        _tile_zero(0);
    else
        _tile_zero(2);
    for (int64_t s = s0; s < s1; s++) {
        tall_step(even, a + s * tile_rows * 64, j->panel[p].lines + s * LINES);
        if (first)
            keep_step(element, zeros, j, p, s + 1);
    }
    tall_drain(even, j, p, row, segment, sum);
}

MOX_KERNEL_INLINE void tall_halves(moxie_dtype element, bool zeros, bool first, const job *j, int p, int64_t row,
                                   int64_t tile_rows, int64_t s, const uint8_t *a, __m512 sum[16])
{
    const uint8_t *at = a + s * tile_rows * 64, *b = j->panel[p].lines + s * LINES;
    _tile_zero(0);
    tall_step(true, at, b);
    _tile_zero(2);
    tall_step(false, at + 32, b + LINES / 2);
    if (first)
        keep_step(element, zeros, j, p, s + 1);
    tall_drain(true, j, p, row, 2 * s, sum);
    if (2 * s + 1 < j->segments)
        tall_drain(false, j, p, row, 2 * s + 1, sum);
}

/* Rows [row, row + tile_rows) of panel p. The first tile of rows decodes. */
MOX_KERNEL_INLINE void tall(moxie_dtype element, bool zeros, bool halves, bool first, const job *j, int p, int64_t row,
                            int64_t tile_rows)
{
    const uint8_t *a = (const uint8_t *)j->a->data + row * j->steps * 64;
    __m512 sum[16];
    for (int r = 0; r < 16; r++)
        sum[r] = _mm512_setzero_ps();
    if (first)
        keep_step(element, zeros, j, p, 0);
    if (halves)
        for (int64_t s = 0; s < j->steps; s++)
            tall_halves(element, zeros, first, j, p, row, tile_rows, s, a, sum);
    else
        for (int64_t segment = 0; segment < j->segments; segment += 2) {
            tall_segment(element, zeros, true, first, j, p, row, tile_rows, segment, a, sum);
            if (segment + 1 < j->segments)
                tall_segment(element, zeros, false, first, j, p, row, tile_rows, segment + 1, a, sum);
        }
    for (int64_t r = 0; r < tile_rows; r++)
        _mm512_store_ps(j->c + (row + r) * 32 + p * 16, sum[r]);
}

/* ---- square -------------------------------------------------------------------------------------- */

/* Two tiles of rows (the second may be missing: low_rows 0) by the panels there are, one step. */
MOX_KERNEL_INLINE void square_step(const uint8_t *a0, const uint8_t *a1, const uint8_t *b0, const uint8_t *b1)
{
    MOX_FENCE();
    _tile_loadd(4, a0, 64);
    _tile_loadd(5, b0, 64);
    _tile_dpbf16ps(0, 4, 5);
    if (b1 != NULL) {
        _tile_loadd(6, b1, 64);
        _tile_dpbf16ps(1, 4, 6);
    }
    if (a1 != NULL) {
        _tile_loadd(7, a1, 64);
        _tile_dpbf16ps(2, 7, 5);
        if (b1 != NULL)
            _tile_dpbf16ps(3, 7, 6);
    }
    MOX_FENCE();
}

MOX_KERNEL_INLINE void square_add(const job *j, int p, int64_t row, int64_t rows, const float *tile, int64_t segment)
{
    const __m512 scale = scale_of(j, &j->panel[p], segment);
    for (int64_t r = 0; r < rows; r++) {
        float *c = j->c + (row + r) * 32 + p * 16;
        const __m512 before = segment == 0 ? _mm512_setzero_ps() : _mm512_load_ps(c);
        _mm512_store_ps(c, drained(j, tile + r * 16, scale, row + r, segment, before));
    }
}

MOX_KERNEL_INLINE void square_drain(const job *j, int64_t row, int64_t high, int64_t low, int64_t segment)
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
        square_add(j, p, row, high, buffer + p * TILE, segment);
        square_add(j, p, row + high, low, buffer + (2 + p) * TILE, segment);
    }
}

/* Rows [row, row + high + low): `high` in the first tile, `low` in the second. */
MOX_KERNEL_INLINE void square(moxie_dtype element, bool zeros, bool first, const job *j, int64_t row, int64_t high,
                              int64_t low)
{
    const uint8_t *a = (const uint8_t *)j->a->data + row * j->steps * 64;
    const uint8_t *below = a + high * j->steps * 64;
    for (int p = 0; first && p < j->panels; p++)
        keep_step(element, zeros, j, p, 0);
    for (int64_t segment = 0; segment < j->segments; segment++) {
        const int64_t s0 = segment * j->segment_steps, s1 = mox_min_i64(s0 + j->segment_steps, j->steps);
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        for (int64_t s = s0; s < s1; s++) {
            square_step(a + s * high * 64, low > 0 ? below + s * low * 64 : NULL, j->panel[0].lines + s * LINES,
                        j->panels == 2 ? j->panel[1].lines + s * LINES : NULL);
            for (int p = 0; first && p < j->panels; p++)
                keep_step(element, zeros, j, p, s + 1);
        }
        square_drain(j, row, high, low, segment);
    }
}

/* ---- one format ---------------------------------------------------------------------------------- */

/* The last panel of an odd number is alone: one form is enough for it. */
MOX_KERNEL_INLINE void all_narrow(moxie_dtype element, bool zeros, bool halves, const job *j)
{
    const int64_t rows = j->a->rows;
    mox_amx_configure((int)rows, (int)rows, halves ? 32 : 64);
    if (j->panels == 1)
        narrow(element, zeros, halves, NARROW, 1, j);
    else if (rows == 1)
        narrow(element, zeros, halves, 1, 2, j);
    else if (rows == 2)
        narrow(element, zeros, halves, 2, 2, j);
    else if (rows <= 4)
        narrow(element, zeros, halves, 4, 2, j);
    else
        narrow(element, zeros, halves, NARROW, 2, j);
}

/* Tiles of rows after the first find the lines decoded, whatever the format was. */
static void tall_again(const job *j, bool halves, int p, int64_t row, int64_t rows)
{
    if (halves)
        tall(MOXIE_BF16, false, true, false, j, p, row, rows);
    else
        tall(MOXIE_BF16, false, false, false, j, p, row, rows);
}

static void square_again(const job *j, int64_t row, int64_t high, int64_t low)
{
    square(MOXIE_BF16, false, false, j, row, high, low);
}

MOX_KERNEL_INLINE void all_tall(moxie_dtype element, bool zeros, bool halves, const job *j)
{
    for (int64_t row = 0; row < j->a->rows; row += 16) {
        const int64_t rows = mox_min_i64(16, j->a->rows - row);
        mox_amx_configure((int)rows, (int)rows, halves ? 32 : 64);
        for (int p = 0; p < j->panels; p++) {
            if (row == 0)
                tall(element, zeros, halves, true, j, p, row, rows);
            else
                tall_again(j, halves, p, row, rows);
        }
    }
}

MOX_KERNEL_INLINE void all_square(moxie_dtype element, bool zeros, const job *j)
{
    for (int64_t row = 0; row < j->a->rows; row += 32) {
        const int64_t high = mox_min_i64(16, j->a->rows - row), low = mox_min_i64(16, j->a->rows - row - high);
        mox_amx_configure((int)high, low > 0 ? (int)low : 1, 64);
        if (row == 0)
            square(element, zeros, true, j, row, high, low);
        else
            square_again(j, row, high, low);
    }
}

MOX_KERNEL_INLINE void compute(moxie_dtype element, bool zeros, bool halves, const job *j)
{
    if (j->a->rows <= NARROW)
        all_narrow(element, zeros, halves, j);
    else if (!halves && j->segment_steps >= SQUARE_STEPS)
        all_square(element, zeros, j);
    else
        all_tall(element, zeros, halves, j);
}

/* Steps of groups of `cols` columns. */
static int64_t steps_of(int64_t cols, int64_t steps)
{
    return mox_min_i64(mox_ceil_div(cols, MOX_PANEL_STEP), steps);
}

static void prepare(job *j, const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,
                    const mox_panel_rows *a, float *c, void *scratch)
{
    float *scale[2];
    *j = (job) { .matrix = m, .a = a, .panels = panels, .steps = m->steps, .step_bytes = (int64_t)m->step_bytes };
    lay_out(m->steps, m->groups, scratch, j, scale);
    j->c = c;
    j->scaled = m->scale_lanes > 0;
    j->group_steps = steps_of(m->group_cols, m->steps);
    j->act_steps = a->scales != NULL ? steps_of(a->group_cols, m->steps) : m->steps;
    const bool halves = m->groups > 1 && m->group_cols == MOX_PANEL_STEP / 2;
    j->segment_steps = halves ? 0 : mox_min_i64(j->group_steps, j->act_steps);
    j->segments = j->segment_steps == 0 ? m->groups : mox_ceil_div(m->steps, j->segment_steps);
    mox_pairs_tables(weight->element, weight->has_zero != 0, &j->tables);
    for (int p = 0; p < panels; p++) {
        const uint8_t *codes = m->panels + (uint64_t)(panel + p) * m->panel_bytes;
        mox_panel_scales(m, weight->scale, panel + p, scale[p]);
        j->panel[p].lines = weight->element == MOXIE_BF16 ? codes : j->panel[p].kept;
        j->panel[p].codes = codes;
        j->panel[p].next = codes + (uint64_t)panels * m->panel_bytes;
        j->panel[p].zero = m->zero_at != 0 ? codes + m->zero_at : NULL;
        j->panel[p].scale = scale[p];
    }
    if (panels == 1)
        j->panel[1] = j->panel[0];
}

/* Formats of one order differ in their tables only: `like` stands for all of them in the code, `element` is the one
 * at hand. */
MOX_KERNEL_INLINE void multiply(moxie_dtype like, bool zeros, bool halves, const mox_panel_matrix *m,
                                const moxie_quant *weight, int64_t panel, int panels, const mox_panel_rows *a, float *c,
                                void *scratch)
{
    job j;
    prepare(&j, m, weight, panel, panels, a, c, scratch);
    const unsigned mxcsr = _mm_getcsr();
    _mm_setcsr(mxcsr | MOX_FLUSH_SUBNORMALS);
    compute(like, zeros, halves, &j);
    _tile_release();
    _mm_setcsr(mxcsr);
}

/* ---- the row ------------------------------------------------------------------------------------- */

#define MOX_AMX_FORM(name, like, zeros, halves)                                                                        \
    static void name(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,                  \
                     const mox_panel_rows *a, float *c, void *scratch)                                                 \
    {                                                                                                                  \
        multiply(like, zeros, halves, m, weight, panel, panels, a, c, scratch);                                        \
    }
MOX_AMX_FORM(times_pairs, MOXIE_BF16, false, false)
MOX_AMX_FORM(times_zipped, MOXIE_F8_E4M3, false, false)
MOX_AMX_FORM(times_planes, MOXIE_F6_E3M2, false, false)
MOX_AMX_FORM(times_nibbles, MOXIE_F4_E2M1, false, false)
MOX_AMX_FORM(times_nibbles_by_16, MOXIE_F4_E2M1, false, true)
MOX_AMX_FORM(times_i8, MOXIE_I8, false, false)
MOX_AMX_FORM(times_u8b128, MOXIE_U8B128, false, false)
MOX_AMX_FORM(times_i4_zeros, MOXIE_I4, true, false)
MOX_AMX_FORM(times_u4b8_zeros, MOXIE_U4B8, true, false)
#undef MOX_AMX_FORM

/* by_16: for groups of 16 columns, NULL where there are none. */
static const struct {
    moxie_dtype element;
    bool zeros;
    mox_panel_multiply_fn multiply, by_16;
} formats[] = {
    { MOXIE_BF16, false, times_pairs, NULL },
    { MOXIE_F8_E4M3, false, times_zipped, NULL },
    { MOXIE_F8_E5M2, false, times_zipped, NULL },
    { MOXIE_F6_E3M2, false, times_planes, NULL },
    { MOXIE_F6_E2M3, false, times_planes, NULL },
    { MOXIE_F4_E2M1, false, times_nibbles, times_nibbles_by_16 },
    { MOXIE_I4, false, times_nibbles, times_nibbles_by_16 },
    { MOXIE_U4B8, false, times_nibbles, times_nibbles_by_16 },
    { MOXIE_I4, true, times_i4_zeros, NULL },
    { MOXIE_U4B8, true, times_u4b8_zeros, NULL },
    { MOXIE_I8, false, times_i8, NULL },
    { MOXIE_U8B128, false, times_u8b128, NULL },
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

mox_panel_multiply_fn mox_expert_gemm_amx_bf16_bind(const mox_expert_gemm_problem *problem, mox_refusal *why)
{
    const moxie_quant *weight = problem->weight;
    const bool by_16 = mox_group_cols(weight, problem_cols(problem)) == MOX_PANEL_STEP / 2 &&
                       mox_scale_cols(weight, problem_cols(problem)) > 1;
    if (!takes_operand(problem, why))
        return NULL;
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (formats[i].element == weight->element && formats[i].zeros == (weight->has_zero != 0) &&
            (!by_16 || formats[i].by_16 != NULL))
            return by_16 ? formats[i].by_16 : formats[i].multiply;
    mox_refuse(why, "quantize the weights, or store them in bf16",
               "decodes to bf16, and has no form for %s%s in these groups", mox_quant_dtype_name(weight->element),
               weight->has_zero ? " with zero points" : "");
    return NULL;
}

uint64_t mox_expert_gemm_amx_bf16_scratch_bytes(const mox_expert_gemm_problem *problem)
{
    const int64_t cols = problem_cols(problem);
    float *scale[2];
    job unused;
    return lay_out(mox_ceil_div(cols, MOX_PANEL_STEP), mox_scale_cols(problem->weight, cols), NULL, &unused, scale);
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
