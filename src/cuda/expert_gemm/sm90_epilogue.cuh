/* SPDX-License-Identifier: Apache-2.0
 *
 * sm90_epilogue.cuh - what becomes of a finished tile of one warpgroup, 64 rows by up to 256 columns.
 *
 *     accumulators -> staging, 32 columns at a time -> row scale, bias -> [activation] -> rows of one token, contiguous
 *
 * A row of the product is a column of the output, so the tile is turned around through shared memory; a thread then has
 * the same row, or the same gate and up row, for every column. Quantizing the activation needs 128 neighbours, which are
 * two row tiles of a gated product and two warpgroups of each: whoever arrives last has them all in `wide`, and quantizes.
 */
#ifndef MOX_CUDA_SM90_EPILOGUE_CUH
#define MOX_CUDA_SM90_EPILOGUE_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <float.h>

#include "cuda/expert_gemm/sm90_tile.cuh"
#include "cuda/glu/glu_one_lane.cuh"
#include "cuda/ptx/ptx_convert.cuh"
#include "quant/scale_rule.h"

/* What one thread does with a column: rows of the tile that it reads, what they are scaled and shifted by, where the
 * result goes. */
struct mox_sm90_lane_rows {
    bool paired;         /* gate and up; else one row */
    int first, second;   /* rows in staging: the one or gate, up */
    float scale[2], bias[2];
    int64_t to;          /* column of the output; -1: past the last */
    int column, step;    /* columns of the tile that are this thread's */
};

__device__ __forceinline__ mox_sm90_lane_rows mox_sm90_rows_of(const mox_sm90_args &args, const mox_sm90_piece &piece,
                                                               const mox_sm90_place &me)
{
    mox_sm90_lane_rows r;
    const bool paired = args.gated && args.output != MOX_SM90_ROWS_F32;
    const int outputs = paired ? 32 : 64, i = me.thread % outputs;
    r.paired = paired;
    r.first = paired ? i / 8 * 16 + i % 8 : i;
    r.second = r.first + 8;
    r.column = me.thread / outputs;
    r.step = 128 / outputs;
    const int row = piece.tile * 128 + me.group * 64 + r.first;
    const int matrix_row = args.gated ? row / 16 * 8 + row % 8 : row;
    const int64_t half = args.gated && !paired && row / 8 % 2 == 1 ? args.rows : 0;
    r.to = matrix_row < args.rows ? half + matrix_row : -1;
    const float *scale = (const float *)(piece.record + args.row_scale_at) + row;
    const float *bias = (const float *)(piece.record + args.bias_at) + row;
    for (int h = 0; h < 2; h++) {
        const bool read = r.to >= 0 && (h == 0 || paired);
        r.scale[h] = read && args.row_scale_at != 0 ? scale[8 * h] : 1.0f;
        r.bias[h] = read && args.bias_at != 0 ? bias[8 * h] : 0.0f;
    }
    return r;
}

/* gate[k] = act(gate[k], up[k]); the commonest kind with its steps side by side. */
template <int COUNT>
__device__ __forceinline__ void mox_sm90_activate(int32_t kind, const mox_glu_parameters &parameters,
                                                  float (&gate)[COUNT], const float (&up)[COUNT])
{
    if (kind == MOXIE_ACT_SILU) {
#pragma unroll
        for (int k = 0; k < COUNT; k++)
            gate[k] = mox_device_activate(MOXIE_ACT_SILU, parameters, gate[k], up[k]);
        return;
    }
#pragma unroll
    for (int k = 0; k < COUNT; k++)
        gate[k] = mox_device_activate(kind, parameters, gate[k], up[k]);
}

/* Where byte `to` of column `c` of a token tile lies in the operand of the next product: in rows, or tiled. */
__device__ __forceinline__ uint8_t *mox_sm90_next_at(const mox_sm90_args &args, const mox_sm90_piece &piece, int c,
                                                     int64_t to, int64_t stride)
{
    uint8_t *next = (uint8_t *)args.next;
    if (!args.next_tiled)
        return next + (piece.pair + c) * stride + to;
    const int in = (int)(to % 128);
    return next + piece.row * stride + to / 128 * mox_sm90_tile_rows(piece) * 128 + c * 128 +
           ((in / 16 ^ (c & 7)) << 4) + in % 16;
}

