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
#include "cuda/expert_gemm/sm90/sm90_work.cuh"
#include "cuda/ptx/ptx_copy.cuh"
#include "cuda/ptx/ptx_sync.cuh"

constexpr int MOX_SM80_QUEUE = 16; /* more than the units that can be in flight, one a stage */

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

/* Copies `bytes`, a multiple of 16, by all threads. */
template <int THREADS> __device__ __forceinline__ void mox_sm80_copy(uint8_t *to, const uint8_t *from, uint32_t bytes)
{
    for (uint32_t at = threadIdx.x * 16; at < bytes; at += THREADS * 16)
        mox_async_copy_16(to + at, from + at);
}

/* The weights of `chunks` chunks from chunk k on, and their blocks of scales. Half tiles go to the places of whole
 * ones. */
template <int ELEMENT, int THREADS>
__device__ __forceinline__ void mox_sm80_copy_weights(const mox_sm90_args &args, const mox_sm90_work_unit &unit,
                                                      uint8_t *stage, int k, int chunks)
{
    constexpr uint32_t PLACE = mox_sm90_chunk_bytes(ELEMENT);
    const uint32_t chunk = unit.rows * (PLACE / 128), block = unit.rows * args.scale_bytes / 128;
    const uint8_t *tile = unit.record + args.tiles_at + (uint64_t)unit.tile * args.tile_bytes;
    for (int c = 0; c < chunks; c++)
        mox_sm80_copy<THREADS>(stage + c * PLACE, tile + (uint64_t)(k + c) * chunk, chunk);
    if constexpr (MOX_SM90_DECODES(ELEMENT)) {
        const int first = k >> args.scale_shift, blocks = ((k + chunks - 1) >> args.scale_shift) - first + 1;
        const uint8_t *scales = tile + (uint64_t)args.chunks * chunk + (uint64_t)first * block;
        for (int b = 0; b < blocks; b++)
            mox_sm80_copy<THREADS>(stage + args.chunks_per_stage * PLACE + b * args.scale_bytes, scales + b * block,
                                   block);
    }
}

template <int ELEMENT, int THREADS>
__device__ __forceinline__ void mox_sm80_copy_tokens(const mox_sm90_args &args, const mox_sm90_work_unit &unit,
                                                     uint8_t *stage, int k, int chunks)
{
    constexpr int SCALES = mox_sm90_token_scales(ELEMENT);
    const uint32_t rows = mox_sm90_tile_rows(unit);
    mox_sm80_copy<THREADS>(stage + args.tokens_at,
                           args.a + ((uint64_t)unit.row * args.chunks + (uint64_t)k * rows) * 128, chunks * rows * 128);
    if constexpr (SCALES > 0)
        mox_sm80_copy<THREADS>(stage + mox_sm90_token_scales_at<ELEMENT>(args),
                               (const uint8_t *)(args.a_scale + (uint64_t)unit.row * args.chunks + (uint64_t)k * rows),
                               chunks * rows * 4);
}

/* The stage that is filled next: unit `n` from chunk k on; k < 0: from its first. The same in all threads. */
struct mox_sm80_producer {
    int n, k, stage;
};

/* Begins the copies of the next stage, if there is one: of its weights, its tokens, or both. Behind a barrier after the
 * stage's last reader. With its weights the next unit is looked up. */
template <int ELEMENT, int THREADS, bool WEIGHTS, bool TOKENS>
__device__ __forceinline__ void mox_sm80_copy_next(const mox_sm90_args &args, mox_sm80_header *header, uint8_t *stages,
                                                   mox_sm80_producer *p)
{
    const mox_sm90_work_unit &unit = header->queue[p->n % MOX_SM80_QUEUE];
    const int begin = unit.begin, end = unit.end;
    if (begin == end)
        return;
    if (p->k < 0) {
        p->k = begin;
        if constexpr (WEIGHTS)
            mox_sm80_look_up(args, header, p->n + 1);
    }
    uint8_t *stage = stages + (uint64_t)p->stage * args.stage_bytes;
    const int chunks = min(args.chunks_per_stage, end - p->k);
    if constexpr (WEIGHTS)
        mox_sm80_copy_weights<ELEMENT, THREADS>(args, unit, stage, p->k, chunks);
    if constexpr (TOKENS)
        mox_sm80_copy_tokens<ELEMENT, THREADS>(args, unit, stage, p->k, chunks);
    p->k += args.chunks_per_stage;
    if (p->k >= end) {
        p->k = -1;
        p->n++;
    }
    p->stage = p->stage + 1 == args.stages ? 0 : p->stage + 1;
}

/* Fills all stages but one. Weights do not depend on the kernel before, so they are on their way while it ends; its
 * list is older. Every stage has a group of copies; the first group has all weights. */
template <int ELEMENT, int THREADS>
__device__ __forceinline__ mox_sm80_producer mox_sm80_fill(const mox_sm90_args &args, mox_sm80_header *header,
                                                           uint8_t *stages)
{
    mox_sm80_producer weights = { 0, -1, 0 }, tokens = weights;
    for (int s = 1; s < args.stages; s++) {
        __syncthreads(); /* the unit has been looked up */
        mox_sm80_copy_next<ELEMENT, THREADS, true, false>(args, header, stages, &weights);
    }
    mox_grid_wait();
    mox_grid_release(); /* not earlier: the next kernel reads the work list without waiting */
    for (int s = 1; s < args.stages; s++) {
        mox_sm80_copy_next<ELEMENT, THREADS, false, true>(args, header, stages, &tokens);
        mox_async_copy_commit();
    }
    __syncthreads();
    return tokens;
}

/* Waits until the oldest of `stages` - 1 groups has arrived. */
__device__ __forceinline__ void mox_sm80_wait(int stages)
{
    switch (stages) {
    case 2: mox_async_copy_wait_groups<0>(); break;
    case 3: mox_async_copy_wait_groups<1>(); break;
    case 4: mox_async_copy_wait_groups<2>(); break;
    case 5: mox_async_copy_wait_groups<3>(); break;
    case 6: mox_async_copy_wait_groups<4>(); break;
    case 7: mox_async_copy_wait_groups<5>(); break;
    default: mox_async_copy_wait_groups<6>(); break;
    }
}
static_assert(MOX_SM80_MAX_STAGES == 8, "mox_sm80_wait() counts to eight");

/* The kernel that an expert_gemm_sm80_*.cu gives to the launcher. */
#define MOX_SM80_ELEMENT(name, file) mox_sm90_kernel mox_sm80_kernel_##file(int32_t max_columns);
#include "cuda/expert_gemm/sm80/sm80_elements.def"
#undef MOX_SM80_ELEMENT

#endif
