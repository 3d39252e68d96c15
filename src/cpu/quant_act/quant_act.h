/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_act.h - family quant_act: rows of activations to the operand of the next product.
 *
 *     unquantized:  operand = x widened (16-bit) or x rounded to `round_to` first
 *     quantized:    codes and scales by the rule of `quant` (quant/act_quant.c), decoded into the operand
 *
 * In the flow: before each expert_gemm. Row r of the operand is row source[r] of x.
 */
#ifndef MOX_CPU_QUANT_ACT_H
#define MOX_CPU_QUANT_ACT_H

#include "cpu/kernel.h"
#include "cpu/quant_act/quant_act_args.h"

typedef struct mox_quant_act_kernel {
    mox_kernel base;
    void (*run)(const mox_quant_act_args *args, const moxie_executor *executor);
    bool (*admit)(const moxie_quant *quant, mox_rejection *why);
} mox_quant_act_kernel;

const mox_quant_act_kernel *mox_quant_act_at(int32_t i);

/* Rows that args describe: *args->rows, or max_rows. */
int64_t mox_quant_act_rows(const mox_quant_act_args *args);
/* Row r of x as f32 [cols], weighed. Immutable. */
void mox_quant_act_load(const mox_quant_act_args *args, int64_t r, float *x);
/* The largest magnitude over all rows as they will be quantized; 0 when the rule does not ask for it. Uses
 * args->row_scratch of worker 0. */
float mox_quant_act_amax(const mox_quant_act_args *args);

/* What every row of quant_act.def provides. */
#define MOX_QUANT_ACT(id, isa, exactness, layout)                                                                      \
    void mox_quant_act_##id##_run(const mox_quant_act_args *args, const moxie_executor *executor);                     \
    bool mox_quant_act_##id##_admit(const moxie_quant *quant, mox_rejection *why);
#include "cpu/quant_act/quant_act.def"
#undef MOX_QUANT_ACT

#endif
