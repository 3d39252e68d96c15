/* SPDX-License-Identifier: Apache-2.0
 *
 * sm90_epilogue.cuh - what becomes of a finished tile of one warpgroup, 64 rows by up to 288 columns, straight from the
 * accumulators:
 *
 *     rows     row scale, column's factor, bias -> out: the eight lanes of a column write 32 bytes
 *     act      the same, act(gate, up) in place of the gates -> the operand of W2, in 16 bits or 8
 *
 * Gates and ups are interleaved by eight rows, so a thread has a gate and its up side by side. A row of the product is
 * a column of the output: a warp turns its outputs around, 8 by 8, from register to register, and writes 16 bytes a
 * token (8 of codes).
 *
 * Nothing here reads device memory that is not on its way already: where weights stream, a word of its own waits in
 * DRAM's queue for as long as 20 us.
 *
 * Quantizing needs the greatest magnitude of 128 neighbours, which are the 64 rows of each of two warpgroups, and of a
 * gated product of both blocks of a pair. Each warp adds what it has found to `greatest` of all, once a tile. Powers of
 * two are for 32 neighbours, which are a warpgroup's own, of a gated product all that it has.
 */
#ifndef MOX_CUDA_SM90_EPILOGUE_CUH
#define MOX_CUDA_SM90_EPILOGUE_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <float.h>

#include "cuda/expert_gemm/sm90/sm90_tile.cuh"
#include "cuda/glu/glu_one_lane.cuh"
#include "cuda/ptx/ptx_approximate.cuh"
#include "cuda/ptx/ptx_convert.cuh"
#include "cuda/ptx/ptx_copy.cuh"
#include "format/f8_e8m0.h"
#include "quant/scale_rule.h"

/* Where this thread's part of a tile lies: sums[4j + 2h + c] is row `row` + 8h of the product, column 8j + 2 (lane % 4)
 * + c. Of a gated product h = 0 is the gate and h = 1 the up of output `to`; of another they are outputs `to` and `to`
 * + 8. */
struct mox_sm90_spot {
    int row, to;
    bool stored[2]; /* outputs that there are */
};

__device__ __forceinline__ mox_sm90_spot mox_sm90_spot_of(const mox_sm90_args &args, const mox_sm90_piece &piece,
                                                          const mox_sm90_place &me)
{
    mox_sm90_spot spot;
    spot.row = piece.tile * 128 + me.group * 64 + me.warp * 16 + me.lane / 4;
    spot.to = args.gated ? spot.row / 16 * 8 + spot.row % 8 : spot.row;
    spot.stored[0] = spot.to < args.rows;
    spot.stored[1] = (args.gated ? spot.to : spot.to + 8) < args.rows;
    return spot;
}

/* ---- factors and biases ---------------------------------------------------------------------------------------- */

/* What belongs to this thread's two rows, where there is any. */
struct mox_sm90_of_rows {
    float2 factor, bias;
};

/* Where a warp of narrow token tiles keeps the factors and then the biases of its sixteen rows. */
__device__ __forceinline__ float *mox_sm90_kept_rows(mox_sm90_front *front, const mox_sm90_place &me)
{
    return (float *)((uint8_t *)front + MOX_SM90_FRONT) + (me.group * 4 + me.warp) * 32;
}

/* When a narrow tile begins, a number a lane: asked for at its end they would come behind the stream of weights, and
 * asked of L2 now they would be driven out before. */
__device__ __forceinline__ void mox_sm90_ask_rows(mox_sm90_front *front, const mox_sm90_piece &piece,
                                                  const mox_sm90_place &me)
{
    const int row = me.group * 64 + me.warp * 16 + me.lane % 16;
    const uint64_t at = me.lane < 16 ? front->args.row_scale_at : front->args.bias_at;
    if (at != 0 && row < piece.rows)
        mox_copy_word(mox_sm90_kept_rows(front, me) + me.lane,
                      piece.record + at + ((uint64_t)piece.tile * 128 + row) * 4);
}

