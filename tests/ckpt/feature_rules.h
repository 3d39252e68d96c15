/* SPDX-License-Identifier: Apache-2.0
 *
 * feature_rules.h - small F32 checkpoints run from files to the layer's output, and the formulas of an expert in double
 * precision, which say what the output must be.
 */
#ifndef FEATURE_RULES_H
#define FEATURE_RULES_H

#include "hand_rules.h"

enum { T = 7, E = 4, K = 2, H = 24, I = 10, S = 14, WIDE = 40 };

static inline const float *of(const hand_checkpoint *c, const char *name)
{
    return c->data[hand_find(c, name)];
}

/* Adds an F32 tensor of random numbers. */
static inline void add(hand_checkpoint *c, test_rng *rng, const char *name, int64_t a, int64_t b, int64_t d, float mean,
                       float size)
{
    float *values = hand_add(c, name, MOXIE_F32, a, b, d, -1);
    const int64_t count = a * (b < 0 ? 1 : b) * (d < 0 ? 1 : d);
    for (int64_t i = 0; i < count; i++)
        values[i] = mean + size * test_normal(rng);
}

typedef struct results {
    float output[T * H], logits[T * E], weights[T * K];
    int32_t ids[T * K];
} results;

static inline void run(const hand_model *m, int32_t backend, const float *x, const float *router_x, results *out)
{
    moxie_options options = MOXIE_OPTIONS_INIT;
    moxie_error error = { 0 };
    moxie_layer *layer = NULL;
    moxie_plan *plan = NULL;
    moxie_check_report *report = NULL;
    moxie_run_args args = MOXIE_RUN_ARGS_INIT;
    options.backend = backend;
    options.max_tokens = T;
    assert_ok(moxie_layer_create(m->config, &options, &layer, &error), &error);
    assert_ok(moxie_layer_prepare(layer, m->weights, NULL, &error), &error);
    assert_ok(moxie_plan_create(layer, &options, &plan, &error), &error);
    args.tokens = T;
    args.hidden = x, args.router_hidden = router_x, args.output = out->output;
    args.ids_out = out->ids, args.weights_out = out->weights, args.logits_out = out->logits;
    args.workspace_bytes = moxie_plan_workspace_bytes(plan);
    args.workspace = aligned_alloc(64, args.workspace_bytes);
    assert_ok(moxie_plan_run(plan, &args, &error), &error);
    assert_ok(moxie_plan_check(plan, m->weights, &args, &report, &error), &error);
    assert_true(moxie_check_report_worst(report) <= 1);
    moxie_check_report_destroy(report);
    free(args.workspace);
    moxie_plan_destroy(plan);
    moxie_layer_destroy(layer);
}

static inline void near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-4 * (1 + fabs(want))))
        fail_msg("%.9g, expected %.9g", got, want);
}

static inline double dot(const float *w, const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t k = 0; k < n; k++)
        sum += w[k] * x[k];
    return sum;
}

/* The three matrices of an expert, [N, H], [N, H], [H, N], with biases or NULL, and its activation. */
typedef struct expert {
    const float *gate, *up, *down, *gate_bias, *up_bias, *down_bias;
    int64_t n;
    double limit; /* of silu(gate) and of up; 0: none */
    double clamp; /* of gate, from above, and of up, before silu; 0: none */
    bool gelu, relu;
} expert;

static inline double act(const expert *e, double g, double u)
{
    if (e->gelu)
        return 0.5 * g * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (g + 0.044715 * g * g * g))) * u;
    if (e->relu)
        return fmax(g, 0) * u;
    if (e->clamp > 0) {
        g = fmin(g, e->clamp);
        u = fmax(fmin(u, e->clamp), -e->clamp);
    }
    double a = g / (1 + exp(-g));
    if (e->limit > 0) {
        a = fmin(a, e->limit);
        u = fmax(fmin(u, e->limit), -e->limit);
    }
    return a * u;
}

/* y += weight * expert(x) */
static inline void add_expert(const expert *e, const double *x, double weight, double *y)
{
    double a[64];
    for (int64_t n = 0; n < e->n; n++) {
        const double g = dot(e->gate + n * H, x, H) + (e->gate_bias ? (double)e->gate_bias[n] : 0);
        const double u = dot(e->up + n * H, x, H) + (e->up_bias ? (double)e->up_bias[n] : 0);
        a[n] = act(e, g, u);
    }
    for (int64_t h = 0; h < H; h++)
        y[h] += weight * (dot(e->down + h * e->n, a, e->n) + (e->down_bias ? (double)e->down_bias[h] : 0));
}

/* The chosen experts are the K largest keys. Other tests check the routing; here `check` has compared the logits, and
 * the weights are the run's. */
static inline void check_output(const results *r, const float *x, const expert *routed, const expert *shared)
{
    for (int64_t t = 0; t < T; t++) {
        double row[H], y[H] = { 0 };
        for (int64_t k = 0; k < H; k++)
            row[k] = x[t * H + k];
        for (int64_t j = 0; j < K; j++)
            add_expert(&routed[r->ids[t * K + j]], row, r->weights[t * K + j], y);
        if (shared)
            add_expert(shared, row, 1, y);
        for (int64_t k = 0; k < H; k++)
            near((double)r->output[t * H + k], y[k]);
    }
}

static inline void random_states(test_rng *rng, float *x)
{
    for (int64_t i = 0; i < T * H; i++)
        x[i] = 0.3f + 1.5f * test_normal(rng);
}

/* ---- separate experts and a shared one ----------------------------------------------------------------- */

typedef struct separate {
    hand_checkpoint c;
    expert routed[E], shared;
} separate;

static inline void add_three(hand_checkpoint *c, test_rng *rng, const char *root, int64_t n, float size)
{
    char name[256];
    snprintf(name, sizeof name, "%s.gate_proj.weight", root);
    add(c, rng, name, n, H, -1, 0, size);
    snprintf(name, sizeof name, "%s.up_proj.weight", root);
    add(c, rng, name, n, H, -1, 0, size);
    snprintf(name, sizeof name, "%s.down_proj.weight", root);
    add(c, rng, name, H, n, -1, 0, size);
}

static inline const float *part(const hand_checkpoint *c, const char *root, const char *suffix)
{
    char name[256];
    snprintf(name, sizeof name, "%s.%s", root, suffix);
    return of(c, name);
}

static inline expert three(const hand_checkpoint *c, const char *root, int64_t n)
{
    return (expert) { .gate = part(c, root, "gate_proj.weight"),
                      .up = part(c, root, "up_proj.weight"),
                      .down = part(c, root, "down_proj.weight"),
                      .n = n };
}

static inline void load_and_check(separate *s, int64_t layer, const char *config, test_rng *rng)
{
    float x[T * H];
    results r;
    random_states(rng, x);
    hand_write(&s->c, config);
    hand_model m = hand_load(&s->c, layer, MOXIE_ACTIVATIONS_CHECKPOINT);
    for (int b = 0; b < 2; b++) {
        run(&m, b ? MOXIE_BACKEND_CPU : MOXIE_BACKEND_REF, x, NULL, &r);
        check_output(&r, x, s->routed, &s->shared);
    }
    hand_unload(&m);
}

#endif
