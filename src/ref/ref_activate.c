/* SPDX-License-Identifier: Apache-2.0
 *
 * ref_activate.c - the activation functions of moxie.h in double, and how well fp32 can follow them.
 *
 * Sensitivity S is such that a straightforward fp32 evaluation errs by at most 8 u S, u = 2^-24. It follows from
 * three facts: a sum, product or quotient rounds once (u of its result); exp, erf and tanh are within 4 ulp
 * (8 u of theirs); an error d in an argument becomes |f'| d. With t = alpha g', s = sigmoid(t):
 *
 *   sigmoid   argument u |t|, exp 8 u, both times 1 - s; sum, quotient 2 u          s u (2 + (1-s)(8 + |t|))
 *   silu      and two products, one sum: 3 u      |g' s| (|u'| + |beta|) u (5 + (1-s)(8 + |t|)),  5 + 8 < 8 * 2:
 *                                                 S = |g' s| (|u'| + |beta|) (2 + (1-s)|t|)
 *             |u'| + |beta| instead of |u' + beta| admits fma(g' s, u', g' s beta).
 *   gelu erf  z = g / sqrt 2: constant and product 2 u |z|; erf 8 u; the sum 1 + erf, which cancels for negative g, is
 *             exact to the ulp of what it cancels; three products:
 *                                                 S = |g u| / 2 (1 + |erf z| + |z| erf'(z))
 *   gelu tanh p = c (g + 0.044715 g^3), terms of one sign: two constants, five products and sums: 7 u |p|
 *                                                 S = |g u| / 2 (1 + |tanh p| + |p| tanh'(p))
 *   situ      q tanh'(q) <= tanh q, so each tanh part is off by u (1 + 8 + 1); sigmoid as above; products: 32 u + ..
 *                                                 S = |out| (4 + (1-s)|g|)
 *   step      of min(g s, L): that of g s, or nothing when g s is past L by more than its error
 *   relu2     two products and a third: S = |out|;  relu, identity: exact
 *
 * Underflow comes on top: sigmoid may be off by 2^-126 (1 / (1 + e^-t) is 0 when e^-t overflows) and any product by
 * 2^-150, and the factors that follow enlarge it. TINY = 2^-102 makes 8 u TINY = 2^-123 of each such factor.
 * Overflow does not: an intermediate that passes FLT_MAX where the exact one does not gives an infinite error.
 */
#include "ref/ref.h"

#define TINY 0x1p-102

/* A value and its sensitivity. */
typedef struct measured {
    double value, sensitivity;
} measured;

static double or_default(double value, double fallback)
{
    return value != 0 ? value : fallback;
}

mox_ref_act mox_ref_act_resolve(const moxie_activation *a, int64_t expert)
{
    const bool known = expert >= 0;
    const double alpha = known && a->expert_alpha ? a->expert_alpha[expert] : a->alpha;
    const double beta = known && a->expert_beta ? a->expert_beta[expert] : a->beta;
    const double gate_limit = known && a->expert_limit ? a->expert_limit[expert] : a->gate_limit;
    const double up_limit = known && a->expert_limit ? a->expert_limit[expert] : a->up_limit;
    return (mox_ref_act) {
        .kind = a->kind,
        .alpha = or_default(alpha, a->kind == MOXIE_ACT_SITU ? 4 : 1),
        .beta = beta,
        .gate_limit = or_default(gate_limit, INFINITY),
        .up_limit = or_default(up_limit, INFINITY),
    };
}

/* NaN passes. */
static double at_most(double x, double limit)
{
    return x > limit ? limit : x;
}

