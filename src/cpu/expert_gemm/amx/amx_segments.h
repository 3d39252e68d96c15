/* SPDX-License-Identifier: Apache-2.0
 *
 * amx_segments.h - kernel amx_bf16 where segments are short. Every segment stores its C tiles and adds them, times
 * their scales, to sums that stay in vector registers.
 *
 *     narrow    up to 8 rows: both panels at once, 2 x rows sums
 *     tall      more rows: CHUNK_STEPS steps at a time, decoded once for all tiles of rows; 16 sums, which wait in c
 *               between chunks
 *
 * Successive segments use different C tiles, because a tile's next product waits while the tile is being stored.
 */
#ifndef MOX_CPU_AMX_SEGMENTS_H
#define MOX_CPU_AMX_SEGMENTS_H

#include "base/sizes.h"
#include "cpu/expert_gemm/amx/amx_lines.h"
#include "cpu/expert_gemm/amx/amx_tiles.h"

/* ---- the ends of segments ------------------------------------------------------------------------ */

/* The scales at the end of a segment. */
typedef struct mox_amx_end {
    __m512 scale;      /* of the 16 rows of weights */
    const float *acts; /* of row 0 of the activations, a_scale_stride apart; NULL: none */
} mox_amx_end;

/* The group of `steps` steps that a segment lies in. Mostly groups are segments, and no division is needed. */
MOX_KERNEL_INLINE int64_t mox_amx_group_of_segment(const mox_amx_job *j, int64_t segment, int64_t steps)
{
    return steps == j->segment_steps ? segment : segment * j->segment_steps / steps;
}

/* Without scales of activations a segment is a group of weights, and needs no search. */
MOX_KERNEL_INLINE mox_amx_end mox_amx_end_of(const mox_amx_job *j, const mox_amx_stream *from, int64_t segment)
{
    mox_amx_end end = { _mm512_loadu_ps(from->end_factor), NULL };
    int64_t group = segment;
    if (j->a_scales != NULL) {
        end.acts = j->a_scales + mox_amx_group_of_segment(j, segment, j->act_steps);
        group = mox_amx_group_of_segment(j, segment, j->group_steps);
    }
    if (j->scaled)
        end.scale = _mm512_load_ps(from->scale + group * MOX_PANEL_ROWS);
    return end;
}

/* sum = fma(C * sa, sw, sum). `acts` (there are scales of activations) is a constant of the instance, because every
 * operation counts where segments are short. `ints`: C is int32. */
MOX_KERNEL_INLINE __m512 mox_amx_add_segment(bool acts, bool ints, const float *c, const float *act, __m512 scale,
                                             __m512 sum)
{
    __m512 part = ints ? _mm512_cvtepi32_ps(_mm512_load_si512(c)) : _mm512_load_ps(c);
    if (acts)
        part = _mm512_mul_ps(part, _mm512_set1_ps(*act));
    return _mm512_fmadd_ps(part, scale, sum);
}

/* Adds a C tile to `rows` sums. Rows behind the last one use its scale; their sums are not read. */
MOX_KERNEL_INLINE void mox_amx_add_segment_rows(bool acts, const mox_amx_job *j, const float *c, mox_amx_end end,
                                                int64_t row, int rows, __m512 *sum)
{
    MOX_KERNEL_UNROLL
    for (int r = 0; r < rows; r++) {
        const float *act = acts ? end.acts + mox_min_i64(row + r, j->rows - 1) * j->a_scale_stride : NULL;
        sum[r] = mox_amx_add_segment(acts, false, c + r * 16, act, end.scale, sum[r]);
    }
}

/* The start value of a sum. Without scales per segment the sum must be C itself, and only -0 + C keeps the sign of a
 * zero C. */
MOX_KERNEL_INLINE __m512 mox_amx_initial_sum(const mox_amx_job *j)
{
    return _mm512_set1_ps(j->a_scales != NULL || j->scaled ? 0.0f : -0.0f);
}

/* ---- narrow -------------------------------------------------------------------------------------- */

/* One step of P panels into C tiles 0 and 1 (even segments), or 2 and 3. */
MOX_KERNEL_INLINE void mox_amx_narrow_step(bool even, int P, const uint8_t *a, const uint8_t *b0, const uint8_t *b1)
{
    MOX_FENCE();
    if (even) {
        _tile_loadd(4, a, 64);
        _tile_loadd(5, b0, 64);
        _tile_dpbf16ps(0, 4, 5);
        if (P == 2) {
            _tile_loadd(5, b1, 64);
            _tile_dpbf16ps(1, 4, 5);
        }
    } else {
        _tile_loadd(4, a, 64);
        _tile_loadd(5, b0, 64);
        _tile_dpbf16ps(2, 4, 5);
        if (P == 2) {
            _tile_loadd(5, b1, 64);
            _tile_dpbf16ps(3, 4, 5);
        }
    }
    _tile_zero(4);
    _tile_zero(5);
    MOX_FENCE();
}

