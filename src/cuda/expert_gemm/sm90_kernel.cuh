/* SPDX-License-Identifier: Apache-2.0
 *
 * sm90_kernel.cuh - the Hopper kernel of family expert_gemm, for one type of elements (sm90_args.h says what it computes
 * and how the work is cut).
 *
 *     warps 0-3, 4-7    consumers: rows 0-63 and 64-127 of a row tile, each on its own from stage to stage
 *     warp 8            weights and the queue of pieces
 *     warps 9-11        tokens; of a tiled operand, warp 9
 *
 * Widths of the MMA are a list per type of elements; a token tile runs in the narrowest that holds it.
 */
#ifndef MOX_CUDA_SM90_KERNEL_CUH
#define MOX_CUDA_SM90_KERNEL_CUH

#include "cuda/expert_gemm/sm90_epilogue.cuh"
#include "cuda/expert_gemm/sm90_feed.cuh"

template <int... NS> struct mox_sm90_widths {};
using mox_sm90_widths_wide = mox_sm90_widths<8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 256>;
using mox_sm90_widths_bytes = mox_sm90_widths<8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 160, 192>;

template <int... NS> __device__ __forceinline__ int mox_sm90_narrowest(int columns)
{
    int width = 0;
    ((width = width == 0 && columns <= NS ? NS : width), ...);
    return width;
}

/* Everything that the parts of a piece depend on, found anew for each piece and hidden from the compiler's eye: it would
 * else compute what every width needs before the loop over pieces, and keep it all. So the epilogue reads the kernel's
 * arguments from shared memory. */
__device__ __forceinline__ mox_sm90_place mox_sm90_find_place()
{
    int thread = threadIdx.x;
    asm volatile("" : "+r"(thread));
    return { thread / 128, thread % 128, thread / 32 % 4, thread % 32 };
}

__device__ __forceinline__ mox_sm90_front *mox_sm90_find_front(uint8_t *shared)
{
    asm volatile("" : "+l"(shared));
    return (mox_sm90_front *)shared;
}

/* A piece in width N. */
template <int ELEMENT, int N>
__device__ __forceinline__ void mox_sm90_compute(const mox_sm90_args &args, uint8_t *shared,
                                                 const mox_sm90_piece &piece, mox_sm90_cursor *at)
{
    const mox_sm90_place me = mox_sm90_find_place();
    mox_sm90_front *front = mox_sm90_find_front(shared);
    const uint8_t *stages = shared + MOX_SM90_FRONT;
    float acc[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        acc[i] = 0.0f;
    if (piece.take >= 0)
        mox_sm90_take<N>(acc, front->args, piece.take, me);
    if constexpr (ELEMENT == MOX_SM90_E4M3)
        mox_sm90_loop_bytes<N>(acc, front, stages, args, me, piece.end - piece.begin, at);
    else
        mox_sm90_loop_wide<ELEMENT, N>(acc, front, stages, args, me, piece.end - piece.begin, at);
    if (piece.give >= 0)
        mox_sm90_give<N>(acc, front->args, piece.give, me);
    else
        mox_sm90_end<N>(acc, front, piece, me);
}

/* The piece in the narrowest width that holds it; widths ascend. */
template <int ELEMENT, int... NS>
__device__ __forceinline__ void mox_sm90_choose(mox_sm90_widths<NS...>, const mox_sm90_args &args, uint8_t *shared,
                                                const mox_sm90_piece &piece, mox_sm90_cursor *at)
{
    const int width = mox_sm90_narrowest<NS...>(piece.columns);
    ((width == NS ? mox_sm90_compute<ELEMENT, NS>(args, shared, piece, at) : void()), ...);
}

template <int ELEMENT, class WIDTHS>
__device__ __forceinline__ void mox_sm90_consume(const mox_sm90_args &args, uint8_t *shared)
{
    mox_sm90_cursor at = { 0, 0 };
    mox_grid_wait();
    mox_grid_release(); /* not before: the next kernel reads the work list without waiting */
    for (int n = 0;; n++) {
        /* Left where it is: the accumulators need the registers. */
        const mox_sm90_piece &piece = mox_sm90_peek((mox_sm90_front *)shared, n);
        if (piece.begin == piece.end)
            return;
        mox_sm90_choose<ELEMENT>(WIDTHS(), args, shared, piece, &at);
        mox_sm90_drop((mox_sm90_front *)shared, n, threadIdx.x % 32);
    }
}

/* Registers: 168 a thread at launch, all of which the two calls deal out again (2 x 224 + 56 = 3 x 168). */
template <int ELEMENT, class WIDTHS>
__global__ void __launch_bounds__(MOX_SM90_THREADS, 1) mox_sm90_gemm(const __grid_constant__ mox_sm90_args args)
{
    extern __shared__ __align__(1024) uint8_t shared[];
    mox_sm90_front *front = (mox_sm90_front *)shared;
    uint8_t *stages = shared + MOX_SM90_FRONT;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0)
        mox_sm90_front_init(front, args);
    __syncthreads();
    if (warp >= MOX_SM90_CONSUMER_WARPS) {
        mox_registers_give<56>();
        if (warp == MOX_SM90_CONSUMER_WARPS)
            mox_sm90_feed_weights<ELEMENT>(args, front, stages, lane);
        else if (!args.a_tiled)
            mox_sm90_feed_tokens<ELEMENT>(args, front, stages, warp - MOX_SM90_CONSUMER_WARPS - 1, lane);
        else if (warp == MOX_SM90_CONSUMER_WARPS + 1)
            mox_sm90_feed_tiles<ELEMENT>(args, front, stages, lane);
    } else {
        mox_registers_take<224>();
        mox_sm90_consume<ELEMENT, WIDTHS>(args, shared);
    }
}

#endif
