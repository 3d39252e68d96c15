/* SPDX-License-Identifier: Apache-2.0
 *
 * route_rules.h - the arithmetic of routing (rules in route.h), compiled by host and device: the order of keys, scores,
 * and weights of choices. In fp32, each step one IEEE operation; sums run in index order (over experts) or in slot
 * order (over choices). Only a key decides about NaN: later steps just leave NaN out of their sums.
 *
 *     softmax         exp(x - m) / sum, m the largest
 *     sigmoid         1 / (1 + exp(-x)) for x >= 0, exp(x) / (1 + exp(x)) below: keeps tiny values
 *     sqrt(softplus)  sqrt(max(x, 0) + log1p(exp(-|x|)))
 *     norm            v / (sum + eps) and the like; a weight of 0 stays 0, over a sum of 0 too; weights of +inf share 1
 *                     evenly, the limit of v / sum, and leave 0 for the others
 *     soft cap        cap tanh(x / cap), after the rounding to bf16
 */
#ifndef MOX_ROUTE_ROUTE_RULES_H
#define MOX_ROUTE_ROUTE_RULES_H

#include <math.h>
#include <stdbool.h>

#include <moxie/moxie.h>

#include "base/shared_math.h"
#include "format/bf16.h"

MOX_SHARED float mox_route_round_bf16(float x)
{
    return mox_bf16_decode(mox_bf16_narrow(x));
}

/* The logit that is scored. */
MOX_SHARED float mox_route_logit(const moxie_routing *routing, float x)
{
    if (routing->round_logits_bf16)
        x = mox_route_round_bf16(x);
    return routing->softcap != 0 ? routing->softcap * mox_tanh(x / routing->softcap) : x;
}

/* The routing of tokens that a run gives the second bias: they choose by key, beside a table, too. */
MOX_SHARED moxie_routing mox_route_with_bias_alt(const moxie_routing *routing)
{
    moxie_routing other = *routing;
    other.bias = routing->bias_alt;
    if (other.select == MOXIE_SELECT_TABLE)
        other.select = MOXIE_SELECT_TOPK;
    return other;
}

/* A token without experts. */
MOX_SHARED void mox_route_nothing(int64_t top_k, int32_t *ids, float *weights)
{
    for (int64_t j = 0; j < top_k; j++) {
        ids[j] = -1;
        weights[j] = 0;
    }
}

/* True when a comes before b: descending, NaN last. False for equal keys, so that the lower index, which is met first,
 * stays first. */
MOX_SHARED bool mox_route_ranks_before(float a, float b)
{
    return a > b || (isnan(b) && !isnan(a));
}

/* The `count` best of keys [n], descending, ties to the lower index. */
MOX_SHARED void mox_route_select_best(const float *keys, int64_t n, int64_t count, int32_t *best)
{
    int64_t found = 0;
    for (int64_t e = 0; e < n; e++) {
        if (found == count && !mox_route_ranks_before(keys[e], keys[best[count - 1]]))
            continue;
        int64_t at = found < count ? found++ : count - 1;
        for (; at > 0 && mox_route_ranks_before(keys[e], keys[best[at - 1]]); at--)
            best[at] = best[at - 1];
        best[at] = (int32_t)e;
    }
}

/* ---- scores --------------------------------------------------------------------------------------- */

/* 1 / (1 + e^-x), never through an overflow. */
MOX_SHARED float mox_route_sigmoid(float x)
{
    const float e = mox_exp(-fabsf(x));
    return x >= 0 ? 1.0f / (1.0f + e) : e / (1.0f + e);
}

/* The score of one logit. A softmax is applied to all of them afterwards. */
MOX_SHARED float mox_route_score(int32_t kind, float x)
{
    if (kind == MOXIE_SCORE_SIGMOID)
        return mox_route_sigmoid(x);
    if (kind == MOXIE_SCORE_SQRTSOFTPLUS)
        return sqrtf((x < 0 ? 0 : x) + mox_log1p(mox_exp(-fabsf(x))));
    return x;
}

/* exp(x - largest); equal infinities count as a difference of 0. */
MOX_SHARED float mox_route_exp_below(float x, float largest)
{
    return x == largest ? 1.0f : mox_exp(x - largest);
}

/* In place. NaN entries stay NaN, and the sum leaves them out. */
MOX_SHARED void mox_route_softmax(float *x, int64_t n)
{
    float largest = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++)
        if (x[i] > largest)
            largest = x[i];
    for (int64_t i = 0; i < n; i++) {
        x[i] = mox_route_exp_below(x[i], largest);
        if (!isnan(x[i]))
            sum += x[i];
    }
    for (int64_t i = 0; i < n; i++)
        x[i] /= sum;
}

/* ---- selection ------------------------------------------------------------------------------------ */

/* The largest number among `keys`, or the sum of the two largest. With one number: that number; with none: NaN. */
MOX_SHARED float mox_route_group_score(int32_t kind, const float *keys, int64_t size)
{
    float first = NAN, second = NAN;
    for (int64_t i = 0; i < size; i++) {
        if (mox_route_ranks_before(keys[i], first)) {
            second = first;
            first = keys[i];
        } else if (mox_route_ranks_before(keys[i], second)) {
            second = keys[i];
        }
    }
    return kind == MOXIE_GROUP_MAX || isnan(second) ? first : first + second;
}

