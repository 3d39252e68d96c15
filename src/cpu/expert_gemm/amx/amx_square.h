/* SPDX-License-Identifier: Apache-2.0
 *
 * amx_square.h - row amx_bf16 where segments are long: two tiles of rows by two panels, four C tiles at once.
 *
 *              B 0 (5)   B 1 (5)
 *     A 0 (4) |  C 0    |  C 1   |
 *     A 1 (7) |  C 2    |  C 3   |
 *
 * A pass is a pair of row tiles. A single one goes along the panel, and both panels are decoded LEAD steps ahead, a
 * part of a step after each product: a tile product is one long operation, and what fits between two of them overlaps
 * with it. Several passes take blocks of SPAN steps in turn, there and back, so that a block's last pass is the next
 * one's first and keeps C. That last pass decodes the block that follows, into the slots it has just done with, and all
 * lines are made once.
 *
 *     block      0                 1                2
 *     pass       0  1  2(decodes)  2  1  0(decodes)  0  1  2 ...     C of the others waits in `buffer`
 *
 * Slots stay in the first-level cache because there are few, and because activations are loaded with a hint that does
 * not displace them (31 cycles a product instead of 54 where nothing else is done).
 *
 * Sums of several segments lie in c.
 */
#ifndef MOX_CPU_AMX_SQUARE_H
#define MOX_CPU_AMX_SQUARE_H

#include "cpu/expert_gemm/amx/amx_segments.h"

/* Where a step's operands lie. */
typedef struct mox_amx_tiles {
    const uint8_t *a0, *a1; /* a1 is for two tiles of rows */
    const uint8_t *b[2];
    uint8_t *to[2]; /* where the lines go that are decoded */
} mox_amx_tiles;

/* Quarter q of step s of panel p; of bf16, which needs no decoding, what is to come is fetched. */
MOX_KERNEL_INLINE void mox_amx_share(mox_amx_form f, const mox_amx_job *j, int p, int q, int64_t s, uint8_t *to,
                                     mox_amx_feed *feed)
{
    if (q == 0)
        mox_amx_prefetch(f, j, p, s);
    if (mox_amx_is_direct(f))
        return;
    if (q == 0) {
        *feed = mox_amx_feed_of(f, j, &j->panel[p], s);
        feed->to = to;
    } else if (f.fold == MOX_AMX_FOLD_E4M3 && q == 2)
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
            _tile_stream_loadd(4, t.a0, 64);
            _tile_loadd(5, t.b[0], 64);
            _tile_dpbf16ps(0, 4, 5);
            break;
        case 1:
            _tile_loadd(5, t.b[1], 64);
            _tile_dpbf16ps(1, 4, 5);
            _tile_zero(4);
            break;
        case 2:
            _tile_stream_loadd(7, t.a1, 64);
            _tile_dpbf16ps(3, 7, 5);
            break;
        default:
            _tile_loadd(5, t.b[0], 64);
            _tile_dpbf16ps(2, 7, 5);
            _tile_zero(7);
        }
        if (product != 1 || R == 1)
            _tile_zero(5);
        MOX_FENCE();
        MOX_KERNEL_UNROLL
        for (int at = product * each; at < (product + 1) * each; at++)
            mox_amx_share(f, j, at / 4, at % 4, ahead, t.to[at / 4], &feed);
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
                           .slots = from->slots,
                           .group_inverse = from->group_inverse };
}

/* A pair of row tiles: `high` rows in the first, `low` in the second, 0 for none. Of several passes all tiles have 16
 * rows, since a new configuration takes as long as eight products: those beyond the last row of activations are
 * whatever lies there, and nobody looks at their sums. */
typedef struct mox_amx_pass {
    int64_t row, high, low;
    float *buffer; /* [4][16][16] its C tiles, while others have the tile unit */
} mox_amx_pass;

/* What a turn of the loop over blocks and passes multiplies, and what it decodes: steps [first, last), and from each
 * one `lead` on, if that is before `until`. Step `first` has its lines in slot `slot`, and is in segment `segment`. */
typedef struct mox_amx_turn {
    int64_t first, last, slot, segment, lead, until;
} mox_amx_turn;

/* Rows of a C tile to the sums in c. `first`: there are none yet. */
MOX_KERNEL_INLINE void mox_amx_square_add(bool acts, bool first, const mox_amx_job *j, int p, int64_t row, int64_t rows,
                                          const float *tile, mox_amx_end end)
{
    float *c = j->c + row * 32 + p * 16;
    const float *act = acts ? end.acts + row * j->a_scale_stride : NULL;
    const __m512 nothing = mox_amx_nothing(j);
    for (int64_t r = 0; r < rows; r++, c += 32, tile += 16) {
        _mm512_store_ps(c, mox_amx_drained(acts, tile, act, end.scale, first ? nothing : _mm512_load_ps(c)));
        act = acts ? act + j->a_scale_stride : NULL;
    }
}

