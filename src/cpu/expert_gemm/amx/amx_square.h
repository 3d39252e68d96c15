/* SPDX-License-Identifier: Apache-2.0
 *
 * amx_square.h - kernel amx_int8, and amx_bf16 where segments are long: two tiles of rows by two panels, four C
 * tiles at once.
 *
 *              B 0 (5)   B 1 (5)
 *     A 0 (4) |  C 0    |  C 1   |      (n): number of the tile register
 *     A 1 (7) |  C 2    |  C 3   |
 *
 * A pass is a pair of row tiles. A single pass goes along the whole panel. It decodes both panels DECODE_LEAD steps
 * ahead, a quarter of a step or two after each product: a tile product is one long operation, and what is between two
 * of them overlaps with it.
 *
 * Several passes multiply blocks of BLOCK_STEPS steps in turn, forth and back. So the last pass of a block is the first
 * of the next one, and keeps its C tiles. The last pass also decodes the next block, into the slots that it has just
 * used. So all lines are decoded once.
 *
 *     block      0                 1                2
 *     pass       0  1  2(decodes)  2  1  0(decodes)  0  1  2 ...     C tiles of the other passes wait in `buffer`
 *
 * The lines stay in the first-level cache: there are few slots, and activations are loaded with a hint that does not
 * displace them (31 cycles a product instead of 54, where nothing else is done). Sums of several segments lie in c.
 */
#ifndef MOX_CPU_AMX_SQUARE_H
#define MOX_CPU_AMX_SQUARE_H

#include "cpu/expert_gemm/amx/amx_segments.h"

/* Where the A and B tiles of a step lie. */
typedef struct mox_amx_tiles {
    const uint8_t *a0, *a1; /* a1 is read when there are two tiles of rows */
    const uint8_t *b[2];
    uint8_t *to[2]; /* where lines are decoded to */
} mox_amx_tiles;

/* Decodes quarter q of step s of panel p. Weights of bf16 need no decoding; they are prefetched. */
MOX_KERNEL_INLINE void mox_amx_decode_slice(mox_amx_variant v, const mox_amx_job *j, int p, int q, int64_t s,
                                            uint8_t *to, mox_amx_decode_state *state)
{
    if (q == 0)
        mox_amx_prefetch(v, j, p, s);
    if (mox_amx_is_direct(v))
        return;
    if (q == 0) {
        *state = mox_amx_decode_state_of(v, j, &j->panel[p], s);
        state->to = to;
    } else if (v.scaling == MOX_AMX_E4M3_IN_WEIGHT && q == 2)
        state->scale = mox_amx_scale_for_quarter(v, j, &j->panel[p], s, q);
    mox_amx_decode_quarter(v, j, state, q);
}

/* Multiplies one step: R tiles of rows by two panels. Panel 1 is used for both tiles of rows at once, panel 0 is loaded
 * again; tiles are zeroed after their last use (amx_tiles.h). `decode`: also decode step `ahead` of both panels, some
 * of its eight quarters after each of the 2 R products. */
MOX_KERNEL_INLINE void mox_amx_square_step(mox_amx_variant v, int R, bool decode, const mox_amx_job *j, mox_amx_tiles t,
                                           int64_t ahead)
{
    const int each = decode ? 4 / R : 0;
    mox_amx_decode_state state;
    MOX_KERNEL_UNROLL
    for (int product = 0; product < 2 * R; product++) {
        MOX_FENCE();
        switch (product) {
        case 0:
            _tile_stream_loadd(4, t.a0, 64);
            _tile_loadd(5, t.b[0], 64);
            MOX_TILE_MULTIPLY(v.ints, 0, 4, 5);
            break;
        case 1:
            _tile_loadd(5, t.b[1], 64);
            MOX_TILE_MULTIPLY(v.ints, 1, 4, 5);
            _tile_zero(4);
            break;
        case 2:
            _tile_stream_loadd(7, t.a1, 64);
            MOX_TILE_MULTIPLY(v.ints, 3, 7, 5);
            break;
        default:
            _tile_loadd(5, t.b[0], 64);
            MOX_TILE_MULTIPLY(v.ints, 2, 7, 5);
            _tile_zero(7);
        }
        if (product != 1 || R == 1)
            _tile_zero(5);
        MOX_FENCE();
        MOX_KERNEL_UNROLL
        for (int at = product * each; at < (product + 1) * each; at++)
            mox_amx_decode_slice(v, j, at / 4, at % 4, ahead, t.to[at / 4], &state);
    }
    MOX_FENCE();
}

