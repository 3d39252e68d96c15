/* SPDX-License-Identifier: Apache-2.0
 *
 * permute_simple.cu - pairs grouped by slot, stable: a counting sort without atomics whose order could matter, so that
 * the result is the host's (route/permutation.c) and the same in every run. A block takes a chunk of pairs, in order; a
 * warp of it 32 * ROUNDS of them.
 *
 *     count   only for many pairs:  counts[c][s] = pairs of chunk c for slot s
 *     place   table[w][s] = pairs of warp w for slot s, then those of the warps before it
 *             start[s]    = pairs of slots before s + pairs for s in the chunks before
 *             p           = start[s] + table[w][s] + those before in the warp
 *
 * Every block of `place` finds the pairs of all chunks for itself: from the counts, chunks * slots numbers from L2,
 * where a kernel between would cost a launch and a turn of its own; of fewer pairs from the choices themselves, without
 * `count`. Those are small chunks, since what takes longest is to scatter what is known of the pairs, which one
 * multiprocessor does about a number a clock.
 */
#include "cuda/device/device_error.h"
#include "cuda/device/device_launch.cuh"
#include "cuda/ptx/ptx_sync.cuh"

namespace
{

constexpr int LANES = 32, THREADS = 1024, WARPS = THREADS / LANES;
constexpr int TOGETHER = 16;                                    /* loads under way */
constexpr int MOST_CHUNKS = 64;                                 /* of 1024 pairs; more pairs make longer chunks */
constexpr int SMALL_CHUNK = 256, MOST_SMALL = 32 * SMALL_CHUNK; /* pairs that each block counts itself */
constexpr int MOST_ROUNDS = 4;
constexpr int MOST_PLAIN_SHARED = 48 << 10;
constexpr unsigned ALL = ~0u;
static_assert(THREADS == MOX_PERMUTE_CHUNK, "a chunk has as many pairs as threads, or more");
static_assert(MOXIE_MAX_EXPERTS <= THREADS, "a thread a slot");

/* What a thread knows of its pairs: number r is pair (warp * ROUNDS + r) * 32 + lane of the chunk. A thread of a warp
 * without pairs has first >= end. */
template <int ROUNDS> struct own_pairs {
    int64_t first, end; /* pair 0, pairs there are */
    int slot[ROUNDS];   /* -1: none */
    int before[ROUNDS]; /* of the same slot in the warp */
    float weight[ROUNDS], given13[ROUNDS], given2[ROUNDS];
};

/* Shared memory of `place`: | start, total, before [slots] | slot_of [experts] | table [warps with pairs, slots] in 16
 * bits |. */
struct workbench {
    int32_t *start, *total, *before; /* of a slot: pairs, those in the chunks before this; for who counts them itself */
    int32_t *slot_of;
    uint16_t *table;
    int lines;
};

/* How pairs are cut: into chunks of so many, for each of which a block finds its place among all of them. */
enum place_by { ALONE, ITSELF, COUNTS };
struct cut {
    int chunk, chunks, rounds;
    place_by by;
};

/* Warps of a chunk that have pairs. */
__host__ __device__ int lines_of(int64_t pairs, int chunk, int rounds)
{
    const int64_t a_warp = static_cast<int64_t>(LANES) * rounds, here = pairs < chunk ? pairs : chunk;
    return static_cast<int>((here + a_warp - 1) / a_warp);
}

__device__ int slot_of_id(const mox_permute_args &args, const int32_t *slot_of, int32_t id)
{
    return id >= 0 && id < args.experts ? slot_of[id] : -1;
}

/* ---- count ------------------------------------------------------------------------------------------ */

__global__ void __launch_bounds__(THREADS) count_kernel(const __grid_constant__ mox_permute_args args, int rounds)
{
    __shared__ int32_t counts[THREADS];
    mox_grid_release();
    const int64_t first = static_cast<int64_t>(blockIdx.x) * THREADS * rounds;
    counts[threadIdx.x] = 0;
    __syncthreads();
    for (int r = 0; r < rounds; r++) {
        const int64_t pair = first + r * THREADS + threadIdx.x;
        const int slot = pair < args.tokens * args.top_k ? slot_of_id(args, args.slot_of, args.ids[pair]) : -1;
        if (slot >= 0)
            atomicAdd(&counts[slot], 1);
    }
    __syncthreads();
    if (threadIdx.x < args.slots)
        args.counts[blockIdx.x * args.slots + threadIdx.x] = counts[threadIdx.x];
}

/* ---- place ------------------------------------------------------------------------------------------ */

/* All that does not depend on the other pairs: everything is under way at once. */
template <int ROUNDS>
__device__ void load_pairs(const mox_permute_args &args, const workbench &bench, own_pairs<ROUNDS> *own)
{
    int32_t id[ROUNDS];
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
        const int64_t pair = own->first + r * LANES;
        id[r] = pair < own->end ? args.ids[pair] : -1;
        own->weight[r] = pair < own->end && args.row_weight != nullptr ? args.weights[pair] : 0.0f;
    }
    for (int e = threadIdx.x; e < args.experts; e += blockDim.x)
        bench.slot_of[e] = args.slot_of[e];
    for (int s = threadIdx.x; s < args.slots; s += blockDim.x)
        bench.total[s] = bench.before[s] = 0;
    uint32_t *words = reinterpret_cast<uint32_t *>(bench.table);
    for (int i = threadIdx.x; i < (bench.lines * static_cast<int>(args.slots) + 1) / 2; i += blockDim.x)
        words[i] = 0;
    __syncthreads();
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
        const int slot = own->slot[r] = slot_of_id(args, bench.slot_of, id[r]);
        own->given13[r] = slot >= 0 && args.pair_scale13 != nullptr ? args.static_scale13[slot] : 0.0f;
        own->given2[r] = slot >= 0 && args.pair_scale2 != nullptr ? args.static_scale2[slot] : 0.0f;
    }
}