/* One C tile of panel p. */
MOX_KERNEL_INLINE void mox_amx_square_end(const mox_amx_job *j, int p, int64_t row, int64_t rows, const float *tile,
                                          int64_t segment)
{
    const mox_amx_end end = mox_amx_end_of(j, &j->panel[p], segment);
    if (end.acts != NULL)
        mox_amx_square_add(true, segment == 0, j, p, row, rows, tile, end);
    else
        mox_amx_square_add(false, segment == 0, j, p, row, rows, tile, end);
}

/* A segment's C tiles, stored: each is added to c after a step of the products that follow, so that these need not wait
 * for it. */
typedef struct mox_amx_owed {
    int64_t row, high, low, segment;
    int tile; /* the next one; 4: none */
} mox_amx_owed;

MOX_KERNEL_INLINE void mox_amx_square_pay(const mox_amx_job *j, mox_amx_owed *owed)
{
    const int tile = owed->tile++, p = tile % 2;
    const bool second = tile >= 2;
    if (p < j->panels)
        mox_amx_square_end(j, p, second ? owed->row + owed->high : owed->row, second ? owed->low : owed->high,
                           j->owed + tile * MOX_AMX_TILE, owed->segment);
}

MOX_KERNEL_INLINE void mox_amx_square_pay_all(const mox_amx_job *j, mox_amx_owed *owed)
{
    while (owed->tile < 4)
        mox_amx_square_pay(j, owed);
}

/* Lines go around in `slots` places. */
MOX_KERNEL_INLINE int64_t mox_amx_slot(const mox_amx_job *part, int64_t slot)
{
    return slot >= part->slots ? slot - part->slots : slot;
}

/* Steps [s, last) of a turn into C; `slot` is that of step s. Returns that of step `last`. */
MOX_KERNEL_INLINE int64_t mox_amx_square_steps(mox_amx_form f, int R, bool decode, const mox_amx_job *j,
                                               const mox_amx_job *part, const mox_amx_pass *pass,
                                               const mox_amx_turn *turn, mox_amx_owed *owed, int64_t slot, int64_t s,
                                               int64_t last)
{
    const uint8_t *a = j->a;
    mox_amx_tiles t = { .a0 = a + (pass->row * part->steps + s * pass->high) * 64 };
    t.a1 = a + ((pass->row + pass->high) * part->steps + s * pass->low) * 64;
    const int64_t lead = turn->lead, decoding = decode ? mox_min_i64(last, turn->until - lead) : s;
    int64_t ahead = mox_amx_slot(part, slot + lead);
    for (; s < last; s++, t.a0 += pass->high * 64, t.a1 += pass->low * 64) {
        for (int p = 0; p < 2; p++) {
            t.b[p] = part->panel[p].lines + slot * MOX_AMX_LINES;
            t.to[p] = part->panel[p].lines + ahead * MOX_AMX_LINES;
        }
        if (s < decoding)
            mox_amx_square_step(f, R, decode, part, t, s + lead);
        else
            mox_amx_square_step(f, R, false, part, t, 0);
        if (owed->tile < 4)
            mox_amx_square_pay(j, owed);
        slot = mox_amx_slot(part, slot + 1);
        ahead = mox_amx_slot(part, ahead + 1);
    }
    return slot;
}

MOX_KERNEL_INLINE void mox_amx_square_store(const mox_amx_pass *pass, float *to)
{
    MOX_FENCE();
    MOX_TILE_STORE(0, to);
    MOX_TILE_STORE(1, to + MOX_AMX_TILE);
    if (pass->low > 0) {
        MOX_TILE_STORE(2, to + 2 * MOX_AMX_TILE);
        MOX_TILE_STORE(3, to + 3 * MOX_AMX_TILE);
    }
    MOX_FENCE();
}

MOX_KERNEL_INLINE void mox_amx_square_load(const mox_amx_pass *pass)
{
    MOX_FENCE();
    _tile_loadd(0, pass->buffer, 64);
    _tile_loadd(1, pass->buffer + MOX_AMX_TILE, 64);
    if (pass->low > 0) {
        _tile_loadd(2, pass->buffer + 2 * MOX_AMX_TILE, 64);
        _tile_loadd(3, pass->buffer + 3 * MOX_AMX_TILE, 64);
    }
    MOX_FENCE();
}

