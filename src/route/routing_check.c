/* SPDX-License-Identifier: Apache-2.0
 *
 * routing_check.c - which routing descriptions are valid, and why others are not.
 *
 * A field that the selection does not read must be neutral. A bias beside a table, or a scale beside a callback, is a
 * mistake of the caller, and would be ignored silently. Weights on the input are allowed for any K: each choice then
 * multiplies its own copy of the input. These checks run once, when a layer is described; routing itself checks
 * nothing.
 */
#include "route/route.h"

static const char *const select_names[] = { "topk", "table", "sparsemixer", "custom", "sim_uniform", "sim_normal" };

static moxie_status check_sizes(const moxie_routing *r, int64_t experts, int64_t top_k, moxie_error *error)
{
    const int64_t all = experts + r->zero_experts;
    MOX_FAIL_IF(experts < 1 || experts > MOXIE_MAX_EXPERTS, MOXIE_ERR_ARGUMENT, error,
                "routing: %lld experts; it must be from 1 to %d", (long long)experts, MOXIE_MAX_EXPERTS);
    MOX_FAIL_IF(r->zero_experts < 0 || all > MOXIE_MAX_EXPERTS, MOXIE_ERR_ARGUMENT, error,
                "routing.zero_experts is %d; with %lld experts it must be from 0 to %lld", (int)r->zero_experts,
                (long long)experts, (long long)(MOXIE_MAX_EXPERTS - experts));
    MOX_FAIL_IF(top_k < 1 || top_k > MOXIE_MAX_TOP_K, MOXIE_ERR_ARGUMENT, error,
                "routing: top_k is %lld; it must be from 1 to %d", (long long)top_k, MOXIE_MAX_TOP_K);
    MOX_FAIL_IF(top_k > all, MOXIE_ERR_ARGUMENT, error,
                "routing: top_k is %lld, but there %s only %lld expert%s to choose from; give at least %lld",
                (long long)top_k, all == 1 ? "is" : "are", (long long)all, all == 1 ? "" : "s", (long long)top_k);
    return MOXIE_OK;
}

static moxie_status check_number(const char *field, int32_t value, int32_t largest, moxie_error *error)
{
    MOX_FAIL_IF(value < 0 || value > largest, MOXIE_ERR_ARGUMENT, error,
                "routing.%s is %d; the values known are 0 to %d", field, (int)value, (int)largest);
    return MOXIE_OK;
}

static moxie_status check_float(const char *field, float value, moxie_error *error)
{
    MOX_FAIL_IF(!(value >= 0) || isinf(value), MOXIE_ERR_ARGUMENT, error,
                "routing.%s is %g; it must be a finite number that is not negative", field, (double)value);
    return MOXIE_OK;
}

static moxie_status check_values(const moxie_routing *r, moxie_error *error)
{
    MOX_TRY(check_number("score", r->score, MOXIE_SCORE_SQRTSOFTPLUS, error));
    MOX_TRY(check_number("select", r->select, MOXIE_SELECT_SIM_NORMAL, error));
    MOX_TRY(check_number("weight", r->weight, MOXIE_WEIGHT_SIGMOID_SELECTED, error));
    MOX_TRY(check_number("norm", r->norm, MOXIE_NORM_ROOT_SQUARES, error));
    MOX_TRY(check_number("group_score", r->group_score, MOXIE_GROUP_MAX, error));
    MOX_TRY(check_float("norm_eps", r->norm_eps, error));
    MOX_TRY(check_number("group_fill_zero", r->group_fill_zero, MOXIE_FILL_ZERO_KEY, error));
    MOX_TRY(check_number("zero_kind", r->zero_kind, MOXIE_ZERO_NULL, error));
    MOX_TRY(check_number("topk_per_group", r->topk_per_group, MOXIE_MAX_TOP_K, error));
    MOX_TRY(check_float("softcap", r->softcap, error));
    MOX_TRY(check_float("jitter", r->jitter, error));
    return check_float("scale", r->scale, error);
}

/* A field that only some selections read. */
typedef struct field_rule {
    const char *name;
    bool set;
    uint32_t readers; /* bits by moxie_select */
} field_rule;

#define BIT(select) (1u << MOXIE_SELECT_##select)
#define LOGIT_BASED (BIT(TOPK) | BIT(TABLE) | BIT(SPARSEMIXER))
#define BUILT_IN    (LOGIT_BASED | BIT(SIM_UNIFORM) | BIT(SIM_NORMAL))
#define SCORE_BASED (BIT(TOPK) | BIT(TABLE))

