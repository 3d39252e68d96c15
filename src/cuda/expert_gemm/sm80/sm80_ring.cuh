/* SPDX-License-Identifier: Apache-2.0
 *
 * sm80_ring.cuh - the shared memory of a block of the mma.sync kernels, and how its stages are filled: all threads copy
 * 16 bytes at a time (cp.async), one group of copies a stage, across the ends of work units.
 *
 *     consumer    wait for stage i | barrier | compute stage i
 *     producer                               | copies of stage i + stages - 1, into the place of stage i - 1
 *
 * Warp 0 looks up each work unit when the copies of the unit before begin, a barrier before anybody reads it.
 */
#ifndef MOX_CUDA_SM80_RING_CUH
#define MOX_CUDA_SM80_RING_CUH

#include "cuda/expert_gemm/sm80/sm80_shape.h"
#include "cuda/expert_gemm/tensor_cores/mma_work.cuh"
#include "cuda/ptx/ptx_copy.cuh"
#include "cuda/ptx/ptx_sync.cuh"

constexpr int MOX_SM80_QUEUE = 8; /* more than the units that can be in flight, one a stage */

struct mox_sm80_header {
    mox_sm90_header base; /* for the epilogue; its barriers and its queue are not used */
    mox_sm90_work work;
    mox_sm90_work_unit queue[MOX_SM80_QUEUE];
};
static_assert(sizeof(mox_sm80_header) <= MOX_SM80_HEADER_BYTES, "the header does not fit");
static_assert(MOX_SM80_MAX_STAGES < MOX_SM80_QUEUE, "a unit would be overwritten while it is computed");

/* Unit `n` of the block, looked up and queued by warp 0. */
__device__ __forceinline__ void mox_sm80_look_up(const mox_sm90_args &args, mox_sm80_header *header, int n)
{
    const int lane = (int)threadIdx.x % 32;
    if (threadIdx.x >= 32)
        return;
    const mox_sm90_work_unit unit = mox_sm90_work_unit_at(args, header->work, n, lane);
    if (lane == 0)
        header->queue[n % MOX_SM80_QUEUE] = unit;
}

/* The stage that is filled next, in registers of each thread: every stage costs its instructions once. Pointers are at
 * this thread's first 16 bytes. */
struct mox_sm80_producer {
    int n, stage;          /* unit that follows, and the stage's place in the ring */
    int k, end;            /* chunks of the unit in hand that are not on their way */
    uint8_t *to;           /* the stage */
    uint32_t chunk, block; /* bytes of its chunks and blocks of scales; half tiles have half of them */
    uint32_t row;          /* bytes of its tokens in a chunk */
    const uint8_t *codes;  /* of chunk k */
    const uint8_t *scales; /* of the tile's first block */
    const uint8_t *tokens; /* of chunk k */
    const uint8_t *token_scales;
};

/* Copies the part of this thread, which begins at byte `mine`, of `bytes`, up to BYTES. */
template <int BYTES, int THREADS>
__device__ __forceinline__ void mox_sm80_copy(uint8_t *to, const uint8_t *from, uint32_t mine, uint32_t bytes)
{
#pragma unroll
    for (uint32_t at = 0; at < BYTES; at += THREADS * 16)
        if (mine + at < bytes)
            mox_async_copy_16(to + at, from + at);
}

/* The weights of `chunks` chunks, to the places of whole tiles. */
template <int ELEMENT, int THREADS>
__device__ __forceinline__ void mox_sm80_copy_weights(uint32_t mine, int chunks, mox_sm80_producer *p)
{
    constexpr uint32_t PLACE = mox_sm90_chunk_bytes(ELEMENT);
    uint8_t *to = p->to;
#pragma unroll 1
    for (int c = 0; c < chunks; c++) {
        mox_sm80_copy<PLACE, THREADS>(to, p->codes, mine, p->chunk);
        p->codes += p->chunk;
        to += PLACE;
    }
}

/* Their blocks of scales, likewise. */
template <int ELEMENT, int THREADS>
__device__ __forceinline__ void mox_sm80_copy_scales(const mox_sm90_args &args, uint32_t mine, int chunks,
                                                     const mox_sm80_producer *p)
{
    const int first = p->k >> args.scale_shift, blocks = ((p->k + chunks - 1) >> args.scale_shift) - first + 1;
    const uint32_t bytes = blocks * p->block;
    const bool half = p->block < (uint32_t)args.scale_bytes; /* tiles: their blocks go to the places of whole ones */
    const uint8_t *from = p->scales + (uint64_t)((uint32_t)first * p->block);
    uint8_t *to = p->to + args.chunks_per_stage * mox_sm90_chunk_bytes(ELEMENT);
#pragma unroll 1
    for (uint32_t at = 0; mine + at < bytes; at += THREADS * 16)
        mox_async_copy_16(to + at + (half ? (mine + at) / p->block * p->block : 0), from + at);
}

template <int ELEMENT, int MAX_COLUMNS, int THREADS>
__device__ __forceinline__ void mox_sm80_copy_tokens(const mox_sm90_args &args, uint32_t mine, int chunks,
                                                     const mox_sm80_producer *p)
{
    constexpr int SCALES = mox_sm90_token_scales(ELEMENT), CHUNKS = mox_sm80_max_chunks(ELEMENT, MAX_COLUMNS);
    mox_sm80_copy<CHUNKS * MAX_COLUMNS * 128, THREADS>(p->to + args.tokens_at, p->tokens, mine, chunks * p->row);
    if constexpr (SCALES > 0)
        mox_sm80_copy<CHUNKS * MAX_COLUMNS * 4, THREADS>(p->to + mox_sm90_token_scales_at<ELEMENT>(args),
                                                         p->token_scales, mine, chunks * p->row / 32);
}