/* One finished number of column `c`. */
__device__ __forceinline__ void mox_sm90_store(const mox_sm90_args &args, const mox_sm90_piece &piece, int c,
                                               int64_t to, float value)
{
    const int64_t pair = piece.pair + c;
    switch (args.output) {
    case MOX_SM90_ROWS_F32: args.out[pair * args.out_stride + to] = value; break;
    case MOX_SM90_ACT_BF16:
        *(__nv_bfloat16 *)mox_sm90_next_at(args, piece, c, to * 2, args.next_stride * 2) = __float2bfloat16_rn(value);
        break;
    case MOX_SM90_ACT_F16:
        *(__half *)mox_sm90_next_at(args, piece, c, to * 2, args.next_stride * 2) = __float2half_rn(value);
        break;
    default: __stcg(args.wide + pair * args.wide_stride + to, value); break;
    }
}

/* Columns begin .. end of the tile, of which `staging` holds the first at its beginning. TOGETHER at a time, since one
 * activation alone is a long chain of dependent operations. Not inline: it would be there once for every width. */
static __device__ __noinline__ void mox_sm90_finish(const mox_sm90_args &args, const mox_sm90_piece &piece,
                                                    mox_sm90_lane_rows r, const mox_glu_parameters &parameters,
                                                    const float *staging, int begin, int end)
{
    constexpr int TOGETHER = 4;
    const bool active = args.output != MOX_SM90_ROWS_F32;
    if (r.to < 0)
        return;
    for (int c = begin + r.column; c < end; c += TOGETHER * r.step) {
        float first[TOGETHER], second[TOGETHER];
#pragma unroll
        for (int k = 0; k < TOGETHER; k++) {
            const float *column = staging + min(c + k * r.step - begin, MOX_SM90_TURN - 1) * MOX_SM90_TURN_STRIDE;
            first[k] = column[r.first];
            second[k] = r.paired ? column[r.second] : 0.0f;
            if (args.row_scale_at != 0) {
                first[k] = __fmul_rn(first[k], r.scale[0]);
                second[k] = __fmul_rn(second[k], r.scale[1]);
            }
            if (args.bias_at != 0) {
                first[k] = __fadd_rn(first[k], r.bias[0]);
                second[k] = __fadd_rn(second[k], r.bias[1]);
            }
        }
        if (active)
            mox_sm90_activate<TOGETHER>(args.activation.kind, parameters, first, second);
#pragma unroll
        for (int k = 0; k < TOGETHER; k++)
            if (c + k * r.step < end)
                mox_sm90_store(args, piece, c + k * r.step, r.to, first[k]);
    }
}

/* What a tiled operand of 16-bit elements has behind its last column is zero. */
__device__ __forceinline__ void mox_sm90_fill_up(const mox_sm90_args &args, const mox_sm90_piece &piece,
                                                 const mox_sm90_place &me)
{
    for (int i = args.rows + me.thread; i < args.next_stride; i += 128)
        for (int c = 0; c < piece.columns; c++)
            *(uint16_t *)mox_sm90_next_at(args, piece, c, i * 2, args.next_stride * 2) = 0;
}

/* 128 neighbours of one pair from `wide` to codes and a scale, by a warp: fp8_group() of quant/act_quant.c, operation by
 * operation. `first` is the first of them. */
__device__ __forceinline__ void mox_sm90_quantize(const mox_sm90_args &args, const mox_sm90_piece &piece, int c,
                                                  int first, float4 v, int lane)
{
    const int i = first + 4 * lane;
    float amax = 0.0f;
    const float x[4] = { v.x, v.y, v.z, v.w };
#pragma unroll
    for (int k = 0; k < 4; k++)
        amax = fabsf(x[k]) > amax ? fabsf(x[k]) : amax;
#pragma unroll
    for (int d = 16; d > 0; d /= 2)
        amax = fmaxf(amax, __shfl_xor_sync(~0u, amax, d));
    amax = fminf(amax, FLT_MAX);
    float scale = __fdiv_rn(amax > 1e-10f ? amax : 1e-10f, 448.0f);
    if (args.scale_is_power_of_two)
        scale = mox_power_of_two_up(scale > 1e-10f ? scale : 1e-10f);
    const uint32_t low = mox_convert_e4m3x2(__fdiv_rn(x[0], scale), __fdiv_rn(x[1], scale));
    const uint32_t high = mox_convert_e4m3x2(__fdiv_rn(x[2], scale), __fdiv_rn(x[3], scale));
    if (i < args.next_stride)
        *(uint32_t *)mox_sm90_next_at(args, piece, c, i, args.next_stride) = low | high << 16;
    if (lane == 0 && args.next_tiled)
        args.next_scale[piece.row * args.next_scale_stride + first / 128 * mox_sm90_tile_rows(piece) + c] = scale;
    else if (lane == 0)
        args.next_scale[(piece.pair + c) * args.next_scale_stride + first / 128] = scale;
}

