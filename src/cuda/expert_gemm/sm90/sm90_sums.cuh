/* SPDX-License-Identifier: Apache-2.0
 *
 * sm90_sums.cuh - the MMA strategy of the main loop (sm90_dequant.cuh) for codes that become bf16, or e4m3, without the
 * scales of their sums: the tensor cores start each sum from zero, and one fp32 multiply-add applies the scales of its
 * block of weights and of its token. Those for e4m3 keep few bits of a sum, so they add no longer ones.
 *
 *     groups     of a chunk: a sum each; where there are minimums, their sum behind the last chunk of a block
 *     chunks     of one group: a sum each. Wide tiles take two chunks, in halves of their columns:
 *                chunk 0  decode and multiply half 0 | half 1 | add half 0
 *                chunk 1                             | decode and multiply half 0 | add half 1 of chunk 0 | ...
 *     pairs      of bf16, where scales are for 128 columns or more (mox_sm90_args.sum_shift): one sum of chunks 2 i and
 *                2 i + 1; the last one alone where their number is odd. Wide tiles in halves:
 *                both     decode and multiply half 0 | half 1 | add half 0 | add half 1
 *
 * Which of the three adds a sum depends on the layer alone, so the bits are those of every width.
 */
#ifndef MOX_CUDA_SM90_SUMS_CUH
#define MOX_CUDA_SM90_SUMS_CUH

#include "cuda/expert_gemm/tensor_cores/mma_codes.cuh"
#include "cuda/expert_gemm/tensor_cores/mma_tile.cuh"

/* A strategy's tokens, its MMAs, and how their sums are added. */
template <int ELEMENT, int N> struct mox_sm90_parts_of_sums {
    static constexpr bool TOKEN_SCALES = mox_sm90_token_scales(ELEMENT) > 0;
    uint32_t tokens;
    const uint8_t *scales; /* of the tokens of the stage's first chunk */
    int lane;

    __device__ __forceinline__ mox_sm90_parts_of_sums(const uint8_t *at, const uint8_t *token_scales, int my_lane)
        : tokens(mox_wgmma_descriptor_low(mox_shared_address(at))), scales(token_scales), lane(my_lane)
    {
    }

    static __device__ __forceinline__ void end()
    {
    }

    /* MMA `t` of a chunk, for 2 SUMS columns from `first` on, added to `part` or from zero. */
    template <int SUMS>
    __device__ __forceinline__ void issue(float (&part)[SUMS], const uint32_t (&a)[4], int t, bool added, int first,
                                          int offset) const
    {
        const uint64_t b = mox_wgmma_descriptor(tokens + (offset + first * 128) / 16 + 2 * t);
        if constexpr (MOX_SM90_TO_FP8(ELEMENT))
            mox_wgmma_registers_e4m3<2 * SUMS>(part, a, b, added);
        else
            mox_wgmma_registers_bf16<2 * SUMS>(part, a, b, added);
    }

    /* MMA `i` of a block's minimums, by the sums of `width` tokens, which end where the tokens begin. */
    template <int SUMS>
    __device__ __forceinline__ void issue_sums(float (&part)[SUMS], const uint32_t (&a)[4], int i, bool added,
                                               int first, int width) const
    {
        constexpr int EIGHT = 8 * mox_sm90_token_sum_bytes(ELEMENT);
        const uint32_t at = tokens - (width - first) / 8 * EIGHT / 16 + i * EIGHT / 2 / 16;
        mox_wgmma_registers_bf16<2 * SUMS>(part, a, mox_wgmma_descriptor_plain(at, EIGHT), added);
    }

    /* A chunk's MMA, as one wgmma group. */
    template <int SUMS>
    __device__ __forceinline__ void multiply(float (&part)[SUMS], const uint32_t (&a)[4], int t, bool added, int first,
                                             int offset) const
    {
        mox_wgmma_fence();
        issue(part, a, t, added, first, offset);
        mox_wgmma_commit();
    }

    /* Decodes two chunks to `a` and multiplies them, by the first 2 SUMS columns, to one sum. */
    template <class DECODER, int SUMS>
    __device__ __forceinline__ void multiply_both(float (&part)[SUMS], uint32_t (&a)[8][4],
                                                  const mox_sm90_words<DECODER> (&words)[2],
                                                  const typename DECODER::multipliers &m, int offset, int step) const
    {
#pragma unroll
        for (int t = 0; t < 8; t++) {
            DECODER::decode(a[t], words[t / 4].codes.part(t % 4), m, t % 4);
            multiply(part, a[t], t % 4, t > 0, 0, offset + t / 4 * step);
        }
    }

    /* Adds `part` to the columns from `first` on, when all MMAs but the PENDING latest groups are done. */
    template <int PENDING = 0, int SUMS>
    __device__ __forceinline__ void add(float (&all)[N / 2], float (&part)[SUMS], float2 weight, int first,
                                        int offset) const
    {
        float(&acc)[SUMS] = reinterpret_cast<float(&)[SUMS]>(all[first / 2]);
        mox_wgmma_wait<PENDING>();
        if constexpr (TOKEN_SCALES) { /* 128 bytes of a token have one float */
            mox_sm90_scale_and_add<2 * SUMS>(acc, part, weight, scales + offset / 32 + first * 4, lane);
        } else {
#pragma unroll
            for (int i = 0; i < SUMS; i++)
                acc[i] = __fmaf_rn(i / 2 % 2 == 0 ? weight.x : weight.y, part[i], acc[i]);
        }
    }
};

