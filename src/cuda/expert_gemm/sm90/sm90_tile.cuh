/* SPDX-License-Identifier: Apache-2.0
 *
 * sm90_tile.cuh - the inner loop of one warpgroup: 64 rows of weights by N tokens, chunk after chunk of the ring.
 *
 *     16-bit elements    acc += chunk                               one chain on the tensor cores
 *     8-bit integers     the same, in int32, which MOX_SM90_MAX_INT8_TERMS products fit
 *     8-bit elements     acc += weight scale * token scale * chunk  each chunk (128 columns) from zero on the tensor
 * cores, then one fused multiply-add in fp32
 *
 * Thread t of the warpgroup holds acc[4j + 2h + c] = row 16 (t / 32) + 8h + (t % 32) / 4, column 8j + 2 (t % 4) + c. A
 * tile of N columns has the first N / 2 of the accumulators that all widths share, so that what is done with them when
 * they are finished is there once.
 */
#ifndef MOX_CUDA_SM90_TILE_CUH
#define MOX_CUDA_SM90_TILE_CUH

#include <type_traits>

#include "cuda/expert_gemm/sm90/sm90_ring.cuh"
#include "cuda/ptx/ptx_sync.cuh"
#include "cuda/ptx/ptx_wgmma.cuh"

/* Who this thread is among the consumers. */
struct mox_sm90_place {
    int group, thread, warp, lane; /* thread of the warpgroup, warp of the warpgroup */
};

/* What a consumer keeps from piece to piece. */
struct mox_sm90_consumer {
    mox_sm90_cursor at;
    uint32_t rounds; /* of quantizing so far */
};

constexpr int MOX_SM90_OWN_BARRIER = 1; /* and the next: the warpgroups' */
constexpr int MOX_SM90_ALL_BARRIER = 3; /* of all consumers */

/* An accumulator. */
template <int ELEMENT> using mox_sm90_sum = std::conditional_t<ELEMENT == MOX_SM90_INT8, int32_t, float>;

template <int ELEMENT, int N>
__device__ __forceinline__ void mox_sm90_mma(mox_sm90_sum<ELEMENT> (&d)[N / 2], uint64_t a, uint64_t b, int keep)
{
    if constexpr (ELEMENT == MOX_SM90_INT8)
        mox_wgmma_s8<N>(d, a, b, keep);
    else if constexpr (ELEMENT == MOX_SM90_BF16)
        mox_wgmma_bf16<N>(d, a, b, keep);
    else if constexpr (ELEMENT == MOX_SM90_F16)
        mox_wgmma_f16<N>(d, a, b, keep);
    else
        mox_wgmma_e4m3<N>(d, a, b, keep);
}

/* Columns of one MMA. Wider tiles take two, which read the weights twice. */
constexpr int MOX_SM90_MMA_COLUMNS = 256;

/* Waits for a stage and begins its product. */
template <int ELEMENT, int N>
__device__ __forceinline__ void mox_sm90_issue(mox_sm90_sum<ELEMENT> (&d)[N / 2], mox_sm90_header *header,
                                               const uint8_t *stage, const mox_sm90_cursor &at, int group, int keep)
{
    using half = mox_sm90_sum<ELEMENT>(&)[N / 4];
    const uint32_t a = mox_wgmma_descriptor_low(mox_shared_address(stage) + group * 64 * 128);
    const uint32_t b = mox_wgmma_descriptor_low(mox_shared_address(stage) + mox_sm90_tokens_at<ELEMENT>);
    mox_mbarrier_wait(header->full + at.stage, at.parity);
    mox_wgmma_fence();
#pragma unroll
    for (int step = 0; step < 4; step++) {
        const uint64_t rows = mox_wgmma_descriptor(a + 2 * step);
        if constexpr (N <= MOX_SM90_MMA_COLUMNS) {
            mox_sm90_mma<ELEMENT, N>(d, rows, mox_wgmma_descriptor(b + 2 * step), step > 0 ? 1 : keep);
        } else {
            mox_sm90_mma<ELEMENT, N / 2>(reinterpret_cast<half>(d[0]), rows, mox_wgmma_descriptor(b + 2 * step),
                                         step > 0 ? 1 : keep);
            mox_sm90_mma<ELEMENT, N / 2>(reinterpret_cast<half>(d[N / 4]), rows,
                                         mox_wgmma_descriptor(b + 2 * step + N / 2 * 128 / 16), step > 0 ? 1 : keep);
        }
    }
    mox_wgmma_commit();
}

