/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_explain.c - the plan that a layer with given weights would get, without packing them. It differs from the plan
 * of the configuration where columns are in act order (pack/order/column_order.h):
 *
 *     plan of the configuration -> its layouts -> [a group_index out of natural order?] -> layouts that hold it -> plan
 *
 * Of weights in natural order nothing is read but their group indices, if they have any.
 */
#include "layer/config/config.h"
#include "layer/config/struct_size.h"
#include "layer/plan/plan_create.h"
#include "layer/weights/layer_records.h"
#include "pack/grid_move.h"

static bool reorders(const moxie_matrix *matrix, const moxie_quant *quant)
{
    const int64_t columns = matrix->codes.cols;
    return columns > 0 && !mox_pack_is_natural_order(matrix->group_index, columns, mox_group_cols(quant, columns));
}

static bool in_act_order(const moxie_expert *expert, const mox_record_shape *shape)
{
    return (shape->gated && reorders(&expert->gate, &shape->w13)) || reorders(&expert->up, &shape->w13) ||
           reorders(&expert->down, &shape->w2);
}

static bool holds_all(const mox_layout *layout, const mox_record_shape *shape, const moxie_expert *experts,
                      int64_t count, int64_t first)
{
    for (int64_t e = 0; e < count; e++)
        if (!mox_layer_accepts(layout, shape, first + e, &experts[e]))
            return false;
    return true;
}

/* Moves on to a layout that holds all `count` experts, numbered from `first` on. As in a layer, each layout is asked
 * about all of them: a fallback need not hold what the layout before it held. No packer looks at these views later, so
 * those in act order are checked here. */
static moxie_status find_layout(const moxie_layer_config *config, mox_expert_kind kind, const mox_record_shape *shape,
                                const moxie_expert *experts, int64_t count, int64_t first, const mox_layout **layout,
                                moxie_error *error)
{
    bool any = false;
    for (int64_t e = 0; e < count; e++)
        if (in_act_order(&experts[e], shape)) {
            MOX_TRY(mox_record_check_views(&mox_layout_rowmajor, shape, first + e, &experts[e], error));
            any = true;
        }
    while (any && !holds_all(*layout, shape, experts, count, first))
        *layout = mox_layer_fallback(config, kind, *layout);
    return MOXIE_OK;
}

static moxie_status find_layouts(const moxie_layer_config *config, const moxie_weights *weights,
                                 const mox_layout *layouts[MOX_EXPERT_KINDS], moxie_error *error)
{
    const mox_record_shape routed = mox_config_routed_shape(config), shared = mox_config_shared_shape(config);
    MOX_TRY(
        find_layout(config, MOX_ROUTED, &routed, weights->experts, weights->n_experts, 0, &layouts[MOX_ROUTED], error));
    if (layouts[MOX_SHARED_EXPERT] == NULL || weights->shared == NULL)
        return MOXIE_OK;
    return find_layout(config, MOX_SHARED_EXPERT, &shared, weights->shared, 1, -1, &layouts[MOX_SHARED_EXPERT], error);
}

static moxie_status check_count(const moxie_weights *weights, int64_t experts, moxie_error *error)
{
    MOX_FAIL_IF(weights->n_experts != experts || weights->experts == NULL, MOXIE_ERR_MISMATCH, error,
                "weights hold %lld experts, but the configuration has %lld: pass a view for each expert",
                (long long)weights->n_experts, (long long)experts);
    return MOXIE_OK;
}

moxie_status mox_plan_explain_weights(const moxie_layer_config *config, const moxie_weights *weights,
                                      const moxie_options *options, moxie_plan **out, moxie_error *error)
{
    moxie_weights w;
    moxie_plan *plan;
    MOX_TRY(mox_struct_read(weights, &w, MOX_STRUCT(moxie_weights), error));
    MOX_TRY(mox_plan_explain(config, NULL, false, options, &plan, error));
    const mox_layout *layouts[MOX_EXPERT_KINDS];
    bool moved = false;
    for (int k = 0; k < MOX_EXPERT_KINDS; k++)
        layouts[k] = plan->experts[k].kernels.layout;
    moxie_status status = check_count(&w, plan->config.experts, error);
    if (status == MOXIE_OK)
        status = find_layouts(&plan->config, &w, layouts, error);
    for (int k = 0; k < MOX_EXPERT_KINDS; k++)
        moved = moved || layouts[k] != plan->experts[k].kernels.layout;
    if (status == MOXIE_OK && !moved) {
        *out = plan;
        return MOXIE_OK;
    }
    mox_plan_destroy(plan);
    return status == MOXIE_OK ? mox_plan_explain(config, layouts, false, options, out, error) : status;
}
