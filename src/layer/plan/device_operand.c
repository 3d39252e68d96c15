/* SPDX-License-Identifier: Apache-2.0
 *
 * device_operand.c - kinds and extents of the operands on a GPU (device_operand.h).
 */
#include "layer/plan/device_operand.h"

#include "base/sizes.h"
#include "cuda/expert_gemm/sm90/sm90_plan.h"
#include "pack/hopper/hopper.h"

static int64_t up(int64_t n, int64_t unit)
{
    return mox_ceil_div(n, unit) * unit;
}

/* Elements from row to row: 16 bytes for rows that are copied by so many, 128 for chunks. */
static int64_t stride_of(const mox_device_form *f)
{
    const int64_t unit = f->tiled ? MOX_HOPPER_CHUNK_WIDTH : 16;
    return f->kind == MOX_CUDA_OPERAND_F32 ? up(f->cols, MOX_CUDA_OPERAND_PAD) : up(f->cols, unit / f->element_bytes);
}

mox_device_form mox_device_form_of(const moxie_plan *plan, const mox_expert_side *side, mox_projection projection)
{
    const bool first = projection == MOX_W13, routed = side == &plan->routed;
    const mox_cuda_expert_gemm_row *row = first ? side->cuda.gemm13 : side->cuda.gemm2;
    const moxie_quant *quant = first ? &side->a13 : &side->a2;
    mox_device_form f = { .kind = row->operand, .rows = first ? side->max_rows : side->max_pairs };
    f.cols = first ? side->shape.hidden : side->shape.intermediate;
    f.group_cols = mox_max_i64(f.cols, 1);
    if (!mox_quant_is_none(quant)) {
        f.group_cols = mox_act_group_cols(quant, f.cols);
        f.scale_cols = mox_ceil_div(f.cols, f.group_cols);
    }
    f.tiled = !first && mox_device_fuses(side);
    if (f.tiled && side->rows.layout == &mox_layout_hopper_codes)
        f.kind = MOX_CUDA_OPERAND_NATIVE; /* codes have become bf16 */
    f.element_bytes = f.kind == MOX_CUDA_OPERAND_F32 ? 4 : f.kind == MOX_CUDA_OPERAND_NATIVE ? 2 : 1;
    f.stride = stride_of(&f);
    f.direct =
        first && f.kind == MOX_CUDA_OPERAND_NATIVE && f.stride == f.cols && !(routed && plan->config.routing.on_input);
    f.scale_room = f.scale_cols;
    if (f.tiled) {
        f.rows = mox_sm90_tiled_rows(f.rows, routed ? plan->config.experts : 1);
        f.scale_room = f.kind == MOX_CUDA_OPERAND_CODES ? f.stride / MOX_HOPPER_CHUNK_WIDTH : 0;
    }
    return f;
}

mox_device_form mox_device_shown_form(const mox_device_form *form)
{
    mox_device_form f = *form;
    f.kind = MOX_CUDA_OPERAND_F32;
    f.tiled = f.direct = false;
    f.scale_room = f.scale_cols;
    f.element_bytes = 4;
    f.stride = stride_of(&f);
    return f;
}
