/* SPDX-License-Identifier: Apache-2.0
 *
 * permute_simple.cu - groups the pairs (token, choice) by slot, in a stable order: a counting sort. Atomics only count,
 * so their order does not matter, and every run gives the host's result (route/permutation.c). A block places one chunk
 * of pairs, in order; each of its warps places 32 * ROUNDS of them.
 *
 *     count   only when there are many pairs: counts[c][s] = pairs of chunk c for slot s
 *     place   table[w][s] = pairs for slot s in warp w, then in the warps before w
 *             start[s]    = pairs of all slots before s + pairs for s in the chunks before this one
 *             p           = start[s] + table[w][s] + pairs for s before this one in its warp
 *
 * Every block of `place` sums the counts of all chunks itself. With many pairs it reads chunks * slots counts from L2,
 * which is cheaper than one more kernel. With few pairs there is no `count`, and the block reads the ids. Chunks are
 * then small, so that many multiprocessors share the writing of the results. Writing takes longest: about a clock per
 * number on one multiprocessor.
 */
#include "cuda/device/device_error.h"
#include "cuda/device/device_launch.cuh"
#include "cuda/ptx/ptx_sync.cuh"

namespace
{

constexpr int LANES = 32, THREADS = 1024, WARPS = THREADS / LANES;
constexpr int LOADS = 16;      /* loads in flight per thread */
constexpr int MAX_CHUNKS = 64; /* of 1024 pairs; with more pairs, chunks are longer */
constexpr int SMALL_CHUNK = 256, MAX_SMALL_PAIRS = 32 * SMALL_CHUNK; /* up to here each block counts from the ids */
constexpr int MAX_ROUNDS = 4;
constexpr int DEFAULT_SHARED = 48 << 10;
constexpr unsigned ALL = ~0u;
static_assert(THREADS == MOX_PERMUTE_CHUNK, "a chunk of counts has at least one pair per thread");
static_assert(MOXIE_MAX_EXPERTS <= THREADS, "one thread per slot");

/* The pairs of one thread: number r is pair (warp * ROUNDS + r) * 32 + lane of the chunk. In warps without pairs,
 * first >= end. */
template <int ROUNDS> struct thread_pairs {
    int64_t first, end; /* its pair number 0; the number of all pairs */
    int slot[ROUNDS];   /* -1: none */
    int before[ROUNDS]; /* pairs before it in the warp with the same slot */
    float weight[ROUNDS], scale13[ROUNDS], scale2[ROUNDS];
};

/* Shared memory of `place`:
 *     | start, total, before [slots] | slot_of [experts] | table [warps with pairs, slots] of 16 bits | */
struct shared_arrays {
    int32_t *start;          /* of a slot: where this chunk's pairs begin */
    int32_t *total, *before; /* of a slot, when counted FROM_IDS: all pairs, pairs in the chunks before this one */
    int32_t *slot_of;
    uint16_t *table;
    int warps;
};

/* How pairs are cut into chunks, and where each block finds how many pairs the other chunks have for each slot. */
enum count_source { ONE_CHUNK, FROM_IDS, FROM_COUNTS };
struct chunk_plan {
    int chunk, chunks, rounds;
    count_source by;
};

/* Warps of a block that have pairs. */
__host__ __device__ int busy_warps(int64_t pairs, int chunk, int rounds)
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

/* Loads what does not depend on other pairs, with all loads in flight at once. */
template <int ROUNDS>
__device__ void load_pairs(const mox_permute_args &args, const shared_arrays &arrays, thread_pairs<ROUNDS> *own)
{
    int32_t id[ROUNDS];
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
        const int64_t pair = own->first + r * LANES;
        id[r] = pair < own->end ? args.ids[pair] : -1;
        own->weight[r] = pair < own->end && args.row_weight != nullptr ? args.weights[pair] : 0.0f;
    }
    for (int e = threadIdx.x; e < args.experts; e += blockDim.x)
        arrays.slot_of[e] = args.slot_of[e];
    for (int s = threadIdx.x; s < args.slots; s += blockDim.x)
        arrays.total[s] = arrays.before[s] = 0;
    uint32_t *words = reinterpret_cast<uint32_t *>(arrays.table);
    for (int i = threadIdx.x; i < (arrays.warps * static_cast<int>(args.slots) + 1) / 2; i += blockDim.x)
        words[i] = 0;
    __syncthreads();
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
        const int slot = own->slot[r] = slot_of_id(args, arrays.slot_of, id[r]);
        own->scale13[r] = slot >= 0 && args.pair_scale13 != nullptr ? args.static_scale13[slot] : 0.0f;
        own->scale2[r] = slot >= 0 && args.pair_scale2 != nullptr ? args.static_scale2[slot] : 0.0f;
    }
}

