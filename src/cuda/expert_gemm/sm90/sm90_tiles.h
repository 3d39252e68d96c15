/* SPDX-License-Identifier: Apache-2.0
 *
 * sm90_tiles.h - how wide token tiles are, by the batch size. What slots hold is known to the list only, in the run.
 */
#ifndef MOX_CUDA_SM90_TILES_H
#define MOX_CUDA_SM90_TILES_H

#include <stdbool.h>

#include "cuda/expert_gemm/cuda_expert_gemm_args.h"
#include "cuda/expert_gemm/tensor_cores/mma_shape.h"

/* Columns of token tiles, of both products: of nearly all if routing is even; of the widest while few slots have more
 * tokens; and of the widest where many have. Multiples of 8, each at least as great as the one before. */
typedef struct mox_sm90_tile_columns {
    int32_t usual, even, max;
} mox_sm90_tile_columns;

/* `elements`: of both products, or others with the same tiles. `inlined`: blocks make the list from the routing. */
mox_sm90_tile_columns mox_sm90_tile_columns_of(const mox_cuda_expert_gemm_args *a, const mox_sm90_element *elements,
                                               bool inlined);

#endif
