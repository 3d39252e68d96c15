/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_act_rows.cu - rows of activations to FP8 or 8-bit integers with one scale a row, found or given (the rules
 * MOX_ACT_FP8_TOKEN, _FP8_TENSOR_STATIC, and of INT8, of act_rules.h, codes and scales to the bit), at the speed of
 * memory.
 *
 *     a block    one row: a thread columns 4 t .. 4 t + 3, TOGETHER times, all of whose loads are under way at once; of
 * many rows no more threads than have some, since a row's loads, sum and codes come one after the other and only other
 * rows fill the time between scale      the greatest magnitude over the warps' greatest; a row that is longer than that
 * is read again codes      4 bytes a thread, to the row's whole stride: what is behind the last column is zero
 */
#include "cuda/device/device_error.h"
#include "cuda/device/device_launch.cuh"
#include "cuda/ptx/ptx_sync.cuh"
#include "cuda/quant_act/quant_act_numbers.cuh"

namespace
{

constexpr int LANES = 32, MOST_WARPS = 16, TOGETHER = 4;
constexpr int64_t FEW_ROWS = 1024; /* while there are no more, latency is all that counts */
constexpr unsigned ALL = ~0u;

/* Columns that the block has in one go. */
__device__ int64_t set()
{
    return static_cast<int64_t>(blockDim.x) * MOX_QUANT_EACH;
}

template <moxie_dtype DTYPE> struct part_of_row {
    mox_raw_numbers<DTYPE> raw[TOGETHER];

    __device__ void load(const mox_quant_act_args &args, bool whole, int64_t from, int64_t column)
    {
#pragma unroll
        for (int k = 0; k < TOGETHER; k++)
            raw[k] = mox_raw_load<DTYPE>(args, whole, from, column + k * set());
    }

    __device__ float larger(float amax) const
    {
#pragma unroll
        for (int k = 0; k < TOGETHER; k++)
#pragma unroll
            for (int i = 0; i < MOX_QUANT_EACH; i++)
                amax = mox_act_larger(amax, mox_raw_number<DTYPE>(raw[k], i));
        return amax;
    }
};

/* Over the block. Bits of numbers that are not negative order as the numbers do. */
__device__ float greatest(float mine)
{
    __shared__ uint32_t of_warp[MOST_WARPS];
    const int lane = threadIdx.x % LANES, warps = static_cast<int>(blockDim.x) / LANES;
    const uint32_t amax = __reduce_max_sync(ALL, mox_float_bits(mine));
    if (lane == 0)
        of_warp[threadIdx.x / LANES] = amax;
    __syncthreads();
    return mox_float_of(__reduce_max_sync(ALL, lane < warps ? of_warp[lane] : 0));
}

__device__ bool is_given(int32_t rule)
{
    return rule == MOX_ACT_FP8_TENSOR_STATIC || rule == MOX_ACT_INT8_TENSOR_STATIC;
}

__device__ mox_act_step step_of(const mox_quant_act_args &args, int64_t row, float amax)
{
    const mox_act_rule rule = static_cast<mox_act_rule>(args.rule);
    const mox_act_input input = { .largest = mox_device_largest(args.quant.element),
                                  .given = mox_quant_static_scale(args, row),
                                  .amax = mox_act_finite(amax) };
    return args.out.integer ? mox_act_int8(rule, &input) : mox_act_fp8(rule, &input);
}

template <moxie_dtype DTYPE>
__device__ uint32_t codes_of(const mox_quant_act_args &args, const mox_raw_numbers<DTYPE> &raw,
                             const mox_act_step &step)
{
    float x[MOX_QUANT_EACH];
    uint32_t codes = 0;
#pragma unroll
    for (int i = 0; i < MOX_QUANT_EACH; i++)
        x[i] = mox_act_scaled(&step, mox_raw_number<DTYPE>(raw, i));
    if (args.quant.element == MOXIE_F8_E4M3)
        return mox_quant_two(x[0], x[1]) | mox_quant_two(x[2], x[3]) << 16;
    if (!args.out.integer)
        return mox_quant_four(args.quant.element, x[0], x[1], x[2], x[3]);
#pragma unroll
    for (int i = 0; i < MOX_QUANT_EACH; i++)
        codes |= static_cast<uint32_t>(mox_act_int8_code(x[i], args.quant.rounding)) << 8 * i;
    return codes;
}

template <moxie_dtype DTYPE> __device__ void quantize(const mox_quant_act_args &args, bool whole, int64_t row)
{
    const int64_t span = set() * TOGETHER;
    const int64_t from = (args.source != nullptr ? args.source[row] : row) * args.cols;
    const int64_t first = threadIdx.x * MOX_QUANT_EACH;
    part_of_row<DTYPE> part;
    part.load(args, whole, from, first);
    float amax = 0.0f;
    if (!is_given(args.rule)) {
        amax = part.larger(0.0f);
        for (int64_t at = span; at < args.cols; at += span) {
            part.load(args, whole, from, first + at);
            amax = part.larger(amax);
        }
        if (span < args.cols)
            part.load(args, whole, from, first);
        amax = greatest(amax);
    }
    const mox_act_step step = step_of(args, row, amax);
    if (threadIdx.x == 0) {
        args.out.scales[row] = step.scale;
        if (args.out.global != nullptr)
            args.out.global[row] = mox_quant_static_scale(args, row);
    }
    for (int64_t at = 0; at < args.out.stride; at += span) {
        if (at > 0)
            part.load(args, whole, from, first + at);
#pragma unroll
        for (int k = 0; k < TOGETHER; k++) {
            const int64_t column = first + at + k * set();
            if (column < args.out.stride)
                mox_quant_store(args, row, column, codes_of<DTYPE>(args, part.raw[k], step));
        }
    }
}

__global__ void __launch_bounds__(LANES *MOST_WARPS)
    rows_kernel(const __grid_constant__ mox_quant_act_args args, bool whole)
{
    mox_grid_release();
    if (args.early == 0)
        mox_grid_wait();
    if (blockIdx.x < (args.rows != nullptr ? *args.rows : args.max_rows)) {
        if (args.x_dtype == MOXIE_BF16)
            quantize<MOXIE_BF16>(args, whole, blockIdx.x);
        else if (args.x_dtype == MOXIE_F16)
            quantize<MOXIE_F16>(args, whole, blockIdx.x);
        else
            quantize<MOXIE_F32>(args, whole, blockIdx.x);
    }
    mox_grid_wait(); /* so that the end of this kernel means that of those before */
}

int warps_of(const mox_quant_act_args *args)
{
    const int64_t each = LANES * MOX_QUANT_EACH * TOGETHER, warps = (args->out.stride + each - 1) / each;
    return args->max_rows <= FEW_ROWS || warps > MOST_WARPS ? MOST_WARPS : static_cast<int>(warps);
}

} // namespace

moxie_status mox_cuda_quant_act_rows_launch(const mox_quant_act_args *args, mox_cuda_stream stream, moxie_error *error)
{
    if (args->max_rows == 0)
        return MOXIE_OK;
    const unsigned rows = static_cast<unsigned>(args->max_rows),
                   threads = static_cast<unsigned>(LANES * warps_of(args));
    return mox_cuda_status(
        mox_device_launch_dependent(rows_kernel, rows, threads, 0, stream, *args, mox_quant_is_whole(args)),
        "quant_act rows", error);
}