/* Counts each warp's pairs per slot in its row of the table, and ranks its pairs among those of the same slot. */
template <int ROUNDS>
__device__ void rank_in_warp(const mox_permute_args &args, const shared_arrays &arrays, thread_pairs<ROUNDS> *own)
{
    const int warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    uint16_t *line = arrays.table + warp * args.slots;
    if (warp >= arrays.warps)
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

/* Counts the pairs of every slot from the ids: all of them, and those before this chunk. */
__device__ void count_from_ids(const mox_permute_args &args, const shared_arrays &arrays, int64_t pairs, int64_t chunk)
{
    for (int64_t first = threadIdx.x; first < pairs; first += LOADS * static_cast<int>(blockDim.x)) {
        int32_t id[LOADS];
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            const int64_t pair = first + i * static_cast<int>(blockDim.x);
            id[i] = pair < pairs ? args.ids[pair] : -1;
        }
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            const int slot = slot_of_id(args, arrays.slot_of, id[i]);
            if (slot < 0)
                continue;
            atomicAdd(&arrays.total[slot], 1);
            if (first + i * static_cast<int>(blockDim.x) < chunk)
                atomicAdd(&arrays.before[slot], 1);
        }
    }
}

/* Replaces a column of the table, counts per warp, by its exclusive prefix sums. Returns the total. */
__device__ int add_up_column(const shared_arrays &arrays, int64_t slots, int slot)
{
    int sum = 0;
    for (int first = 0; first < arrays.warps; first += LOADS) {
        int count[LOADS];
#pragma unroll
        for (int i = 0; i < LOADS; i++)
            count[i] = first + i < arrays.warps ? arrays.table[(first + i) * slots + slot] : 0;
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            if (first + i < arrays.warps)
                arrays.table[(first + i) * slots + slot] = static_cast<uint16_t>(sum);
            sum += count[i];
        }
    }
    return sum;
}

/* Pairs of a slot in all chunks; *before becomes the pairs in the chunks before this one. */
__device__ int add_up_chunks(const mox_permute_args &args, int slot, int *before)
{
    const int chunks = static_cast<int>(gridDim.x), chunk = static_cast<int>(blockIdx.x);
    int sum = 0;
    for (int first = 0; first < chunks; first += LOADS) {
        int count[LOADS];
#pragma unroll
        for (int i = 0; i < LOADS; i++)
            count[i] = first + i < chunks ? args.counts[(first + i) * args.slots + slot] : 0;
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            sum += count[i];
            *before += first + i < chunk ? count[i] : 0;
        }
    }
    return sum;
}

/* Inclusive prefix sum over the threads of the block. */
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

/* start[s]: where this chunk's pairs of slot s begin. Block 0 also writes the offsets of all slots. */
__device__ void find_starts(const mox_permute_args &args, const shared_arrays &arrays, count_source by, int *of_warp)
{
    const int slot = static_cast<int>(threadIdx.x);
    const bool has_slot = slot < args.slots;
    int total = has_slot ? add_up_column(arrays, args.slots, slot) : 0, before = 0;
    if (has_slot && by == FROM_IDS) {
        total = arrays.total[slot];
        before = arrays.before[slot];
    } else if (has_slot && by == FROM_COUNTS) {
        total = add_up_chunks(args, slot, &before);
    }
    const int end = sum_to_thread(total, of_warp);
    if (has_slot)
        arrays.start[slot] = end - total + before;
    if (blockIdx.x != 0)
        return;
    if (has_slot)
        args.offsets[slot + 1] = end;
    if (slot == 0)
        args.offsets[0] = 0;
    if (slot < 2 && args.shared_offsets != nullptr)
        args.shared_offsets[slot] = slot == 0 ? 0 : args.tokens;
}

/* Writes what later stages read of the pair at position p. Numbers of pairs fit 31 bits, as counts do. */
template <int ROUNDS>
__device__ void write_pair(const mox_permute_args &args, const thread_pairs<ROUNDS> &own, int r, int64_t p)
{
    const int64_t pair = own.first + r * LANES;
    args.pair_at[p] = pair;
    if (args.token_of != nullptr)
        args.token_of[p] = static_cast<uint32_t>(pair) / static_cast<uint32_t>(args.top_k);
    if (args.row_weight != nullptr)
        args.row_weight[p] = own.weight[r];
    if (args.pair_scale13 != nullptr)
        args.pair_scale13[p] = own.scale13[r];
    if (args.pair_scale2 != nullptr)
        args.pair_scale2[p] = own.scale2[r];
}

