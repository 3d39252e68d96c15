/* SPDX-License-Identifier: Apache-2.0
 *
 * place_rows_simple.cu - rows of an exchange of fixed capacity (cuda_place_rows_args.h).
 *
 *     a block    one source and one group: THREADS tokens at a time, in order
 *     a thread   one token. How many tokens before it begin a row is counted by ballot in the warp, then over warps
 */
#include "cuda/device/device_error.h"
#include "cuda/device/device_launch.cuh"
#include "cuda/place_rows/cuda_place_rows_args.h"
#include "cuda/ptx/ptx_sync.cuh"
#include "route/replica.h"

namespace
{

constexpr int WARPS = 8, LANES = 32, THREADS = WARPS * LANES;

/* The tokens of a source, and what a block does with them. */
struct work {
    int64_t first, tokens; /* of the source */
    int64_t first_row;
    int32_t home, group;
    bool places_skipped; /* this block writes positions of skipped choices */
};

__device__ work find_work(const mox_cuda_place_rows_args &args)
{
    const int32_t own = static_cast<int32_t>(blockIdx.x) / args.groups;
    const int32_t group = static_cast<int32_t>(blockIdx.x) % args.groups;
    const int64_t source = args.first_source + own;
    const int64_t first = args.ranks > 0 ? source * args.tokens / args.ranks : 0;
    const int64_t end = args.ranks > 0 ? (source + 1) * args.tokens / args.ranks : args.tokens;
    return { first,
             min(end - first, args.capacity),
             static_cast<int64_t>(blockIdx.x) * args.capacity,
             static_cast<int32_t>(source) / args.tp_size,
             args.first_group + group,
             group == 0 };
}

/* The group of a choice; -1: it is skipped. */
__device__ int32_t group_of(const mox_cuda_place_rows_args &args, const work &w, int64_t token, int64_t j)
{
    const int32_t id = args.ids[token * args.top_k + j];
    return id >= 0 && id < args.experts ? mox_replica_group(args.first_replica, args.replica, w.home, id, token + j)
                                        : -1;
}

__device__ bool has_choice(const mox_cuda_place_rows_args &args, const work &w, int64_t token)
{
    for (int64_t j = 0; j < args.top_k; j++)
        if (group_of(args, w, token, j) == w.group)
            return true;
    return false;
}

/* Threads before this one that have a row; *all: threads that have one. Every thread of the block calls it. */
__device__ int count_before(bool has, int *all)
{
    __shared__ int in_warp[WARPS];
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const unsigned mask = __ballot_sync(0xffffffffu, has);
    int before = __popc(mask & ((1u << lane) - 1));
    __syncthreads(); /* all have read the counts of the last call */
    if (lane == 0)
        in_warp[warp] = __popc(mask);
    __syncthreads();
    *all = 0;
    for (int i = 0; i < WARPS; i++) {
        before += i < warp ? in_warp[i] : 0;
        *all += in_warp[i];
    }
    return before;
}

/* Writes the choices of a token; `row`: of this group, -1: it has none. */
__device__ void place_token(const mox_cuda_place_rows_args &args, const work &w, int64_t token, int64_t row)
{
    const int64_t k = args.top_k, at = token * k, own = (token - w.first) * k;
    if (row >= 0 && args.token != nullptr)
        args.token[row] = token;
    for (int64_t j = 0; j < k; j++) {
        const int32_t group = group_of(args, w, token, j);
        const bool here = group == w.group;
        if (row >= 0 && args.row_ids != nullptr)
            args.row_ids[row * k + j] = here ? args.ids[at + j] : -1;
        if (row >= 0 && args.row_weights != nullptr)
            args.row_weights[row * k + j] = args.weights[at + j];
        if (args.position != nullptr && (here || (group < 0 && w.places_skipped)))
            args.position[own + j] = here ? row * k + j : -1;
    }
}

__device__ void pad(const mox_cuda_place_rows_args &args, int64_t first, int64_t end)
{
    for (int64_t row = first + threadIdx.x; row < end && args.token != nullptr; row += THREADS)
        args.token[row] = -1;
    for (int64_t i = first * args.top_k + threadIdx.x; i < end * args.top_k && args.row_ids != nullptr; i += THREADS)
        args.row_ids[i] = -1;
    for (int64_t i = first * args.top_k + threadIdx.x; i < end * args.top_k && args.row_weights != nullptr;
         i += THREADS)
        args.row_weights[i] = 0.0f;
}

__global__ void __launch_bounds__(THREADS) place_rows(const __grid_constant__ mox_cuda_place_rows_args args)
{
    mox_grid_release();
    mox_grid_wait();
    const work w = find_work(args);
    int64_t row = w.first_row;
    for (int64_t done = 0; done < w.tokens; done += THREADS) {
        const int64_t token = w.first + done + threadIdx.x;
        const bool is_token = done + threadIdx.x < w.tokens;
        const bool has = is_token && has_choice(args, w, token);
        int all;
        const int before = count_before(has, &all);
        if (is_token)
            place_token(args, w, token, has ? row + before : -1);
        row += all;
    }
    pad(args, row, w.first_row + args.capacity);
    if (args.own_offsets != nullptr && blockIdx.x == 0 && threadIdx.x < 2)
        args.own_offsets[threadIdx.x] = threadIdx.x == 0 ? 0 : w.tokens;
}

} // namespace

moxie_status mox_cuda_place_rows_launch(const mox_cuda_place_rows_args *args, mox_cuda_stream stream,
                                        moxie_error *error)
{
    const dim3 grid(static_cast<unsigned>(args->sources * args->groups));
    return mox_cuda_status(mox_device_launch_dependent(place_rows, grid, THREADS, 0, stream, *args), "place_rows",
                           error);
}
