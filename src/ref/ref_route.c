/* SPDX-License-Identifier: Apache-2.0
 *
 * ref_route.c - the oracle's routing, in double: scores, keys and weights of route.h. Each has a bound on how far a
 * correct fp32 evaluation may be off. (ref_route_accepts.c decides whether ids are right.)
 *
 * Bounds, u = 2^-24, exp and log1p within 4 ulp (8 u), differences and quotients u:
 *     sigmoid          (10 + |x| s(-x)) u                               + 2^-126, where a form underflows
 *     sqrt(softplus)   (20 + |x| when x < 0) u                          + 2^-74 = the root of 2^-148
 *     softmax          p_i ((2 |x_i - m| + 8) u + sum_k p_k (2 |x_k - m| + 8) u + (n + 2) u) + 2^-126
 *     norm v / D       (err v + |v / D| err D) / (|D| - err D) + u |v / D|, err D = sum err v + n u sum |v|
 *     soft cap         10 u of the capped logit (quotient, tanh within 4 ulp, product); then the slope of the score
 */
#include "ref/ref.h"

#include "base/sizes.h"
#include "ref/ref_bounds.h"
#include "ref/ref_route_order.h"

#define U 0x1p-24

/* A value and a bound on the error of its fp32 evaluation. */
typedef struct measured {
    double value, error;
} measured;

/* The logit that is scored: rounded, then capped. */
static measured scored_logit(const moxie_routing *routing, double logit)
{
    const double x = routing->round_logits_bf16 ? mox_round_to(MOXIE_BF16, (float)logit) : logit;
    if (routing->softcap == 0)
        return (measured) { x, 0 };
    const double capped = routing->softcap * tanh(x / routing->softcap);
    return (measured) { capped, fabs(capped) * MOX_REF_CAP_ERROR + 0x1p-148 };
}

static double sigmoid(double x)
{
    return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
}

static measured measured_sigmoid(measured logit)
{
    const double x = logit.value, s = sigmoid(x), bend = isinf(x) ? 0 : fabs(x) * sigmoid(-x);
    return (measured) { s, s * (10 + bend) * U + s * sigmoid(-x) * logit.error + 0x1p-126 };
}

static measured measured_sqrtsoftplus(measured logit)
{
    const double x = logit.value, root = sqrt(fmax(x, 0) + log1p(exp(-fabs(x))));
    const double bend = x < 0 && isfinite(x) ? fabs(x) : 0;
    const double slope = logit.error > 0 && root > 0 ? sigmoid(x) / (2 * root) : 0;
    return (measured) { isnan(x) ? NAN : root,
                        isinf(root) ? 0 : root * (20 + bend) * U + slope * logit.error + 0x1p-74 };
}

/* ---- softmax ------------------------------------------------------------------------------------- */

/* The softmax of x [n]; NaN does not count. With infinities it is the limit: entries equal to the largest share evenly.
 */
static void measured_softmax(const measured *x, int64_t n, measured *p)
{
    double largest = -INFINITY, slack = 0, sum = 0, spread = 0;
    for (int64_t i = 0; i < n; i++) {
        largest = fmax(largest, x[i].value);
        slack = fmax(slack, 2 * x[i].error / U);
    }
    for (int64_t i = 0; i < n; i++) {
        const double below = x[i].value == largest ? 0 : x[i].value - largest;
        p[i] = (measured) { exp(below), isinf(below) ? 0 : 2 * fabs(below) + 8 + slack };
        sum += isnan(x[i].value) ? 0 : p[i].value;
        spread += isnan(x[i].value) ? 0 : p[i].value * p[i].error;
    }
    for (int64_t i = 0; i < n; i++) {
        p[i].value /= sum;
        p[i].error = p[i].value * (p[i].error + spread / sum + (double)n + 2) * U + 0x1p-126;
    }
}

/* ---- scores and keys ----------------------------------------------------------------------------- */

static void measured_scores(const moxie_routing *routing, int64_t experts, const double *logits, measured *scores)
{
    measured x[MOXIE_MAX_EXPERTS];
    for (int64_t e = 0; e < experts; e++) {
        x[e] = scored_logit(routing, logits[e]);
        switch (routing->score) {
        case MOXIE_SCORE_SIGMOID: scores[e] = measured_sigmoid(x[e]); break;
        case MOXIE_SCORE_SQRTSOFTPLUS: scores[e] = measured_sqrtsoftplus(x[e]); break;
        default: scores[e] = x[e];
        }
    }
    if (routing->score == MOXIE_SCORE_SOFTMAX)
        measured_softmax(x, experts, scores);
}

static double bias_of(const moxie_routing *routing, int64_t e)
{
    return routing->bias ? routing->bias[e] : 0;
}

