/* SPDX-License-Identifier: Apache-2.0
 *
 * sm90_dequant.cuh - the main loop for weights that are dequantized. A warp loads the codes of its 16 rows of a chunk
 * from shared memory to registers, dequantizes them there to 16 or to 8 bits, and multiplies them, as operand A of the
 * MMA, by tokens in shared memory. Three MMA strategies:
 *
 *     warpgroup     columns 0-31 of a chunk    decode | MMA MMA |
 *                   columns 32-63                     | decode  | MMA MMA |
 *                   codes of the next chunk                     | load    |
 *     warp          the same with mma.sync of 8 tokens each, whose operand B it loads to registers
 *
 *     sums          16 columns of a chunk      decode | MMA |                from zero; of codes that become e4m3 32
 *                   ... the last ones                             decode | MMA | scaled and added in fp32
 *                   (sm90_sums.cuh)
 *
 * A 16-bit product is the chain of additions that 16-bit weights have. The MMAs of a warp and of a warpgroup add alike,
 * to the bit (measured, docs/kernels-cuda.md).
 */
#ifndef MOX_CUDA_SM90_DEQUANT_CUH
#define MOX_CUDA_SM90_DEQUANT_CUH

#include "cuda/expert_gemm/sm90/sm90_sums.cuh"
#include "cuda/ptx/ptx_mma.cuh"

/* ---- MMA strategies ---------------------------------------------------------------------------------------------- */

/* By a warpgroup: the MMAs of one half run while the next half is decoded. */
template <class DECODER, int N> struct mox_sm90_mma_by_warpgroup {
    static constexpr bool FULL_STAGES = false, BY_CHUNK = false, UNROLLED = true;
    static constexpr int TOGETHER = 1;
    uint32_t tokens;

    __device__ __forceinline__ mox_sm90_mma_by_warpgroup(const uint8_t *at, const uint8_t *, int)
        : tokens(mox_wgmma_descriptor_low(mox_shared_address(at)))
    {
    }

    /* Half `h`, 32 columns, of the chunk whose tokens begin `offset` bytes behind the stage's first. */
    __device__ __forceinline__ void half(float (&acc)[N / 2], const typename DECODER::codes &codes,
                                         const typename DECODER::multipliers &m, int h, int offset) const
    {
        const uint32_t b = tokens + offset / 16 + 4 * h;
        uint32_t a[2][4];
        DECODER::decode(a[0], codes.part(2 * h), m, 2 * h);
        DECODER::decode(a[1], codes.part(2 * h + 1), m, 2 * h + 1);
        mox_wgmma_fence();
        multiply(acc, a[0], mox_wgmma_descriptor(b));
        multiply(acc, a[1], mox_wgmma_descriptor(b + 2));
        mox_wgmma_commit();
        mox_wgmma_wait<1>();
    }

    static __device__ __forceinline__ void end()
    {
        mox_wgmma_wait<0>();
    }

  private:
    static __device__ __forceinline__ void multiply(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b)
    {
        if constexpr (DECODER::F16)
            mox_wgmma_registers_f16<N>(d, a, b, 1);
        else
            mox_wgmma_registers_bf16<N>(d, a, b, 1);
    }
};

/* By each warp alone: with few columns this takes no longer, and warps need not wait for each other. */
template <class DECODER, int N> struct mox_sm90_mma_by_warp {
    static constexpr bool FULL_STAGES = true, BY_CHUNK = false, UNROLLED = true;
    static constexpr int TOGETHER = 1;
    uint32_t tokens; /* address of this lane's row of four 8 x 8 matrices, 32 columns */

    __device__ __forceinline__ mox_sm90_mma_by_warp(const uint8_t *at, const uint8_t *, int lane)
        : tokens(mox_shared_address(at) + lane % 8 * 128 + ((lane / 8 ^ lane % 8) << 4))
    {
    }

    __device__ __forceinline__ void half(float (&acc)[N / 2], const typename DECODER::codes &codes,
                                         const typename DECODER::multipliers &m, int h, int offset) const
    {
        uint32_t a[4], b[N / 8][4];
#pragma unroll
        for (int j = 0; j < N / 8; j++)
            mox_ldmatrix_x4(b[j], (tokens ^ h << 6) + offset + j * 1024);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            DECODER::decode(a, codes.part(2 * h + i), m, 2 * h + i);
#pragma unroll
            for (int j = 0; j < N / 8; j++)
                multiply(reinterpret_cast<float(&)[4]>(acc[4 * j]), a, { b[j][2 * i], b[j][2 * i + 1] });
        }
    }

    static __device__ __forceinline__ void end()
    {
    }

  private:
    static __device__ __forceinline__ void multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
    {
        if constexpr (DECODER::F16)
            mox_mma_f16(d, a, b);
        else
            mox_mma_bf16(d, a, b);
    }
};

