/* SPDX-License-Identifier: Apache-2.0
 *
 * move_schedule.h - the way from one slot map to another in steps that every rank computes for itself.
 *
 *     now       | 0 1 - | 2 3 - |       each rank has one spare slot; target: | 0 2 | 1 3 |
 *     step 1    | 0 1 2 | 2 3 1 |  ->   | 0 - 2 | - 3 1 |      two records travel, then 1 and 2 leave their old ranks
 *
 * In a step, ranks in turn receive the lowest expert that they still need, each as many as it has empty slots, while
 * all records together stay within a number. Then ranks give up experts that the target does not have there and
 * another rank has. So every expert is somewhere at any time, and an exchange needs no third place.
 *
 * While something is left, a step moves something, if each rank has one slot more than the target has experts there:
 * a rank without an empty slot then holds at least one expert more than it may keep for every expert that it needs. If
 * all ranks with needs were full of experts that are nowhere else, more experts would wait for a new place than there
 * are places that wait.
 */
#ifndef MOX_ROUTE_MOVE_SCHEDULE_H
#define MOX_ROUTE_MOVE_SCHEDULE_H

#include "route/expert_slots.h"

typedef struct mox_move {
    int32_t expert, from, to; /* ranks */
} mox_move;

/* Where an expert may stay: an array of bits [ranks, experts] of the target. `now` is checked; expert_of are its slots,
 * which change when the moves are done. */
typedef struct mox_move_target {
    int32_t ranks, experts;
    const bool *wanted; /* [ranks, experts] */
} mox_move_target;

/* The moves of the next step, at most `max`, in `moves`. Returns their number. */
int32_t mox_moves_next(const moxie_slot_map *now, const mox_move_target *target, int32_t max, mox_move *moves);
/* They are done: changes expert_of, the slots of `now`. Returns whether anything changed. */
bool mox_moves_done(const moxie_slot_map *now, const mox_move_target *target, const mox_move *moves, int32_t count,
                    int32_t *expert_of);
/* How many moves are left. */
int32_t mox_moves_left(const moxie_slot_map *now, const mox_move_target *target);

#endif