void mox_ref_route_keys(const moxie_routing *routing, int64_t experts, const double *logits, double *keys)
{
    measured scores[MOXIE_MAX_EXPERTS];
    measured_scores(routing, experts, logits, scores);
    for (int64_t e = 0; e < experts; e++)
        keys[e] = scores[e].value + bias_of(routing, e);
}

/* ---- weights ------------------------------------------------------------------------------------- */

/* Phi-3.5-MoE: the weight of `best` in a softmax over the logits near its own, without expert `gone` (-1: none). A
 * logit at the very edge of the mask may count or not. */
static measured sparsemixer_weight(const moxie_routing *routing, int64_t experts, const double *logits, int32_t best,
                                   int32_t gone)
{
    const double jitter = routing->jitter != 0 ? routing->jitter : 0.01f;
    const double m = scored_logit(routing, logits[best]).value;
    double sum = 0, error = 0;
    if (isnan(m))
        return (measured) { 0, 0 };
    for (int64_t e = 0; e < experts; e++) {
        const double z = scored_logit(routing, logits[e]).value;
        if (e == gone || isnan(z))
            continue;
        const double below = z == m ? 0 : z - m, distance = -below / fmax(fabs(z), m);
        const bool masked = distance > 2 * jitter, at_edge = fabs(distance - 2 * jitter) <= 4 * U * distance;
        sum += masked ? 0 : exp(below);
        error += at_edge ? exp(below) : masked || isinf(below) ? 0 : exp(below) * (2 * fabs(below) + 8) * U;
    }
    error += (double)experts * U * sum;
    return (measured) { 1 / sum, error / (sum * (sum - error)) + U / sum };
}

/* Sets `unknown` where fp32 may or may not drop a group, `dropped` where it does, for groups that are filled with zero
 * weights. */
static void find_dropped(const moxie_routing *routing, int64_t experts, const double *logits, bool *dropped,
                         bool *unknown)
{
    mox_ref_candidate all[MOXIE_MAX_EXPERTS];
    mox_ref_fate fates[MOXIE_MAX_EXPERTS];
    const bool any = routing->select == MOXIE_SELECT_TOPK && routing->n_group > 1 && routing->topk_per_group == 0 &&
                     routing->group_fill_zero == MOXIE_FILL_ZERO;
    if (any) {
        const mox_ref_order order = mox_ref_order_of(routing, mox_tolerance_keys(experts));
        mox_ref_candidates(routing, experts, logits, all);
        mox_ref_group_fates(routing, experts, all, &order, fates);
    }
    for (int64_t e = 0; e < experts; e++) {
        const mox_ref_fate fate = any ? fates[e / (experts / routing->n_group)] : MOX_REF_IN;
        dropped[e] = fate == MOX_REF_OUT;
        unknown[e] = fate == MOX_REF_OPEN;
    }
}

/* The chosen experts' weights before norm and scales; 0 for an id without an expert, a NaN key and a dropped group. */
static void measured_choices(const moxie_routing *routing, int64_t experts, int64_t top_k, const double *logits,
                             const int32_t *ids, measured *weights)
{
    measured scores[MOXIE_MAX_EXPERTS];
    measured chosen[MOXIE_MAX_TOP_K] = { { 0, 0 } };
    bool dropped[MOXIE_MAX_EXPERTS], unknown[MOXIE_MAX_EXPERTS];
    measured_scores(routing, experts, logits, scores);
    find_dropped(routing, experts, logits, dropped, unknown);
    for (int64_t j = 0; j < top_k; j++) {
        const int32_t e = ids[j];
        const bool exists = e >= 0 && e < experts;
        const bool counts = exists && !dropped[e] && !isnan(scores[e].value + bias_of(routing, e));
        chosen[j] = counts ? scored_logit(routing, logits[e]) : (measured) { NAN, 0 };
        weights[j] = counts ? scores[e] : (measured) { NAN, 0 };
        if (routing->weight == MOXIE_WEIGHT_SIGMOID_SELECTED)
            weights[j] = measured_sigmoid(chosen[j]);
    }
    if (routing->weight == MOXIE_WEIGHT_SOFTMAX_SELECTED)
        measured_softmax(chosen, top_k, weights);
    for (int64_t j = 0; j < top_k; j++)
        if (isnan(weights[j].value))
            weights[j] = (measured) { 0, 0 };
    for (int64_t j = 0; j < top_k; j++)
        if (ids[j] >= 0 && ids[j] < experts && unknown[ids[j]])
            weights[j].error = INFINITY;
}

/* Weights of +inf share 1 evenly, the others become 0. False when there is none, or no norm. */
static bool share_infinite(const moxie_routing *routing, int64_t top_k, measured *weights)
{
    double count = 0;
    for (int64_t j = 0; j < top_k; j++)
        count += weights[j].value == INFINITY;
    if (count == 0 || routing->norm == MOXIE_NORM_NONE)
        return false;
    for (int64_t j = 0; j < top_k; j++)
        weights[j] = weights[j].value == INFINITY ? (measured) { 1 / count, U } : (measured) { 0, 0 };
    return true;
}

