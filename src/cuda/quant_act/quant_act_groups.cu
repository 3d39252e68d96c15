/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_act_groups.cu - rows of activations to E4M3 codes with a scale for every 128 columns (rule MOX_ACT_FP8_GROUP of
 * act_rules.h, codes and scales to the bit), or to any with a power of two for every 32 (MOX_ACT_MX_GROUP), or to NVFP4 with
 * an E4M3 for every 16 (MOX_ACT_NVFP4_GROUP), at the speed of memory.
 *
 *     a warp    up to 4 times 128 columns of one row, all of whose loads are under way at once; lane l has columns 4 l .. 4 l + 3
 *     scales    lane k works out that of group k, for everyone; of 16 and 32 columns each lane its own
 *     codes     4 bytes a lane, to the row's whole stride: what is behind the last column is zero
 *
 * The same as numbers (MOX_CUDA_OPERAND_F32) is for those who look at a run.
 */
#include "cuda/device/device_error.h"
#include "cuda/device/device_format.cuh"
#include "cuda/device/device_launch.cuh"
#include "cuda/ptx/ptx_convert.cuh"
#include "cuda/ptx/ptx_sync.cuh"
#include "quant/act_rules.h"

namespace {

constexpr int LANES = 32, WARPS = 4, THREADS = LANES * WARPS, EACH = 4, GROUP = LANES * EACH, TOGETHER = 4;
constexpr int64_t FEW_BLOCKS = 4096; /* while there are no more, a warp takes one group: latency is all that counts */
constexpr unsigned ALL = ~0u;

/* Four neighbouring numbers as they lie in memory. */
template <moxie_dtype DTYPE> struct raw_numbers {
    static constexpr int WORDS = DTYPE == MOXIE_F32 ? 4 : 2;
    uint32_t word[WORDS];
};

struct group_scale {
    float scale, inverse;
};

/* Columns column .. column + 3 of a row that begins at element `first` of x; zero behind the last. */
template <moxie_dtype DTYPE>
__device__ raw_numbers<DTYPE> load(const mox_cuda_quant_act_args &args, bool whole, int64_t first, int64_t column)
{
    raw_numbers<DTYPE> raw = {};
    if (whole) { /* columns are a multiple of 4, and so aligned */
        if (column >= args.cols)
            return raw;
        if constexpr (DTYPE == MOXIE_F32) {
            const uint4 v = __ldcs(reinterpret_cast<const uint4 *>(static_cast<const uint32_t *>(args.x) + first + column));
            raw.word[0] = v.x, raw.word[1] = v.y, raw.word[2] = v.z, raw.word[3] = v.w;
        } else {
            const uint2 v = __ldcs(reinterpret_cast<const uint2 *>(static_cast<const uint16_t *>(args.x) + first + column));
            raw.word[0] = v.x, raw.word[1] = v.y;
        }
        return raw;
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        if (column + i >= args.cols)
            break;
        if constexpr (DTYPE == MOXIE_F32)
            raw.word[i] = static_cast<const uint32_t *>(args.x)[first + column + i];
        else
            raw.word[i / 2] |= static_cast<uint32_t>(static_cast<const uint16_t *>(args.x)[first + column + i])
                               << i % 2 * 16;
    }
    return raw;
}

template <moxie_dtype DTYPE> __device__ float number(const raw_numbers<DTYPE> &raw, int i)
{
    if constexpr (DTYPE == MOXIE_F32)
        return mox_float_of(raw.word[i]);
    const uint32_t half = i % 2 == 0 ? raw.word[i / 2] & 0xffffu : raw.word[i / 2] >> 16;
    return DTYPE == MOXIE_BF16 ? mox_bf16_decode(half) : mox_f16_decode(half);
}

/* Largest magnitude of a group, by all lanes. Bits of numbers that are not negative order as the numbers do. */
template <moxie_dtype DTYPE> __device__ uint32_t largest(const raw_numbers<DTYPE> &raw)
{
    float amax = 0.0f;
#pragma unroll
    for (int i = 0; i < EACH; i++)
        amax = mox_act_larger(amax, number<DTYPE>(raw, i));
    return __reduce_max_sync(ALL, mox_float_bits(amax));
}

__device__ group_scale scale_of(int32_t rule, uint32_t amax_bits)
{
    const mox_act_input input = { .scale_rule = rule,
                                  .largest = mox_device_largest(MOXIE_F8_E4M3),
                                  .amax = mox_act_finite(mox_float_of(amax_bits)) };
    const float scale = mox_act_fp8(MOX_ACT_FP8_GROUP, &input).scale;
    return { scale, __frcp_rn(scale) };
}

/* x / scale, rounded once: two corrections of the product with the rounded inverse end at the nearest float (Markstein).
 * Quotients that are too small for that become a zero of their sign, whatever they are. What is no finite number stays
 * what it is, and a zero does, whose sign the corrections would lose. */
__device__ float quotient(float x, const group_scale &by)
{
    const float q0 = __fmul_rn(x, by.inverse);
    const float q1 = __fmaf_rn(__fmaf_rn(-q0, by.scale, x), by.inverse, q0);
    const float q2 = __fmaf_rn(__fmaf_rn(-q1, by.scale, x), by.inverse, q1);
    return fabsf(x) > 0.0f && fabsf(x) <= FLT_MAX ? q2 : x;
}

/* Codes of two numbers in 16 bits. */
__device__ uint32_t encode_two(float low, float high)
{
#if __CUDA_ARCH__ >= 890
    return mox_convert_e4m3x2(low, high);
#else
    const float most = mox_device_largest(MOXIE_F8_E4M3);
    return mox_f8_e4m3_encode(mox_act_clamp(low, most)) | mox_f8_e4m3_encode(mox_act_clamp(high, most)) << 8;
#endif
}

/* Codes of four of any other element. */
__device__ __noinline__ uint32_t encode_four(moxie_dtype element, float x0, float x1, float x2, float x3)
{
    const float most = mox_device_largest(element), x[EACH] = { x0, x1, x2, x3 };
    uint32_t codes = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++)
        codes |= mox_device_encode(element, mox_act_clamp(x[i], most)) << 8 * i;
    return codes;
}

