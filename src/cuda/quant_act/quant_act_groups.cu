/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_act_groups.cu - quantizes rows of activations by dynamic scales of short groups, at the speed of memory. Codes
 * and scales have the bits that act_rules.h defines:
 *
 *     MOX_ACT_FP8_GROUP      E4M3 codes, a scale per 128 columns; FP8 codes, a power of two per 32 columns
 *     MOX_ACT_MX_GROUP       codes of any element, a power of two per 32 columns
 *     MOX_ACT_NVFP4_GROUP    E2M1 codes, an E4M3 scale per 16 columns
 *
 * A set is 128 columns. A warp quantizes up to SETS sets of one row, and issues all their loads first:
 *
 *     lane l     columns 4 l .. 4 l + 3 of each set: 4 codes, stored as one word
 *     scales     128 columns: lane k computes the scale of set k for the whole warp; 32 or 16: each lane its group's
 *
 * Codes fill the row's whole stride: after the last column they are zero.
 */
#include "cuda/device/device_error.h"
#include "cuda/device/device_launch.cuh"
#include "cuda/ptx/ptx_sync.cuh"
#include "cuda/quant_act/quant_act_numbers.cuh"

namespace
{

constexpr int LANES = 32, WARPS = 4, THREADS = LANES * WARPS, GROUP = LANES * MOX_QUANT_VECTOR, SETS = 4;
constexpr int64_t LATENCY_BOUND_BLOCKS = 4096; /* up to here a warp gets one set: latency decides */
constexpr unsigned ALL = ~0u;

struct group_scale {
    float scale, inverse;
};

/* A lane's columns of one set, as floats, so that only loads depend on the type of x. */
struct lane_values {
    float x[MOX_QUANT_VECTOR];
};

/* Loads columns column .. column + 3 of the row that begins at element `from` of x, and the same at column + step,
 * column + 2 step, ... */
template <moxie_dtype DTYPE>
__device__ void load(const mox_quant_act_args &args, bool vectorized, int64_t from, int64_t column, int64_t step,
                     lane_values (&numbers)[SETS])
{
    mox_raw_numbers<DTYPE> raw[SETS];
#pragma unroll
    for (int k = 0; k < SETS; k++)
        raw[k] = mox_raw_load<DTYPE>(args, vectorized, from, column + k * step);
#pragma unroll
    for (int k = 0; k < SETS; k++)
#pragma unroll
        for (int i = 0; i < MOX_QUANT_VECTOR; i++)
            numbers[k].x[i] = mox_raw_number<DTYPE>(raw[k], i);
}

__device__ float lane_amax(const lane_values &numbers)
{
    float amax = 0.0f;
#pragma unroll
    for (int i = 0; i < MOX_QUANT_VECTOR; i++)
        amax = mox_act_max_abs(amax, numbers.x[i]);
    return amax;
}

/* Largest magnitude of the warp's set. Floats that are not negative have the order of their bit patterns. */
__device__ uint32_t largest(const lane_values &numbers)
{
    return __reduce_max_sync(ALL, mox_float_bits(lane_amax(numbers)));
}

__device__ group_scale scale_of(int32_t rule, uint32_t amax_bits)
{
    const mox_act_input input = { .scale_rule = rule,
                                  .largest = mox_device_largest(MOXIE_F8_E4M3),
                                  .amax = mox_act_finite(mox_float_of(amax_bits)) };
    const float scale = mox_act_fp8(MOX_ACT_FP8_GROUP, &input).scale;
    return { scale, __frcp_rn(scale) };
}

/* x / scale, rounded once: two corrections of x * (rounded 1 / scale) end at the nearest float (Markstein). When the
 * quotient is too small for that, it encodes as a zero of its sign anyway. NaN, infinity and zero are returned as they
 * are: the corrections would lose a zero's sign. */
__device__ float quotient(float x, const group_scale &by)
{
    const float q0 = __fmul_rn(x, by.inverse);
    const float q1 = __fmaf_rn(__fmaf_rn(-q0, by.scale, x), by.inverse, q0);
    const float q2 = __fmaf_rn(__fmaf_rn(-q1, by.scale, x), by.inverse, q1);
    return fabsf(x) > 0.0f && fabsf(x) <= FLT_MAX ? q2 : x;
}

/* Sets of a row. */
__device__ int64_t sets_of(const mox_quant_act_args &args)
{
    return (args.cols + GROUP - 1) / GROUP;
}

/* The step of a group of 16 or 32 columns. Multiplying by the reciprocal of a power of two rounds as dividing does. */
__device__ mox_act_step step_of(const mox_quant_act_args &args, int64_t row, float amax)
{
    const float largest = mox_device_largest(args.quant.element);
    if (args.rule == MOX_ACT_NVFP4_GROUP) {
        const mox_act_input input = { .global = args.quant.global,
                                      .largest = largest,
                                      .static_scale = mox_quant_static_scale(args, row),
                                      .amax = amax };
        return mox_act_nvfp4(&input);
    }
    const int e = mox_act_scale_exponent(args.quant.rule, largest, amax);
    return mox_act_multiply_by(mox_f8_e8m0_decode(static_cast<uint32_t>(127 + e)),
                               mox_f8_e8m0_decode(static_cast<uint32_t>(127 - e)));
}

/* A set is four groups of 32 columns, of eight lanes each; or eight groups of 16 columns, of four lanes each. */
__device__ void quantize_short_groups(const mox_quant_act_args &args, const lane_values (&numbers)[SETS], int64_t row,
                                      int first, int step)
{
    const int lane = threadIdx.x % LANES, groups = static_cast<int>(args.out.scale_cols);
    const int lanes = args.quant.group_cols / MOX_QUANT_VECTOR;
#pragma unroll
    for (int k = 0; k < SETS; k++) {
        const int set = first + k * step, group = (set * LANES + lane) / lanes;
        if (set >= sets_of(args))
            break;
        float amax = lane_amax(numbers[k]), x[MOX_QUANT_VECTOR];
#pragma unroll
        for (int distance = 1; distance < 8; distance *= 2) {
            const float other = __shfl_xor_sync(ALL, amax, distance);
            amax = distance < lanes ? fmaxf(amax, other) : amax;
        }
        const mox_act_step by = step_of(args, row, mox_act_finite(amax));
        if (lane % lanes == 0 && group < groups)
            args.out.scales[row * groups + group] = by.scale;
#pragma unroll
        for (int i = 0; i < MOX_QUANT_VECTOR; i++)
            x[i] = numbers[k].x[i] * by.by;
        const uint32_t codes = args.quant.element == MOXIE_F8_E4M3
                                   ? mox_quant_codes_e4m3x2(x[0], x[1]) | mox_quant_codes_e4m3x2(x[2], x[3]) << 16
                                   : mox_quant_codes_x4(args.quant.element, x[0], x[1], x[2], x[3]);
        mox_quant_store(args, row, static_cast<int64_t>(set) * GROUP + lane * MOX_QUANT_VECTOR, codes);
    }
}

/* A set is one group of 128 columns. */
__device__ void quantize_long_groups(const mox_quant_act_args &args, const lane_values (&numbers)[SETS], int64_t row,
                                     int first, int step)
{
    const int lane = threadIdx.x % LANES, groups = static_cast<int>(args.out.scale_cols);
    uint32_t mine = 0;
#pragma unroll
    for (int k = 0; k < SETS; k++) {
        const uint32_t amax = largest(numbers[k]);
        mine = lane == k ? amax : mine;
    }
    const group_scale own = scale_of(args.quant.rule, mine);
    if (lane < SETS && first + lane * step < groups)
        args.out.scales[row * groups + first + lane * step] = own.scale;
#pragma unroll
    for (int k = 0; k < SETS; k++) {
        const group_scale by = { __shfl_sync(ALL, own.scale, k), __shfl_sync(ALL, own.inverse, k) };
        const float *x = numbers[k].x;
        const uint32_t low = mox_quant_codes_e4m3x2(quotient(x[0], by), quotient(x[1], by));
        const uint32_t high = mox_quant_codes_e4m3x2(quotient(x[2], by), quotient(x[3], by));
        if (first + k * step < groups)
            mox_quant_store(args, row, static_cast<int64_t>(first + k * step) * GROUP + lane * MOX_QUANT_VECTOR,
                            low | high << 16);
    }
}

/* The warp's sets: first, first + step, ..., at most SETS. */
__device__ void quantize(const mox_quant_act_args &args, bool vectorized, int64_t row, int first, int step)
{
    const int64_t from = (args.source != nullptr ? args.source[row] : row) * args.cols;
    const int64_t column = static_cast<int64_t>(first) * GROUP + threadIdx.x % LANES * MOX_QUANT_VECTOR;
    const int64_t distance = static_cast<int64_t>(step) * GROUP;
    lane_values numbers[SETS];
    if (args.x_dtype == MOXIE_BF16)
        load<MOXIE_BF16>(args, vectorized, from, column, distance, numbers);
    else if (args.x_dtype == MOXIE_F16)
        load<MOXIE_F16>(args, vectorized, from, column, distance, numbers);
    else
        load<MOXIE_F32>(args, vectorized, from, column, distance, numbers);
    if (args.quant.group_cols == GROUP)
        quantize_long_groups(args, numbers, row, first, step);
    else
        quantize_short_groups(args, numbers, row, first, step);
}

/* A block quantizes some sets of one row. The row's first block also clears its stride after the last set. */
__global__ void __launch_bounds__(THREADS)
    groups_kernel(const __grid_constant__ mox_quant_act_args args, bool vectorized)
{
    const int64_t row = blockIdx.x;
    mox_grid_release();
    if (args.early == 0)
        mox_grid_wait();
    if (row < (args.rows != nullptr ? *args.rows : args.max_rows)) {
        const int first = static_cast<int>(blockIdx.y) * WARPS + static_cast<int>(threadIdx.x) / LANES;
        quantize(args, vectorized, row, first, static_cast<int>(gridDim.y) * WARPS);
        if (args.out.global != nullptr && blockIdx.y == 0 && threadIdx.x == 0)
            args.out.global[row] = mox_quant_static_scale(args, row);
        for (int64_t k = sets_of(args) * GROUP + threadIdx.x * MOX_QUANT_VECTOR; blockIdx.y == 0 && k < args.out.stride;
             k += THREADS * MOX_QUANT_VECTOR)
            mox_quant_store(args, row, k, 0);
    }
    mox_grid_wait(); /* all kernels before this one have ended, when this one ends */
}

} // namespace

moxie_status mox_cuda_quant_act_groups_launch(const mox_quant_act_args *args, mox_cuda_stream stream,
                                              moxie_error *error)
{
    if (args->max_rows == 0)
        return MOXIE_OK;
    const int64_t sets = (args->cols + GROUP - 1) / GROUP, blocks = (sets + WARPS - 1) / WARPS;
    const int64_t fewer = (sets + WARPS * SETS - 1) / (WARPS * SETS);
    const dim3 grid(static_cast<unsigned>(args->max_rows),
                    static_cast<unsigned>(args->max_rows * blocks <= LATENCY_BOUND_BLOCKS ? blocks : fewer));
    return mox_cuda_status(
        mox_device_launch_dependent(groups_kernel, grid, THREADS, 0, stream, *args, mox_quant_is_vectorizable(args)),
        "quant_act groups", error);
}
