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
 * swizzled so that ldmatrix meets no bank twice. Accumulators lie as sm90_tile.cuh says, so the epilogue is the same.
 */
#ifndef MOX_CUDA_SM80_TILE_CUH
#define MOX_CUDA_SM80_TILE_CUH

#include "cuda/expert_gemm/sm90/sm90_codes.cuh"
#include "cuda/expert_gemm/sm90/sm90_tile.cuh"
#include "cuda/ptx/ptx_mma.cuh"

/* How an element's tokens are multiplied. */
template <int ELEMENT> constexpr bool mox_sm80_is_f16 = false;
template <> constexpr bool mox_sm80_is_f16<MOX_SM90_F16> = true;
template <> constexpr bool mox_sm80_is_f16<MOX_SM90_INT4_F16_SHORT> = true;
template <> constexpr bool mox_sm80_is_f16<MOX_SM90_INT4_F16_LONG> = true;

/* d[16, 8] += fragment * eight tokens. Sums of integers are words that look like floats, as in sm90_tile.cuh. */
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

/* The four fragments of a chunk, and how their sums are scaled. */
template <int ELEMENT> struct mox_sm80_from_codes {
    using decoder = typename mox_sm90_decoder_of<ELEMENT>::type;
    mox_sm90_view<decoder> from;
    mox_sm90_words<decoder> words;

    __device__ __forceinline__ mox_sm80_from_codes(const mox_sm90_args &args, const uint8_t *stage, int k,
                                                   const mox_sm90_place &me)
        : from(args, stage, k, me)
    {
    }

    /* Chunk i of the stage. */
    __device__ __forceinline__ void load(uint32_t (&a)[4][4], int i)
    {
        words = from.words(i);
        const typename decoder::multipliers m = decoder::prepare(words.scales, from.args);
#pragma unroll
        for (int t = 0; t < 4; t++)
            decoder::decode(a[t], words.codes.part(t), m, t);
    }
};

/* Weights as the tensor cores read them: one chunk a stage. */
struct mox_sm80_from_rows {
    uint32_t row; /* address of this lane's row of four 8 x 8 matrices */

    __device__ __forceinline__ mox_sm80_from_rows(const mox_sm90_args &, const uint8_t *stage, int,
                                                  const mox_sm90_place &me)
    {
        const int r = me.lane % 16;
        row = mox_shared_address(stage) + (me.group * 64 + me.warp * 16 + r) * 128 + ((me.lane / 16 ^ r % 8) << 4);
    }

    __device__ __forceinline__ void load(uint32_t (&a)[4][4], int)
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

/* Eight tokens times the rows, where scales multiply the sums of groups: acc += weight scale [* token scale] * sum. */
template <int ELEMENT, class WEIGHTS>
__device__ __forceinline__ void mox_sm80_multiply_groups(float (&acc)[4], const uint32_t (&a)[4][4],
                                                         const uint32_t (&b)[4][2], const WEIGHTS &weights,
                                                         const float *token_scales)
{
    using decoder = typename WEIGHTS::decoder;
    constexpr int EACH = 4 / decoder::GROUPS;
#pragma unroll
    for (int g = 0; g < decoder::GROUPS; g++) {
        float part[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
#pragma unroll
        for (int t = g * EACH; t < (g + 1) * EACH; t++)
            mox_sm80_mma<ELEMENT>(part, a[t], b[t]);
        const float2 weight = decoder::sum_scales(weights.words.scales, g, weights.from.args);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float scale = i < 2 ? weight.x : weight.y;
            if constexpr (mox_sm90_token_scales(ELEMENT) > 0)
                scale = __fmul_rn(scale, token_scales[i % 2]);
            acc[i] = __fmaf_rn(scale, part[i], acc[i]);
        }
    }
}

/* N tokens, `offset` bytes behind `tokens`, with their scales at `token_scales`, times chunk i of a stage. */
template <int ELEMENT, int N, int SUMS, int GROUPS, class WEIGHTS>
__device__ __forceinline__ void mox_sm80_multiply_chunk(float (&acc)[GROUPS][SUMS], WEIGHTS (&weights)[GROUPS], int i,
                                                        const mox_sm80_tokens &tokens, uint32_t offset,
                                                        const float *token_scales, int columns)
{
    uint32_t a[GROUPS][4][4];
#pragma unroll
    for (int g = 0; g < GROUPS; g++)
        weights[g].load(a[g], i);
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        if (GROUPS > 1 && 8 * j >= columns) /* also, eight tokens at a time are loaded, which saves registers */
            break;
        uint32_t b[4][2];
        tokens.load(b, offset + j * 1024);
#pragma unroll
        for (int g = 0; g < GROUPS; g++) {
            float(&sums)[4] = reinterpret_cast<float(&)[4]>(acc[g][4 * j]);
            if constexpr (MOX_SM90_BY_CHUNK(ELEMENT)) {
                mox_sm80_multiply_groups<ELEMENT>(sums, a[g], b, weights[g], token_scales + 8 * j);
            } else {
#pragma unroll
                for (int t = 0; t < 4; t++)
                    mox_sm80_mma<ELEMENT>(sums, a[g][t], b[t]);
            }
        }
    }
}

/* Place of this thread for its group g of rows: a block of 128 threads takes the places of both warpgroups. */
template <int GROUPS> __device__ __forceinline__ mox_sm90_place mox_sm80_place(int g)
{
    const int thread = (int)threadIdx.x;
    return { GROUPS == 1 ? thread / 128 : g, thread % 128, thread / 32 % 4, thread % 32 };
}

template <int ELEMENT> using mox_sm80_weights_of = typename mox_sm80_weights<ELEMENT, MOX_SM90_DECODES(ELEMENT)>::type;

/* N tokens times the chunks of a stage, whose first is chunk k. */
template <int ELEMENT, int N, int SUMS, int GROUPS>
__device__ __forceinline__ void mox_sm80_multiply_stage(float (&acc)[GROUPS][SUMS], const mox_sm90_args &args,
                                                        const uint8_t *stage, const mox_sm90_work_unit &unit, int k)
{
    using weights_of = mox_sm80_weights_of<ELEMENT>;
    const int rows = mox_sm90_tile_rows(unit), chunks = min(args.chunks_per_stage, unit.end - k);
    const int lane = (int)threadIdx.x % 32;
    const float *scales = (const float *)(stage + mox_sm90_token_scales_at<ELEMENT>(args)) + lane % 4 * 2;
    const mox_sm80_tokens tokens(stage + args.tokens_at, lane);
    const auto multiply = [&](auto &weights) {
#pragma unroll 1
        for (int i = 0; i < chunks; i++)
            mox_sm80_multiply_chunk<ELEMENT, N>(acc, weights, i, tokens, i * rows * 128, scales + i * rows,
                                                unit.columns);
    };
    if constexpr (GROUPS == 1) {
        weights_of weights[1] = { { args, stage, k, mox_sm80_place<1>(0) } };
        multiply(weights);
    } else {
        weights_of weights[2] = { { args, stage, k, mox_sm80_place<2>(0) }, { args, stage, k, mox_sm80_place<2>(1) } };
        multiply(weights);
    }
}

#endif
