/* SPDX-License-Identifier: Apache-2.0
 *
 * sm80_tile.cuh - multiplies one chunk by N tokens, with mma.sync: one or two groups of a warp's 16 rows of weights.
 *
 *     operand A    four fragments of 16 rows x 32 bytes of tokens' elements: decoded from codes in registers, or loaded
 *                  by ldmatrix
 *     operand B    tokens, eight at a time, by ldmatrix
 *     sums         one chain of additions over K; or, where scales multiply sums, each group of a chunk begins anew
 *
 * Chunks lie in shared memory as the tensor cores of Hopper read them: rows of 128 bytes, whose 16-byte units are
 * swizzled so that ldmatrix meets no bank twice. Accumulators lie as mma_tile.cuh says, so the epilogue is the same.
 */
#ifndef MOX_CUDA_SM80_TILE_CUH
#define MOX_CUDA_SM80_TILE_CUH

#include "cuda/expert_gemm/tensor_cores/mma_codes.cuh"
#include "cuda/expert_gemm/tensor_cores/mma_tile.cuh"
#include "cuda/ptx/ptx_mma.cuh"

/* How an element's tokens are multiplied. */
template <int ELEMENT> constexpr bool mox_sm80_is_f16 = false;
template <> constexpr bool mox_sm80_is_f16<MOX_SM90_F16> = true;
template <> constexpr bool mox_sm80_is_f16<MOX_SM90_INT4_F16_SHORT> = true;
template <> constexpr bool mox_sm80_is_f16<MOX_SM90_INT4_F16_LONG> = true;

/* d[16, 8] += fragment * eight tokens. Sums of integers are words that look like floats, as in mma_tile.cuh. */
template <int ELEMENT>
__device__ __forceinline__ void mox_sm80_mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    if constexpr (ELEMENT == MOX_SM90_INT8) {
        int32_t sums[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            sums[i] = __float_as_int(d[i]);
        mox_mma_s8(sums, a, b);
#pragma unroll
        for (int i = 0; i < 4; i++)
            d[i] = __int_as_float(sums[i]);
    } else if constexpr (mox_sm80_is_f16<ELEMENT>) {
        mox_mma_f16(d, a, b);
    } else {
        mox_mma_bf16(d, a, b);
    }
}

/* ---- operand A --------------------------------------------------------------------------------------------------- */

/* The four fragments of a chunk, and how their sums are scaled: words() are what a thread loads, decoded by load(). */
template <int ELEMENT> struct mox_sm80_from_codes {
    using decoder = typename mox_sm90_decoder_of<ELEMENT>::type;
    using words_of_chunk = mox_sm90_words<decoder>;
    mox_sm90_view<decoder> from;

    __device__ __forceinline__ mox_sm80_from_codes(const mox_sm90_args &args, const uint8_t *stage, int k,
                                                   const mox_sm90_place &me)
        : from(args, stage, args.chunks_per_stage, k, me)
    {
    }

    /* Of chunk i of the stage. */
    __device__ __forceinline__ words_of_chunk words(int i) const
    {
        return from.words(i);
    }

    __device__ __forceinline__ void load(uint32_t (&a)[4][4], const words_of_chunk &words) const
    {
        const typename decoder::multipliers m = decoder::prepare(words.scales, from.args);
#pragma unroll
        for (int t = 0; t < 4; t++)
            decoder::decode(a[t], words.codes.part(t), m, t);
    }
};

/* Weights as the tensor cores read them: one chunk a stage. */
struct mox_sm80_from_rows {
    struct words_of_chunk {
    };
    uint32_t row; /* address of this lane's row of four 8 x 8 matrices */

    __device__ __forceinline__ mox_sm80_from_rows(const mox_sm90_args &, const uint8_t *stage, int,
                                                  const mox_sm90_place &me)
    {
        const int r = me.lane % 16;
        row = mox_shared_address(stage) + (me.group * 64 + me.warp * 16 + r) * 128 + ((me.lane / 16 ^ r % 8) << 4);
    }

