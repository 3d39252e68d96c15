/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_slots.c - slot maps: their rules, the maps to begin with, replicas and loads.
 *
 * Slots are shared out as moxie_expert_map() shares out experts: P / R each, and one more on the first P % R ranks. The
 * maps to begin with hold experts 0 to E - 1 and then again from 0 on, as vLLM's (its eplb_state: redundant expert i is
 * a replica of expert i % E).
 */
#include "route/expert_slots.h"

#include <math.h>

#include "base/memory.h"

moxie_status mox_expert_slots_sizes(int32_t experts, int32_t slots, int32_t ranks, moxie_error *error)
{
    MOX_FAIL_IF(experts < 1 || experts > MOXIE_MAX_EXPERTS, MOXIE_ERR_ARGUMENT, error,
                "slot map: %d experts; it must be from 1 to %d", (int)experts, MOXIE_MAX_EXPERTS);
    MOX_FAIL_IF(ranks < 1 || ranks > MOXIE_MAX_RANKS, MOXIE_ERR_ARGUMENT, error,
                "slot map: %d ranks; it must be from 1 to %d", (int)ranks, MOXIE_MAX_RANKS);
    MOX_FAIL_IF(slots < experts || slots > MOXIE_MAX_SLOTS, MOXIE_ERR_ARGUMENT, error,
                "slot map: %d slots for %d experts; every expert needs one, and the limit is %d", (int)slots,
                (int)experts, MOXIE_MAX_SLOTS);
    return MOXIE_OK;
}

void mox_expert_slots_first_slots(int32_t slots, int32_t ranks, int32_t *first_slot)
{
    const int32_t base = slots / ranks, rest = slots % ranks;
    for (int32_t r = 0; r <= ranks; r++)
        first_slot[r] = r * base + (r < rest ? r : rest);
}

moxie_status mox_expert_slots_default(moxie_expert_map_kind kind, int32_t experts, int32_t slots, int32_t ranks,
                                      int32_t *expert_of, int32_t *first_slot, moxie_error *error)
{
    MOX_FAIL_IF(kind != MOXIE_MAP_LINEAR && kind != MOXIE_MAP_ROUND_ROBIN, MOXIE_ERR_ARGUMENT, error,
                "slot map: kind %d is neither linear (0) nor round robin (1)", (int)kind);
    MOX_TRY(mox_expert_slots_sizes(experts, slots, ranks, error));
    mox_expert_slots_first_slots(slots, ranks, first_slot);
    for (int32_t r = 0; r < ranks; r++)
        for (int32_t p = first_slot[r]; p < first_slot[r + 1]; p++)
            expert_of[p] = (kind == MOXIE_MAP_LINEAR ? p : r + (p - first_slot[r]) * ranks) % experts;
    return MOXIE_OK;
}

/* ---- the rules --------------------------------------------------------------------------------------- */

static moxie_status check_ranks(const moxie_slot_map *map, moxie_error *error)
{
    MOX_FAIL_IF(map->expert_of == NULL || map->first_slot == NULL, MOXIE_ERR_ARGUMENT, error, "slot map: %s is NULL",
                map->expert_of == NULL ? "expert_of" : "first_slot");
    MOX_FAIL_IF(map->first_slot[0] != 0 || map->first_slot[map->ranks] != map->slots, MOXIE_ERR_ARGUMENT, error,
                "slot map: first_slot begins with %d and ends with %d; with %d slots it must begin with 0 and end with "
                "%d",
                (int)map->first_slot[0], (int)map->first_slot[map->ranks], (int)map->slots, (int)map->slots);
    for (int32_t r = 0; r < map->ranks; r++)
        MOX_FAIL_IF(map->first_slot[r] > map->first_slot[r + 1], MOXIE_ERR_ARGUMENT, error,
                    "slot map: rank %d begins at slot %d and the next one at slot %d; first_slot must not fall", (int)r,
                    (int)map->first_slot[r], (int)map->first_slot[r + 1]);
    return MOXIE_OK;
}

moxie_status mox_expert_slots_check(const moxie_slot_map *map, moxie_error *error)
{
    bool held[MOXIE_MAX_EXPERTS] = { false };
    MOX_TRY(mox_expert_slots_sizes(map->experts, map->slots, map->ranks, error));
    MOX_TRY(check_ranks(map, error));
    for (int32_t p = 0; p < map->slots; p++) {
        const int32_t e = map->expert_of[p];
        MOX_FAIL_IF(e < -1 || e >= map->experts, MOXIE_ERR_ARGUMENT, error,
                    "slot map: slot %d holds expert %d; with %d experts it must be from 0 to %d, or -1 for none",
                    (int)p, (int)e, (int)map->experts, (int)map->experts - 1);
        if (e >= 0)
            held[e] = true;
    }
    for (int32_t e = 0; e < map->experts; e++)
        MOX_FAIL_IF(!held[e], MOXIE_ERR_ARGUMENT, error,
                    "slot map: expert %d is in none of the %d slots; every expert needs one", (int)e, (int)map->slots);
    return MOXIE_OK;
}

/* ---- replicas and loads ------------------------------------------------------------------------------ */

/* The last rank that begins at or before the slot; an empty rank begins where the next one does. */
int32_t mox_expert_slots_rank_of(const moxie_slot_map *map, int32_t slot)
{
    int32_t low = 0, high = map->ranks;
    while (high - low > 1) {
        const int32_t middle = low + (high - low) / 2;
        if (map->first_slot[middle] <= slot)
            low = middle;
        else
            high = middle;
    }
    return low;
}

