/* SPDX-License-Identifier: Apache-2.0
 *
 * sm90_feed.cuh - the producers: one warp brings weights, three bring the rows of tokens.
 *
 *     weights   a bulk copy a stage, and a small one of the scales; does not wait for the kernel before when the work list is older, so that the ring
 *               is full of weights by the time that the tokens are there
 *     tokens    16 bytes a lane, 8 lanes a row, to the places that the 128-byte swizzle wants; columns past the last token
 *               keep what lies there, since column n of a product depends on row n of the tokens alone
 */
#ifndef MOX_CUDA_SM90_FEED_CUH
#define MOX_CUDA_SM90_FEED_CUH

#include "cuda/expert_gemm/sm90_work.cuh"
#include "cuda/ptx/ptx_copy.cuh"
#include "cuda/ptx/ptx_sync.cuh"

template <int ELEMENT>
__device__ __forceinline__ void mox_sm90_feed_weights(const mox_sm90_args &args, mox_sm90_front *front, uint8_t *stages,
                                                      int lane)
{
    constexpr bool SCALES = ELEMENT == MOX_SM90_E4M3;
    if (!args.early_list)
        mox_grid_wait();
    const mox_sm90_work work = mox_sm90_work_begin(args);
    mox_sm90_cursor at = { 0, 1 };
    for (int n = 0;; n++) {
        const mox_sm90_piece piece = mox_sm90_work_at(args, work, n, lane);
        const int i = n % MOX_SM90_QUEUE;
        mox_mbarrier_wait(front->queue_empty + i, (n / MOX_SM90_QUEUE & 1) ^ 1);
        if (lane == 0) {
            front->queue[i] = piece;
            mox_mbarrier_arrive(front->queue_full + i);
        }
        if (piece.begin == piece.end)
            return;
        const uint32_t rows = piece.tile == args.tiles - 1 ? args.last_rows : 128, scale_bytes = SCALES ? rows / 2 : 0;
        const uint8_t *tile = piece.record + args.tiles_at + (uint64_t)piece.tile * args.tile_bytes;
        const uint8_t *scales = tile + (uint64_t)args.chunks * rows * 128;
        for (int k = piece.begin; k < piece.end; k++) {
            mox_mbarrier_wait(front->empty + at.stage, at.parity);
            if (lane == 0) {
                uint8_t *stage = stages + (uint64_t)at.stage * args.stage_bytes;
                uint64_t *full = front->full + at.stage;
                mox_mbarrier_arrive_expect(full, rows * 128 + scale_bytes);
                mox_bulk_copy(stage, tile + (uint64_t)k * rows * 128, rows * 128, full);
                if constexpr (SCALES)
                    mox_bulk_copy(stage + MOX_SM90_WEIGHT_BYTES, scales + (uint64_t)k * scale_bytes, scale_bytes, full);
            }
            mox_sm90_next(&at, args.stages);
        }
    }
}

/* Tokens of a piece that one warp copies: lane l the 16-byte pieces l % 8 of rows 4 w + l / 8, 12 further on, ... */
constexpr int MOX_SM90_ROWS_TOGETHER = 4 * MOX_SM90_TOKEN_WARPS, MOX_SM90_SCALES_TOGETHER = 32 * MOX_SM90_TOKEN_WARPS;

__device__ __forceinline__ uint32_t mox_sm90_row(const mox_sm90_args &args, const mox_sm90_piece &piece, int column)
{
    if (column >= piece.columns)
        return 0;
    return (uint32_t)(args.a_row != nullptr ? args.a_row[piece.pair + column] : piece.pair + column);
}

