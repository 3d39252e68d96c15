/* SPDX-License-Identifier: Apache-2.0
 *
 * amx_square.h - row amx_bf16 where segments are long: two tiles of rows by two panels, four C tiles at once.
 *
 *              B 0 (5)   B 1 (5)
 *     A 0 (4) |  C 0    |  C 1   |
 *     A 1 (7) |  C 2    |  C 3   |
 *
 * Both panels are decoded LEAD steps ahead, a part of a step after each product: a tile product is one long operation,
 * and what fits between two of them overlaps with it. Every pair of row tiles decodes anew where codes have 4 bits, or
 * segments end often: lines kept for the next pair go through the second-level cache, which brings the activations
 * already, and that takes longer than decoding. For the same reason the ring of lines is as short as it can be.
 *
 * Sums of several segments lie in c.
 */
#ifndef MOX_CPU_AMX_SQUARE_H
#define MOX_CPU_AMX_SQUARE_H

#include "cpu/expert_gemm/amx_segments.h"

/* Where a step's operands lie. */
typedef struct mox_amx_tiles {
    const uint8_t *a0, *a1; /* a1 is for two tiles of rows */
    const uint8_t *b0, *b1;
} mox_amx_tiles;

/* Quarter q of step s of panel p; of bf16, which needs no decoding, what is to come is fetched. */
MOX_KERNEL_INLINE void mox_amx_share(mox_amx_form f, const mox_amx_job *j, int p, int q, int64_t s, mox_amx_feed *feed)
{
    if (q == 0)
        mox_amx_prefetch(f, j, p, s);
    if (mox_amx_is_direct(f))
        return;
    if (q == 0)
        *feed = mox_amx_feed_of(f, j, &j->panel[p], s);
    else if (f.fold == MOX_AMX_FOLD_E4M3 && q == 2)
        feed->scale = mox_amx_folded_scale(f, j, &j->panel[p], s, q);
    mox_amx_decode_quarter(f, j, feed, q);
}

/* Panel 1 serves both tiles of rows in turn, panel 0 is loaded again; what has served is zeroed (amx_tiles.h). A step,
 * and when `decode` step `ahead` of both panels: a part of their quarters after each of the 2 R products. */
MOX_KERNEL_INLINE void mox_amx_square_step(mox_amx_form f, int R, bool decode, const mox_amx_job *j, mox_amx_tiles t,
                                           int64_t ahead)
{
    const int each = decode ? 4 / R : 0;
    mox_amx_feed feed;
    MOX_KERNEL_UNROLL
    for (int product = 0; product < 2 * R; product++) {
        MOX_FENCE();
        switch (product) {
        case 0:
            _tile_loadd(4, t.a0, 64);
            _tile_loadd(5, t.b0, 64);
            _tile_dpbf16ps(0, 4, 5);
            break;
        case 1:
            _tile_loadd(5, t.b1, 64);
            _tile_dpbf16ps(1, 4, 5);
            _tile_zero(4);
            break;
        case 2:
            _tile_loadd(7, t.a1, 64);
            _tile_dpbf16ps(3, 7, 5);
            break;
        default:
            _tile_loadd(5, t.b0, 64);
            _tile_dpbf16ps(2, 7, 5);
            _tile_zero(7);
        }
        if (product != 1 || R == 1)
            _tile_zero(5);
        MOX_FENCE();
        MOX_KERNEL_UNROLL
        for (int at = product * each; at < (product + 1) * each; at++)
            mox_amx_share(f, j, at / 4, at % 4, ahead, &feed);
    }
    MOX_FENCE();
}

/* What decoding needs of a job, field by field: so the compiler keeps them in registers across fences, and every
 * operation between two products counts. */
MOX_KERNEL_INLINE mox_amx_stream mox_amx_stream_of(const mox_amx_stream *from)
{
    return (mox_amx_stream) { .codes = from->codes,
                              .next = from->next,
                              .next_scales = from->next_scales,
                              .zero = from->zero,
                              .folded = from->folded,
                              .scale = from->scale,
                              .lines = from->lines };
}

MOX_KERNEL_INLINE mox_amx_job mox_amx_part_of(const mox_amx_job *from)
{
    return (mox_amx_job) { .panel = { mox_amx_stream_of(&from->panel[0]), mox_amx_stream_of(&from->panel[1]) },
                           .tables = from->tables,
                           .halves = from->halves,
                           .steps = from->steps,
                           .step_bytes = from->step_bytes,
                           .scale_lines = from->scale_lines,
                           .lines_mask = from->lines_mask,
                           .group_inverse = from->group_inverse };
}