int32_t mox_expert_slots_find(const moxie_slot_map *map, int32_t rank, int32_t expert)
{
    for (int32_t p = map->first_slot[rank]; p < map->first_slot[rank + 1]; p++)
        if (map->expert_of[p] == expert)
            return p;
    return -1;
}

int32_t mox_expert_slots_counts(const moxie_slot_map *map, int32_t *counts)
{
    int32_t max = 0;
    for (int32_t e = 0; e < map->experts; e++)
        counts[e] = 0;
    for (int32_t p = 0; p < map->slots; p++)
        if (map->expert_of[p] >= 0 && ++counts[map->expert_of[p]] > max)
            max = counts[map->expert_of[p]];
    return max;
}

moxie_status mox_expert_slots_replicas(const moxie_slot_map *map, int32_t width, int32_t *counts, int32_t *slots,
                                       moxie_error *error)
{
    int32_t count[MOXIE_MAX_EXPERTS], filled[MOXIE_MAX_EXPERTS] = { 0 };
    const int32_t max = mox_expert_slots_counts(map, count);
    MOX_FAIL_IF(slots != NULL && width < max, MOXIE_ERR_ARGUMENT, error,
                "slot map: width %d; an expert has %d replicas, so it must be %d at least", (int)width, (int)max,
                (int)max);
    for (int32_t e = 0; counts != NULL && e < map->experts; e++)
        counts[e] = count[e];
    if (slots == NULL)
        return MOXIE_OK;
    for (int64_t i = 0; i < (int64_t)map->experts * width; i++)
        slots[i] = -1;
    for (int32_t p = 0; p < map->slots; p++) {
        const int32_t e = map->expert_of[p];
        if (e >= 0)
            slots[(int64_t)e * width + filled[e]++] = p;
    }
    return MOXIE_OK;
}

moxie_status mox_expert_slots_loads(const moxie_slot_map *map, const double *loads, double *rank_loads,
                                    moxie_error *error)
{
    int32_t count[MOXIE_MAX_EXPERTS];
    for (int32_t e = 0; e < map->experts; e++)
        MOX_FAIL_IF(!isfinite(loads[e]) || loads[e] < 0, MOXIE_ERR_ARGUMENT, error,
                    "slot map: the load of expert %d is %g; it must be finite and not negative", (int)e, loads[e]);
    mox_expert_slots_counts(map, count);
    for (int32_t r = 0; r < map->ranks; r++) {
        rank_loads[r] = 0;
        for (int32_t p = map->first_slot[r]; p < map->first_slot[r + 1]; p++)
            if (map->expert_of[p] >= 0)
                rank_loads[r] += loads[map->expert_of[p]] / count[map->expert_of[p]];
    }
    return MOXIE_OK;
}

double mox_balancedness(const double *rank_loads, int32_t ranks)
{
    double sum = 0, max = 0;
    for (int32_t r = 0; r < ranks; r++) {
        sum += rank_loads[r];
        max = rank_loads[r] > max ? rank_loads[r] : max;
    }
    return max > 0 ? sum / ranks / max : 1;
}

/* ---- who serves a choice ----------------------------------------------------------------------------- */

/* Whether the slot is the lowest of its rank with its expert, and so computes that expert's tokens. */
static bool computes(const moxie_slot_map *map, int32_t slot)
{
    const int32_t e = map->expert_of[slot];
    return e >= 0 && mox_expert_slots_find(map, mox_expert_slots_rank_of(map, slot), e) == slot;
}

/* made->first, from the numbers of ranks that have each expert; near: the own rank's slot of it, or -1. */
static void count_ranks(const moxie_slot_map *map, const int32_t *near, mox_replicas *made)
{
    for (int32_t p = 0; p < map->slots; p++)
        if (computes(map, p))
            made->first[map->expert_of[p] + 1]++;
    for (int32_t e = 0; e < map->experts; e++)
        made->first[e + 1] = made->first[e] + (near[e] < 0 ? made->first[e + 1] : 1);
}

moxie_status mox_replicas_create(const moxie_slot_map *map, int32_t source, mox_replicas *out, moxie_error *error)
{
    int32_t near[MOXIE_MAX_EXPERTS], count[MOXIE_MAX_EXPERTS] = { 0 };
    mox_replicas made = { .experts = map->experts };
    made.first = mox_calloc((uint64_t)map->experts + 1, sizeof *made.first);
    made.slots = mox_calloc((uint64_t)map->slots, sizeof *made.slots);
    if (!made.first || !made.slots) {
        mox_replicas_destroy(&made);
        return mox_fail(MOXIE_ERR_MEMORY, error, "slot map: no memory for the replicas of %d experts",
                        (int)map->experts);
    }
    for (int32_t e = 0; e < map->experts; e++)
        near[e] = source < 0 ? -1 : mox_expert_slots_find(map, source, e);
    count_ranks(map, near, &made);
    for (int32_t p = 0; p < map->slots; p++) {
        const int32_t e = map->expert_of[p];
        if (computes(map, p) && (near[e] < 0 || near[e] == p))
            made.slots[made.first[e] + count[e]++] = p;
    }
    *out = made;
    return MOXIE_OK;
}

void mox_replicas_destroy(mox_replicas *replicas)
{
    mox_free(replicas->first);
    mox_free(replicas->slots);
    *replicas = (mox_replicas) { .experts = 0 };
}
