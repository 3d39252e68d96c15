/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_sm90_weights.h - one weight of a record for the tensor cores, as the kernels decode it (test_cuda_sm90.h),
 * straight from the pictures in pack/hopper.
 */
#ifndef TEST_CUDA_SM90_WEIGHTS_H
#define TEST_CUDA_SM90_WEIGHTS_H

#include "cuda/expert_gemm/sm90/sm90_plan.h"

typedef struct gemm_problem {
    const mox_sm90_args *a;
    mox_sm90_element kind;
    moxie_dtype element; /* of the tokens, and of weights that are not decoded */
    int64_t size, per;   /* bytes of such an element, elements of a chunk */
} gemm_problem;

/* Column k of row `in` of the tile at `base`, which has `rows` rows. Less its row's factor, where there is one. */
double test_cuda_sm90_weight(const gemm_problem *p, const uint8_t *base, int64_t rows, int64_t in, int64_t k);

#endif
