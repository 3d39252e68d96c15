/* SPDX-License-Identifier: Apache-2.0
 *
 * sm90_epilogue.cuh - what becomes of a finished tile of one warpgroup, 64 rows by up to 256 columns.
 *
 *     rows     accumulators -> row scale, bias -> out: the eight lanes of a column write 32 bytes
 *     act      accumulators -> staging, 32 columns at a time -> row scale, bias, activation -> the operand of W2
 *
 * A row of the product is a column of the output, so the tile is turned around through shared memory; a thread then has
 * 16 rows of one column: eight gates and their ups, or 16 outputs.
 *
 * Nothing here reads device memory that is not on its way already: where weights stream, a word of its own waits in
 * DRAM's queue for as long as 20 us.
 *
 * Quantizing needs the greatest magnitude of 128 neighbours, which are the 64 rows of each of two warpgroups, and of a
 * gated product of both blocks of a pair. Each leaves what it has found with all (`greatest`), does the activations of the
 * next 32 columns, and then quantizes with what the others have left meanwhile.
 */
#ifndef MOX_CUDA_SM90_EPILOGUE_CUH
#define MOX_CUDA_SM90_EPILOGUE_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <float.h>

#include "cuda/expert_gemm/sm90_tile.cuh"
#include "cuda/glu/glu_one_lane.cuh"
#include "cuda/ptx/ptx_approximate.cuh"
#include "cuda/ptx/ptx_convert.cuh"
#include "quant/scale_rule.h"

/* ---- rows ------------------------------------------------------------------------------------------------------ */

/* f32 rows of the output straight from the accumulators. What the loop needs of the arguments is read before it: they lie
 * in shared memory, and as far as the compiler knows every store may change them. */
template <int SUMS>
__device__ __forceinline__ void mox_sm90_end_rows(const float (&sums)[SUMS], const mox_sm90_args &args,
                                                  const mox_sm90_piece &piece, const mox_sm90_place &me)
{
    const int row = piece.tile * 128 + me.group * 64 + me.warp * 16 + me.lane / 4;
    const int to_row = args.gated ? row / 16 * 8 + row % 8 : row, other = args.gated ? args.rows : 8;
    const bool stored[2] = { to_row < args.rows, (args.gated ? to_row : to_row + 8) < args.rows };
    const int all = piece.columns, columns = all - me.lane % 4 * 2; /* from this lane's first on */
    const int64_t stride = args.out_stride;
    float *to = args.out + (piece.pair + me.lane % 4 * 2) * stride + to_row;
    float scale[2], bias[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const bool scaled = stored[h] && args.row_scale_at != 0, shifted = stored[h] && args.bias_at != 0;
        scale[h] = scaled ? ((const float *)(piece.record + args.row_scale_at))[row + 8 * h] : 1.0f;
        bias[h] = shifted ? ((const float *)(piece.record + args.bias_at))[row + 8 * h] : 0.0f;
    }
#pragma unroll
    for (int j = 0; j < SUMS / 4; j++) {
        if (8 * j >= all)
            break;
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (8 * j + i % 2 < columns && stored[i / 2])
                __stcg(to + i % 2 * stride + i / 2 * other,
                       __fadd_rn(__fmul_rn(sums[4 * j + i], scale[i / 2]), bias[i / 2]));
        to += 8 * stride;
    }
}

/* ---- activations ----------------------------------------------------------------------------------------------- */

constexpr int MOX_SM90_EIGHT = 8;

/* What a thread has of a column: 16 rows of the product, which are eight or 16 outputs from `to` on. */
struct mox_sm90_item {
    int column; /* of the tile */
    int row;    /* of the product */
    int to;
};

__device__ __forceinline__ mox_sm90_item mox_sm90_item_of(const mox_sm90_args &args, const mox_sm90_piece &piece, int turn,
                                                          const mox_sm90_place &me)
{
    mox_sm90_item item;
    item.column = turn * MOX_SM90_TURN + me.thread / 4;
    item.row = piece.tile * 128 + me.group * 64 + me.thread % 4 * 16;
    item.to = args.gated ? item.row / 2 : item.row;
    return item;
}