/* The strategy for an element and a width. */
template <int ELEMENT, class DECODER, int N>
using mox_sm90_mma_to_16_bits =
    std::conditional_t<N <= mox_sm90_warp_mma_columns(ELEMENT), mox_sm90_mma_by_warp<DECODER, N>,
                       mox_sm90_mma_by_warpgroup<DECODER, N>>;
template <int ELEMENT, class DECODER, int N, bool PAIRS>
using mox_sm90_mma_strategy =
    std::conditional_t<MOX_SM90_BY_CHUNK(ELEMENT), mox_sm90_mma_of_sums<ELEMENT, DECODER, N, PAIRS>,
                       mox_sm90_mma_to_16_bits<ELEMENT, DECODER, N>>;

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

/* Multiplies chunk i of a stage, whose tokens begin `offset` bytes behind the stage's first. */
template <class MMA, class DECODER, int N>
__device__ __forceinline__ void
mox_sm90_multiply_chunk(float (&acc)[N / 2], const MMA &by, const mox_sm90_view<DECODER> &from, int i,
                        const mox_sm90_words<DECODER> &words, const mox_sm90_args &args, int offset, int width)
{
    if constexpr (MMA::BY_CHUNK) {
        by.chunk(acc, words, args, offset);
        if constexpr (DECODER::MINIMUMS)
            if (mox_sm90_ends_block(from.k + i, 1))
                by.minimums(acc, words, from.scales_of(i), args, width);
    } else {
        const typename DECODER::multipliers m = DECODER::prepare(words.scales, args);
        by.half(acc, words.codes, m, 0, offset);
        by.half(acc, words.codes, m, 1, offset);
    }
}

/* Is code for CHUNKS chunks a stage for token tiles of few columns, in the kernel that has code for others, too? */
template <int ELEMENT, int CHUNKS>
constexpr bool mox_sm90_few_columns = (mox_sm90_narrow_columns(ELEMENT) == MOX_SM90_NARROW_COLUMNS_DEQUANT) &&
                                      (CHUNKS == mox_sm90_chunks_per_stage(ELEMENT, MOX_SM90_NARROW_COLUMNS));

/* `chunks` chunks, at least one, from chunk `first` on, of a token tile of `width` columns. A stage has CHUNKS chunks,
 * and is unrolled. Codes are loaded one chunk ahead, across stages too; or two chunks, where a strategy takes two
 * TOGETHER. PAIRS: they have one sum.
 *
 * FULL_STAGES (the strategies warp and sums): the unrolled code runs full stages only, so that loads can move
 * up in it; a stage that is not full runs in a loop behind. With warpgroup MMAs one piece of code runs all stages and
 * leaves a stage where the chunks end. There no MMA may be in flight from one stage to the next: the compiler would
 * keep the registers that it reads for good, and would do so for each width. */