/* Where a lane's tokens lie stays in registers over the chunks of a piece: a copy is then a few instructions. */
template <int ELEMENT>
__device__ __forceinline__ void mox_sm90_feed_tokens(const mox_sm90_args &args, mox_sm90_front *front, uint8_t *stages,
                                                     int warp, int lane)
{
    constexpr bool BYTES = ELEMENT == MOX_SM90_E4M3;
    constexpr int MOST = BYTES ? MOX_SM90_MOST_BYTES_COLUMNS : MOX_SM90_MOST_COLUMNS;
    constexpr int ROWS = (MOST + MOX_SM90_ROWS_TOGETHER - 1) / MOX_SM90_ROWS_TOGETHER;
    constexpr int SCALES = BYTES ? (MOST + MOX_SM90_SCALES_TOGETHER - 1) / MOX_SM90_SCALES_TOGETHER : 0;
    mox_grid_wait();
    const int piece16 = lane % 8, first = 4 * warp + lane / 8, first_scale = 32 * warp + lane;
    const uint32_t stride16 = (uint32_t)(args.a_stride / 16);
    /* Rows 12 apart alternate between two places in the swizzle of 8. */
    const int to_lane[2] = { mox_sm90_tokens_at<ELEMENT> + first * 128 + ((piece16 ^ (first & 7)) << 4),
                                  mox_sm90_tokens_at<ELEMENT> + first * 128 + ((piece16 ^ ((first + 4) & 7)) << 4) };
    mox_sm90_cursor at = { 0, 1 };
    for (int n = 0;; n++) {
        const mox_sm90_piece piece = mox_sm90_peek(front, n);
        mox_sm90_drop(front, n, lane);
        if (piece.begin == piece.end)
            return;
        uint32_t offset[ROWS], scale[SCALES + 1];
#pragma unroll
        for (int j = 0; j < ROWS; j++)
            offset[j] = mox_sm90_row(args, piece, first + j * MOX_SM90_ROWS_TOGETHER) * stride16;
#pragma unroll
        for (int j = 0; j < SCALES; j++)
            scale[j] = mox_sm90_row(args, piece, first_scale + MOX_SM90_SCALES_TOGETHER * j) *
                       (uint32_t)args.a_scale_stride;
        for (int k = piece.begin; k < piece.end; k++) {
            const int column = k * 128 + piece16 * 16;
            const uint32_t valid = (uint32_t)max(0, min(16, args.a_bytes - column));
            const uint8_t *from = args.a + (valid > 0 ? column : 0);
            const uint32_t stage = mox_shared_address(stages) + at.stage * args.stage_bytes;
            mox_mbarrier_wait(front->empty + at.stage, at.parity);
#pragma unroll
            for (int j = 0; j < ROWS; j++) {
                if (4 * warp + j * MOX_SM90_ROWS_TOGETHER >= piece.columns)
                    break;
                uint32_t row = offset[j];
                asm volatile("" : "+r"(row)); /* or it is widened for all of them beforehand */
                if (first + j * MOX_SM90_ROWS_TOGETHER < piece.columns)
                    mox_copy16(stage + to_lane[j % 2] + j * MOX_SM90_ROWS_TOGETHER * 128, from + (uint64_t)row * 16,
                               valid);
            }
#pragma unroll
            for (int j = 0; j < SCALES; j++) {
                const int r = first_scale + MOX_SM90_SCALES_TOGETHER * j;
                if (r < piece.columns)
                    mox_copy4(stage + MOX_SM90_TOKEN_SCALES_AT + r * 4, args.a_scale + scale[j] + k * args.a_scale_step,
                              4);
            }
            mox_copy_arrive(front->full + at.stage);
            mox_sm90_next(&at, args.stages);
        }
    }
}

/* The same from a tiled operand, by one warp. */
template <int ELEMENT>
__device__ __forceinline__ void mox_sm90_feed_tiles(const mox_sm90_args &args, mox_sm90_front *front, uint8_t *stages,
                                                    int lane)
{
    constexpr bool SCALES = ELEMENT == MOX_SM90_E4M3;
    mox_grid_wait();
    mox_sm90_cursor at = { 0, 1 };
    for (int n = 0;; n++) {
        const mox_sm90_piece piece = mox_sm90_peek(front, n);
        mox_sm90_drop(front, n, lane);
        if (piece.begin == piece.end)
            return;
        const uint32_t rows = mox_sm90_tile_rows(piece);
        const uint8_t *tile = args.a + (int64_t)piece.row * args.chunks * 128;
        const float *scales = args.a_scale + (int64_t)piece.row * args.chunks;
        for (int k = piece.begin; k < piece.end; k++) {
            mox_mbarrier_wait(front->empty + at.stage, at.parity);
            if (lane == 0) {
                uint8_t *stage = stages + (uint64_t)at.stage * args.stage_bytes;
                uint64_t *full = front->full + at.stage;
                mox_mbarrier_arrive_expect(full, rows * 128 + (SCALES ? rows * 4 : 0));
                mox_bulk_copy(stage + mox_sm90_tokens_at<ELEMENT>, tile + (uint64_t)k * rows * 128, rows * 128, full);
                if constexpr (SCALES)
                    mox_bulk_copy(stage + MOX_SM90_TOKEN_SCALES_AT, scales + (uint64_t)k * rows, rows * 4, full);
            }
            mox_sm90_next(&at, args.stages);
        }
    }
}

#endif