/* sqrt(v^2 + ...). fp32 loses what lies below its smallest number, and has no squares above its largest. */
static measured root_squares(int64_t top_k, const measured *weights)
{
    double sum = 0, error = 0;
    for (int64_t j = 0; j < top_k; j++) {
        const double v = fabs(weights[j].value), e = weights[j].error;
        sum += v * v;
        error += (2 * v + e) * e + (double)top_k * U * v * v + 0x1p-148;
    }
    const double root = sqrt(sum), least = sum > error ? sqrt(sum - error) : 0;
    const double width = fmax(sqrt(sum + error) - root, root - least);
    return (measured) { root, sum + error < 0x1p127 ? width + 2 * U * root : INFINITY };
}

static measured denominator(const moxie_routing *routing, int64_t top_k, const measured *weights)
{
    const double eps = routing->norm_eps != 0 ? routing->norm_eps : 1e-20f;
    measured sum = { 0, 0 };
    for (int64_t j = 0; j < top_k; j++) {
        sum.value += weights[j].value;
        sum.error += weights[j].error + (double)top_k * U * fabs(weights[j].value);
    }
    switch (routing->norm) {
    case MOXIE_NORM_SUM_PLUS_EPS: return (measured) { sum.value + eps, sum.error + U * fabs(sum.value + eps) };
    case MOXIE_NORM_SUM: return sum;
    case MOXIE_NORM_MAX_SUM_EPS: return (measured) { fmax(sum.value, eps), sum.error };
    case MOXIE_NORM_SUM_OR_ONE:
        /* When fp32 may get the other sign of the sum, no bound holds. */
        if (sum.error > 0 && fabs(sum.value) <= sum.error)
            return (measured) { 1, INFINITY };
        return sum.value > 0 ? sum : (measured) { 1, 0 };
    case MOXIE_NORM_ROOT_SQUARES: return root_squares(top_k, weights);
    default: return (measured) { 1, 0 };
    }
}

/* v / d * factor. 0 stays 0. */
static measured divided(measured v, measured d, double factor)
{
    if (v.value == 0 && v.error == 0)
        return v;
    const double quotient = v.value == 0 ? 0 : v.value / d.value;
    if (d.value != 1 || d.error != 0)
        v.error = d.error < fabs(d.value) ? (v.error + fabs(quotient) * d.error) / (fabs(d.value) - d.error) : INFINITY;
    return (measured) { quotient * factor, (v.error + 4 * U * fabs(quotient)) * fabs(factor) + 0x1p-148 };
}

/* The weights of `ids`, with bounds. */
static void measured_weights(const moxie_routing *routing, int64_t experts, int64_t top_k, const double *logits,
                             const int32_t *ids, measured *weights)
{
    if (routing->select == MOXIE_SELECT_SPARSEMIXER) {
        weights[0] = sparsemixer_weight(routing, experts, logits, ids[0], -1);
        weights[1] = sparsemixer_weight(routing, experts, logits, ids[1], ids[0]);
    } else {
        measured_choices(routing, experts, top_k, logits, ids, weights);
    }
    const bool shared = share_infinite(routing, top_k, weights);
    const measured d = shared ? (measured) { 1, 0 } : denominator(routing, top_k, weights);
    for (int64_t j = 0; j < top_k; j++) {
        const bool exists = ids[j] >= 0 && ids[j] < experts;
        const double scale = routing->scale != 0 ? routing->scale : 1;
        const double own = routing->per_expert_scale && exists ? routing->per_expert_scale[ids[j]] : 1;
        weights[j] = divided(weights[j], d, scale * own);
    }
}

void mox_ref_route_weights(const moxie_routing *routing, int64_t experts, int64_t top_k, const double *logits,
                           const int32_t *ids, double *weights)
{
    measured found[MOXIE_MAX_TOP_K];
    measured_weights(routing, experts, top_k, logits, ids, found);
    for (int64_t j = 0; j < top_k; j++)
        weights[j] = found[j].value;
}

void mox_ref_route_weight_bounds(const moxie_routing *routing, int64_t experts, int64_t top_k, const double *logits,
                                 const int32_t *ids, double *bounds)
{
    measured found[MOXIE_MAX_TOP_K];
    measured_weights(routing, experts, top_k, logits, ids, found);
    for (int64_t j = 0; j < top_k; j++) {
        bounds[j] = found[j].error;
        if (routing->round_weights_bf16)
            bounds[j] += mox_bound_round(MOXIE_BF16, fabs(found[j].value) + found[j].error);
    }
}