/* Counts this warpgroup's part of 128 outputs as done; the last to do so quantizes them for all columns. The barrier and
 * one thread's release order what all of them stored; a fence by each would wait for the block's copies again and again. */
static __device__ __noinline__ void mox_sm90_arrive(const mox_sm90_args &args, mox_sm90_front *front,
                                                    const mox_sm90_piece &piece, mox_sm90_place me)
{
    constexpr int TOGETHER = 8;
    const int span = args.gated ? 2 : 1, groups = (args.tiles + span - 1) / span, group = piece.tile / span;
    const uint32_t parts = MOX_SM90_GROUPS * min(span, args.tiles - group * span);
    mox_named_barrier(1 + me.group, 128);
    if (me.thread == 0)
        front->last[me.group] =
            mox_add_acquire_release(args.counts + (int64_t)piece.column * groups + group, 1) + 1 == parts;
    mox_named_barrier(1 + me.group, 128);
    if (front->last[me.group] == 0)
        return;
    const int first = group * 128, i = first + 4 * me.lane;
    for (int c = me.warp; c < piece.columns; c += 4 * TOGETHER) {
        float4 v[TOGETHER];
#pragma unroll
        for (int k = 0; k < TOGETHER; k++) {
            const int64_t pair = piece.pair + min(c + 4 * k, piece.columns - 1);
            v[k] = __ldcg((const float4 *)(args.wide + pair * args.wide_stride + i));
            v[k].x = i + 0 < args.rows ? v[k].x : 0.0f;
            v[k].y = i + 1 < args.rows ? v[k].y : 0.0f;
            v[k].z = i + 2 < args.rows ? v[k].z : 0.0f;
            v[k].w = i + 3 < args.rows ? v[k].w : 0.0f;
        }
#pragma unroll
        for (int k = 0; k < TOGETHER; k++)
            if (c + 4 * k < piece.columns)
                mox_sm90_quantize(args, piece, c + 4 * k, first, v[k], me.lane);
    }
}

/* Columns 32 b .. of the accumulators, to staging. */
template <int N>
__device__ __forceinline__ void mox_sm90_stage(const float (&acc)[N / 2], int b, float *staging,
                                               const mox_sm90_place &me)
{
    float *to = staging + me.lane % 4 * 2 * MOX_SM90_TURN_STRIDE + me.warp * 16 + me.lane / 4;
#pragma unroll
    for (int j = 0; j < N / 8; j++)
        if (j / 4 == b) {
            float *column = to + j % 4 * 8 * MOX_SM90_TURN_STRIDE;
            column[0] = acc[4 * j];
            column[MOX_SM90_TURN_STRIDE] = acc[4 * j + 1];
            column[8] = acc[4 * j + 2];
            column[MOX_SM90_TURN_STRIDE + 8] = acc[4 * j + 3];
        }
}

template <int N>
__device__ __forceinline__ void mox_sm90_end(const float (&acc)[N / 2], mox_sm90_front *front,
                                             const mox_sm90_piece &piece, const mox_sm90_place &me)
{
    const mox_sm90_args &args = front->args;
    float *staging = (float *)((uint8_t *)front + MOX_SM90_FRONT + (uint64_t)args.stages * args.stage_bytes +
                               me.group * MOX_SM90_STAGING);
    const mox_sm90_lane_rows rows = mox_sm90_rows_of(args, piece, me);
    if (me.thread == 0) /* seen by the others behind the second barrier below */
        front->parameters[me.group] =
            mox_glu_resolve(&args.activation, args.expert_of != nullptr ? args.expert_of[piece.slot] : -1);
#pragma unroll 1
    for (int b = 0; b * MOX_SM90_TURN < piece.columns; b++) {
        mox_named_barrier(1 + me.group, 128); /* staging is free again */
        mox_sm90_stage<N>(acc, b, staging, me);
        mox_named_barrier(1 + me.group, 128);
        mox_sm90_finish(args, piece, rows, front->parameters[me.group], staging, b * MOX_SM90_TURN,
                        min((b + 1) * MOX_SM90_TURN, piece.columns));
    }
    if (args.output == MOX_SM90_ACT_E4M3)
        mox_sm90_arrive(args, front, piece, me);
    else if (args.next_tiled && args.output != MOX_SM90_ROWS_F32 && piece.tile == args.tiles - 1 && me.group == 0)
        mox_sm90_fill_up(args, piece, me);
}

#endif
