/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_act.h - family quant_act: prepares the activations of the next product.
 *
 *     out[r] = x[source[r]]                        unquantized: widened to f32, or rounded to `round_to`
 *     out[r] = codes(x[source[r]]), scales         quantized by the rule of `quant` (quant/act_quant.c); values are the
 *                                                  decoded codes
 *
 * In the flow: before each expert_gemm. It also gathers: `source` brings the tokens into the order of the pairs.
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

/* The number of rows: *args->rows, or max_rows. */
int64_t mox_quant_act_rows(const mox_quant_act_args *args);
/* Row r of x as f32 [cols], multiplied by its weight if there are weights. Immutable. */
void mox_quant_act_load(const mox_quant_act_args *args, int64_t r, float *x);
/* The largest magnitude over all rows that will be quantized; 0 when the rule does not need it. Uses the row_scratch of
 * worker 0. */
float mox_quant_act_amax(const mox_quant_act_args *args);

/* What every kernel of quant_act.def provides. */
#define MOX_QUANT_ACT(id, isa, exactness, layout)                                                                      \
    void mox_quant_act_##id##_run(const mox_quant_act_args *args, const moxie_executor *executor);                     \
    bool mox_quant_act_##id##_admit(const moxie_quant *quant, mox_rejection *why);
#include "cpu/quant_act/quant_act.def"
#undef MOX_QUANT_ACT

#endif
