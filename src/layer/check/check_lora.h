/* SPDX-License-Identifier: Apache-2.0
 *
 * check_lora.h - what adapters add to a product, in double precision, and by how much fp32 may be off.
 *
 *     begin      u[i] = s sum_k A[i,k] x[k] for every pair that has an adapter
 *     element    sum_i B[n,i] u[i]
 *
 * In the flow: check_experts.c (products) -> [check_lora].
 */
#ifndef MOX_LAYER_CHECK_LORA_H
#define MOX_LAYER_CHECK_LORA_H

#include "layer/adapters/adapters.h"
#include "layer/check/checker.h"
#include "layer/run/run_adapters.h"

typedef struct mox_check_lora {
    mox_lora_args args;               /* its u is not used */
    mox_adapter **own;                /* [count] copies of adapters that are on a device; NULL: there are none */
    const mox_lora_adapter **factors; /* [count] of these */
    double *u, *size;                 /* [pairs, 2, max_rank] s sum A x, |s| sum |A x|; up is second */
    int32_t *adapter_of;              /* [pairs], from the caller's ids */
} mox_check_lora;

/* Computes u for context->projection. Leaves context->lora NULL where no token has an adapter. MOXIE_ERR_MEMORY. */
moxie_status mox_check_lora_begin(mox_check_context *context, mox_check_lora *lora, moxie_error *error);
void mox_check_lora_end(mox_check_context *context, mox_check_lora *lora);
/* The change of column n of pair p in slot s, 0 without an adapter; *bound: how far a sum in fp32 may be off, its
 * addition to a result of magnitude `result` included. */
double mox_check_lora_element(const mox_check_lora *lora, int64_t s, int64_t p, int64_t n, double result,
                              double *bound);

#endif
