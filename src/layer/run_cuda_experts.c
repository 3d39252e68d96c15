/* SPDX-License-Identifier: Apache-2.0
 *
 * run_cuda_experts.c - the chain of one kind of expert over one pass on a GPU, as run_experts.c has it for the host:
 *
 *     x -> quant_act -> expert_gemm w13 -> glu -> quant_act -> expert_gemm w2 -> y [pairs, H]
 *
 * pass->pairs is the most that any routing can give; how many there are is offsets[slots], on the device.
 */
#include "base/sizes.h"
#include "layer/run.h"

/* What the stages share. */
typedef struct chain {
    const mox_run *run;
    mox_expert_pass *pass;
    const mox_cuda_table *table;
    mox_cuda_stream stream;
    mox_cuda_operand a13, a2;
    moxie_error *error;
} chain;

static const mox_device_layer *layer_of(const chain *c)
{
    return &c->run->plan->layer->on;
}

/* ---- operands ------------------------------------------------------------------------------------------ */

static mox_cuda_operand describe(const chain *c, const moxie_quant *quant, const mox_operand_space *space, int64_t cols)
{
    const bool quantized = !mox_quant_is_none(quant);
    char *at = c->run->space;
    mox_cuda_operand o = { .kind = MOX_CUDA_OPERAND_F32,
                           .dtype = c->run->plan->config.dtype,
                           .cols = cols,
                           .stride = mox_ceil_div(cols, MOX_CUDA_OPERAND_PAD) * MOX_CUDA_OPERAND_PAD,
                           .values = at + space->values,
                           .group_cols = mox_max_i64(cols, 1) };
    if (!quantized)
        return o;
    o.scales = (float *)(at + space->scales);
    o.group_cols = mox_act_group_cols(quant, cols);
    o.scale_cols = mox_ceil_div(cols, o.group_cols);
    o.global_kind = quant->global;
    o.global = quant->global != MOXIE_GLOBAL_NONE ? (float *)(at + space->global) : NULL;
    o.integer = mox_format_of(quant->element)->kind == MOX_KIND_INTEGER;
    return o;
}

/* The same for those who look at a run (mox_probe). */
static mox_operand shown(const mox_cuda_operand *o, int64_t rows)
{
    return (mox_operand) { .rows = rows,
                           .cols = o->cols,
                           .stride = o->stride,
                           .values = o->values,
                           .scales = o->scales,
                           .group_cols = o->group_cols,
                           .scale_cols = o->scale_cols,
                           .global = o->global,
                           .global_kind = o->global_kind,
                           .integer = o->integer };
}

static mox_cuda_quant_act_args quantizer(const chain *c, const moxie_quant *quant, const mox_cuda_operand *out)
{
    const bool quantized = !mox_quant_is_none(quant);
    return (mox_cuda_quant_act_args) {
        .quant = *quant,
        .rule = quantized ? mox_act_quant_rule(quant) : 0,
        .cols = out->cols,
        .amax = mox_act_quant_needs_amax(quant) ? (uint32_t *)(c->run->space + c->run->plan->space.amax) : NULL,
        .table = quantized ? mox_device_layer_table(layer_of(c), quant->element) : NULL,
        .out = *out,
    };
}

static moxie_status quantize13(const chain *c, float given)
{
    const mox_expert_pass *pass = c->pass;
    mox_cuda_quant_act_args args = quantizer(c, &pass->side->a13, &c->a13);
    args.x = pass->x;
    args.x_dtype = c->run->plan->config.dtype;
    args.round_to = MOXIE_F32;
    args.max_rows = pass->rows13;
    args.rows = pass->source != NULL ? &pass->offsets[pass->slots] : NULL;
    args.source = pass->source;
    args.row_weight = pass->row_weight;
    args.row_given = pass->given13;
    args.given = given;
    return c->table->quant_act[pass->side->cuda.quant13->cuda.launcher](&args, c->stream, c->error);
}

static moxie_status quantize2(const chain *c, float given)
{
    const mox_expert_pass *pass = c->pass;
    mox_cuda_quant_act_args args = quantizer(c, &pass->side->a2, &c->a2);
    args.x = pass->act;
    args.x_dtype = MOXIE_F32;
    args.round_to = c->run->plan->config.dtype;
    args.max_rows = pass->pairs;
    args.rows = &pass->offsets[pass->slots];
    args.row_given = pass->given2;
    args.given = given;
    return c->table->quant_act[pass->side->cuda.quant2->cuda.launcher](&args, c->stream, c->error);
}

/* ---- products ------------------------------------------------------------------------------------------ */

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

