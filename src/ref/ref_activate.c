/* SPDX-License-Identifier: Apache-2.0
 *
 * ref_activate.c - the oracle's activations: the formulas of activation_formulas.h in double, and how well fp32 can
 * follow them.
 *
 *     act(g, u) and a sensitivity S:   |fp32 - act(g, u)| <= 8 u S,   u = 2^-24
 *
 * S follows from the formula by the rules of ref_numbers.h. For the common kinds, s being the sigmoid:
 *
 *     silu       t = alpha g'         S is about |g' s(t)| (|u'| + |beta|) (1.6 + 0.6 (1 - s(t)) |t|)
 *     gelu erf   z = g / sqrt 2       S is about |g u| / 2 (0.5 + |erf z| + |z| erf'(z)) + |out| / 4
 *     gelu tanh  q of the formula     S is about |g u| / 2 (0.5 + |tanh q| + |q| tanh'(q)) + |out| / 4
 *     relu2      S = |out| / 4;  relu and identity: 0
 */
#include "activation/activation.h"
#include "ref/ref_numbers.h"

#include "activation/activation_formulas.h"

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
        .alpha = or_default(alpha, mox_activation_default_alpha(a->kind)),
        .beta = beta,
        .gate_limit = or_default(gate_limit, INFINITY),
        .up_limit = or_default(up_limit, INFINITY),
    };
}

double mox_ref_activate(const mox_ref_act *act, double g, double u, double *sensitivity)
{
    mox_num result = { NAN, 0 };
    if (mox_activation_of_kind(act->kind) != NULL)
        result = mox_formula_of_kind(act->kind, act, (mox_num) { g, 0 }, (mox_num) { u, 0 });
    *sensitivity = result.error;
    return result.value;
}

void mox_ref_glu_row(const mox_ref_act *act, int interleaved, const double *h, int64_t intermediate, double *out,
                     double *sensitivity)
{
    const bool gated = mox_activation_is_gated(act->kind);
    for (int64_t i = 0; i < intermediate; i++) {
        const double g = gated && interleaved ? h[2 * i] : h[i];
        const double u = !gated ? 0 : interleaved ? h[2 * i + 1] : h[intermediate + i];
        out[i] = mox_ref_activate(act, g, u, &sensitivity[i]);
    }
}
