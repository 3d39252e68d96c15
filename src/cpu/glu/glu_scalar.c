/* SPDX-License-Identifier: Apache-2.0
 *
 * glu_scalar.c - family glu in portable C: one task a row, parameters resolved once a row.
 *
 * One small function per kind, chosen outside the loop over columns; formulas are in moxie.h. NaN
 * passes through every limit: comparisons are written so that a NaN is never replaced.
 */
#include "cpu/glu/glu.h"

#include <math.h>

#include "base/sizes.h"

/* Parameters of one row. Limits are +inf where there are none. */
typedef struct parameters {
    float alpha, beta, gate_limit, up_limit;
} parameters;

typedef float (*activate_fn)(const parameters *p, float g, float u);

static inline float at_most(float x, float limit)
{
    return x > limit ? limit : x;
}

static inline float within(float x, float limit)
{
    return x > limit ? limit : x < -limit ? -limit : x;
}

static inline float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

static float silu(const parameters *p, float g, float u)
{
    const float gate = at_most(g, p->gate_limit);
    return gate * sigmoid(p->alpha * gate) * (within(u, p->up_limit) + p->beta);
}

static float gelu_erf_no_mul(const parameters *p, float g, float u)
{
    (void)p, (void)u;
    return 0.5f * g * (1.0f + erff(g * 0.70710678118654752f));
}

static float gelu_tanh_no_mul(const parameters *p, float g, float u)
{
    (void)p, (void)u;
    return 0.5f * g * (1.0f + tanhf(0.79788456080286536f * (g + 0.044715f * g * g * g)));
}

static float relu_no_mul(const parameters *p, float g, float u)
{
    (void)p, (void)u;
    return g < 0.0f ? 0.0f : g;
}

static float relu2_no_mul(const parameters *p, float g, float u)
{
    const float positive = relu_no_mul(p, g, u);
    return positive * positive;
}

static float silu_no_mul(const parameters *p, float g, float u)
{
    (void)p, (void)u;
    return g * sigmoid(g);
}

static float identity_no_mul(const parameters *p, float g, float u)
{
    (void)p, (void)u;
    return g;
}

static float gelu_erf(const parameters *p, float g, float u)
{
    return gelu_erf_no_mul(p, g, u) * u;
}

static float gelu_tanh(const parameters *p, float g, float u)
{
    return gelu_tanh_no_mul(p, g, u) * u;
}

static float relu2(const parameters *p, float g, float u)
{
    return relu2_no_mul(p, g, u) * u;
}

static float swiglu_step(const parameters *p, float g, float u)
{
    return at_most(g * sigmoid(g), p->gate_limit) * within(u, p->up_limit);
}

static float situ(const parameters *p, float g, float u)
{
    const float capped = p->alpha * tanhf(g / p->alpha);
    return capped * sigmoid(g) * (p->beta > 0.0f ? p->beta * tanhf(u / p->beta) : u);
}

static activate_fn activate_of(int32_t kind)
{
    switch (kind) {
    case MOXIE_ACT_SILU: return silu;
    case MOXIE_ACT_GELU_ERF: return gelu_erf;
    case MOXIE_ACT_GELU_TANH: return gelu_tanh;
    case MOXIE_ACT_SWIGLU_STEP: return swiglu_step;
    case MOXIE_ACT_SITU: return situ;
    case MOXIE_ACT_RELU2: return relu2;
    case MOXIE_ACT_SILU_NO_MUL: return silu_no_mul;
    case MOXIE_ACT_GELU_ERF_NO_MUL: return gelu_erf_no_mul;
    case MOXIE_ACT_GELU_TANH_NO_MUL: return gelu_tanh_no_mul;
    case MOXIE_ACT_RELU2_NO_MUL: return relu2_no_mul;
    case MOXIE_ACT_RELU_NO_MUL: return relu_no_mul;
    case MOXIE_ACT_IDENTITY_NO_MUL: return identity_no_mul;
    default: return NULL;
    }
}

static float or_default(float value, float fallback)
{
    return value != 0.0f ? value : fallback;
}

/* `expert` < 0: only the scalars. Zero means the default in the arrays too. */
static parameters resolve(const moxie_activation *a, int64_t expert)
{
    const bool known = expert >= 0;
    const float alpha = known && a->expert_alpha != NULL ? a->expert_alpha[expert] : a->alpha;
    const float beta = known && a->expert_beta != NULL ? a->expert_beta[expert] : a->beta;
    const bool limited = known && a->expert_limit != NULL;
    return (parameters) {
        .alpha = or_default(alpha, a->kind == MOXIE_ACT_SITU ? 4.0f : 1.0f),
        .beta = beta,
        .gate_limit = or_default(limited ? a->expert_limit[expert] : a->gate_limit, INFINITY),
        .up_limit = or_default(limited ? a->expert_limit[expert] : a->up_limit, INFINITY),
    };
}

/* The slot that owns row p: the last s with offsets[s] <= p. */
static int64_t slot_of(const mox_glu_args *args, int64_t p)
{
    int64_t low = 0, high = args->slots;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (args->offsets[middle] <= p)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void one_row(void *context, int64_t p, int32_t worker)
{
    (void)worker;
    const mox_glu_args *args = context;
    const int64_t n = args->intermediate;
    const bool gated = mox_glu_is_gated(args->activation->kind);
    const int64_t expert = args->expert_of != NULL ? args->expert_of[slot_of(args, p)] : -1;
    const parameters resolved = resolve(args->activation, expert);
    const activate_fn activate = activate_of(args->activation->kind);
    const int64_t step = gated && args->interleaved ? 2 : 1;
    const float *gate = args->h + p * (gated ? 2 * n : n);
    const float *up = !gated ? gate : args->interleaved ? gate + 1 : gate + n;
    float *out = args->out + p * n;
    for (int64_t i = 0; i < n; i++)
        out[i] = activate(&resolved, gate[i * step], up[i * step]);
}

void mox_glu_scalar_run(const mox_glu_args *args, const moxie_executor *executor)
{
    mox_glu_args context = *args;
    mox_parallel(executor, args->offsets[args->slots], one_row, &context);
}

bool mox_glu_scalar_admit(const moxie_activation *activation, mox_refusal *why)
{
    if (activate_of(activation->kind) == NULL)
        return mox_refuse(why, "choose one of moxie_act_kind", "knows no activation of kind %d", (int)activation->kind);
    return true;
}
