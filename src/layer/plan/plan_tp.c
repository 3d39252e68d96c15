/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_tp.c - the buffers of tensor parallel plans (plan_tp.h).
 *
 *     workspace | act [pairs, I_r] | y [pairs, H_r] | pieces to send | pieces of all ranks of the group |
 */
#include "layer/plan/plan_tp.h"

#include <stdio.h>

#include "base/sizes.h"
#include "layer/plan/plan_product.h"

mox_tp_rows mox_tp_columns(const moxie_plan *plan, mox_expert_kind kind, mox_projection projection, int32_t rank)
{
    return mox_tp_part(&plan->config, kind, projection, rank);
}

int64_t mox_tp_pieces(int64_t columns)
{
    return mox_ceil_div(columns, MOX_TP_UNIT);
}

moxie_dtype mox_tp_dtype(const moxie_plan *plan, mox_expert_kind kind, mox_projection projection)
{
    const bool adapted = kind == MOX_ROUTED && plan->max_adapter_rank > 0;
    const bool rounded = mox_quant_is_none(&plan->experts[kind].act[MOX_W2]) && !adapted;
    return projection == MOX_W13 && rounded ? plan->config.dtype : MOXIE_F32;
}

/* Bytes of one pair's pieces, of this rank or of the group. */
static int64_t pair_bytes(const moxie_plan *plan, mox_expert_kind kind, mox_projection p, bool of_group)
{
    const int32_t size = mox_config_tp_ranks(&plan->config), own = plan->config.tp_rank;
    int64_t pieces = 0;
    for (int32_t r = of_group ? 0 : own; r < (of_group ? size : own + 1); r++)
        pieces += mox_tp_pieces(mox_tp_columns(plan, kind, p, r).count);
    return pieces * MOX_TP_UNIT * mox_dtype_bytes(mox_tp_dtype(plan, kind, p));
}

/* The largest of what either kind of expert needs: they run one after the other. */
typedef struct tp_sizes {
    uint64_t act, y, send, recv;
} tp_sizes;

static void need(tp_sizes *s, uint64_t act, uint64_t y, uint64_t send, uint64_t recv)
{
    s->act = act > s->act ? act : s->act;
    s->y = y > s->y ? y : s->y;
    s->send = send > s->send ? send : s->send;
    s->recv = recv > s->recv ? recv : s->recv;
}

static uint64_t own_bytes(const moxie_plan *plan, mox_expert_kind kind, mox_projection p)
{
    return (uint64_t)mox_tp_columns(plan, kind, p, plan->config.tp_rank).count * sizeof(float);
}

static void need_routed(const moxie_plan *plan, tp_sizes *s)
{
    const uint64_t pairs = (uint64_t)plan->experts[MOX_ROUTED].max_pairs;
    const bool sums = plan->tp_cut == MOX_TP_SUMS;
    const int64_t act = pair_bytes(plan, MOX_ROUTED, MOX_W13, false), y = pair_bytes(plan, MOX_ROUTED, MOX_W2, false);
    const int64_t all_acts = pair_bytes(plan, MOX_ROUTED, MOX_W13, true),
                  all_y = pair_bytes(plan, MOX_ROUTED, MOX_W2, true);
    const int64_t came = sums ? mox_config_tp_ranks(&plan->config) * y : all_acts;
    if (plan->tp_cut == MOX_TP_WHOLE)
        return;
    need(s, sums ? 0 : pairs * own_bytes(plan, MOX_ROUTED, MOX_W13), pairs * own_bytes(plan, MOX_ROUTED, MOX_W2),
         pairs * (uint64_t)(sums ? all_y : mox_max_i64(act, y)), pairs * (uint64_t)mox_max_i64(came, all_y));
}