MOX_KERNEL_INLINE void mox_amx_square_drain(const mox_amx_job *j, const mox_amx_pass *pass, int64_t segment,
                                            mox_amx_owed *owed)
{
    mox_amx_square_pay_all(j, owed);
    mox_amx_square_store(pass, j->owed);
    *owed = (mox_amx_owed) { pass->row, pass->high, pass->low, segment, 0 };
}

/* One turn. False when it ends amid a segment, whose sums C holds. */
MOX_KERNEL_INLINE bool mox_amx_square_turn(mox_amx_form f, bool decode, const mox_amx_job *j, const mox_amx_job *part,
                                           const mox_amx_pass *pass, const mox_amx_turn *turn, mox_amx_owed *owed)
{
    int64_t s = turn->first, slot = turn->slot;
    for (int64_t segment = turn->segment; s < turn->last; segment++) {
        const int64_t end = mox_min_i64((segment + 1) * j->segment_steps, j->steps), to = mox_min_i64(end, turn->last);
        if (pass->low > 0)
            slot = mox_amx_square_steps(f, 2, decode, j, part, pass, turn, owed, slot, s, to);
        else
            slot = mox_amx_square_steps(f, 1, decode, j, part, pass, turn, owed, slot, s, to);
        if (to < end)
            return false;
        mox_amx_square_drain(j, pass, segment, owed);
        s = to;
    }
    return true;
}

/* The i-th pass of a block: the first and the last, which decode, are full ones. */
MOX_KERNEL_INLINE mox_amx_pass mox_amx_pass_of(const mox_amx_job *j, int64_t passes, int64_t i)
{
    const int64_t at = passes > 2 && i >= passes - 2 ? 2 * passes - 3 - i : i, left = j->rows - 32 * at;
    const int64_t high = mox_min_i64(16, left);
    return (mox_amx_pass) { 32 * at, high, mox_min_i64(16, left - high), j->buffer + 4 * MOX_AMX_TILE * at };
}

/* The tile unit goes from one pass to another. `open`: amid a segment. */
MOX_KERNEL_INLINE void mox_amx_square_change(const mox_amx_pass *before, bool was_open, const mox_amx_pass *pass,
                                             bool open)
{
    if (pass->row == before->row)
        return;
    if (was_open)
        mox_amx_square_store(before, before->buffer);
    if (open)
        mox_amx_square_load(pass);
}

/* The first block decodes itself, as it goes; others are decoded by the last pass of the one before. */
MOX_KERNEL_INLINE void mox_amx_square_blocks(mox_amx_form f, bool decode, const mox_amx_job *j, int64_t passes)
{
    const mox_amx_job part = mox_amx_part_of(j);
    mox_amx_turn turn = { .first = 0 };
    mox_amx_pass pass = { .row = -1 };
    mox_amx_owed owed = { .tile = 4 };
    for (bool there = true, open = false; turn.first < j->steps; turn.first = turn.last, there = !there) {
        turn.last = mox_min_i64(turn.first + j->block, j->steps);
        while ((turn.segment + 1) * j->segment_steps <= turn.first)
            turn.segment++;
        const bool amid = turn.first > turn.segment * j->segment_steps;
        for (int64_t i = 0; i < passes; i++) {
            const mox_amx_pass before = pass;
            pass = mox_amx_pass_of(j, passes, there ? i : passes - 1 - i);
            mox_amx_square_change(&before, open, &pass, amid);
            const bool starts = turn.first == 0 && i == 0;
            turn.lead = starts ? MOX_AMX_LEAD : j->block;
            turn.until = starts ? turn.last : j->steps;
            if (decode && (starts || i == passes - 1))
                open = !mox_amx_square_turn(f, true, j, &part, &pass, &turn, &owed);
            else
                open = !mox_amx_square_turn(f, false, j, &part, &pass, &turn, &owed);
        }
        turn.slot = mox_amx_slot(&part, turn.slot + j->block);
    }
    mox_amx_square_pay_all(j, &owed);
}

/* `decode`: lines are made as the product goes, or fetched. The last panel of an odd number is multiplied twice. */
MOX_KERNEL_INLINE void mox_amx_all_square(mox_amx_form f, bool decode, const mox_amx_job *j)
{
    const int64_t low = j->rows - 16;
    mox_amx_configure(j->rows < 16 ? (int)j->rows : 16, low > 16 ? 16 : low > 0 ? (int)low : 1);
    for (int64_t s = 0; decode && s < MOX_AMX_LEAD; s++)
        for (int p = 0; p < 2; p++)
            mox_amx_decode_step(f, j, p, s);
    mox_amx_square_blocks(f, decode, j, mox_ceil_div(j->rows, 32));
}

/* All rows, from lines that are decoded, of any format. */
void mox_amx_square_kept(const mox_amx_job *j);

#endif