/* Numbers of the two rows, the first of which is *from. */
__device__ __forceinline__ float2 mox_sm90_two_rows(const float *from, bool present, const mox_sm90_spot &spot,
                                                    float other)
{
    return make_float2(spot.stored[0] && present ? from[0] : other, spot.stored[1] && present ? from[8] : other);
}

template <bool NARROW>
__device__ __forceinline__ mox_sm90_of_rows mox_sm90_load_rows(mox_sm90_front *front, const mox_sm90_piece &piece,
                                                               const mox_sm90_place &me)
{
    const mox_sm90_args &args = front->args;
    const mox_sm90_spot spot = mox_sm90_spot_of(args, piece, me);
    const float *kept = mox_sm90_kept_rows(front, me) + me.lane / 4;
    if constexpr (NARROW) {
        mox_copied_words_wait();
        __syncwarp();
    }
    const mox_sm90_of_rows rows = {
        mox_sm90_two_rows(NARROW ? kept : (const float *)(piece.record + args.row_scale_at) + spot.row,
                          args.row_scale_at != 0, spot, 1.0f),
        mox_sm90_two_rows(NARROW ? kept + 16 : (const float *)(piece.record + args.bias_at) + spot.row,
                          args.bias_at != 0, spot, 0.0f)
    };
    if constexpr (NARROW)
        __syncwarp(); /* the next tile's may come */
    return rows;
}

/* Factors of a tile's columns, where activations are codes with a scale a row, or have become bf16: lane l has those of
 * columns l, l + 32, ... */
template <bool HAS, int SUMS> struct mox_sm90_of_columns {
    static constexpr int COUNT = (2 * SUMS + 31) / 32;
    float factor[COUNT];

    /* The gather that wrote them may have run beside this kernel: they are L2's. */
    __device__ __forceinline__ void load(const mox_sm90_args &args, const mox_sm90_piece &piece, int lane)
    {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            factor[i] = args.a_factor != nullptr && 32 * i + lane < piece.columns
                            ? __ldcg(args.a_factor + piece.row + 32 * i + lane)
                            : args.a_times;
    }

    __device__ __forceinline__ void apply(float (&sums)[SUMS], const mox_sm90_args &args, int columns, int lane) const
    {
        if (args.a_factor == nullptr && args.a_times == 1.0f)
            return;
#pragma unroll
        for (int j = 0; j < SUMS / 4; j++) {
            if (8 * j >= columns)
                break;
#pragma unroll
            for (int c = 0; c < 2; c++) {
                const float f = __shfl_sync(~0u, factor[j / 4], j % 4 * 8 + lane % 4 * 2 + c);
                sums[4 * j + c] = __fmul_rn(sums[4 * j + c], f);
                sums[4 * j + 2 + c] = __fmul_rn(sums[4 * j + 2 + c], f);
            }
        }
    }
};

template <int SUMS> struct mox_sm90_of_columns<false, SUMS> {
    __device__ __forceinline__ void load(const mox_sm90_args &, const mox_sm90_piece &, int)
    {
    }

    __device__ __forceinline__ void apply(float (&)[SUMS], const mox_sm90_args &, int, int) const
    {
    }
};

/* sum / factor: the product with the reciprocal, put right by what it leaves. */
__device__ __forceinline__ float mox_sm90_divide(float sum, float factor, float reciprocal)
{
    const float q = __fmul_rn(sum, reciprocal);
    return fabsf(q) <= FLT_MAX ? __fmaf_rn(__fmaf_rn(-q, factor, sum), reciprocal, q) : q;
}

/* of(sum, row) for the sums of `columns`, of this thread's row 0 or 1. */
template <int SUMS, class OF> __device__ __forceinline__ void mox_sm90_each(float (&sums)[SUMS], int columns, OF of)
{
#pragma unroll
    for (int i = 0; i < SUMS; i++) {
        if (i % 4 == 0 && 2 * i >= columns)
            break;
        sums[i] = of(sums[i], i / 2 % 2);
    }
}

