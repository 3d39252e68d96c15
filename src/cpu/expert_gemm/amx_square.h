/* SPDX-License-Identifier: Apache-2.0
 *
 * amx_square.h - row amx_bf16 where segments are long: two tiles of rows by two panels, four C tiles at once.
 *
 *               B 0 (5)   B 1 (6)
 *     A 0 (4) |  C 0    |  C 1   |
 *     A 1 (7) |  C 2    |  C 3   |
 *
 * Sums of several segments lie in c.
 */
#ifndef MOX_CPU_AMX_SQUARE_H
#define MOX_CPU_AMX_SQUARE_H

#include "cpu/expert_gemm/amx_segments.h"

/* Where one step's operands lie. */
typedef struct mox_amx_square_tiles {
    const uint8_t *a0, *a1; /* a1 NULL: one tile of rows */
    const uint8_t *b0, *b1; /* b1 NULL: one panel */
} mox_amx_square_tiles;

/* One step, and between its tile operations the lines of the step after it. */
MOX_KERNEL_INLINE void mox_amx_square_step(mox_amx_form f, bool first, const mox_amx_job *j, mox_amx_square_tiles t,
                                           int64_t s)
{
    MOX_FENCE();
    _tile_loadd(4, t.a0, 64);
    _tile_loadd(5, t.b0, 64);
    _tile_dpbf16ps(0, 4, 5);
    MOX_FENCE();
    if (first) {
        mox_amx_decode_step(f, j, 0, s + 1);
    }
    MOX_FENCE();
    if (t.b1 != NULL) {
        _tile_loadd(6, t.b1, 64);
        _tile_dpbf16ps(1, 4, 6);
    }
    MOX_FENCE();
    if (first && t.b1 != NULL)
        mox_amx_decode_step(f, j, 1, s + 1);
    MOX_FENCE();
    if (t.a1 != NULL) {
        _tile_loadd(7, t.a1, 64);
        _tile_dpbf16ps(2, 7, 5);
        if (t.b1 != NULL)
            _tile_dpbf16ps(3, 7, 6);
    }
    MOX_FENCE();
}

MOX_KERNEL_INLINE void mox_amx_square_add(bool acts, const mox_amx_job *j, int p, int64_t row, int64_t rows,
                                          const float *tile, int64_t segment)
{
    const __m512 scale = mox_amx_scale_of(acts, j, &j->panel[p], segment);
    for (int64_t r = 0; r < rows; r++) {
        float *c = j->c + (row + r) * 32 + p * 16;
        const __m512 before = segment == 0 ? mox_amx_nothing(acts, j) : _mm512_load_ps(c);
        _mm512_store_ps(c, mox_amx_drained(acts, j, tile + r * 16, scale, row + r, segment, before));
    }
}

MOX_KERNEL_INLINE void mox_amx_square_drain(bool acts, const mox_amx_job *j, int64_t row, int64_t high, int64_t low,
                                            int64_t segment)
{
    float *buffer = j->buffer;
    MOX_FENCE();
    _tile_stored(0, buffer, 64);
    if (j->panels == 2)
        _tile_stored(1, buffer + MOX_AMX_TILE, 64);
    if (low > 0) {
        _tile_stored(2, buffer + 2 * MOX_AMX_TILE, 64);
        if (j->panels == 2)
            _tile_stored(3, buffer + 3 * MOX_AMX_TILE, 64);
    }
    MOX_FENCE();
    for (int p = 0; p < j->panels; p++) {
        mox_amx_square_add(acts, j, p, row, high, buffer + p * MOX_AMX_TILE, segment);
        mox_amx_square_add(acts, j, p, row + high, low, buffer + (2 + p) * MOX_AMX_TILE, segment);
    }
}

/* Rows [row, row + high + low): `high` in the first tile, `low` in the second. */
MOX_KERNEL_INLINE void mox_amx_square(mox_amx_form f, bool first, bool acts, const mox_amx_job *j, int64_t row,
                                      int64_t high, int64_t low)
{
    const uint8_t *above = j->a + row * j->steps * 64, *below = above + high * j->steps * 64;
    for (int p = 0; first && p < j->panels; p++)
        mox_amx_decode_step(f, j, p, 0);
    for (int64_t segment = 0; segment < j->segments; segment++) {
        const int64_t s0 = segment * j->segment_steps, s1 = mox_min_i64(s0 + j->segment_steps, j->steps);
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        for (int64_t s = s0; s < s1; s++) {
            const mox_amx_square_tiles t = { .a0 = above + s * high * 64,
                                             .a1 = low > 0 ? below + s * low * 64 : NULL,
                                             .b0 = mox_amx_lines_of(j, 0, s),
                                             .b1 = j->panels == 2 ? mox_amx_lines_of(j, 1, s) : NULL };
            mox_amx_square_step(f, first, j, t, s);
        }
        mox_amx_square_drain(acts, j, row, high, low, segment);
    }
}

#endif