    __device__ __forceinline__ words_of_chunk words(int) const
    {
        return {};
    }

    __device__ __forceinline__ void load(uint32_t (&a)[4][4], const words_of_chunk &) const
    {
#pragma unroll
        for (int t = 0; t < 4; t++)
            mox_ldmatrix_x4(a[t], row ^ t << 5);
    }
};

template <int ELEMENT, bool DECODES> struct mox_sm80_weights {
    using type = mox_sm80_from_rows;
};
template <int ELEMENT> struct mox_sm80_weights<ELEMENT, true> {
    using type = mox_sm80_from_codes<ELEMENT>;
};

/* ---- a chunk ----------------------------------------------------------------------------------------------------- */

/* Eight tokens of a chunk: operand B of the four fragments. */
struct mox_sm80_tokens {
    uint32_t at; /* address of this lane's row of four 8 x 8 matrices, 64 bytes */

    __device__ __forceinline__ mox_sm80_tokens(const uint8_t *tokens, int lane)
        : at(mox_shared_address(tokens) + lane % 8 * 128 + ((lane / 8 ^ lane % 8) << 4))
    {
    }

    __device__ __forceinline__ void load(uint32_t (&b)[4][2], uint32_t offset) const
    {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t m[4];
            mox_ldmatrix_x4(m, (at ^ h << 6) + offset);
            b[2 * h][0] = m[0];
            b[2 * h][1] = m[1];
            b[2 * h + 1][0] = m[2];
            b[2 * h + 1][1] = m[3];
        }
    }
};

/* Tokens of a tile, and rows that they have in a stage: a multiple of eight. */
struct mox_sm80_span {
    int columns, rows;
};

/* EIGHTS times eight tokens are multiplied at a time: so many chains of MMAs, times groups of rows, hide each other's
 * latency. */
template <int N> constexpr int mox_sm80_eights = N > 8 ? 2 : 1;

/* The minimums of the chunk's rows times the tokens: one sum over all of its columns. */
template <int ELEMENT, int EIGHTS, int SUMS, int GROUPS, class WEIGHTS>
__device__ __forceinline__ void
mox_sm80_multiply_minimums(float (&acc)[GROUPS][SUMS], int first, const uint32_t (&b)[EIGHTS][4][2],
                           const typename WEIGHTS::words_of_chunk (&words)[GROUPS], const mox_sm90_args &args)
{
    using decoder = typename WEIGHTS::decoder;
#pragma unroll
    for (int r = 0; r < GROUPS; r++) {
        float part[EIGHTS][4] = {};
#pragma unroll
        for (int t = 0; t < 4; t++) {
            uint32_t a[4];
            decoder::place_minimums(a, words[r].scales, t * decoder::GROUPS / 4);
#pragma unroll
            for (int e = 0; e < EIGHTS; e++)
                mox_sm80_mma<ELEMENT>(part[e], a, b[e][t]);
        }
        const float2 weight = decoder::minimum_scales(words[r].scales, args);
#pragma unroll
        for (int i = 0; i < 4 * EIGHTS; i++)
            acc[r][first + i] = __fmaf_rn(i % 4 < 2 ? weight.x : weight.y, part[i / 4][i % 4], acc[r][first + i]);
    }
}

