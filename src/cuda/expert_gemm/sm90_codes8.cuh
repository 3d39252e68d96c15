/* SPDX-License-Identifier: Apache-2.0
 *
 * sm90_codes8.cuh - the inner loop for weights that are decoded to 8 bits: a warpgroup takes its 64 rows of a chunk from shared
 * memory to registers, decodes them there to e4m3 and multiplies them, as operand A, by tokens in shared memory.
 *
 *     sums += weight scale * token scale * part        a part: 32 columns, one MMA from zero
 *
 *     columns 0-31 of a chunk   decode | MMA     | add |
 *     columns 32-63                    | decode  | MMA     | add |
 *     ...
 *     words of the next chunks                                     | load |
 *
 * Two parts take turns, where the registers hold them: one is multiplied while the other is added. Where they do not, the other
 * warpgroup has the tensor cores meanwhile.
 */
#ifndef MOX_CUDA_SM90_CODES8_CUH
#define MOX_CUDA_SM90_CODES8_CUH

#include "cuda/expert_gemm/sm90_decode_mxfp4_e4m3.cuh"
#include "cuda/expert_gemm/sm90_tile.cuh"

/* Widths up to which scales of tokens are read before the part that they belong to is waited for; up to which there are two parts;
 * up to which two chunks are one piece of code. */
constexpr int MOX_SM90_CODES8_EARLY = 32, MOX_SM90_CODES8_BY_TWO = 80, MOX_SM90_CODES8_TOGETHER = 32;

/* Where the loop is: `left` chunks from number `in` of the stage at `at` on, and that stage. */
struct mox_sm90_run {
    mox_sm90_cursor at;
    const uint8_t *stage;
    int in, left, rows, width; /* of weights, of tokens */
};

/* One thread's codes of some chunks, two rows of 128 columns each, and their scales. */
template <class DECODER, int CHUNKS> struct mox_sm90_words8 {
    uint4 codes[CHUNKS][2];
    typename DECODER::scales scales[CHUNKS];
};

template <class DECODER, int CHUNKS>
__device__ __forceinline__ void mox_sm90_load_words8(mox_sm90_words8<DECODER, CHUNKS> &words, const mox_sm90_args &args,
                                                     const mox_sm90_run &run, const mox_sm90_place &me)
{
    constexpr int BYTES = mox_sm90_chunk_bytes(MOX_SM90_MXFP4_E4M3), HALF = BYTES / 4; /* of 64 rows, 64 columns */
    using scales = typename DECODER::scales;
    const int pair = me.group * 32 + me.warp * 8 + me.lane / 4;
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        const uint8_t *codes = run.stage + (run.in + c) * run.rows * (BYTES / 128) + me.group * HALF;
        const scales *from = (const scales *)(run.stage + args.together * BYTES) + (run.in + c) * (run.rows / 2);
        words.codes[c][0] = ((const uint4 *)codes)[me.thread];
        words.codes[c][1] = ((const uint4 *)(codes + run.rows * (BYTES / 256)))[me.thread];
        words.scales[c] = from[pair];
    }
}

/* Of eight columns at a time, this thread's two. */
template <int N>
__device__ __forceinline__ void mox_sm90_load_token_scales(float2 (&scales)[N / 8], const float2 *from)
{
#pragma unroll
    for (int j = 0; j < N / 8; j++)
        scales[j] = from[4 * j];
}

template <int N>
__device__ __forceinline__ void mox_sm90_add_part(float (&sums)[N / 2], const float (&part)[N / 2], float2 weight,
                                                  const float2 (&token)[N / 8])
{
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        const float2 scale = token[i / 4];
        sums[i] = __fmaf_rn(__fmul_rn(i % 4 < 2 ? weight.x : weight.y, i % 2 == 0 ? scale.x : scale.y), part[i], sums[i]);
    }
}

