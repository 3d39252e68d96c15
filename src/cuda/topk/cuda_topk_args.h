/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_topk_args.h - what a launcher of family topk gets (mathematics: route/route.h). Device pointers.
 */
#ifndef MOX_CUDA_CUDA_TOPK_ARGS_H
#define MOX_CUDA_CUDA_TOPK_ARGS_H

#include <moxie/moxie.h>

typedef struct mox_cuda_topk_args {
    moxie_routing routing; /* its arrays are device copies */
    int64_t tokens, experts, top_k;
    const void *logits; /* [T,E] */
    moxie_dtype logits_dtype;
    const int32_t *token_ids; /* [T] or NULL */
    int32_t *ids;             /* [T,K] */
    float *weights;           /* [T,K] */
} mox_cuda_topk_args;

#endif
