/* SPDX-License-Identifier: Apache-2.0
 *
 * sm80_kernel.cuh - the kernel of family expert_gemm for every device from sm_80 on, and for one element: a persistent
 * gemm of eight warps by mma.sync and cp.async. Layouts, work list, cut of the work, hand-off and epilogue are those of
 * the Hopper kernels (sm90_args.h).
 *
 *     warp w      rows 16 w .. 16 w + 15 of a row tile, all columns of a token tile
 *     threads     all of them fill the ring (sm80_ring.cuh); two blocks share a multiprocessor where tiles are narrow
 *
 * Each dot product is one chain of additions over K in one order, whatever the width of the token tile and the cut.
 */
#ifndef MOX_CUDA_SM80_KERNEL_CUH
#define MOX_CUDA_SM80_KERNEL_CUH

#include "cuda/expert_gemm/sm80/sm80_ring.cuh"
#include "cuda/expert_gemm/sm80/sm80_tile.cuh"
#include "cuda/expert_gemm/sm90/sm90_epilogue.cuh"

__device__ __forceinline__ mox_sm90_place mox_sm80_find_place()
{
    const int thread = (int)threadIdx.x;
    return { thread / 128, thread % 128, thread / 32 % 4, thread % 32 };
}

/* The stages of a unit from its first chunk to its last, in width N. */
template <int ELEMENT, int N, int SUMS>
__device__ __forceinline__ void mox_sm80_loop(float (&sums)[SUMS], const mox_sm90_args &args, mox_sm80_header *header,
                                              uint8_t *stages, const mox_sm90_work_unit &unit, mox_sm80_producer *p,
                                              int *stage)
{
    float(&acc)[N / 2] = reinterpret_cast<float(&)[N / 2]>(sums);
    const mox_sm90_place me = mox_sm80_find_place();
#pragma unroll 1
    for (int k = unit.begin; k < unit.end; k += args.chunks_per_stage) {
        mox_sm80_wait(args.stages);
        __syncthreads();
        mox_sm80_produce<ELEMENT>(args, header, stages, p);
        mox_sm80_multiply_stage<ELEMENT, N>(acc, args, stages + (uint64_t)*stage * args.stage_bytes, unit, k, me);
        *stage = *stage + 1 == args.stages ? 0 : *stage + 1;
    }
}

/* In the narrowest width of FIRST, REST... that holds the unit's columns. */
template <int ELEMENT, int SUMS, int FIRST, int... REST>
__device__ __forceinline__ void mox_sm80_dispatch(float (&sums)[SUMS], const mox_sm90_args &args,
                                                  mox_sm80_header *header, uint8_t *stages,
                                                  const mox_sm90_work_unit &unit, mox_sm80_producer *p, int *stage)
{
    if constexpr (sizeof...(REST) == 0) {
        mox_sm80_loop<ELEMENT, FIRST>(sums, args, header, stages, unit, p, stage);
    } else {
        if (unit.columns <= FIRST)
            mox_sm80_loop<ELEMENT, FIRST>(sums, args, header, stages, unit, p, stage);
        else
            mox_sm80_dispatch<ELEMENT, SUMS, REST...>(sums, args, header, stages, unit, p, stage);
    }
}

/* One work unit, from the accumulators of the block before, if it began the unit's job, to the next block's or to the
 * epilogue. */
template <int ELEMENT, int SUMS, int... WIDTHS>
__device__ __forceinline__ void mox_sm80_compute(const mox_sm90_args &args, mox_sm80_header *header, uint8_t *stages,
                                                 const mox_sm90_work_unit &unit, mox_sm80_producer *p, int *stage)
{
    const mox_sm90_place me = mox_sm80_find_place();
    float sums[SUMS];
    uint32_t rounds = 0;
#pragma unroll
    for (int i = 0; i < SUMS; i++)
        sums[i] = 0.0f;
    if (unit.resume >= 0)
        mox_sm90_resume(sums, header->base.args, unit.resume, unit.columns, me);
    mox_sm80_dispatch<ELEMENT, SUMS, WIDTHS...>(sums, args, header, stages, unit, p, stage);
    if (unit.hand_off >= 0) {
        mox_sm90_hand_off(sums, header->base.args, unit.hand_off, unit.columns, me);
        return;
    }
    const mox_sm90_row_constants rows = mox_sm90_load_row_constants<false>(&header->base, unit, me);
    mox_sm90_column_factors<mox_sm90_has_factors(ELEMENT) != 0, SUMS> columns;
    columns.load(header->base.args, unit, me.lane);
    if constexpr (ELEMENT == MOX_SM90_INT8)
        mox_sm90_int_to_float(sums, unit.columns);
    mox_sm90_epilogue<true>(sums, &header->base, unit, rows, columns, me, &rounds);
}

/* The header, the first unit, and all stages but one. */
template <int ELEMENT>
__device__ __forceinline__ mox_sm80_producer mox_sm80_begin(const mox_sm90_args &args, mox_sm80_header *header,
                                                            uint8_t *stages)
{
    const int thread = (int)threadIdx.x;
    mox_sm80_producer p = { 0, -1, 0 };
    for (int i = thread; i < 2 * MOX_SM90_MAX_COLUMNS; i += MOX_SM80_THREADS)
        header->base.maxima[i / MOX_SM90_MAX_COLUMNS][i % MOX_SM90_MAX_COLUMNS] = 0;
    if (thread == 32)
        header->base.args = args;
    if (thread < 32) {
        const mox_sm90_work work = mox_sm90_work_begin(args, header->base.entries, MOX_SM90_DECODES(ELEMENT), thread);
        if (thread == 0)
            header->work = work;
        __syncwarp();
        mox_sm80_look_up(args, header, 0);
    }
    for (int s = 1; s < args.stages; s++) {
        __syncthreads();
        mox_sm80_produce<ELEMENT>(args, header, stages, &p);
    }
    return p;
}

template <int ELEMENT, int BLOCKS, int MAX_COLUMNS, int... WIDTHS>
__global__ void __launch_bounds__(MOX_SM80_THREADS, BLOCKS) mox_sm80_gemm(const __grid_constant__ mox_sm90_args args)
{
    extern __shared__ __align__(1024) uint8_t shared[];
    mox_sm80_header *header = (mox_sm80_header *)shared;
    uint8_t *stages = shared + MOX_SM80_HEADER_BYTES;
    mox_grid_wait();
    mox_grid_release();
    mox_sm80_producer p = mox_sm80_begin<ELEMENT>(args, header, stages);
    int stage = 0;
    __syncthreads();
#pragma unroll 1
    for (int n = 0;; n++) {
        const mox_sm90_work_unit &unit = header->queue[n % MOX_SM80_QUEUE];
        if (unit.begin == unit.end)
            break;
        mox_sm80_compute<ELEMENT, MAX_COLUMNS / 2, WIDTHS...>(args, header, stages, unit, &p, &stage);
    }
    mox_async_copy_wait();
}

/* The kernel for token tiles of up to `max_columns` columns. */
template <int ELEMENT> mox_sm90_kernel mox_sm80_kernel_of(int32_t max_columns)
{
    return max_columns <= MOX_SM80_NARROW_COLUMNS
               ? mox_sm80_gemm<ELEMENT, 2, MOX_SM80_NARROW_COLUMNS, MOX_SM80_WIDTHS_NARROW>
               : mox_sm80_gemm<ELEMENT, 1, MOX_SM80_MAX_COLUMNS, MOX_SM80_WIDTHS_WIDE>;
}

#endif
