/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_sm90.h - what the rows on layout hopper compute, in plain C: the operations of sm90_plan.h from the very
 * arguments that the kernels get, straight from the pictures in mma_args.h and pack/hopper/hopper.h. Sums are double.
 */
#ifndef TEST_CUDA_SM90_H
#define TEST_CUDA_SM90_H

#include "cuda/expert_gemm/sm90/sm90_plan.h"

extern const mox_sm90_ops test_cuda_sm90_ops;

/* The gemm among them where MOX_TEST_EMULATED is defined: the kernel's own source (gpu_emulator/emulated_gemm.cpp).
 * What those of the list and of a gather leave is compared with the plain ones', and what a product leaves of codes as
 * bf16 with what both make of its activations. */
#ifdef __cplusplus
extern "C" {
#endif
moxie_status test_emulated_gemm(void *context, mox_sm90_element element, const mox_sm90_args *args, int32_t blocks,
                                bool dependent);
moxie_status test_emulated_list(void *context, const mox_sm90_list_args *args, bool dependent);
moxie_status test_emulated_gather(void *context, const mox_sm90_gather_args *args, bool dependent);
#ifdef __cplusplus
}
#endif

#endif
