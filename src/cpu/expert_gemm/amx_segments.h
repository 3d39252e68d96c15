/* SPDX-License-Identifier: Apache-2.0
 *
 * amx_segments.h - row amx_bf16 where segments are short: sums stay in vector registers, and every segment stores its C
 * tiles.
 *
 *     narrow    up to 8 rows: both panels at once, 2 x rows sums
 *     tall      tiles of up to 16 rows, a panel at a time, 16 sums
 *
 * C tiles alternate between two pairs, because a tile that is being stored holds up the next that is zeroed.
 */
#ifndef MOX_CPU_AMX_SEGMENTS_H
#define MOX_CPU_AMX_SEGMENTS_H

#include "base/sizes.h"
#include "cpu/expert_gemm/amx_lines.h"
#include "cpu/expert_gemm/amx_tiles.h"

/* ---- the ends of segments ------------------------------------------------------------------------ */

/* sum = fma(C * sa, sw, sum) */
MOX_KERNEL_INLINE __m512 mox_amx_drained(bool acts, const mox_amx_job *j, const float *c, __m512 scale, int64_t row,
                                         int64_t segment, __m512 sum)
{
    __m512 part = _mm512_load_ps(c);
    if (acts)
        part = _mm512_mul_ps(
            part, _mm512_set1_ps(j->a_scales[row * j->a_scale_stride + segment * j->segment_steps / j->act_steps]));
    return _mm512_fmadd_ps(part, scale, sum);
}

/* Without scales of activations a segment is a group of weights. */
MOX_KERNEL_INLINE __m512 mox_amx_scale_of(bool acts, const mox_amx_job *j, const mox_amx_stream *from, int64_t segment)
{
    if (!j->scaled)
        return _mm512_loadu_ps(from->end);
    const int64_t group = acts ? segment * j->segment_steps / j->group_steps : segment;
    return _mm512_load_ps(from->scale + group * MOX_PANEL_ROWS);
}

/* What the first segment is added to. A row of weights without scales, or with folded ones, ends as C itself: adding it
 * to -0 leaves its sign when it is zero. */
MOX_KERNEL_INLINE __m512 mox_amx_nothing(bool acts, const mox_amx_job *j)
{
    return _mm512_set1_ps(acts || j->scaled ? 0.0f : -0.0f);
}

/* ---- narrow -------------------------------------------------------------------------------------- */

/* One step of `P` panels into C tiles 0, 1 (even) or 2, 3. */
MOX_KERNEL_INLINE void mox_amx_narrow_step(bool even, int P, const uint8_t *a, const uint8_t *b0, const uint8_t *b1)
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

MOX_KERNEL_INLINE void mox_amx_narrow_zero(bool even, int P)
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

MOX_KERNEL_INLINE void mox_amx_narrow_drain(bool even, int R, int P, const mox_amx_job *j, int64_t segment,
                                            __m512 sum[2][MOX_AMX_NARROW])
{
    float *buffer = j->buffer + (even ? 0 : 2 * MOX_AMX_TILE);
    MOX_FENCE();
    if (even) {
        _tile_stored(0, buffer, 64);
        if (P == 2)
            _tile_stored(1, buffer + MOX_AMX_TILE, 64);
    } else {
        _tile_stored(2, buffer, 64);
        if (P == 2)
            _tile_stored(3, buffer + MOX_AMX_TILE, 64);
    }
    MOX_FENCE();
    for (int p = 0; p < P; p++) {
        const __m512 scale = mox_amx_scale_of(false, j, &j->panel[p], segment);
        for (int r = 0; r < R; r++)
            sum[p][r] = mox_amx_drained(false, j, buffer + p * MOX_AMX_TILE + r * 16, scale, r, segment, sum[p][r]);
    }
}

MOX_KERNEL_INLINE void mox_amx_narrow_segment(mox_amx_form f, bool even, int R, int P, const mox_amx_job *j,
                                              int64_t segment, __m512 sum[2][MOX_AMX_NARROW])
{
    const int64_t first = segment * j->segment_steps, last = mox_min_i64(first + j->segment_steps, j->steps);
    mox_amx_narrow_zero(even, P);
    for (int64_t s = first; s < last; s++) {
        mox_amx_narrow_step(even, P, j->a + s * j->rows * 64, mox_amx_lines_of(j, 0, s), mox_amx_lines_of(j, 1, s));
        for (int p = 0; p < P; p++)
            mox_amx_decode_step(f, j, p, s + 1);
    }
    mox_amx_narrow_drain(even, R, P, j, segment, sum);
}

