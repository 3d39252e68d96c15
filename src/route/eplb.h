/* SPDX-License-Identifier: Apache-2.0
 *
 * eplb.h - expert load balancing: DeepSeek's EPLB, and the way from one map to another in small steps.
 *
 *     loads [L, E] -> balance (replicate, pack) -> expert_of [L, P] -> keep_slots -> step, step, ... -> the runs' maps
 *
 * The calls of moxie_parallel.h on structs that src/api has read.
 */
#ifndef MOX_ROUTE_EPLB_H
#define MOX_ROUTE_EPLB_H

#include "route/expert_slots.h"

moxie_status mox_eplb_config_check(const moxie_eplb_config *config, const double *loads, moxie_error *error);
moxie_status mox_eplb_balance(const moxie_eplb_config *config, const double *loads, int32_t *expert_of,
                              int32_t *first_slot, int32_t *hierarchical, moxie_error *error);
moxie_status mox_eplb_keep_slots(int32_t layers, int32_t slots, int32_t ranks, const int32_t *first_slot,
                                 const int32_t *old, int32_t *expert_of, moxie_error *error);
moxie_status mox_eplb_step(const moxie_eplb_config *config, const double *loads, const int32_t *target,
                           int64_t max_moves, int32_t *expert_of, moxie_eplb_moves *moves, moxie_error *error);

/* Exchanges between the ranks [first, last) of a packed map (eplb_exchange.c). */
typedef struct mox_exchange {
    const int32_t *first_slot; /* of all ranks */
    int32_t first, last;
    int32_t *expert_of; /* [slots] */
    double *slot_load;  /* [slots], exchanged together with expert_of */
    double *rank_load;  /* [ranks] */
    bool distinct;      /* no exchange may give a rank an expert twice */
} mox_exchange;
/* Gives each empty slot the replica of one of `experts` [n] that leaves the largest load of a rank lowest; a slot stays
 * empty where any would raise it. Changes counts of replicas, hence slot_load of others. loads [E]. */
void mox_exchange_fill(const mox_exchange *x, const double *loads, const int32_t *experts, int32_t n);
/* Exchanges replicas that lie twice on a rank for others of a similar load. */
void mox_exchange_duplicates(const mox_exchange *x);
/* Exchanges replicas of the rank with the largest load while that lowers it. */
void mox_exchange_largest(const mox_exchange *x);

#endif
