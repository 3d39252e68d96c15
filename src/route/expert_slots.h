/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_slots.h - slot maps: which expert lies in which slot of which rank, with replicas (moxie_slot_map of moxie.h).
 *
 *     slot       0  1  2 | 3  4         first_slot 0 3 5
 *     expert_of  0  1  2 | 3  0         expert 0 has the replicas 0 (slot 0, rank 0) and 1 (slot 4, rank 1)
 *
 * The calls of moxie_parallel.h about maps, on structs that src/api has read. mox_replicas answers the questions of a
 * run: who serves a choice.
 */
#ifndef MOX_ROUTE_EXPERT_SLOTS_H
#define MOX_ROUTE_EXPERT_SLOTS_H

#include <stdbool.h>

#include <moxie/moxie_comm.h>
#include <moxie/moxie_parallel.h>

#include "base/status.h"

/* Sizes that a map may have. */
moxie_status mox_expert_slots_sizes(int32_t experts, int32_t slots, int32_t ranks, moxie_error *error);
/* moxie_slot_map_first_slots() for sizes that are checked. */
void mox_expert_slots_first_slots(int32_t slots, int32_t ranks, int32_t *first_slot);
moxie_status mox_expert_slots_default(moxie_expert_map_kind kind, int32_t experts, int32_t slots, int32_t ranks,
                                      int32_t *expert_of, int32_t *first_slot, moxie_error *error);
moxie_status mox_expert_slots_check(const moxie_slot_map *map, moxie_error *error);

/* From here on, maps are checked. */

/* The rank that has a slot. */
int32_t mox_expert_slots_rank_of(const moxie_slot_map *map, int32_t slot);
/* The lowest slot of `rank` with `expert`; -1: none. */
int32_t mox_expert_slots_find(const moxie_slot_map *map, int32_t rank, int32_t expert);
/* counts [E]. Returns the largest. */
int32_t mox_expert_slots_counts(const moxie_slot_map *map, int32_t *counts);
moxie_status mox_expert_slots_replicas(const moxie_slot_map *map, int32_t width, int32_t *counts, int32_t *slots,
                                       moxie_error *error);
moxie_status mox_expert_slots_loads(const moxie_slot_map *map, const double *loads, double *rank_loads,
                                    moxie_error *error);
/* expert_of has room for map->slots: a dead rank has a slot for each expert that needs a new one. */
moxie_status mox_expert_slots_without(const moxie_slot_map *map, const int32_t *dead, int32_t count,
                                      const double *loads, int32_t *expert_of, int32_t *first_slot, int32_t *slots,
                                      moxie_error *error);
double mox_balancedness(const double *rank_loads, int32_t ranks);

/* A map turned around for one rank: the slots that may serve its choices of expert e are slots[first[e]] to
 * slots[first[e + 1] - 1], in ascending order. On the rank itself an expert has one. Of replicas on one rank only the
 * lowest is listed. */
typedef struct mox_replicas {
    int32_t experts;
    int32_t *first; /* [experts + 1] */
    int32_t *slots; /* [at most the map's slots] */
} mox_replicas;
/* source: the rank whose choices are served; -1: none is near. mox_replicas_destroy() it. */
moxie_status mox_replicas_create(const moxie_slot_map *map, int32_t source, mox_replicas *out, moxie_error *error);
void mox_replicas_destroy(mox_replicas *replicas);
/* The slot that serves choice j of the batch's token `token`; -1 for an id that is no expert. */
static inline int32_t mox_replicas_serve(const mox_replicas *replicas, int32_t id, int64_t token, int64_t j)
{
    if (id < 0 || id >= replicas->experts)
        return -1;
    const int32_t first = replicas->first[id];
    return replicas->slots[first + (int32_t)((token + j) % (replicas->first[id + 1] - first))];
}

#endif