static double within(double x, double limit)
{
    return x < -limit ? -limit : at_most(x, limit);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* g s(alpha g) */
static measured swish(double alpha, double g)
{
    const double t = alpha * g, value = g * sigmoid(t);
    return (measured) { value, fabs(value) * (2 + sigmoid(-t) * fabs(t)) + fabs(g) * TINY + TINY };
}

static measured silu(const mox_ref_act *act, double g, double u)
{
    const measured gate = swish(act->alpha, at_most(g, act->gate_limit));
    const double up = within(u, act->up_limit);
    return (measured) { gate.value * (up + act->beta), gate.sensitivity * (fabs(up) + fabs(act->beta)) };
}

static measured swiglu_step(const mox_ref_act *act, double g, double u)
{
    const measured gate = swish(1, g);
    const double limited = at_most(gate.value, act->gate_limit), up = within(u, act->up_limit);
    const bool surely_limited = gate.value - 8 * 0x1p-24 * gate.sensitivity > act->gate_limit;
    return (measured) { limited * up, (fabs(limited) + (surely_limited ? 0 : gate.sensitivity)) * fabs(up) };
}

static measured gelu_erf(double g, double u)
{
    const double z = g / sqrt(2), slope = 2 / sqrt(acos(-1)) * exp(-z * z);
    /* 1 + erf(z) = erfc(-z), which keeps the digits that the sum loses. */
    return (measured) { 0.5 * g * erfc(-z) * u,
                        0.5 * fabs(g * u) * (1 + fabs(erf(z)) + fabs(z) * slope) + fabs(u) * TINY };
}

static measured gelu_tanh(double g, double u)
{
    const double p = sqrt(2 / acos(-1)) * (g + 0.044715 * g * g * g), slope = 1 / (cosh(p) * cosh(p));
    /* 1 + tanh(p) = 2 s(2p), which keeps the digits that the sum loses. */
    return (measured) { g * sigmoid(2 * p) * u,
                        0.5 * fabs(g * u) * (1 + fabs(tanh(p)) + (slope > 0 ? fabs(p) * slope : 0)) + fabs(u) * TINY };
}

static measured situ(const mox_ref_act *act, double g, double u)
{
    const double a = act->alpha, b = act->beta;
    const double gate = a * tanh(g / a), up = b > 0 ? b * tanh(u / b) : u;
    const double value = gate * sigmoid(g) * up;
    /* A quotient g / a that underflows is enlarged again by a. */
    const double underflow = (fabs(gate) + fabs(a) + 1) * fabs(up) + fabs(gate) * fabs(b);
    return (measured) { value, fabs(value) * (4 + sigmoid(-g) * fabs(g)) + underflow * TINY };
}

static measured relu2(double g, double u)
{
    const double positive = g < 0 ? 0 : g, value = positive * positive * u;
    return (measured) { value, fabs(value) + fabs(u) * TINY };
}

static measured evaluate(const mox_ref_act *act, double g, double u)
{
    switch (act->kind) {
    case MOXIE_ACT_SILU: return silu(act, g, u);
    case MOXIE_ACT_GELU_ERF: return gelu_erf(g, u);
    case MOXIE_ACT_GELU_TANH: return gelu_tanh(g, u);
    case MOXIE_ACT_SWIGLU_STEP: return swiglu_step(act, g, u);
    case MOXIE_ACT_SITU: return situ(act, g, u);
    case MOXIE_ACT_RELU2: return relu2(g, u);
    case MOXIE_ACT_SILU_NO_MUL: return swish(1, g);
    case MOXIE_ACT_GELU_ERF_NO_MUL: return gelu_erf(g, 1);
    case MOXIE_ACT_GELU_TANH_NO_MUL: return gelu_tanh(g, 1);
    case MOXIE_ACT_RELU2_NO_MUL: return relu2(g, 1);
    case MOXIE_ACT_RELU_NO_MUL: return (measured) { g < 0 ? 0 : g, 0 };
    case MOXIE_ACT_IDENTITY_NO_MUL: return (measured) { g, 0 };
    default: return (measured) { NAN, 0 };
    }
}

double mox_ref_activate(const mox_ref_act *act, double g, double u, double *sensitivity)
{
    const measured result = evaluate(act, g, u);
    *sensitivity = result.sensitivity;
    return result.value;
}

void mox_ref_glu_row(const mox_ref_act *act, int interleaved, const double *h, int64_t intermediate, double *out,
                     double *sensitivity)
{
    const bool gated = act->kind < MOXIE_ACT_SILU_NO_MUL;
    for (int64_t i = 0; i < intermediate; i++) {
        const double g = gated && interleaved ? h[2 * i] : h[i];
        const double u = !gated ? 0 : interleaved ? h[2 * i + 1] : h[intermediate + i];
        out[i] = mox_ref_activate(act, g, u, &sensitivity[i]);
    }
}