/* Copies the fields of a job that decoding reads: the compiler can then keep them in registers across fences. Every
 * operation between two products counts. */
MOX_KERNEL_INLINE mox_amx_stream mox_amx_stream_of(const mox_amx_stream *from)
{
    return (mox_amx_stream) { .codes = from->codes,
                              .next = from->next,
                              .next_scales = from->next_scales,
                              .zero = from->zero,
                              .scale_codes = from->scale_codes,
                              .scale = from->scale,
                              .lines = from->lines };
}

MOX_KERNEL_INLINE mox_amx_job mox_amx_decode_fields(const mox_amx_job *from)
{
    return (mox_amx_job) { .panel = { mox_amx_stream_of(&from->panel[0]), mox_amx_stream_of(&from->panel[1]) },
                           .tables = from->tables,
                           .f16_codes = from->f16_codes,
                           .steps = from->steps,
                           .step_bytes = from->step_bytes,
                           .scale_lines = from->scale_lines,
                           .slots = from->slots,
                           .group_inverse = from->group_inverse };
}

/* A pair of row tiles: `high` rows in the first, `low` in the second, 0 for none. Where there are several passes, the
 * tiles themselves all have 16 rows, because a new configuration takes as long as eight products. The rows behind the
 * last one hold arbitrary memory; their sums are not read. */
typedef struct mox_amx_pass {
    int64_t row, high, low;
    float *buffer; /* [4][16][16] its C tiles, while another pass is in the tile unit */
} mox_amx_pass;

/* One turn of the loop over blocks and passes. It multiplies steps [first, last), and after step s decodes step
 * s + lead, if that is before `until`. The lines of step `first` are in slot `slot`; it is in segment `segment`. */
typedef struct mox_amx_turn {
    int64_t first, last, slot, segment, lead, until;
} mox_amx_turn;

/* Adds the rows of a C tile of panel p to the sums in c. `first`: c holds no sums yet. */
MOX_KERNEL_INLINE void mox_amx_square_add(mox_amx_variant v, bool acts, bool first, const mox_amx_job *j, int p,
                                          int64_t row, int64_t rows, const float *tile, mox_amx_end end)
{
    float *c = j->c + row * 32 + p * 16;
    const float *act = acts ? end.acts + row * j->a_scale_stride : NULL;
    const __m512 nothing = mox_amx_initial_sum(j);
    for (int64_t r = 0; r < rows; r++, c += 32, tile += 16) {
        _mm512_store_ps(c,
                        mox_amx_add_segment(acts, v.ints, tile, act, end.scale, first ? nothing : _mm512_load_ps(c)));
        act = acts ? act + j->a_scale_stride : NULL;
    }
}

/* The same for one segment, its scales looked up. */
MOX_KERNEL_INLINE void mox_amx_square_end(mox_amx_variant v, const mox_amx_job *j, int p, int64_t row, int64_t rows,
                                          const float *tile, int64_t segment)
{
    const mox_amx_end end = mox_amx_end_of(j, &j->panel[p], segment);
    if (end.acts != NULL)
        mox_amx_square_add(v, true, segment == 0, j, p, row, rows, tile, end);
    else
        mox_amx_square_add(v, false, segment == 0, j, p, row, rows, tile, end);
}

/* The stored C tiles of a segment that are still to be added to c. One is added after each step of the following
 * products, so that these do not wait. */
typedef struct mox_amx_pending {
    int64_t row, high, low, segment;
    int tile; /* the next one to add; 4: none is left */
} mox_amx_pending;

MOX_KERNEL_INLINE void mox_amx_square_flush(mox_amx_variant v, const mox_amx_job *j, mox_amx_pending *pending)
{
    const int tile = pending->tile++, p = tile % 2;
    const bool second = tile >= 2;
    if (p < j->panels)
        mox_amx_square_end(v, j, p, second ? pending->row + pending->high : pending->row,
                           second ? pending->low : pending->high, j->pending + tile * MOX_AMX_TILE_FLOATS,
                           pending->segment);
}

