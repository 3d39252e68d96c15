/* SPDX-License-Identifier: Apache-2.0
 *
 * permute_args.h - the arguments of a kernel of family permute (permute.h).
 *
 *     token_of[p]        = pair_at[p] / K
 *     row_weight[p]      = weights[pair_at[p]]
 *     pair_scale13/2[p]  = static_scale13/2[slot of p]
 *
 * Pointers are to the memory of the device that runs it.
 */
#ifndef MOX_CPU_PERMUTE_ARGS_H
#define MOX_CPU_PERMUTE_ARGS_H

#include <moxie/moxie.h>

/* The smallest number of pairs that one block of a GPU counts and places when there are many. */
#define MOX_PERMUTE_CHUNK 1024

typedef struct mox_permute_args {
    const int32_t *ids; /* [T,K] */
    int64_t tokens, top_k, experts, slots;
    const int32_t *slot_of;                /* [E] */
    int64_t *offsets, *pair_at, *position; /* as in mox_permutation */
    /* NULL when no later stage reads them: */
    int64_t *shared_offsets;                     /* [2] set to 0, T: offsets of the one slot of a shared expert */
    int64_t *token_of;                           /* [T*K] */
    const float *weights;                        /* [T,K] */
    float *row_weight;                           /* [T*K] */
    const float *static_scale13, *static_scale2; /* [slots] */
    float *pair_scale13, *pair_scale2;           /* [T*K] */
    int32_t *counts;                             /* device: scratch [ceil(T*K / MOX_PERMUTE_CHUNK), slots] */
} mox_permute_args;

#endif
