/* SPDX-License-Identifier: Apache-2.0
 *
 * mma_epilogue.cuh - the epilogue: what a warpgroup does with a finished tile, 64 rows by up to 288 columns, straight
 * from its accumulators:
 *
 *     rows    row factor, column factor, bias, adapters' change -> out: the eight lanes of a column write 32 bytes
 *     act     the same, then act(gate, up) in place of the gates -> the activations of W2, in f32, 16 bits or 8
 *
 * Gates and ups are interleaved by eight rows, so a thread has a gate and its up side by side. A row of the product is
 * a column of the output: a warp transposes its outputs, 8 by 8, from register to register, and writes 16 bytes a token
 * (8 of codes).
 *
 * Without adapters the epilogue reads nothing from device memory that is not on its way already. Where weights stream,
 * any other word waits up to 20 us in DRAM's queue.
 *
 * Quantizing to e4m3 needs the maximum over 128 outputs: the 64 rows of each of two warpgroups and, of a gated product,
 * of both blocks of a pair. Each warp adds its maxima to the shared ones once a tile. Powers of two are for 32 outputs,
 * which one warpgroup has; of a gated product they are all that it has.
 */
#ifndef MOX_CUDA_SM90_EPILOGUE_CUH
#define MOX_CUDA_SM90_EPILOGUE_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <float.h>

#include "cuda/expert_gemm/tensor_cores/mma_rows.cuh"
#include "cuda/expert_gemm/tensor_cores/mma_tile.cuh"
#include "cuda/glu/glu_one_lane.cuh"
#include "cuda/ptx/ptx_approximate.cuh"
#include "cuda/ptx/ptx_convert.cuh"
#include "cuda/ptx/ptx_copy.cuh"
#include "format/f8_e8m0.h"
#include "quant/scale_rule.h"

/* ---- activations ----------------------------------------------------------------------------------------------- */

/* Every activation but SiLU. */
static __device__ __noinline__ float mox_sm90_activate_any(int32_t kind, float alpha, float beta, float gate_limit,
                                                           float up_limit, float gate, float up)
{
    const mox_glu_parameters parameters = { alpha, beta, gate_limit, up_limit };
    return mox_device_activate(kind, parameters, gate, up);
}

/* The commonest kind, mox_formula_silu() in a quarter of its instructions. Error of the sigmoid s(t), u = 2^-24: the
 * argument 2.5 u |t| (two roundings, and a constant's), ex2 2.9 u and the sum 1 u, all times 1 - s; then 3 u of the sum
 * and the reciprocal. With three products that is at most |g s u| u (10 + 2.5 (1 - s) |t|). The oracle allows
 * |g s u| u (13 + 5 (1 - s) |t|) (ref_numbers.h). */
__device__ __forceinline__ float mox_sm90_silu(const mox_glu_parameters &p, float gate, float up)
{
    const float g = gate > p.gate_limit ? p.gate_limit : gate, high = up > p.up_limit ? p.up_limit : up;
    const float u = __fadd_rn(high < -p.up_limit ? -p.up_limit : high, p.beta);
    const float e = mox_exp2_approximate(__fmul_rn(__fmul_rn(g, p.alpha), -1.44269504f));
    return __fmul_rn(__fmul_rn(g, mox_reciprocal_approximate(__fadd_rn(1.0f, e))), u);
}

/* Accumulators whose activations are computed together: 32 columns, or 8. The chains of instructions are long, and few
 * other warps can hide them. */
template <int SUMS> constexpr int mox_sm90_activation_batch = SUMS > 16 ? 16 : 4;

/* Outputs replace their gates (of an ungated product, their sums); outputs that do not exist become zero. */
template <int SUMS>
__device__ __forceinline__ void mox_sm90_activate_silu(float (&sums)[SUMS], const mox_glu_parameters &p,
                                                       const mox_sm90_fragment &fragment, int columns)
{
#pragma unroll
    for (int first = 0; first < SUMS; first += mox_sm90_activation_batch<SUMS>) {
        if (2 * first >= columns)
            break;
#pragma unroll
        for (int i = first; i < SUMS && i < first + mox_sm90_activation_batch<SUMS>; i++)
            if (i % 4 < 2)
                sums[i] = mox_sm90_silu(p, sums[i], sums[i + 2]);
    }
    if (fragment.stored[0])
        return;
#pragma unroll
    for (int i = 0; i < SUMS; i++)
        sums[i] = 0.0f;
}

