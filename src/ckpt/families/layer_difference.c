/* SPDX-License-Identifier: Apache-2.0
 *
 * layer_difference.c - compares layer configurations (layer_difference.h).
 */
#include "ckpt/families/layer_difference.h"

#include <stddef.h>

mox_routing_form mox_routing_form_of(const moxie_routing *r)
{
    mox_routing_form f = { .score = r->score,
                           .select = r->select,
                           .on_input = r->on_input != 0,
                           .zero_experts = r->zero_experts,
                           .topk_per_group = r->topk_per_group,
                           .normalised = r->norm != MOXIE_NORM_NONE,
                           .root = r->norm == MOXIE_NORM_ROOT_SQUARES,
                           .scale = r->scale == 0 ? 1 : r->scale,
                           .softcap = r->softcap };
    if (r->weight == MOXIE_WEIGHT_SOFTMAX_SELECTED) {
        f.score = MOXIE_SCORE_SOFTMAX;
        f.normalised = true;
    } else if (r->weight == MOXIE_WEIGHT_SIGMOID_SELECTED) {
        f.score = MOXIE_SCORE_SIGMOID;
    }
    if (r->n_group > 1) {
        f.n_group = r->n_group, f.topk_group = r->topk_group;
        f.group_score = r->group_score, f.fill = r->group_fill_zero;
    }
    return f;
}

static const char *routing_difference(const moxie_routing *of_a, const moxie_routing *of_b)
{
    const mox_routing_form a = mox_routing_form_of(of_a), b = mox_routing_form_of(of_b);
    if (a.score != b.score || a.select != b.select)
        return "the score of experts";
    if (a.normalised != b.normalised || a.root != b.root)
        return "whether weights are divided by their sum";
    if (a.scale != b.scale)
        return "the factor of weights";
    if (a.n_group != b.n_group || a.topk_group != b.topk_group || a.group_score != b.group_score || a.fill != b.fill ||
        a.topk_per_group != b.topk_per_group)
        return "the choice of groups";
    if (a.on_input != b.on_input)
        return "whether weights multiply the experts' input";
    return a.softcap != b.softcap || a.zero_experts != b.zero_experts ? "experts without weights, or a soft cap" : NULL;
}

static bool same_activation(const moxie_activation *a, const moxie_activation *b)
{
    return a->kind == b->kind && a->alpha == b->alpha && a->beta == b->beta && a->gate_limit == b->gate_limit &&
           a->up_limit == b->up_limit && !a->expert_limit && !a->expert_alpha && !a->expert_beta;
}

static const moxie_activation *shared_activation(const moxie_layer_config *c)
{
    return c->has_shared_activation ? &c->shared_activation : &c->activation;
}

static const char *size_difference(const moxie_layer_config *a, const moxie_layer_config *b)
{
    if (a->experts != b->experts || a->top_k != b->top_k || a->hidden != b->hidden ||
        a->intermediate != b->intermediate || a->shared.intermediate != b->shared.intermediate)
        return "sizes of a layer of its own";
    if ((a->router_has_bias != 0) != (b->router_has_bias != 0) || (a->bias13 != 0) != (b->bias13 != 0) ||
        (a->bias2 != 0) != (b->bias2 != 0))
        return "biases of some layers or matrices alone";
    return NULL;
}

static bool has_more(const moxie_layer_config *c)
{
    return c->routing.per_expert_scale || c->routing.bias_alt || c->router_norm.kind || c->expert_norm.kind;
}

const char *mox_layer_difference(const moxie_layer_config *a, const moxie_layer_config *b)
{
    const bool shared = a->shared.intermediate > 0;
    const char *found = size_difference(a, b);
    found = found ? found : routing_difference(&a->routing, &b->routing);
    if (found)
        return found;
    if (has_more(a) || has_more(b))
        return "a norm, a scale or a second bias of the router";
    if (!same_activation(&a->activation, &b->activation) ||
        (shared && !same_activation(shared_activation(a), shared_activation(b))))
        return "the activation";
    return shared && (a->shared.has_gate != 0) != (b->shared.has_gate != 0) ? "the shared expert's gate" : NULL;
}
