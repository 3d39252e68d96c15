/* SPDX-License-Identifier: Apache-2.0
 *
 * eplb_exchange.c - after packing: empty slots filled, and two replicas exchanged between ranks, where the original's
 * map is not wanted.
 *
 *     rank 0: 5 5 2     rank 1: 7 1 0      duplicates: the second 5 for a replica that rank 0 lacks, of similar load
 *     loads  90         60                 largest: while an exchange leaves both ranks below 90, the best one
 *
 * All are deterministic: of equal choices the one of the lowest slots or experts is made.
 */
#include <math.h>

#include "route/eplb.h"

/* The number of slots of a rank that hold an expert. */
static int32_t held(const mox_exchange *x, int32_t rank, int32_t expert)
{
    int32_t n = 0;
    for (int32_t p = x->first_slot[rank]; expert >= 0 && p < x->first_slot[rank + 1]; p++)
        n += x->expert_of[p] == expert;
    return n;
}

/* ---- empty slots ------------------------------------------------------------------------------------- */

static int32_t replicas(const mox_exchange *x, int32_t expert)
{
    int32_t n = 0;
    for (int32_t r = x->first; r < x->last; r++)
        n += held(x, r, expert);
    return n;
}

/* The ranks' largest load, and the sum of squares, if rank r had one more replica of `expert` of this load; r -1: as
 * they are. */
static void loads_with(const mox_exchange *x, int32_t r, int32_t expert, double load, double *max, double *squares)
{
    const int32_t n = r < 0 ? 1 : replicas(x, expert);
    *max = *squares = 0;
    for (int32_t s = x->first; s < x->last; s++) {
        double sum = x->rank_load[s];
        if (r >= 0)
            sum += held(x, s, expert) * (load / (n + 1) - load / n) + (s == r ? load / (n + 1) : 0);
        *max = sum > *max ? sum : *max;
        *squares += sum * sum;
    }
}

/* Puts one more replica of `expert` into slot p. */
static void add_replica(const mox_exchange *x, int32_t p, int32_t expert, double load)
{
    x->expert_of[p] = expert;
    const double share = load / replicas(x, expert);
    for (int32_t s = x->first; s < x->last; s++)
        for (int32_t q = x->first_slot[s]; q < x->first_slot[s + 1]; q++)
            if (x->expert_of[q] == expert) {
                x->rank_load[s] += share - x->slot_load[q];
                x->slot_load[q] = share;
            }
}

void mox_exchange_fill(const mox_exchange *x, const double *loads, const int32_t *experts, int32_t n)
{
    for (int32_t r = x->first; r < x->last; r++)
        for (int32_t p = x->first_slot[r]; p < x->first_slot[r + 1]; p++) {
            if (x->expert_of[p] >= 0)
                continue;
            double best_max, best_squares, max, squares;
            int32_t best = -1;
            loads_with(x, -1, -1, 0, &best_max, &best_squares);
            best_squares = INFINITY;
            for (int32_t i = 0; i < n; i++) {
                loads_with(x, r, experts[i], loads[experts[i]], &max, &squares);
                if ((max < best_max || (max == best_max && squares < best_squares)) &&
                    (!x->distinct || held(x, r, experts[i]) == 0)) {
                    best = experts[i];
                    best_max = max;
                    best_squares = squares;
                }
            }
            if (best >= 0)
                add_replica(x, p, best, loads[best]);
        }
}

/* ---- exchanges --------------------------------------------------------------------------------------- */

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
