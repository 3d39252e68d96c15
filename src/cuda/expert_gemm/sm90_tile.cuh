/* SPDX-License-Identifier: Apache-2.0
 *
 * sm90_tile.cuh - the inner loop of one warpgroup: 64 rows of weights by N tokens, chunk after chunk of the ring.
 *
 *     16-bit elements    acc += chunk                               one chain on the tensor cores
 *     8-bit elements     acc += weight scale * token scale * chunk  each chunk (128 columns) from zero on the tensor cores,
 *                                                                   then one fused multiply-add in fp32
 *
 * Thread t of the warpgroup holds acc[4j + 2h + c] = row 16 (t / 32) + 8h + (t % 32) / 4, column 8j + 2 (t % 4) + c.
 */
#ifndef MOX_CUDA_SM90_TILE_CUH
#define MOX_CUDA_SM90_TILE_CUH

#include "cuda/expert_gemm/sm90_ring.cuh"
#include "cuda/ptx/ptx_sync.cuh"
#include "cuda/ptx/ptx_wgmma.cuh"

/* Who this thread is among the consumers. */
struct mox_sm90_place {
    int group, thread, warp, lane; /* thread of the warpgroup, warp of the warpgroup */
};

template <int ELEMENT, int N>
__device__ __forceinline__ void mox_sm90_mma(float (&d)[N / 2], uint64_t a, uint64_t b, int keep)
{
    if constexpr (ELEMENT == MOX_SM90_BF16)
        mox_wgmma_bf16<N>(d, a, b, keep);
    else if constexpr (ELEMENT == MOX_SM90_F16)
        mox_wgmma_f16<N>(d, a, b, keep);
    else
        mox_wgmma_e4m3<N>(d, a, b, keep);
}

/* Waits for a stage and begins its product. */
template <int ELEMENT, int N>
__device__ __forceinline__ void mox_sm90_issue(float (&d)[N / 2], mox_sm90_front *front, const uint8_t *stage,
                                               const mox_sm90_cursor &at, bool tiled, int group, int keep)
{
    mox_mbarrier_wait(front->full + at.stage, at.parity);
    if (!tiled)
        mox_fence_async_proxy(); /* not for nothing: it waits for all copies of the block that are on their way */
    const uint64_t a = mox_wgmma_operand(mox_shared_address(stage) + group * 64 * 128);
    const uint64_t b = mox_wgmma_operand(mox_shared_address(stage) + mox_sm90_tokens_at<ELEMENT>);
    mox_wgmma_begin();
#pragma unroll
    for (int step = 0; step < 4; step++)
        mox_sm90_mma<ELEMENT, N>(d, a + 2 * step, b + 2 * step, step > 0 ? 1 : keep);
    mox_wgmma_commit();
}

__device__ __forceinline__ void mox_sm90_release(mox_sm90_front *front, int stage, int lane)
{
    __syncwarp();
    if (lane == 0)
        mox_mbarrier_arrive(front->empty + stage);
}

/* acc += weight scale * token scale * part */
template <int N>
__device__ __forceinline__ void mox_sm90_promote(float (&acc)[N / 2], const float (&part)[N / 2], const uint8_t *stage,
                                                 const mox_sm90_place &me)
{
    const float2 weight =
        ((const float2 *)(stage + MOX_SM90_WEIGHT_BYTES))[me.group * 4 + me.warp]; /* rows + 0 .. 7, + 8 .. 15 */
    const float2 *token = (const float2 *)(stage + MOX_SM90_TOKEN_SCALES_AT) + me.lane % 4;
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        const float2 scale = token[4 * j];
        acc[4 * j + 0] = __fmaf_rn(__fmul_rn(weight.x, scale.x), part[4 * j + 0], acc[4 * j + 0]);
        acc[4 * j + 1] = __fmaf_rn(__fmul_rn(weight.x, scale.y), part[4 * j + 1], acc[4 * j + 1]);
        acc[4 * j + 2] = __fmaf_rn(__fmul_rn(weight.y, scale.x), part[4 * j + 2], acc[4 * j + 2]);
        acc[4 * j + 3] = __fmaf_rn(__fmul_rn(weight.y, scale.y), part[4 * j + 3], acc[4 * j + 3]);
    }
}

