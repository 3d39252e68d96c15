/* SPDX-License-Identifier: Apache-2.0
 *
 * combine_args.h - the arguments of a kernel of family combine (combine.h). Pointers are to the memory of the device
 * that runs it.
 */
#ifndef MOX_CPU_COMBINE_ARGS_H
#define MOX_CPU_COMBINE_ARGS_H

#include <moxie/moxie.h>

typedef struct mox_combine_args {
    int64_t tokens, top_k, hidden;
    const int64_t *position; /* [T,K] row of y or -1; NULL: row t*K+j unless ids is negative or >= experts */
    const int32_t *ids;      /* [T,K], read only when position is NULL */
    int64_t experts;
    const float *weights;       /* [T,K]; NULL: all ones (the weights multiplied the input) */
    const float *y;             /* [*, H] */
    const float *shared;        /* [T,H] or NULL */
    const float *shared_weight; /* [T] or NULL: 1 */
    void *out;                  /* [T,H] */
    moxie_dtype out_dtype;
} mox_combine_args;

#endif