template <int SUMS, class COLUMNS>
__device__ __forceinline__ void mox_sm90_finish(float (&sums)[SUMS], const mox_sm90_args &args,
                                                const mox_sm90_piece &piece, const mox_sm90_of_rows &rows,
                                                const COLUMNS &columns, int lane)
{
    if (args.row_scale_at != 0) {
        const float2 f = rows.factor;
        const float2 over = make_float2(__frcp_rn(f.x), __frcp_rn(f.y));
        if (args.factor_divides)
            mox_sm90_each(sums, piece.columns, [=](float sum, int row) {
                return row == 0 ? mox_sm90_divide(sum, f.x, over.x) : mox_sm90_divide(sum, f.y, over.y);
            });
        else
            mox_sm90_each(sums, piece.columns,
                          [=](float sum, int row) { return __fmul_rn(sum, row == 0 ? f.x : f.y); });
    }
    columns.apply(sums, args, piece.columns, lane);
    if (args.bias_at != 0) {
        const float2 bias = rows.bias;
        mox_sm90_each(sums, piece.columns,
                      [=](float sum, int row) { return __fadd_rn(sum, row == 0 ? bias.x : bias.y); });
    }
}

/* Sums of integers, which were exact until here. */
template <int SUMS> __device__ __forceinline__ void mox_sm90_round_ints(float (&sums)[SUMS], int columns)
{
    mox_sm90_each(sums, columns, [](float sum, int) { return __int2float_rn(__float_as_int(sum)); });
}

/* ---- rows ------------------------------------------------------------------------------------------------------ */

/* f32 rows of the output straight from the accumulators. What the loop needs of the arguments is read before it: they
 * lie in shared memory, and as far as the compiler knows every store may change them. */
template <int SUMS, class COLUMNS>
__device__ __forceinline__ void mox_sm90_end_rows(float (&sums)[SUMS], const mox_sm90_args &args,
                                                  const mox_sm90_piece &piece, const mox_sm90_of_rows &rows,
                                                  const COLUMNS &factors, const mox_sm90_place &me)
{
    const mox_sm90_spot spot = mox_sm90_spot_of(args, piece, me);
    const int other = args.gated ? args.rows : 8;
    const int all = piece.columns, columns = all - me.lane % 4 * 2; /* from this lane's first on */
    const int64_t stride = args.out_stride;
    float *to = args.out + (piece.pair + me.lane % 4 * 2) * stride + spot.to;
    mox_sm90_finish(sums, args, piece, rows, factors, me.lane);
#pragma unroll
    for (int j = 0; j < SUMS / 4; j++) {
        if (8 * j >= all)
            break;
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (8 * j + i % 2 < columns && spot.stored[i / 2])
                __stcg(to + i % 2 * stride + i / 2 * other, sums[4 * j + i]);
        to += 8 * stride;
    }
}

/* ---- activations ----------------------------------------------------------------------------------------------- */

/* All kinds but the commonest. */
static __device__ __noinline__ float mox_sm90_activate_any(int32_t kind, float alpha, float beta, float gate_limit,
                                                           float up_limit, float gate, float up)
{
    const mox_glu_parameters parameters = { alpha, beta, gate_limit, up_limit };
    return mox_device_activate(kind, parameters, gate, up);
}

/* The commonest kind, mox_formula_silu() in a quarter of its instructions. Error of the sigmoid s(t), u = 2^-24: 2.5 u
 * |t| of the argument (two roundings, a constant's), 2.9 u of ex2 and one of the sum, which count times 1 - s; 3 u of
 * the sum and the reciprocal. With three products that is below the 8 u S of ref_activate.c, S = |g s u| (2 + (1 - s)
 * |t|).
 */
__device__ __forceinline__ float mox_sm90_silu(const mox_glu_parameters &p, float gate, float up)
{
    const float g = gate > p.gate_limit ? p.gate_limit : gate, high = up > p.up_limit ? p.up_limit : up;
    const float u = __fadd_rn(high < -p.up_limit ? -p.up_limit : high, p.beta);
    const float e = mox_exp2_approximate(__fmul_rn(__fmul_rn(g, p.alpha), -1.44269504f));
    return __fmul_rn(__fmul_rn(g, mox_reciprocal_approximate(__fadd_rn(1.0f, e))), u);
}