/* Accumulators of columns 32 b .. to staging. */
template <int SUMS>
__device__ __forceinline__ void mox_sm90_stage(const float (&sums)[SUMS], int b, float *staging, const mox_sm90_place &me)
{
    float *to = staging + me.lane % 4 * 2 * MOX_SM90_TURN_STRIDE + me.warp * 16 + me.lane / 4;
#pragma unroll
    for (int j = 0; j < SUMS / 4; j++)
        if (j / 4 == b) {
            float *column = to + j % 4 * 8 * MOX_SM90_TURN_STRIDE;
            column[0] = sums[4 * j];
            column[MOX_SM90_TURN_STRIDE] = sums[4 * j + 1];
            column[8] = sums[4 * j + 2];
            column[MOX_SM90_TURN_STRIDE + 8] = sums[4 * j + 3];
        }
}

/* Eight neighbours at 16-byte steps. */
__device__ __forceinline__ void mox_sm90_load8(float (&x)[MOX_SM90_EIGHT], const float *from)
{
    const float4 low = ((const float4 *)from)[0], high = ((const float4 *)from)[1];
    x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w;
    x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
}

/* Eight finished rows of the product from `row` on. */
__device__ __forceinline__ void mox_sm90_finish8(float (&x)[MOX_SM90_EIGHT], const mox_sm90_args &args,
                                                 const uint8_t *record, int row)
{
    float with[MOX_SM90_EIGHT];
    if (args.row_scale_at != 0) {
        mox_sm90_load8(with, (const float *)(record + args.row_scale_at) + row);
#pragma unroll
        for (int i = 0; i < MOX_SM90_EIGHT; i++)
            x[i] = __fmul_rn(x[i], with[i]);
    }
    if (args.bias_at != 0) {
        mox_sm90_load8(with, (const float *)(record + args.bias_at) + row);
#pragma unroll
        for (int i = 0; i < MOX_SM90_EIGHT; i++)
            x[i] = __fadd_rn(x[i], with[i]);
    }
}

/* All kinds but the commonest: there once, not eight times side by side. */
static __device__ __noinline__ float mox_sm90_activate_any(int32_t kind, float alpha, float beta, float gate_limit,
                                                           float up_limit, float gate, float up)
{
    const mox_glu_parameters parameters = { alpha, beta, gate_limit, up_limit };
    return mox_device_activate(kind, parameters, gate, up);
}

/* The commonest kind, mox_lane_silu() in a quarter of its instructions. Error of the sigmoid s(t), u = 2^-24: 2.5 u |t| of
 * the argument (two roundings, a constant's), 2.9 u of ex2 and one of the sum, which count times 1 - s; 3 u of the sum and
 * the reciprocal. With three products that is below the 8 u S of ref_activate.c, S = |g s u| (2 + (1 - s) |t|). */
__device__ __forceinline__ float mox_sm90_silu(const mox_glu_parameters &p, float gate, float up)
{
    const float g = gate > p.gate_limit ? p.gate_limit : gate, high = up > p.up_limit ? p.up_limit : up;
    const float u = __fadd_rn(high < -p.up_limit ? -p.up_limit : high, p.beta);
    const float e = mox_exp2_approximate(__fmul_rn(__fmul_rn(g, p.alpha), -1.44269504f));
    return __fmul_rn(__fmul_rn(g, mox_reciprocal_approximate(__fadd_rn(1.0f, e))), u);
}