template <int SUMS>
__device__ __forceinline__ void mox_sm90_activate(float (&sums)[SUMS], const mox_sm90_args &args,
                                                  const mox_glu_parameters &p, const mox_sm90_fragment &fragment,
                                                  int columns)
{
    const int32_t kind = args.activation.kind;
    const bool gated = args.gated;
    if (kind == MOXIE_ACT_SILU) {
        mox_sm90_activate_silu(sums, p, fragment, columns);
        return;
    }
#pragma unroll
    for (int i = 0; i < SUMS; i++) {
        if (i % 4 == 0 && 2 * i >= columns)
            break;
        if (i % 4 < 2 || !gated)
            sums[i] = mox_sm90_activate_any(kind, p.alpha, p.beta, p.gate_limit, p.up_limit, sums[i],
                                            sums[i % 4 < 2 ? i + 2 : i]);
        sums[i] = fragment.stored[i / 2 % 2] ? sums[i] : 0.0f;
    }
}

/* Address in the activations of the next product, which have rows of `stride` bytes: column 0 of the unit's token tile,
 * at byte `to` of a row. It is for lanes that write columns c with c % 8 == `eighth`; column c is 128 c bytes further.
 */
__device__ __forceinline__ uint8_t *mox_sm90_next_at(const mox_sm90_args &args, const mox_sm90_work_unit &unit, int to,
                                                     int eighth, int64_t stride)
{
    const int in = to % 128;
    return (uint8_t *)args.next + unit.row * stride + (int64_t)(to / 128) * mox_sm90_tile_rows(unit) * 128 +
           ((in / 16 ^ eighth) << 4) + in % 16;
}

/* Stores f32 activations in rows of I numbers, like mox_sm90_epilogue_rows(). */
template <int SUMS>
__device__ __forceinline__ void mox_sm90_store_f32(const float (&sums)[SUMS], float *out, const mox_sm90_args &args,
                                                   const mox_sm90_work_unit &unit, const mox_sm90_fragment &fragment,
                                                   int lane)
{
    const int all = unit.columns, columns = all - lane % 4 * 2, outputs = args.gated ? 2 : 4;
    const int64_t stride = args.rows;
    float *to = out + (unit.pair + lane % 4 * 2) * stride + fragment.to;
#pragma unroll
    for (int j = 0; j < SUMS / 4; j++) {
        if (8 * j >= all)
            break;
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (i < outputs && 8 * j + i % 2 < columns && fragment.stored[i / 2])
                __stcg(to + i % 2 * stride + i / 2 * 8, sums[4 * j + i]);
        to += 8 * stride;
    }
}

