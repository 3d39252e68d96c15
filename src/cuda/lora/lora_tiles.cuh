/* SPDX-License-Identifier: Apache-2.0
 *
 * lora_tiles.cuh - the tiles that lora's kernels share (cuda_lora_args.h), and how a block walks through them.
 *
 * A kernel before which every block of W2's product has waited, or which follows a shrink, may read tiles before it
 * waits: products and the shrink release only when they have waited themselves (device/device_launch.cuh).
 */
#ifndef MOX_CUDA_LORA_LORA_TILES_CUH
#define MOX_CUDA_LORA_LORA_TILES_CUH

#include <moxie/moxie_adapters.h>

#include "cuda/device/device_slots.cuh"
#include "cuda/lora/cuda_lora_args.h"
#include "cuda/ptx/ptx_sync.cuh"

enum {
    MOX_LORA_TILE_BYTES = 64, /* of shared memory, for the tile that a block works on */
    MOX_LORA_CACHED_OFFSETS = 1025
};
static_assert(sizeof(mox_cuda_lora_tile) <= MOX_LORA_TILE_BYTES, "a tile needs more shared memory");

/* All shared memory of a block. */
extern __shared__ __align__(16) uint8_t shared[];

/* Two neighbours of a factor in memory. */
template <moxie_dtype DTYPE> struct mox_lora_two;
template <> struct mox_lora_two<MOXIE_BF16> {
    uint32_t codes;
    __device__ float first() const
    {
        return __uint_as_float(codes << 16);
    }
    __device__ float second() const
    {
        return __uint_as_float(codes & 0xffff0000u);
    }
};
template <> struct mox_lora_two<MOXIE_F32> {
    float2 values;
    __device__ float first() const
    {
        return values.x;
    }
    __device__ float second() const
    {
        return values.y;
    }
};

/* ---- groups ---------------------------------------------------------------------------------------------------- */

/* The number, or -1 for a token without adapter. */
static __device__ int32_t mox_lora_number(const mox_lora_args &args, int32_t number)
{
    const mox_lora_adapter *adapter = number >= 0 && number < args.count ? args.adapters[number] : nullptr;
    for (int m = 0; adapter != nullptr && m < MOX_LORA_MATRICES; m++)
        if (adapter->matrix[m].rank > args.max_rank)
            return -1;
    return adapter != nullptr ? number : -1;
}

/* What a thread of the group kernel knows of its pair. Pairs of one slot and one adapter have one key. */
struct mox_lora_pair {
    int64_t slot;
    int32_t number, key; /* key -1: it is in no tile */
};

static __device__ mox_lora_pair mox_lora_pair_of(const mox_lora_args &args, const int64_t *offsets, int64_t p)
{
    const int64_t token = p < args.max_pairs ? args.token_of[p] : 0; /* unused behind the last pair */
    mox_lora_pair pair = { 0, -1, -1 };
    if (p >= args.offsets[args.slots])
        return pair;
    pair.number = mox_lora_number(args, args.adapter_ids[token]);
    pair.slot = mox_device_slot_of(offsets, args.slots, p);
    if (pair.number >= 0 || args.writes)
        pair.key = static_cast<int32_t>(pair.slot) * (args.count + 1) + pair.number + 1;
    return pair;
}

