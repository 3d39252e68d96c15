/* SPDX-License-Identifier: Apache-2.0
 *
 * sm90_codes.cuh - the inner loop for weights that are decoded: a warpgroup takes its 64 rows of a chunk from shared memory
 * to registers, decodes them there to 16 bits, and multiplies them, as operand A, by tokens in shared memory.
 *
 *     columns 0-31 of a chunk    decode | MMA MMA |
 *     columns 32-63                     | decode  | MMA MMA |
 *     words of the next chunk                     | load    |
 *
 * The MMAs of one half run while the other is decoded, and the other warpgroup's beside both. A product is the chain of
 * additions that weights of 16 bits have.
 */
#ifndef MOX_CUDA_SM90_CODES_CUH
#define MOX_CUDA_SM90_CODES_CUH

#include "cuda/expert_gemm/sm90_codes8.cuh"
#include "cuda/expert_gemm/sm90_decode_bytes.cuh"
#include "cuda/expert_gemm/sm90_decode_int4.cuh"
#include "cuda/expert_gemm/sm90_decode_mxfp4.cuh"
#include "cuda/expert_gemm/sm90_decode_mxfp6.cuh"
#include "cuda/expert_gemm/sm90_decode_nvfp4.cuh"
#include "cuda/expert_gemm/sm90_tile.cuh"

template <int ELEMENT> struct mox_sm90_decoder_of;
#define MOX_SM90_CODES(name, file)                                                                                          \
    template <> struct mox_sm90_decoder_of<MOX_SM90_##name> {                                                               \
        using type = mox_sm90_decode_##file;                                                                                \
    };
#include "cuda/expert_gemm/sm90_elements.def"
#undef MOX_SM90_CODES

/* Where the loop is: chunk `k` of the product is number `in` of the stage at `at`. */
struct mox_sm90_chunk {
    mox_sm90_cursor at;
    int k, in;
};

/* One thread's codes of a chunk, two rows of 64 columns, and their scales. */
template <class DECODER> struct mox_sm90_words {
    typename DECODER::codes codes;
    typename DECODER::scales scales;
};

template <class DECODER>
__device__ __forceinline__ mox_sm90_words<DECODER> mox_sm90_load_words(const mox_sm90_args &args, const uint8_t *stage,
                                                                       const mox_sm90_chunk &c, int rows,
                                                                       const mox_sm90_place &me)
{
    using codes = typename DECODER::codes;
    constexpr int CODES_BYTES = 8 * codes::WARP_BYTES; /* of 128 rows */
    const int block = (c.k >> args.scale_shift) - ((c.k - c.in) >> args.scale_shift);
    const int pair = me.group * 32 + me.warp * 8 + me.lane / 4;
    const uint8_t *warp = stage + c.in * rows * (CODES_BYTES / 128) + (4 * me.group + me.warp) * codes::WARP_BYTES;
    const uint8_t *scales = stage + args.together * CODES_BYTES + (block * (rows / 2) + pair) * DECODER::pair_bytes(args);
    return { codes::load(warp, me.lane), DECODER::load(scales, args) };
}

template <bool F16, int N>
__device__ __forceinline__ void mox_sm90_mma_registers(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b)
{
    if constexpr (F16)
        mox_wgmma_registers_f16<N>(d, a, b, 1);
    else
        mox_wgmma_registers_bf16<N>(d, a, b, 1);
}

/* Half `h` of a chunk, 32 columns, and its MMAs on their way. */
template <class DECODER, int N>
__device__ __forceinline__ void mox_sm90_multiply_half(float (&acc)[N / 2], const typename DECODER::codes &codes,
                                                       const typename DECODER::multipliers &m, int h, uint32_t b)
{
    uint32_t a[2][4];
    DECODER::decode(a[0], codes.part(2 * h), m, 2 * h);
    DECODER::decode(a[1], codes.part(2 * h + 1), m, 2 * h + 1);
    mox_wgmma_begin();
    mox_sm90_mma_registers<DECODER::F16, N>(acc, a[0], mox_wgmma_operand(b + 4 * h));
    mox_sm90_mma_registers<DECODER::F16, N>(acc, a[1], mox_wgmma_operand(b + 4 * h + 2));
    mox_wgmma_commit();
}

