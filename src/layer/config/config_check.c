/* SPDX-License-Identifier: Apache-2.0
 *
 * config_check.c - every rule of a layer configuration that needs no weights; a broken rule becomes an error text.
 *
 * quant checks a single quantization description, route checks routing. Here are the other rules: sizes, dtypes, the
 * activation, the shared expert, ranks.
 *
 * In the flow: caller -> [config] -> select -> layer and plan.
 */
#include "layer/config/config.h"

#include "activation/activation.h"
#include "layer/config/reserved.h"
#include "layer/config/slot_map.h"
#include "layer/config/struct_size.h"
#include "route/route.h"

/* Sizes stay below this so that twice a size and a product of two always fit in 64 bits. */
#define MAX_EXTENT INT32_MAX

static moxie_status check_extent(int64_t value, int64_t low, int64_t high, const char *name, moxie_error *error)
{
    MOX_FAIL_IF(value < low || value > high, MOXIE_ERR_ARGUMENT, error, "%s is %lld; it must be from %lld to %lld",
                name, (long long)value, (long long)low, (long long)high);
    return MOXIE_OK;
}

static moxie_status check_sizes(const moxie_layer_config *c, moxie_error *error)
{
    MOX_FAIL_IF(c->dtype != MOXIE_BF16 && c->dtype != MOXIE_F16 && c->dtype != MOXIE_F32, MOXIE_ERR_ARGUMENT, error,
                "dtype of the hidden states is %s; it must be bf16, f16 or f32", mox_dtype_name(c->dtype));
    MOX_TRY(check_extent(c->experts, 1, MOXIE_MAX_EXPERTS, "experts", error));
    MOX_TRY(check_extent(c->top_k, 1, MOXIE_MAX_TOP_K, "top_k", error));
    MOX_FAIL_IF(c->top_k > c->experts, MOXIE_ERR_ARGUMENT, error,
                "top_k is %lld, but there %s only %lld expert%s to choose from; give at least %lld",
                (long long)c->top_k, c->experts == 1 ? "is" : "are", (long long)c->experts, c->experts == 1 ? "" : "s",
                (long long)c->top_k);
    MOX_TRY(check_extent(c->hidden, 1, MAX_EXTENT, "hidden", error));
    MOX_TRY(check_extent(c->intermediate, 1, MAX_EXTENT, "intermediate", error));
    MOX_TRY(check_extent(c->router_width, 0, MAX_EXTENT, "router_width", error));
    MOX_FAIL_IF(c->router_has_bias && c->router_width == 0, MOXIE_ERR_ARGUMENT, error,
                "router_has_bias is set, but router_width is 0: the layer has no router");
    return MOXIE_OK;
}

static moxie_status check_activation(const moxie_activation *a, const char *name, moxie_error *error)
{
    MOX_FAIL_IF(mox_activation_of_kind(a->kind) == NULL, MOXIE_ERR_ARGUMENT, error,
                "%s.kind is %d, which names no activation of moxie_act_kind", name, (int)a->kind);
    MOX_FAIL_IF(!isfinite(a->alpha) || !isfinite(a->beta), MOXIE_ERR_ARGUMENT, error,
                "%s.alpha is %g and beta %g; both must be finite", name, (double)a->alpha, (double)a->beta);
    MOX_FAIL_IF(!(a->gate_limit >= 0) || !(a->up_limit >= 0), MOXIE_ERR_ARGUMENT, error,
                "%s.gate_limit is %g and up_limit %g; limits must not be negative, 0 means none", name,
                (double)a->gate_limit, (double)a->up_limit);
    return MOXIE_OK;
}

static moxie_status check_shared_activation(const moxie_layer_config *c, moxie_error *error)
{
    const moxie_activation *a = &c->shared_activation;
    if (!c->has_shared_activation)
        return MOXIE_OK;
    MOX_FAIL_IF(a->expert_alpha != NULL || a->expert_beta != NULL || a->expert_limit != NULL, MOXIE_ERR_ARGUMENT, error,
                "shared_activation has an array with a number for each expert; only routed experts have those: set its "
                "scalars");
    return check_activation(a, "shared_activation", error);
}

