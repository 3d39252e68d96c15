/* SPDX-License-Identifier: Apache-2.0
 *
 * run_cuda_experts.c - the chain of one kind of expert over one pass on a GPU, as run_experts.c has it for the host:
 *
 *     x -> quant_act -> expert_gemm w13 -> glu -> quant_act -> expert_gemm w2 -> y [pairs, H]
 *
 * pass->pairs is the most that any routing can give; how many there are is offsets[slots], on the device. A row for W13
 * that does the activation too leaves the second operand itself; for a run that is looked at it leaves the stages
 * between as well (mox_cuda_trace). Operands that are not fp32 are then made a second time as fp32.
 */
#include "layer/plan/device_operand.h"
#include "layer/run/run.h"
#include "pack/hopper/hopper.h"

/* What the stages share. */
typedef struct chain {
    const mox_run *run;
    mox_expert_pass *pass;
    const mox_cuda_table *table;
    mox_cuda_stream stream;
    mox_cuda_operand a13, a2;         /* what the products read */
    mox_cuda_operand shown13, shown2; /* the same as numbers, for those who look */
    bool direct;                      /* the first product reads the hidden states themselves */
    moxie_error *error;
} chain;

static const mox_device_layer *layer_of(const chain *c)
{
    return &c->run->plan->layer->on;
}

/* ---- operands ------------------------------------------------------------------------------------------ */

/* An operand of this form, without its memory. */
static mox_cuda_operand form(const moxie_plan *plan, const mox_device_form *f, const moxie_quant *quant)
{
    const bool scaled = f->scale_cols > 0;
    return (mox_cuda_operand) { .kind = f->kind,
                                .dtype = plan->config.dtype,
                                .cols = f->cols,
                                .stride = f->stride,
                                .group_cols = f->group_cols,
                                .tiled = f->tiled,
                                .scale_cols = f->scale_cols,
                                .global_kind = scaled ? quant->global : MOXIE_GLOBAL_NONE,
                                .integer = scaled && mox_format_of(quant->element)->kind == MOX_KIND_INTEGER };
}

static mox_cuda_operand describe(const chain *c, const mox_device_form *f, const moxie_quant *quant,
                                 const mox_operand_space *space)
{
    char *at = c->run->space;
    mox_cuda_operand o = form(c->run->plan, f, quant);
    o.values = f->direct ? (void *)(uintptr_t)c->pass->x : at + space->values;
    if (f->scale_cols == 0)
        return o;
    o.scales = (float *)(at + space->scales);
    o.global = quant->global != MOXIE_GLOBAL_NONE ? (float *)(at + space->global) : NULL;
    return o;
}