/* `CHUNKS` chunks from `words`. next() brings what comes after them, while the last part is under way. */
template <class DECODER, int N, int CHUNKS, class NEXT>
__device__ __forceinline__ void mox_sm90_multiply_chunks(float (&sums)[N / 2], const mox_sm90_args &args, const mox_sm90_run &run,
                                                         const mox_sm90_place &me, mox_sm90_words8<DECODER, CHUNKS> words,
                                                         NEXT next)
{
    constexpr int PARTS = N <= MOX_SM90_CODES8_BY_TWO ? 2 : 1, GROUPS = 4 * CHUNKS;
    constexpr bool EARLY = N <= MOX_SM90_CODES8_EARLY;
    float part[PARTS][N / 2];
    uint32_t a[2][4];
    const uint32_t b = mox_wgmma_low(mox_shared_address(run.stage) + args.tokens_at + run.in * run.width * 128);
    const float2 *scales = (const float2 *)(run.stage + args.token_scales_at) + run.in * run.width * 2 + me.lane % 4;
    const int width = run.width;
#pragma unroll
    for (int g = 0; g < GROUPS + PARTS - 1; g++) {
        const int before = g + 1 - PARTS; /* the group that is added now */
        float2 token[N / 8];
        if (g < GROUPS) {
            const uint4 codes = words.codes[g / 4][g / 2 % 2];
            DECODER::decode(a[g % 2], g % 2 == 0 ? codes.x : codes.z, g % 2 == 0 ? codes.y : codes.w);
            mox_wgmma_begin();
            mox_wgmma_registers_e4m3<N>(part[g % PARTS], a[g % 2], mox_wgmma_operand(b + g / 4 * width * 8 + g % 4 * 2), 0);
            mox_wgmma_commit();
        }
        if (EARLY && before >= 0)
            mox_sm90_load_token_scales<N>(token, scales + before * width / 2);
        const float2 weight = DECODER::factors(words.scales[max(before, 0) / 4], max(before, 0) % 4);
        if (g == GROUPS + PARTS - 2)
            next();
        if (before < 0)
            continue;
        if (g < GROUPS && PARTS > 1)
            mox_wgmma_wait<1>();
        else
            mox_wgmma_wait<0>();
        if (!EARLY)
            mox_sm90_load_token_scales<N>(token, scales + before * width / 2);
        mox_sm90_add_part<N>(sums, part[before % PARTS], weight, token);
    }
}

/* `chunks` chunks of a row tile of `rows`, tokens of `width`. */
template <class DECODER, int N>
__device__ __forceinline__ void mox_sm90_loop_codes8(float (&sums)[N / 2], mox_sm90_front *front, const uint8_t *stages,
                                                     const mox_sm90_args &args, const mox_sm90_place &me, int chunks, int rows,
                                                     int width, mox_sm90_cursor *cursor)
{
    constexpr int MOST = N <= MOX_SM90_CODES8_TOGETHER ? 2 : 1;
    mox_sm90_run run = { *cursor, mox_sm90_stage_at(args, stages, *cursor), 0, chunks, rows, width };
    mox_sm90_words8<DECODER, MOST> words;
    mox_mbarrier_wait(front->full + run.at.stage, run.at.parity);
    mox_sm90_load_words8<DECODER, MOST>(words, args, run, me);
#pragma unroll 1
    while (run.left > 0) {
        const mox_sm90_run now = run;
        const int count = min(MOST, min(run.left, args.together - run.in));
        run.left -= count;
        run.in += count;
        const bool leaves = run.left == 0 || run.in == args.together;
        if (leaves) {
            mox_sm90_next(&run.at, args.stages);
            run.stage = mox_sm90_stage_at(args, stages, run.at);
            run.in = 0;
        }
        const mox_sm90_words8<DECODER, MOST> these = words;
        const auto next = [&] {
            if (leaves && run.left > 0)
                mox_mbarrier_wait(front->full + run.at.stage, run.at.parity);
            if (run.left > 0)
                mox_sm90_load_words8<DECODER, MOST>(words, args, run, me);
        };
        if (MOST == 1 || count == MOST) {
            mox_sm90_multiply_chunks<DECODER, N, MOST>(sums, args, now, me, these, next);
        } else {
            const mox_sm90_words8<DECODER, 1> first = { { { these.codes[0][0], these.codes[0][1] } }, { these.scales[0] } };
            mox_sm90_multiply_chunks<DECODER, N, 1>(sums, args, now, me, first, next);
        }
        if (leaves)
            mox_sm90_release(args, front, now.at.stage, me.lane);
    }
    *cursor = run.at;
}

#endif
