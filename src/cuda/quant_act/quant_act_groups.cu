/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_act_groups.cu - rows of activations to E4M3 codes with a scale for every 128 columns (rule MOX_ACT_FP8_GROUP of
 * act_rules.h, codes and scales to the bit), or to any with a power of two for every 32 (MOX_ACT_MX_GROUP), or to NVFP4
 * with an E4M3 for every 16 (MOX_ACT_NVFP4_GROUP), at the speed of memory.
 *
 *     a warp    up to 4 times 128 columns of one row, all of whose loads are under way at once; lane l has columns 4 l
 * .. 4 l + 3 scales    lane k works out that of group k, for everyone; of 16 and 32 columns each lane its own codes 4
 * bytes a lane, to the row's whole stride: what is behind the last column is zero
 */
#include "cuda/device/device_error.h"
#include "cuda/device/device_launch.cuh"
#include "cuda/ptx/ptx_sync.cuh"
#include "cuda/quant_act/quant_act_numbers.cuh"

namespace
{

constexpr int LANES = 32, WARPS = 4, THREADS = LANES * WARPS, GROUP = LANES * MOX_QUANT_EACH, TOGETHER = 4;
constexpr int64_t FEW_BLOCKS = 4096; /* while there are no more, a warp takes one group: latency is all that counts */
constexpr unsigned ALL = ~0u;

struct group_scale {
    float scale, inverse;
};

/* A lane's of one set. Floats whatever x is, so that all but the loads is the same code for every type. */
struct lane_numbers {
    float x[MOX_QUANT_EACH];
};

/* Column `column` of a row that begins at element `from` of x and the next three, and those `step` columns further on,
 * ... */
template <moxie_dtype DTYPE>
__device__ void load(const mox_quant_act_args &args, bool whole, int64_t from, int64_t column, int64_t step,
                     lane_numbers (&numbers)[TOGETHER])
{
    mox_raw_numbers<DTYPE> raw[TOGETHER];
#pragma unroll
    for (int k = 0; k < TOGETHER; k++)
        raw[k] = mox_raw_load<DTYPE>(args, whole, from, column + k * step);
#pragma unroll
    for (int k = 0; k < TOGETHER; k++)
#pragma unroll
        for (int i = 0; i < MOX_QUANT_EACH; i++)
            numbers[k].x[i] = mox_raw_number<DTYPE>(raw[k], i);
}

__device__ float larger_of(const lane_numbers &numbers)
{
    float amax = 0.0f;
#pragma unroll
    for (int i = 0; i < MOX_QUANT_EACH; i++)
        amax = mox_act_larger(amax, numbers.x[i]);
    return amax;
}

/* Largest magnitude of a group, by all lanes. Bits of numbers that are not negative order as the numbers do. */
__device__ uint32_t largest(const lane_numbers &numbers)
{
    return __reduce_max_sync(ALL, mox_float_bits(larger_of(numbers)));
}

__device__ group_scale scale_of(int32_t rule, uint32_t amax_bits)
{
    const mox_act_input input = { .scale_rule = rule,
                                  .largest = mox_device_largest(MOXIE_F8_E4M3),
                                  .amax = mox_act_finite(mox_float_of(amax_bits)) };
    const float scale = mox_act_fp8(MOX_ACT_FP8_GROUP, &input).scale;
    return { scale, __frcp_rn(scale) };
}

/* x / scale, rounded once: two corrections of the product with the rounded inverse end at the nearest float
 * (Markstein). Quotients that are too small for that become a zero of their sign, whatever they are. What is no finite
 * number stays what it is, and a zero does, whose sign the corrections would lose. */
__device__ float quotient(float x, const group_scale &by)
{
    const float q0 = __fmul_rn(x, by.inverse);
    const float q1 = __fmaf_rn(__fmaf_rn(-q0, by.scale, x), by.inverse, q0);
    const float q2 = __fmaf_rn(__fmaf_rn(-q1, by.scale, x), by.inverse, q1);
    return fabsf(x) > 0.0f && fabsf(x) <= FLT_MAX ? q2 : x;
}

/* 128 columns each: groups, or several. */
__device__ int64_t sets_of(const mox_quant_act_args &args)
{
    return (args.cols + GROUP - 1) / GROUP;
}

/* Of a short group. The product with the reciprocal of a power of two is the quotient, rounded alike. */
__device__ mox_act_step step_of(const mox_quant_act_args &args, int64_t row, float amax)
{
    const float largest = mox_device_largest(args.quant.element);
    if (args.rule == MOX_ACT_NVFP4_GROUP) {
        const mox_act_input input = {
            .global = args.quant.global, .largest = largest, .given = mox_quant_static_scale(args, row), .amax = amax
        };
        return mox_act_nvfp4(&input);
    }
    const int e = mox_scale_exponent(args.quant.rule, largest, amax);
    return mox_act_times(mox_f8_e8m0_decode(static_cast<uint32_t>(127 + e)),
                         mox_f8_e8m0_decode(static_cast<uint32_t>(127 - e)));
}

/* Sets of four groups of 32 columns, eight lanes each, or of eight of 16. */
__device__ void quantize_short(const mox_quant_act_args &args, const lane_numbers (&numbers)[TOGETHER], int64_t row,
                               int first, int step)
{
    const int lane = threadIdx.x % LANES, groups = static_cast<int>(args.out.scale_cols);
    const int lanes = args.quant.group_cols / MOX_QUANT_EACH;
#pragma unroll
    for (int k = 0; k < TOGETHER; k++) {
        const int set = first + k * step, group = (set * LANES + lane) / lanes;
        float amax = larger_of(numbers[k]), x[MOX_QUANT_EACH];
#pragma unroll
        for (int apart = 1; apart < 8; apart *= 2) {
            const float other = __shfl_xor_sync(ALL, amax, apart);
            amax = apart < lanes ? fmaxf(amax, other) : amax;
        }
        const mox_act_step by = step_of(args, row, mox_act_finite(amax));
        if (lane % lanes == 0 && group < groups)
            args.out.scales[row * groups + group] = by.scale;
#pragma unroll
        for (int i = 0; i < MOX_QUANT_EACH; i++)
            x[i] = numbers[k].x[i] * by.by;
        const uint32_t codes = args.quant.element == MOXIE_F8_E4M3
                                   ? mox_quant_two(x[0], x[1]) | mox_quant_two(x[2], x[3]) << 16
                                   : mox_quant_four(args.quant.element, x[0], x[1], x[2], x[3]);
        if (set < sets_of(args))
            mox_quant_store(args, row, static_cast<int64_t>(set) * GROUP + lane * MOX_QUANT_EACH, codes);
    }
}

/* Sets of a group each. */
__device__ void quantize_long(const mox_quant_act_args &args, const lane_numbers (&numbers)[TOGETHER], int64_t row,
                              int first, int step)
{
    const int lane = threadIdx.x % LANES, groups = static_cast<int>(args.out.scale_cols);
    uint32_t mine = 0;
#pragma unroll
    for (int k = 0; k < TOGETHER; k++) {
        const uint32_t amax = largest(numbers[k]);
        mine = lane == k ? amax : mine;
    }
    const group_scale own = scale_of(args.quant.rule, mine);
    if (lane < TOGETHER && first + lane * step < groups)
        args.out.scales[row * groups + first + lane * step] = own.scale;
#pragma unroll
    for (int k = 0; k < TOGETHER; k++) {
        const group_scale by = { __shfl_sync(ALL, own.scale, k), __shfl_sync(ALL, own.inverse, k) };
        const float *x = numbers[k].x;
        const uint32_t low = mox_quant_two(quotient(x[0], by), quotient(x[1], by));
        const uint32_t high = mox_quant_two(quotient(x[2], by), quotient(x[3], by));
        if (first + k * step < groups)
            mox_quant_store(args, row, static_cast<int64_t>(first + k * step) * GROUP + lane * MOX_QUANT_EACH,
                            low | high << 16);
    }
}

/* Sets first, first + step, ... of a row, up to TOGETHER. */
__device__ void quantize(const mox_quant_act_args &args, bool whole, int64_t row, int first, int step)
{
    const int64_t from = (args.source != nullptr ? args.source[row] : row) * args.cols;
    const int64_t column = static_cast<int64_t>(first) * GROUP + threadIdx.x % LANES * MOX_QUANT_EACH;
    const int64_t apart = static_cast<int64_t>(step) * GROUP;
    lane_numbers numbers[TOGETHER];
    if (args.x_dtype == MOXIE_BF16)
        load<MOXIE_BF16>(args, whole, from, column, apart, numbers);
    else if (args.x_dtype == MOXIE_F16)
        load<MOXIE_F16>(args, whole, from, column, apart, numbers);
    else
        load<MOXIE_F32>(args, whole, from, column, apart, numbers);
    if (args.rule == MOX_ACT_FP8_GROUP)
        quantize_long(args, numbers, row, first, step);
    else
        quantize_short(args, numbers, row, first, step);
}

/* A block some sets of one row; those of the first fill up what a long stride has behind the last. */
__global__ void __launch_bounds__(THREADS) groups_kernel(const __grid_constant__ mox_quant_act_args args, bool whole)
{
    const int64_t row = blockIdx.x;
    mox_grid_release();
    if (args.early == 0)
        mox_grid_wait();
    if (row < (args.rows != nullptr ? *args.rows : args.max_rows)) {
        const int first = static_cast<int>(blockIdx.y) * WARPS + static_cast<int>(threadIdx.x) / LANES;
        quantize(args, whole, row, first, static_cast<int>(gridDim.y) * WARPS);
        if (args.out.global != nullptr && blockIdx.y == 0 && threadIdx.x == 0)
            args.out.global[row] = mox_quant_static_scale(args, row);
        for (int64_t k = sets_of(args) * GROUP + threadIdx.x * MOX_QUANT_EACH; blockIdx.y == 0 && k < args.out.stride;
             k += THREADS * MOX_QUANT_EACH)
            mox_quant_store(args, row, k, 0);
    }
    mox_grid_wait(); /* so that the end of this kernel means that of those before */
}

} // namespace

moxie_status mox_cuda_quant_act_groups_launch(const mox_quant_act_args *args, mox_cuda_stream stream,
                                              moxie_error *error)
{
    if (args->max_rows == 0)
        return MOXIE_OK;
    const int64_t sets = (args->cols + GROUP - 1) / GROUP, blocks = (sets + WARPS - 1) / WARPS;
    const int64_t fewer = (sets + WARPS * TOGETHER - 1) / (WARPS * TOGETHER);
    const dim3 grid(static_cast<unsigned>(args->max_rows),
                    static_cast<unsigned>(args->max_rows * blocks <= FEW_BLOCKS ? blocks : fewer));
    return mox_cuda_status(
        mox_device_launch_dependent(groups_kernel, grid, THREADS, 0, stream, *args, mox_quant_is_whole(args)),
        "quant_act groups", error);
}
