/* SPDX-License-Identifier: Apache-2.0
 *
 * route_token.c - one token's experts and their weights, by any method (rules in route.h):
 *
 *     logits [E] -> scores [E] -> keys [E] -> (groups) -> ids [K] -> weights [K]
 *
 * fp32 throughout, each step one IEEE operation or one libm call; sums run in index order (over experts)
 * or slot order (over choices). NaN is looked at in one place, the key: everything after it only has to
 * keep a NaN from being counted.
 *
 *     softmax         exp(x - m) / sum, m the largest
 *     sigmoid         1 / (1 + exp(-x)) for x >= 0, exp(x) / (1 + exp(x)) below: keeps tiny values
 *     sqrt(softplus)  sqrt(max(x, 0) + log1p(exp(-|x|)))
 *     norm            v / (sum + eps) and the like; a weight of 0 stays 0, over a sum of 0 too
 *
 * Sources: the routers of DeepSeek-V3 (arXiv 2412.19437), Llama 4, GPT-OSS, Mixtral and Phi-3.5-MoE
 * (sparsemixer, arXiv 2310.00811) as published with the models, and the routing methods of FlashInfer.
 */
#include "route/route.h"

#include "base/sizes.h"

/* Descending, NaN last; false for equals, so that the lower index, which comes first, stays first. */
static bool ranks_before(float a, float b)
{
    return a > b || (isnan(b) && !isnan(a));
}

/* The `count` best of keys [n], descending, ties to the lower index. */
static void select_best(const float *keys, int64_t n, int64_t count, int32_t *best)
{
    int64_t held = 0;
    for (int64_t e = 0; e < n; e++) {
        if (held == count && !ranks_before(keys[e], keys[best[count - 1]]))
            continue;
        int64_t at = held < count ? held++ : count - 1;
        for (; at > 0 && ranks_before(keys[e], keys[best[at - 1]]); at--)
            best[at] = best[at - 1];
        best[at] = (int32_t)e;
    }
}

/* ---- scores --------------------------------------------------------------------------------------- */

/* exp(x - largest); equal infinities count as a difference of 0. */
static float exp_below(float x, float largest)
{
    return x == largest ? 1.0f : expf(x - largest);
}

/* In place; NaN entries stay NaN and count for nothing. */
static void softmax(float *x, int64_t n)
{
    float largest = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++)
        if (x[i] > largest)
            largest = x[i];
    for (int64_t i = 0; i < n; i++) {
        x[i] = exp_below(x[i], largest);
        if (!isnan(x[i]))
            sum += x[i];
    }
    for (int64_t i = 0; i < n; i++)
        x[i] /= sum;
}

static void score(int32_t kind, const float *logits, int64_t experts, float *scores)
{
    for (int64_t e = 0; e < experts; e++) {
        const float x = logits[e];
        if (kind == MOXIE_SCORE_SIGMOID)
            scores[e] = mox_route_sigmoid(x);
        else if (kind == MOXIE_SCORE_SQRTSOFTPLUS)
            scores[e] = sqrtf((x < 0 ? 0 : x) + log1pf(expf(-fabsf(x))));
        else
            scores[e] = x;
    }
    if (kind == MOXIE_SCORE_SOFTMAX)
        softmax(scores, experts);
}

/* ---- selection ------------------------------------------------------------------------------------ */

/* Sum of the two largest numbers among `keys`, or the largest; of one number that number, of none NaN. */
static float group_score(int32_t kind, const float *keys, int64_t size)
{
    float first = NAN, second = NAN;
    for (int64_t i = 0; i < size; i++) {
        if (ranks_before(keys[i], first)) {
            second = first;
            first = keys[i];
        } else if (ranks_before(keys[i], second)) {
            second = keys[i];
        }
    }
    return kind == MOXIE_GROUP_MAX || isnan(second) ? first : first + second;
}

/* Fills the keys of all but the best groups. NaN stays: filled, it could be chosen. */
static void drop_groups(const moxie_routing *routing, int64_t experts, float *keys)
{
    const int64_t groups = routing->n_group, size = experts / groups;
    const float fill = routing->group_fill_zero ? 0.0f : -INFINITY;
    float group_scores[MOXIE_MAX_EXPERTS];
    int32_t best[MOXIE_MAX_EXPERTS];
    bool kept[MOXIE_MAX_EXPERTS] = { false };
    for (int64_t g = 0; g < groups; g++)
        group_scores[g] = group_score(routing->group_score, keys + g * size, size);
    select_best(group_scores, groups, routing->topk_group, best);
    for (int64_t i = 0; i < routing->topk_group; i++)
        kept[best[i]] = true;
    for (int64_t e = 0; e < experts; e++)
        if (!kept[e / size] && !isnan(keys[e]))
            keys[e] = fill;
}

static void select_topk(const moxie_routing *routing, int64_t experts, int64_t top_k, float *keys, int32_t *ids)
{
    if (routing->bias)
        for (int64_t e = 0; e < experts; e++)
            keys[e] += routing->bias[e];
    if (routing->n_group > 1)
        drop_groups(routing, experts, keys);
    select_best(keys, experts, top_k, ids);
}