/* gate[i] = act(gate[i], up[i]), zero from `count` on. */
__device__ __forceinline__ void mox_sm90_activate8(int32_t kind, const mox_glu_parameters &parameters,
                                                   float (&gate)[MOX_SM90_EIGHT], const float (&up)[MOX_SM90_EIGHT],
                                                   int count)
{
    const mox_glu_parameters p = parameters;
#pragma unroll
    for (int i = 0; i < MOX_SM90_EIGHT; i++) {
        if (kind == MOXIE_ACT_SILU)
            gate[i] = mox_sm90_silu(p, gate[i], up[i]);
        else
            gate[i] = mox_sm90_activate_any(kind, p.alpha, p.beta, p.gate_limit, p.up_limit, gate[i], up[i]);
    }
#pragma unroll
    for (int i = 0; i < MOX_SM90_EIGHT; i++)
        gate[i] = i < count ? gate[i] : 0.0f;
}

/* The item's outputs: low, and of an ungated product high, 8 further on. */
__device__ __forceinline__ void mox_sm90_item_outputs(const mox_sm90_args &args, const mox_sm90_piece &piece,
                                                      const mox_glu_parameters &parameters, const float *staging,
                                                      const mox_sm90_item &item, float (&low)[MOX_SM90_EIGHT],
                                                      float (&high)[MOX_SM90_EIGHT])
{
    const float *column = staging + item.column % MOX_SM90_TURN * MOX_SM90_TURN_STRIDE + item.row % 64;
    mox_sm90_load8(low, column);
    mox_sm90_load8(high, column + MOX_SM90_EIGHT);
    if (item.to < args.rows) {
        mox_sm90_finish8(low, args, piece.record, item.row);
        mox_sm90_finish8(high, args, piece.record, item.row + MOX_SM90_EIGHT);
    }
    mox_sm90_activate8(args.activation.kind, parameters, low, high, args.rows - item.to);
    if (!args.gated)
        mox_sm90_activate8(args.activation.kind, parameters, high, high, args.rows - item.to - MOX_SM90_EIGHT);
}

/* Where byte `to` of column `c` of a token tile lies in the operand of the next product, of rows of `stride` bytes. */
__device__ __forceinline__ uint8_t *mox_sm90_next_at(const mox_sm90_args &args, const mox_sm90_piece &piece, int c,
                                                     int64_t to, int64_t stride)
{
    const int in = (int)(to % 128);
    return (uint8_t *)args.next + piece.row * stride + to / 128 * mox_sm90_tile_rows(piece) * 128 + c * 128 +
           ((in / 16 ^ (c & 7)) << 4) + in % 16;
}

/* Eight outputs that are not quantized. */
__device__ __forceinline__ void mox_sm90_store8(const mox_sm90_args &args, const mox_sm90_piece &piece, int column, int to,
                                                const float (&x)[MOX_SM90_EIGHT])
{
    uint32_t pairs[MOX_SM90_EIGHT / 2];
    if (args.output == MOX_SM90_ACT_F32) {
        for (int i = 0; i < MOX_SM90_EIGHT; i++)
            if (to + i < args.rows)
                args.out[(int64_t)(piece.pair + column) * args.out_stride + to + i] = x[i];
        return;
    }
    if (to >= args.next_stride)
        return;
#pragma unroll
    for (int i = 0; i < MOX_SM90_EIGHT / 2; i++)
        pairs[i] = args.output == MOX_SM90_ACT_F16 ? mox_convert_f16x2(x[2 * i], x[2 * i + 1]) :
                                                     mox_convert_bf16x2(x[2 * i], x[2 * i + 1]);
    __stcg((uint4 *)mox_sm90_next_at(args, piece, column, to * 2, args.next_stride * 2),
           make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]));
}

/* ---- quantizing ------------------------------------------------------------------------------------------------ */

__device__ __forceinline__ float mox_sm90_greatest8(const float (&x)[MOX_SM90_EIGHT], float so_far)
{
#pragma unroll
    for (int i = 0; i < MOX_SM90_EIGHT; i++)
        so_far = fmaxf(so_far, fabsf(x[i]));
    return so_far;
}

