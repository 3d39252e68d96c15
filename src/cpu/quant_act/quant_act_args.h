/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_act_args.h - the arguments of a kernel of family quant_act (quant_act.h). Pointers are to the memory of the
 * device that runs it.
 */
#ifndef MOX_CPU_QUANT_ACT_ARGS_H
#define MOX_CPU_QUANT_ACT_ARGS_H

#include <stdbool.h>

#include "cpu/activations.h"

typedef struct mox_quant_act_args {
    moxie_quant quant;
    int32_t rule;         /* mox_act_quant_rule(&quant), when activations are quantized */
    const void *x;        /* [*, cols] contiguous */
    moxie_dtype x_dtype;  /* F32, F16, BF16 */
    moxie_dtype round_to; /* type that unquantized activations are rounded to; F32: they are not rounded */
    int64_t max_rows, cols;
    const int64_t *rows;     /* [1] the number of rows; NULL: max_rows */
    const int64_t *source;   /* [rows] row of x, NULL: identity */
    const float *row_weight; /* [rows] multiplies x first, the product rounded to x_dtype; or NULL */
    const float *row_scale;  /* [rows] static scale or global of the row's expert; or NULL */
    float static_scale;      /* the same for all rows, when row_scale is NULL */
    uint32_t *amax;          /* [1] scratch for rules with one scale over the whole batch, else NULL */
    const float
        *batch_amax; /* host: [1] what mox_quant_act_amax() would find in a batch of which these are a part; NULL:
                              * these are the batch */
    /* device: two launches for a batch of which these are a part. With finds_amax *amax is found, and nothing is
     * quantized. With maxima the largest of those [maxima_count] is that of the batch, and amax is not read. */
    bool finds_amax;
    int32_t maxima_count;
    const uint32_t *maxima;
    const float *table; /* device: [256] values of quant.element's codes; NULL when not quantized */
    /* device: the kernel may run beside permute (device_launch.cuh). It reads inputs of the run only: x is one, and
     * rows, source, row_weight and row_scale are NULL. Nothing else in the pass has used the memory of `out` before. */
    int32_t early;
    bool coded;          /* host: rows of x are quantized already (quant/act_row.h); nothing multiplies them */
    uint8_t *codes;      /* host: [workers, cols] scratch; NULL when not quantized */
    float *row_scratch;  /* host: [workers, cols] */
    mox_activations out; /* where the result goes, and in which form */
} mox_quant_act_args;

#endif