MOX_KERNEL_INLINE float *mox_amx_narrow_buffer(const mox_amx_job *j, bool even)
{
    return j->buffer + (even ? 0 : 2 * MOX_AMX_TILE_FLOATS);
}

MOX_KERNEL_INLINE void mox_amx_narrow_store(bool even, int P, float *buffer)
{
    MOX_FENCE();
    if (even) {
        MOX_TILE_STORE(0, buffer);
        if (P == 2)
            MOX_TILE_STORE(1, buffer + MOX_AMX_TILE_FLOATS);
    } else {
        MOX_TILE_STORE(2, buffer);
        if (P == 2)
            MOX_TILE_STORE(3, buffer + MOX_AMX_TILE_FLOATS);
    }
    MOX_FENCE();
}

MOX_KERNEL_INLINE void mox_amx_narrow_add_segment(bool acts, bool even, int R, int P, const mox_amx_job *j,
                                                  int64_t segment, __m512 sum[2][MOX_AMX_NARROW_ROWS])
{
    const float *buffer = mox_amx_narrow_buffer(j, even);
    for (int p = 0; p < P; p++)
        mox_amx_add_segment_rows(acts, j, buffer + p * MOX_AMX_TILE_FLOATS, mox_amx_end_of(j, &j->panel[p], segment), 0,
                                 R, sum[p]);
}

/* The segment before is added after the products of this one, so that nothing waits for its C tiles. */
MOX_KERNEL_INLINE void mox_amx_narrow_segment(mox_amx_variant v, bool acts, bool even, int R, int P,
                                              const mox_amx_job *j, int64_t segment, __m512 sum[2][MOX_AMX_NARROW_ROWS])
{
    const int64_t first = segment * j->segment_steps, last = mox_min_i64(first + j->segment_steps, j->steps);
    for (int64_t s = first; s < last; s++) {
        mox_amx_narrow_step(even, P, j->a + s * j->rows * 64, mox_amx_lines_of(j, 0, s), mox_amx_lines_of(j, 1, s));
        for (int p = 0; p < P; p++)
            mox_amx_decode_step(v, j, p, s + MOX_AMX_DECODE_LEAD);
    }
    mox_amx_narrow_store(even, P, mox_amx_narrow_buffer(j, even));
    if (segment > 0)
        mox_amx_narrow_add_segment(acts, !even, R, P, j, segment - 1, sum);
}

/* R: rows of sums in registers, a constant that is at least the number of rows. */
MOX_KERNEL_INLINE void mox_amx_narrow(mox_amx_variant v, bool acts, int R, int P, const mox_amx_job *j)
{
    __m512 sum[2][MOX_AMX_NARROW_ROWS];
    for (int p = 0; p < P; p++)
        for (int r = 0; r < R; r++)
            sum[p][r] = _mm512_setzero_ps();
    for (int64_t s = 0; s < MOX_AMX_DECODE_LEAD; s++)
        for (int p = 0; p < P; p++)
            mox_amx_decode_step(v, j, p, s);
    for (int64_t segment = 0; segment < j->segments; segment += 2) {
        mox_amx_narrow_segment(v, acts, true, R, P, j, segment, sum);
        if (segment + 1 < j->segments)
            mox_amx_narrow_segment(v, acts, false, R, P, j, segment + 1, sum);
    }
    mox_amx_narrow_add_segment(acts, j->segments % 2 == 1, R, P, j, j->segments - 1, sum);
    for (int r = 0; r < R; r++)
        for (int p = 0; p < P && r < j->rows; p++)
            _mm512_store_ps(j->c + r * 32 + p * 16, sum[p][r]);
}

/* ---- tall ---------------------------------------------------------------------------------------- */

/* Segments in a chunk. */
MOX_KERNEL_INLINE int64_t mox_amx_chunk(const mox_amx_job *j)
{
    return mox_max_i64(1, MOX_AMX_CHUNK_STEPS / j->segment_steps);
}

/* Segments take C tiles 0 to 3 in turn; tile numbers are constants in instructions. Where there are several tiles of
 * rows, all have 16: the bytes behind the last row of activations are multiplied, too (amx_square.h). */