/* Accumulators whose activations are under way together, of 32 columns (of 8 where there may be no more): a thread's
 * chains of instructions are long, and its neighbours on the scheduler are few. */
template <int SUMS> constexpr int mox_sm90_together = SUMS > 16 ? 16 : 4;

/* Outputs take the places of their gates (of an ungated product, of their sums); zero where there is none. */
template <int SUMS>
__device__ __forceinline__ void mox_sm90_activate_silu(float (&sums)[SUMS], const mox_glu_parameters &p,
                                                       const mox_sm90_spot &spot, int columns)
{
#pragma unroll
    for (int first = 0; first < SUMS; first += mox_sm90_together<SUMS>) {
        if (2 * first >= columns)
            break;
#pragma unroll
        for (int i = first; i < SUMS && i < first + mox_sm90_together<SUMS>; i++)
            if (i % 4 < 2)
                sums[i] = mox_sm90_silu(p, sums[i], sums[i + 2]);
    }
    if (spot.stored[0])
        return;
#pragma unroll
    for (int i = 0; i < SUMS; i++)
        sums[i] = 0.0f;
}

template <int SUMS>
__device__ __forceinline__ void mox_sm90_activate(float (&sums)[SUMS], const mox_sm90_args &args,
                                                  const mox_glu_parameters &p, const mox_sm90_spot &spot, int columns)
{
    const int32_t kind = args.activation.kind;
    const bool gated = args.gated;
    if (kind == MOXIE_ACT_SILU) {
        mox_sm90_activate_silu(sums, p, spot, columns);
        return;
    }
#pragma unroll
    for (int i = 0; i < SUMS; i++) {
        if (i % 4 == 0 && 2 * i >= columns)
            break;
        if (i % 4 < 2 || !gated)
            sums[i] = mox_sm90_activate_any(kind, p.alpha, p.beta, p.gate_limit, p.up_limit, sums[i],
                                            sums[i % 4 < 2 ? i + 2 : i]);
        sums[i] = spot.stored[i / 2 % 2] ? sums[i] : 0.0f;
    }
}

/* Byte `to` of column 0 of a token tile in the operand of the next product, of rows of `stride` bytes, for those who
 * write columns c with c % 8 == `eighth`; column c is 128 c bytes on. */
__device__ __forceinline__ uint8_t *mox_sm90_next_at(const mox_sm90_args &args, const mox_sm90_piece &piece, int to,
                                                     int eighth, int64_t stride)
{
    const int in = to % 128;
    return (uint8_t *)args.next + piece.row * stride + (int64_t)(to / 128) * mox_sm90_tile_rows(piece) * 128 +
           ((in / 16 ^ eighth) << 4) + in % 16;
}

/* f32 outputs, as mox_sm90_end_rows() has its rows. */
template <int SUMS>
__device__ __forceinline__ void mox_sm90_store_f32(const float (&sums)[SUMS], const mox_sm90_args &args,
                                                   const mox_sm90_piece &piece, const mox_sm90_spot &spot, int lane)
{
    const int all = piece.columns, columns = all - lane % 4 * 2, outputs = args.gated ? 2 : 4;
    const int64_t stride = args.out_stride;
    float *to = args.out + (piece.pair + lane % 4 * 2) * stride + spot.to;
#pragma unroll
    for (int j = 0; j < SUMS / 4; j++) {
        if (8 * j >= all)
            break;
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (i < outputs && 8 * j + i % 2 < columns && spot.stored[i / 2])
                __stcg(to + i % 2 * stride + i / 2 * 8, sums[4 * j + i]);
        to += 8 * stride;
    }
}

