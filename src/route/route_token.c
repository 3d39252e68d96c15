/* SPDX-License-Identifier: Apache-2.0
 *
 * route_token.c - one token's experts and their weights, by any method (rules in route.h):
 *
 *     logits [E] -> scores [E] -> keys [E] -> (groups) -> ids [K] -> weights [K]
 *
 * The arithmetic is in route_rules.h, which the CUDA kernel compiles, too.
 *
 * Sources: the routers of DeepSeek-V3 (arXiv 2412.19437), Llama 4, GPT-OSS, Mixtral and Phi-3.5-MoE
 * (sparsemixer, arXiv 2310.00811) as published with the models, and the routing methods of FlashInfer.
 */
#include "route/route.h"

#include "base/sizes.h"
#include "route/route_rules.h"

/* ---- scores --------------------------------------------------------------------------------------- */

static void score(int32_t kind, const float *logits, int64_t experts, float *scores)
{
    for (int64_t e = 0; e < experts; e++)
        scores[e] = mox_route_score(kind, logits[e]);
    if (kind == MOXIE_SCORE_SOFTMAX)
        mox_route_softmax(scores, experts);
}

/* ---- selection ------------------------------------------------------------------------------------ */

/* Replaces the keys outside the best groups. */
static void drop_groups(const moxie_routing *routing, int64_t experts, float *keys, float *scores)
{
    const int64_t groups = routing->n_group, size = experts / groups;
    float group_scores[MOXIE_MAX_EXPERTS];
    int32_t best[MOXIE_MAX_EXPERTS];
    bool in_best[MOXIE_MAX_EXPERTS] = { false };
    for (int64_t g = 0; g < groups; g++)
        group_scores[g] = mox_route_group_score(routing->group_score, keys + g * size, size);
    mox_route_select_best(group_scores, groups, routing->topk_group, best);
    for (int64_t i = 0; i < routing->topk_group; i++)
        in_best[best[i]] = true;
    for (int64_t e = 0; e < experts; e++)
        if (!in_best[e / size])
            mox_route_drop(routing, &keys[e], &scores[e]);
}

/* The best of each group, group after group. */
static void select_per_group(const moxie_routing *routing, int64_t experts, const float *keys, int32_t *ids)
{
    const int64_t groups = routing->n_group, size = experts / groups, count = routing->topk_per_group;
    for (int64_t g = 0; g < groups; g++) {
        mox_route_select_best(keys + g * size, size, count, ids + g * count);
        for (int64_t j = 0; j < count; j++)
            ids[g * count + j] += (int32_t)(g * size);
    }
}

static void select_topk(const moxie_routing *routing, int64_t experts, int64_t top_k, float *keys, float *scores,
                        int32_t *ids)
{
    if (routing->bias)
        for (int64_t e = 0; e < experts; e++)
            keys[e] += routing->bias[e];
    if (routing->topk_per_group > 0) {
        select_per_group(routing, experts, keys, ids);
        return;
    }
    if (routing->n_group > 1)
        drop_groups(routing, experts, keys, scores);
    mox_route_select_best(keys, experts, top_k, ids);
}

static void select_from_table(const moxie_routing *routing, int64_t top_k, int32_t token_id, int32_t *ids)
{
    const bool known = token_id >= 0 && token_id < routing->table_rows;
    for (int64_t j = 0; j < top_k; j++)
        ids[j] = known ? routing->table[token_id * top_k + j] : -1;
}

/* Phi-3.5-MoE: each of the two has its own mask and its own softmax. */
static void sparsemixer(const moxie_routing *routing, int64_t experts, const float *logits, int32_t *ids,
                        float *weights)
{
    const float jitter = routing->jitter != 0 ? routing->jitter : 0.01f;
    mox_route_select_best(logits, experts, 2, ids);
    weights[0] = mox_route_sparsemixer_weight(logits, experts, jitter, ids[0], -1);
    weights[1] = mox_route_sparsemixer_weight(logits, experts, jitter, ids[1], ids[0]);
}

/* ---- one token ------------------------------------------------------------------------------------ */

/* Selections that read scores. */
static void route_by_score(const moxie_routing *routing, int64_t experts, int64_t top_k, const float *logits,
                           int32_t token_id, int32_t *ids, float *weights)
{
    float scores[MOXIE_MAX_EXPERTS], keys[MOXIE_MAX_EXPERTS];
    score(routing->score, logits, experts, scores);
    memcpy(keys, scores, (size_t)experts * sizeof *keys);
    if (routing->select == MOXIE_SELECT_TABLE)
        select_from_table(routing, top_k, token_id, ids);
    else
        select_topk(routing, experts, top_k, keys, scores, ids);
    mox_route_weigh(routing, experts, top_k, logits, scores, keys, ids, weights);
}

void mox_route_token(const moxie_routing *routing, int64_t experts, int64_t top_k, const float *logits, int64_t token,
                     int32_t token_id, int32_t *ids, float *weights)
{
    float rounded[MOXIE_MAX_EXPERTS];
    if (routing->round_logits_bf16 || routing->softcap != 0) {
        for (int64_t e = 0; e < experts; e++)
            rounded[e] = mox_route_logit(routing, logits[e]);
        logits = rounded;
    }
    if (routing->select == MOXIE_SELECT_SPARSEMIXER)
        sparsemixer(routing, experts, logits, ids, weights);
    else if (routing->select == MOXIE_SELECT_SIM_UNIFORM || routing->select == MOXIE_SELECT_SIM_NORMAL)
        mox_route_simulate(routing, experts, top_k, token, ids, weights);
    else
        route_by_score(routing, experts, top_k, logits, token_id, ids, weights);
    mox_route_finish(routing, experts, top_k, ids, weights);
}