/* Thread t has pair t of the chunk. The first pair of every eight with one key leads a tile. */
static __global__ void __launch_bounds__(MOX_CUDA_LORA_CHUNK) mox_lora_group(const __grid_constant__ mox_lora_args args)
{
    int32_t *keys = reinterpret_cast<int32_t *>(shared);
    uint32_t *leads = reinterpret_cast<uint32_t *>(keys + MOX_CUDA_LORA_CHUNK); /* a bit a thread, by warp */
    int64_t *cached = reinterpret_cast<int64_t *>(leads + MOX_CUDA_LORA_CHUNK / 32);
    const bool fits = args.slots < MOX_LORA_CACHED_OFFSETS;
    const int64_t *offsets = fits ? cached : args.offsets;
    const int t = static_cast<int>(threadIdx.x);
    const int64_t first = static_cast<int64_t>(blockIdx.x) * MOX_CUDA_LORA_CHUNK;
    mox_cuda_lora_tile *tiles = static_cast<mox_cuda_lora_tile *>(args.scratch) + first;
    mox_grid_release();
    mox_grid_wait();
    for (int64_t s = t; fits && s <= args.slots; s += MOX_CUDA_LORA_CHUNK)
        cached[s] = args.offsets[s];
    __syncthreads();
    const mox_lora_pair pair = mox_lora_pair_of(args, offsets, first + t);
    keys[t] = pair.key;
    __syncthreads();
    /* its neighbours are in the slot's part of the chunk */
    const int begin = pair.key < 0 ? 0 : static_cast<int>(max(offsets[pair.slot] - first, static_cast<int64_t>(0)));
    const int end =
        pair.key < 0 ? 0
                     : static_cast<int>(min(offsets[pair.slot + 1] - first, static_cast<int64_t>(MOX_CUDA_LORA_CHUNK)));
    int before = 0, all = 0, leader = -1;
    for (int q = begin; q < end; q++)
        if (keys[q] == pair.key) {
            leader = q <= t && all % MOX_CUDA_LORA_ROWS == 0 ? q : leader;
            before += q < t;
            all++;
        }
    const unsigned leading = __ballot_sync(0xffffffffu, leader == t);
    if (t % 32 == 0)
        leads[t / 32] = leading;
    __syncthreads();
    int place = 0, count = 0;
    for (int w = 0; w < MOX_CUDA_LORA_CHUNK / 32; w++) {
        const uint32_t below = leader / 32 == w ? (1u << leader % 32) - 1 : leader / 32 > w ? 0xffffffffu : 0;
        place += pair.key >= 0 ? __popc(leads[w] & below) : 0;
        count += __popc(leads[w]);
    }
    if (pair.key >= 0)
        tiles[place].pair[before % MOX_CUDA_LORA_ROWS] = static_cast<int32_t>(first + t);
    if (leader == t) {
        tiles[place].slot = args.place_of != nullptr ? args.place_of[pair.slot] : static_cast<int32_t>(pair.slot);
        tiles[place].adapter = pair.number;
        tiles[place].rows = min(all - before, static_cast<int>(MOX_CUDA_LORA_ROWS));
    }
    if (t >= count)
        tiles[t].rows = 0;
}

/* ---- a block's tiles ------------------------------------------------------------------------------------------- */

/* Calls work(tile) for this block's tiles: every `gridDim.x / chunks`-th of a chunk. The tile is in shared memory. */
template <class WORK> static __device__ __forceinline__ void mox_lora_each_tile(const mox_lora_args &args, WORK work)
{
    const int blocks = static_cast<int>(gridDim.x / MOX_CUDA_LORA_CHUNKS(args.max_pairs)), t = threadIdx.x;
    const mox_cuda_lora_tile *tiles = static_cast<const mox_cuda_lora_tile *>(args.scratch) +
                                      static_cast<int64_t>(blockIdx.x / blocks) * MOX_CUDA_LORA_CHUNK;
    mox_cuda_lora_tile *own = reinterpret_cast<mox_cuda_lora_tile *>(shared);
    enum { WORDS = sizeof *own / sizeof(int32_t) };
    for (int i = static_cast<int>(blockIdx.x % blocks); i < MOX_CUDA_LORA_CHUNK; i += blocks) {
        __syncthreads(); /* nobody reads the tile before */
        if (t < WORDS)
            reinterpret_cast<int32_t *>(own)[t] = reinterpret_cast<const int32_t *>(tiles + i)[t];
        __syncthreads();
        if (own->rows == 0)
            return;
        work(*own);
    }
}

#endif
