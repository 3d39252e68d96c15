/* SPDX-License-Identifier: Apache-2.0
 *
 * activation_formulas.h - every activation function, written once for all kinds of numbers:
 *
 *     host and CUDA kernels   registers of fp32 (cpu/glu/glu_lanes.h; on CUDA a register of one number)
 *     oracle                  a double with the error that fp32 may make (ref/ref_numbers.h)
 *
 * A template, without an include guard. Before including it, define
 *
 *     MOX_NUM_INLINE            how functions are declared
 *     mox_num                   the type of a number x, y;   mox_real the scalar type of a factor or limit c
 *     mox_num_parameters        a struct with mox_real alpha, beta, gate_limit, up_limit (no limit: infinity)
 *
 *     num_mul(x, y)   x y       num_scale(x, c)   x c      num_min(x, c)     num_exp(x)       e^x
 *     num_add(x, y)   x + y     num_over(x, c)    x / c    num_max(x, c)     num_tanh(x)
 *     num_div(x, y)   x / y     num_plus(x, c)    x + c    num_abs(x)        num_sigmoid(x)   1 / (1 + e^-x)
 *
 *     num_normal(x)      (1 + erf(x / sqrt 2)) / 2, the normal distribution
 *     num_half_tanh(x)   (1 + tanh(x / 2)) / 2, which equals num_sigmoid(x)
 *
 * Each operation rounds once, in the order written. So the order is part of a formula: it decides the bits. min and max
 * pass NaN on. Below, g is the gate, u the up half, s() the sigmoid. An ungated formula may not read u.
 */

/* ---- parts of formulas --------------------------------------------------------------------------- */

MOX_NUM_INLINE mox_num num_within(mox_num x, mox_real limit)
{
    return num_max(num_min(x, limit), -limit);
}

/* x s(alpha x) */
MOX_NUM_INLINE mox_num num_swish(mox_num x, mox_real alpha)
{
    return num_mul(x, num_sigmoid(num_scale(x, alpha)));
}

/* c tanh(x / c), which stays within -c .. c. */
MOX_NUM_INLINE mox_num num_soft_cap(mox_num x, mox_real c)
{
    return num_scale(num_tanh(num_over(x, c)), c);
}

/* ---- formulas ------------------------------------------------------------------------------------ */

/* g' s(alpha g') (u' + beta), g' = min(g, gate_limit), u' = u within +-up_limit */
MOX_NUM_INLINE mox_num mox_formula_silu(const mox_num_parameters *p, mox_num g, mox_num u)
{
    const mox_num gate = num_min(g, p->gate_limit), up = num_plus(num_within(u, p->up_limit), p->beta);
    return num_mul(num_swish(gate, p->alpha), up);
}

/* g s(g) */
MOX_NUM_INLINE mox_num mox_formula_silu_no_mul(const mox_num_parameters *p, mox_num g, mox_num u)
{
    (void)p, (void)u;
    return num_swish(g, 1);
}

/* g (1 + erf(g / sqrt 2)) / 2 */
MOX_NUM_INLINE mox_num mox_formula_gelu_erf_no_mul(const mox_num_parameters *p, mox_num g, mox_num u)
{
    (void)p, (void)u;
    return num_mul(g, num_normal(g));
}

MOX_NUM_INLINE mox_num mox_formula_gelu_erf(const mox_num_parameters *p, mox_num g, mox_num u)
{
    return num_mul(mox_formula_gelu_erf_no_mul(p, g, u), u);
}

/* g (1 + tanh q) / 2, q = sqrt(2 / pi) (g + 0.044715 g^3). The factor is 2 sqrt(2 / pi). */
MOX_NUM_INLINE mox_num mox_formula_gelu_tanh_no_mul(const mox_num_parameters *p, mox_num g, mox_num u)
{
    (void)p, (void)u;
    const mox_num cubic = num_mul(num_mul(num_scale(g, (mox_real)0.044715), g), g);
    return num_mul(g, num_half_tanh(num_scale(num_add(g, cubic), (mox_real)1.5957691216057308)));
}

MOX_NUM_INLINE mox_num mox_formula_gelu_tanh(const mox_num_parameters *p, mox_num g, mox_num u)
{
    return num_mul(mox_formula_gelu_tanh_no_mul(p, g, u), u);
}

/* min(g s(g), gate_limit) u', u' = u within +-up_limit */
MOX_NUM_INLINE mox_num mox_formula_swiglu_step(const mox_num_parameters *p, mox_num g, mox_num u)
{
    const mox_num gate = num_min(num_swish(g, 1), p->gate_limit);
    return num_mul(gate, num_within(u, p->up_limit));
}

/* a tanh(g / a) s(g) u', u' = b tanh(u / b) where b > 0, else u; a = alpha, b = beta */
MOX_NUM_INLINE mox_num mox_formula_situ(const mox_num_parameters *p, mox_num g, mox_num u)
{
    const mox_num gate = num_mul(num_soft_cap(g, p->alpha), num_sigmoid(g));
    return num_mul(gate, p->beta > 0 ? num_soft_cap(u, p->beta) : u);
}

/* max(g, 0) */
MOX_NUM_INLINE mox_num mox_formula_relu_no_mul(const mox_num_parameters *p, mox_num g, mox_num u)
{
    (void)p, (void)u;
    return num_max(g, 0);
}

/* max(g, 0)^2 */
MOX_NUM_INLINE mox_num mox_formula_relu2_no_mul(const mox_num_parameters *p, mox_num g, mox_num u)
{
    (void)p, (void)u;
    return num_mul(num_max(g, 0), num_max(g, 0));
}

/* max(g, 0)^2 u, in an order in which nothing overflows before the product does. */
MOX_NUM_INLINE mox_num mox_formula_relu2(const mox_num_parameters *p, mox_num g, mox_num u)
{
    (void)p;
    return num_mul(num_mul(num_max(g, 0), u), num_max(g, 0));
}

/* max(g, 0) u */
MOX_NUM_INLINE mox_num mox_formula_relu(const mox_num_parameters *p, mox_num g, mox_num u)
{
    (void)p;
    return num_mul(num_max(g, 0), u);
}

/* g */
MOX_NUM_INLINE mox_num mox_formula_identity_no_mul(const mox_num_parameters *p, mox_num g, mox_num u)
{
    (void)p, (void)u;
    return g;
}

/* ---- by kind ------------------------------------------------------------------------------------- */

#define MOX_ACTIVATION(id, kind_, formula, gating, honours, alpha, beta, limit, name, config_names)                    \
    case kind_: return mox_formula_##formula(p, g, u);
/* `kind` is one of activations.def. */
MOX_NUM_INLINE mox_num mox_formula_of_kind(int32_t kind, const mox_num_parameters *p, mox_num g, mox_num u)
{
    switch (kind) {
#include "activation/activations.def"
    default: return g;
    }
}
