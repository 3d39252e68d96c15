/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_place_rows_args.h - where tokens go in an exchange (layer/run/exchange.h), found on the device, so that the host
 * need not read the choices of experts:
 *
 *     ids [T, K]   capacity 3, 2 groups          rows of group 0            rows of group 1        position
 *         t0        group 0, group 1             0: t0, ids 5 -             3: t0, ids - 9         0  7
 *         t1        group 1, skipped             1: -                       4: t1, ids 8 -         8 -1
 *                                                2: -                       5: -
 *
 * Tokens of one rank, a source, begin at most `capacity` rows of each group. The rows of source s (counted from
 * first_source) for group g (counted from first_group) begin at row (s * groups + g) * capacity. Unused rows have token
 * -1 and ids -1. The result of choice j of row i is number i * K + j. Of a source with more than `capacity` tokens,
 * which refuses its run, only the first ones are placed.
 *
 * With `counts`, which tell how many rows and choices each group has, only those travel: results have the numbers 0, 1,
 * 2, ... in the order of rows, then choices, group 0's before group 1's. The rank that computes them finds this order
 * by order_rows:
 *
 *     position of pairs in y   3 - 0 - - 1 2     (-: another rank computes it)
 *     order                    3 0 1 2
 *
 * Like copy_rows they are no kernel families.
 */
#ifndef MOX_CUDA_CUDA_PLACE_ROWS_ARGS_H
#define MOX_CUDA_CUDA_PLACE_ROWS_ARGS_H

#include <moxie/moxie.h>

typedef struct mox_cuda_place_rows_args {
    const int32_t *ids;      /* [T, K] */
    const float *weights;    /* [T, K] or NULL */
    const int32_t *adapters; /* [T] or NULL: none */
    int64_t tokens, top_k, experts, capacity;
    int32_t ranks; /* 0: all tokens are the source's own; else source s has tokens [s T / ranks, (s + 1) T / ranks) */
    int32_t first_source, sources, first_group, groups;
    int32_t tp_size;              /* ranks of a group: the home of source s is s / tp_size */
    const int32_t *first_replica; /* route/replica.h */
    const int32_t *replica;
    /* Results, each NULL where it is not wanted. */
    int64_t *token;        /* [rows] number of the token in ids */
    int32_t *row_ids;      /* [rows, K] ids of the row's choices, -1: not of this group */
    float *row_weights;    /* [rows, K] of used rows */
    int32_t *row_adapters; /* [rows], -1: none */
    int64_t *counts;       /* [groups, 2] rows and choices; of one source */
    int64_t *position;     /* [tokens of the source, K] number of each result, or -1; of one source and all groups */
    int64_t *own_offsets;  /* [2] 0, tokens of the first source */
} mox_cuda_place_rows_args;

typedef struct mox_cuda_order_rows_args {
    const int64_t *position; /* [pairs], -1: not computed here */
    int64_t pairs, count;    /* count: how many are expected. Others than that: order ends with -1, or lacks the last */
    int64_t *order;          /* [count] */
} mox_cuda_order_rows_args;

#endif