/* Leaves the greatest magnitude of this warpgroup's outputs of each column with everyone who has a part of the 128. */
__device__ __forceinline__ void mox_sm90_measure(const mox_sm90_args &args, mox_sm90_front *front, uint32_t round,
                                                 float greatest, const mox_sm90_place &me)
{
    greatest = fmaxf(greatest, __shfl_xor_sync(~0u, greatest, 1));
    greatest = fmaxf(greatest, __shfl_xor_sync(~0u, greatest, 2));
    const int rank = mox_sm90_rank(args);
    float *at = &front->greatest[round % MOX_SM90_ROUNDS][me.thread / 4]
                                [args.gated ? rank * MOX_SM90_GROUPS + me.group : me.group];
    uint64_t *barrier = front->measured + round % 2;
    if (me.thread % 4 == 0) {
        *at = greatest;
        if (args.gated)
            mox_cluster_store(mox_cluster_address(at, rank ^ 1), greatest);
    }
    __syncwarp();
    if (me.lane == 0) {
        mox_mbarrier_arrive(barrier);
        if (args.gated)
            mox_cluster_arrive_release(mox_cluster_address(barrier, rank ^ 1));
    }
}

/* Eight codes by the rule of fp8_group() in quant/act_quant.c, operation by operation. */
__device__ __forceinline__ void mox_sm90_store_codes(const mox_sm90_args &args, const mox_sm90_piece &piece, int column,
                                                     int to, const float (&x)[MOX_SM90_EIGHT], float scale)
{
    uint32_t codes[2];
    if (to >= args.next_stride)
        return;
#pragma unroll
    for (int i = 0; i < 2; i++)
        codes[i] = mox_convert_e4m3x2(__fdiv_rn(x[4 * i], scale), __fdiv_rn(x[4 * i + 1], scale)) |
                   mox_convert_e4m3x2(__fdiv_rn(x[4 * i + 2], scale), __fdiv_rn(x[4 * i + 3], scale)) << 16;
    __stcg((uint2 *)mox_sm90_next_at(args, piece, column, to, args.next_stride), make_uint2(codes[0], codes[1]));
}

/* The scale of the 128 outputs that the item is one of, when all have measured theirs. */
__device__ __forceinline__ float mox_sm90_scale(const mox_sm90_args &args, mox_sm90_front *front, uint32_t round,
                                                const mox_sm90_item &item)
{
    mox_cluster_wait(front->measured + round % 2, round / 2 & 1);
    const float *parts = front->greatest[round % MOX_SM90_ROUNDS][item.column % MOX_SM90_TURN];
    float amax = fmaxf(parts[0], parts[1]);
    if (args.gated)
        amax = fmaxf(amax, fmaxf(parts[2], parts[3]));
    amax = fminf(amax, FLT_MAX);
    const float scale = __fdiv_rn(amax > 1e-10f ? amax : 1e-10f, 448.0f);
    return args.scale_is_power_of_two ? mox_power_of_two_up(scale > 1e-10f ? scale : 1e-10f) : scale;
}

/* An item to codes: eight of a gated product, 16 of another. */
__device__ __forceinline__ void mox_sm90_quantize(const mox_sm90_args &args, mox_sm90_front *front,
                                                  const mox_sm90_piece &piece, uint32_t round,
                                                  const mox_sm90_item &item, const float (&low)[MOX_SM90_EIGHT],
                                                  const float (&high)[MOX_SM90_EIGHT])
{
    const float scale = mox_sm90_scale(args, front, round, item);
    if (item.column >= piece.columns)
        return;
    mox_sm90_store_codes(args, piece, item.column, item.to, low, scale);
    if (!args.gated)
        mox_sm90_store_codes(args, piece, item.column, item.to + MOX_SM90_EIGHT, high, scale);
    if (item.to % 128 == 0 && item.to < args.next_stride)
        __stcg(args.next_scale + piece.row * (args.next_stride / 128) + item.to / 128 * mox_sm90_tile_rows(piece) +
                   item.column,
               scale);
}

