/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_permute_args.h - what a launcher of family permute gets: pairs grouped by slot (route/route.h, mox_permute), and
 * what the stages behind it read of each pair. Device pointers.
 *
 *     count -> place (stable, in pair order)               offsets [S+1], pair_at [T*K], position [T*K]
 *     rows:  token_of[p] = pair_at[p] / K;  given13/2[p] = those of its slot;  row_weight[p] = weights[pair_at[p]]
 */
#ifndef MOX_CUDA_CUDA_PERMUTE_ARGS_H
#define MOX_CUDA_CUDA_PERMUTE_ARGS_H

#include <moxie/moxie.h>

/* Pairs that one block counts and places, at least; the scratch has a line of counts for each so many. */
#define MOX_CUDA_PERMUTE_CHUNK 1024

typedef struct mox_cuda_permute_args {
    const int32_t *ids; /* [T,K] */
    int64_t tokens, top_k, experts, slots;
    const int32_t *slot_of; /* [E] */
    int64_t *offsets, *pair_at, *position;
    int64_t *shared_offsets; /* [2] becomes 0, T: the one slot of a shared expert; NULL: there is none */
    int64_t *token_of;       /* [T*K] */
    int32_t *counts;         /* scratch [ceil(T*K / MOX_CUDA_PERMUTE_CHUNK), slots] */
    /* NULL where nothing reads them: */
    const float *weights;                    /* [T,K] */
    float *row_weight;                       /* [T*K] */
    const float *slot_given13, *slot_given2; /* [slots] */
    float *given13, *given2;                 /* [T*K] */
} mox_cuda_permute_args;

#endif