/* 16-bit outputs: a lane ends with two neighbours of one token, four lanes with all eight. */
template <int SUMS>
__device__ __forceinline__ void mox_sm90_store_wide(const float (&sums)[SUMS], const mox_sm90_args &args,
                                                    const mox_sm90_piece &piece, const mox_sm90_spot &spot, int h,
                                                    int lane)
{
    const int first = spot.to - lane / 4 + 8 * h, columns = piece.columns;
    const int end = first < args.next_stride ? columns : 0;
    const bool f16 = args.output == MOX_SM90_ACT_F16;
    uint8_t *to =
        mox_sm90_next_at(args, piece, first * 2, lane / 4, args.next_stride * 2) + lane / 4 * 128 + lane % 4 * 4;
#pragma unroll
    for (int j = 0; j < SUMS / 4; j++) {
        if (j % 2 == 0 && 8 * j >= columns)
            break;
        const float low = sums[4 * j + 2 * h], high = sums[4 * j + 2 * h + 1];
        const uint32_t turned = mox_transpose_8x8(f16 ? mox_convert_f16x2(low, high) : mox_convert_bf16x2(low, high));
        if (8 * j + lane / 4 < end)
            __stcg((uint32_t *)(to + j * 8 * 128), turned);
    }
}

/* ---- quantizing ------------------------------------------------------------------------------------------------ */

/* add(column, bits) for this warp's greatest magnitude of each column. Of eight columns at a time, eight lanes that
 * have eight rows: each step halves the columns of a lane and doubles its rows. */
template <int SUMS, class ADD>
__device__ __forceinline__ void mox_sm90_each_greatest(const float (&sums)[SUMS], bool gated, int columns, int lane,
                                                       ADD add)
{
#pragma unroll
    for (int first = 0; first < SUMS / 4; first += 4) {
        if (8 * first >= columns)
            break;
        float x[8];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int at = 4 * (first + i / 2) + i % 2;
            x[i] = at < SUMS ? fmaxf(0.0f, fabsf(sums[at < SUMS ? at : 0])) : 0.0f;
            if (!gated && at < SUMS)
                x[i] = fmaxf(x[i], fabsf(sums[at < SUMS ? at + 2 : 0]));
        }
#pragma unroll
        for (int half = 4; half > 0; half /= 2) {
            const bool upper = (lane / 4 & half) != 0;
#pragma unroll
            for (int i = 0; i < half; i++) {
                const float other = __shfl_xor_sync(~0u, upper ? x[i] : x[i + half], 4 * half);
                x[i] = fmaxf(upper ? x[i + half] : x[i], other);
            }
        }
        const int column = 8 * (first + lane / 8) + lane % 4 * 2 + lane / 4 % 2;
        if (column < columns)
            add(column, __float_as_uint(x[0]));
    }
}

/* Adds them to those of everyone who has a part of the 128. */
template <int SUMS>
__device__ __forceinline__ void mox_sm90_measure(const float (&sums)[SUMS], const mox_sm90_args &args,
                                                 mox_sm90_front *front, uint32_t round, int columns, int lane)
{
    const int rank = mox_sm90_rank(args);
    uint32_t *greatest = front->greatest[round % 2];
    uint64_t *barrier = front->measured + round % 2;
    mox_sm90_each_greatest(sums, args.gated, columns, lane, [=](int column, uint32_t bits) {
        mox_shared_max(greatest + column, bits);
        if (args.gated)
            mox_cluster_max(mox_cluster_address(greatest + column, rank ^ 1), bits);
    });
    __syncwarp();
    if (lane == 0) {
        mox_mbarrier_arrive(barrier);
        if (args.gated)
            mox_cluster_arrive_release(mox_cluster_address(barrier, rank ^ 1));
    }
}

/* The scales of the columns, when all have measured theirs; a thread of the consumers each, and zero for the round
 * after the next. */