/* Takes the next unit in hand, if there is one; with its weights the one behind it is looked up. */
template <int ELEMENT, bool WEIGHTS>
__device__ __forceinline__ bool mox_sm80_take_unit(const mox_sm90_args &args, mox_sm80_header *header,
                                                   mox_sm80_producer *p)
{
    const mox_sm90_work_unit unit = header->queue[p->n % MOX_SM80_QUEUE];
    if (unit.begin == unit.end)
        return false;
    p->n++;
    if constexpr (WEIGHTS)
        mox_sm80_look_up(args, header, p->n);
    const uint32_t rows = mox_sm90_tile_rows(unit), mine = threadIdx.x * 16;
    const uint8_t *tile = unit.record + args.tiles_at + (uint64_t)unit.tile * args.tile_bytes + mine;
    const uint64_t token = (uint64_t)unit.row * args.chunks + (uint64_t)unit.begin * rows;
    p->k = unit.begin;
    p->end = unit.end;
    p->chunk = unit.rows * (mox_sm90_chunk_bytes(ELEMENT) / 128);
    p->block = unit.rows * args.scale_bytes / 128;
    p->row = rows * 128;
    p->codes = tile + (uint64_t)unit.begin * p->chunk;
    p->scales = tile + (uint64_t)args.chunks * p->chunk;
    p->tokens = args.a + token * 128 + mine;
    p->token_scales = (const uint8_t *)(args.a_scale + token) + mine;
    return true;
}

/* Begins the copies of the next stage, if there is one: of its weights, its tokens, or both. Behind a barrier after the
 * stage's last reader. */
template <int ELEMENT, int MAX_COLUMNS, bool WEIGHTS, bool TOKENS>
__device__ __forceinline__ void mox_sm80_copy_next(const mox_sm90_args &args, mox_sm80_header *header, uint8_t *stages,
                                                   mox_sm80_producer *p)
{
    constexpr int THREADS = mox_sm80_threads(MAX_COLUMNS);
    if (p->k >= p->end && !mox_sm80_take_unit<ELEMENT, WEIGHTS>(args, header, p))
        return;
    const uint32_t mine = (uint32_t)(p->to - stages) - (uint32_t)p->stage * args.stage_bytes;
    const int chunks = min(args.chunks_per_stage, p->end - p->k);
    if constexpr (WEIGHTS)
        mox_sm80_copy_weights<ELEMENT, THREADS>(mine, chunks, p);
    else
        p->codes += chunks * p->chunk;
    if constexpr (WEIGHTS && MOX_SM90_DECODES(ELEMENT))
        mox_sm80_copy_scales<ELEMENT, THREADS>(args, mine, chunks, p);
    if constexpr (TOKENS)
        mox_sm80_copy_tokens<ELEMENT, MAX_COLUMNS, THREADS>(args, mine, chunks, p);
    p->tokens += chunks * p->row;
    p->token_scales += chunks * p->row / 32;
    p->k += chunks;
    const bool last = p->stage + 1 == args.stages;
    p->to += last ? -(int32_t)((uint32_t)p->stage * args.stage_bytes) : (int32_t)args.stage_bytes;
    p->stage = last ? 0 : p->stage + 1;
}

/* Fills all stages but one. Weights do not depend on the kernel before, so they are on their way while it ends; its
 * list is older. Every stage has a group of copies; the first group has all weights. */
template <int ELEMENT, int MAX_COLUMNS>
__device__ __forceinline__ mox_sm80_producer mox_sm80_fill(const mox_sm90_args &args, mox_sm80_header *header,
                                                           uint8_t *stages)
{
    mox_sm80_producer weights = {};
    weights.to = stages + threadIdx.x * 16;
    mox_sm80_producer tokens = weights;
#pragma unroll 1
    for (int s = 1; s < args.stages; s++) {
        __syncthreads(); /* the unit has been looked up */
        mox_sm80_copy_next<ELEMENT, MAX_COLUMNS, true, false>(args, header, stages, &weights);
    }
    mox_grid_wait();
    mox_grid_release(); /* not earlier: the next kernel reads the work list without waiting */
#pragma unroll 1
    for (int s = 1; s < args.stages; s++) {
        mox_sm80_copy_next<ELEMENT, MAX_COLUMNS, false, true>(args, header, stages, &tokens);
        mox_async_copy_commit();
    }
    __syncthreads();
    return tokens;
}

/* Waits until the oldest of `stages` - 1 groups has arrived. */
__device__ __forceinline__ void mox_sm80_wait(int stages)
{
    if (stages == 4)
        mox_async_copy_wait_groups<2>();
    else if (stages == 3)
        mox_async_copy_wait_groups<1>();
    else
        mox_async_copy_wait_groups<0>();
}
static_assert(MOX_SM80_MAX_STAGES == 4, "mox_sm80_wait() counts to four");

/* The kernel that an expert_gemm_sm80_*.cu gives to the launcher. */
#define MOX_SM80_ELEMENT(name, file) mox_sm90_kernel mox_sm80_kernel_##file(int32_t max_columns);
#include "cuda/expert_gemm/sm80/sm80_elements.def"
#undef MOX_SM80_ELEMENT

#endif