/* `chunks` chunks from `first` on; `rows` and `width` of weights' and tokens' tiles. No MMA is under way from one chunk to
 * the next: registers that MMAs read around a loop the compiler keeps for good, for each width by itself. */
template <class DECODER, int N>
__device__ __forceinline__ void mox_sm90_loop_codes(float (&acc)[N / 2], mox_sm90_front *front, const uint8_t *stages,
                                                    const mox_sm90_args &args, const mox_sm90_place &me, int first,
                                                    int chunks, int rows, int width, mox_sm90_cursor *cursor)
{
    mox_sm90_chunk c = { *cursor, first, 0 };
    const int end = first + chunks;
    mox_mbarrier_wait(front->full + c.at.stage, c.at.parity);
    mox_sm90_words<DECODER> words =
        mox_sm90_load_words<DECODER>(args, mox_sm90_stage_at(args, stages, c.at), c, rows, me);
#pragma unroll 1
    while (c.k < end) {
        const typename DECODER::codes codes = words.codes;
        const typename DECODER::multipliers m = DECODER::prepare(words.scales, args);
        const int stage = c.at.stage;
        const uint32_t b = mox_wgmma_low(mox_shared_address(mox_sm90_stage_at(args, stages, c.at)) + args.tokens_at +
                                         c.in * width * 128);
        mox_sm90_multiply_half<DECODER, N>(acc, codes, m, 0, b);
        mox_sm90_multiply_half<DECODER, N>(acc, codes, m, 1, b);
        const bool leaves = ++c.k == end || c.in + 1 == args.together;
        c.in = leaves ? 0 : c.in + 1;
        if (leaves)
            mox_sm90_next(&c.at, args.stages);
        if (leaves && c.k < end)
            mox_mbarrier_wait(front->full + c.at.stage, c.at.parity);
        if (c.k < end)
            words = mox_sm90_load_words<DECODER>(args, mox_sm90_stage_at(args, stages, c.at), c, rows, me);
        mox_wgmma_wait<0>();
        if (leaves)
            mox_sm90_release(args, front, stage, me.lane);
    }
    *cursor = c.at;
}

/* `chunks` stages in width N; the sums behind them are zero, which frees their registers meanwhile. */
template <int ELEMENT, int N, int SUMS>
__device__ __forceinline__ void mox_sm90_loop(float (&sums)[SUMS], mox_sm90_front *front,
                                              const uint8_t *stages, const mox_sm90_args &args,
                                              const mox_sm90_place &me, const mox_sm90_piece &piece, int chunks,
                                              mox_sm90_consumer *c)
{
    float(&acc)[N / 2] = reinterpret_cast<float(&)[N / 2]>(sums);
    if constexpr (MOX_SM90_DECODES(ELEMENT) && MOX_SM90_SCALES(ELEMENT) > 0)
        mox_sm90_loop_codes8<typename mox_sm90_decoder_of<ELEMENT>::type, N>(acc, front, stages, args, me, chunks, piece.rows,
                                                                             mox_sm90_tile_rows(piece), &c->at);
    else if constexpr (MOX_SM90_DECODES(ELEMENT))
        mox_sm90_loop_codes<typename mox_sm90_decoder_of<ELEMENT>::type, N>(
            acc, front, stages, args, me, piece.begin, chunks, piece.rows, mox_sm90_tile_rows(piece), &c->at);
    else if constexpr (ELEMENT != MOX_SM90_E4M3)
        mox_sm90_loop_wide<ELEMENT, N>(acc, front, stages, args, me, chunks, &c->at);
    else if constexpr (N <= MOX_SM90_BY_TWO)
        mox_sm90_loop_by_two<N>(acc, front, stages, args, me, chunks, &c->at);
    else
        mox_sm90_loop_by_one<N>(acc, front, stages, args, me, chunks, &c->at);
#pragma unroll
    for (int i = N / 2; i < SUMS; i++)
        sums[i] = 0.0f;
}

#endif
