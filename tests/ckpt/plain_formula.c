/* SPDX-License-Identifier: Apache-2.0
 *
 * plain_formula.c - the result of a case's layer, as its model's code defines it, one number after the other in double
 * precision.
 *
 *     logits = router . x (+ bias)    scores = softmax, sigmoid or sqrt(softplus) of them    keys = scores + correction
 *     groups: those with the best keys stay      K best keys of what stays      weights by score, norm, scale
 *     y = sum_j weight_j expert_j(x) + shared(x)
 *
 * Source: model code of transformers.
 */
#include <math.h>
#include <string.h>

#include "plain_checkpoint.h"
#include "plain_format.h"
#include "plain_weight.h"

uint64_t plain_hash(int role, int expert, int r, int c)
{
    uint64_t x = ((uint64_t)role << 48) + ((uint64_t)expert << 32) + ((uint64_t)r << 16) + (uint64_t)c + 1;
    for (int i = 0; i < 3; i++) {
        x *= UINT64_C(0x9e3779b97f4a7c15);
        x ^= x >> 29;
    }
    return x;
}

double plain_value(plain_role role, int expert, int r, int c)
{
    const double k = (double)(plain_hash((int)role, expert, r, c) % 201) - 100;
    return (role == PLAIN_CORRECTION ? fabs(k) : k) / 256;
}

static double weight_of(const plain_case *c, plain_role role, int e, int row, int col)
{
    return c->format ? plain_decoded(c->format, role, e, row, col) : plain_value(role, e, row, col);
}

double plain_hidden(int t, int h)
{
    return plain_value(PLAIN_NONE, 0, t, h) * 4;
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
    double squares = 0;
    if (!c->names.router_scale)
        return plain_hidden(t, h);
    for (int i = 0; i < PLAIN_H; i++)
        squares += plain_hidden(t, i) * plain_hidden(t, i);
    return plain_hidden(t, h) / sqrt(squares / PLAIN_H + 1e-6) * plain_value(PLAIN_ROUTER_SCALE, 0, h, 0) /
           sqrt(PLAIN_H);
}

/* weights [E]: 0 for those not chosen */
static void route(const plain_case *c, int t, double *weights)
{
    const plain_rules *r = &c->rules;
    double logits[PLAIN_E], scores[PLAIN_E], keys[PLAIN_E], sum = 0;
    bool left[PLAIN_E], chosen[PLAIN_E] = { false };
    for (int e = 0; e < PLAIN_E; e++) {
        logits[e] = c->names.router_bias ? plain_value(PLAIN_ROUTER_BIAS, 0, e, 0) : 0;
        for (int h = 0; h < PLAIN_H; h++)
            logits[e] += plain_value(PLAIN_ROUTER, 0, e, h) * router_input(c, t, h);
        logits[e] = r->cap > 0 ? r->cap * tanh(logits[e] / r->cap) : logits[e];
        left[e] = true;
        weights[e] = 0;
    }
    score_all(r, logits, scores);
    for (int e = 0; e < PLAIN_E; e++)
        keys[e] = scores[e] + (c->names.correction ? plain_value(PLAIN_CORRECTION, 0, e, 0) : 0);
    if (r->groups > 1)
        keep_groups(r, keys, left);
    for (int k = 0; k < PLAIN_K; k++) {
        const int e = best(keys, left);
        weights[e] = r->weight == PLAIN_BY_SIGMOID_CHOSEN ? sigmoid(logits[e])
                     : r->weight == PLAIN_BY_SPARSEMIXER  ? sparsemixer(logits, left, e)
                                                          : scores[e];
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

static double activation(const plain_rules *r, double g, double u)
{
    const double limit = r->limit > 0 ? r->limit : INFINITY;
    if (r->act == PLAIN_RELU2)
        return u > 0 ? u * u : 0;
    if (r->act == PLAIN_GELU)
        return 0.5 * g * (1 + tanh(0.7978845608028654 * (g + 0.044715 * g * g * g))) * u;
    if (r->act == PLAIN_STEP)
        return fmin(g * sigmoid(g), limit) * fmin(fmax(u, -limit), limit);
    g = fmin(g, limit);
    u = fmin(fmax(u, -limit), limit);
    return r->act == PLAIN_OAI ? g * sigmoid(r->alpha * g) * (u + 1) : g * sigmoid(g) * u;
}

/* out += weight * expert(factor * x); roles: gate, up, down, and their biases or PLAIN_NONE */
static void expert(const plain_case *c, const plain_role *roles, int e, int width, int t, double factor, double weight,
                   double *out)
{
    double middle[2 * PLAIN_I];
    for (int i = 0; i < width; i++) {
        double g = roles[3] ? plain_value(roles[3], e, i, 0) : 0, u = roles[4] ? plain_value(roles[4], e, i, 0) : 0;
        for (int h = 0; h < PLAIN_H; h++) {
            g += weight_of(c, roles[0], e, i, h) * plain_hidden(t, h) * factor;
            u += weight_of(c, roles[1], e, i, h) * plain_hidden(t, h) * factor;
        }
        middle[i] = activation(&c->rules, g, u);
    }
    for (int h = 0; h < PLAIN_H; h++) {
        double y = roles[5] ? plain_value(roles[5], e, h, 0) : 0;
        for (int i = 0; i < width; i++)
            y += weight_of(c, roles[2], e, h, i) * middle[i];
        out[h] += weight * y;
    }
}

void plain_output(const plain_case *c, double *out)
{
    static const plain_role shared[6] = { PLAIN_SHARED_GATE, PLAIN_SHARED_UP, PLAIN_SHARED_DOWN };
    plain_role routed[6] = { PLAIN_GATE, PLAIN_UP, PLAIN_DOWN };
    const bool on_input = c->rules.weight == PLAIN_BY_SIGMOID_CHOSEN;
    if (c->names.pair_bias)
        routed[3] = PLAIN_GATE_BIAS, routed[4] = PLAIN_UP_BIAS, routed[5] = PLAIN_DOWN_BIAS;
    memset(out, 0, PLAIN_TOKENS * PLAIN_H * sizeof *out);
    for (int t = 0; t < PLAIN_TOKENS; t++) {
        double weights[PLAIN_E], gate = 0;
        double *row = out + t * PLAIN_H;
        route(c, t, weights);
        const int real = PLAIN_E - c->rules.zero;
        for (int e = real; e < PLAIN_E; e++)
            for (int h = 0; h < PLAIN_H; h++)
                row[h] += weights[e] * plain_hidden(t, h);
        for (int e = 0; e < real; e++)
            if (weights[e] != 0)
                expert(c, routed, e, PLAIN_I, t, on_input ? weights[e] : 1, on_input ? 1 : weights[e], row);
        for (int h = 0; h < PLAIN_H; h++)
            gate += plain_value(PLAIN_SHARED_SCALE, 0, 0, h) * plain_hidden(t, h);
        if (c->rules.shared)
            expert(c, shared, 0, PLAIN_I * c->rules.shared, t, 1, c->names.shared_scale ? sigmoid(gate) : 1, row);
    }
}
