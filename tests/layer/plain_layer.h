/* SPDX-License-Identifier: Apache-2.0
 *
 * plain_layer.h - a small layer of f32 numbers whose experts the tests evaluate plainly, in double, as models' code
 * does.
 *
 *     expert e: down[e] . (silu(gate[e] . x) * (up[e] . x))
 */
#ifndef PLAIN_LAYER_H
#define PLAIN_LAYER_H

#include <math.h>

#include "test_layer.h"

enum { T = 11, E = 6, K = 2, H = 1100, I = 6, MAX_T = 300 };

typedef struct plain_layer {
    moxie_layer_config config;
    moxie_weights weights;
    moxie_expert experts[E];
    float *gate, *up, *down, *router; /* [E, I, H], [E, I, H], [E, H, I], [E, H] */
    float *scale, *x, *router_x;      /* [H], [MAX_T, H] */
    int32_t ids[MAX_T * K];
    float choice[MAX_T * K];
} plain_layer;

static inline float *plain_numbers(test_rng *rng, int64_t count, float mean, float size)
{
    float *values = malloc((size_t)count * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < count; i++)
        values[i] = mean + size * test_normal(rng);
    return values;
}

static inline moxie_matrix plain_matrix(const float *values, int64_t rows, int64_t cols)
{
    return (moxie_matrix) { .codes = mox_grid_dense(values, MOXIE_F32, rows, cols) };
}

static inline void plain_make(plain_layer *p, uint64_t seed)
{
    test_rng rng = { seed };
    memset(p, 0, sizeof *p);
    p->config = test_config();
    p->config.dtype = MOXIE_F32;
    p->config.experts = E, p->config.top_k = K, p->config.hidden = H, p->config.intermediate = I;
    p->config.w13 = p->config.w2 = (moxie_quant) { .element = MOXIE_F32 };
    p->gate = plain_numbers(&rng, (int64_t)E * I * H, 0, 0.05f);
    p->up = plain_numbers(&rng, (int64_t)E * I * H, 0, 0.05f);
    p->down = plain_numbers(&rng, (int64_t)E * H * I, 0, 0.3f);
    p->router = plain_numbers(&rng, (int64_t)E * H, 0, 1.0f);
    p->scale = plain_numbers(&rng, H, 1, 0.3f);
    p->x = plain_numbers(&rng, (int64_t)MAX_T * H, 0.2f, 1);
    p->router_x = plain_numbers(&rng, (int64_t)MAX_T * H, -0.5f, 3);
    for (int64_t e = 0; e < E; e++) {
        p->experts[e].gate = plain_matrix(p->gate + e * I * H, I, H);
        p->experts[e].up = plain_matrix(p->up + e * I * H, I, H);
        p->experts[e].down = plain_matrix(p->down + e * H * I, H, I);
    }
    p->weights = (moxie_weights)MOXIE_WEIGHTS_INIT;
    p->weights.n_experts = E;
    p->weights.experts = p->experts;
    p->weights.router = plain_matrix(p->router, E, H);
    for (int64_t i = 0; i < (int64_t)MAX_T * K; i++) {
        p->ids[i] = (int32_t)test_below(&rng, E);
        p->choice[i] = 0.5f + 0.25f * test_uniform(&rng);
    }
}

static inline void plain_free(plain_layer *p)
{
    float *const all[] = { p->gate, p->up, p->down, p->router, p->scale, p->x, p->router_x };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

/* down(silu(gate(x)) up(x)) of expert e. */
static inline void plain_expert(const plain_layer *p, int64_t e, const float *x, double *y)
{
    double act[I];
    for (int64_t i = 0; i < I; i++) {
        double gate = 0, up = 0;
        for (int64_t k = 0; k < H; k++) {
            gate += (double)p->gate[(e * I + i) * H + k] * x[k];
            up += (double)p->up[(e * I + i) * H + k] * x[k];
        }
        act[i] = gate / (1 + exp(-gate)) * up;
    }
    for (int64_t n = 0; n < H; n++) {
        y[n] = 0;
        for (int64_t i = 0; i < I; i++)
            y[n] += (double)p->down[(e * H + n) * I + i] * act[i];
    }
}

static inline void plain_near(double got, double want, double size)
{
    if (!(fabs(got - want) <= 2e-5 * size + 1e-9))
        fail_msg("%.9g, expected %.9g", got, want);
}

#endif