__device__ __forceinline__ void mox_sm90_scale(const mox_sm90_args &args, mox_sm90_front *front,
                                               const mox_sm90_piece &piece, uint32_t round, const mox_sm90_place &me)
{
    const int group = (int)(args.gated ? piece.tile / 2 : piece.tile);
    const bool leaves = (!args.gated || piece.tile % 2 == 0) && group * 128 < args.next_stride;
    float *to = args.next_scale + piece.row * (args.next_stride / 128) + (int64_t)group * mox_sm90_tile_rows(piece);
    mox_cluster_wait(front->measured + round % 2, round / 2 & 1);
    for (int c = me.group * 128 + me.thread; c < piece.columns; c += 128 * MOX_SM90_GROUPS) {
        const float amax = fminf(__uint_as_float(front->greatest[round % 2][c]), FLT_MAX);
        const float plain = __fdiv_rn(amax > 1e-10f ? amax : 1e-10f, 448.0f);
        const float scale =
            args.next_rule == MOXIE_RULE_UE8M0 ? mox_power_of_two_up(plain > 1e-10f ? plain : 1e-10f) : plain;
        front->greatest[round % 2][c] = 0;
        front->scales[c] = make_float2(scale, __frcp_rn(scale));
        if (leaves)
            __stcg(to + c, scale);
    }
    mox_named_barrier(MOX_SM90_ALL_BARRIER, 128 * MOX_SM90_GROUPS);
}

/* x / scale rounded to nearest for what its code depends on, scale.y being the reciprocal, rounded to nearest: the
 * quotient is off by at most one place, which a step on its remainder corrects (Markstein). Nothing underflows from
 * 2^-11 on, and what is smaller has code 0; infinities are brought to where the step is harmless, codes end at 448;
 * zeros keep their sign. */
__device__ __forceinline__ float mox_sm90_divide(float x, float2 scale)
{
    const float near = mox_bound_magnitude(__fmul_rn(x, scale.y), 1e30f);
    return copysignf(__fmaf_rn(__fmaf_rn(-near, scale.x, x), scale.y, near), x);
}

/* Codes of sums, operation by operation as quant/act_quant.c. Of 16 columns at a time a lane ends with four neighbours
 * of one token, two lanes with all eight: pairs of codes, two tokens each, are turned around as 16 bits, and neighbours
 * then exchange a token. */
template <int SUMS>
__device__ __forceinline__ void mox_sm90_store_codes(const float (&sums)[SUMS], const mox_sm90_args &args,
                                                     const mox_sm90_front *front, const mox_sm90_piece &piece,
                                                     const mox_sm90_spot &spot, int h, int lane)
{
    const float4 *scales = (const float4 *)front->scales + lane % 4; /* of two columns */
    const int first = spot.to - lane / 4 + 8 * h, columns = piece.columns, odd = lane & 1;
    const int end = first < args.next_stride ? columns : 0;
    const int column = lane / 4 % 2 * 8 + lane / 8 * 2 + odd;
    uint8_t *to = mox_sm90_next_at(args, piece, first, column % 8, args.next_stride) + column * 128 + lane / 2 % 2 * 4;
#pragma unroll
    for (int j = 0; j < SUMS / 4; j += 2) {
        if (8 * j >= columns)
            break;
        uint32_t codes = 0;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float4 scale = scales[4 * (j + i)];
            const float *x = sums + 4 * (j + i) + 2 * h;
            codes |= mox_convert_e4m3x2(mox_sm90_divide(x[0], make_float2(scale.x, scale.y)),
                                        mox_sm90_divide(x[1], make_float2(scale.z, scale.w)))
                     << 16 * i;
        }
        /* this lane's token in the low half, its neighbour's in the high half */
        const uint32_t own = __byte_perm(mox_transpose_8x8(codes), 0, odd ? 0x2031 : 0x3120);
        const uint32_t other = __shfl_xor_sync(~0u, own, 1);
        if (8 * j + column < end)
            __stcg((uint32_t *)(to + j * 8 * 128), __byte_perm(own, other, odd ? 0x1076 : 0x7610));
    }
}

/* ---- powers of two --------------------------------------------------------------------------------------------- */

