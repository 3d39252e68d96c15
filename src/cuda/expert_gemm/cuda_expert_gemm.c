/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_expert_gemm.c - the kernel list of family expert_gemm on CUDA, made from cuda_expert_gemm.def. Also the problems
 * that the simple kernels accept: any format, group, zero point, order of columns, bias and shape, like the CPU's
 * scalar kernels.
 */
#include "cuda/expert_gemm/cuda_expert_gemm.h"

#include "cuda/cuda_table.h"
#include "format/block_parts.h"

_Static_assert(offsetof(mox_record_header, flags) == MOX_CUDA_HEADER_FLAGS, "kernels read the flags of a record");

#define MOX_CUDA_ROW(family_, id, product, fuses_, needs_, exactness_, layout_, sum_, activations_)                    \
    {                                                                                                                  \
        .cuda = { .base = { .family = #family_, .name = #id, .exactness = exactness_, .layout = layout_ },             \
                  .needs = needs_,                                                                                     \
                  .launcher = MOX_CUDA_AT_##family_##_##id },                                                          \
        .sum = sum_,                                                                                                   \
        .fuses = fuses_,                                                                                               \
        .activations = activations_,                                                                                   \
        .admit = mox_cuda_##family_##_##id##_admit,                                                                    \
        .scratch_bytes = mox_cuda_##family_##_##id##_scratch_bytes,                                                    \
    },
static const mox_cuda_expert_gemm_kernel rows[] = {
#include "cuda/expert_gemm/cuda_expert_gemm.def"
};
#undef MOX_CUDA_ROW

const mox_cuda_expert_gemm_kernel *mox_cuda_expert_gemm_at(int32_t i)
{
    return i >= 0 && (size_t)i < sizeof rows / sizeof rows[0] ? &rows[i] : NULL;
}

/* Kernels count the columns and the scales of a matrix in 32 bits. */
static bool is_countable(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    const bool first = problem->projection == MOX_W13;
    const int64_t count = first ? mox_shape_rows13(problem->shape) : mox_shape_rows2(problem->shape);
    const int64_t cols = first ? problem->shape->hidden : problem->shape->intermediate;
    if (mox_quant_is_block(problem->weight) && mox_block_fields_of(problem->weight->element) == NULL)
        return mox_reject(why, "run on the CPU, or use a release in safetensors",
                          "decodes one weight at a time, blocks of %s are only decoded whole, on the CPU",
                          mox_quant_dtype_name(problem->weight->element));
    if (cols > INT32_MAX - MOX_SEGMENT ||
        mox_scale_rows(problem->weight, count) > UINT32_MAX / mox_scale_cols(problem->weight, cols))
        return mox_reject(why, "split the matrix over ranks",
                          "counts columns and scales in 32 bits, a matrix has %lld x %lld elements", (long long)count,
                          (long long)cols);
    return true;
}

bool mox_cuda_expert_gemm_simple_any_admit(const mox_expert_gemm_problem *problem, const mox_cuda_features *device,
                                           mox_rejection *why)
{
    (void)device;
    return mox_expert_gemm_scalar_any_admit(problem, why) && is_countable(problem, why);
}

bool mox_cuda_expert_gemm_simple_int_admit(const mox_expert_gemm_problem *problem, const mox_cuda_features *device,
                                           mox_rejection *why)
{
    (void)device;
    return mox_expert_gemm_scalar_int_admit(problem, why) && is_countable(problem, why);
}

uint64_t mox_cuda_expert_gemm_simple_any_scratch_bytes(const mox_expert_gemm_problem *problem,
                                                       const mox_cuda_features *device, int64_t slots,
                                                       int64_t max_pairs)
{
    (void)problem, (void)device, (void)slots, (void)max_pairs;
    return 0;
}

uint64_t mox_cuda_expert_gemm_simple_int_scratch_bytes(const mox_expert_gemm_problem *problem,
                                                       const mox_cuda_features *device, int64_t slots,
                                                       int64_t max_pairs)
{
    (void)problem, (void)device, (void)slots, (void)max_pairs;
    return 0;
}
