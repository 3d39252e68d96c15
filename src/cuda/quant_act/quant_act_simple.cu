/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_act_simple.cu - prepares rows of activations by any rule of act_rules.h, or unquantized; codes and scales have
 * the bits of the host's.
 *
 *     whole batch (dynamic per-tensor rules)   amax over all rows, as the maximum of bit patterns
 *     a block per row                          x -> f32 -> (* row weight, rounded to x's dtype) -> groups
 *                                              -> scale, codes
 *
 * Short groups are quantized by a warp each, long ones by the whole block. A maximum does not depend on the order of
 * its arguments, so parallel reduction changes no bits.
 */
#include "cuda/device/device_error.h"
#include "cuda/device/device_format.cuh"
#include "cuda/device/device_launch.cuh"
#include "cuda/ptx/ptx_sync.cuh"
#include "quant/act_rules.h"

enum { LANES = 32, THREADS = 256, WARPS = THREADS / LANES, LONG_GROUP = 1024 };
static const unsigned ALL = 0xffffffffu;

/* Arguments, and what the launcher derives from `quant` with tables of the host. */
struct job {
    mox_quant_act_args args;
    bool quantized, by_block, integer, whole_batch;
    mox_act_rule rule;
};

static __device__ int64_t rows_of(const mox_quant_act_args &args)
{
    return args.rows != nullptr ? *args.rows : args.max_rows;
}

/* x[row, k], multiplied by the row's weight if there are weights. */
static __device__ float number(const mox_quant_act_args &args, int64_t row, int64_t k)
{
    const int64_t from = args.source != nullptr ? args.source[row] : row;
    const float x = mox_device_load(args.x_dtype, args.x, from * args.cols + k);
    return args.row_weight != nullptr ? mox_device_round_to(args.x_dtype, x * args.row_weight[row]) : x;
}

static __device__ float warp_max(float x)
{
    for (int step = LANES / 2; step > 0; step /= 2)
        x = fmaxf(x, __shfl_xor_sync(ALL, x, step));
    return x;
}

static __device__ float block_max(float x)
{
    __shared__ float of_warp[WARPS];
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    x = warp_max(x);
    __syncthreads();
    if (lane == 0)
        of_warp[warp] = x;
    __syncthreads();
    return warp_max(lane < WARPS ? of_warp[lane] : 0.0f);
}

/* ---- the whole batch -------------------------------------------------------------------------------- */

/* Launched twice: first one thread clears the maximum, then all blocks raise it. */
static __global__ void amax_kernel(mox_quant_act_args args, bool clears)
{
    mox_grid_release();
    mox_grid_wait();
    if (clears) {
        *args.amax = 0;
        return;
    }
    const int64_t row = blockIdx.x;
    if (row >= rows_of(args))
        return;
    float amax = 0;
    for (int64_t k = threadIdx.x; k < args.cols; k += THREADS)
        amax = mox_act_max_abs(amax, number(args, row, k));
    amax = block_max(amax);
    if (threadIdx.x == 0) /* floats that are not negative have the order of their bit patterns */
        atomicMax(args.amax, mox_float_bits(mox_act_finite(amax)));
}

/* The magnitude of the batch, of which these rows may be a part. */
static __device__ float batch_amax(const mox_quant_act_args &args)
{
    uint32_t amax = args.maxima == nullptr ? *args.amax : 0;
    for (int i = 0; i < args.maxima_count; i++)
        amax = max(amax, args.maxima[i]);
    return mox_float_of(amax);
}

/* ---- a row ------------------------------------------------------------------------------------------ */

static __device__ void store(const mox_quant_act_args &args, int64_t row, int64_t k, uint8_t code)
{
    const int64_t at = row * args.out.stride + k;
    if (args.out.kind == MOX_ACTIVATIONS_CODES)
        static_cast<uint8_t *>(args.out.data)[at] = code;
    else
        static_cast<float *>(args.out.data)[at] = args.table[code];
}

static __device__ void quantize_group(const job &j, int64_t row, int64_t g, int thread, int threads)
{
    const mox_quant_act_args &args = j.args;
    const int64_t first = g * args.out.group_cols;
    const int64_t end = first + args.out.group_cols < args.cols ? first + args.out.group_cols : args.cols;
    float amax = 0;
    for (int64_t k = first + thread; !j.whole_batch && k < end; k += threads)
        amax = mox_act_max_abs(amax, number(args, row, k));
    amax = j.by_block ? block_max(amax) : warp_max(amax);
    const mox_act_input input = { .scale_rule = args.quant.rule,
                                  .global = args.quant.global,
                                  .largest = mox_device_largest(args.quant.element),
                                  .static_scale = args.row_scale != nullptr ? args.row_scale[row] : args.static_scale,
                                  .batch_amax = j.whole_batch ? batch_amax(args) : 0.0f,
                                  .amax = mox_act_finite(amax) };
    const mox_act_step step = mox_act_step_of(j.rule, &input);
    for (int64_t k = first + thread; k < end; k += threads) {
        const float x = mox_act_scaled(&step, number(args, row, k));
        store(args, row, k,
              j.integer ? mox_act_int8_code(x, args.quant.rounding)
                        : static_cast<uint8_t>(mox_device_encode(args.quant.element, mox_act_clamp(x, input.largest))));
    }
    if (thread == 0) {
        args.out.scales[row * args.out.scale_cols + g] = step.scale;
        if (args.out.global != nullptr && g == 0)
            args.out.global[row] = input.static_scale;
    }
}

static __device__ void pass_row(const mox_quant_act_args &args, int64_t row)
{
    for (int64_t k = threadIdx.x; k < args.cols; k += THREADS) {
        const float x = mox_device_round_to(args.round_to, number(args, row, k));
        if (args.out.kind == MOX_ACTIVATIONS_NATIVE)
            mox_device_store(args.out.dtype, args.out.data, row * args.out.stride + k, x);
        else
            static_cast<float *>(args.out.data)[row * args.out.stride + k] = x;
    }
}

static __device__ void pad_row(const mox_quant_act_args &args, int64_t row)
{
    for (int64_t k = args.cols + threadIdx.x; k < args.out.stride; k += THREADS) {
        if (args.out.kind == MOX_ACTIVATIONS_CODES)
            static_cast<uint8_t *>(args.out.data)[row * args.out.stride + k] = 0;
        else if (args.out.kind == MOX_ACTIVATIONS_F32)
            static_cast<float *>(args.out.data)[row * args.out.stride + k] = 0.0f;
    }
}

static __global__ void quant_act_kernel(job j)
{
    mox_grid_release();
    mox_grid_wait();
    const int64_t row = blockIdx.x;
    if (row >= rows_of(j.args))
        return;
    if (!j.quantized)
        pass_row(j.args, row);
    else if (j.by_block)
        for (int64_t g = 0; g < j.args.out.scale_cols; g++)
            quantize_group(j, row, g, threadIdx.x, THREADS);
    else
        for (int64_t g = threadIdx.x / LANES; g < j.args.out.scale_cols; g += WARPS)
            quantize_group(j, row, g, threadIdx.x % LANES, LANES);
    pad_row(j.args, row);
}

/* Also of no rows, since other ranks may have some. */
static moxie_status find_amax(const mox_quant_act_args *args, unsigned rows, mox_cuda_stream stream, moxie_error *error)
{
    MOX_TRY(mox_cuda_status(mox_device_launch_dependent(amax_kernel, 1, 1, 0, stream, *args, true),
                            "quant_act simple: clear", error));
    return rows == 0 ? MOXIE_OK
                     : mox_cuda_status(mox_device_launch_dependent(amax_kernel, rows, THREADS, 0, stream, *args, false),
                                       "quant_act simple: amax", error);
}

moxie_status mox_cuda_quant_act_simple_launch(const mox_quant_act_args *args, mox_cuda_stream stream,
                                              moxie_error *error)
{
    const unsigned rows = static_cast<unsigned>(args->max_rows);
    if (args->amax != nullptr && args->maxima == nullptr)
        MOX_TRY(find_amax(args, rows, stream, error));
    if (rows == 0 || args->finds_amax)
        return MOXIE_OK;
    const job j = { .args = *args,
                    .quantized = args->out.scale_cols > 0,
                    .by_block = args->out.group_cols >= LONG_GROUP,
                    .integer = args->out.integer != 0,
                    .whole_batch = args->amax != nullptr,
                    .rule = static_cast<mox_act_rule>(args->rule) };
    return mox_cuda_status(mox_device_launch_dependent(quant_act_kernel, rows, THREADS, 0, stream, j),
                           "quant_act simple", error);
}