MOX_KERNEL_INLINE void mox_amx_square_flush_all(mox_amx_variant v, const mox_amx_job *j, mox_amx_pending *pending)
{
    while (pending->tile < 4)
        mox_amx_square_flush(v, j, pending);
}

/* Slots are used in turn. */
MOX_KERNEL_INLINE int64_t mox_amx_slot(const mox_amx_job *part, int64_t slot)
{
    return slot >= part->slots ? slot - part->slots : slot;
}

/* Multiplies steps [s, last) of a turn into C; `slot` is that of step s. Returns the slot of step `last`. */
MOX_KERNEL_INLINE int64_t mox_amx_square_steps(mox_amx_variant v, int R, bool decode, const mox_amx_job *j,
                                               const mox_amx_job *part, const mox_amx_pass *pass,
                                               const mox_amx_turn *turn, mox_amx_pending *pending, int64_t slot,
                                               int64_t s, int64_t last)
{
    const uint8_t *a = j->a;
    mox_amx_tiles t = { .a0 = a + (pass->row * part->steps + s * pass->high) * 64 };
    t.a1 = a + ((pass->row + pass->high) * part->steps + s * pass->low) * 64;
    const int64_t lead = turn->lead, decoding = decode ? mox_min_i64(last, turn->until - lead) : s;
    int64_t ahead = mox_amx_slot(part, slot + lead);
    for (; s < last; s++, t.a0 += pass->high * 64, t.a1 += pass->low * 64) {
        for (int p = 0; p < 2; p++) {
            t.b[p] = v.ints && s + 1 == j->steps && j->panel[p].last != NULL
                         ? j->panel[p].last
                         : part->panel[p].lines + slot * MOX_AMX_STEP_LINES_BYTES;
            t.to[p] = part->panel[p].lines + ahead * MOX_AMX_STEP_LINES_BYTES;
        }
        if (s < decoding)
            mox_amx_square_step(v, R, decode, part, t, s + lead);
        else
            mox_amx_square_step(v, R, false, part, t, 0);
        if (pending->tile < 4)
            mox_amx_square_flush(v, j, pending);
        slot = mox_amx_slot(part, slot + 1);
        ahead = mox_amx_slot(part, ahead + 1);
    }
    return slot;
}

MOX_KERNEL_INLINE void mox_amx_square_store(const mox_amx_pass *pass, float *to)
{
    MOX_FENCE();
    MOX_TILE_STORE(0, to);
    MOX_TILE_STORE(1, to + MOX_AMX_TILE_FLOATS);
    if (pass->low > 0) {
        MOX_TILE_STORE(2, to + 2 * MOX_AMX_TILE_FLOATS);
        MOX_TILE_STORE(3, to + 3 * MOX_AMX_TILE_FLOATS);
    }
    MOX_FENCE();
}

MOX_KERNEL_INLINE void mox_amx_square_load(const mox_amx_pass *pass)
{
    MOX_FENCE();
    _tile_loadd(0, pass->buffer, 64);
    _tile_loadd(1, pass->buffer + MOX_AMX_TILE_FLOATS, 64);
    if (pass->low > 0) {
        _tile_loadd(2, pass->buffer + 2 * MOX_AMX_TILE_FLOATS, 64);
        _tile_loadd(3, pass->buffer + 3 * MOX_AMX_TILE_FLOATS, 64);
    }
    MOX_FENCE();
}

MOX_KERNEL_INLINE void mox_amx_square_store_segment(mox_amx_variant v, const mox_amx_job *j, const mox_amx_pass *pass,
                                                    int64_t segment, mox_amx_pending *pending)
{
    mox_amx_square_flush_all(v, j, pending);
    mox_amx_square_store(pass, j->pending);
    *pending = (mox_amx_pending) { pass->row, pass->high, pass->low, segment, 0 };
}