/* What a thread keeps of a gated product's round until the others have measured theirs, which takes until after its next
 * one. (Of others there is no wait: the 128 outputs are of one block.) */
struct mox_sm90_kept {
    mox_sm90_item item;
    float x[MOX_SM90_EIGHT];
};

/* ---- a tile ---------------------------------------------------------------------------------------------------- */

/* Outputs of 32 columns, from staging on. */
template <bool KEEPS>
__device__ __forceinline__ void mox_sm90_end_turn(const mox_sm90_args &args, mox_sm90_front *front,
                                                  const mox_sm90_piece &piece, const float *staging, int turn,
                                                  const mox_sm90_place &me, uint32_t *rounds, mox_sm90_kept *kept)
{
    const mox_sm90_item item = mox_sm90_item_of(args, piece, turn, me);
    float low[MOX_SM90_EIGHT], high[MOX_SM90_EIGHT];
    mox_sm90_item_outputs(args, piece, front->parameters[me.group], staging, item, low, high);
    if (args.output != MOX_SM90_ACT_E4M3) {
        if (item.column >= piece.columns)
            return;
        mox_sm90_store8(args, piece, item.column, item.to, low);
        if (!args.gated)
            mox_sm90_store8(args, piece, item.column, item.to + MOX_SM90_EIGHT, high);
        return;
    }
    const uint32_t round = (*rounds)++;
    mox_sm90_measure(args, front, round, mox_sm90_greatest8(low, args.gated ? 0.0f : mox_sm90_greatest8(high, 0.0f)), me);
    if (!KEEPS || !args.gated) {
        mox_sm90_quantize(args, front, piece, round, item, low, high);
        return;
    }
    if (turn > 0)
        mox_sm90_quantize(args, front, piece, round - 1, kept->item, kept->x, kept->x);
    kept->item = item;
#pragma unroll
    for (int i = 0; i < MOX_SM90_EIGHT; i++)
        kept->x[i] = low[i];
}

/* KEEPS: there are registers for what the next round is to quantize. */
template <bool KEEPS, int SUMS>
__device__ __forceinline__ void mox_sm90_end_act(const float (&sums)[SUMS], mox_sm90_front *front,
                                                 const mox_sm90_piece &piece, const mox_sm90_place &me, uint32_t *rounds)
{
    const mox_sm90_args &args = front->args;
    float *staging = (float *)((uint8_t *)front + MOX_SM90_FRONT + (uint64_t)args.stages * args.stage_bytes +
                               me.group * MOX_SM90_STAGING);
    mox_sm90_kept kept;
#pragma unroll 1
    for (int turn = 0; turn * MOX_SM90_TURN < piece.columns; turn++) {
        mox_named_barrier(MOX_SM90_OWN_BARRIER + me.group, 128); /* staging is free again */
        mox_sm90_stage(sums, turn, staging, me);
        if (turn == 0 && me.thread == 0)
            front->parameters[me.group] =
                mox_glu_resolve(&args.activation, args.expert_of != nullptr ? args.expert_of[piece.slot] : -1);
        mox_named_barrier(MOX_SM90_OWN_BARRIER + me.group, 128);
        mox_sm90_end_turn<KEEPS>(args, front, piece, staging, turn, me, rounds, &kept);
    }
    if (KEEPS && args.output == MOX_SM90_ACT_E4M3 && args.gated && piece.columns > 0)
        mox_sm90_quantize(args, front, piece, *rounds - 1, kept.item, kept.x, kept.x);
}

template <bool KEEPS, int SUMS>
__device__ __forceinline__ void mox_sm90_end(const float (&sums)[SUMS], mox_sm90_front *front, const mox_sm90_piece &piece,
                                             const mox_sm90_place &me, uint32_t *rounds)
{
    if (front->args.output == MOX_SM90_ROWS_F32)
        mox_sm90_end_rows(sums, front->args, piece, me);
    else
        mox_sm90_end_act<KEEPS>(sums, front, piece, me, rounds);
}

#endif
