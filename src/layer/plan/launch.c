/* SPDX-License-Identifier: Apache-2.0
 *
 * launch.c - how a product of a plan for a Hopper GPU is launched for a batch size: tile widths, blocks, pipeline
 * stages.
 *
 * The plan's part of the product's arguments goes through the same functions that the launchers call (sm90_plan.h,
 * mma_shape.h). So the answer needs no GPU and cannot differ from a real launch.
 */
#include "layer/plan/launch.h"

#include "backend/cuda/cuda_product.h"
#include "base/sizes.h"
#include "cuda/expert_gemm/sm90/sm90_plan.h"
#include "layer/plan/plan_product.h"
#include "pack/hopper/hopper.h"

_Static_assert(sizeof((int32_t[]) { MOX_SM90_WIDTHS_W16A16 }) <= sizeof((moxie_cuda_launch *)NULL)->widths,
               "moxie_cuda_launch has room for the longest list of widths");
_Static_assert(MOX_SM90_WARP_MMA_COLUMNS < MOX_SM90_NARROW_COLUMNS,
               "both kernels of an element have widths for warpgroups");

/* How many experts of this kind the rank has. */
static int64_t slots_of(const moxie_plan *plan, mox_expert_kind kind)
{
    const moxie_layer_config *c = &plan->config;
    int32_t slot_of[MOXIE_MAX_EXPERTS], slots = 0;
    if (kind == MOX_SHARED_EXPERT)
        return 1;
    if (plan->layer != NULL)
        return plan->layer->slots;
    return mox_config_map_experts(c, slot_of, &slots, NULL) == MOXIE_OK ? slots : 0;
}

static void fill(const mox_sm90_product *p, moxie_cuda_launch *out)
{
    int32_t count;
    const int32_t *widths = p->gemm.mma_sync ? mox_sm80_widths_of(p->element, p->max_columns, &count)
                                             : mox_sm90_widths_of(p->element, p->max_columns, &count);
    out->tile_tokens = p->max_columns;
    out->warp_tokens = p->gemm.mma_sync ? p->max_columns : mox_sm90_warp_mma_columns(p->element);
    for (int32_t i = 0; i < count && (i == 0 || widths[i - 1] < p->max_columns); i++)
        out->widths[out->n_widths++] = widths[i];
    out->blocks = mox_gemm_resident_blocks(p->element, &p->gemm);
    out->stages = p->gemm.stages;
    out->chunks = p->gemm.few_columns > 0 ? p->gemm.few_chunks : p->gemm.chunks_per_stage;
    out->pairs = p->gemm.paired;
}

bool mox_plan_launch(const moxie_plan *plan, int32_t step, int64_t tokens, moxie_cuda_launch *out)
{
    static const int32_t any_ids[1]; /* routed experts always run with ids; nothing here reads the elements */
    mox_hopper_record record;
    if (step < 0 || step >= plan->steps.count || tokens < 1 || plan->steps.products[step].projection < 0)
        return false;
    const mox_expert_kind kind = (mox_expert_kind)plan->steps.products[step].expert_kind;
    const mox_projection projection = (mox_projection)plan->steps.products[step].projection;
    const mox_expert_plan *experts = &plan->experts[kind];
    const int64_t slots = slots_of(plan, kind), pass = mox_plan_pass(plan, tokens);
    if (!mox_hopper_form(experts->kernels.layout, &experts->shape, &record) || slots == 0)
        return false;
    mox_expert_gemm_args args = mox_plan_product(plan, kind, projection, slots, pass);
    args.ids = kind == MOX_ROUTED ? any_ids : NULL;
    const mox_cuda_expert_gemm_args lowered =
        mox_cuda_product_args(&plan->device.features, experts->kernels.product[projection], &args);
    mox_sm90_product product;
    mox_sm90_product_of(&lowered, &product);
    mox_gemm_make_ring(product.element, &product.gemm);
    *out = (moxie_cuda_launch) { 0 };
    fill(&product, out);
    return true;
}
