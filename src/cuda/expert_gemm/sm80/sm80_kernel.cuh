/* SPDX-License-Identifier: Apache-2.0
 *
 * sm80_kernel.cuh - the kernel of family expert_gemm for every device from sm_80 on, and for one element: a persistent
 * gemm of eight warps by mma.sync and cp.async. Layouts, work list, cut of the work, hand-off and epilogue are those of
 * the Hopper kernels (mma_args.h).
 *
 *     narrow tiles   eight warps of 16 rows of a row tile and all columns of a token tile each
 *     wide tiles     four warps of two times 16 rows: rows 16 w and 64 + 16 w on
 *     threads        all of them fill the ring (sm80_ring.cuh); two blocks share a multiprocessor where memory allows
 *
 * Each dot product is one chain of additions over K in one order, whatever the width of the token tile and the cut.
 */
#ifndef MOX_CUDA_SM80_KERNEL_CUH
#define MOX_CUDA_SM80_KERNEL_CUH

#include "cuda/expert_gemm/sm80/sm80_ring.cuh"
#include "cuda/expert_gemm/sm80/sm80_tile.cuh"
#include "cuda/expert_gemm/tensor_cores/mma_epilogue.cuh"

/* What a thread keeps from one unit to the next: where the ring is filled, and which stage is read next. */
struct mox_sm80_cursor {
    mox_sm80_producer filled;
    int stage;
};

/* The stages of a unit from its first chunk to its last, in width N. */
template <int ELEMENT, int N, int SUMS, int GROUPS>
__device__ __forceinline__ void mox_sm80_loop(float (&sums)[GROUPS][SUMS], const mox_sm90_args &args,
                                              mox_sm80_header *header, uint8_t *stages, const mox_sm90_work_unit &unit,
                                              mox_sm80_cursor *at)
{
    const mox_sm80_span tokens = { unit.columns, mox_sm90_tile_rows(unit) };
    const int end = unit.end;
#pragma unroll 1
    for (int k = unit.begin; k < end; k += args.chunks_per_stage) {
        mox_sm80_wait(args.stages);
        __syncthreads();
        mox_sm80_copy_next<ELEMENT, 2 * SUMS, true, true>(args, header, stages, &at->filled);
        mox_async_copy_commit();
        mox_sm80_multiply_stage<ELEMENT, N>(sums, args, stages + (uint32_t)at->stage * args.stage_bytes, tokens, k,
                                            min(args.chunks_per_stage, end - k));
        at->stage = at->stage + 1 == args.stages ? 0 : at->stage + 1;
    }
}

/* In the narrowest width of FIRST, REST... that holds the unit's columns. */
template <int ELEMENT, int SUMS, int GROUPS, int FIRST, int... REST>
__device__ __forceinline__ void mox_sm80_dispatch(float (&sums)[GROUPS][SUMS], const mox_sm90_args &args,
                                                  mox_sm80_header *header, uint8_t *stages,
                                                  const mox_sm90_work_unit &unit, mox_sm80_cursor *at)
{
    if constexpr (sizeof...(REST) == 0) {
        mox_sm80_loop<ELEMENT, FIRST>(sums, args, header, stages, unit, at);
    } else {
        if (unit.columns <= FIRST)
            mox_sm80_loop<ELEMENT, FIRST>(sums, args, header, stages, unit, at);
        else
            mox_sm80_dispatch<ELEMENT, SUMS, GROUPS, REST...>(sums, args, header, stages, unit, at);
    }
}

/* Hands the sums of one group of rows off to the next block, or finishes them. */
template <int ELEMENT, int SUMS>
__device__ __forceinline__ void mox_sm80_finish(float (&sums)[SUMS], mox_sm80_header *header,
                                                const mox_sm90_work_unit &unit, const mox_sm90_place &me)
{
    const mox_sm90_args &args = header->base.args;
    uint32_t rounds = 0;
    if (unit.hand_off >= 0) {
        mox_sm90_hand_off(sums, args, unit.hand_off, unit.columns, me);
        return;
    }
    const mox_sm90_row_constants rows = mox_sm90_load_row_constants<false>(&header->base, unit, me);
    mox_sm90_column_factors<mox_sm90_has_factors(ELEMENT) != 0, SUMS> columns;
    columns.load(args, unit, me.lane);
    if constexpr (ELEMENT == MOX_SM90_INT8)
        mox_sm90_int_to_float(sums, unit.columns);
    mox_sm90_epilogue<true>(sums, &header->base, unit, rows, columns, me, &rounds);
}

