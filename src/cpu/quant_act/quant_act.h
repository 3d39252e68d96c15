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
#include "cpu/operand.h"

typedef struct mox_quant_act_args {
    const moxie_quant *quant;
    const void *x;        /* [*, cols] contiguous */
    moxie_dtype x_dtype;  /* F32, F16, BF16 */
    moxie_dtype round_to; /* operand type of an unquantized product: x is rounded to it once; F32: not at all */
    int64_t rows, cols;
    const int64_t *source;   /* [rows] or NULL: identity */
    const float *row_weight; /* [rows] multiplies x, rounded to x_dtype again, before anything else; or NULL */
    const float *row_given;  /* [rows] static scale or global of each row's expert; or NULL */
    float amax;              /* for dynamic per-tensor rules */
    uint8_t *codes;          /* [workers, cols] scratch; NULL when unquantized */
    float *row_scratch;      /* [workers, cols] */
    mox_operand *out;        /* buffers given, everything in it filled */
} mox_quant_act_args;

typedef struct mox_quant_act_row {
    mox_kernel base;
    void (*run)(const mox_quant_act_args *args, const moxie_executor *executor);
    bool (*admit)(const moxie_quant *quant, mox_refusal *why);
} mox_quant_act_row;

const mox_quant_act_row *mox_quant_act_at(int32_t i);

/* What every row of quant_act.def provides. */
#define MOX_QUANT_ACT(id, isa, exactness, layout)                                                                      \
    void mox_quant_act_##id##_run(const mox_quant_act_args *args, const moxie_executor *executor);                     \
    bool mox_quant_act_##id##_admit(const moxie_quant *quant, mox_refusal *why);
#include "cpu/quant_act/quant_act.def"
#undef MOX_QUANT_ACT

#endif