static moxie_status check_norm(const moxie_row_norm *n, const char *name, moxie_error *error)
{
    MOX_FAIL_IF(n->kind < MOXIE_ROW_NORM_NONE || n->kind > MOXIE_ROW_NORM_RMS_WEIGHTED, MOXIE_ERR_ARGUMENT, error,
                "%s.kind is %d, which is no norm of moxie_row_norm_kind", name, (int)n->kind);
    MOX_FAIL_IF(n->kind == MOXIE_ROW_NORM_NONE && n->has_weight, MOXIE_ERR_ARGUMENT, error,
                "%s.has_weight is set, but %s.kind is 0: there is no norm", name, name);
    MOX_FAIL_IF(!(n->eps >= 0) || !isfinite(n->eps) || !isfinite(n->weight_add) || !isfinite(n->factor),
                MOXIE_ERR_ARGUMENT, error,
                "%s has eps %g, weight_add %g and factor %g; all must be finite, and eps not negative", name,
                (double)n->eps, (double)n->weight_add, (double)n->factor);
    return MOXIE_OK;
}

static moxie_status check_norms(const moxie_layer_config *c, moxie_error *error)
{
    MOX_TRY(check_norm(&c->router_norm, "router_norm", error));
    return check_norm(&c->expert_norm, "expert_norm", error);
}

/* Rows of a block type are whole blocks. */
static moxie_status check_blocks(const moxie_quant *quant, int64_t cols, const char *name, moxie_error *error)
{
    const mox_block *block = mox_quant_is_block(quant) ? mox_block_of(quant->element) : NULL;
    MOX_FAIL_IF(block != NULL && cols % block->weights != 0, MOXIE_ERR_ARGUMENT, error,
                "%s is %s with rows of %lld numbers; blocks of that type have %d, so rows must be a multiple of that",
                name, block->format.name, (long long)cols, (int)block->weights);
    return MOXIE_OK;
}

static moxie_status check_shared(const moxie_shared_config *s, int64_t hidden, moxie_error *error)
{
    MOX_TRY(check_extent(s->intermediate, 0, MAX_EXTENT, "shared.intermediate", error));
    if (s->intermediate == 0) {
        MOX_FAIL_IF(s->has_gate, MOXIE_ERR_ARGUMENT, error,
                    "shared.has_gate is set, but shared.intermediate is 0: the layer has no shared expert");
        return MOXIE_OK;
    }
    MOX_FAIL_IF(!isfinite(s->scale), MOXIE_ERR_ARGUMENT, error, "shared.scale is %g; it must be a finite number",
                (double)s->scale);
    MOX_TRY(mox_quant_check_weight(&s->w13, "shared w13", error));
    MOX_TRY(mox_quant_check_weight(&s->w2, "shared w2", error));
    MOX_TRY(check_blocks(&s->w13, hidden, "shared w13", error));
    MOX_TRY(check_blocks(&s->w2, s->intermediate, "shared w2", error));
    MOX_TRY(mox_quant_check_act(&s->a13, "shared a13", error));
    return mox_quant_check_act(&s->a2, "shared a2", error);
}

int32_t mox_config_ep_ranks(const moxie_layer_config *c)
{
    return c->ep_size > 1 ? c->ep_size : 1;
}

int32_t mox_config_tp_ranks(const moxie_layer_config *c)
{
    return c->tp_size > 1 ? c->tp_size : 1;
}

static moxie_status check_parallel(const moxie_layer_config *c, moxie_error *error)
{
    const int32_t ranks = mox_config_ep_ranks(c), parts = mox_config_tp_ranks(c);
    MOX_FAIL_IF(c->ep_size < 0, MOXIE_ERR_ARGUMENT, error, "ep_size is %d; it must be 0 or more", (int)c->ep_size);
    MOX_FAIL_IF(c->ep_rank < 0 || c->ep_rank >= ranks, MOXIE_ERR_ARGUMENT, error,
                "ep_rank is %d; with %d rank(s) it must be from 0 to %d", (int)c->ep_rank, (int)ranks, (int)ranks - 1);
    MOX_FAIL_IF(c->ep_map != MOXIE_MAP_LINEAR && c->ep_map != MOXIE_MAP_ROUND_ROBIN, MOXIE_ERR_ARGUMENT, error,
                "ep_map is %d, which is no placement of moxie_expert_map_kind", (int)c->ep_map);
    MOX_FAIL_IF(c->tp_size < 0, MOXIE_ERR_ARGUMENT, error, "tp_size is %d; it must be 0 or more", (int)c->tp_size);
    MOX_FAIL_IF(c->tp_rank < 0 || c->tp_rank >= parts, MOXIE_ERR_ARGUMENT, error,
                "tp_rank is %d; with tp_size %d it must be from 0 to %d", (int)c->tp_rank, (int)c->tp_size,
                (int)parts - 1);
    return c->slot_map != NULL ? mox_slot_map_check(c->slot_map, (int32_t)c->experts, ranks, error) : MOXIE_OK;
}

