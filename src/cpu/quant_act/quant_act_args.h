/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_act_args.h - what a kernel of family quant_act gets (quant_act.h); pointers are of the memory where it runs.
 */
#ifndef MOX_CPU_QUANT_ACT_ARGS_H
#define MOX_CPU_QUANT_ACT_ARGS_H

#include "cpu/activations.h"

typedef struct mox_quant_act_args {
    moxie_quant quant;
    int32_t rule;         /* mox_act_quant_rule(&quant) when it quantizes */
    const void *x;        /* [*, cols] contiguous */
    moxie_dtype x_dtype;  /* F32, F16, BF16 */
    moxie_dtype round_to; /* type that activations are rounded to once when they are not quantized; F32: not at all */
    int64_t max_rows, cols;
    const int64_t *rows;     /* [1] how many rows there are; NULL: max_rows */
    const int64_t *source;   /* [rows] row of x, NULL: identity */
    const float *row_weight; /* [rows] multiplies x, rounded to x_dtype again, before anything else; or NULL */
    const float *row_scale;  /* [rows] static scale or global of each row's expert; or NULL */
    float static_scale;      /* of all rows when row_scale is NULL */
    uint32_t *amax;          /* [1] scratch for rules that take one scale over the whole batch, else NULL */
    const float *table;      /* device: [256] values of quant.element's codes; NULL when not quantized */
    /* device: x is an input of the run, there are no rows, source, row_weight or row_scale, and `out` is memory that
     * nothing since the pass began reads or writes: a kernel may then begin beside permute (device_launch.cuh). */
    int32_t early;
    uint8_t *codes;      /* host: [workers, cols] scratch; NULL when not quantized */
    float *row_scratch;  /* host: [workers, cols] */
    mox_activations out; /* described; its memory is written */
} mox_quant_act_args;

#endif