/* Columns that are measured at a time: a thread of a warpgroup has one, and four groups of 32 outputs fit the front. */
constexpr int mox_sm90_mx_columns = 128;
static_assert(sizeof mox_sm90_front::greatest >= 16 * mox_sm90_mx_columns, "no room for what groups of 32 measure");
static_assert(sizeof mox_sm90_front::scales >= 16 * mox_sm90_mx_columns, "no room for the scales of groups of 32");

/* Where `greatest` and `scales` have those of group `part` of the block's. */
__device__ __forceinline__ uint32_t *mox_sm90_mx_greatest(mox_sm90_front *front, int part)
{
    return front->greatest[0] + part * mox_sm90_mx_columns;
}

__device__ __forceinline__ uint32_t *mox_sm90_mx_scales(mox_sm90_front *front, int part)
{
    return (uint32_t *)front->scales + part * mox_sm90_mx_columns;
}

/* What rounding to an element depends on, and what NaN becomes. */
struct mox_sm90_rounding {
    float most, nan;
    uint32_t least, beyond; /* bits of the least normal number; what is added to those of 2^n for the one that rounds */
};

__device__ __forceinline__ mox_sm90_rounding mox_sm90_rounding_of(const mox_sm90_acts &acts)
{
    const float most = __fmul_rn(__uint_as_float(acts.most << acts.shift), acts.up);
    return { most, acts.bits == 8 ? __uint_as_float(0x7fffffff) : most, __float_as_uint(acts.up) - (126u << 23),
             (uint32_t)acts.shift << 23 | 0x400000 };
}

/* The element nearest to x, ties to even, with the sign of x: added to 3 * 2^(n + shift - 1), x has just the places
 * left that an element of its size 2^n has. */
__device__ __forceinline__ float mox_sm90_round(const mox_sm90_rounding &to, float x)
{
    const float any = mox_bound_magnitude(x, to.most), bounded = any == any ? any : to.nan;
    const uint32_t power = max(__float_as_uint(bounded) & 0x7f800000, to.least);
    const float large = __uint_as_float(power + to.beyond);
    return copysignf(__fsub_rn(__fadd_rn(bounded, large), large), bounded);
}

/* Scales by the rule of quant/act_quant.c for each 32 of the outputs that this warpgroup has, of up to 128 columns, by
 * a thread a column: the scale is the high half of a word, its reciprocal the low half. */
template <int SUMS>
__device__ __forceinline__ void mox_sm90_scale_mx(const float (&sums)[SUMS], const mox_sm90_args &args,
                                                  mox_sm90_front *front, float most, int part, int columns,
                                                  const mox_sm90_place &me)
{
    uint32_t *greatest = mox_sm90_mx_greatest(front, part);
    mox_sm90_each_greatest(sums, args.gated, columns, me.lane,
                           [=](int column, uint32_t bits) { mox_shared_max(greatest + column, bits); });
    mox_named_barrier(MOX_SM90_OWN_BARRIER + me.group, 128);
    const int parts = args.gated ? 1 : 2;
    for (int i = me.group * parts; i < (me.group + 1) * parts && me.thread < columns; i++) {
        uint32_t *amax = mox_sm90_mx_greatest(front, i) + me.thread;
        const int e = mox_scale_exponent(args.next_rule, most, fminf(__uint_as_float(*amax), FLT_MAX));
        *amax = 0;
        mox_sm90_mx_scales(front, i)[me.thread] =
            mox_convert_bf16x2(mox_f8_e8m0_decode((uint32_t)(127 - e)), mox_f8_e8m0_decode((uint32_t)(127 + e)));
    }
    mox_named_barrier(MOX_SM90_OWN_BARRIER + me.group, 128);
}