moxie_status mox_config_read(const moxie_layer_config *config, moxie_layer_config *out, moxie_error *error)
{
    moxie_layer_config c;
    MOX_TRY(mox_struct_read(config, &c, MOX_STRUCT(moxie_layer_config), error));
    MOX_TRY(mox_reserved_config(&c, error));
    MOX_TRY(check_sizes(&c, error));
    MOX_TRY(check_activation(&c.activation, "activation", error));
    MOX_TRY(mox_quant_check_weight(&c.w13, "w13", error));
    MOX_TRY(mox_quant_check_weight(&c.w2, "w2", error));
    MOX_TRY(check_blocks(&c.w13, c.hidden, "w13", error));
    MOX_TRY(check_blocks(&c.w2, c.intermediate, "w2", error));
    MOX_TRY(mox_quant_check_act(&c.a13, "a13", error));
    MOX_TRY(mox_quant_check_act(&c.a2, "a2", error));
    MOX_TRY(mox_routing_check(&c.routing, c.experts, c.top_k, error));
    MOX_TRY(check_shared(&c.shared, c.hidden, error));
    MOX_TRY(check_shared_activation(&c, error));
    MOX_TRY(check_norms(&c, error));
    MOX_TRY(check_parallel(&c, error));
    MOX_FAIL_IF(c.round_results != 0 && (c.round_results != 1 || c.dtype == MOXIE_F32), MOXIE_ERR_ARGUMENT, error,
                "round_results is %d with dtype %s: it is 0, or 1 with bf16 or f16, to which results are rounded",
                (int)c.round_results, mox_dtype_name(c.dtype));
    /* What belongs to a router or a shared expert goes with it: callers take these out by their sizes alone. */
    if (c.router_width == 0)
        c.router_norm = (moxie_row_norm) { 0 };
    if (c.shared.intermediate == 0)
        c.has_shared_activation = 0;
    *out = c;
    return MOXIE_OK;
}

moxie_status mox_config_map_experts(const moxie_layer_config *c, int32_t *slot_of, int32_t *slots, moxie_error *error)
{
    if (c->slot_map == NULL)
        return mox_expert_map((moxie_expert_map_kind)c->ep_map, (int32_t)c->experts, mox_config_ep_ranks(c), c->ep_rank,
                              slot_of, slots, error);
    *slots = mox_slot_map_of_rank(c->slot_map, c->ep_rank, slot_of);
    return MOXIE_OK;
}

int64_t mox_config_candidates(const moxie_layer_config *config)
{
    return config->experts + config->routing.zero_experts;
}

bool mox_config_adds_identity(const moxie_layer_config *config, bool has_comm)
{
    const moxie_routing *r = &config->routing;
    return r->zero_experts > 0 && r->zero_kind == MOXIE_ZERO_IDENTITY && (has_comm || config->ep_rank == 0);
}

bool mox_config_computes_shared(const moxie_layer_config *config, bool has_comm)
{
    return config->shared.intermediate > 0 && (has_comm || config->ep_rank == 0);
}

const moxie_activation *mox_config_activation(const moxie_layer_config *c, mox_expert_kind kind)
{
    return kind == MOX_SHARED_EXPERT && c->has_shared_activation ? &c->shared_activation : &c->activation;
}

static mox_record_shape record_shape(const moxie_layer_config *c, mox_expert_kind kind, int64_t intermediate,
                                     const moxie_quant *w13, const moxie_quant *w2, bool bias13, bool bias2)
{
    return (mox_record_shape) { .hidden = c->hidden,
                                .intermediate = intermediate,
                                .gated = mox_activation_is_gated(mox_config_activation(c, kind)->kind),
                                .w13 = *w13,
                                .w2 = *w2,
                                .bias13 = bias13,
                                .bias2 = bias2 };
}

mox_record_shape mox_config_routed_shape(const moxie_layer_config *c)
{
    return record_shape(c, MOX_ROUTED, c->intermediate, &c->w13, &c->w2, c->bias13 != 0, c->bias2 != 0);
}

mox_record_shape mox_config_shared_shape(const moxie_layer_config *c)
{
    const moxie_shared_config *s = &c->shared;
    return record_shape(c, MOX_SHARED_EXPERT, s->intermediate, &s->w13, &s->w2, s->bias13 != 0, s->bias2 != 0);
}
