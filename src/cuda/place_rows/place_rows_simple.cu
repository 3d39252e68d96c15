/* SPDX-License-Identifier: Apache-2.0
 *
 * place_rows_simple.cu - rows of an exchange (cuda_place_rows_args.h).
 *
 *     a block    one source and one group: THREADS tokens at a time, in order
 *     a thread   one token. How many rows and choices the tokens before it have is summed in the warp, then over warps
 *
 * With counts it is launched twice: blocks first count, then know where the results of their group begin.
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

/* How many choices of the token are of this group. */
__device__ int count_choices(const mox_cuda_place_rows_args &args, const work &w, int64_t token)
{
    int count = 0;
    for (int64_t j = 0; j < args.top_k; j++)
        count += group_of(args, w, token, j) == w.group;
    return count;
}

/* The sum of the numbers of threads before this one; *all: of all threads. Every thread of the block calls it. */
__device__ int sum_before(int mine, int *all)
{
    __shared__ int of_warp[WARPS];
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    int sum = mine;
    for (int step = 1; step < LANES; step *= 2) {
        const int other = __shfl_up_sync(0xffffffffu, sum, step);
        sum += lane >= step ? other : 0;
    }
    __syncthreads(); /* all have read the sums of the last call */
    if (lane == LANES - 1)
        of_warp[warp] = sum;
    __syncthreads();
    *all = 0;
    int before = sum - mine;
    for (int i = 0; i < WARPS; i++) {
        before += i < warp ? of_warp[i] : 0;
        *all += of_warp[i];
    }
    return before;
}

/* The number of the group's first result. */
__device__ int64_t first_result(const mox_cuda_place_rows_args &args)
{
    int64_t first = 0;
    for (int g = 0; g < static_cast<int>(blockIdx.x); g++)
        first += args.counts[2 * g + 1];
    return first;
}

/* Writes the choices of a token; `row`: of this group, -1: it has none; `result`: the number of its first, with counts.
 */
__device__ void place_token(const mox_cuda_place_rows_args &args, const work &w, int64_t token, int64_t row,
                            int64_t result)
{
    const int64_t k = args.top_k, at = token * k, own = (token - w.first) * k;
    if (row >= 0 && args.token != nullptr)
        args.token[row] = token;
    if (row >= 0 && args.row_adapters != nullptr)
        args.row_adapters[row] = args.adapters != nullptr ? args.adapters[token] : -1;
    for (int64_t j = 0; j < k; j++) {
        const int32_t group = group_of(args, w, token, j);
        const bool here = group == w.group;
        if (row >= 0 && args.row_ids != nullptr)
            args.row_ids[row * k + j] = here ? args.ids[at + j] : -1;
        if (row >= 0 && args.row_weights != nullptr)
            args.row_weights[row * k + j] = args.weights[at + j];
        if (args.position != nullptr && (here || (group < 0 && w.places_skipped)))
            args.position[own + j] = !here ? -1 : args.counts != nullptr ? result++ : row * k + j;
    }
}

__device__ void pad(const mox_cuda_place_rows_args &args, int64_t first, int64_t end)
{
    for (int64_t row = first + threadIdx.x; row < end && args.token != nullptr; row += THREADS)
        args.token[row] = -1;
    for (int64_t row = first + threadIdx.x; row < end && args.row_adapters != nullptr; row += THREADS)
        args.row_adapters[row] = -1;
    for (int64_t i = first * args.top_k + threadIdx.x; i < end * args.top_k && args.row_ids != nullptr; i += THREADS)
        args.row_ids[i] = -1;
    for (int64_t i = first * args.top_k + threadIdx.x; i < end * args.top_k && args.row_weights != nullptr;
         i += THREADS)
        args.row_weights[i] = 0.0f;
}

struct totals {
    int64_t rows, results;
};

/* Goes through the tokens of a block, whose rows and results begin at `begin`. Returns where they end. */
template <bool PLACES> __device__ totals walk(const mox_cuda_place_rows_args &args, const work &w, totals begin)
{
    for (int64_t done = 0; done < w.tokens; done += THREADS) {
        const int64_t token = w.first + done + threadIdx.x;
        const bool is_token = done + threadIdx.x < w.tokens;
        const int choices = is_token ? count_choices(args, w, token) : 0;
        int rows, results;
        const int rows_before = sum_before(choices > 0, &rows), results_before = sum_before(choices, &results);
        if (PLACES && is_token)
            place_token(args, w, token, choices > 0 ? begin.rows + rows_before : -1, begin.results + results_before);
        begin.rows += rows;
        begin.results += results;
    }
    return begin;
}

__global__ void __launch_bounds__(THREADS) count_rows(const __grid_constant__ mox_cuda_place_rows_args args)
{
    mox_grid_release();
    mox_grid_wait();
    const totals all = walk<false>(args, find_work(args), { 0, 0 });
    if (threadIdx.x == 0) {
        args.counts[2 * blockIdx.x] = all.rows;
        args.counts[2 * blockIdx.x + 1] = all.results;
    }
}

__global__ void __launch_bounds__(THREADS) place_rows(const __grid_constant__ mox_cuda_place_rows_args args)
{
    mox_grid_release();
    mox_grid_wait();
    const work w = find_work(args);
    const totals end = walk<true>(args, w, { w.first_row, args.counts != nullptr ? first_result(args) : 0 });
    pad(args, end.rows, w.first_row + args.capacity);
    if (args.own_offsets != nullptr && blockIdx.x == 0 && threadIdx.x < 2)
        args.own_offsets[threadIdx.x] = threadIdx.x == 0 ? 0 : w.tokens;
}

/* ---- order --------------------------------------------------------------------------------------------- */

/* One block: a thread has a run of pairs. */
__global__ void __launch_bounds__(THREADS) order_rows(const __grid_constant__ mox_cuda_order_rows_args args)
{
    mox_grid_release();
    mox_grid_wait();
    const int64_t each = (args.pairs + THREADS - 1) / THREADS;
    const int64_t first = min(each * threadIdx.x, args.pairs), end = min(first + each, args.pairs);
    int mine = 0, all;
    for (int64_t p = first; p < end; p++)
        mine += args.position[p] >= 0;
    int64_t at = sum_before(mine, &all);
    for (int64_t p = first; p < end; p++) {
        const int64_t position = args.position[p];
        if (position >= 0 && at < args.count)
            args.order[at] = position;
        at += position >= 0;
    }
    for (int64_t i = all + threadIdx.x; i < args.count; i += THREADS)
        args.order[i] = -1;
}

} // namespace

moxie_status mox_cuda_place_rows_launch(const mox_cuda_place_rows_args *args, mox_cuda_stream stream,
                                        moxie_error *error)
{
    const dim3 grid(static_cast<unsigned>(args->sources * args->groups));
    if (args->counts != nullptr)
        MOX_TRY(mox_cuda_status(mox_device_launch_dependent(count_rows, grid, THREADS, 0, stream, *args), "count_rows",
                                error));
    return mox_cuda_status(mox_device_launch_dependent(place_rows, grid, THREADS, 0, stream, *args), "place_rows",
                           error);
}

moxie_status mox_cuda_order_rows_launch(const mox_cuda_order_rows_args *args, mox_cuda_stream stream,
                                        moxie_error *error)
{
    if (args->count == 0)
        return MOXIE_OK;
    return mox_cuda_status(mox_device_launch_dependent(order_rows, 1, THREADS, 0, stream, *args), "order_rows", error);
}