template <int ELEMENT, class DECODER, int N, bool PAIRS>
struct mox_sm90_mma_of_sums : mox_sm90_parts_of_sums<ELEMENT, N> {
    using parts = mox_sm90_parts_of_sums<ELEMENT, N>;
    using parts::mox_sm90_parts_of_sums;
    static constexpr bool FULL_STAGES = true, BY_CHUNK = true;
    static constexpr int GROUPS = PAIRS ? 1 : DECODER::GROUPS;
    static constexpr bool IN_HALVES = GROUPS == 1 && !DECODER::MINIMUMS && N > MOX_SM90_NARROW_COLUMNS_DEQUANT;
    static constexpr int TOGETHER = PAIRS || IN_HALVES ? 2 : 1; /* chunks that two_chunks() takes */
    /* Beside the code of pairs, that of several chunks would need too many registers. */
    static constexpr bool UNROLLED = TOGETHER == 2 || !MOX_SM90_SUMS_PAIRS(ELEMENT) || N <= 24;

    __device__ __forceinline__ void chunk(float (&acc)[N / 2], const mox_sm90_words<DECODER> &words,
                                          const mox_sm90_args &args, int offset) const
    {
        const typename DECODER::multipliers m = DECODER::prepare(words.scales, args);
        uint32_t a[4][4];
        float part[COLUMNS / 2];
#pragma unroll
        for (int t = 0; t < 4; t++) {
            DECODER::decode(a[t], words.codes.part(t), m, t);
            if (t > 0 && t % EACH == 0)
                end_group(acc, part, a, words, args, t / EACH - 1, offset);
            multiply(part, a[t], t, t % EACH > 0, 0, offset);
        }
        end_group(acc, part, a, words, args, GROUPS - 1, offset);
    }

    /* The minimums of the block of 256 columns that a chunk ends, whose scales are `words` and begin at `scales`, times
     * the sums of `width` tokens. */
    __device__ __forceinline__ void minimums(float (&acc)[N / 2], const mox_sm90_words<DECODER> &words,
                                             const uint8_t *scales, const mox_sm90_args &args, int width) const
    {
        uint32_t a[2][4];
        float part[COLUMNS / 2];
#pragma unroll
        for (int i = 0; i < 2; i++)
            DECODER::place_minimums_of_block(a[i], scales, args, i, parts::lane);
        const float2 weight = DECODER::minimum_scales(words.scales, args);
#pragma unroll
        for (int first = 0; first < N; first += COLUMNS) {
            mox_wgmma_fence();
            parts::issue_sums(part, a[0], 0, false, first, width);
            parts::issue_sums(part, a[1], 1, true, first, width);
            mox_wgmma_commit();
            add(acc, part, weight, first, 0);
        }
    }

    /* Two chunks, whose tokens lie `step` bytes apart. `meanwhile` runs beside the last products. */
    template <class MEANWHILE>
    __device__ __forceinline__ void two_chunks(float (&acc)[N / 2], const mox_sm90_words<DECODER> (&words)[2],
                                               const mox_sm90_args &args, int offset, int step,
                                               const MEANWHILE &meanwhile) const
    {
        if constexpr (!PAIRS)
            chunks_in_halves(acc, words, args, offset, step, meanwhile);
        else if constexpr (IN_HALVES)
            pair_in_halves(acc, words, args, offset, step, meanwhile);
        else
            pair(acc, words, args, offset, step, meanwhile);
    }