/* Tokens times the rows, where scales multiply the sums of groups: acc += weight scale [* token scale] * sum. */
template <int ELEMENT, int EIGHTS, int SUMS, int GROUPS, class WEIGHTS>
__device__ __forceinline__ void
mox_sm80_multiply_groups(float (&acc)[GROUPS][SUMS], int first, const uint32_t (&a)[GROUPS][4][4],
                         const uint32_t (&b)[EIGHTS][4][2], const typename WEIGHTS::words_of_chunk (&words)[GROUPS],
                         const mox_sm90_args &args, const float *token_scales)
{
    using decoder = typename WEIGHTS::decoder;
    constexpr int EACH = 4 / decoder::GROUPS;
#pragma unroll
    for (int g = 0; g < decoder::GROUPS; g++) {
        float part[GROUPS][EIGHTS][4] = {};
#pragma unroll
        for (int t = g * EACH; t < (g + 1) * EACH; t++)
#pragma unroll
            for (int e = 0; e < EIGHTS; e++)
#pragma unroll
                for (int r = 0; r < GROUPS; r++)
                    mox_sm80_mma<ELEMENT>(part[r][e], a[r][t], b[e][t]);
#pragma unroll
        for (int r = 0; r < GROUPS; r++) {
            const float2 weight = decoder::sum_scales(words[r].scales, g, args);
#pragma unroll
            for (int i = 0; i < 4 * EIGHTS; i++) {
                float scale = i % 4 < 2 ? weight.x : weight.y;
                if constexpr (mox_sm90_token_scales(ELEMENT) > 0)
                    scale = __fmul_rn(scale, token_scales[8 * (i / 4) + i % 2]);
                acc[r][first + i] = __fmaf_rn(scale, part[r][i / 4][i % 4], acc[r][first + i]);
            }
        }
    }
    if constexpr (decoder::MINIMUMS)
        mox_sm80_multiply_minimums<ELEMENT, EIGHTS, SUMS, GROUPS, WEIGHTS>(acc, first, b, words, args);
}

template <int ELEMENT, int EIGHTS, int SUMS, int GROUPS>
__device__ __forceinline__ void mox_sm80_multiply_chain(float (&acc)[GROUPS][SUMS], int first,
                                                        const uint32_t (&a)[GROUPS][4][4],
                                                        const uint32_t (&b)[EIGHTS][4][2])
{
#pragma unroll
    for (int t = 0; t < 4; t++)
#pragma unroll
        for (int e = 0; e < EIGHTS; e++)
#pragma unroll
            for (int r = 0; r < GROUPS; r++)
                mox_sm80_mma<ELEMENT>(reinterpret_cast<float(&)[4]>(acc[r][first + 4 * e]), a[r][t], b[e][t]);
}

/* N tokens, `offset` bytes behind `tokens`, with their scales at `token_scales`, times a chunk. Tokens are loaded while
 * those before are multiplied. */
template <int ELEMENT, int N, int SUMS, int GROUPS, class WEIGHTS>
__device__ __forceinline__ void mox_sm80_multiply_chunk(float (&acc)[GROUPS][SUMS], const WEIGHTS (&weights)[GROUPS],
                                                        const typename WEIGHTS::words_of_chunk (&words)[GROUPS],
                                                        const mox_sm90_args &args, const mox_sm80_tokens &tokens,
                                                        uint32_t offset, const float *token_scales, int columns)
{
    constexpr int EIGHTS = mox_sm80_eights<N>, STEPS = N / 8 / EIGHTS;
    uint32_t a[GROUPS][4][4], b[2][EIGHTS][4][2];
    const auto load = [&](int j) {
#pragma unroll
        for (int e = 0; e < EIGHTS; e++)
            tokens.load(b[j % 2][e], offset + (j * EIGHTS + e) * 1024);
    };
    load(0);
#pragma unroll
    for (int r = 0; r < GROUPS; r++)
        weights[r].load(a[r], words[r]);
#pragma unroll
    for (int j = 0; j < STEPS; j++) {
        const bool more = j + 1 < STEPS && (GROUPS == 1 || 8 * EIGHTS * (j + 1) < columns);
        if (more)
            load(j + 1);
        if constexpr (MOX_SM90_BY_CHUNK(ELEMENT))
            mox_sm80_multiply_groups<ELEMENT, EIGHTS, SUMS, GROUPS, WEIGHTS>(acc, 4 * EIGHTS * j, a, b[j % 2], words,
                                                                             args, token_scales + 8 * EIGHTS * j);
        else
            mox_sm80_multiply_chain<ELEMENT, EIGHTS>(acc, 4 * EIGHTS * j, a, b[j % 2]);
        if (!more)
            break;
    }
}

