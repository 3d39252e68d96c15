/* SPDX-License-Identifier: Apache-2.0
 *
 * run_experts.c - the chain of one kind of expert over one pass:
 *
 *     x -> quant_act -> expert_gemm w13 -> glu -> quant_act -> expert_gemm w2 -> y [pairs, H]
 *
 * The same code runs routed experts (pairs grouped by slot) and the shared expert (one slot, pair t = token t).
 */
#include "layer/run/run.h"

moxie_status mox_run_probe(const mox_run *run, mox_stage stage, const mox_expert_pass *pass, moxie_error *error)
{
    return run->probe == NULL ? MOXIE_OK : run->probe->after(run->probe->user, run, stage, pass, error);
}

static mox_operand place_operand(const mox_run *run, const moxie_quant *quant, const mox_operand_space *space)
{
    mox_operand operand = { .values = (float *)(run->space + space->values) };
    if (!mox_quant_is_none(quant)) {
        operand.scales = (float *)(run->space + space->scales);
        operand.global = (float *)(run->space + space->global);
    }
    return operand;
}

/* The largest magnitude over all rows of the operand, as they will be quantized. */
static float amax13(const mox_expert_pass *pass, moxie_dtype dtype, float *row)
{
    const int64_t cols = pass->side->shape.hidden, bytes = mox_dtype_bytes(dtype);
    float amax = 0;
    for (int64_t r = 0; r < pass->rows13; r++) {
        const int64_t t = pass->source != NULL ? pass->source[r] : r;
        mox_widen(dtype, (const char *)pass->x + t * cols * bytes, row, cols);
        for (int64_t k = 0; pass->row_weight != NULL && k < cols; k++)
            row[k] = mox_round_to(dtype, row[k] * pass->row_weight[r]);
        amax = fmaxf(amax, mox_amax(row, cols));
    }
    return amax;
}

static void quantize13(const mox_run *run, mox_expert_pass *pass)
{
    const mox_expert_side *side = pass->side;
    const moxie_dtype dtype = run->plan->config.dtype;
    float *row = (float *)(run->space + run->plan->space.row);
    mox_quant_act_args args = { .quant = &side->a13,
                                .x = pass->x,
                                .x_dtype = dtype,
                                .round_to = MOXIE_F32,
                                .rows = pass->rows13,
                                .cols = side->shape.hidden,
                                .source = pass->source,
                                .row_weight = pass->row_weight,
                                .row_given = pass->given13,
                                .codes = (uint8_t *)(run->space + run->plan->space.codes),
                                .row_scratch = row,
                                .out = &pass->a13 };
    if (mox_act_quant_needs_amax(&side->a13))
        args.amax = amax13(pass, dtype, row);
    pass->a13 = place_operand(run, &side->a13, &side->space.a13);
    side->rows.quant13->run(&args, &run->plan->executor);
}

static void quantize2(const mox_run *run, mox_expert_pass *pass)
{
    const mox_expert_side *side = pass->side;
    mox_quant_act_args args = { .quant = &side->a2,
                                .x = pass->act,
                                .x_dtype = MOXIE_F32,
                                .round_to = run->plan->config.dtype,
                                .rows = pass->pairs,
                                .cols = side->shape.intermediate,
                                .row_given = pass->given2,
                                .codes = (uint8_t *)(run->space + run->plan->space.codes),
                                .row_scratch = (float *)(run->space + run->plan->space.row),
                                .out = &pass->a2 };
    if (mox_act_quant_needs_amax(&side->a2))
        args.amax = mox_amax(pass->act, pass->pairs * side->shape.intermediate);
    pass->a2 = place_operand(run, &side->a2, &side->space.a2);
    side->rows.quant2->run(&args, &run->plan->executor);
}

static void multiply(const mox_run *run, const mox_expert_pass *pass, mox_projection projection)
{
    const mox_expert_side *side = pass->side;
    const bool first = projection == MOX_W13;
    const mox_expert_gemm_args args = { .shape = &side->shape,
                                        .projection = projection,
                                        .slots = pass->slots,
                                        .records = pass->records,
                                        .offsets = pass->offsets,
                                        .operand_row = first ? pass->operand_row : NULL,
                                        .a = first ? &pass->a13 : &pass->a2,
                                        .act = first ? &side->a13 : &side->a2,
                                        .dtype = run->plan->config.dtype,
                                        .out = first ? pass->h : pass->y,
                                        .n_out = first ? side->n13 : side->shape.hidden,
                                        .scratch = run->space + run->plan->space.gemm };
    mox_expert_gemm_run(first ? side->rows.gemm13 : side->rows.gemm2, &args, &run->plan->executor);
}

static void activate(const mox_run *run, const mox_expert_pass *pass)
{
    const mox_glu_args args = { .activation = &pass->side->activation,
                                .slots = pass->slots,
                                .offsets = pass->offsets,
                                .expert_of = pass->expert_of,
                                .h = pass->h,
                                .intermediate = pass->side->shape.intermediate,
                                .out = pass->act };
    pass->side->rows.glu->run(&args, &run->plan->executor);
}

moxie_status mox_run_experts(mox_run *run, mox_expert_pass *pass, moxie_error *error)
{
    const mox_expert_space *space = &pass->side->space;
    pass->h = (float *)(run->space + space->h);
    pass->act = (float *)(run->space + space->act);
    pass->y = (float *)(run->space + space->y);
    if (pass->pairs == 0)
        return MOXIE_OK;
    quantize13(run, pass);
    MOX_TRY(mox_run_probe(run, MOX_STAGE_QUANT13, pass, error));
    multiply(run, pass, MOX_W13);
    MOX_TRY(mox_run_probe(run, MOX_STAGE_GEMM13, pass, error));
    activate(run, pass);
    MOX_TRY(mox_run_probe(run, MOX_STAGE_GLU, pass, error));
    quantize2(run, pass);
    MOX_TRY(mox_run_probe(run, MOX_STAGE_QUANT2, pass, error));
    multiply(run, pass, MOX_W2);
    return mox_run_probe(run, MOX_STAGE_GEMM2, pass, error);
}
