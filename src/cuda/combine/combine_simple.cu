/* SPDX-License-Identifier: Apache-2.0
 *
 * combine_simple.cu - the weighted sum over a token's experts in slot order, with the bits of cpu/combine: product and
 * sum are rounded separately, and the total once more to the output type.
 *
 *     a block    part of one token's columns; it keeps the rows and weights of the token's choices in shared memory
 *     a thread   4 neighbouring columns (1 when sizes or pointers are unaligned): LOADS rows are loaded together, then
 *                added in slot order
 *
 * PLAIN sums have an instance of their own. So have ROUNDED ones, whose rows are rounded to 16 bits before they are
 * weighted, or have come so from other ranks. Where a choice may be the token's own hidden state (identity experts), or
 * columns come one by one, the ANY instance looks what is asked for.
 */
#include "cuda/device/device_error.h"
#include "cuda/device/device_format.cuh"
#include "cuda/device/device_launch.cuh"
#include "cuda/ptx/ptx_sync.cuh"

namespace
{

constexpr int THREADS = 128, LOADS = 8;
constexpr int64_t ENOUGH_BLOCKS = 16384; /* many waves of blocks, so that a partial last wave hardly matters */

enum sums { PLAIN, ROUNDED, ANY };

/* One choice of the token; at < 0: skipped. 16 bytes, for one load from shared memory. */
struct __align__(16) choice
{
    int64_t at; /* first element of its row in y */
    float weight;
    int32_t of_x; /* ANY: the row is the token's hidden state */
};

/* Length of `choices`: skipped choices fill it up to a multiple of LOADS. */
__host__ __device__ int64_t padded(int64_t top_k)
{
    return (top_k + LOADS - 1) / LOADS * LOADS;
}

/* A load that leaves the caches to others, since each number is read once. */
template <int COLUMNS> __device__ void load(const float *from, float (&to)[COLUMNS])
{
    if constexpr (COLUMNS == 4) {
        const float4 v = __ldcs(reinterpret_cast<const float4 *>(from));
        to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
    } else {
        to[0] = __ldcs(from);
    }
}

/* Two numbers in 16 bits each, as one word. */
__device__ uint32_t narrow_two(moxie_dtype dtype, float low, float high)
{
    return dtype == MOXIE_F16 ? mox_f16_narrow(low) | mox_f16_narrow(high) << 16
                              : mox_bf16_narrow(low) | mox_bf16_narrow(high) << 16;
}

template <int COLUMNS> __device__ void store(const mox_combine_args &args, int64_t at, const float (&sum)[COLUMNS])
{
    if constexpr (COLUMNS == 4) {
        if (args.out_dtype == MOXIE_F16 || args.out_dtype == MOXIE_BF16) {
            const uint2 both =
                make_uint2(narrow_two(args.out_dtype, sum[0], sum[1]), narrow_two(args.out_dtype, sum[2], sum[3]));
            __stcg(reinterpret_cast<uint2 *>(static_cast<uint16_t *>(args.out) + at), both);
            return;
        }
        const float4 all = make_float4(mox_device_round_to(MOXIE_F32, sum[0]), mox_device_round_to(MOXIE_F32, sum[1]),
                                       mox_device_round_to(MOXIE_F32, sum[2]), mox_device_round_to(MOXIE_F32, sum[3]));
        __stcg(reinterpret_cast<float4 *>(static_cast<float *>(args.out) + at), all);
    } else {
        mox_device_store(args.out_dtype, args.out, at, sum[0]);
    }
}

template <sums KIND> __device__ choice find_choice(const mox_combine_args &args, int64_t j)
{
    int64_t row;
    if (args.position != nullptr) {
        row = args.position[j];
    } else {
        const int32_t id = args.ids[j];
        row = id >= 0 && id < args.experts ? j : -1;
    }
    if constexpr (KIND == ANY)
        if (row < 0 && mox_combine_is_identity(&args, j))
            return { j / args.top_k * args.hidden, args.identity_weights[j], 1 };
    return { row >= 0 ? row * args.hidden : -1, args.weights != nullptr ? args.weights[j] : 1.0f, 0 };
}

template <int COLUMNS> __device__ void load_rounded(const mox_combine_args &args, int64_t at, float (&to)[COLUMNS])
{
    for (int i = 0; i < COLUMNS; i++)
        to[i] = args.y16 != nullptr ? mox_device_load(args.round_y, args.y16, at + i)
                                    : mox_device_round_to(args.round_y, __ldcs(args.y + at + i));
}

template <int COLUMNS, bool IDENTITY, bool ROUNDS>
__device__ void load_row(const mox_combine_args &args, const choice &c, int64_t column, float (&to)[COLUMNS])
{
    if (!IDENTITY || !c.of_x) {
        if constexpr (ROUNDS)
            load_rounded<COLUMNS>(args, c.at + column, to);
        else
            load<COLUMNS>(args.y + c.at + column, to);
        return;
    }
    for (int i = 0; i < COLUMNS; i++)
        to[i] = mox_device_load(args.out_dtype, args.identity, c.at + column + i);
}

template <int COLUMNS, bool IDENTITY, bool ROUNDS>
__device__ void add_rows(const mox_combine_args &args, const choice *choices, int64_t column, float (&sum)[COLUMNS])
{
    for (int first = 0; first < args.top_k; first += LOADS) {
        choice own[LOADS];
        float y[LOADS][COLUMNS];
#pragma unroll
        for (int k = 0; k < LOADS; k++)
            own[k] = choices[first + k];
#pragma unroll
        for (int k = 0; k < LOADS; k++)
            if (own[k].at >= 0)
                load_row<COLUMNS, IDENTITY, ROUNDS>(args, own[k], column, y[k]);
#pragma unroll
        for (int k = 0; k < LOADS; k++)
#pragma unroll
            for (int i = 0; i < COLUMNS; i++)
                sum[i] = own[k].at >= 0 ? sum[i] + own[k].weight * y[k][i] : sum[i];
    }
}

template <int COLUMNS, sums KIND>
__global__ void __launch_bounds__(THREADS) combine_kernel(const __grid_constant__ mox_combine_args args)
{
    extern __shared__ choice choices[];
    const int64_t token = blockIdx.x;
    mox_grid_release();
    mox_grid_wait();
    for (int64_t j = threadIdx.x; j < padded(args.top_k); j += THREADS)
        choices[j] = j < args.top_k ? find_choice<KIND>(args, token * args.top_k + j) : choice { -1, 0.0f, 0 };
    const float shared_weight = args.shared != nullptr ? mox_combine_shared_weight(&args, token) : 0.0f;
    __syncthreads();
    const int64_t step = static_cast<int64_t>(gridDim.y) * THREADS * COLUMNS;
    for (int64_t column = (static_cast<int64_t>(blockIdx.y) * THREADS + threadIdx.x) * COLUMNS; column < args.hidden;
         column += step) {
        float sum[COLUMNS] = {}, own[COLUMNS] = {};
        if (args.shared != nullptr)
            load<COLUMNS>(args.shared + token * args.hidden + column, own);
        if (KIND == ROUNDED || (KIND == ANY && args.round_y != MOXIE_DTYPE_NONE))
            add_rows<COLUMNS, KIND == ANY, true>(args, choices, column, sum);
        else
            add_rows<COLUMNS, KIND == ANY, false>(args, choices, column, sum);
        if (args.shared != nullptr)
#pragma unroll
            for (int i = 0; i < COLUMNS; i++)
                sum[i] = sum[i] + shared_weight * own[i];
        store<COLUMNS>(args, token * args.hidden + column, sum);
    }
}

bool is_aligned(const void *pointer, uintptr_t bytes)
{
    return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

/* Four columns can be one aligned load and one aligned store. */
bool is_vectorizable(const mox_combine_args *args)
{
    return args->hidden % 4 == 0 && is_aligned(args->y, 16) && is_aligned(args->shared, 16) &&
           is_aligned(args->out, args->out_dtype == MOXIE_F32 ? 16 : 8);
}

} // namespace

moxie_status mox_cuda_combine_simple_launch(const mox_combine_args *args, mox_cuda_stream stream, moxie_error *error)
{
    if (args->tokens == 0 || args->hidden == 0)
        return MOXIE_OK;
    const bool four = is_vectorizable(args);
    const int64_t at_once = four ? 4 * THREADS : THREADS, parts = (args->hidden + at_once - 1) / at_once;
    const int64_t enough = (ENOUGH_BLOCKS + args->tokens - 1) / args->tokens;
    const dim3 grid(static_cast<unsigned>(args->tokens), static_cast<unsigned>(parts < enough ? parts : enough));
    const size_t shared = static_cast<size_t>(padded(args->top_k)) * sizeof(choice);
    const auto kernel = !four                               ? combine_kernel<1, ANY>
                        : args->identity != nullptr         ? combine_kernel<4, ANY>
                        : args->round_y != MOXIE_DTYPE_NONE ? combine_kernel<4, ROUNDED>
                                                            : combine_kernel<4, PLAIN>;
    return mox_cuda_status(mox_device_launch_dependent(kernel, grid, THREADS, shared, stream, *args), "combine simple",
                           error);
}
