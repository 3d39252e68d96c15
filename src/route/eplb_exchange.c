/* SPDX-License-Identifier: Apache-2.0
 *
 * eplb_exchange.c - after packing: exchanges of two replicas between ranks, where the original's map is not wanted.
 *
 *     rank 0: 5 5 2     rank 1: 7 1 0      duplicates: the second 5 for a replica that rank 0 lacks, of similar load
 *     loads  90         60                 largest: while an exchange leaves both ranks below 90, the best one
 *
 * Both are deterministic: of equal exchanges the one of the lowest slots is made.
 */
#include <math.h>

#include "route/eplb.h"

/* The number of slots of a rank that hold an expert. */
static int32_t held(const mox_exchange *x, int32_t rank, int32_t expert)
{
    int32_t n = 0;
    for (int32_t p = x->first_slot[rank]; p < x->first_slot[rank + 1]; p++)
        n += x->expert_of[p] == expert;
    return n;
}

/* Whether p of rank r and q of rank s may change places without a rank that gets what it has. */
static bool stays_distinct(const mox_exchange *x, int32_t p, int32_t r, int32_t q, int32_t s)
{
    return x->expert_of[p] != x->expert_of[q] && held(x, s, x->expert_of[p]) == 0 && held(x, r, x->expert_of[q]) == 0;
}

static void exchange(const mox_exchange *x, int32_t p, int32_t r, int32_t q, int32_t s)
{
    const int32_t expert = x->expert_of[p];
    const double load = x->slot_load[p];
    x->rank_load[r] += x->slot_load[q] - load;
    x->rank_load[s] += load - x->slot_load[q];
    x->expert_of[p] = x->expert_of[q];
    x->slot_load[p] = x->slot_load[q];
    x->expert_of[q] = expert;
    x->slot_load[q] = load;
}

/* Two slots of different ranks; q is -1 when there are none. */
typedef struct choice {
    double cost;
    int32_t p, q, rank;
} choice;

/* The partner of slot p of rank r whose load is most like p's. */
static choice similar_partner(const mox_exchange *x, int32_t p, int32_t r)
{
    choice best = { INFINITY, p, -1, -1 };
    for (int32_t s = x->first; s < x->last; s++)
        for (int32_t q = x->first_slot[s]; s != r && q < x->first_slot[s + 1]; q++) {
            const double cost = fabs(x->slot_load[p] - x->slot_load[q]);
            if (cost < best.cost && stays_distinct(x, p, r, q, s))
                best = (choice) { cost, p, q, s };
        }
    return best;
}

void mox_exchange_duplicates(const mox_exchange *x)
{
    for (int32_t r = x->first; r < x->last; r++)
        for (int32_t p = x->first_slot[r]; p < x->first_slot[r + 1]; p++) {
            if (held(x, r, x->expert_of[p]) < 2)
                continue;
            const choice best = similar_partner(x, p, r);
            if (best.q >= 0)
                exchange(x, p, r, best.q, best.rank);
        }
}

static int32_t largest_rank(const mox_exchange *x)
{
    int32_t best = x->first;
    for (int32_t r = x->first; r < x->last; r++)
        if (x->rank_load[r] > x->rank_load[best])
            best = r;
    return best;
}

/* The exchange of rank r that leaves the larger of both loads smallest, and below r's of today. */
static choice best_relief(const mox_exchange *x, int32_t r)
{
    /* Rounding may not count as relief: loads could then change to and fro without an end. */
    choice best = { x->rank_load[r] * (1 - 1e-12), -1, -1, -1 };
    for (int32_t p = x->first_slot[r]; p < x->first_slot[r + 1]; p++)
        for (int32_t s = x->first; s < x->last; s++)
            for (int32_t q = x->first_slot[s]; s != r && q < x->first_slot[s + 1]; q++) {
                const double less = x->slot_load[p] - x->slot_load[q];
                const double mine = x->rank_load[r] - less, its = x->rank_load[s] + less;
                const double cost = mine > its ? mine : its;
                if (less > 0 && cost < best.cost && (!x->distinct || stays_distinct(x, p, r, q, s)))
                    best = (choice) { cost, p, q, s };
            }
    return best;
}

void mox_exchange_largest(const mox_exchange *x)
{
    const int32_t slots = x->first_slot[x->last] - x->first_slot[x->first];
    for (int32_t i = 0; i < 4 * slots; i++) {
        const int32_t r = largest_rank(x);
        const choice best = best_relief(x, r);
        if (best.q < 0)
            return;
        exchange(x, best.p, r, best.q, best.rank);
    }
}
