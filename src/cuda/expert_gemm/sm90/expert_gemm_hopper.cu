/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_hopper.cu - the launchers of the kernels on the layouts of pack/hopper/hopper.h: the operations of
 * sm90_plan.h on a stream, and the kernel that copies the activations of W2 out of their tiles for a trace. Nothing
 * here needs Hopper itself.
 */
#include "cuda/device/device_error.h"
#include "cuda/device/device_format.cuh"
#include "cuda/expert_gemm/sm90/sm90_plan.h"
#include "quant/act_rules.h"

namespace
{

constexpr int THREADS = 256;

/* The code of activation x, if it gives what the tile holds; else what the tile holds, as a code. */
__device__ float traced_code(const mox_sm90_trace_args &args, float x, float scale, float held)
{
    const float max = mox_device_largest(args.quant.element), times = scale * args.scale_factor;
    const float code =
        mox_device_decode(args.quant.element, mox_device_encode(args.quant.element, mox_act_clamp(x / scale, max)));
    return mox_device_round_to(MOXIE_BF16, code * times) == held ? code : held / times;
}

/* Codes and scales of activations that the tiles hold as bf16, one thread a group. On entry `to` has what the tiles
 * hold. */
__device__ void trace_groups(const mox_sm90_trace_args &args, int64_t pair, float *to)
{
    const float *act = args.act + pair * args.cols;
    for (int64_t g = threadIdx.x; g < args.scale_count; g += THREADS) {
        const int64_t first = g * args.quant.group_cols, left = args.cols - first;
        const int64_t end = first + (left < args.quant.group_cols ? left : args.quant.group_cols);
        float amax = 0.0f;
        for (int64_t k = first; k < end; k++)
            amax = mox_act_max_abs(amax, act[k]);
        const int e =
            mox_act_scale_exponent(args.quant.rule, mox_device_largest(args.quant.element), mox_act_finite(amax));
        const float scale = mox_f8_e8m0_decode(static_cast<uint32_t>(127 + e));
        args.to_scales[pair * args.scale_count + g] = scale;
        for (int64_t k = first; k < end; k++)
            to[k] = traced_code(args, act[k], scale, to[k]);
    }
}

/* One block a pair: finds its entry by bisection, its row in the entry's token tiles, and copies number by number. */
__global__ void __launch_bounds__(THREADS) trace(const __grid_constant__ mox_sm90_trace_args args)
{
    const mox_sm90_entry *entries = reinterpret_cast<const mox_sm90_entry *>(args.list + 1);
    const int pair = static_cast<int>(blockIdx.x);
    int low = 0, high = args.list->count;
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        if (entries[middle].pair <= pair)
            low = middle;
        else
            high = middle;
    }
    const mox_sm90_entry entry = entries[low];
    if (args.list->count == 0 || pair >= entry.pair + entry.tokens)
        return;
    const int each = ((entry.tokens + entry.tiles - 1) / entry.tiles + 7) & ~7;
    const int tile = (pair - entry.pair) / each, i = (pair - entry.pair) % each;
    const int rows = (min(each, entry.tokens - tile * each) + 7) & ~7, size = args.element == MOXIE_F8_E4M3 ? 1 : 2;
    const int64_t first = entry.row + tile * each;
    for (int64_t k = threadIdx.x; k < args.stride; k += THREADS) {
        const int64_t chunk = k * size / 128, in = k * size % 128;
        const uint8_t *at =
            args.tiles + (first * args.chunks + chunk * rows + i) * 128 + ((in / 16 ^ (i & 7)) << 4) + in % 16;
        args.to[pair * args.stride + k] = k < args.cols ? mox_device_load(args.element, at, 0) : 0.0f;
    }
    if (args.act != nullptr) {
        __syncthreads();
        trace_groups(args, pair, args.to + pair * args.stride);
        return;
    }
    for (int s = threadIdx.x; args.to_scales != nullptr && s < args.scale_count; s += THREADS)
        args.to_scales[static_cast<int64_t>(pair) * args.scale_count + s] =
            args.tile_scales[first * args.chunks + static_cast<int64_t>(s) * rows + i];
}

struct launch {
    mox_cuda_stream stream;
    moxie_error *error;
};

moxie_status status_of(const launch *l, int code, const char *what)
{
    return mox_cuda_status(static_cast<cudaError_t>(code), what, l->error);
}

moxie_status run_list(void *context, const mox_sm90_list_args *args, bool dependent)
{
    const launch *l = static_cast<const launch *>(context);
    return status_of(l, mox_sm90_launch_list(args, dependent, l->stream), "expert_gemm: work list");
}

moxie_status run_gather(void *context, const mox_sm90_gather_args *args, bool dependent)
{
    const launch *l = static_cast<const launch *>(context);
    return status_of(l, mox_sm90_launch_gather(args, dependent, l->stream), "expert_gemm: gather");
}

moxie_status run_gemm(void *context, mox_sm90_element element, const mox_sm90_args *args, int32_t blocks,
                      bool dependent)
{
    const launch *l = static_cast<const launch *>(context);
    const auto launch_gemm = args->mma_sync ? mox_sm80_launch_gemm : mox_sm90_launch_gemm;
    return status_of(l, launch_gemm(element, args, blocks, dependent, l->stream), "expert_gemm");
}

moxie_status run_trace(void *context, const mox_sm90_trace_args *args)
{
    const launch *l = static_cast<const launch *>(context);
    trace<<<static_cast<unsigned>(args->max_pairs), THREADS, 0, static_cast<cudaStream_t>(l->stream)>>>(*args);
    return mox_cuda_launched("expert_gemm: trace", l->error);
}

moxie_status enqueue(const mox_cuda_expert_gemm_args *args, mox_cuda_stream stream, moxie_error *error)
{
    const mox_sm90_ops ops = { run_list, run_gather, run_gemm, run_trace };
    launch l = { stream, error };
    return mox_sm90_enqueue(args, &ops, &l);
}

} // namespace

#define MOX_CUDA_ROW(family, id, ...)                                                                                  \
    moxie_status mox_cuda_expert_gemm_##id##_launch(const mox_cuda_expert_gemm_args *args, mox_cuda_stream stream,     \
                                                    moxie_error *error)                                                \
    {                                                                                                                  \
        return enqueue(args, stream, error);                                                                           \
    }
#include "cuda/expert_gemm/sm90/sm90_products.def"
#include "cuda/expert_gemm/sm80/sm80_products.def"
#undef MOX_CUDA_ROW