/* Each warp's line of the table, and where its pairs stand in it. */
template <int ROUNDS>
__device__ void rank_in_warp(const mox_permute_args &args, const workbench &bench, own_pairs<ROUNDS> *own)
{
    const int warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    uint16_t *line = bench.table + warp * args.slots;
    if (warp >= bench.lines)
        return;
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
        const int slot = own->slot[r];
        const unsigned same = __match_any_sync(ALL, slot);
        const int rank = __popc(same & ((1u << lane) - 1)), base = slot >= 0 ? line[slot] : 0;
        own->before[r] = base + rank;
        __syncwarp();
        if (slot >= 0 && rank == 0)
            line[slot] = static_cast<uint16_t>(base + __popc(same));
        __syncwarp();
    }
}

/* Pairs of every slot, all and those before the chunk. */
__device__ void count_itself(const mox_permute_args &args, const workbench &bench, int64_t pairs, int64_t chunk)
{
    for (int64_t first = threadIdx.x; first < pairs; first += TOGETHER * static_cast<int>(blockDim.x)) {
        int32_t id[TOGETHER];
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            const int64_t pair = first + i * static_cast<int>(blockDim.x);
            id[i] = pair < pairs ? args.ids[pair] : -1;
        }
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            const int slot = slot_of_id(args, bench.slot_of, id[i]);
            if (slot < 0)
                continue;
            atomicAdd(&bench.total[slot], 1);
            if (first + i * static_cast<int>(blockDim.x) < chunk)
                atomicAdd(&bench.before[slot], 1);
        }
    }
}

/* Turns a column of the table from counts to those before; returns the sum. */
__device__ int add_up_column(const workbench &bench, int64_t slots, int slot)
{
    int sum = 0;
    for (int first = 0; first < bench.lines; first += TOGETHER) {
        int count[TOGETHER];
#pragma unroll
        for (int i = 0; i < TOGETHER; i++)
            count[i] = first + i < bench.lines ? bench.table[(first + i) * slots + slot] : 0;
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            if (first + i < bench.lines)
                bench.table[(first + i) * slots + slot] = static_cast<uint16_t>(sum);
            sum += count[i];
        }
    }
    return sum;
}

/* Pairs of a slot in all chunks; *before becomes those in the chunks before this. */
__device__ int add_up_chunks(const mox_permute_args &args, int slot, int *before)
{
    const int chunks = static_cast<int>(gridDim.x), chunk = static_cast<int>(blockIdx.x);
    int sum = 0;
    for (int first = 0; first < chunks; first += TOGETHER) {
        int count[TOGETHER];
#pragma unroll
        for (int i = 0; i < TOGETHER; i++)
            count[i] = first + i < chunks ? args.counts[(first + i) * args.slots + slot] : 0;
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            sum += count[i];
            *before += first + i < chunk ? count[i] : 0;
        }
    }
    return sum;
}

/* Inclusive sum over the threads of the block. */
__device__ int sum_to_thread(int mine, int *of_warp)
{
    const int warp = threadIdx.x / LANES, lane = threadIdx.x % LANES, warps = static_cast<int>(blockDim.x) / LANES;
    for (int step = 1; step < LANES; step *= 2) {
        const int other = __shfl_up_sync(ALL, mine, step);
        mine += lane >= step ? other : 0;
    }
    if (lane == LANES - 1)
        of_warp[warp] = mine;
    __syncthreads();
    return mine + __reduce_add_sync(ALL, lane < warps && lane < warp ? of_warp[lane] : 0);
}

/* Where each slot's pairs begin, for all who read it; start[s]: those of this chunk. */
__device__ void find_starts(const mox_permute_args &args, const workbench &bench, place_by by, int *of_warp)
{
    const int slot = static_cast<int>(threadIdx.x);
    const bool is = slot < args.slots;
    int total = is ? add_up_column(bench, args.slots, slot) : 0, before = 0;
    if (is && by == ITSELF) {
        total = bench.total[slot];
        before = bench.before[slot];
    } else if (is && by == COUNTS) {
        total = add_up_chunks(args, slot, &before);
    }
    const int end = sum_to_thread(total, of_warp);
    if (is)
        bench.start[slot] = end - total + before;
    if (blockIdx.x != 0)
        return;
    if (is)
        args.offsets[slot + 1] = end;
    if (slot == 0)
        args.offsets[0] = 0;
    if (slot < 2 && args.shared_offsets != nullptr)
        args.shared_offsets[slot] = slot == 0 ? 0 : args.tokens;
}

