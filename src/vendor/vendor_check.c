/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor_check.c - whether an expert's views have the planned shape, and whether the target can represent its values.
 *
 *   views      shapes, dtypes and sizes as the plan has them
 *   target     what no tensor of any layout could hold: a global scale for each row, mixed dtypes
 *   layout     the layout's own question (mox_vendor_layout.holds)
 */
#include <stdio.h>

#include "pack/grid_move.h"
#include "vendor/vendor_internal.h"

/* What to do about columns in act order. Returns `buffer`. */
static const char *act_order_remedy(const mox_vendor_layout *layout, char buffer[128])
{
    if (layout->act_order.order[0] != NULL)
        return "the example that the layer was planned with has natural order; plan with an expert in act order";
    for (int32_t i = 0; mox_vendor_at(i) != NULL; i++) {
        const mox_vendor_layout *other = mox_vendor_at(i);
        if (strcmp(other->name, layout->name) != 0 || other->act_order.order[0] == NULL)
            continue;
        snprintf(buffer, 128, "%s reads them in natural order; the version for %s accepts them (--for %s)",
                 mox_vendor_release(layout), mox_vendor_release(other), mox_vendor_release(other));
        return buffer;
    }
    return "the target reads them in natural order; export the checkpoint without act order";
}

/* Values that no tensor of any layout could hold, or not in the way that the plan expects. */
static moxie_status check_matrix(const mox_vendor_plan *plan, const moxie_matrix *matrix, int which, const char *what,
                                 moxie_error *error)
{
    const char *layout = plan->layout->name;
    char remedy[128];
    MOX_FAIL_IF(matrix->global.data != NULL && matrix->global.rows != 1, MOXIE_ERR_UNSUPPORTED, error,
                "layout %s: %s has a global scale for each row, and the target accepts one per matrix", layout, what);
    const int64_t group = mox_group_cols(which ? &plan->shape.w2 : &plan->shape.w13, matrix->codes.cols);
    MOX_FAIL_IF(!plan->act_order && !mox_pack_is_natural_order(matrix->group_index, matrix->codes.cols, group),
                MOXIE_ERR_UNSUPPORTED, error, "layout %s: %s has columns in act order (a group index), and %s", layout,
                what, act_order_remedy(plan->layout, remedy));
    MOX_FAIL_IF((matrix->bias.data != NULL && matrix->bias.dtype != plan->bias[which]) ||
                    (matrix->zero.data != NULL && matrix->zero.dtype != plan->zero[which]),
                MOXIE_ERR_UNSUPPORTED, error,
                "layout %s: %s has biases or zero points of another dtype than the rest of the layer", layout, what);
    return MOXIE_OK;
}

moxie_status mox_vendor_check_views(const mox_record_shape *s, const moxie_expert *expert, moxie_error *error)
{
    if (s->gated)
        MOX_TRY(mox_matrix_check(&expert->gate, &s->w13, s->intermediate, s->hidden, s->bias13, "gate", error));
    MOX_TRY(mox_matrix_check(&expert->up, &s->w13, s->intermediate, s->hidden, s->bias13, "up", error));
    return mox_matrix_check(&expert->down, &s->w2, s->hidden, s->intermediate, s->bias2, "down", error);
}

moxie_status mox_vendor_check_planned(const mox_vendor_plan *plan, const moxie_expert *expert, moxie_error *error)
{
    MOX_TRY(mox_vendor_check_views(&plan->shape, expert, error));
    if (plan->shape.gated)
        MOX_TRY(check_matrix(plan, &expert->gate, MOX_VENDOR_W13, "gate", error));
    MOX_FAIL_IF(plan->shape.gated && expert->gate.zero_add != expert->up.zero_add, MOXIE_ERR_UNSUPPORTED, error,
                "layout %s: zero_add is %g of gate and %g of up, and the target has one tensor for both",
                plan->layout->name, (double)expert->gate.zero_add, (double)expert->up.zero_add);
    if (plan->shape.gated && plan->act_order)
        MOX_TRY(mox_columns_check_halves(plan, expert, error));
    MOX_TRY(check_matrix(plan, &expert->up, MOX_VENDOR_W13, "up", error));
    return check_matrix(plan, &expert->down, MOX_VENDOR_W2, "down", error);
}

moxie_status mox_vendor_check(const mox_vendor_plan *plan, const moxie_expert *expert, moxie_error *error)
{
    MOX_TRY(mox_vendor_check_planned(plan, expert, error));
    char reason[160] = "";
    MOX_FAIL_IF(plan->layout->holds != NULL && !plan->layout->holds(plan, expert, reason, sizeof reason),
                MOXIE_ERR_UNSUPPORTED, error, "layout %s: %s", plan->layout->name, reason);
    return MOXIE_OK;
}