/* Hidden states of the group come first, then act, then y of own tokens. */
static void need_shared(const moxie_plan *plan, tp_sizes *s)
{
    const uint64_t tokens = (uint64_t)mox_plan_shared_tokens(plan);
    const int64_t x = plan->config.hidden * mox_dtype_bytes(plan->config.dtype);
    const int64_t act = pair_bytes(plan, MOX_SHARED_EXPERT, MOX_W13, false),
                  y = pair_bytes(plan, MOX_SHARED_EXPERT, MOX_W2, false);
    const int64_t all_acts = pair_bytes(plan, MOX_SHARED_EXPERT, MOX_W13, true),
                  all_y = pair_bytes(plan, MOX_SHARED_EXPERT, MOX_W2, true);
    if (plan->shared_cut == MOX_TP_WHOLE)
        return;
    need(s, tokens * own_bytes(plan, MOX_SHARED_EXPERT, MOX_W13), tokens * own_bytes(plan, MOX_SHARED_EXPERT, MOX_W2),
         tokens * (uint64_t)mox_max_i64(x, mox_max_i64(act, y)),
         tokens * (uint64_t)mox_max_i64(x, mox_max_i64(all_acts, all_y)));
}

void mox_tp_carve(mox_carver *carver, moxie_plan *plan)
{
    tp_sizes sizes = { 0 };
    mox_workspace *s = &plan->space;
    need_routed(plan, &sizes);
    need_shared(plan, &sizes);
    s->tp_act = mox_carve_offset(carver, sizes.act, 1);
    s->tp_y = mox_carve_offset(carver, sizes.y, 1);
    s->tp_send_bytes = sizes.send;
    s->tp_recv_bytes = sizes.recv;
    s->tp_send = mox_carve_offset(carver, s->tp_send_bytes, 1);
    s->tp_recv = mox_carve_offset(carver, s->tp_recv_bytes, 1);
}

/* Kernels are chosen for whole matrices, so that bits are those of one rank. */
static moxie_status check_part(const moxie_plan *plan, mox_expert_kind kind, mox_projection p, moxie_error *error)
{
    const mox_target target = { .device = &plan->device.features, .mode = plan->mode };
    const mox_kernel *kernel = plan->kernels.experts[kind].product[p];
    mox_expert_gemm_problem problem = mox_plan_problem(plan, kind, p);
    mox_rejection why = { "", "" };
    problem.gathered = true;
    MOX_FAIL_IF(!plan->backend->admits(&target, MOX_FAMILY_expert_gemm, kernel, &problem, &why), MOXIE_ERR_UNSUPPORTED,
                error,
                "kernel %s multiplies %s%s, but not the rows of tensor parallel rank %d of %d: it %s; use another "
                "tp_size",
                kernel->name, kind == MOX_ROUTED ? "" : "the shared expert's ", p == MOX_W13 ? "w13" : "w2",
                (int)plan->config.tp_rank, (int)plan->config.tp_size, why.reason);
    return MOXIE_OK;
}

static moxie_status check_parts(const moxie_plan *plan, mox_expert_kind kind, mox_tp_cut cut, moxie_error *error)
{
    if (cut != MOX_TP_ROWS)
        return MOXIE_OK;
    MOX_TRY(check_part(plan, kind, MOX_W13, error));
    return check_part(plan, kind, MOX_W2, error);
}

moxie_status mox_tp_check(const moxie_plan *plan, moxie_error *error)
{
    const mox_expert_plan *routed = &plan->experts[MOX_ROUTED];
    const mox_expert_gemm_problem second = mox_plan_problem(plan, MOX_ROUTED, MOX_W2);
    const mox_target target = { .device = &plan->device.features, .mode = plan->mode };
    if (!plan->backend->on_device)
        return MOXIE_OK;
    MOX_TRY(check_parts(plan, MOX_ROUTED, plan->tp_cut, error));
    if (mox_plan_has_shared(plan)) /* an explanation without a comm has it on the first rank alone */
        MOX_TRY(check_parts(plan, MOX_SHARED_EXPERT, plan->shared_cut, error));
    /* The kernel of W2 reads where W13's has put the tokens. */
    MOX_FAIL_IF(
        plan->tp_cut == MOX_TP_ROWS && routed->shape.rows13 == 0 &&
            plan->backend->product_scratch(&target, routed->kernels.product[MOX_W2], &second, plan->config.experts, 1,
                                           1) > 0,
        MOXIE_ERR_UNSUPPORTED, error,
        "w13 has too few rows for %d tensor parallel ranks: rank %d has none, and kernel %s of w2 needs one; use a "
        "smaller tp_size",
        (int)plan->config.tp_size, (int)plan->config.tp_rank, routed->kernels.product[MOX_W2]->name);
    return MOXIE_OK;
}