static void select_from_table(const moxie_routing *routing, int64_t top_k, int32_t token_id, int32_t *ids)
{
    const bool known = token_id >= 0 && token_id < routing->table_rows;
    for (int64_t j = 0; j < top_k; j++)
        ids[j] = known ? routing->table[token_id * top_k + j] : -1;
}

/* ---- weights -------------------------------------------------------------------------------------- */

/* What each choice weighs by itself; 0 where there is no expert or its key is NaN. */
static void weigh(const moxie_routing *routing, int64_t experts, int64_t top_k, const float *logits,
                  const float *scores, const float *keys, const int32_t *ids, float *weights)
{
    for (int64_t j = 0; j < top_k; j++) {
        const int32_t e = ids[j];
        if (e < 0 || e >= experts || isnan(keys[e]))
            weights[j] = NAN;
        else if (routing->weight == MOXIE_WEIGHT_SCORE)
            weights[j] = scores[e];
        else
            weights[j] = logits[e];
    }
    if (routing->weight == MOXIE_WEIGHT_SOFTMAX_SELECTED)
        softmax(weights, top_k);
    for (int64_t j = 0; j < top_k; j++) {
        if (isnan(weights[j]))
            weights[j] = 0;
        else if (routing->weight == MOXIE_WEIGHT_SIGMOID_SELECTED)
            weights[j] = mox_route_sigmoid(weights[j]);
    }
}

/* The weight of expert `best` in a softmax over the logits within the jitter of it, `gone` (-1: none) left out. */
static float sparsemixer_weight(const float *logits, int64_t experts, float jitter, int32_t best, int32_t gone)
{
    const float largest = logits[best];
    float sum = 0;
    if (isnan(largest))
        return 0;
    for (int64_t e = 0; e < experts; e++) {
        const float z = logits[e], magnitude = fabsf(z);
        const float factor = magnitude > largest ? magnitude : largest;
        /* 0 / 0 and inf / inf are NaN and no more than the jitter: such a logit is not masked. */
        if (e != gone && !isnan(z) && !((largest - z) / factor > 2.0f * jitter))
            sum += exp_below(z, largest);
    }
    return 1.0f / sum;
}

/* Phi-3.5-MoE: each of the two has its own mask and its own softmax. */
static void sparsemixer(const moxie_routing *routing, int64_t experts, const float *logits, int32_t *ids,
                        float *weights)
{
    const float jitter = routing->jitter != 0 ? routing->jitter : 0.01f;
    select_best(logits, experts, 2, ids);
    weights[0] = sparsemixer_weight(logits, experts, jitter, ids[0], -1);
    weights[1] = sparsemixer_weight(logits, experts, jitter, ids[1], ids[0]);
}

static float denominator(const moxie_routing *routing, float sum)
{
    const float eps = routing->norm_eps != 0 ? routing->norm_eps : 1e-20f;
    switch (routing->norm) {
    case MOXIE_NORM_SUM_PLUS_EPS: return sum + eps;
    case MOXIE_NORM_SUM: return sum;
    case MOXIE_NORM_MAX_SUM_EPS: return sum > eps ? sum : eps;
    case MOXIE_NORM_SUM_OR_ONE: return sum > 0 ? sum : 1.0f;
    default: return 1.0f;
    }
}

/* Norm, scale, per-expert scale, in this order. */
static void finish(const moxie_routing *routing, int64_t experts, int64_t top_k, const int32_t *ids, float *weights)
{
    const float scale = routing->scale != 0 ? routing->scale : 1.0f;
    float sum = 0;
    for (int64_t j = 0; j < top_k; j++)
        sum += weights[j];
    const float divisor = denominator(routing, sum);
    for (int64_t j = 0; j < top_k; j++) {
        const bool exists = ids[j] >= 0 && ids[j] < experts;
        if (weights[j] != 0)
            weights[j] = weights[j] / divisor * scale;
        if (routing->per_expert_scale && exists)
            weights[j] *= routing->per_expert_scale[ids[j]];
        if (routing->round_weights_bf16)
            weights[j] = mox_round_to(MOXIE_BF16, weights[j]);
    }
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
        select_topk(routing, experts, top_k, keys, ids);
    weigh(routing, experts, top_k, logits, scores, keys, ids, weights);
}

void mox_route_token(const moxie_routing *routing, int64_t experts, int64_t top_k, const float *logits, int64_t token,
                     int32_t token_id, int32_t *ids, float *weights)
{
    float rounded[MOXIE_MAX_EXPERTS];
    if (routing->round_logits_bf16) {
        for (int64_t e = 0; e < experts; e++)
            rounded[e] = mox_round_to(MOXIE_BF16, logits[e]);
        logits = rounded;
    }
    if (routing->select == MOXIE_SELECT_SPARSEMIXER)
        sparsemixer(routing, experts, logits, ids, weights);
    else if (routing->select == MOXIE_SELECT_SIM_UNIFORM || routing->select == MOXIE_SELECT_SIM_NORMAL)
        mox_route_simulate(routing, experts, top_k, token, ids, weights);
    else
        route_by_score(routing, experts, top_k, logits, token_id, ids, weights);
    finish(routing, experts, top_k, ids, weights);
}