MOX_KERNEL_INLINE void mox_amx_tall_step(int tile, const uint8_t *rows, const uint8_t *lines)
{
    MOX_FENCE();
    _tile_stream_loadd(4, rows, 64);
    _tile_loadd(5, lines, 64);
    switch (tile) {
    case 0: _tile_dpbf16ps(0, 4, 5); break;
    case 1: _tile_dpbf16ps(1, 4, 5); break;
    case 2: _tile_dpbf16ps(2, 4, 5); break;
    default: _tile_dpbf16ps(3, 4, 5); break;
    }
    _tile_zero(4);
    _tile_zero(5);
    MOX_FENCE();
}

MOX_KERNEL_INLINE void mox_amx_tall_store(int tile, float *to)
{
    MOX_FENCE();
    switch (tile) {
    case 0: MOX_TILE_STORE(0, to); break;
    case 1: MOX_TILE_STORE(1, to); break;
    case 2: MOX_TILE_STORE(2, to); break;
    default: MOX_TILE_STORE(3, to); break;
    }
    MOX_FENCE();
}

MOX_KERNEL_INLINE void mox_amx_tall_multiply(mox_amx_variant v, bool decode, int tile, const mox_amx_job *j, int p,
                                             const uint8_t *a, int64_t tile_rows, int64_t segment)
{
    const int64_t first = segment * j->segment_steps, last = mox_min_i64(first + j->segment_steps, j->steps);
    for (int64_t s = first; s < last; s++) {
        mox_amx_tall_step(tile, a + s * tile_rows * MOX_AMX_LINE_BYTES, mox_amx_lines_of(j, p, s));
        if (decode)
            mox_amx_decode_step(v, j, p, s + mox_amx_chunk(j) * j->segment_steps);
    }
}

MOX_KERNEL_INLINE float *mox_amx_tall_buffer(const mox_amx_job *j, int64_t segment)
{
    return j->buffer + (segment & 3) * MOX_AMX_TILE_FLOATS;
}

/* A segment's C tile is stored after the product of the next segment, and added one segment later. So neither the store
 * nor the load waits. */
MOX_KERNEL_INLINE void mox_amx_tall_stage(mox_amx_variant v, bool decode, int tile, const mox_amx_job *j, int p,
                                          int64_t row, int64_t tile_rows, int64_t segment, int64_t first, int64_t last,
                                          __m512 sum[16])
{
    if (segment < last)
        mox_amx_tall_multiply(v, decode, tile, j, p, j->a + row * j->steps * MOX_AMX_LINE_BYTES, tile_rows, segment);
    if (segment > first && segment <= last)
        mox_amx_tall_store((tile + 3) % 4, mox_amx_tall_buffer(j, segment - 1));
    if (segment <= first + 1)
        return;
    const float *c = mox_amx_tall_buffer(j, segment - 2);
    const mox_amx_end end = mox_amx_end_of(j, &j->panel[p], segment - 2);
    if (end.acts != NULL)
        mox_amx_add_segment_rows(true, j, c, end, row, 16, sum);
    else
        mox_amx_add_segment_rows(false, j, c, end, row, 16, sum);
}

MOX_KERNEL_INLINE void mox_amx_tall_tile(mox_amx_variant v, bool decode, bool full, const mox_amx_job *j, int p,
                                         int64_t row, int64_t tile_rows, int64_t first, int64_t last)
{
    float *c = j->c + row * 32 + p * 16;
    __m512 sum[16];
    MOX_KERNEL_UNROLL
    for (int r = 0; r < 16; r++)
        sum[r] = first > 0 && (full || r < tile_rows) ? _mm512_load_ps(c + r * 32) : _mm512_setzero_ps();
    for (int64_t segment = first; segment < last + 2; segment += 4) {
        MOX_KERNEL_UNROLL
        for (int tile = 0; tile < 4; tile++)
            if (segment + tile < last + 2)
                mox_amx_tall_stage(v, decode, tile, j, p, row, tile_rows, segment + tile, first, last, sum);
    }
    MOX_KERNEL_UNROLL
    for (int r = 0; r < 16; r++)
        if (full || r < tile_rows)
            _mm512_store_ps(c + r * 32, sum[r]);
}

/* Multiplies segments [first, last) of panel p by a tile of rows; lines are decoded, sums so far are in c. `decode`:
 * also decode the next chunk, step by step. */
MOX_KERNEL_INLINE void mox_amx_tall(mox_amx_variant v, bool decode, const mox_amx_job *j, int p, int64_t row,
                                    int64_t first, int64_t last)
{
    const int64_t rows = mox_min_i64(16, j->rows - row);
    if (rows == 16)
        mox_amx_tall_tile(v, decode, true, j, p, row, rows, first, last);
    else
        mox_amx_tall_tile(v, decode, false, j, p, row, rows, first, last);
}

/* The same for all tiles of rows from `row` on and both panels, without decoding. */
void mox_amx_tall_rest(const mox_amx_job *from, int64_t row, int64_t first, int64_t last);

#endif