static moxie_status check_unread(const moxie_routing *r, moxie_error *error)
{
    const field_rule rules[] = {
        { "score", r->score != MOXIE_SCORE_LOGIT, SCORE_BASED },
        { "weight", r->weight != MOXIE_WEIGHT_SCORE, SCORE_BASED },
        { "norm", r->norm != MOXIE_NORM_NONE, BUILT_IN },
        { "scale", r->scale != 0 && r->scale != 1, BUILT_IN },
        { "per_expert_scale", r->per_expert_scale != NULL, BUILT_IN },
        { "round_weights_bf16", r->round_weights_bf16 != 0, BUILT_IN },
        { "round_logits_bf16", r->round_logits_bf16 != 0, LOGIT_BASED },
        { "bias", r->bias != NULL, BIT(TOPK) },
        { "bias_alt", r->bias_alt != NULL, BIT(TOPK) | BIT(TABLE) },
        { "n_group", r->n_group > 1, BIT(TOPK) },
        { "topk_per_group", r->topk_per_group != 0, BIT(TOPK) },
        { "softcap", r->softcap != 0, SCORE_BASED },
        { "zero_experts", r->zero_experts != 0, SCORE_BASED | BIT(CUSTOM) },
        { "table", r->table != NULL, BIT(TABLE) },
        { "jitter", r->jitter != 0, BIT(SPARSEMIXER) },
        { "custom", r->custom != NULL, BIT(CUSTOM) },
    };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        MOX_FAIL_IF(
            rules[i].set && !(rules[i].readers >> r->select & 1), MOXIE_ERR_ARGUMENT, error,
            "routing.%s is set, but the selection \"%s\" does not read it: it would have no effect; clear it, or "
            "choose another selection",
            rules[i].name, select_names[r->select]);
    return MOXIE_OK;
}

/* Groups with choices of their own. */
static moxie_status check_per_group(const moxie_routing *r, int64_t experts, int64_t top_k, moxie_error *error)
{
    const int32_t groups = r->n_group, own = r->topk_per_group;
    MOX_FAIL_IF(
        groups <= 1 || own * (int64_t)groups != top_k, MOXIE_ERR_ARGUMENT, error,
        "routing.topk_per_group is %d; with %d group(s) and top_k %lld it must be top_k / n_group, of more than "
        "one group",
        (int)own, (int)groups, (long long)top_k);
    MOX_FAIL_IF(r->topk_group != 0 && r->topk_group != groups, MOXIE_ERR_ARGUMENT, error,
                "routing.topk_group is %d, but topk_per_group takes choices from all %d groups; set it to 0",
                (int)r->topk_group, (int)groups);
    MOX_FAIL_IF(own > experts / groups, MOXIE_ERR_ARGUMENT, error,
                "routing.topk_per_group is %d, but a group has %lld experts", (int)own, (long long)(experts / groups));
    return MOXIE_OK;
}

static moxie_status check_groups(const moxie_routing *r, int64_t experts, int64_t top_k, moxie_error *error)
{
    const int32_t groups = r->n_group, best = r->topk_group;
    MOX_FAIL_IF(groups < 0 || best < 0, MOXIE_ERR_ARGUMENT, error,
                "routing.n_group is %d and topk_group %d; neither may be negative", (int)groups, (int)best);
    if (groups <= 1 && r->topk_per_group == 0) {
        MOX_FAIL_IF(best > 1, MOXIE_ERR_ARGUMENT, error,
                    "routing.topk_group is %d, but n_group is %d: there are no groups to choose from; set n_group, or "
                    "topk_group to 0",
                    (int)best, (int)groups);
        return MOXIE_OK;
    }
    MOX_FAIL_IF(groups > 1 && experts % groups != 0, MOXIE_ERR_ARGUMENT, error,
                "routing: %lld experts do not divide into %d groups; give a multiple of %d", (long long)experts,
                (int)groups, (int)groups);
    if (r->topk_per_group > 0)
        return check_per_group(r, experts, top_k, error);
    MOX_FAIL_IF(best < 1 || best > groups, MOXIE_ERR_ARGUMENT, error,
                "routing.topk_group is %d; with %d groups it must be from 1 to %d", (int)best, (int)groups,
                (int)groups);
    MOX_FAIL_IF(best * (experts / groups) < top_k, MOXIE_ERR_ARGUMENT, error,
                "routing: %d groups of %lld experts hold %lld, fewer than top_k %lld; keep more groups", (int)best,
                (long long)(experts / groups), (long long)(best * (experts / groups)), (long long)top_k);
    return MOXIE_OK;
}

static moxie_status check_needed(const moxie_routing *r, int64_t top_k, moxie_error *error)
{
    MOX_FAIL_IF(r->select == MOXIE_SELECT_TABLE && (!r->table || r->table_rows < 1), MOXIE_ERR_ARGUMENT, error,
                "routing by table, but there is no table (%lld rows at %s); set routing.table and table_rows",
                (long long)r->table_rows, r->table ? "an address" : "NULL");
    MOX_FAIL_IF(r->select == MOXIE_SELECT_SPARSEMIXER && top_k != 2, MOXIE_ERR_ARGUMENT, error,
                "routing by sparsemixer chooses exactly 2 experts; top_k is %lld", (long long)top_k);
    MOX_FAIL_IF(r->zero_kind != MOXIE_ZERO_IDENTITY && r->zero_experts == 0, MOXIE_ERR_ARGUMENT, error,
                "routing.zero_kind is set, but zero_experts is 0: there are none of that kind");
    MOX_FAIL_IF(r->select == MOXIE_SELECT_CUSTOM && !r->custom, MOXIE_ERR_ARGUMENT, error,
                "routing by a custom callback, but routing.custom is NULL");
    return MOXIE_OK;
}

moxie_status mox_routing_check(const moxie_routing *routing, int64_t experts, int64_t top_k, moxie_error *error)
{
    const int64_t all = experts + routing->zero_experts;
    MOX_TRY(check_sizes(routing, experts, top_k, error));
    MOX_TRY(check_values(routing, error));
    MOX_TRY(check_unread(routing, error));
    MOX_TRY(check_groups(routing, all, top_k, error));
    return check_needed(routing, top_k, error);
}
