/* SPDX-License-Identifier: Apache-2.0
 *
 * ref_route_order.h - the order of experts and groups by their keys, as far as fp32 can tell it (ref_route_order.c).
 *
 * In the flow: candidates [E] -> fates of groups -> ref_route_accepts.c (which ids are right), ref_route.c (which
 * chosen experts are of dropped groups).
 */
#ifndef MOX_REF_REF_ROUTE_ORDER_H
#define MOX_REF_REF_ROUTE_ORDER_H

#include "ref/ref.h"

typedef struct mox_ref_candidate {
    double key, score, bias;
} mox_ref_candidate;

/* Keys are close when they differ by at most tolerance (|score| + |bias| of both) + floor. */
typedef struct mox_ref_order {
    double tolerance, floor;
} mox_ref_order;

/* `tolerance`: of keys in general; a soft cap adds its own. Keys that are exact in fp32 have none. */
mox_ref_order mox_ref_order_of(const moxie_routing *routing, double tolerance);
/* Every expert before groups: [E]. */
void mox_ref_candidates(const moxie_routing *routing, int64_t experts, const double *logits, mox_ref_candidate *all);
/* True when candidate a (index ia) may precede b (index ib). */
bool mox_ref_may_precede(const mox_ref_order *order, const mox_ref_candidate *a, int64_t ia, const mox_ref_candidate *b,
                         int64_t ib);

/* A group is in when fewer than topk_group others may precede it, out when at least as many certainly do. */
typedef enum mox_ref_fate { MOX_REF_OUT, MOX_REF_IN, MOX_REF_OPEN } mox_ref_fate;
/* The fates of all n_group groups. */
void mox_ref_group_fates(const moxie_routing *routing, int64_t experts, const mox_ref_candidate *all,
                         const mox_ref_order *order, mox_ref_fate *fates);

#endif
