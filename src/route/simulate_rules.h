/* SPDX-License-Identifier: Apache-2.0
 *
 * simulate_rules.h - random choices for benchmarks, which do not depend on logits.
 *
 *     uniform   id = floor(u E), with replacement;             weight 1
 *     normal    id = floor(sigmoid(n) E), at most E - 1;       weight |n'| / sum over the slots
 *
 * The numbers are counter-based: draw `lane` of slot j of token t is output number (t 32 + j) 4 + lane + 1 of
 * splitmix64 (Steele, Lea and Flood, OOPSLA 2014) started at mix(seed). So a choice depends only on seed, token and
 * slot, not on the batch, the threads or K. Normal numbers are Box-Muller's, in double, so that differences between
 * math libraries do not change ids. Source: vLLM's routing simulator (strategies uniform_random and normal_routing).
 */
#ifndef MOX_ROUTE_SIMULATE_RULES_H
#define MOX_ROUTE_SIMULATE_RULES_H

#include <math.h>

#include <moxie/moxie.h>

#include "base/shared.h"

#define MOX_SIMULATE_GOLDEN 0x9e3779b97f4a7c15u /* 2^64 / golden ratio: splitmix64's step */
#define MOX_SIMULATE_LANES  4

MOX_SHARED uint64_t mox_simulate_mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

MOX_SHARED uint64_t mox_simulate_draw(uint64_t seed, int64_t token, int64_t slot, uint64_t lane)
{
    const uint64_t counter = ((uint64_t)token * MOXIE_MAX_TOP_K + (uint64_t)slot) * MOX_SIMULATE_LANES + lane;
    return mox_simulate_mix(mox_simulate_mix(seed) + MOX_SIMULATE_GOLDEN * (counter + 1));
}

/* Strictly between 0 and 1: the middle of one of 2^52 equal steps. */
MOX_SHARED double mox_simulate_open_unit(uint64_t bits)
{
    return ((double)(bits >> 12) + 0.5) * 0x1p-52;
}

MOX_SHARED double mox_simulate_normal_number(uint64_t seed, int64_t token, int64_t slot, uint64_t lane)
{
    const double turn = 6.283185307179586 * mox_simulate_open_unit(mox_simulate_draw(seed, token, slot, lane + 1));
    return sqrt(-2.0 * log(mox_simulate_open_unit(mox_simulate_draw(seed, token, slot, lane)))) * cos(turn);
}

MOX_SHARED void mox_simulate_uniform(const moxie_routing *routing, int64_t experts, int64_t top_k, int64_t token,
                                     int32_t *ids, float *weights)
{
    for (int64_t j = 0; j < top_k; j++) {
        ids[j] = (int32_t)((mox_simulate_draw(routing->seed, token, j, 0) >> 32) * (uint64_t)experts >> 32);
        weights[j] = 1.0f;
    }
}

MOX_SHARED void mox_simulate_normal(const moxie_routing *routing, int64_t experts, int64_t top_k, int64_t token,
                                    int32_t *ids, float *weights)
{
    float sum = 0;
    for (int64_t j = 0; j < top_k; j++) {
        const double place = (double)experts / (1.0 + exp(-mox_simulate_normal_number(routing->seed, token, j, 0)));
        ids[j] = (int32_t)fmin(floor(place), (double)experts - 1.0);
        weights[j] = (float)fabs(mox_simulate_normal_number(routing->seed, token, j, 2));
        sum += weights[j];
    }
    for (int64_t j = 0; j < top_k; j++)
        weights[j] /= sum;
}

MOX_SHARED void mox_route_simulate_choice(const moxie_routing *routing, int64_t experts, int64_t top_k, int64_t token,
                                          int32_t *ids, float *weights)
{
    if (routing->select == MOXIE_SELECT_SIM_UNIFORM)
        mox_simulate_uniform(routing, experts, top_k, token, ids, weights);
    else
        mox_simulate_normal(routing, experts, top_k, token, ids, weights);
}

#endif
