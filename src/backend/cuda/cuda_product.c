/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_product.c - fills in the arguments of a product's launcher (cuda_product.h).
 *
 *     mox_expert_gemm_args  ->  mox_cuda_expert_gemm_args  ->  launcher  ->  kernel
 */
#include "backend/cuda/cuda_product.h"

#include "cuda/expert_gemm/cuda_expert_gemm.h"
#include "cuda/expert_gemm/sm90/sm90_plan.h"
#include "pack/hopper/hopper.h"
#include "pack/hopper/hopper_blocks.h"
#include "pack/order/column_order.h"

static mox_cuda_matrix matrix_of(const mox_rowmajor_place *p)
{
    return (mox_cuda_matrix) { .rows = p->rows,
                               .cols = p->cols,
                               .codes = p->codes,
                               .row_bytes = p->row_bytes,
                               .scale = p->scale,
                               .zero = p->zero,
                               .global = p->global,
                               .bias = p->bias,
                               .group_index = p->group_index,
                               .visit = p->visit,
                               .order_flag = p->order_flag,
                               .scale_rows = p->scale_rows,
                               .scale_cols = p->scale_cols,
                               .group_rows = p->group_rows,
                               .group_cols = p->group_cols };
}

static mox_cuda_tiles tiles_of(const mox_hopper_matrix *m)
{
    return (mox_cuda_tiles) { .tiles = m->tiles_at,
                              .tile_bytes = m->tile_bytes,
                              .row_scale = m->row_scale_at,
                              .bias = m->bias_at,
                              .count = (int32_t)m->tiles,
                              .chunks = (int32_t)m->chunks,
                              .last_rows = m->last_rows,
                              .scale_bytes = m->scale_bytes,
                              .scale_shift = m->scale_shift };
}

static mox_cuda_block block_of(moxie_dtype element)
{
    const mox_hopper_block b = mox_hopper_block_of(element);
    const mox_cuda_block none = { 0 };
    return b.bits == 0 ? none
                       : (mox_cuda_block) { .bits = b.bits,
                                            .row_bytes = b.row_bytes,
                                            .levels = b.looked_up,
                                            .offset = b.fields->offset,
                                            .minimum_sign = b.has_minimums ? b.fields->m_sign : 0 };
}

/* Finds the product's sections in a record: tiles of the Hopper layouts, or matrices of rowmajor. */
static void locate(const mox_expert_gemm_args *args, mox_cuda_expert_gemm_args *out)
{
    const bool first = args->projection == MOX_W13;
    const mox_record_shape *shape = args->shape;
    mox_hopper_record form;
    if (mox_hopper_form(args->layout, shape, &form)) {
        out->tiles = tiles_of(first ? &form.w13 : &form.w2);
        const mox_layout *base = args->layout->base != NULL ? args->layout->base : args->layout;
        out->decoded = base == &mox_layout_hopper_codes;
        if (args->layout->base != NULL) {
            uint64_t bytes = 0;
            (void)base->record_bytes(shape, &bytes); /* the layout was accepted, so it fits */
            out->order_at = bytes + mox_column_order_at(shape, !first);
            out->order_flag = first ? MOX_ORDER_W13 : MOX_ORDER_W2;
        }
        out->block = block_of(out->weight.element);
        out->elements[MOX_W13] = shape->w13.element;
        out->elements[MOX_W2] = shape->w2.element;
        out->group_cols[MOX_W13] = shape->w13.group_cols;
        out->group_cols[MOX_W2] = shape->w2.group_cols;
        out->block_scales[MOX_W13] = mox_sm90_scales_sums(&shape->w13, shape->hidden, args->dtype);
        out->block_scales[MOX_W2] = mox_sm90_scales_sums(&shape->w2, shape->intermediate, args->dtype);
        return;
    }
    mox_rowmajor_places places;
    mox_rowmajor_locate(shape, &places);
    out->matrix[0] = matrix_of(!first ? &places.down : shape->gated ? &places.gate : &places.up);
    out->matrix[1] = matrix_of(&places.up);
}

/* Arguments of a kernel for W13 that fuses the activation. */
static void add_fused(const mox_expert_gemm_args *args, mox_cuda_expert_gemm_args *out)
{
    if (args->glu != NULL)
        out->glu = *args->glu;
    if (args->next != NULL)
        out->next = *args->next;
    if (args->next_act != NULL)
        out->next_quant = *args->next_act;
    out->part = args->part;
    out->change = args->change;
    out->kept_act = args->kept_act;
    out->trace = args->trace;
}

mox_cuda_expert_gemm_args mox_cuda_product_args(const mox_cuda_features *device, const mox_kernel *kernel,
                                                const mox_expert_gemm_args *args)
{
    const mox_record_shape *shape = args->shape;
    const bool first = args->projection == MOX_W13;
    const moxie_quant *weight = first ? &shape->w13 : &shape->w2;
    mox_cuda_expert_gemm_args out = {
        .projection = args->projection,
        .fuses = ((const mox_cuda_expert_gemm_kernel *)kernel)->fuses,
        .gated = shape->gated,
        .hidden = shape->hidden,
        .intermediate = shape->intermediate,
        .weight = *weight,
        .act = *args->act,
        .element_bits = mox_dtype_bits(weight->element),
        .dtype = args->dtype,
        .has_bias = first ? shape->bias13 : shape->bias2,
        .records = args->slots > 0 && args->records != NULL ? args->records[0] : NULL,
        .record_bytes = args->record_bytes,
        .slots = args->slots,
        .table = args->table,
        .scale_table = args->scale_table,
        .offsets = args->offsets,
        .ids = args->ids,
        .slot_of = args->slot_of,
        .experts = args->experts,
        .max_pairs = args->max_pairs,
        .tokens = args->tokens,
        .multiprocessors = device->multiprocessors,
        .mma_sync = (((const mox_cuda_expert_gemm_kernel *)kernel)->cuda.needs & MOX_CUDA_WGMMA) == 0,
        .shared_bytes = device->shared_bytes,
        .act_row = args->act_row,
        .a = *args->a,
        .out = args->out,
        .n_out = args->n_out,
        .scratch = args->scratch,
    };
    add_fused(args, &out);
    locate(args, &out);
    return out;
}
