/* SPDX-License-Identifier: Apache-2.0
 *
 * plain_formula.c - the result of a case's layer, as its model's code defines it, one number after the other in double
 * precision.
 *
 *     y = sum_j weight_j norm(expert_j(x)) + shared(x)      weights: plain_route.c
 *
 * Where experts read and write latent states, x and y are those, and the shared expert is not part of the layer.
 *
 * Source: model code of transformers; of vLLM where transformers has none.
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

static double activation(const plain_activation *a, double g, double u)
{
    const double limit = a->limit > 0 ? a->limit : INFINITY;
    if (a->kind == PLAIN_RELU2)
        return u > 0 ? u * u : 0;
    if (a->kind == PLAIN_GELU)
        return 0.5 * g * (1 + tanh(0.7978845608028654 * (g + 0.044715 * g * g * g))) * u;
    if (a->kind == PLAIN_SITU)
        return a->alpha * tanh(g / a->alpha) * sigmoid(g) * (a->limit > 0 ? limit * tanh(u / limit) : u);
    if (a->kind == PLAIN_STEP)
        return fmin(g * sigmoid(g), limit) * fmin(fmax(u, -limit), limit);
    g = fmin(g, limit);
    u = fmin(fmax(u, -limit), limit);
    return a->kind == PLAIN_OAI ? g * sigmoid(a->alpha * g) * (u + 1) : g * sigmoid(g) * u;
}

/* vLLM's int8 activations: one scale a row, amax / 127; codes are rounded to even. */
static void round_row(const plain_case *c, double *row, int count)
{
    float amax = 0;
    if (!c->format || !c->format->int8_rows)
        return;
    for (int i = 0; i < count; i++)
        amax = fmaxf(amax, fabsf((float)row[i]));
    for (int i = 0; i < count; i++)
        row[i] = (double)rintf((float)row[i] * (127 / amax)) * (double)(amax / 127);
}

/* out [X] = expert(factor * x); roles: gate, up, down, and their biases or PLAIN_NONE */
static void expert(const plain_case *c, const plain_role *roles, const plain_activation *a, int e, int width, int t,
                   double factor, double *out)
{
    const int x = plain_x(c);
    double in[PLAIN_MAX_H], middle[2 * PLAIN_MAX_I];
    for (int h = 0; h < x; h++)
        in[h] = plain_hidden(t, h) * factor;
    round_row(c, in, x);
    for (int i = 0; i < width; i++) {
        double g = roles[3] ? plain_value(roles[3], e, i, 0) : 0, u = roles[4] ? plain_value(roles[4], e, i, 0) : 0;
        for (int h = 0; h < x; h++) {
            g += weight_of(c, roles[0], e, i, h) * in[h];
            u += weight_of(c, roles[1], e, i, h) * in[h];
        }
        middle[i] = activation(a, g, u);
    }
    round_row(c, middle, width);
    for (int h = 0; h < x; h++) {
        out[h] = roles[5] ? plain_value(roles[5], e, h, 0) : 0;
        for (int i = 0; i < width; i++)
            out[h] += weight_of(c, roles[2], e, h, i) * middle[i];
    }
}

/* Scales first, then norms. */
static void norm_result(const plain_case *c, double *row)
{
    const int x = plain_x(c);
    double squares = 0;
    if (!c->names.expert_norm)
        return;
    for (int h = 0; h < x; h++) {
        row[h] *= 1 + plain_value(PLAIN_EXPERT_NORM, 0, h, 0);
        squares += row[h] * row[h];
    }
    for (int h = 0; h < x; h++)
        row[h] /= sqrt(squares / x + c->rules.norm_eps);
}

static void add_row(double *sum, const double *row, int count, double weight)
{
    for (int i = 0; i < count; i++)
        sum[i] += weight * row[i];
}

static void add_routed(const plain_case *c, int t, double *row)
{
    const bool biases = c->names.pair_bias, on_input = c->rules.weight == PLAIN_BY_SIGMOID_CHOSEN;
    const plain_role roles[6] = { PLAIN_GATE,
                                  PLAIN_UP,
                                  PLAIN_DOWN,
                                  biases ? PLAIN_GATE_BIAS : PLAIN_NONE,
                                  biases ? PLAIN_UP_BIAS : PLAIN_NONE,
                                  biases ? PLAIN_DOWN_BIAS : PLAIN_NONE };
    const plain_activation a = { c->rules.act, c->rules.alpha, c->rules.limit };
    double weights[PLAIN_E], result[PLAIN_MAX_H];
    plain_route(c, t, weights);
    for (int e = 0; e < PLAIN_E; e++) {
        if (weights[e] == 0)
            continue;
        for (int h = 0; h < plain_x(c); h++)
            result[h] = plain_hidden(t, h);
        if (e < PLAIN_E - c->rules.zero) {
            expert(c, roles, &a, e, plain_i(c), t, on_input ? weights[e] : 1, result);
            norm_result(c, result);
        }
        add_row(row, result, plain_x(c), on_input ? 1 : weights[e]);
    }
}

static void add_shared(const plain_case *c, int t, double *row)
{
    static const plain_role roles[6] = { PLAIN_SHARED_GATE, PLAIN_SHARED_UP, PLAIN_SHARED_DOWN };
    const plain_activation routed = { c->rules.act, c->rules.alpha, c->rules.limit };
    double gate = 0, result[PLAIN_MAX_H];
    if (!c->rules.shared || c->latent)
        return;
    for (int h = 0; h < plain_h(c); h++)
        gate += plain_value(PLAIN_SHARED_SCALE, 0, 0, h) * plain_hidden(t, h);
    expert(c, roles, c->rules.apart ? &c->rules.shared_act : &routed, 0, plain_i(c) * c->rules.shared, t, 1, result);
    add_row(row, result, plain_h(c), c->names.shared_scale ? sigmoid(gate) : 1);
}

void plain_output(const plain_case *c, double *out)
{
    const int x = plain_x(c);
    memset(out, 0, (size_t)(PLAIN_TOKENS * x) * sizeof *out);
    for (int t = 0; t < PLAIN_TOKENS; t++) {
        add_routed(c, t, out + t * x);
        add_shared(c, t, out + t * x);
    }
}