/* Stores 16-bit activations. After the transpose a lane has two neighbours of one token, four lanes all eight. */
template <int SUMS>
__device__ __forceinline__ void mox_sm90_store_16bit(const float (&sums)[SUMS], const mox_sm90_args &args,
                                                     const mox_sm90_work_unit &unit, const mox_sm90_fragment &fragment,
                                                     int h, int lane)
{
    const int first = fragment.to - lane / 4 + 8 * h, columns = unit.columns;
    const int end = first < args.next_stride ? columns : 0;
    const bool f16 = args.output == MOX_SM90_ACT_F16;
    uint8_t *to =
        mox_sm90_next_at(args, unit, first * 2, lane / 4, args.next_stride * 2) + lane / 4 * 128 + lane % 4 * 4;
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

/* Calls add(column, bits) with this warp's maximum of each column. Eight lanes start with eight rows of eight columns;
 * each step halves a lane's columns and doubles its rows. */
template <int SUMS, class ADD>
__device__ __forceinline__ void mox_sm90_column_max(const float (&sums)[SUMS], bool gated, int columns, int lane,
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

/* Merges this warp's maxima into the maxima shared by all warps that hold a part of the 128 outputs. */
template <int SUMS>
__device__ __forceinline__ void mox_sm90_share_max(const float (&sums)[SUMS], const mox_sm90_args &args,
                                                   mox_sm90_header *header, uint32_t round, int columns, int lane)
{
    const int rank = mox_sm90_rank(args);
    uint32_t *maxima = header->maxima[round % 2];
    uint64_t *barrier = header->maxima_ready + round % 2;
    mox_sm90_column_max(sums, args.gated, columns, lane, [=](int column, uint32_t bits) {
        mox_shared_max(maxima + column, bits);
        if (args.gated)
            mox_cluster_max(mox_cluster_address(maxima + column, rank ^ 1), bits);
    });
    __syncwarp();
    if (lane == 0) {
        mox_mbarrier_arrive(barrier);
        if (args.gated)
            mox_cluster_arrive_release(mox_cluster_address(barrier, rank ^ 1));
    }
}

/* When all maxima are there: the scales of the columns, one consumer thread each. It also zeroes the maxima for the
 * round after the next. */
__device__ __forceinline__ void mox_sm90_make_scales(const mox_sm90_args &args, mox_sm90_header *header,
                                                     const mox_sm90_work_unit &unit, uint32_t round,
                                                     const mox_sm90_place &me)
{
    const int group = (int)(args.gated ? unit.tile / 2 : unit.tile);
    const bool leaves = (!args.gated || unit.tile % 2 == 0) && group * 128 < args.next_stride;
    float *to = args.next_scale + unit.row * (args.next_stride / 128) + (int64_t)group * mox_sm90_tile_rows(unit);
    mox_cluster_wait(header->maxima_ready + round % 2, round / 2 & 1);
    for (int c = me.group * 128 + me.thread; c < unit.columns; c += 128 * MOX_SM90_GROUPS) {
        const float amax = fminf(__uint_as_float(header->maxima[round % 2][c]), FLT_MAX);
        const float plain = __fdiv_rn(amax > 1e-10f ? amax : 1e-10f, 448.0f);
        const float scale =
            args.next_rule == MOXIE_RULE_UE8M0 ? mox_power_of_two_up(plain > 1e-10f ? plain : 1e-10f) : plain;
        header->maxima[round % 2][c] = 0;
        header->scales[c] = make_float2(scale, __frcp_rn(scale));
        if (leaves)
            __stcg(to + c, scale);
    }
    mox_named_barrier(MOX_SM90_CONSUMER_BARRIER, 128 * MOX_SM90_GROUPS);
}

/* x / scale, rounded to nearest wherever the code depends on it. scale.y is the rounded reciprocal: the quotient is off
 * by at most one place, which a step on its remainder corrects (Markstein). Nothing underflows from 2^-11 on, and
 * smaller numbers have code 0. Infinities are bounded to where the step is harmless, as codes end at 448. Zeros keep
 * their sign. */
__device__ __forceinline__ float mox_sm90_divide(float x, float2 scale)
{
    const float near = mox_clamp_magnitude(__fmul_rn(x, scale.y), 1e30f);
    return copysignf(__fmaf_rn(__fmaf_rn(-near, scale.x, x), scale.y, near), x);
}

/* Stores e4m3 codes, by the operations of quant/act_quant.c. Of 16 columns at a time a lane ends with four neighbours
 * of one token, two lanes with all eight: pairs of codes, of two tokens, are transposed as 16-bit words, and
 * neighbouring lanes then exchange a token. */
template <int SUMS>
__device__ __forceinline__ void mox_sm90_store_e4m3(const float (&sums)[SUMS], const mox_sm90_args &args,
                                                    const mox_sm90_header *header, const mox_sm90_work_unit &unit,
                                                    const mox_sm90_fragment &fragment, int h, int lane)
{
    const float4 *scales = (const float4 *)header->scales + lane % 4; /* of two columns */
    const int first = fragment.to - lane / 4 + 8 * h, columns = unit.columns, odd = lane & 1;
    const int end = first < args.next_stride ? columns : 0;
    const int column = lane / 4 % 2 * 8 + lane / 8 * 2 + odd;
    uint8_t *to = mox_sm90_next_at(args, unit, first, column % 8, args.next_stride) + column * 128 + lane / 2 % 2 * 4;
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

/* Columns that are quantized at a time: one a thread of a warpgroup, for four groups of 32 outputs in the header. */
constexpr int mox_sm90_mx_columns = 128;
static_assert(sizeof mox_sm90_header::maxima >= 16 * mox_sm90_mx_columns, "no room for what groups of 32 measure");
static_assert(sizeof mox_sm90_header::scales >= 16 * mox_sm90_mx_columns, "no room for the scales of groups of 32");

/* Where `maxima` and `scales` have the numbers of the block's group `part`. */
__device__ __forceinline__ uint32_t *mox_sm90_mx_max(mox_sm90_header *header, int part)
{
    return header->maxima[0] + part * mox_sm90_mx_columns;
}

__device__ __forceinline__ uint32_t *mox_sm90_mx_scales(mox_sm90_header *header, int part)
{
    return (uint32_t *)header->scales + part * mox_sm90_mx_columns;
}

/* What rounding to an element needs: its largest number, what NaN becomes, */
struct mox_sm90_rounding {
    float max, nan;
    uint32_t min_normal, round_shift; /* bits of the smallest normal number; what makes of 2^n's bits those of the
                                         number that rounds at 2^n */
};

__device__ __forceinline__ mox_sm90_rounding mox_sm90_rounding_of(const mox_sm90_acts &acts)
{
    const float max = __fmul_rn(__uint_as_float(acts.max_code << acts.shift), acts.rebias);
    return { max, acts.bits == 8 ? __uint_as_float(0x7fffffff) : max, __float_as_uint(acts.rebias) - (126u << 23),
             (uint32_t)acts.shift << 23 | 0x400000 };
}

/* The element nearest to x, ties to even, with the sign of x. Added to 3 * 2^(n + shift - 1) a number of size 2^n keeps
 * exactly the places that an element has. */
__device__ __forceinline__ float mox_sm90_round(const mox_sm90_rounding &to, float x)
{
    const float any = mox_clamp_magnitude(x, to.max), bounded = any == any ? any : to.nan;
    const uint32_t power = max(__float_as_uint(bounded) & 0x7f800000, to.min_normal);
    const float large = __uint_as_float(power + to.round_shift);
    return copysignf(__fsub_rn(__fadd_rn(bounded, large), large), bounded);
}

/* Scales of each 32 outputs of this warpgroup, for up to 128 columns, by the rule of quant/act_quant.c; one thread a
 * column. High half of a word: the scale; low half: its reciprocal. */
template <int SUMS>
__device__ __forceinline__ void mox_sm90_make_scales_mx(const float (&sums)[SUMS], const mox_sm90_args &args,
                                                        mox_sm90_header *header, float max, int part, int columns,
                                                        const mox_sm90_place &me)
{
    uint32_t *maxima = mox_sm90_mx_max(header, part);
    mox_sm90_column_max(sums, args.gated, columns, me.lane,
                        [=](int column, uint32_t bits) { mox_shared_max(maxima + column, bits); });
    mox_named_barrier(MOX_SM90_WARPGROUP_BARRIER + me.group, 128);
    const int parts = args.gated ? 1 : 2;
    for (int i = me.group * parts; i < (me.group + 1) * parts && me.thread < columns; i++) {
        uint32_t *amax = mox_sm90_mx_max(header, i) + me.thread;
        const int e = mox_act_scale_exponent(args.next_rule, max, fminf(__uint_as_float(*amax), FLT_MAX));
        *amax = 0;
        mox_sm90_mx_scales(header, i)[me.thread] =
            mox_convert_bf16x2(mox_f8_e8m0_decode((uint32_t)(127 - e)), mox_f8_e8m0_decode((uint32_t)(127 + e)));
    }
    mox_named_barrier(MOX_SM90_WARPGROUP_BARRIER + me.group, 128);
}

/* Outputs become what a gather would make of their codes, by the same operations (sm90_acts.cuh). */
template <int SUMS>
__device__ __forceinline__ void mox_sm90_quantize_mx(float (&sums)[SUMS], const mox_sm90_args &args,
                                                     mox_sm90_header *header, int columns, const mox_sm90_place &me)
{
    constexpr int EACH = SUMS < mox_sm90_mx_columns / 2 ? SUMS : mox_sm90_mx_columns / 2;
    const mox_sm90_rounding to = mox_sm90_rounding_of(args.next_acts);
    const float times = args.next_acts.scale_factor;
    const int part = args.gated ? me.group : 2 * me.group + me.warp / 2, halves = args.gated ? 1 : 2;
#pragma unroll
    for (int first = 0; first < SUMS; first += EACH) {
        if (2 * first >= columns)
            break;
        float(&some)[EACH] = reinterpret_cast<float(&)[EACH]>(sums[first]);
        mox_sm90_make_scales_mx(some, args, header, to.max, part, min(columns - 2 * first, 2 * EACH), me);
        const uint2 *scales = (const uint2 *)mox_sm90_mx_scales(header, part) + me.lane % 4; /* of two columns */
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

template <bool DECODES, int SUMS>
__device__ __forceinline__ void mox_sm90_epilogue_act(float (&sums)[SUMS], mox_sm90_header *header,
                                                      const mox_sm90_work_unit &unit, const mox_sm90_place &me,
                                                      uint32_t *rounds)
{
    const mox_sm90_args &args = header->args;
    const mox_sm90_fragment fragment = mox_sm90_fragment_of(args, unit, me);
    const int halves = args.gated ? 1 : 2;
    if (unit.columns == 0)
        return;
    mox_sm90_activate(sums, args,
                      mox_glu_resolve(&args.activation, args.expert_of != nullptr ? args.expert_of[unit.slot] : -1),
                      fragment, unit.columns);
    float *const act = args.output == MOX_SM90_ACT_F32 ? args.out : args.kept_act;
    if (act != nullptr)
        mox_sm90_store_f32(sums, act, args, unit, fragment, me.lane);
    if (args.output == MOX_SM90_ACT_F32)
        return;
    if constexpr (!DECODES)
        if (args.output == MOX_SM90_ACT_E4M3) {
            const uint32_t round = (*rounds)++;
            mox_sm90_share_max(sums, args, header, round, unit.columns, me.lane);
            mox_sm90_make_scales(args, header, unit, round, me);
        }
    if (DECODES && args.output == MOX_SM90_ACT_MX)
        mox_sm90_quantize_mx(sums, args, header, unit.columns, me);
#pragma unroll
    for (int h = 0; h < 2; h++)
        if (h < halves) {
            if constexpr (!DECODES)
                if (args.output == MOX_SM90_ACT_E4M3) {
                    mox_sm90_store_e4m3(sums, args, header, unit, fragment, h, me.lane);
                    continue;
                }
            mox_sm90_store_16bit(sums, args, unit, fragment, h, me.lane);
        }
}

/* DECODES: the next product dequantizes, too, and so reads 16-bit activations. */
template <bool DECODES, int SUMS, class COLUMNS>
__device__ __forceinline__ void mox_sm90_epilogue(float (&sums)[SUMS], mox_sm90_header *header,
                                                  const mox_sm90_work_unit &unit, const mox_sm90_row_constants &rows,
                                                  const COLUMNS &factors, const mox_sm90_place &me, uint32_t *rounds)
{
    mox_sm90_scale_and_bias(sums, header->args, unit, rows, factors, me.lane);
    if (header->args.change != nullptr)
        mox_sm90_add_change(sums, header->args, unit, me);
    if (header->args.output == MOX_SM90_OUT_F32)
        mox_sm90_epilogue_rows(sums, header->args, unit, me);
    else
        mox_sm90_epilogue_act<DECODES>(sums, header, unit, me, rounds);
}

#endif