__device__ void store(const mox_cuda_quant_act_args &args, int64_t row, int64_t column, uint32_t codes)
{
    const int64_t at = row * args.out.stride + column;
    if (column >= args.out.stride)
        return;
    if (args.out.kind == MOX_CUDA_OPERAND_CODES) {
        *reinterpret_cast<uint32_t *>(static_cast<uint8_t *>(args.out.values) + at) = codes;
        return;
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
        static_cast<float *>(args.out.values)[at + i] = args.table[codes >> 8 * i & 0xff];
}

/* 128 columns each: groups, or several. */
__device__ int64_t sets_of(const mox_cuda_quant_act_args &args)
{
    return (args.cols + GROUP - 1) / GROUP;
}

__device__ float given_of(const mox_cuda_quant_act_args &args, int64_t row)
{
    return args.row_given != nullptr ? args.row_given[row] : args.given;
}

/* Of a short group. The product with the reciprocal of a power of two is the quotient, rounded alike. */
__device__ mox_act_step step_of(const mox_cuda_quant_act_args &args, int64_t row, float amax)
{
    const float largest = mox_device_largest(args.quant.element);
    if (args.rule == MOX_ACT_NVFP4_GROUP) {
        const mox_act_input input = {
            .global = args.quant.global, .largest = largest, .given = given_of(args, row), .amax = amax
        };
        return mox_act_nvfp4(&input);
    }
    const int e = mox_scale_exponent(args.quant.rule, largest, amax);
    return mox_act_times(mox_f8_e8m0_decode(static_cast<uint32_t>(127 + e)),
                         mox_f8_e8m0_decode(static_cast<uint32_t>(127 - e)));
}

/* Sets of four groups of 32 columns, eight lanes each, or of eight of 16. */
template <moxie_dtype DTYPE>
__device__ void quantize_short(const mox_cuda_quant_act_args &args, const raw_numbers<DTYPE> (&raw)[TOGETHER], int64_t row,
                               int first, int step)
{
    const int lane = threadIdx.x % LANES, groups = static_cast<int>(args.out.scale_cols);
    const int lanes = args.quant.group_cols / EACH;
#pragma unroll
    for (int k = 0; k < TOGETHER; k++) {
        const int set = first + k * step, group = (set * LANES + lane) / lanes;
        float amax = 0.0f, x[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++)
            amax = mox_act_larger(amax, number<DTYPE>(raw[k], i));
#pragma unroll
        for (int apart = 1; apart < 8; apart *= 2) {
            const float other = __shfl_xor_sync(ALL, amax, apart);
            amax = apart < lanes ? fmaxf(amax, other) : amax;
        }
        const mox_act_step by = step_of(args, row, mox_act_finite(amax));
        if (lane % lanes == 0 && group < groups)
            args.out.scales[row * groups + group] = by.scale;
#pragma unroll
        for (int i = 0; i < EACH; i++)
            x[i] = number<DTYPE>(raw[k], i) * by.by;
        const uint32_t codes = args.quant.element == MOXIE_F8_E4M3 ? encode_two(x[0], x[1]) | encode_two(x[2], x[3]) << 16 :
                                                                     encode_four(args.quant.element, x[0], x[1], x[2], x[3]);
        if (set < sets_of(args))
            store(args, row, static_cast<int64_t>(set) * GROUP + lane * EACH, codes);
    }
}

/* Sets first, first + step, ... of a row, up to TOGETHER. */
template <moxie_dtype DTYPE>
__device__ void quantize(const mox_cuda_quant_act_args &args, bool whole, int64_t row, int first, int step)
{
    const int64_t from = (args.source != nullptr ? args.source[row] : row) * args.cols;
    const int lane = threadIdx.x % LANES, groups = static_cast<int>(args.out.scale_cols);
    raw_numbers<DTYPE> raw[TOGETHER];
#pragma unroll
    for (int k = 0; k < TOGETHER; k++)
        raw[k] = load<DTYPE>(args, whole, from, static_cast<int64_t>(first + k * step) * GROUP + lane * EACH);
    if (args.rule != MOX_ACT_FP8_GROUP) {
        quantize_short<DTYPE>(args, raw, row, first, step);
        return;
    }
    uint32_t mine = 0;
#pragma unroll
    for (int k = 0; k < TOGETHER; k++) {
        const uint32_t amax = largest<DTYPE>(raw[k]);
        mine = lane == k ? amax : mine;
    }
    const group_scale own = scale_of(args.quant.rule, mine);
    if (lane < TOGETHER && first + lane * step < groups)
        args.out.scales[row * groups + first + lane * step] = own.scale;
#pragma unroll
    for (int k = 0; k < TOGETHER; k++) {
        const group_scale by = { __shfl_sync(ALL, own.scale, k), __shfl_sync(ALL, own.inverse, k) };
        const uint32_t low = encode_two(quotient(number<DTYPE>(raw[k], 0), by), quotient(number<DTYPE>(raw[k], 1), by));
        const uint32_t high = encode_two(quotient(number<DTYPE>(raw[k], 2), by), quotient(number<DTYPE>(raw[k], 3), by));
        if (first + k * step < groups)
            store(args, row, static_cast<int64_t>(first + k * step) * GROUP + lane * EACH, low | high << 16);
    }
}

/* A block some sets of one row; those of the first fill up what a long stride has behind the last. */
template <moxie_dtype DTYPE>
__global__ void __launch_bounds__(THREADS) groups_kernel(const __grid_constant__ mox_cuda_quant_act_args args, bool whole)
{
    const int64_t row = blockIdx.x;
    mox_grid_release();
    if (args.early == 0)
        mox_grid_wait();
    if (row < (args.rows != nullptr ? *args.rows : args.max_rows)) {
        const int first = static_cast<int>(blockIdx.y) * WARPS + static_cast<int>(threadIdx.x) / LANES;
        quantize<DTYPE>(args, whole, row, first, static_cast<int>(gridDim.y) * WARPS);
        if (args.out.global != nullptr && blockIdx.y == 0 && threadIdx.x == 0)
            args.out.global[row] = given_of(args, row);
        for (int64_t k = sets_of(args) * GROUP + threadIdx.x * EACH; blockIdx.y == 0 && k < args.out.stride;
             k += THREADS * EACH)
            store(args, row, k, 0);
    }
    mox_grid_wait(); /* so that the end of this kernel means that of those before */
}

/* Four neighbours are one load. */
bool is_whole(const mox_cuda_quant_act_args *args)
{
    const uintptr_t bytes = args->x_dtype == MOXIE_F32 ? 16 : 8;
    return args->cols % EACH == 0 && reinterpret_cast<uintptr_t>(args->x) % bytes == 0;
}

} // namespace

moxie_status mox_cuda_quant_act_groups_launch(const mox_cuda_quant_act_args *args, mox_cuda_stream stream,
                                              moxie_error *error)
{
    if (args->max_rows == 0)
        return MOXIE_OK;
    const int64_t sets = (args->cols + GROUP - 1) / GROUP, blocks = (sets + WARPS - 1) / WARPS;
    const int64_t fewer = (sets + WARPS * TOGETHER - 1) / (WARPS * TOGETHER);
    const dim3 grid(static_cast<unsigned>(args->max_rows),
                    static_cast<unsigned>(args->max_rows * blocks <= FEW_BLOCKS ? blocks : fewer));
    const auto kernel = args->x_dtype == MOXIE_BF16 ? groups_kernel<MOXIE_BF16> :
                        args->x_dtype == MOXIE_F16  ? groups_kernel<MOXIE_F16> :
                                                      groups_kernel<MOXIE_F32>;
    return mox_cuda_status(mox_device_launch_dependent(kernel, grid, THREADS, 0, stream, *args, is_whole(args)),
                           "quant_act groups", error);
}
