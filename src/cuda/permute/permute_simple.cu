/* SPDX-License-Identifier: Apache-2.0
 *
 * permute_simple.cu - pairs grouped by slot, stable: a counting sort in three launches without atomics on global memory,
 * so that the result is the host's (route/permutation.c) and the same in every run.
 *
 *     count   a warp a chunk of pairs:    counts[c][s]   pairs of chunk c for slot s
 *     scan    one block, a thread a slot: counts[c][s] = those before chunk c;  offsets[s]
 *     place   a warp a chunk, in order:   p = offsets[s] + counts[c][s] + those before in the chunk
 */
#include "cuda/device/device_error.h"

enum { LANES = 32, CHUNK = MOX_CUDA_PERMUTE_CHUNK, SCAN_THREADS = 1024 };
static const unsigned ALL = 0xffffffffu;

static __device__ int32_t slot_for(const mox_cuda_permute_args &args, int64_t pair)
{
    if (pair >= args.tokens * args.top_k)
        return -1;
    const int32_t id = args.ids[pair];
    return id >= 0 && id < args.experts ? args.slot_of[id] : -1;
}

static __global__ void count_kernel(mox_cuda_permute_args args)
{
    extern __shared__ int32_t counts[];
    const int64_t chunk = blockIdx.x;
    for (int64_t s = threadIdx.x; s < args.slots; s += LANES)
        counts[s] = 0;
    __syncwarp();
    for (int i = threadIdx.x; i < CHUNK; i += LANES) {
        const int32_t slot = slot_for(args, chunk * CHUNK + i);
        if (slot >= 0)
            atomicAdd(&counts[slot], 1);
    }
    __syncwarp();
    for (int64_t s = threadIdx.x; s < args.slots; s += LANES)
        args.counts[chunk * args.slots + s] = counts[s];
}

/* Slots fit one block: there are at most MOXIE_MAX_EXPERTS. */
static __global__ void scan_kernel(mox_cuda_permute_args args, int64_t chunks)
{
    __shared__ int64_t before[SCAN_THREADS];
    const int64_t slot = threadIdx.x;
    int64_t sum = 0;
#pragma unroll 8
    for (int64_t c = 0; slot < args.slots && c < chunks; c++) {
        const int32_t count = args.counts[c * args.slots + slot];
        args.counts[c * args.slots + slot] = static_cast<int32_t>(sum);
        sum += count;
    }
    before[slot] = sum;
    __syncthreads();
    for (int step = 1; step < SCAN_THREADS; step *= 2) {
        const int64_t other = slot >= step ? before[slot - step] : 0;
        __syncthreads();
        before[slot] += other;
        __syncthreads();
    }
    if (slot < args.slots)
        args.offsets[slot + 1] = before[slot];
    if (slot == 0)
        args.offsets[0] = 0;
    if (slot < 2 && args.shared_offsets != nullptr)
        args.shared_offsets[slot] = slot == 0 ? 0 : args.tokens;
}

/* What later stages read of the pair at position p. */
static __device__ void fill_row(const mox_cuda_permute_args &args, int64_t pair, int32_t slot, int64_t p)
{
    args.pair_at[p] = pair;
    args.token_of[p] = pair / args.top_k;
    if (args.row_weight != nullptr)
        args.row_weight[p] = args.weights[pair];
    if (args.given13 != nullptr)
        args.given13[p] = args.slot_given13[slot];
    if (args.given2 != nullptr)
        args.given2[p] = args.slot_given2[slot];
}

static __global__ void place_kernel(mox_cuda_permute_args args)
{
    extern __shared__ int32_t placed[];
    const int lane = threadIdx.x;
    const int64_t chunk = blockIdx.x;
    for (int64_t s = lane; s < args.slots; s += LANES)
        placed[s] = args.counts[chunk * args.slots + s];
    __syncwarp();
    for (int i = lane; i < CHUNK; i += LANES) {
        const int64_t pair = chunk * CHUNK + i;
        const int32_t slot = slot_for(args, pair);
        const unsigned same = __match_any_sync(ALL, slot);
        const int rank = __popc(same & ((1u << lane) - 1));
        const int32_t base = slot >= 0 ? placed[slot] : 0;
        __syncwarp();
        if (slot >= 0 && rank == 0)
            placed[slot] = base + __popc(same);
        __syncwarp();
        if (pair >= args.tokens * args.top_k)
            continue; /* only in the last chunk, and then to its end */
        const int64_t p = slot >= 0 ? args.offsets[slot] + base + rank : -1;
        args.position[pair] = p;
        if (slot >= 0)
            fill_row(args, pair, slot, p);
    }
}

moxie_status mox_cuda_permute_simple_launch(const mox_cuda_permute_args *args, mox_cuda_stream stream,
                                            moxie_error *error)
{
    cudaStream_t s = static_cast<cudaStream_t>(stream);
    const int64_t chunks = (args->tokens * args->top_k + CHUNK - 1) / CHUNK;
    const size_t shared = static_cast<size_t>(args->slots) * sizeof(int32_t);
    if (chunks > 0)
        count_kernel<<<static_cast<unsigned>(chunks), LANES, shared, s>>>(*args);
    scan_kernel<<<1, SCAN_THREADS, 0, s>>>(*args, chunks);
    if (chunks > 0)
        place_kernel<<<static_cast<unsigned>(chunks), LANES, shared, s>>>(*args);
    return mox_cuda_launched("permute simple", error);
}