/* One work unit, from the accumulators of the block before, if it began the unit's job, to the next block's or to the
 * epilogue. */
template <int ELEMENT, int SUMS, int GROUPS, int... WIDTHS>
__device__ __forceinline__ void mox_sm80_compute(const mox_sm90_args &args, mox_sm80_header *header, uint8_t *stages,
                                                 const mox_sm90_work_unit &unit, mox_sm80_cursor *at)
{
    float sums[GROUPS][SUMS];
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
#pragma unroll
        for (int i = 0; i < SUMS; i++)
            sums[g][i] = 0.0f;
        if (unit.resume >= 0)
            mox_sm90_resume(sums[g], header->base.args, unit.resume, unit.columns, mox_sm80_place<GROUPS>(g));
    }
    mox_sm80_dispatch<ELEMENT, SUMS, GROUPS, WIDTHS...>(sums, args, header, stages, unit, at);
#pragma unroll
    for (int g = 0; g < GROUPS; g++)
        mox_sm80_finish<ELEMENT>(sums[g], header, unit, mox_sm80_place<GROUPS>(g));
}

/* The header, and the first unit. */
template <int ELEMENT, int THREADS>
__device__ __forceinline__ void mox_sm80_begin(const mox_sm90_args &args, mox_sm80_header *header)
{
    const int thread = (int)threadIdx.x;
    for (int i = thread; i < 2 * MOX_SM90_MAX_COLUMNS; i += THREADS)
        header->base.maxima[i / MOX_SM90_MAX_COLUMNS][i % MOX_SM90_MAX_COLUMNS] = 0;
    if (thread == 32)
        header->base.args = args;
    if (thread >= 32)
        return;
    const mox_sm90_work work = mox_sm90_work_begin(args, header->base.entries, MOX_SM90_DECODES(ELEMENT), thread);
    if (thread == 0)
        header->work = work;
    __syncwarp();
    mox_sm80_look_up(args, header, 0);
}

template <int ELEMENT, int MAX_COLUMNS, int... WIDTHS>
__global__ void __launch_bounds__(mox_sm80_threads(MAX_COLUMNS), MOX_SM80_BLOCKS)
    mox_sm80_gemm(const __grid_constant__ mox_sm90_args args)
{
    constexpr int THREADS = mox_sm80_threads(MAX_COLUMNS), GROUPS = mox_sm80_row_groups(MAX_COLUMNS);
    extern __shared__ __align__(1024) uint8_t shared[];
    mox_sm80_header *header = (mox_sm80_header *)shared;
    uint8_t *stages = shared + MOX_SM80_HEADER_BYTES;
    mox_sm80_begin<ELEMENT, THREADS>(args, header);
    mox_sm80_cursor at = { mox_sm80_fill<ELEMENT, MAX_COLUMNS>(args, header, stages), 0 };
#pragma unroll 1
    for (int n = 0;; n++) {
        const mox_sm90_work_unit &unit = header->queue[n % MOX_SM80_QUEUE];
        if (unit.begin == unit.end)
            break;
        mox_sm80_compute<ELEMENT, MAX_COLUMNS / 2, GROUPS, WIDTHS...>(args, header, stages, unit, &at);
    }
    mox_async_copy_wait();
}

/* The kernel for token tiles of up to `max_columns` columns. */
template <int ELEMENT> mox_sm90_kernel mox_sm80_kernel_of(int32_t max_columns)
{
    if (max_columns <= MOX_SM80_NARROW_COLUMNS)
        return mox_sm80_gemm<ELEMENT, MOX_SM80_NARROW_COLUMNS, MOX_SM80_WIDTHS_NARROW>;
    if constexpr (MOX_SM90_BY_CHUNK(ELEMENT))
        return mox_sm80_gemm<ELEMENT, MOX_SM80_MAX_COLUMNS_GROUPS, MOX_SM80_MAX_COLUMNS_GROUPS>;
    else
        return mox_sm80_gemm<ELEMENT, MOX_SM80_MAX_COLUMNS, MOX_SM80_MAX_COLUMNS>;
}

#endif
