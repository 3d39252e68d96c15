/* SPDX-License-Identifier: Apache-2.0
 *
 * mma_tile.cuh - the main loop of one warpgroup for weights that the tensor cores read as they are: 64 rows of weights
 * by N tokens, chunk after chunk of the ring; and the hand-off of accumulators between blocks.
 *
 *     16-bit elements    acc += chunk                               one chain of additions on the tensor cores
 *     8-bit integers     the same in int32, which holds MOX_SM90_MAX_INT8_TERMS products
 *     8-bit floats       acc += weight scale * token scale * chunk; each chunk (128 columns) starts from zero on the
 *                        tensor cores, then one fused multiply-add in fp32
 *
 * Thread t of the warpgroup holds acc[4 j + 2 h + c] = row 16 (t / 32) + 8 h + (t % 32) / 4, column 8 j + 2 (t % 4) +
 * c. A tile of N columns uses the first N / 2 of the accumulators, in every width: so all widths share one epilogue.
 */
#ifndef MOX_CUDA_SM90_TILE_CUH
#define MOX_CUDA_SM90_TILE_CUH

#include <type_traits>

#include "cuda/expert_gemm/tensor_cores/mma_ring.cuh"
#include "cuda/ptx/ptx_sync.cuh"
#include "cuda/ptx/ptx_wgmma.cuh"

/* What a consumer keeps from one work unit to the next. */
struct mox_sm90_consumer {
    mox_sm90_cursor at;
    uint32_t rounds; /* rounds of quantizing so far */
};

constexpr int MOX_SM90_WARPGROUP_BARRIER = 1; /* and the next one: of each warpgroup */
constexpr int MOX_SM90_CONSUMER_BARRIER = 3;  /* of all consumers */

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

/* Waits for a stage and issues its MMAs. */
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

/* Releases a stage to the producers, of both blocks in a pair. Lanes that read the stage themselves arrive one by one
 * (mox_sm90_arrivals), which takes no longer than one arrival for all. */
template <int ELEMENT>
__device__ __forceinline__ void mox_sm90_release(const mox_sm90_args &args, mox_sm90_header *header, int stage,
                                                 int lane)
{
    constexpr bool EACH = mox_sm90_arrivals<ELEMENT> == 32;
    if (!EACH || args.paired)
        __syncwarp();
    if (EACH || lane == 0)
        mox_mbarrier_arrive(header->empty + stage);
    if (args.paired && lane == 0) /* one lane for all: the other block is far */
        mox_cluster_arrive(mox_cluster_address(header->empty + stage, mox_sm90_rank(args) ^ 1));
}

/* acc += weight scale * token scale * part. `weight`: scales of this thread's rows. `tokens`: scales of the tokens. */
template <int N>
__device__ __forceinline__ void mox_sm90_scale_and_add(float (&acc)[N / 2], const float (&part)[N / 2], float2 weight,
                                                       const uint8_t *tokens, int lane)
{
    const float2 *token = (const float2 *)tokens + lane % 4;
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        const float2 scale = token[4 * j];
        acc[4 * j + 0] = __fmaf_rn(__fmul_rn(weight.x, scale.x), part[4 * j + 0], acc[4 * j + 0]);
        acc[4 * j + 1] = __fmaf_rn(__fmul_rn(weight.x, scale.y), part[4 * j + 1], acc[4 * j + 1]);
        acc[4 * j + 2] = __fmaf_rn(__fmul_rn(weight.y, scale.x), part[4 * j + 2], acc[4 * j + 2]);
        acc[4 * j + 3] = __fmaf_rn(__fmul_rn(weight.y, scale.y), part[4 * j + 3], acc[4 * j + 3]);
    }
}

/* The same from a stage of e4m3. */
template <int N>
__device__ __forceinline__ void mox_sm90_promote(float (&acc)[N / 2], const float (&part)[N / 2], const uint8_t *stage,
                                                 const mox_sm90_place &me)
{
    const float2 weight =
        ((const float2 *)(stage +
                          MOX_SM90_WEIGHT_BYTES))[me.group * 4 + me.warp]; /* rows 0 .. 7, and 8 .. 15 of the warp */
    mox_sm90_scale_and_add<N>(acc, part, weight, stage + MOX_SM90_TOKEN_SCALES_AT, me.lane);
}

__device__ __forceinline__ const uint8_t *mox_sm90_stage_at(const mox_sm90_args &args, const uint8_t *stages,
                                                            const mox_sm90_cursor &at)
{
    return stages + (uint64_t)at.stage * args.stage_bytes;
}

/* `chunks` stages of 16-bit elements or of integers. The MMAs of one stage run while the next is issued. */
template <int ELEMENT, int N>
__device__ __forceinline__ void mox_sm90_loop_mma(mox_sm90_sum<ELEMENT> (&acc)[N / 2], mox_sm90_header *header,
                                                  const uint8_t *stages, const mox_sm90_args &args,
                                                  const mox_sm90_place &me, int chunks, mox_sm90_cursor *at)
{
    mox_sm90_issue<ELEMENT, N>(acc, header, mox_sm90_stage_at(args, stages, *at), *at, me.group, 1);
#pragma unroll 1
    for (int k = 1; k < chunks; k++) {
        const int before = at->stage;
        mox_sm90_next_stage(at, args.stages);
        mox_sm90_issue<ELEMENT, N>(acc, header, mox_sm90_stage_at(args, stages, *at), *at, me.group, 1);
        mox_wgmma_wait<1>();
        mox_sm90_release<ELEMENT>(args, header, before, me.lane);
    }
    mox_wgmma_wait<0>();
    mox_sm90_release<ELEMENT>(args, header, at->stage, me.lane);
    mox_sm90_next_stage(at, args.stages);
}

/* `chunks` stages of 8-bit floats, one at a time: the other warpgroup uses the tensor cores while this one adds. */
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
        mox_sm90_next_stage(at, args.stages);
    }
}

/* `chunks` stages of 8-bit floats, two at a time: the tensor cores compute the second while the first is added. */
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
        mox_sm90_next_stage(at, args.stages);
        const mox_sm90_cursor second = *at;
        mox_sm90_next_stage(at, args.stages);
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

/* mox_sm90_loop_mma() for integers. Everywhere else their sums are words that look like floats: the epilogue takes
 * floats, and with both types the compiler runs out of registers. */
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

/* Widths up to which the registers hold the accumulators of two chunks in flight. */
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

/* Resumes from the accumulators of the block before. First it polls all words, eight loads in flight; then, behind a
 * barrier, it reads them once more. Accumulators that come out of a loop which threads leave one by one would make the
 * compiler wait for each MMA. */
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
    mox_named_barrier(MOX_SM90_WARPGROUP_BARRIER + me.group, 128);
#pragma unroll
    for (int i = 0; i < SUMS; i++)
        if (i / 4 * 8 < columns)
            sums[i] = __uint_as_float((uint32_t)mox_load_relaxed(state + i * 128));
}

#endif