/* Steps [s, last), from row `row` on: `high` rows in the first tile, `low` in the second. */
MOX_KERNEL_INLINE void mox_amx_square_steps(mox_amx_form f, int R, bool decode, const mox_amx_job *part,
                                            const uint8_t *a, int64_t row, int64_t high, int64_t low, int64_t s,
                                            int64_t last)
{
    mox_amx_tiles t = { .a0 = a + (row * part->steps + s * high) * 64 };
    t.a1 = a + ((row + high) * part->steps + s * low) * 64;
    const int64_t decoding = decode ? mox_min_i64(last, part->steps - MOX_AMX_LEAD) : s;
    for (; s < last; s++, t.a0 += high * 64, t.a1 += low * 64) {
        t.b0 = mox_amx_lines_of(part, 0, s);
        t.b1 = mox_amx_lines_of(part, 1, s);
        if (s < decoding)
            mox_amx_square_step(f, R, decode, part, t, s + MOX_AMX_LEAD);
        else
            mox_amx_square_step(f, R, false, part, t, 0);
    }
}

MOX_KERNEL_INLINE void mox_amx_square_add(bool acts, const mox_amx_job *j, int p, int64_t row, int64_t rows,
                                          const float *tile, int64_t segment, mox_amx_end end)
{
    for (int64_t r = 0; r < rows; r++) {
        float *c = j->c + (row + r) * 32 + p * 16;
        const __m512 before = segment == 0 ? mox_amx_nothing(j) : _mm512_load_ps(c);
        _mm512_store_ps(c, mox_amx_drained(acts, j, tile + r * 16, end, row + r, before));
    }
}

/* One C tile of panel p. */
MOX_KERNEL_INLINE void mox_amx_square_end(const mox_amx_job *j, int p, int64_t row, int64_t rows, const float *tile,
                                          int64_t segment)
{
    const mox_amx_end end = mox_amx_end_of(j, &j->panel[p], segment);
    if (end.acts != NULL)
        mox_amx_square_add(true, j, p, row, rows, tile, segment, end);
    else
        mox_amx_square_add(false, j, p, row, rows, tile, segment, end);
}

MOX_KERNEL_INLINE void mox_amx_square_drain(const mox_amx_job *j, int64_t row, int64_t high, int64_t low,
                                            int64_t segment)
{
    float *buffer = j->buffer;
    MOX_FENCE();
    MOX_TILE_STORE(0, buffer);
    MOX_TILE_STORE(1, buffer + MOX_AMX_TILE);
    if (low > 0) {
        MOX_TILE_STORE(2, buffer + 2 * MOX_AMX_TILE);
        MOX_TILE_STORE(3, buffer + 3 * MOX_AMX_TILE);
    }
    MOX_FENCE();
    for (int p = 0; p < j->panels; p++) {
        mox_amx_square_end(j, p, row, high, buffer + p * MOX_AMX_TILE, segment);
        mox_amx_square_end(j, p, row + high, low, buffer + (2 + p) * MOX_AMX_TILE, segment);
    }
}

/* One pair of row tiles along all segments. The last panel of an odd number is multiplied twice. */
MOX_KERNEL_INLINE void mox_amx_square(mox_amx_form f, bool decode, const mox_amx_job *j, const mox_amx_job *part,
                                      int64_t row, int64_t high, int64_t low)
{
    for (int64_t s = 0; decode && s < MOX_AMX_LEAD; s++)
        for (int p = 0; p < 2; p++)
            mox_amx_decode_step(f, j, p, s);
    for (int64_t segment = 0; segment < j->segments; segment++) {
        const int64_t s = segment * j->segment_steps, last = mox_min_i64(s + j->segment_steps, j->steps);
        if (low > 0)
            mox_amx_square_steps(f, 2, decode, part, j->a, row, high, low, s, last);
        else
            mox_amx_square_steps(f, 1, decode, part, j->a, row, high, low, s, last);
        mox_amx_square_drain(j, row, high, low, segment);
    }
}

/* `decode`: lines are made as the product goes, or fetched; once where all of them stay. */
MOX_KERNEL_INLINE void mox_amx_all_square(mox_amx_form f, bool decode, const mox_amx_job *j)
{
    const mox_amx_job part = mox_amx_part_of(j);
    for (int64_t row = 0; row < j->rows; row += 32) {
        const int64_t high = mox_min_i64(16, j->rows - row), low = mox_min_i64(16, j->rows - row - high);
        mox_amx_configure((int)high, low > 0 ? (int)low : 1);
        if (j->lines_mask < 0 && row > 0)
            mox_amx_square(f, false, j, &part, row, high, low);
        else
            mox_amx_square(f, decode, j, &part, row, high, low);
    }
}

/* All rows, from lines that are decoded, of any format. */
void mox_amx_square_kept(const mox_amx_job *j);

#endif