/* R: rows of the sums kept, at least the rows there are. */
MOX_KERNEL_INLINE void mox_amx_narrow(mox_amx_form f, int R, int P, const mox_amx_job *j)
{
    __m512 sum[2][MOX_AMX_NARROW];
    for (int p = 0; p < P; p++)
        for (int r = 0; r < R; r++)
            sum[p][r] = _mm512_setzero_ps();
    for (int p = 0; p < P; p++)
        mox_amx_decode_step(f, j, p, 0);
    for (int64_t segment = 0; segment < j->segments; segment += 2) {
        mox_amx_narrow_segment(f, true, R, P, j, segment, sum);
        if (segment + 1 < j->segments)
            mox_amx_narrow_segment(f, false, R, P, j, segment + 1, sum);
    }
    for (int r = 0; r < R; r++)
        for (int p = 0; p < P && r < j->rows; p++)
            _mm512_store_ps(j->c + r * 32 + p * 16, sum[p][r]);
}

/* ---- tall ---------------------------------------------------------------------------------------- */

MOX_KERNEL_INLINE void mox_amx_tall_step(bool even, const uint8_t *a, const uint8_t *b)
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

MOX_KERNEL_INLINE void mox_amx_tall_drain(bool even, bool acts, const mox_amx_job *j, int p, int64_t row,
                                          int64_t segment, __m512 sum[16])
{
    float *buffer = j->buffer + (even ? 0 : 2 * MOX_AMX_TILE);
    MOX_FENCE();
    if (even)
        _tile_stored(0, buffer, 64);
    else
        _tile_stored(2, buffer, 64);
    MOX_FENCE();
    const __m512 scale = mox_amx_scale_of(acts, j, &j->panel[p], segment);
    for (int r = 0; r < 16; r++)
        sum[r] = mox_amx_drained(acts, j, buffer + r * 16, scale, mox_min_i64(row + r, j->rows - 1), segment, sum[r]);
}

MOX_KERNEL_INLINE void mox_amx_tall_segment(mox_amx_form f, bool even, bool first, bool acts, const mox_amx_job *j,
                                            int p, int64_t row, int64_t tile_rows, int64_t segment, const uint8_t *a,
                                            __m512 sum[16])
{
    const int64_t s0 = segment * j->segment_steps, s1 = mox_min_i64(s0 + j->segment_steps, j->steps);
    if (even)
        _tile_zero(0);
    else
        _tile_zero(2);
    for (int64_t s = s0; s < s1; s++) {
        mox_amx_tall_step(even, a + s * tile_rows * 64, mox_amx_lines_of(j, p, s));
        if (first)
            mox_amx_decode_step(f, j, p, s + 1);
    }
    mox_amx_tall_drain(even, acts, j, p, row, segment, sum);
}

/* Rows [row, row + tile_rows) of panel p. The first tile of rows decodes. */
MOX_KERNEL_INLINE void mox_amx_tall(mox_amx_form f, bool first, bool acts, const mox_amx_job *j, int p, int64_t row,
                                    int64_t tile_rows)
{
    const uint8_t *a = j->a + row * j->steps * 64;
    __m512 sum[16];
    for (int r = 0; r < 16; r++)
        sum[r] = _mm512_setzero_ps();
    if (first)
        mox_amx_decode_step(f, j, p, 0);
    for (int64_t segment = 0; segment < j->segments; segment += 2) {
        mox_amx_tall_segment(f, true, first, acts, j, p, row, tile_rows, segment, a, sum);
        if (segment + 1 < j->segments)
            mox_amx_tall_segment(f, false, first, acts, j, p, row, tile_rows, segment + 1, a, sum);
    }
    for (int r = 0; r < 16 && r < tile_rows; r++)
        _mm512_store_ps(j->c + (row + r) * 32 + p * 16, sum[r]);
}

#endif