/* What later stages read of the pair at position p; pairs have 31 bits, as counts have. */
template <int ROUNDS>
__device__ void fill_row(const mox_permute_args &args, const own_pairs<ROUNDS> &own, int r, int64_t p)
{
    const int64_t pair = own.first + r * LANES;
    args.pair_at[p] = pair;
    args.token_of[p] = static_cast<uint32_t>(pair) / static_cast<uint32_t>(args.top_k);
    if (args.row_weight != nullptr)
        args.row_weight[p] = own.weight[r];
    if (args.pair_scale13 != nullptr)
        args.pair_scale13[p] = own.given13[r];
    if (args.pair_scale2 != nullptr)
        args.pair_scale2[p] = own.given2[r];
}

template <int ROUNDS>
__global__ void __launch_bounds__(THREADS) place_kernel(const __grid_constant__ mox_permute_args args, cut by)
{
    extern __shared__ __align__(16) int32_t shared[];
    __shared__ int of_warp[WARPS];
    mox_grid_release();
    const int64_t pairs = args.tokens * args.top_k, chunk = static_cast<int64_t>(by.chunk) * blockIdx.x;
    const int warp = threadIdx.x / LANES, slots = static_cast<int>(args.slots);
    int32_t *slot_of = shared + 3 * slots;
    const workbench bench = { shared,
                              shared + slots,
                              shared + 2 * slots,
                              slot_of,
                              reinterpret_cast<uint16_t *>(slot_of + args.experts),
                              lines_of(pairs - chunk, by.chunk, ROUNDS) };
    own_pairs<ROUNDS> own = { chunk + warp * ROUNDS * LANES + threadIdx.x % LANES, warp < bench.lines ? pairs : 0 };
    load_pairs<ROUNDS>(args, bench, &own);
    rank_in_warp<ROUNDS>(args, bench, &own);
    if (ROUNDS == 1 && by.by == ITSELF)
        count_itself(args, bench, pairs, chunk);
    mox_grid_wait(); /* for the counts; until here only the run's inputs were read */
    __syncthreads();
    find_starts(args, bench, by.by, of_warp);
    __syncthreads();
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
        const int slot = own.slot[r];
        if (own.first + r * LANES >= own.end)
            break;
        const int64_t p = slot >= 0 ? bench.start[slot] + bench.table[warp * args.slots + slot] + own.before[r] : -1;
        args.position[own.first + r * LANES] = p;
        if (slot >= 0)
            fill_row<ROUNDS>(args, own, r, p);
    }
}

/* ---- launch ----------------------------------------------------------------------------------------- */

int at_least(int64_t a, int64_t b)
{
    return static_cast<int>(a > b ? a : b);
}

cut cut_of(int64_t pairs)
{
    const bool small = pairs <= MOST_SMALL;
    const int rounds = small || pairs <= MOST_CHUNKS * THREADS ? 1 : MOST_ROUNDS;
    const int chunk = small ? SMALL_CHUNK : THREADS * rounds, chunks = at_least((pairs + chunk - 1) / chunk, 1);
    return { chunk, chunks, rounds, chunks == 1 ? ALONE : small ? ITSELF : COUNTS };
}

/* A block has as many warps as its pairs, and as its slots, ask for. */
template <int ROUNDS> cudaError_t place(const mox_permute_args *args, const cut &by, mox_cuda_stream stream)
{
    const int lines = lines_of(args->tokens * args->top_k, by.chunk, ROUNDS),
              slot_warps = static_cast<int>((args->slots + LANES - 1) / LANES);
    const int threads = LANES * at_least(at_least(lines, slot_warps), 1);
    const size_t shared = static_cast<size_t>(3 * args->slots + args->experts) * sizeof(int32_t) +
                          static_cast<size_t>(lines * args->slots + 1) / 2 * sizeof(uint32_t);
    const auto kernel = place_kernel<ROUNDS>;
    if (shared + WARPS * sizeof(int) > MOST_PLAIN_SHARED) {
        const cudaError_t code =
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
        if (code != cudaSuccess)
            return code;
    }
    /* the first of a run in plain order */
    return mox_device_launch(kernel, by.chunks, threads, shared, stream, by.by == COUNTS, *args, by);
}

} // namespace

moxie_status mox_cuda_permute_simple_launch(const mox_permute_args *args, mox_cuda_stream stream, moxie_error *error)
{
    const cut by = cut_of(args->tokens * args->top_k);
    if (by.by == COUNTS) {
        const cudaError_t code =
            mox_device_launch(count_kernel, by.chunks, THREADS, 0, stream, false, *args, by.rounds);
        MOX_TRY(mox_cuda_status(code, "permute simple: count", error));
    }
    const cudaError_t code = by.rounds == 1 ? place<1>(args, by, stream) : place<MOST_ROUNDS>(args, by, stream);
    return mox_cuda_status(code, "permute simple", error);
}