static mox_cuda_glu_args activation(const chain *c)
{
    const mox_expert_pass *pass = c->pass;
    return (mox_cuda_glu_args) { .activation = layer_of(c)->activation,
                                 .slots = pass->slots,
                                 .offsets = pass->offsets,
                                 .expert_of = pass->expert_of,
                                 .max_pairs = pass->pairs,
                                 .h = pass->h,
                                 .intermediate = pass->side->shape.intermediate,
                                 .out = pass->act };
}

static mox_cuda_expert_gemm_args product(const chain *c, mox_projection projection)
{
    const mox_expert_pass *pass = c->pass;
    const mox_expert_side *side = pass->side;
    const moxie_layer *layer = c->run->plan->layer;
    const bool first = projection == MOX_W13, routed = side == &c->run->plan->routed;
    const moxie_quant *weight = first ? &side->shape.w13 : &side->shape.w2;
    mox_rowmajor_places places;
    mox_rowmajor_locate(&side->shape, &places);
    mox_cuda_expert_gemm_args args = {
        .projection = projection,
        .gated = side->shape.gated,
        .hidden = side->shape.hidden,
        .intermediate = side->shape.intermediate,
        .weight = *weight,
        .act = first ? side->a13 : side->a2,
        .element_bits = mox_dtype_bits(weight->element),
        .dtype = c->run->plan->config.dtype,
        .has_bias = first ? side->shape.bias13 : side->shape.bias2,
        .records = pass->slots > 0 ? pass->records[0] : NULL,
        .record_bytes = routed ? layer->record_bytes : layer->shared_bytes,
        .slots = pass->slots,
        .table = mox_device_layer_table(layer_of(c), weight->element),
        .scale_table = mox_device_layer_table(layer_of(c), weight->scale),
        .offsets = pass->offsets,
        .max_pairs = pass->pairs,
        .operand_row = first ? pass->operand_row : NULL,
        .a = first ? c->a13 : c->a2,
        .out = first ? pass->h : pass->y,
        .n_out = first ? side->n13 : side->shape.hidden,
        .scratch = c->run->space + c->run->plan->space.gemm,
    };
    args.matrix[0] = matrix_of(!first ? &places.down : side->shape.gated ? &places.gate : &places.up);
    args.matrix[1] = matrix_of(&places.up);
    return args;
}

static moxie_status multiply(const chain *c, mox_projection projection)
{
    const mox_expert_side *side = c->pass->side;
    const mox_cuda_expert_gemm_row *row = projection == MOX_W13 ? side->cuda.gemm13 : side->cuda.gemm2;
    mox_cuda_expert_gemm_args args = product(c, projection);
    if (row->fuses & MOX_CUDA_FUSES_GLU) {
        args.glu = activation(c);
        args.next = c->a2;
        args.given2 = c->pass->given2;
    }
    return c->table->expert_gemm[row->cuda.launcher](&args, c->stream, c->error);
}

moxie_status mox_device_experts(const mox_run *run, mox_expert_pass *pass, mox_cuda_stream stream, float given13,
                                float given2, moxie_error *error)
{
    const mox_expert_side *side = pass->side;
    const mox_expert_space *space = &side->space;
    chain c = { .run = run, .pass = pass, .table = run->plan->device.table, .stream = stream, .error = error };
    pass->h = (float *)(run->space + space->h);
    pass->act = (float *)(run->space + space->act);
    pass->y = (float *)(run->space + space->y);
    c.a13 = describe(&c, &side->a13, &space->a13, side->shape.hidden);
    c.a2 = describe(&c, &side->a2, &space->a2, side->shape.intermediate);
    pass->a13 = shown(&c.a13, pass->rows13);
    pass->a2 = shown(&c.a2, pass->pairs);
    MOX_TRY(quantize13(&c, given13));
    MOX_TRY(mox_run_probe(run, MOX_STAGE_QUANT13, pass, error));
    MOX_TRY(multiply(&c, MOX_W13));
    if (side->cuda.glu != NULL) {
        const mox_cuda_glu_args args = activation(&c);
        MOX_TRY(mox_run_probe(run, MOX_STAGE_GEMM13, pass, error));
        MOX_TRY(c.table->glu[side->cuda.glu->cuda.launcher](&args, stream, error));
        MOX_TRY(mox_run_probe(run, MOX_STAGE_GLU, pass, error));
        MOX_TRY(quantize2(&c, given2));
    }
    MOX_TRY(mox_run_probe(run, MOX_STAGE_QUANT2, pass, error));
    MOX_TRY(multiply(&c, MOX_W2));
    return mox_run_probe(run, MOX_STAGE_GEMM2, pass, error);
}