/* An expert of a dropped group: its key becomes the fill value, but a NaN key stays, since a replaced one could be
 * chosen. A score that is masked as NaN gives the weight 0. */
MOX_SHARED void mox_route_drop(const moxie_routing *routing, float *key, float *score)
{
    if (isnan(*key))
        return;
    *key = routing->group_fill_zero != MOXIE_FILL_LOWEST ? 0.0f : -INFINITY;
    if (routing->group_fill_zero == MOXIE_FILL_ZERO)
        *score = NAN;
}

/* ---- weights -------------------------------------------------------------------------------------- */

/* Each choice's weight before norm and scales; 0 when there is no such expert, its key is NaN or its score masked. */
MOX_SHARED void mox_route_weigh(const moxie_routing *routing, int64_t experts, int64_t top_k, const float *logits,
                                const float *scores, const float *keys, const int32_t *ids, float *weights)
{
    for (int64_t j = 0; j < top_k; j++) {
        const int32_t e = ids[j];
        if (e < 0 || e >= experts || isnan(keys[e]) || isnan(scores[e]))
            weights[j] = NAN;
        else if (routing->weight == MOXIE_WEIGHT_SCORE)
            weights[j] = scores[e];
        else
            weights[j] = logits[e];
    }
    if (routing->weight == MOXIE_WEIGHT_SOFTMAX_SELECTED)
        mox_route_softmax(weights, top_k);
    for (int64_t j = 0; j < top_k; j++) {
        if (isnan(weights[j]))
            weights[j] = 0;
        else if (routing->weight == MOXIE_WEIGHT_SIGMOID_SELECTED)
            weights[j] = mox_route_sigmoid(weights[j]);
    }
}

/* The weight of expert `best` in a softmax over the logits within the jitter of best's logit. Expert `gone` (-1: none)
 * is left out. */
MOX_SHARED float mox_route_sparsemixer_weight(const float *logits, int64_t experts, float jitter, int32_t best,
                                              int32_t gone)
{
    const float largest = logits[best];
    float sum = 0;
    if (isnan(largest))
        return 0;
    for (int64_t e = 0; e < experts; e++) {
        const float z = logits[e], magnitude = fabsf(z);
        const float factor = magnitude > largest ? magnitude : largest;
        /* 0 / 0 and inf / inf are NaN, which does not exceed the jitter: such a logit is not masked. */
        if (e != gone && !isnan(z) && !((largest - z) / factor > 2.0f * jitter))
            sum += mox_route_exp_below(z, largest);
    }
    return 1.0f / sum;
}

/* The root of the sum of squares. Each step is one fused multiply-add, so that every compiler gives the same bits. */
MOX_SHARED float mox_route_root_squares(int64_t top_k, const float *weights)
{
    float sum = 0;
    for (int64_t j = 0; j < top_k; j++)
        sum = fmaf(weights[j], weights[j], sum);
    return sqrtf(sum);
}

MOX_SHARED float mox_route_denominator(const moxie_routing *routing, int64_t top_k, const float *weights, float sum)
{
    const float eps = routing->norm_eps != 0 ? routing->norm_eps : 1e-20f;
    switch (routing->norm) {
    case MOXIE_NORM_SUM_PLUS_EPS: return sum + eps;
    case MOXIE_NORM_SUM: return sum;
    case MOXIE_NORM_MAX_SUM_EPS: return sum > eps ? sum : eps;
    case MOXIE_NORM_SUM_OR_ONE: return sum > 0 ? sum : 1.0f;
    case MOXIE_NORM_ROOT_SQUARES: return mox_route_root_squares(top_k, weights);
    default: return 1.0f;
    }
}

/* Weights of +inf share 1, the others become 0. False when there is none. */
MOX_SHARED bool mox_route_share_infinite(int64_t top_k, float *weights)
{
    int32_t count = 0;
    for (int64_t j = 0; j < top_k; j++)
        count += weights[j] == INFINITY;
    for (int64_t j = 0; j < top_k && count > 0; j++)
        weights[j] = weights[j] == INFINITY ? 1.0f / (float)count : 0.0f;
    return count > 0;
}

/* Norm, scale, per-expert scale, in this order. */
MOX_SHARED void mox_route_finish(const moxie_routing *routing, int64_t experts, int64_t top_k, const int32_t *ids,
                                 float *weights)
{
    const float scale = routing->scale != 0 ? routing->scale : 1.0f;
    float sum = 0;
    for (int64_t j = 0; j < top_k; j++)
        sum += weights[j];
    float divisor = mox_route_denominator(routing, top_k, weights, sum);
    if (!(sum < INFINITY) && routing->norm != MOXIE_NORM_NONE && mox_route_share_infinite(top_k, weights))
        divisor = 1.0f;
    for (int64_t j = 0; j < top_k; j++) {
        const bool exists = ids[j] >= 0 && ids[j] < experts;
        if (weights[j] != 0)
            weights[j] = weights[j] / divisor * scale;
        if (routing->per_expert_scale && exists)
            weights[j] *= routing->per_expert_scale[ids[j]];
        if (routing->round_weights_bf16)
            weights[j] = mox_route_round_bf16(weights[j]);
    }
}

#endif
