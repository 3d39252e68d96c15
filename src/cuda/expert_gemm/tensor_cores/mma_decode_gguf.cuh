/* SPDX-License-Identifier: Apache-2.0
 *
 * mma_decode_gguf.cuh - block types of GGUF in layout hopper_codes (pack/hopper/hopper_blocks.h), w = d s (level -
 * offset) -+ m t. Codes become bf16: exactly their levels less the offset, over a power of two. d and s multiply the
 * sum of each run; the minimums are a second product, of t as bf16 by the tokens, or on Hopper by sums of the tokens of
 * each run (mma_args.h), whose sum m multiplies.
 *
 *     4 bits     q4_k      a code is its level: one mask and one fused multiply-add for two (mma_decode_ints.cuh)
 *                iq4_xs    a code numbers a level: bytes of two tables of eight, by byte permutation, four at a time
 *     5 bits     q5_k      four bits and one bit
 *     6 bits     q6_k      four bits and two bits, as in mma_decode_mxfp6.cuh
 *     scales     of a row and 256 columns: d, m (f16), then bytes for each chunk: s of its runs, t of its runs
 *
 * Which of a type's numbers follow from its bits is here; the others are in mox_sm90_block_format. Minimums are no
 * run-time choice: a branch between two groups of wgmma makes the compiler wait for each MMA.
 */
#ifndef MOX_CUDA_SM90_DECODE_GGUF_CUH
#define MOX_CUDA_SM90_DECODE_GGUF_CUH

#include "cuda/expert_gemm/tensor_cores/mma_scales.cuh"
#include "cuda/ptx/ptx_pairs.cuh"

/* What a row has for one chunk: d in the low half and m in the high one; a byte for each integer. */
struct mox_sm90_row_scales {
    uint32_t floats, integers;
};
struct mox_sm90_pair_scales {
    mox_sm90_row_scales low, high; /* rows r and r + 8 */
};

/* RUNS: of a chunk, with an s each, and a t where there are minimums. */
template <int RUNS, bool HAS_MINIMUMS> struct mox_sm90_decode_gguf {
    static constexpr bool F16 = false, BY_CHUNK = false, MINIMUMS = HAS_MINIMUMS;
    static constexpr int GROUPS = RUNS;
    static constexpr uint32_t TO_2_120 = 0x7b807b80;
    using scales = mox_sm90_pair_scales;

    static __device__ __forceinline__ int pair_bytes(const mox_sm90_args &args)
    {
        return 2 * args.block.row_bytes;
    }

    static __device__ __forceinline__ scales load(const uint8_t *at, const mox_sm90_args &args, int k)
    {
        const int from = (k & 3) << args.block.chunk_shift;
        return { load_row(at, from), load_row(at + args.block.row_bytes, from) };
    }

    using multipliers = uint32_t; /* the offset */
    static __device__ __forceinline__ multipliers prepare(const scales &, const mox_sm90_args &args)
    {
        return args.block.offset;
    }

    static __device__ __forceinline__ float2 sum_scales(const scales &s, int g, const mox_sm90_args &args)
    {
        return make_float2(sum_scale(s.low, g, args), sum_scale(s.high, g, args));
    }

    /* The operand A of 16 columns of run g that makes sums of minimums, and what multiplies their sum. */
    static __device__ __forceinline__ void place_minimums(uint32_t (&a)[4], const scales &s, int g)
    {
        a[0] = a[2] = minimums(s.low, g);
        a[1] = a[3] = minimums(s.high, g);
    }
    /* The operand A of the MMA of runs 4 i to 4 i + 3 of a block, each of which has four columns: three by the parts of
     * its sum of tokens, which is 2^-5 times as large, and one by zero. `at`: the block's scales of the lane's rows. */
    static __device__ __forceinline__ void place_minimums_of_block(uint32_t (&a)[4], const uint8_t *at,
                                                                   const mox_sm90_args &args, int i, int lane)
    {
        constexpr uint32_t TO_2_125 = 0x7e007e00;
        const uint8_t *first = at + 4 + (2 * i << args.block.chunk_shift) + RUNS + lane % 4 / 2;
#pragma unroll
        for (int j = 0; j < 4; j++)
            a[j] = mox_bf16x2_mul(first[(j / 2 << args.block.chunk_shift) + j % 2 * args.block.row_bytes] * 0x10001u,
                                  TO_2_125);
    }
    static __device__ __forceinline__ float2 minimum_scales(const scales &s, const mox_sm90_args &args)
    {
        return make_float2(__fmul_rn(placed(s.low.floats), args.block.minimum_unit),
                           __fmul_rn(placed(s.high.floats), args.block.minimum_unit));
    }

  private:
    /* Integers that fill half a word are moved to its low half. */
    static __device__ __forceinline__ mox_sm90_row_scales load_row(const uint8_t *at, int from)
    {
        const uint32_t *words = (const uint32_t *)at;
        return { words[0], words[1 + from / 4] >> 8 * (from % 4) };
    }

    /* The f16 in the high half of a word, as an f32 2^-112 times as large. */
    static __device__ __forceinline__ float placed(uint32_t word)
    {
        return __int_as_float((int)word >> 3 & (int)0x8fffe000);
    }

    static __device__ __forceinline__ float sum_scale(const mox_sm90_row_scales &row, int g, const mox_sm90_args &args)
    {
        const float d = __fmul_rn(placed(row.floats << 16), args.block.unit);
        return __fmul_rn(d, (float)(int8_t)(row.integers >> 8 * g));
    }

    /* t of run g, as a pair of bf16 2^-13 times as large. */
    static __device__ __forceinline__ uint32_t minimums(const mox_sm90_row_scales &row, int g)
    {
        return mox_bf16x2_mul((row.integers >> 8 * (RUNS + g) & 255) * 0x10001, TO_2_120);
    }
};