/* `chunks` stages of 16-bit elements. */
template <int ELEMENT, int N>
__device__ __forceinline__ void mox_sm90_loop_wide(float (&acc)[N / 2], mox_sm90_front *front, const uint8_t *stages,
                                                   const mox_sm90_args &args, const mox_sm90_place &me, int chunks,
                                                   mox_sm90_cursor *at)
{
    mox_sm90_issue<ELEMENT, N>(acc, front, stages + (uint64_t)at->stage * args.stage_bytes, *at, args.a_tiled, me.group, 1);
#pragma unroll 1
    for (int k = 1; k < chunks; k++) {
        const int before = at->stage;
        mox_sm90_next(at, args.stages);
        mox_sm90_issue<ELEMENT, N>(acc, front, stages + (uint64_t)at->stage * args.stage_bytes, *at, args.a_tiled, me.group, 1);
        mox_wgmma_wait<1>();
        mox_sm90_release(front, before, me.lane);
    }
    mox_wgmma_wait<0>();
    mox_sm90_release(front, at->stage, me.lane);
    mox_sm90_next(at, args.stages);
}

/* Widths up to which the registers hold the accumulators of two chunks in flight. */
constexpr int MOX_SM90_TWO_AT_ONCE = 112;

/* `chunks` stages of 8-bit elements: two at a time where registers allow, so that the tensor cores have the second while
 * the first is added. */
template <int N>
__device__ __forceinline__ void mox_sm90_loop_bytes(float (&acc)[N / 2], mox_sm90_front *front, const uint8_t *stages,
                                                    const mox_sm90_args &args, const mox_sm90_place &me, int chunks,
                                                    mox_sm90_cursor *at)
{
    int k = 0;
    if constexpr (N <= MOX_SM90_TWO_AT_ONCE) {
        for (; k + 1 < chunks; k += 2) {
            float part[2][N / 2];
            const mox_sm90_cursor first = *at;
            mox_sm90_next(at, args.stages);
            const mox_sm90_cursor second = *at;
            mox_sm90_next(at, args.stages);
            const uint8_t *stage[2] = { stages + (uint64_t)first.stage * args.stage_bytes,
                                        stages + (uint64_t)second.stage * args.stage_bytes };
            mox_sm90_issue<MOX_SM90_E4M3, N>(part[0], front, stage[0], first, args.a_tiled, me.group, 0);
            mox_sm90_issue<MOX_SM90_E4M3, N>(part[1], front, stage[1], second, args.a_tiled, me.group, 0);
            mox_wgmma_wait<1>();
            mox_sm90_promote<N>(acc, part[0], stage[0], me);
            mox_sm90_release(front, first.stage, me.lane);
            mox_wgmma_wait<0>();
            mox_sm90_promote<N>(acc, part[1], stage[1], me);
            mox_sm90_release(front, second.stage, me.lane);
        }
    }
    for (; k < chunks; k++) {
        float part[N / 2];
        const uint8_t *stage = stages + (uint64_t)at->stage * args.stage_bytes;
        mox_sm90_issue<MOX_SM90_E4M3, N>(part, front, stage, *at, args.a_tiled, me.group, 0);
        mox_wgmma_wait<0>();
        mox_sm90_promote<N>(acc, part, stage, me);
        mox_sm90_release(front, at->stage, me.lane);
        mox_sm90_next(at, args.stages);
    }
}

/* ---- between blocks ------------------------------------------------------------------------------------------- */

/* Where the accumulators of a boundary between two blocks lie: [N / 2][128]. */
__device__ __forceinline__ float *mox_sm90_state(const mox_sm90_args &args, int boundary, const mox_sm90_place &me)
{
    const int64_t group = (int64_t)args.list->most / 2 * 128;
    return args.state + ((int64_t)(boundary - 1) * MOX_SM90_GROUPS + me.group) * group + me.thread;
}

/* Leaves the accumulators for the next block. */
template <int N>
__device__ __forceinline__ void mox_sm90_give(const float (&acc)[N / 2], const mox_sm90_args &args, int boundary,
                                              const mox_sm90_place &me)
{
    float *state = mox_sm90_state(args, boundary, me);
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        __stcg(state + i * 128, acc[i]);
    mox_named_barrier(1 + me.group, 128);
    if (me.thread == 0)
        mox_store_release(args.flags + boundary * MOX_SM90_GROUPS + me.group, 1);
}

/* Goes on from the accumulators of the block before. */
template <int N>
__device__ __forceinline__ void mox_sm90_take(float (&acc)[N / 2], const mox_sm90_args &args, int boundary,
                                              const mox_sm90_place &me)
{
    if (me.thread == 0)
        while (mox_load_acquire(args.flags + boundary * MOX_SM90_GROUPS + me.group) == 0)
            ;
    mox_named_barrier(1 + me.group, 128);
    const float *state = mox_sm90_state(args, boundary, me);
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        acc[i] = __ldcg(state + i * 128);
}

#endif
