/* SPDX-License-Identifier: Apache-2.0
 *
 * slots_without.c - a slot map without some ranks, whose experts go to the others (moxie_slot_map_without).
 *
 *     | 0 1 | 2 3 | 4 0 |  without rank 1:  | 0 1 | 4 0 |  ->  | 0 1 | 4 3 |  ->  | 0 1 2 | 4 3 |
 *                                            lost: 2, 3        3 replaces the      2 gets a new slot
 *                                                              replica of 0
 *
 * The expert with the largest load goes first. An empty slot is better than a replica, and a replica better than a new
 * slot; of equals, the slot that leaves its rank's load lowest.
 */
#include <math.h>

#include "route/expert_slots.h"

typedef struct placing {
    moxie_slot_map map; /* of the ranks that are left */
    const double *loads;
    int32_t *expert_of, *first_slot; /* the map's, as they change */
    int32_t *count;                  /* [E] slots with it */
    int32_t *home;                   /* [E] rank that gets a new slot for it, or -1 */
    double *rank_load;               /* [ranks] */
    int32_t added;
} placing;

static double load_of(const placing *p, int32_t expert)
{
    return p->loads != NULL ? p->loads[expert] : 1;
}

static moxie_status check_dead(const moxie_slot_map *map, const int32_t *dead, int32_t count, bool *is_dead,
                               moxie_error *error)
{
    MOX_FAIL_IF(count < 0 || count >= map->ranks, MOXIE_ERR_ARGUMENT, error,
                "slot map: %d of %d ranks are dead; one at least must be left", (int)count, (int)map->ranks);
    for (int32_t i = 0; i < count; i++) {
        MOX_FAIL_IF(dead[i] < 0 || dead[i] >= map->ranks || is_dead[dead[i]], MOXIE_ERR_ARGUMENT, error,
                    "slot map: dead[%d] is %d; it must be a rank from 0 to %d, each once", (int)i, (int)dead[i],
                    (int)map->ranks - 1);
        is_dead[dead[i]] = true;
    }
    return MOXIE_OK;
}

static moxie_status check_loads(const double *loads, int32_t experts, moxie_error *error)
{
    for (int32_t e = 0; loads != NULL && e < experts; e++)
        MOX_FAIL_IF(!isfinite(loads[e]) || loads[e] < 0, MOXIE_ERR_ARGUMENT, error,
                    "slot map: the load of expert %d is %g; it must be finite and not negative", (int)e, loads[e]);
    return MOXIE_OK;
}

/* The slots of ranks that are left, in their order. */
static void keep_ranks(placing *p, const moxie_slot_map *map, const bool *is_dead)
{
    int32_t rank = 0, slot = 0;
    for (int32_t r = 0; r < map->ranks; r++) {
        if (is_dead[r])
            continue;
        p->first_slot[rank++] = slot;
        for (int32_t s = map->first_slot[r]; s < map->first_slot[r + 1]; s++)
            p->expert_of[slot++] = map->expert_of[s];
    }
    p->first_slot[rank] = slot;
    p->map.ranks = rank;
    p->map.slots = slot;
}

static void add_loads(placing *p)
{
    for (int32_t r = 0; r < p->map.ranks; r++) {
        p->rank_load[r] = 0;
        for (int32_t s = p->first_slot[r]; s < p->first_slot[r + 1]; s++)
            if (p->expert_of[s] >= 0)
                p->rank_load[r] += load_of(p, p->expert_of[s]) / p->count[p->expert_of[s]];
    }
    for (int32_t e = 0; e < p->map.experts; e++)
        if (p->home[e] >= 0)
            p->rank_load[p->home[e]] += load_of(p, e);
}

/* 0: empty, or its rank has the expert in a lower slot too; 1: a replica; 2: it may not be taken. */
static int class_of(const placing *p, int32_t rank, int32_t slot)
{
    const int32_t e = p->expert_of[slot];
    if (e < 0)
        return 0;
    if (p->count[e] == 1)
        return 2;
    return mox_expert_slots_find(&p->map, rank, e) != slot ? 0 : 1;
}

/* The slot for one more expert; -1: there is none. */
static int32_t best_slot(const placing *p)
{
    int32_t best = -1;
    int class = 2;
    double least = INFINITY;
    for (int32_t r = 0; r < p->map.ranks; r++)
        for (int32_t s = p->first_slot[r]; s < p->first_slot[r + 1]; s++) {
            const int32_t e = p->expert_of[s];
            const int of = class_of(p, r, s);
            const double load = p->rank_load[r] - (e < 0 || of == 2 ? 0 : load_of(p, e) / p->count[e]);
            if (of < class || (of == class && of < 2 && load < least)) {
                best = s;
                class = of;
                least = load;
            }
        }
    return best;
}

static void place(placing *p, int32_t expert)
{
    const int32_t slot = best_slot(p);
    if (slot >= 0) {
        if (p->expert_of[slot] >= 0)
            p->count[p->expert_of[slot]]--;
        p->expert_of[slot] = expert;
    } else {
        int32_t rank = 0;
        for (int32_t r = 1; r < p->map.ranks; r++)
            rank = p->rank_load[r] < p->rank_load[rank] ? r : rank;
        p->home[expert] = rank;
        p->added++;
    }
    p->count[expert] = 1;
    add_loads(p);
}

/* The lost expert with the largest load, or -1. */
static int32_t next_lost(const placing *p)
{
    int32_t next = -1;
    for (int32_t e = 0; e < p->map.experts; e++)
        if (p->count[e] == 0 && (next < 0 || load_of(p, e) > load_of(p, next)))
            next = e;
    return next;
}

/* Puts each rank's new slots behind its others. From the last rank on, since slots move up. */
static void insert_slots(placing *p)
{
    int32_t to = p->map.slots + p->added;
    for (int32_t r = p->map.ranks - 1; r >= 0; r--) {
        const int32_t first = p->first_slot[r], end = p->first_slot[r + 1];
        p->first_slot[r + 1] = to;
        for (int32_t e = p->map.experts - 1; e >= 0; e--)
            if (p->home[e] == r)
                p->expert_of[--to] = e;
        for (int32_t s = end - 1; s >= first; s--)
            p->expert_of[--to] = p->expert_of[s];
    }
}

moxie_status mox_expert_slots_without(const moxie_slot_map *map, const int32_t *dead, int32_t count,
                                      const double *loads, int32_t *expert_of, int32_t *first_slot, int32_t *slots,
                                      moxie_error *error)
{
    bool is_dead[MOXIE_MAX_RANKS] = { false };
    int32_t counts[MOXIE_MAX_EXPERTS], home[MOXIE_MAX_EXPERTS];
    double rank_load[MOXIE_MAX_RANKS];
    placing p = { *map, loads, expert_of, first_slot, counts, home, rank_load, 0 };
    MOX_TRY(check_dead(map, dead, count, is_dead, error));
    MOX_TRY(check_loads(loads, map->experts, error));
    keep_ranks(&p, map, is_dead);
    p.map.expert_of = expert_of;
    p.map.first_slot = first_slot;
    mox_expert_slots_counts(&p.map, counts);
    for (int32_t e = 0; e < map->experts; e++)
        home[e] = -1;
    add_loads(&p);
    for (int32_t e = next_lost(&p); e >= 0; e = next_lost(&p))
        place(&p, e);
    insert_slots(&p);
    *slots = p.map.slots + p.added;
    return MOXIE_OK;
}