static void describe_all(chain *c)
{
    const mox_expert_side *side = c->pass->side;
    const mox_device_form form13 = mox_device_form_of(c->run->plan, side, MOX_W13),
                          form2 = mox_device_form_of(c->run->plan, side, MOX_W2);
    const mox_device_form shown13 = mox_device_shown_form(&form13), shown2 = mox_device_shown_form(&form2);
    c->direct = form13.direct;
    c->a13 = describe(c, &form13, &side->a13, &side->space.a13);
    c->a2 = describe(c, &form2, &side->a2, &side->space.a2);
    c->shown13 = describe(c, &shown13, &side->a13, &side->space.shown13);
    c->shown2 = describe(c, &shown2, &side->a2, &side->space.shown2);
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

static mox_cuda_quant_act_args quantizer(const chain *c, const moxie_quant *quant)
{
    const bool quantized = !mox_quant_is_none(quant);
    return (mox_cuda_quant_act_args) {
        .quant = *quant,
        .rule = quantized ? mox_act_quant_rule(quant) : 0,
        .amax = mox_act_quant_needs_amax(quant) ? (uint32_t *)(c->run->space + c->run->plan->space.amax) : NULL,
        .table = quantized ? mox_device_layer_table(layer_of(c), quant->element) : NULL,
    };
}

/* To the operand that the product reads, and when someone looks, to numbers too. */
static moxie_status quantize(const chain *c, const mox_cuda_quant_act_row *row, mox_cuda_quant_act_args *args,
                             const mox_cuda_operand *out, const mox_cuda_operand *numbers)
{
    args->cols = out->cols;
    args->out = *out;
    if (out->values != args->x)
        MOX_TRY(c->table->quant_act[row->cuda.launcher](args, c->stream, c->error));
    args->out = *numbers;
    if (c->run->probe == NULL || out->kind == MOX_CUDA_OPERAND_F32)
        return MOXIE_OK;
    return c->table->quant_act[row->cuda.launcher](args, c->stream, c->error);
}

/* Whether the hidden states may be quantized while permute still runs. All of them, as they are, ask nothing of it; it
 * began when everything before it had ended, so that nobody has use for the operand's memory any more. The shared
 * expert's operand lies over what the routed experts, still under way, work with. */
static bool is_early(const chain *c)
{
    const mox_expert_pass *pass = c->pass;
    return pass->side == &c->run->plan->routed && pass->source == NULL && pass->row_weight == NULL &&
           pass->given13 == NULL;
}

static moxie_status quantize13(const chain *c, float given)
{
    const mox_expert_pass *pass = c->pass;
    mox_cuda_quant_act_args args = quantizer(c, &pass->side->a13);
    args.x = pass->x;
    args.x_dtype = c->run->plan->config.dtype;
    args.round_to = MOXIE_F32;
    args.max_rows = pass->rows13;
    args.rows = pass->source != NULL ? &pass->offsets[pass->slots] : NULL;
    args.source = pass->source;
    args.row_weight = pass->row_weight;
    args.row_given = pass->given13;
    args.given = given;
    args.early = is_early(c);
    MOX_FAIL_IF(c->direct && (uintptr_t)pass->x % 16 != 0, MOXIE_ERR_ARGUMENT, c->error,
                "hidden is %p; on a device this plan reads it 16 bytes at a time: align it to 16 bytes", pass->x);
    return quantize(c, pass->side->cuda.quant13, &args, &c->a13, &c->shown13);
}

static moxie_status quantize2(const chain *c, float given)
{
    const mox_expert_pass *pass = c->pass;
    mox_cuda_quant_act_args args = quantizer(c, &pass->side->a2);
    args.x = pass->act;
    args.x_dtype = MOXIE_F32;
    args.round_to = c->run->plan->config.dtype;
    args.max_rows = pass->pairs;
    args.rows = &pass->offsets[pass->slots];
    args.row_given = pass->given2;
    args.given = given;
    return quantize(c, pass->side->cuda.quant2, &args, &c->a2, &c->shown2);
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

/* Where the row finds the product in a record. */
static void locate(const mox_expert_side *side, mox_projection projection, mox_cuda_expert_gemm_args *args)
{
    const bool first = projection == MOX_W13;
    mox_hopper_record form;
    if (mox_hopper_form(side->rows.layout, &side->shape, &form)) {
        args->tiles = tiles_of(first ? &form.w13 : &form.w2);
        args->decoded = side->rows.layout == &mox_layout_hopper_codes;
        args->elements[MOX_W13] = side->shape.w13.element;
        args->elements[MOX_W2] = side->shape.w2.element;
        return;
    }
    mox_rowmajor_places places;
    mox_rowmajor_locate(&side->shape, &places);
    args->matrix[0] = matrix_of(!first ? &places.down : side->shape.gated ? &places.gate : &places.up);
    args->matrix[1] = matrix_of(&places.up);
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

mox_cuda_expert_gemm_args mox_device_product(const moxie_plan *plan, const mox_expert_side *side,
                                             mox_projection projection, int64_t slots, int64_t tokens)
{
    const bool first = projection == MOX_W13, routed = side == &plan->routed;
    const uint32_t fuses = (first ? side->cuda.gemm13 : side->cuda.gemm2)->fuses;
    const mox_device_form form13 = mox_device_form_of(plan, side, MOX_W13),
                          form2 = mox_device_form_of(plan, side, MOX_W2);
    const moxie_quant *weight = first ? &side->shape.w13 : &side->shape.w2;
    mox_cuda_expert_gemm_args args = {
        .projection = projection,
        .fuses = fuses,
        .gated = side->shape.gated,
        .hidden = side->shape.hidden,
        .intermediate = side->shape.intermediate,
        .weight = *weight,
        .act = first ? side->a13 : side->a2,
        .element_bits = mox_dtype_bits(weight->element),
        .dtype = plan->config.dtype,
        .has_bias = first ? side->shape.bias13 : side->shape.bias2,
        .slots = slots,
        .experts = plan->config.experts,
        .max_pairs = routed ? tokens * plan->config.top_k : tokens,
        .tokens = tokens,
        .multiprocessors = plan->device.features.multiprocessors,
        .a = first ? form(plan, &form13, &side->a13) : form(plan, &form2, &side->a2),
        .n_out = !first                       ? side->shape.hidden
                 : fuses & MOX_CUDA_FUSES_ACT ? side->shape.intermediate
                                              : side->n13,
        .next = form(plan, &form2, &side->a2),
        .next_quant = side->a2,
    };
    locate(side, projection, &args);
    return args;
}

static mox_cuda_expert_gemm_args product(const chain *c, mox_projection projection)
{
    const mox_expert_pass *pass = c->pass;
    const mox_expert_side *side = pass->side;
    const moxie_layer *layer = c->run->plan->layer;
    const bool first = projection == MOX_W13, routed = side == &c->run->plan->routed;
    const moxie_quant *weight = first ? &side->shape.w13 : &side->shape.w2;
    mox_cuda_expert_gemm_args args = mox_device_product(c->run->plan, side, projection, pass->slots, c->run->tokens);
    args.records = pass->slots > 0 ? pass->records[0] : NULL;
    args.record_bytes = routed ? layer->record_bytes : layer->shared_bytes;
    args.table = mox_device_layer_table(layer_of(c), weight->element);
    args.scale_table = mox_device_layer_table(layer_of(c), weight->scale);
    args.offsets = pass->offsets;
    args.ids = routed ? c->run->ids + c->run->first * c->run->plan->config.top_k : NULL;
    args.slot_of = layer_of(c)->slot_of;
    args.operand_row = !first ? NULL : c->direct && pass->source != NULL ? pass->source : pass->operand_row;
    args.a = first ? c->a13 : c->a2;
    args.out = !first ? pass->y : args.fuses & MOX_CUDA_FUSES_ACT ? pass->act : pass->h;
    args.scratch = c->run->space + c->run->plan->space.gemm;
    return args;
}

static moxie_status multiply(const chain *c, mox_projection projection)
{
    const mox_expert_side *side = c->pass->side;
    const mox_cuda_expert_gemm_row *row = projection == MOX_W13 ? side->cuda.gemm13 : side->cuda.gemm2;
    mox_cuda_expert_gemm_args args = product(c, projection);
    if (row->fuses != 0) {
        args.glu = activation(c);
        args.next = c->a2;
        if (c->run->probe != NULL)
            args.trace = (mox_cuda_trace) { .h = c->pass->h,
                                            .act = c->pass->act,
                                            .next = c->shown2.values,
                                            .next_scales = c->shown2.scales,
                                            .next_stride = c->shown2.stride };
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
    describe_all(&c);
    pass->a13 = shown(&c.shown13, pass->rows13);
    pass->a2 = shown(&c.shown2, pass->pairs);
    MOX_TRY(quantize13(&c, given13));
    MOX_TRY(mox_run_probe(run, MOX_STAGE_QUANT13, pass, error));
    MOX_TRY(multiply(&c, MOX_W13));
    MOX_TRY(mox_run_probe(run, MOX_STAGE_GEMM13, pass, error));
    if (side->cuda.glu != NULL) {
        const mox_cuda_glu_args args = activation(&c);
        MOX_TRY(c.table->glu[side->cuda.glu->cuda.launcher](&args, stream, error));
    }
    MOX_TRY(mox_run_probe(run, MOX_STAGE_GLU, pass, error));
    if (side->cuda.quant2 != NULL)
        MOX_TRY(quantize2(&c, given2));
    MOX_TRY(mox_run_probe(run, MOX_STAGE_QUANT2, pass, error));
    MOX_TRY(multiply(&c, MOX_W2));
    return mox_run_probe(run, MOX_STAGE_GEMM2, pass, error);
}
