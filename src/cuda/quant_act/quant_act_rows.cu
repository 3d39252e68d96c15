/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_act_rows.cu - quantizes rows of activations to FP8 or 8-bit integers by one scale per row, dynamic or static,
 * at the speed of memory. Rules MOX_ACT_{FP8,INT8}_{TOKEN,TENSOR_STATIC}; codes and scales have the bits of
 * act_rules.h.
 *
 *     a block     one row; thread t has columns 4 t .. 4 t + 3, and again every 4 blockDim columns, LOADS times. All
 *                 these loads are in flight at once
 *     scale       from the maximum over the block. A row longer than LOADS passes is read a second time for its codes
 *     codes       4 bytes per thread, over the row's whole stride: after the last column they are zero
 *
 * A row is loaded, reduced and encoded one step after the other, so only other rows hide these latencies. When there
 * are many rows, a block has just enough threads for its row, so that more blocks fit on a multiprocessor.
 */
#include "cuda/device/device_error.h"
#include "cuda/device/device_launch.cuh"
#include "cuda/ptx/ptx_sync.cuh"
#include "cuda/quant_act/quant_act_numbers.cuh"

namespace
{

constexpr int LANES = 32, MAX_WARPS = 16, LOADS = 4;
constexpr int64_t LATENCY_BOUND_ROWS = 1024; /* up to here latency decides, not throughput */
constexpr unsigned ALL = ~0u;

/* Columns that all threads of the block load at once. */
__device__ int64_t block_columns()
{
    return static_cast<int64_t>(blockDim.x) * MOX_QUANT_VECTOR;
}

template <moxie_dtype DTYPE> struct part_of_row {
    mox_raw_numbers<DTYPE> raw[LOADS];

    __device__ void load(const mox_quant_act_args &args, bool vectorized, int64_t from, int64_t column)
    {
#pragma unroll
        for (int k = 0; k < LOADS; k++)
            raw[k] = mox_raw_load<DTYPE>(args, vectorized, from, column + k * block_columns());
    }

    __device__ float max_with(float amax) const
    {
#pragma unroll
        for (int k = 0; k < LOADS; k++)
#pragma unroll
            for (int i = 0; i < MOX_QUANT_VECTOR; i++)
                amax = mox_act_max_abs(amax, mox_raw_number<DTYPE>(raw[k], i));
        return amax;
    }
};

/* The maximum over the block. Floats that are not negative have the order of their bit patterns. */
__device__ float block_amax(float mine)
{
    __shared__ uint32_t of_warp[MAX_WARPS];
    const int lane = threadIdx.x % LANES, warps = static_cast<int>(blockDim.x) / LANES;
    const uint32_t amax = __reduce_max_sync(ALL, mox_float_bits(mine));
    if (lane == 0)
        of_warp[threadIdx.x / LANES] = amax;
    __syncthreads();
    return mox_float_of(__reduce_max_sync(ALL, lane < warps ? of_warp[lane] : 0));
}

__device__ bool has_static_scale(int32_t rule)
{
    return rule == MOX_ACT_FP8_TENSOR_STATIC || rule == MOX_ACT_INT8_TENSOR_STATIC;
}

__device__ mox_act_step step_of(const mox_quant_act_args &args, int64_t row, float amax)
{
    const mox_act_rule rule = static_cast<mox_act_rule>(args.rule);
    const mox_act_input input = { .largest = mox_device_largest(args.quant.element),
                                  .static_scale = mox_quant_static_scale(args, row),
                                  .amax = mox_act_finite(amax) };
    return args.out.integer ? mox_act_int8(rule, &input) : mox_act_fp8(rule, &input);
}

template <moxie_dtype DTYPE>
__device__ uint32_t codes_of(const mox_quant_act_args &args, const mox_raw_numbers<DTYPE> &raw,
                             const mox_act_step &step)
{
    float x[MOX_QUANT_VECTOR];
    uint32_t codes = 0;
#pragma unroll
    for (int i = 0; i < MOX_QUANT_VECTOR; i++)
        x[i] = mox_act_scaled(&step, mox_raw_number<DTYPE>(raw, i));
    if (args.quant.element == MOXIE_F8_E4M3)
        return mox_quant_codes_e4m3x2(x[0], x[1]) | mox_quant_codes_e4m3x2(x[2], x[3]) << 16;
    if (!args.out.integer)
        return mox_quant_codes_x4(args.quant.element, x[0], x[1], x[2], x[3]);
#pragma unroll
    for (int i = 0; i < MOX_QUANT_VECTOR; i++)
        codes |= static_cast<uint32_t>(mox_act_int8_code(x[i], args.quant.rounding)) << 8 * i;
    return codes;
}

template <moxie_dtype DTYPE> __device__ void quantize(const mox_quant_act_args &args, bool vectorized, int64_t row)
{
    const int64_t span = block_columns() * LOADS;
    const int64_t from = (args.source != nullptr ? args.source[row] : row) * args.cols;
    const int64_t first = threadIdx.x * MOX_QUANT_VECTOR;
    part_of_row<DTYPE> part;
    part.load(args, vectorized, from, first);
    float amax = 0.0f;
    if (!has_static_scale(args.rule)) {
        amax = part.max_with(0.0f);
        for (int64_t at = span; at < args.cols; at += span) {
            part.load(args, vectorized, from, first + at);
            amax = part.max_with(amax);
        }
        if (span < args.cols)
            part.load(args, vectorized, from, first);
        amax = block_amax(amax);
    }
    const mox_act_step step = step_of(args, row, amax);
    if (threadIdx.x == 0) {
        args.out.scales[row] = step.scale;
        if (args.out.global != nullptr)
            args.out.global[row] = mox_quant_static_scale(args, row);
    }
    for (int64_t at = 0; at < args.out.stride; at += span) {
        if (at > 0)
            part.load(args, vectorized, from, first + at);
#pragma unroll
        for (int k = 0; k < LOADS; k++) {
            const int64_t column = first + at + k * block_columns();
            if (column < args.out.stride)
                mox_quant_store(args, row, column, codes_of<DTYPE>(args, part.raw[k], step));
        }
    }
}

__global__ void __launch_bounds__(LANES *MAX_WARPS)
    rows_kernel(const __grid_constant__ mox_quant_act_args args, bool vectorized)
{
    mox_grid_release();
    if (args.early == 0)
        mox_grid_wait();
    if (blockIdx.x < (args.rows != nullptr ? *args.rows : args.max_rows)) {
        if (args.x_dtype == MOXIE_BF16)
            quantize<MOXIE_BF16>(args, vectorized, blockIdx.x);
        else if (args.x_dtype == MOXIE_F16)
            quantize<MOXIE_F16>(args, vectorized, blockIdx.x);
        else
            quantize<MOXIE_F32>(args, vectorized, blockIdx.x);
    }
    mox_grid_wait(); /* all kernels before this one have ended, when this one ends */
}

int warps_of(const mox_quant_act_args *args)
{
    const int64_t each = LANES * MOX_QUANT_VECTOR * LOADS, warps = (args->out.stride + each - 1) / each;
    return args->max_rows <= LATENCY_BOUND_ROWS || warps > MAX_WARPS ? MAX_WARPS : static_cast<int>(warps);
}

} // namespace

moxie_status mox_cuda_quant_act_rows_launch(const mox_quant_act_args *args, mox_cuda_stream stream, moxie_error *error)
{
    if (args->max_rows == 0)
        return MOXIE_OK;
    const unsigned rows = static_cast<unsigned>(args->max_rows),
                   threads = static_cast<unsigned>(LANES * warps_of(args));
    return mox_cuda_status(
        mox_device_launch_dependent(rows_kernel, rows, threads, 0, stream, *args, mox_quant_is_vectorizable(args)),
        "quant_act rows", error);
}