static moxie_status add_step(moxie_plan *plan, const char *role, mox_tp_cut cut, const char *text, moxie_error *error)
{
    static const char *const names[] = { [MOX_TP_WHOLE] = "whole", [MOX_TP_ROWS] = "rows", [MOX_TP_SUMS] = "columns" };
    const moxie_plan_step step = { .family = "tensor_parallel",
                                   .role = role,
                                   .kernel = names[cut],
                                   .isa = "",
                                   .layout = "",
                                   .exactness = cut == MOX_TP_SUMS ? "TOL" : "EXACT",
                                   .chosen = 1,
                                   .reason = mox_steps_copy_text(&plan->steps, text),
                                   .remedy = "" };
    MOX_FAIL_IF(step.reason == NULL, MOXIE_ERR_MEMORY, error, "no memory for the steps of a plan");
    return mox_steps_add(&plan->steps, &step, error);
}

/* Bytes of the shared expert's record: this rank's, and of the whole. */
static moxie_status add_shared_step(moxie_plan *plan, moxie_error *error)
{
    char text[320];
    const char *why = "";
    const mox_layout *layout = plan->kernels.experts[MOX_SHARED_EXPERT].layout;
    const mox_record_shape whole = mox_config_shared_shape(&plan->config);
    uint64_t before = 0, after = 0;
    if (!mox_plan_has_shared(plan))
        return MOXIE_OK;
    (void)mox_tp_shared_cut(&plan->config, true, plan->backend->on_device, &why);
    if (plan->shared_cut == MOX_TP_WHOLE) {
        snprintf(text, sizeof text, "each of %d ranks has all of it, and computes it for its own tokens: %s",
                 (int)mox_config_tp_ranks(&plan->config), why);
        return add_step(plan, "shared", MOX_TP_WHOLE, text, error);
    }
    (void)layout->record_bytes(&whole, &before);
    (void)layout->record_bytes(&plan->experts[MOX_SHARED_EXPERT].shape, &after);
    snprintf(text, sizeof text,
             "every dot product is whole on one rank: %llu of %llu bytes are here; the ranks of a group give each "
             "other their tokens, activations and results",
             (unsigned long long)after, (unsigned long long)before);
    return add_step(plan, "shared", MOX_TP_ROWS, text, error);
}

moxie_status mox_tp_add_steps(moxie_plan *plan, moxie_error *error)
{
    char text[256];
    const char *why = "";
    const bool sums = plan->tp_cut == MOX_TP_SUMS;
    const int ranks = (int)mox_config_tp_ranks(&plan->config);
    if (plan->tp_cut == MOX_TP_WHOLE)
        return MOXIE_OK;
    (void)mox_tp_cut_of(&plan->config, plan->mode, &why);
    if (sums)
        snprintf(text, sizeof text,
                 "fast mode: %d ranks each multiply their own columns, and add their results in rank order: %d "
                 "additions in f32, an error of at most %d x 2^-24 of the sum of magnitudes more",
                 ranks, ranks - 1, ranks - 1);
    else
        snprintf(text, sizeof text, "%s%s",
                 why[0] != '\0' ? "as in exact mode: " : "every dot product is whole on one rank", why);
    MOX_TRY(add_step(plan, "w2", plan->tp_cut, text, error));
    return add_shared_step(plan, error);
}