/* Outputs become what a gather makes of their codes, operation by operation (sm90_acts.cuh). */
template <int SUMS>
__device__ __forceinline__ void mox_sm90_quantize_mx(float (&sums)[SUMS], const mox_sm90_args &args,
                                                     mox_sm90_front *front, int columns, const mox_sm90_place &me)
{
    constexpr int EACH = SUMS < mox_sm90_mx_columns / 2 ? SUMS : mox_sm90_mx_columns / 2;
    const mox_sm90_rounding to = mox_sm90_rounding_of(args.next_acts);
    const float times = args.next_acts.times;
    const int part = args.gated ? me.group : 2 * me.group + me.warp / 2, halves = args.gated ? 1 : 2;
#pragma unroll
    for (int first = 0; first < SUMS; first += EACH) {
        if (2 * first >= columns)
            break;
        float(&some)[EACH] = reinterpret_cast<float(&)[EACH]>(sums[first]);
        mox_sm90_scale_mx(some, args, front, to.most, part, min(columns - 2 * first, 2 * EACH), me);
        const uint2 *scales = (const uint2 *)mox_sm90_mx_scales(front, part) + me.lane % 4; /* of two columns */
#pragma unroll
        for (int j = 0; j < EACH / 4; j++) {
            if (2 * first + 8 * j >= columns)
                break;
            const uint2 words = scales[4 * j];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const uint32_t word = i % 2 == 0 ? words.x : words.y;
                const float scale = __fmul_rn(__uint_as_float(word & 0xffff0000), times);
                if (i / 2 < halves)
                    some[4 * j + i] =
                        __fmul_rn(mox_sm90_round(to, __fmul_rn(some[4 * j + i], __uint_as_float(word << 16))), scale);
            }
        }
    }
}

/* ---- a tile ---------------------------------------------------------------------------------------------------- */

template <bool DECODES, int SUMS, class COLUMNS>
__device__ __forceinline__ void mox_sm90_end_act(float (&sums)[SUMS], mox_sm90_front *front,
                                                 const mox_sm90_piece &piece, const mox_sm90_of_rows &rows,
                                                 const COLUMNS &factors, const mox_sm90_place &me, uint32_t *rounds)
{
    const mox_sm90_args &args = front->args;
    const mox_sm90_spot spot = mox_sm90_spot_of(args, piece, me);
    const int halves = args.gated ? 1 : 2;
    if (piece.columns == 0)
        return;
    mox_sm90_finish(sums, args, piece, rows, factors, me.lane);
    mox_sm90_activate(sums, args,
                      mox_glu_resolve(&args.activation, args.expert_of != nullptr ? args.expert_of[piece.slot] : -1),
                      spot, piece.columns);
    if (args.output == MOX_SM90_ACT_F32) {
        mox_sm90_store_f32(sums, args, piece, spot, me.lane);
        return;
    }
    if (!DECODES && args.output == MOX_SM90_ACT_E4M3) {
        const uint32_t round = (*rounds)++;
        mox_sm90_measure(sums, args, front, round, piece.columns, me.lane);
        mox_sm90_scale(args, front, piece, round, me);
    }
    if (DECODES && args.output == MOX_SM90_ACT_MX)
        mox_sm90_quantize_mx(sums, args, front, piece.columns, me);
#pragma unroll
    for (int h = 0; h < 2; h++)
        if (h < halves) {
            if (!DECODES && args.output == MOX_SM90_ACT_E4M3)
                mox_sm90_store_codes(sums, args, front, piece, spot, h, me.lane);
            else
                mox_sm90_store_wide(sums, args, piece, spot, h, me.lane);
        }
}

/* DECODES: so does the next product, which then reads 16 bits, whatever they were. */
template <bool DECODES, int SUMS, class COLUMNS>
__device__ __forceinline__ void mox_sm90_end(float (&sums)[SUMS], mox_sm90_front *front, const mox_sm90_piece &piece,
                                             const mox_sm90_of_rows &rows, const COLUMNS &factors,
                                             const mox_sm90_place &me, uint32_t *rounds)
{
    if (front->args.output == MOX_SM90_ROWS_F32)
        mox_sm90_end_rows(sums, front->args, piece, rows, factors, me);
    else
        mox_sm90_end_act<DECODES>(sums, front, piece, rows, factors, me, rounds);
}

#endif
