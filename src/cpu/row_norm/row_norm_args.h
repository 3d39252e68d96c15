/* SPDX-License-Identifier: Apache-2.0
 *
 * row_norm_args.h - the arguments of a kernel of family row_norm (row_norm.h). Pointers are to the memory of the device
 * that runs it.
 */
#ifndef MOX_CPU_ROW_NORM_ARGS_H
#define MOX_CPU_ROW_NORM_ARGS_H

#include <moxie/moxie.h>

typedef struct mox_row_norm_args {
    int64_t max_rows;    /* R, or an upper limit for it */
    const int64_t *rows; /* R; NULL: max_rows */
    int64_t cols;
    const void *x;        /* [R, cols] contiguous */
    moxie_dtype x_dtype;  /* F32, F16, BF16 */
    const float *weight;  /* [cols] or NULL: 1 */
    int32_t weight_first; /* the weight multiplies the input instead of the result */
    float eps, factor;
    float *out; /* [R, cols]; overlaps nothing */
} mox_row_norm_args;

#endif