/* A stage is no longer read, here and by whoever fetched half of its tokens. Lanes that read it themselves say so each
 * for itself (mox_sm90_arrivals()), which takes no longer than one word for all. */
template <int ELEMENT>
__device__ __forceinline__ void mox_sm90_release(const mox_sm90_args &args, mox_sm90_header *header, int stage,
                                                 int lane)
{
    constexpr bool EACH = mox_sm90_arrivals<ELEMENT> == 32;
    if (!EACH || args.paired)
        __syncwarp();
    if (EACH || lane == 0)
        mox_mbarrier_arrive(header->empty + stage);
    if (args.paired && lane == 0) /* of all: that is far */
        mox_cluster_arrive(mox_cluster_address(header->empty + stage, mox_sm90_rank(args) ^ 1));
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

__device__ __forceinline__ const uint8_t *mox_sm90_stage_at(const mox_sm90_args &args, const uint8_t *stages,
                                                            const mox_sm90_cursor &at)
{
    return stages + (uint64_t)at.stage * args.stage_bytes;
}

/* `chunks` stages of 16-bit elements, or of integers. */
template <int ELEMENT, int N>
__device__ __forceinline__ void mox_sm90_loop_mma(mox_sm90_sum<ELEMENT> (&acc)[N / 2], mox_sm90_header *header,
                                                  const uint8_t *stages, const mox_sm90_args &args,
                                                  const mox_sm90_place &me, int chunks, mox_sm90_cursor *at)
{
    mox_sm90_issue<ELEMENT, N>(acc, header, mox_sm90_stage_at(args, stages, *at), *at, me.group, 1);
#pragma unroll 1
    for (int k = 1; k < chunks; k++) {
        const int before = at->stage;
        mox_sm90_next(at, args.stages);
        mox_sm90_issue<ELEMENT, N>(acc, header, mox_sm90_stage_at(args, stages, *at), *at, me.group, 1);
        mox_wgmma_wait<1>();
        mox_sm90_release<ELEMENT>(args, header, before, me.lane);
    }
    mox_wgmma_wait<0>();
    mox_sm90_release<ELEMENT>(args, header, at->stage, me.lane);
    mox_sm90_next(at, args.stages);
}

/* `chunks` stages of 8-bit elements, one at a time: the other warpgroup has the tensor cores while this one adds. */
template <int N>
__device__ __forceinline__ void mox_sm90_loop_fp8_one_stage(float (&acc)[N / 2], mox_sm90_header *header,
                                                            const uint8_t *stages, const mox_sm90_args &args,
                                                            const mox_sm90_place &me, int chunks, mox_sm90_cursor *at)
{
#pragma unroll 1
    for (int k = 0; k < chunks; k++) {
        float part[N / 2];
        const uint8_t *stage = mox_sm90_stage_at(args, stages, *at);
        mox_sm90_issue<MOX_SM90_E4M3, N>(part, header, stage, *at, me.group, 0);
        mox_wgmma_wait<0>();
        mox_sm90_promote<N>(acc, part, stage, me);
        mox_sm90_release<MOX_SM90_E4M3>(args, header, at->stage, me.lane);
        mox_sm90_next(at, args.stages);
    }
}

/* `chunks` stages of 8-bit elements, two at a time, so that the tensor cores have the second while the first is added.
 */
template <int N>
__device__ __forceinline__ void mox_sm90_loop_fp8_two_stages(float (&acc)[N / 2], mox_sm90_header *header,
                                                             const uint8_t *stages, const mox_sm90_args &args,
                                                             const mox_sm90_place &me, int chunks, mox_sm90_cursor *at)
{
    int k = 0;
#pragma unroll 1
    for (; k + 1 < chunks; k += 2) {
        float part[2][N / 2];
        const mox_sm90_cursor first = *at;
        mox_sm90_next(at, args.stages);
        const mox_sm90_cursor second = *at;
        mox_sm90_next(at, args.stages);
        const uint8_t *stage[2] = { mox_sm90_stage_at(args, stages, first), mox_sm90_stage_at(args, stages, second) };
        mox_sm90_issue<MOX_SM90_E4M3, N>(part[0], header, stage[0], first, me.group, 0);
        mox_sm90_issue<MOX_SM90_E4M3, N>(part[1], header, stage[1], second, me.group, 0);
        mox_wgmma_wait<1>();
        mox_sm90_promote<N>(acc, part[0], stage[0], me);
        mox_sm90_release<MOX_SM90_E4M3>(args, header, first.stage, me.lane);
        mox_wgmma_wait<0>();
        mox_sm90_promote<N>(acc, part[1], stage[1], me);
        mox_sm90_release<MOX_SM90_E4M3>(args, header, second.stage, me.lane);
    }
    mox_sm90_loop_fp8_one_stage<N>(acc, header, stages, args, me, chunks - k, at);
}

/* The same for integers, whose sums are words that look like floats everywhere else: that is what an epilogue has to do
 * with, and the compiler runs out of registers where it has both. */
template <int N>
__device__ __forceinline__ void mox_sm90_loop_int8(float (&sums)[N / 2], mox_sm90_header *header, const uint8_t *stages,
                                                   const mox_sm90_args &args, const mox_sm90_place &me, int chunks,
                                                   mox_sm90_cursor *at)
{
    int32_t acc[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        acc[i] = __float_as_int(sums[i]);
    mox_sm90_loop_mma<MOX_SM90_INT8, N>(acc, header, stages, args, me, chunks, at);
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        sums[i] = __int_as_float(acc[i]);
}

/* Widths up to which the registers hold the accumulators of two chunks under way. */
constexpr int MOX_SM90_TWO_STAGE_COLUMNS = 112;

/* ---- between blocks ------------------------------------------------------------------------------------------- */

/* Where the accumulators of a boundary between two blocks lie: [N / 2][128]. A pair of blocks has two such places. */
__device__ __forceinline__ uint64_t *mox_sm90_state(const mox_sm90_args &args, int boundary, const mox_sm90_place &me)
{
    const int place = (boundary - 1) * mox_sm90_cluster_size(args) + mox_sm90_rank(args);
    return args.state + (int64_t)(place * MOX_SM90_GROUPS + me.group) * (args.max_columns / 2 * 128) + me.thread;
}

/* Leaves the accumulators of `columns` for the next block. */
template <int SUMS>
__device__ __forceinline__ void mox_sm90_hand_off(const float (&sums)[SUMS], const mox_sm90_args &args, int boundary,
                                                  int columns, const mox_sm90_place &me)
{
    uint64_t *state = mox_sm90_state(args, boundary, me);
    const uint64_t tag = (uint64_t)args.tag << 32;
#pragma unroll
    for (int i = 0; i < SUMS; i++)
        if (i / 4 * 8 < columns)
            mox_store_relaxed(state + i * 128, tag | __float_as_uint(sums[i]));
}

/* Goes on from the accumulators of the block before. All words are waited for, eight under way at a time, and then read
 * once more behind a barrier: accumulators that come out of a loop which threads leave one by one would have the
 * compiler wait for each MMA by itself. */
template <int SUMS>
__device__ __forceinline__ void mox_sm90_resume(float (&sums)[SUMS], const mox_sm90_args &args, int boundary,
                                                int columns, const mox_sm90_place &me)
{
    constexpr int IN_FLIGHT = 8;
    const uint64_t *state = mox_sm90_state(args, boundary, me);
    const int count = (columns + 7) / 8 * 4;
#pragma unroll 1
    for (int first = 0; first < count;) {
        bool all = true;
#pragma unroll
        for (int i = 0; i < IN_FLIGHT; i++)
            all &= mox_load_relaxed(state + min(first + i, count - 1) * 128) >> 32 == args.tag;
        first += all ? IN_FLIGHT : 0;
    }
    mox_named_barrier(MOX_SM90_OWN_BARRIER + me.group, 128);
#pragma unroll
    for (int i = 0; i < SUMS; i++)
        if (i / 4 * 8 < columns)
            sums[i] = __uint_as_float((uint32_t)mox_load_relaxed(state + i * 128));
}

#endif