template <int ELEMENT, class DECODER, int N, int CHUNKS, bool PAIRS>
__device__ __forceinline__ void
mox_sm90_loop_dequant(float (&acc)[N / 2], mox_sm90_header *header, const uint8_t *stages, const mox_sm90_args &args,
                      const mox_sm90_place &me, int first, int chunks, int width, mox_sm90_cursor *cursor)
{
    using mma = mox_sm90_mma_strategy<ELEMENT, DECODER, N, PAIRS>;
    using view = mox_sm90_view<DECODER>;
    constexpr int MIN_LEFT = mma::FULL_STAGES ? CHUNKS : 1, AT_ONCE = mma::UNROLLED ? CHUNKS : 1;
    static_assert(CHUNKS % mma::TOGETHER == 0, "mma_args.h gives a stage other chunks");
    const int step =
        (N <= MOX_SM90_NARROW_COLUMNS_DEQUANT ? N : width) * 128; /* bytes from the tokens of one chunk to the next */
    const uint32_t token_scales = mox_sm90_token_scales_at<ELEMENT>(args);
    const uint32_t tokens_at = mox_sm90_few_columns<ELEMENT, CHUNKS> ? args.few_tokens_at : args.tokens_at;
    mox_sm90_cursor at = *cursor;
    int k = first, left = chunks;
    const auto stage_at = [&]() { return mox_sm90_stage_at(args, stages, at); };
    mox_sm90_words<DECODER> words;
    const auto load_first = [&]() {
        mox_mbarrier_wait(header->full + at.stage, at.parity);
        words = view(args, stage_at(), CHUNKS, k, me).words(0);
    };
    load_first();
#pragma unroll 1
    while (left >= MIN_LEFT) {
        const view from(args, stage_at(), CHUNKS, k, me);
        const mma by(stage_at() + tokens_at, stage_at() + token_scales, me.lane);
        const int stage = at.stage, here = left;
        const auto enter_next_stage = [&]() {
            k += CHUNKS;
            left -= CHUNKS;
            mox_sm90_next_stage(&at, args.stages);
            words = {};
            if (left > 0)
                load_first();
        };
#pragma unroll AT_ONCE
        for (int i = 0; i < CHUNKS; i += mma::TOGETHER) {
            if (!mma::FULL_STAGES && i > 0 && i >= here)
                break;
            const mox_sm90_words<DECODER> now = words;
            const auto load_next = [&]() {
                if (i + mma::TOGETHER < CHUNKS)
                    words = from.words(i + mma::TOGETHER);
                else if (mma::FULL_STAGES)
                    enter_next_stage();
            };
            if constexpr (mma::TOGETHER == 2) {
                const mox_sm90_words<DECODER> both[2] = { now, from.words(i + 1) };
                by.two_chunks(acc, both, args, i * step, step, load_next);
            } else {
                load_next();
                mox_sm90_multiply_chunk<mma, DECODER, N>(acc, by, from, i, now, args, i * step, width);
            }
        }
        if (!mma::FULL_STAGES)
            enter_next_stage();
        mma::end();
        mox_sm90_release<MOX_SM90_FIRST_CODES>(args, header, stage, me.lane);
    }
    if (mma::FULL_STAGES && left > 0) {
        const view from(args, stage_at(), CHUNKS, k, me);
        const mma by(stage_at() + tokens_at, stage_at() + token_scales, me.lane);
        int i = 0;
        if constexpr (PAIRS && CHUNKS > 2)
#pragma unroll 1
            for (; i + 2 <= left; i += 2)
                by.two_chunks(acc, { from.words(i), from.words(i + 1) }, args, i * step, step, []() {});
#pragma unroll 1
        for (; i < left; i++)
            mox_sm90_multiply_chunk<mma, DECODER, N>(acc, by, from, i, from.words(i), args, i * step, width);
        mox_sm90_release<MOX_SM90_FIRST_CODES>(args, header, at.stage, me.lane);
        mox_sm90_next_stage(&at, args.stages);
    }
    *cursor = at;
}

/* `chunks` chunks of a work unit in width N. The accumulators behind N / 2 become zero: their registers are free
 * meanwhile. */
template <int ELEMENT, int N, int SUMS, int CHUNKS, bool PAIRS>
__device__ __forceinline__ void mox_sm90_loop(float (&sums)[SUMS], mox_sm90_header *header, const uint8_t *stages,
                                              const mox_sm90_args &args, const mox_sm90_place &me,
                                              const mox_sm90_work_unit &unit, int chunks, mox_sm90_consumer *c)
{
    float(&acc)[N / 2] = reinterpret_cast<float(&)[N / 2]>(sums);
    if constexpr (MOX_SM90_DECODES(ELEMENT))
        mox_sm90_loop_dequant<ELEMENT, typename mox_sm90_decoder_of<ELEMENT>::type, N, CHUNKS, PAIRS>(
            acc, header, stages, args, me, unit.begin, chunks, mox_sm90_tile_rows(unit), &c->at);
    else if constexpr (ELEMENT == MOX_SM90_INT8)
        mox_sm90_loop_int8<N>(acc, header, stages, args, me, chunks, &c->at);
    else if constexpr (ELEMENT != MOX_SM90_E4M3)
        mox_sm90_loop_mma<ELEMENT, N>(acc, header, stages, args, me, chunks, &c->at);
    else if constexpr (N <= MOX_SM90_TWO_STAGE_COLUMNS)
        mox_sm90_loop_fp8_two_stages<N>(acc, header, stages, args, me, chunks, &c->at);
    else
        mox_sm90_loop_fp8_one_stage<N>(acc, header, stages, args, me, chunks, &c->at);
#pragma unroll
    for (int i = N / 2; i < SUMS; i++)
        sums[i] = 0.0f;
}

#endif
