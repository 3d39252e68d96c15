/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_fusions.h - what kernels for W13 can fuse behind their product, and the kernels that follow from it:
 *
 *     suffix   fuses            the kernel leaves
 *     (none)   0                h[p, n], the product in f32
 *     _act     MOX_FUSES_ACT    act(gate, up) in f32; quant_act follows
 *     _glu     MOX_FUSES_GLU    the activations of W2, rounded or quantized; neither glu nor quant_act follows
 *
 * MOX_CUDA_PRODUCT(fusions, set, product, ...) of a list becomes one line for each kernel, best first; its name is
 * <set>_<product><suffix>:
 *
 *     MOX_CUDA_ROW(expert_gemm, kernel, product, fuses, ...)
 *
 * Whoever includes the list defines MOX_CUDA_ROW.
 */
#ifndef MOX_CUDA_CUDA_FUSIONS_H
#define MOX_CUDA_CUDA_FUSIONS_H

enum { MOX_FUSES_GLU = 1, MOX_FUSES_ACT = 2 };

/* What a launch of such a kernel enqueues: other kernels can come between the two parts. */
enum { MOX_PRODUCT_WHOLE = 0, MOX_PRODUCT_TOKENS = 1 /* the work list, tokens in tiles */, MOX_PRODUCT_SUMS = 2 };

#define MOX_CUDA_PRODUCT(fusions, ...) MOX_CUDA_FUSIONS_##fusions(__VA_ARGS__)

#define MOX_CUDA_FUSIONS_NONE(set, product, ...) MOX_CUDA_ROW(expert_gemm, set##_##product, product, 0, __VA_ARGS__)
#define MOX_CUDA_FUSIONS_ACT(set, product, ...)                                                                        \
    MOX_CUDA_ROW(expert_gemm, set##_##product##_act, product, MOX_FUSES_ACT, __VA_ARGS__)                              \
    MOX_CUDA_FUSIONS_NONE(set, product, __VA_ARGS__)
#define MOX_CUDA_FUSIONS_GLU(set, product, ...)                                                                        \
    MOX_CUDA_ROW(expert_gemm, set##_##product##_glu, product, MOX_FUSES_GLU, __VA_ARGS__)                              \
    MOX_CUDA_FUSIONS_NONE(set, product, __VA_ARGS__)
#define MOX_CUDA_FUSIONS_GLU_ACT(set, product, ...)                                                                    \
    MOX_CUDA_ROW(expert_gemm, set##_##product##_glu, product, MOX_FUSES_GLU, __VA_ARGS__)                              \
    MOX_CUDA_FUSIONS_ACT(set, product, __VA_ARGS__)

#endif
