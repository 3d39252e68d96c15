/* SPDX-License-Identifier: Apache-2.0
 *
 * plain_route.c - the experts of a token and their weights, as a model's code defines them, in double precision.
 *
 *     logits = router . x (+ bias) * factor    scores = softmax, sigmoid or sqrt(softplus) of them
 *     keys = scores + correction               groups: those with the best keys stay
 *     the K best keys of what stays, or the table's experts      weights by score, norm, scale
 *
 * Source: model code of transformers; of vLLM where transformers has none.
 */
#include <math.h>

#include "plain_checkpoint.h"
#include "plain_weight.h"

double plain_router_hidden(const plain_case *c, int t, int h)
{
    return c->latent ? plain_value(PLAIN_NONE, 1, t, h) * 4 : plain_hidden(t, h);
}

int plain_token(int t)
{
    return t * 7 % PLAIN_VOCAB;
}

bool plain_is_image(int t)
{
    return t % 3 == 1;
}

int plain_listed(int token, int k)
{
    const int first = (int)((plain_hash(PLAIN_CORRECTION, 1, token, 0) >> 20) % PLAIN_E);
    return (first + k * (1 + token % 3)) % PLAIN_E;
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* softmax over those of v [E] that are chosen */
static void softmax(const double *v, const bool *chosen, double *out)
{
    double sum = 0, max = -INFINITY;
    for (int e = 0; e < PLAIN_E; e++)
        max = chosen[e] && v[e] > max ? v[e] : max;
    for (int e = 0; e < PLAIN_E; e++)
        sum += out[e] = chosen[e] ? exp(v[e] - max) : 0;
    for (int e = 0; e < PLAIN_E; e++)
        out[e] /= sum;
}

static int best(const double *v, const bool *left)
{
    int at = -1;
    for (int e = 0; e < PLAIN_E; e++)
        if (left[e] && (at < 0 || v[e] > v[at]))
            at = e;
    return at;
}

/* Takes experts of all but the best groups out of `left`. */
static void keep_groups(const plain_rules *r, const double *keys, bool *left)
{
    const int size = PLAIN_E / r->groups;
    bool kept[PLAIN_E] = { false };
    for (int k = 0; k < r->kept_groups; k++) {
        int at = -1;
        double at_score = 0;
        for (int g = 0; g < r->groups; g++) {
            bool mine[PLAIN_E] = { false };
            for (int e = 0; e < size; e++)
                mine[g * size + e] = true;
            const int first = best(keys, mine);
            double score = keys[first];
            mine[first] = false;
            if (r->group_by_two)
                score += keys[best(keys, mine)];
            if (!kept[g] && (at < 0 || score > at_score))
                at = g, at_score = score;
        }
        kept[at] = true;
    }
    for (int e = 0; e < PLAIN_E; e++)
        left[e] = kept[e / size];
}

/* Phi: the weight of the best logit that is left is its share among those near it:
 * (max - l) / max(|l|, max) <= 2 jitter */
static double sparsemixer(const double *logits, const bool *left, int chosen)
{
    double shares[PLAIN_E];
    bool near[PLAIN_E];
    const double max = logits[chosen];
    for (int e = 0; e < PLAIN_E; e++)
        near[e] = left[e] && (max - logits[e]) / fmax(fabs(logits[e]), max) <= 2 * 0.01;
    softmax(logits, near, shares);
    return shares[chosen];
}

static void score_all(const plain_rules *r, const double *logits, double *scores)
{
    static const bool all[PLAIN_E] = { true, true, true, true, true, true, true, true };
    if (r->score == PLAIN_SOFTMAX)
        softmax(logits, all, scores);
    for (int e = 0; e < PLAIN_E && r->score != PLAIN_SOFTMAX; e++)
        scores[e] = r->score == PLAIN_SIGMOID        ? sigmoid(logits[e])
                    : r->score == PLAIN_SQRTSOFTPLUS ? sqrt(log1p(exp(logits[e])))
                                                     : logits[e];
}

static double router_input(const plain_case *c, int t, int h)
{
    const int width = plain_h(c);
    double squares = 0;
    if (!c->names.router_scale)
        return plain_router_hidden(c, t, h);
    for (int i = 0; i < width; i++)
        squares += plain_router_hidden(c, t, i) * plain_router_hidden(c, t, i);
    return plain_router_hidden(c, t, h) / sqrt(squares / width + 1e-6) * plain_value(PLAIN_ROUTER_SCALE, 0, h, 0) /
           sqrt(width);
}

static double logit(const plain_case *c, int t, int e)
{
    const double cap = c->rules.cap;
    double sum = c->names.router_bias ? plain_value(PLAIN_ROUTER_BIAS, 0, e, 0) : 0;
    for (int h = 0; h < plain_h(c); h++)
        sum += plain_value(PLAIN_ROUTER, 0, e, h) * router_input(c, t, h);
    sum *= c->rules.factor != 0 ? c->rules.factor : 1;
    return cap > 0 ? cap * tanh(sum / cap) : sum;
}

static double correction(const plain_case *c, int t, int e)
{
    if (c->names.correction_alt && plain_is_image(t))
        return plain_value(PLAIN_CORRECTION_ALT, 0, e, 0);
    return c->names.correction ? plain_value(PLAIN_CORRECTION, 0, e, 0) : 0;
}

void plain_route(const plain_case *c, int t, double *weights)
{
    const plain_rules *r = &c->rules;
    double logits[PLAIN_E], scores[PLAIN_E], keys[PLAIN_E], sum = 0;
    bool left[PLAIN_E], chosen[PLAIN_E] = { false };
    for (int e = 0; e < PLAIN_E; e++) {
        logits[e] = logit(c, t, e);
        left[e] = true;
        weights[e] = 0;
    }
    score_all(r, logits, scores);
    for (int e = 0; e < PLAIN_E; e++)
        keys[e] = scores[e] + correction(c, t, e);
    if (r->groups > 1)
        keep_groups(r, keys, left);
    for (int k = 0; k < PLAIN_K; k++) {
        const int e = c->names.table ? plain_listed(plain_token(t), k) : best(keys, left);
        if (r->weight == PLAIN_BY_SIGMOID_CHOSEN || r->weight == PLAIN_BY_SIGMOID)
            weights[e] = sigmoid(logits[e]);
        else
            weights[e] = r->weight == PLAIN_BY_SPARSEMIXER ? sparsemixer(logits, left, e) : scores[e];
        chosen[e] = true;
        left[e] = false;
    }
    if (r->weight == PLAIN_BY_SOFTMAX_CHOSEN)
        softmax(logits, chosen, weights);
    for (int e = 0; e < PLAIN_E; e++)
        sum += weights[e];
    for (int e = 0; e < PLAIN_E; e++)
        weights[e] *= (r->scale != 0 ? r->scale : 1) / (r->norm ? fmax(sum, r->norm_floor) : 1);
    for (int e = 0; c->names.expert_scale && e < PLAIN_E; e++)
        weights[e] *= plain_value(PLAIN_EXPERT_SCALE, 0, e, 0);
}
