/* SPDX-License-Identifier: Apache-2.0
 *
 * product_trace.h - the stages inside a kernel for W13 that fuses what follows: arrays that only a traced run asks for.
 */
#ifndef MOX_CPU_PRODUCT_TRACE_H
#define MOX_CPU_PRODUCT_TRACE_H

#include <stdint.h>

/* Rows of pairs; all NULL in a run without a trace. */
typedef struct mox_product_trace {
    float *h, *act;            /* [pairs, n_out], [pairs, I] */
    float *next, *next_scales; /* W2's activations: [pairs, next_stride], [pairs, groups] */
    int64_t next_stride;
} mox_product_trace;

#endif
