/* SPDX-License-Identifier: Apache-2.0
 *
 * simulate.c - choices for benchmarks, on the host (simulate_rules.h).
 */
#include "route/route.h"
#include "route/simulate_rules.h"

void mox_route_simulate(const moxie_routing *routing, int64_t experts, int64_t top_k, int64_t token, int32_t *ids,
                        float *weights)
{
    mox_route_simulate_choice(routing, experts, top_k, token, ids, weights);
}