/* Runs one turn. False when it ends inside a segment, whose sums are still in C. */
MOX_KERNEL_INLINE bool mox_amx_square_turn(mox_amx_variant v, bool decode, const mox_amx_job *j,
                                           const mox_amx_job *part, const mox_amx_pass *pass, const mox_amx_turn *turn,
                                           mox_amx_pending *pending)
{
    int64_t s = turn->first, slot = turn->slot;
    for (int64_t segment = turn->segment; s < turn->last; segment++) {
        const int64_t end = mox_min_i64((segment + 1) * j->segment_steps, j->steps), to = mox_min_i64(end, turn->last);
        if (pass->low > 0)
            slot = mox_amx_square_steps(v, 2, decode, j, part, pass, turn, pending, slot, s, to);
        else
            slot = mox_amx_square_steps(v, 1, decode, j, part, pass, turn, pending, slot, s, to);
        if (to < end)
            return false;
        mox_amx_square_store_segment(v, j, pass, segment, pending);
        s = to;
    }
    return true;
}

/* The i-th pass of a block. The first and the last pass decode, so they are full ones: of more than two passes, the one
 * with fewer rows is between them. */
MOX_KERNEL_INLINE mox_amx_pass mox_amx_pass_of(const mox_amx_job *j, int64_t passes, int64_t i)
{
    const int64_t at = passes > 2 && i >= passes - 2 ? 2 * passes - 3 - i : i, left = j->rows - 32 * at;
    const int64_t high = mox_min_i64(16, left);
    return (mox_amx_pass) { 32 * at, high, mox_min_i64(16, left - high), j->buffer + 4 * MOX_AMX_TILE_FLOATS * at };
}

/* Changes the tile unit from pass `before` to `pass`. `was_open`, `open`: the pass has an unfinished segment. */
MOX_KERNEL_INLINE void mox_amx_square_switch(const mox_amx_pass *before, bool was_open, const mox_amx_pass *pass,
                                             bool open)
{
    if (pass->row == before->row)
        return;
    if (was_open)
        mox_amx_square_store(before, before->buffer);
    if (open)
        mox_amx_square_load(pass);
}

/* The first block is decoded as it is multiplied; the others by the last pass of the block before. */
MOX_KERNEL_INLINE void mox_amx_square_blocks(mox_amx_variant v, bool decode, const mox_amx_job *j, int64_t passes)
{
    const mox_amx_job part = mox_amx_decode_fields(j);
    mox_amx_turn turn = { .first = 0 };
    mox_amx_pass pass = { .row = -1 };
    mox_amx_pending pending = { .tile = 4 };
    for (bool there = true, open = false; turn.first < j->steps; turn.first = turn.last, there = !there) {
        turn.last = mox_min_i64(turn.first + j->block, j->steps);
        while ((turn.segment + 1) * j->segment_steps <= turn.first)
            turn.segment++;
        const bool amid = turn.first > turn.segment * j->segment_steps;
        for (int64_t i = 0; i < passes; i++) {
            const mox_amx_pass before = pass;
            pass = mox_amx_pass_of(j, passes, there ? i : passes - 1 - i);
            mox_amx_square_switch(&before, open, &pass, amid);
            const bool starts = turn.first == 0 && i == 0;
            turn.lead = starts ? MOX_AMX_DECODE_LEAD : j->block;
            turn.until = starts ? turn.last : j->steps;
            if (decode && (starts || i == passes - 1))
                open = !mox_amx_square_turn(v, true, j, &part, &pass, &turn, &pending);
            else
                open = !mox_amx_square_turn(v, false, j, &part, &pass, &turn, &pending);
        }
        turn.slot = mox_amx_slot(&part, turn.slot + j->block);
    }
    mox_amx_square_flush_all(v, j, &pending);
}

/* `decode`: lines are decoded, or prefetched, between the products. The last of an odd number of panels is multiplied
 * twice, as both panels of its pair. */
MOX_KERNEL_INLINE void mox_amx_all_square(mox_amx_variant v, bool decode, const mox_amx_job *j)
{
    const int64_t low = j->rows - 16;
    mox_amx_configure(j->rows < 16 ? (int)j->rows : 16, low > 16 ? 16 : low > 0 ? (int)low : 1);
    for (int64_t s = 0; decode && s < MOX_AMX_DECODE_LEAD; s++)
        for (int p = 0; p < 2; p++)
            mox_amx_decode_step(v, j, p, s);
    mox_amx_square_blocks(v, decode, j, mox_ceil_div(j->rows, 32));
}

/* All rows, from lines that are already decoded, of any format. */
void mox_amx_square_predecoded(const mox_amx_job *j);

#endif
