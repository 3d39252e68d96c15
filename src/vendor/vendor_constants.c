/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor_constants.c - constants: one f32 per expert that callers of kernels pass along, and what such numbers cannot
 * express.
 *
 *     accumulator = sum of codes (times block scales)     x = a1 * code,  W = scalar * code
 *     h           = accumulator * g1_alpha
 *     next input  = activation(h) / a2
 *     y           = accumulator * g2_alpha
 *
 * A kernel that fuses the gated activation multiplies the accumulator of gate by g1_alpha and that of up by g1_scale_c,
 * so gate and up may have different scalars. A kernel with a single number for both needs equal ones. Source: vLLM's
 * quantization configs of fused experts and FlashInfer's arguments; products in their order, in f32.
 */
#include <stdio.h>

#include "pack/grid_move.h"
#include "vendor/vendor_parts.h"

/* ---- activation ----------------------------------------------------------------------------------- */

bool mox_use_has_limit(const mox_vendor_use *use)
{
    return use->activation.gate_limit != 0 || use->activation.up_limit != 0;
}

bool mox_use_has_alpha(const mox_vendor_use *use)
{
    const float alpha = use->activation.alpha;
    return (alpha != 0 && alpha != 1) || use->activation.beta != 0 || mox_use_has_limit(use);
}

float mox_value_alpha(const mox_vendor_plan *plan, const moxie_expert *expert)
{
    (void)expert;
    return plan->use.activation.alpha != 0 ? plan->use.activation.alpha : 1;
}

float mox_value_beta(const mox_vendor_plan *plan, const moxie_expert *expert)
{
    (void)expert;
    return plan->use.activation.beta;
}

float mox_value_limit(const mox_vendor_plan *plan, const moxie_expert *expert)
{
    (void)expert;
    return plan->use.activation.gate_limit;
}

/* ---- scalars -------------------------------------------------------------------------------------- */

float mox_value_a1_scale(const mox_vendor_plan *plan, const moxie_expert *expert)
{
    (void)expert;
    return plan->facts.a13_max;
}

float mox_value_a1_gscale(const mox_vendor_plan *plan, const moxie_expert *expert)
{
    (void)expert;
    return 1.0f / plan->facts.a13_max;
}

float mox_value_a2_gscale(const mox_vendor_plan *plan, const moxie_expert *expert)
{
    (void)expert;
    return 1.0f / plan->facts.a2_max;
}

static float scalar_of(const moxie_matrix *matrix, const moxie_quant *quant)
{
    if (quant->global == MOXIE_GLOBAL_NONE)
        return mox_pack_get_float(&matrix->scale, 0, 0);
    const float global = mox_pack_get_float(&matrix->global, 0, 0);
    return quant->global == MOXIE_GLOBAL_DIVIDE ? 1.0f / global : global;
}

float mox_value_g1_alpha(const mox_vendor_plan *plan, const moxie_expert *expert)
{
    const moxie_matrix *first = plan->shape.gated ? &expert->gate : &expert->up;
    return scalar_of(first, &plan->shape.w13) * plan->facts.a13_max;
}

float mox_value_g1_scale_c(const mox_vendor_plan *plan, const moxie_expert *expert)
{
    const float a2_gscale = 1.0f / plan->facts.a2_max;
    return plan->shape.gated ? scalar_of(&expert->up, &plan->shape.w13) * plan->facts.a13_max * a2_gscale : a2_gscale;
}

float mox_value_g1_over_a2(const mox_vendor_plan *plan, const moxie_expert *expert)
{
    const float alpha = plan->shape.gated ? scalar_of(&expert->up, &plan->shape.w13) * plan->facts.a13_max : 1;
    return alpha / plan->facts.a2_max;
}

float mox_value_g2_alpha(const mox_vendor_plan *plan, const moxie_expert *expert)
{
    return scalar_of(&expert->down, &plan->shape.w2) * plan->facts.a2_max;
}

/* ---- experts that cannot be represented --------------------------------------------------------------- */

bool mox_holds_plain(const mox_vendor_plan *plan, const moxie_expert *expert, char *reason, size_t size)
{
    (void)expert;
    const moxie_activation *a = &plan->use.activation;
    const bool plain = !mox_use_has_alpha(&plan->use) && !a->expert_alpha && !a->expert_beta && !a->expert_limit;
    if (!plain)
        snprintf(reason, size,
                 "the activation has an alpha, beta or limit, and the target's kernel has no argument for them");
    return plain;
}

bool mox_holds_swiglu(const mox_vendor_plan *plan, const moxie_expert *expert, char *reason, size_t size)
{
    (void)expert;
    const moxie_activation *a = &plan->use.activation;
    if (a->expert_alpha || a->expert_beta || a->expert_limit) {
        snprintf(reason, size,
                 "alpha, beta or limit are arrays over experts, and the target has one number each for the layer");
        return false;
    }
    if (a->gate_limit != a->up_limit) {
        snprintf(reason, size, "gate is limited to %g and up to %g, and the target has one limit",
                 (double)a->gate_limit, (double)a->up_limit);
        return false;
    }
    return true;
}

bool mox_holds_one_scalar(const mox_vendor_plan *plan, const moxie_expert *expert, char *reason, size_t size)
{
    if (!mox_holds_swiglu(plan, expert, reason, size))
        return false;
    if (!plan->shape.gated)
        return true;
    const float gate = scalar_of(&expert->gate, &plan->shape.w13), up = scalar_of(&expert->up, &plan->shape.w13);
    if (gate != up)
        snprintf(
            reason, size,
            "gate's scalar is %g and up's %g; the target has one for both, and making them one would round weights",
            (double)gate, (double)up);
    return gate == up;
}