struct mox_sm90_decode_gguf4 : mox_sm90_decode_gguf<2, true> {
    using codes = mox_sm90_codes_of_4;

    /* Codes in bits 7 .. 4 are bf16 of 2^-129 times their numbers. */
    static __device__ __forceinline__ void decode(uint32_t (&a)[4], uint32_t word, uint32_t offset, int)
    {
        constexpr uint32_t CODE = 0x00f000f0;
        a[0] = mox_bf16x2_fma(word << 4 & CODE, TO_2_120, offset);
        a[1] = mox_bf16x2_fma(word & CODE, TO_2_120, offset);
        a[2] = mox_bf16x2_fma(word >> 4 & CODE, TO_2_120, offset);
        a[3] = mox_bf16x2_fma(word >> 8 & CODE, TO_2_120, offset);
    }
};

struct mox_sm90_decode_gguf4_levels : mox_sm90_decode_gguf<2, false> {
    using codes = mox_sm90_codes_of_4;

    /* Levels plus 128 in bits 7 .. 0 are bf16 of 2^-133 times them. */
    static __device__ __forceinline__ void decode(uint32_t (&a)[4], uint32_t word, uint32_t offset, int)
    {
        constexpr uint32_t LEVEL = 0x00ff00ff;
        const uint32_t first = levels(word), second = levels(word >> 16);
        a[0] = mox_bf16x2_fma(first & LEVEL, TO_2_120, offset);
        a[1] = mox_bf16x2_fma(first >> 8 & LEVEL, TO_2_120, offset);
        a[2] = mox_bf16x2_fma(second & LEVEL, TO_2_120, offset);
        a[3] = mox_bf16x2_fma(second >> 8 & LEVEL, TO_2_120, offset);
    }

  private:
    /* The levels of iq4_nl plus 128 (format/block_at.h) of the four codes in the low half of a word. */
    static __device__ __forceinline__ uint32_t levels(uint32_t codes)
    {
        const uint32_t in_eight = codes & 0x7777, which = (codes >> 1 & 0x4444) | 0x3210;
        const uint32_t low = __byte_perm(0x3f2d1801u, 0x766a5d4fu, in_eight),
                       high = __byte_perm(0xa6998d81u, 0xf1d9c5b5u, in_eight);
        return __byte_perm(low, high, which);
    }
};

/* Codes of BITS bits: four of them in one plane, the others in a second, where PARTS times 16 columns share a word. */
template <int BITS, class CODES, int RUNS, bool HAS_MINIMUMS, int PARTS>
struct mox_sm90_decode_gguf_planes : mox_sm90_decode_gguf<RUNS, HAS_MINIMUMS> {
    using codes = CODES;

    /* Codes in bits 7 .. 8 - BITS are bf16 of 2^(-125 - BITS) times their numbers. */
    static __device__ __forceinline__ void decode(uint32_t (&a)[4], uint2 words, uint32_t offset, int j)
    {
        constexpr uint32_t FOUR = 0x00f000f0, SECOND = BITS == 5 ? 0x00080008 : 0x000c000c;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int turns = (BITS - 4) * (i + 4 * (j % PARTS));
            const uint32_t code =
                (__funnelshift_l(words.x, words.x, 4 * i) & FOUR) | (__funnelshift_l(words.y, words.y, turns) & SECOND);
            a[i] = mox_bf16x2_fma(code, mox_sm90_decode_gguf<RUNS, HAS_MINIMUMS>::TO_2_120, offset);
        }
    }
};

using mox_sm90_decode_gguf5 = mox_sm90_decode_gguf_planes<5, mox_sm90_codes_of_5, 2, true, 4>;
using mox_sm90_decode_gguf6 = mox_sm90_decode_gguf_planes<6, mox_sm90_codes_of_6, 4, false, 2>;

#endif