template <int ROUNDS>
__global__ void __launch_bounds__(THREADS) place_kernel(const __grid_constant__ mox_permute_args args, chunk_plan by)
{
    extern __shared__ __align__(16) int32_t shared[];
    __shared__ int of_warp[WARPS];
    mox_grid_release();
    const int64_t pairs = args.tokens * args.top_k, chunk = static_cast<int64_t>(by.chunk) * blockIdx.x;
    const int warp = threadIdx.x / LANES, slots = static_cast<int>(args.slots);
    int32_t *slot_of = shared + 3 * slots;
    const shared_arrays arrays = { shared,
                                   shared + slots,
                                   shared + 2 * slots,
                                   slot_of,
                                   reinterpret_cast<uint16_t *>(slot_of + args.experts),
                                   busy_warps(pairs - chunk, by.chunk, ROUNDS) };
    thread_pairs<ROUNDS> own = { chunk + warp * ROUNDS * LANES + threadIdx.x % LANES, warp < arrays.warps ? pairs : 0 };
    load_pairs<ROUNDS>(args, arrays, &own);
    rank_in_warp<ROUNDS>(args, arrays, &own);
    if (ROUNDS == 1 && by.by == FROM_IDS)
        count_from_ids(args, arrays, pairs, chunk);
    mox_grid_wait(); /* for the counts; before this only inputs of the run were read */
    __syncthreads();
    find_starts(args, arrays, by.by, of_warp);
    __syncthreads();
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
        const int slot = own.slot[r];
        if (own.first + r * LANES >= own.end)
            break;
        const int64_t p = slot >= 0 ? arrays.start[slot] + arrays.table[warp * args.slots + slot] + own.before[r] : -1;
        args.position[own.first + r * LANES] = p;
        if (slot >= 0)
            write_pair<ROUNDS>(args, own, r, p);
    }
}

/* ---- launch ----------------------------------------------------------------------------------------- */

int max_int(int64_t a, int64_t b)
{
    return static_cast<int>(a > b ? a : b);
}

chunk_plan plan_chunks(int64_t pairs)
{
    const bool small = pairs <= MAX_SMALL_PAIRS;
    const int rounds = small || pairs <= MAX_CHUNKS * THREADS ? 1 : MAX_ROUNDS;
    const int chunk = small ? SMALL_CHUNK : THREADS * rounds, chunks = max_int((pairs + chunk - 1) / chunk, 1);
    return { chunk, chunks, rounds, chunks == 1 ? ONE_CHUNK : small ? FROM_IDS : FROM_COUNTS };
}

/* A block has enough warps for its pairs and for its slots. */
template <int ROUNDS> cudaError_t place(const mox_permute_args *args, const chunk_plan &by, mox_cuda_stream stream)
{
    const int warps = busy_warps(args->tokens * args->top_k, by.chunk, ROUNDS),
              slot_warps = static_cast<int>((args->slots + LANES - 1) / LANES);
    const int threads = LANES * max_int(max_int(warps, slot_warps), 1);
    const size_t shared = static_cast<size_t>(3 * args->slots + args->experts) * sizeof(int32_t) +
                          static_cast<size_t>(warps * args->slots + 1) / 2 * sizeof(uint32_t);
    const auto kernel = place_kernel<ROUNDS>;
    if (shared + WARPS * sizeof(int) > DEFAULT_SHARED) {
        const cudaError_t code = mox_device_allow_shared(reinterpret_cast<const void *>(kernel));
        if (code != cudaSuccess)
            return code;
    }
    /* the first kernel of a pass is in plain stream order (device_launch.cuh) */
    return mox_device_launch(kernel, by.chunks, threads, shared, stream, by.by == FROM_COUNTS, *args, by);
}

} // namespace

moxie_status mox_cuda_permute_simple_launch(const mox_permute_args *args, mox_cuda_stream stream, moxie_error *error)
{
    const chunk_plan by = plan_chunks(args->tokens * args->top_k);
    if (by.by == FROM_COUNTS) {
        const cudaError_t code =
            mox_device_launch(count_kernel, by.chunks, THREADS, 0, stream, false, *args, by.rounds);
        MOX_TRY(mox_cuda_status(code, "permute simple: count", error));
    }
    const cudaError_t code = by.rounds == 1 ? place<1>(args, by, stream) : place<MAX_ROUNDS>(args, by, stream);
    return mox_cuda_status(code, "permute simple", error);
}