  private:
    using parts::add;
    using parts::issue;
    using parts::multiply;
    using parts::multiply_both;
    static constexpr int EACH = 4 / GROUPS; /* MMAs of a group */
    static constexpr int HALF_0 = (N + 15) / 16 * 8, HALF_1 = N - HALF_0;
    /* Columns multiplied at a time: half of a tile that would need too many registers in the narrow kernel. */
    static constexpr int COLUMNS = N == MOX_SM90_NARROW_COLUMNS_DEQUANT ? N / 2 : N;

    /* A half is added while the next one is multiplied. */
    template <class MEANWHILE>
    __device__ __forceinline__ void chunks_in_halves(float (&acc)[N / 2], const mox_sm90_words<DECODER> (&words)[2],
                                                     const mox_sm90_args &args, int offset, int step,
                                                     const MEANWHILE &meanwhile) const
    {
        float part_0[HALF_0 / 2], part_1[HALF_1 / 2];
        uint32_t a[2][4][4];
#pragma unroll
        for (int c = 0; c < 2; c++) {
            const typename DECODER::multipliers m = DECODER::prepare(words[c].scales, args);
#pragma unroll
            for (int t = 0; t < 4; t++) {
                DECODER::decode(a[c][t], words[c].codes.part(t), m, t);
                multiply(part_0, a[c][t], t, t > 0, 0, offset + c * step);
            }
            if (c > 0)
                parts::template add<4>(acc, part_1, DECODER::sum_scales(words[0].scales, 0, args), HALF_0, offset);
            mox_wgmma_fence();
#pragma unroll
            for (int t = 0; t < 4; t++)
                issue(part_1, a[c][t], t, t > 0, HALF_0, offset + c * step);
            mox_wgmma_commit();
            if (c > 0)
                meanwhile();
            parts::template add<1>(acc, part_0, DECODER::sum_scales(words[c].scales, 0, args), 0, offset + c * step);
        }
        add(acc, part_1, DECODER::sum_scales(words[1].scales, 0, args), HALF_0, offset + step);
    }

    template <class MEANWHILE>
    __device__ __forceinline__ void pair_in_halves(float (&acc)[N / 2], const mox_sm90_words<DECODER> (&words)[2],
                                                   const mox_sm90_args &args, int offset, int step,
                                                   const MEANWHILE &meanwhile) const
    {
        const typename DECODER::multipliers m = DECODER::prepare(words[0].scales, args);
        const float2 weight = DECODER::sum_scales(words[0].scales, 0, args);
        float part_0[HALF_0 / 2], part_1[HALF_1 / 2];
        uint32_t a[8][4];
        multiply_both(part_0, a, words, m, offset, step);
        mox_wgmma_fence();
#pragma unroll
        for (int t = 0; t < 8; t++)
            issue(part_1, a[t], t % 4, t > 0, HALF_0, offset + t / 4 * step);
        mox_wgmma_commit();
        meanwhile();
        parts::template add<1>(acc, part_0, weight, 0, offset);
        add(acc, part_1, weight, HALF_0, offset);
    }

    /* Of a narrow tile. */
    template <class MEANWHILE>
    __device__ __forceinline__ void pair(float (&acc)[N / 2], const mox_sm90_words<DECODER> (&words)[2],
                                         const mox_sm90_args &args, int offset, int step,
                                         const MEANWHILE &meanwhile) const
    {
        const typename DECODER::multipliers m = DECODER::prepare(words[0].scales, args);
        float part[N / 2];
        uint32_t a[8][4];
        multiply_both(part, a, words, m, offset, step);
        meanwhile();
        add(acc, part, DECODER::sum_scales(words[0].scales, 0, args), 0, offset);
    }

    /* Adds the sums of group `g` of the chunk; where they are not those of all columns, multiplies the others first. */
    __device__ __forceinline__ void end_group(float (&acc)[N / 2], float (&part)[COLUMNS / 2],
                                              const uint32_t (&a)[4][4], const mox_sm90_words<DECODER> &words,
                                              const mox_sm90_args &args, int g, int offset) const
    {
        const float2 weight = DECODER::sum_scales(words.scales, g, args);
        add(acc, part, weight, 0, offset);
#pragma unroll
        for (int first = COLUMNS; first < N; first += COLUMNS) {
#pragma unroll
            for (int t = g * EACH; t < (g + 1) * EACH; t++)
                multiply(part, a[t], t, t % EACH > 0, first, offset);
            add(acc, part, weight, first, offset);
        }
    }
};

#endif