/* Place of this thread for its group g of rows: a block of 128 threads takes the places of both warpgroups. */
template <int GROUPS> __device__ __forceinline__ mox_sm90_place mox_sm80_place(int g)
{
    const int thread = (int)threadIdx.x;
    return { GROUPS == 1 ? thread / 128 : g, thread % 128, thread / 32 % 4, thread % 32 };
}

template <int ELEMENT> using mox_sm80_weights_of = typename mox_sm80_weights<ELEMENT, MOX_SM90_DECODES(ELEMENT)>::type;

/* COUNT chunks of a stage from chunk i on: what they are decoded from is loaded first. */
template <int ELEMENT, int N, int COUNT, int SUMS, int GROUPS, class WEIGHTS>
__device__ __forceinline__ void
mox_sm80_multiply_chunks(float (&acc)[GROUPS][SUMS], const WEIGHTS (&weights)[GROUPS], int i, const mox_sm90_args &args,
                         const mox_sm80_tokens &tokens, const float *token_scales, const mox_sm80_span &span)
{
    typename WEIGHTS::words_of_chunk words[COUNT][GROUPS];
#pragma unroll
    for (int c = 0; c < COUNT; c++)
#pragma unroll
        for (int r = 0; r < GROUPS; r++)
            words[c][r] = weights[r].words(i + c);
#pragma unroll
    for (int c = 0; c < COUNT; c++)
        mox_sm80_multiply_chunk<ELEMENT, N>(acc, weights, words[c], args, tokens, (i + c) * span.rows * 128,
                                            token_scales + (i + c) * span.rows, span.columns);
}

/* Narrow tiles load the words of two chunks together, where sums of groups leave the registers. */
template <int ELEMENT>
constexpr int mox_sm80_words_together = MOX_SM90_BY_CHUNK(ELEMENT) &&
                                                sizeof(typename mox_sm80_weights_of<ELEMENT>::words_of_chunk) > 24
                                            ? 1
                                            : 2;

/* N tokens times `chunks` chunks of a stage, whose first is chunk k. */
template <int ELEMENT, int N, int SUMS, int GROUPS>
__device__ __forceinline__ void mox_sm80_multiply_stage(float (&acc)[GROUPS][SUMS], const mox_sm90_args &args,
                                                        const uint8_t *stage, const mox_sm80_span &span, int k,
                                                        int chunks)
{
    using weights_of = mox_sm80_weights_of<ELEMENT>;
    const int lane = (int)threadIdx.x % 32;
    const float *scales = (const float *)(stage + mox_sm90_token_scales_at<ELEMENT>(args)) + lane % 4 * 2;
    const mox_sm80_tokens tokens(stage + args.tokens_at, lane);
    if constexpr (GROUPS == 1) {
        constexpr int COUNT = mox_sm80_words_together<ELEMENT>;
        const weights_of weights[1] = { { args, stage, k, mox_sm80_place<1>(0) } };
        int i = 0;
#pragma unroll 1
        for (; i + COUNT <= chunks; i += COUNT)
            mox_sm80_multiply_chunks<ELEMENT, N, COUNT>(acc, weights, i, args, tokens, scales, span);
        if (COUNT > 1 && i < chunks)
            mox_sm80_multiply_chunks<ELEMENT, N, 1>(acc, weights, i, args, tokens, scales, span);
    } else {
        const weights_of weights[2] = { { args, stage, k, mox_sm80_place<2>(0) },
                                        { args, stage, k, mox_sm80_place<2>(1) } };
#pragma unroll 1
        for (int i = 0; i < chunks; i++)
            mox_sm80_multiply_chunks<ELEMENT, N, 1>(acc, weights, i, args, tokens, scales, span);
    }
}

#endif
