/* SPDX-License-Identifier: Apache-2.0
 *
 * topk_args.h - the arguments of a kernel of family topk (topk.h). Pointers are to the memory of the device that runs
 * it.
 */
#ifndef MOX_CPU_TOPK_ARGS_H
#define MOX_CPU_TOPK_ARGS_H

#include <moxie/moxie.h>

typedef struct mox_topk_args {
    moxie_routing routing; /* its arrays are in the same memory */
    int64_t tokens, experts, top_k;
    int64_t first;      /* position in the batch of the first of these tokens; simulated routing depends on it */
    const void *logits; /* [T,E] */
    moxie_dtype logits_dtype;
    const int32_t *token_ids;   /* [T] or NULL */
    const uint8_t *padding;     /* [T] or NULL: not 0: the token gets ids -1 and weights 0 */
    const uint8_t *bias_choice; /* [T] or NULL: not 0: the token is routed by mox_route_with_bias_alt() */
    int32_t *ids;               /* [T,K] */
    float *weights;             /* [T,K] */
    float *row_scratch;         /* host: [workers, E] f32 */
    float *logits_scratch;      /* host: [T,E] f32, for MOXIE_SELECT_CUSTOM with logits that are not f32; else NULL */
} mox_topk_args;

#endif
