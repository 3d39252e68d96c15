/* SPDX-License-Identifier: Apache-2.0
 *
 * permute_args.h - what a kernel of family permute gets (permute.h): the sort, and what each pair takes along.
 *
 *     token_of[p] = pair_at[p] / K;  pair_scale13/2[p] = those of its slot;  row_weight[p] = weights[pair_at[p]]
 *
 * Pointers are of the memory where it runs.
 */
#ifndef MOX_CPU_PERMUTE_ARGS_H
#define MOX_CPU_PERMUTE_ARGS_H

#include <moxie/moxie.h>

/* Pairs that one block of a GPU counts and places, at least; the scratch has a line of counts for each so many. */
#define MOX_PERMUTE_CHUNK 1024

typedef struct mox_permute_args {
    const int32_t *ids; /* [T,K] */
    int64_t tokens, top_k, experts, slots;
    const int32_t *slot_of;                /* [E] */
    int64_t *offsets, *pair_at, *position; /* as mox_permutation has them */
    /* NULL where nothing reads them: */
    int64_t *shared_offsets;                     /* [2] becomes 0, T: the one slot of a shared expert */
    int64_t *token_of;                           /* [T*K] */
    const float *weights;                        /* [T,K] */
    float *row_weight;                           /* [T*K] */
    const float *static_scale13, *static_scale2; /* [slots] */
    float *pair_scale13, *pair_scale2;           /* [T*K] */
    int32_t *counts;                             /* device: scratch [ceil(T*K / MOX_PERMUTE_CHUNK), slots] */
} mox_permute_args;

#endif
