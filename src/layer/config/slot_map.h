/* SPDX-License-Identifier: Apache-2.0
 *
 * slot_map.h - a slot map as a configuration has it: which rank's slots hold which experts (moxie_slot_map).
 *
 *     slots       | rank 0: 0 1 2 | rank 1: 3 4 | rank 2: 5 6 |       first_slot = 0 3 5 7
 *     expert_of     0  2  -         1  0          1  3                experts 0 and 1 have a replica
 *
 * A rank's own slots are those that hold an expert, numbered in the order of the map. Where a rank has an expert twice,
 * the lower slot counts and the other one is as if empty: EPLB makes such maps, and a second record would be idle.
 *
 * In the flow: caller -> [check, copy] -> slots of a layer, destinations of a run (plan_ranks.h).
 */
#ifndef MOX_LAYER_SLOT_MAP_H
#define MOX_LAYER_SLOT_MAP_H

#include "base/memory.h"
#include "base/status.h"

/* Sizes fit, and every expert is somewhere. */
moxie_status mox_slot_map_check(const moxie_slot_map *map, int32_t experts, int32_t ranks, moxie_error *error);
/* slot_of [experts]: this rank's slot of each expert, or -1. Returns the number of the rank's slots. */
int32_t mox_slot_map_of_rank(const moxie_slot_map *map, int32_t rank, int32_t *slot_of);
/* A copy with its arrays in the arena; NULL when there is no memory. */
const moxie_slot_map *mox_slot_map_copy(const moxie_slot_map *map, mox_arena *arena);

#endif
