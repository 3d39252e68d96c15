/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_quant_act_args.h - what a launcher of family quant_act gets: rows of activations to the operand of the next
 * product (mathematics: cpu/quant_act/quant_act.h, quant/act_quant.c bit by bit). Device pointers.
 */
#ifndef MOX_CUDA_CUDA_QUANT_ACT_ARGS_H
#define MOX_CUDA_CUDA_QUANT_ACT_ARGS_H

#include "cuda/cuda_operand.h"

typedef struct mox_cuda_quant_act_args {
    moxie_quant quant;
    int32_t rule;  /* mox_act_quant_rule(&quant) when it quantizes */
    const void *x; /* [*, cols] contiguous */
    moxie_dtype x_dtype;
    moxie_dtype round_to; /* type that an unquantized operand is rounded to; F32: not at all */
    int64_t max_rows, cols;
    const int64_t *rows;     /* how many there are, on the device; NULL: max_rows */
    const int64_t *source;   /* [rows] row of x, NULL: identity */
    const float *row_weight; /* [rows] or NULL */
    const float *row_given;  /* [rows] or NULL */
    float given;             /* of all rows when row_given is NULL */
    uint32_t *amax;          /* [1] scratch for rules that look at the whole batch, else NULL */
    const float *table;      /* [256] values of quant.element's codes; NULL when unquantized */
    /* x is an input of the run, there are no rows, source, row_weight or row_given, and `out` is memory that nothing
     * since the pass began reads or writes: a row may then begin beside permute (device_launch.cuh). */
    int32_t early;
    mox_cuda_operand out;
} mox_cuda_quant_act_args;

#endif
