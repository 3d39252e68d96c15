/* SPDX-License-Identifier: Apache-2.0
 *
 * move_schedule.c - the steps from one slot map to another (move_schedule.h).
 */
#include "route/move_schedule.h"

static bool wants(const mox_move_target *target, int32_t rank, int32_t expert)
{
    return target->wanted[(int64_t)rank * target->experts + expert];
}

static bool has(const moxie_slot_map *now, int32_t rank, int32_t expert)
{
    return mox_expert_slots_find(now, rank, expert) >= 0;
}

static int32_t empty_slots(const moxie_slot_map *now, int32_t rank)
{
    int32_t empty = 0;
    for (int32_t p = now->first_slot[rank]; p < now->first_slot[rank + 1]; p++)
        empty += now->expert_of[p] < 0;
    return empty;
}

static bool is_planned(const mox_move *moves, int32_t count, int32_t rank, int32_t expert)
{
    for (int32_t i = 0; i < count; i++)
        if (moves[i].to == rank && moves[i].expert == expert)
            return true;
    return false;
}

/* Of the ranks that have the expert, the one that sends least in this step; of equals the lowest. */
static int32_t source_of(const moxie_slot_map *now, const mox_move *moves, int32_t count, int32_t expert)
{
    int32_t best = -1, least = 0;
    for (int32_t r = 0; r < now->ranks; r++) {
        int32_t sends = 0;
        if (!has(now, r, expert))
            continue;
        for (int32_t i = 0; i < count; i++)
            sends += moves[i].from == r;
        if (best < 0 || sends < least) {
            best = r;
            least = sends;
        }
    }
    return best;
}

/* The lowest expert that a rank needs and nobody brings yet; -1: none. */
static int32_t needed(const moxie_slot_map *now, const mox_move_target *target, int32_t rank, const mox_move *moves,
                      int32_t count)
{
    for (int32_t e = 0; e < target->experts; e++)
        if (wants(target, rank, e) && !has(now, rank, e) && !is_planned(moves, count, rank, e))
            return e;
    return -1;
}

static int32_t received(const mox_move *moves, int32_t count, int32_t rank)
{
    int32_t n = 0;
    for (int32_t i = 0; i < count; i++)
        n += moves[i].to == rank;
    return n;
}

int32_t mox_moves_next(const moxie_slot_map *now, const mox_move_target *target, int32_t max, mox_move *moves)
{
    int32_t count = 0, before = -1;
    while (count != before) {
        before = count;
        for (int32_t r = 0; r < now->ranks && count < max; r++) {
            const int32_t e = needed(now, target, r, moves, count);
            if (e < 0 || received(moves, count, r) >= empty_slots(now, r))
                continue;
            const mox_move move = { e, source_of(now, moves, count, e), r };
            moves[count++] = move;
        }
    }
    return count;
}

static int32_t holders(const moxie_slot_map *now, int32_t expert)
{
    int32_t n = 0;
    for (int32_t r = 0; r < now->ranks; r++)
        n += has(now, r, expert);
    return n;
}

bool mox_moves_done(const moxie_slot_map *now, const mox_move_target *target, const mox_move *moves, int32_t count,
                    int32_t *expert_of)
{
    bool changed = count > 0;
    for (int32_t i = 0; i < count; i++)
        for (int32_t p = now->first_slot[moves[i].to]; p < now->first_slot[moves[i].to + 1]; p++)
            if (expert_of[p] < 0) {
                expert_of[p] = moves[i].expert;
                break;
            }
    for (int32_t r = 0; r < now->ranks; r++)
        for (int32_t p = now->first_slot[r]; p < now->first_slot[r + 1]; p++)
            if (expert_of[p] >= 0 && !wants(target, r, expert_of[p]) && holders(now, expert_of[p]) > 1) {
                expert_of[p] = -1;
                changed = true;
            }
    return changed;
}

int32_t mox_moves_left(const moxie_slot_map *now, const mox_move_target *target)
{
    int32_t left = 0;
    for (int32_t r = 0; r < now->ranks; r++)
        for (int32_t e = 0; e < target->experts; e++)
            left += wants(target, r, e) && !has(now, r, e);
    return left;
}
