/* SPDX-License-Identifier: Apache-2.0
 *
 * slot_map.c - checks and copies slot maps, and finds a rank's slots (slot_map.h).
 */
#include "layer/config/slot_map.h"

#include <string.h>

static moxie_status check_sizes(const moxie_slot_map *m, int32_t experts, int32_t ranks, moxie_error *error)
{
    MOX_FAIL_IF(m->struct_size == 0, MOXIE_ERR_ARGUMENT, error,
                "slot_map.struct_size is 0: initialise the struct with MOXIE_SLOT_MAP_INIT");
    MOX_FAIL_IF(m->ranks != ranks, MOXIE_ERR_MISMATCH, error,
                "slot_map is for %d rank(s), but ep_size is %d: make the map for as many ranks", (int)m->ranks,
                (int)ranks);
    MOX_FAIL_IF(m->experts != experts, MOXIE_ERR_MISMATCH, error,
                "slot_map is for %d experts, but the layer has %d: make the map for as many experts", (int)m->experts,
                (int)experts);
    MOX_FAIL_IF(m->slots < experts || m->expert_of == NULL || m->first_slot == NULL, MOXIE_ERR_ARGUMENT, error,
                "slot_map has %d slots for %d experts, and %s: it needs a slot for each expert and both arrays",
                (int)m->slots, (int)experts,
                m->expert_of == NULL || m->first_slot == NULL ? "lacks an array" : "both arrays");
    for (int32_t r = 0; r < ranks; r++)
        MOX_FAIL_IF(m->first_slot[r] < 0 || m->first_slot[r] > m->first_slot[r + 1], MOXIE_ERR_ARGUMENT, error,
                    "slot_map.first_slot[%d] is %d and the next is %d: they must not be negative, and not fall", (int)r,
                    (int)m->first_slot[r], (int)m->first_slot[r + 1]);
    MOX_FAIL_IF(m->first_slot[0] != 0 || m->first_slot[ranks] != m->slots, MOXIE_ERR_ARGUMENT, error,
                "slot_map.first_slot goes from %d to %d; with %d slots it must go from 0 to %d", (int)m->first_slot[0],
                (int)m->first_slot[ranks], (int)m->slots, (int)m->slots);
    return MOXIE_OK;
}

static moxie_status check_rank(const moxie_slot_map *m, int32_t rank, bool *held, moxie_error *error)
{
    for (int32_t p = m->first_slot[rank]; p < m->first_slot[rank + 1]; p++) {
        const int32_t e = m->expert_of[p];
        MOX_FAIL_IF(e < -1 || e >= m->experts, MOXIE_ERR_ARGUMENT, error,
                    "slot_map.expert_of[%d] is %d; it must be from 0 to %d, or -1 for an empty slot", (int)p, (int)e,
                    (int)m->experts - 1);
        if (e >= 0)
            held[e] = true;
    }
    return MOXIE_OK;
}

moxie_status mox_slot_map_check(const moxie_slot_map *map, int32_t experts, int32_t ranks, moxie_error *error)
{
    bool held[MOXIE_MAX_EXPERTS] = { false };
    MOX_TRY(check_sizes(map, experts, ranks, error));
    for (int32_t r = 0; r < ranks; r++)
        MOX_TRY(check_rank(map, r, held, error));
    for (int32_t e = 0; e < experts; e++)
        MOX_FAIL_IF(!held[e], MOXIE_ERR_ARGUMENT, error,
                    "slot_map has no slot for expert %d: every expert needs one at least", (int)e);
    return MOXIE_OK;
}

int32_t mox_slot_map_of_rank(const moxie_slot_map *map, int32_t rank, int32_t *slot_of)
{
    int32_t slots = 0;
    for (int32_t e = 0; e < map->experts; e++)
        slot_of[e] = -1;
    for (int32_t p = map->first_slot[rank]; p < map->first_slot[rank + 1]; p++)
        if (map->expert_of[p] >= 0 && slot_of[map->expert_of[p]] < 0)
            slot_of[map->expert_of[p]] = slots++;
    return slots;
}

static const int32_t *copy_array(mox_arena *arena, const int32_t *from, int32_t count)
{
    const uint64_t bytes = (uint64_t)count * sizeof *from;
    int32_t *copy = mox_arena_alloc(arena, bytes);
    if (copy != NULL)
        memcpy(copy, from, bytes);
    return copy;
}

const moxie_slot_map *mox_slot_map_copy(const moxie_slot_map *map, mox_arena *arena)
{
    moxie_slot_map *copy = mox_arena_alloc(arena, sizeof *copy);
    if (copy == NULL)
        return NULL;
    *copy = *map;
    copy->expert_of = copy_array(arena, map->expert_of, map->slots);
    copy->first_slot = copy_array(arena, map->first_slot, map->ranks + 1);
    return copy->expert_of != NULL && copy->first_slot != NULL ? copy : NULL;
}
