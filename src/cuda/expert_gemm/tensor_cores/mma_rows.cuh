/* SPDX-License-Identifier: Apache-2.0
 *
 * mma_rows.cuh - the first part of the epilogue (mma_epilogue.cuh): where a thread's sums lie in the product, the
 * factors and biases that they meet there, and how a warpgroup writes rows in f32.
 */
#ifndef MOX_CUDA_SM90_ROWS_CUH
#define MOX_CUDA_SM90_ROWS_CUH

#include "cuda/expert_gemm/tensor_cores/mma_tile.cuh"
#include "cuda/ptx/ptx_copy.cuh"

/* Where this thread's part of a tile lies: sums[4 j + 2 h + c] is row `row` + 8 h of the product and column 8 j + 2
 * (lane % 4) + c. Of a gated product h = 0 is the gate and h = 1 the up of output `to`; else h = 0 and h = 1 are
 * outputs `to` and `to` + 8. */
struct mox_sm90_fragment {
    int row, to;
    bool stored[2]; /* whether these outputs exist */
};

__device__ __forceinline__ mox_sm90_fragment mox_sm90_fragment_of(const mox_sm90_args &args,
                                                                  const mox_sm90_work_unit &unit,
                                                                  const mox_sm90_place &me)
{
    mox_sm90_fragment fragment;
    fragment.row = unit.tile * 128 + me.group * 64 + me.warp * 16 + me.lane / 4;
    fragment.to = args.gated ? fragment.row / 16 * 8 + fragment.row % 8 : fragment.row;
    fragment.stored[0] = fragment.to < args.rows;
    fragment.stored[1] = (args.gated ? fragment.to : fragment.to + 8) < args.rows;
    return fragment;
}

/* ---- factors and biases ---------------------------------------------------------------------------------------- */

/* Factors and biases of this thread's two rows; 1 and 0 where there are none. */
struct mox_sm90_row_constants {
    float2 factor, bias;
};

/* Where a warp of narrow token tiles stages the factors and then the biases of its sixteen rows. */
__device__ __forceinline__ float *mox_sm90_staged_constants(mox_sm90_header *header, const mox_sm90_place &me)
{
    return (float *)((uint8_t *)header + MOX_SM90_HEADER_BYTES) + (me.group * 4 + me.warp) * 32;
}

/* Copies a warp's row constants to shared memory when a narrow tile begins, one number a lane. At the tile's end the
 * loads would queue behind the stream of weights; prefetched to L2 now they would be evicted before. */
__device__ __forceinline__ void mox_sm90_fetch_row_constants(mox_sm90_header *header, const mox_sm90_work_unit &unit,
                                                             const mox_sm90_place &me)
{
    const int row = me.group * 64 + me.warp * 16 + me.lane % 16;
    const uint64_t at = me.lane < 16 ? header->args.row_scale_at : header->args.bias_at;
    if (at != 0 && row < unit.rows)
        mox_async_copy_word(mox_sm90_staged_constants(header, me) + me.lane,
                            unit.record + at + ((uint64_t)unit.tile * 128 + row) * 4);
}

/* Numbers of the two rows; *from is the first row's. */
__device__ __forceinline__ float2 mox_sm90_two_rows(const float *from, bool present, const mox_sm90_fragment &fragment,
                                                    float other)
{
    return make_float2(fragment.stored[0] && present ? from[0] : other,
                       fragment.stored[1] && present ? from[8] : other);
}

template <bool NARROW>
__device__ __forceinline__ mox_sm90_row_constants mox_sm90_load_row_constants(mox_sm90_header *header,
                                                                              const mox_sm90_work_unit &unit,
                                                                              const mox_sm90_place &me)
{
    const mox_sm90_args &args = header->args;
    const mox_sm90_fragment fragment = mox_sm90_fragment_of(args, unit, me);
    const float *constants = mox_sm90_staged_constants(header, me) + me.lane / 4;
    if constexpr (NARROW) {
        mox_async_copy_wait();
        __syncwarp();
    }
    const mox_sm90_row_constants rows = {
        mox_sm90_two_rows(NARROW ? constants : (const float *)(unit.record + args.row_scale_at) + fragment.row,
                          args.row_scale_at != 0, fragment, 1.0f),
        mox_sm90_two_rows(NARROW ? constants + 16 : (const float *)(unit.record + args.bias_at) + fragment.row,
                          args.bias_at != 0, fragment, 0.0f)
    };
    if constexpr (NARROW)
        __syncwarp(); /* then the next tile may overwrite them */
    return rows;
}

/* Factors of a tile's columns (tokens), for quantized activations: lane l holds those of columns l, l + 32, ... */
template <bool HAS, int SUMS> struct mox_sm90_column_factors {
    static constexpr int COUNT = (2 * SUMS + 31) / 32;
    float factor[COUNT];

    /* The gather may run beside this kernel, so the factors are read from L2. */
    __device__ __forceinline__ void load(const mox_sm90_args &args, const mox_sm90_work_unit &unit, int lane)
    {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            factor[i] = args.a_factor != nullptr && 32 * i + lane < unit.columns
                            ? __ldcg(args.a_factor + unit.row + 32 * i + lane)
                            : args.a_uniform_factor;
    }

    __device__ __forceinline__ void apply(float (&sums)[SUMS], const mox_sm90_args &args, int columns, int lane) const
    {
        if (args.a_factor == nullptr && args.a_uniform_factor == 1.0f)
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

template <int SUMS> struct mox_sm90_column_factors<false, SUMS> {
    __device__ __forceinline__ void load(const mox_sm90_args &, const mox_sm90_work_unit &, int)
    {
    }

    __device__ __forceinline__ void apply(float (&)[SUMS], const mox_sm90_args &, int, int) const
    {
    }
};

/* sum / factor: the product with the reciprocal, corrected by its remainder. */
__device__ __forceinline__ float mox_sm90_divide(float sum, float factor, float reciprocal)
{
    const float q = __fmul_rn(sum, reciprocal);
    return fabsf(q) <= FLT_MAX ? __fmaf_rn(__fmaf_rn(-q, factor, sum), reciprocal, q) : q;
}

/* sums = of(sum, h) for the sums of the first `columns` columns; h: this thread's row, 0 or 1. */
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
__device__ __forceinline__ void
mox_sm90_scale_and_bias(float (&sums)[SUMS], const mox_sm90_args &args, const mox_sm90_work_unit &unit,
                        const mox_sm90_row_constants &rows, const COLUMNS &columns, int lane)
{
    if (args.row_scale_at != 0) {
        const float2 f = rows.factor;
        const float2 over = make_float2(__frcp_rn(f.x), __frcp_rn(f.y));
        if (args.factor_divides)
            mox_sm90_each(sums, unit.columns, [=](float sum, int row) {
                return row == 0 ? mox_sm90_divide(sum, f.x, over.x) : mox_sm90_divide(sum, f.y, over.y);
            });
        else
            mox_sm90_each(sums, unit.columns, [=](float sum, int row) { return __fmul_rn(sum, row == 0 ? f.x : f.y); });
    }
    columns.apply(sums, args, unit.columns, lane);
    if (args.bias_at != 0) {
        const float2 bias = rows.bias;
        mox_sm90_each(sums, unit.columns,
                      [=](float sum, int row) { return __fadd_rn(sum, row == 0 ? bias.x : bias.y); });
    }
}

/* Integer sums, exact so far, become floats. */
template <int SUMS> __device__ __forceinline__ void mox_sm90_int_to_float(float (&sums)[SUMS], int columns)
{
    mox_sm90_each(sums, columns, [](float sum, int) { return __int2float_rn(__float_as_int(sum)); });
}

/* Adds what adapters change. Pairs that they leave alone have -0 there, which changes no bit. It was written a moment
 * ago, so it comes from L2. */
template <int SUMS>
__device__ __forceinline__ void mox_sm90_add_change(float (&sums)[SUMS], const mox_sm90_args &args,
                                                    const mox_sm90_work_unit &unit, const mox_sm90_place &me)
{
    const mox_sm90_fragment fragment = mox_sm90_fragment_of(args, unit, me);
    const int other = args.gated ? args.rows : 8, columns = unit.columns - me.lane % 4 * 2;
    const int64_t stride = args.gated ? 2 * args.rows : args.rows;
    const float *from = args.change + (unit.pair + me.lane % 4 * 2) * stride + fragment.to;
#pragma unroll
    for (int j = 0; j < SUMS / 4; j++) {
        if (8 * j >= unit.columns)
            break;
        float change[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            change[i] = 8 * j + i % 2 < columns && fragment.stored[i / 2]
                            ? __ldcg(from + i % 2 * stride + i / 2 * other)
                            : -0.0f;
#pragma unroll
        for (int i = 0; i < 4; i++)
            sums[4 * j + i] = __fadd_rn(sums[4 * j + i], change[i]);
        from += 8 * stride;
    }
}

/* ---- rows ------------------------------------------------------------------------------------------------------ */

/* Stores f32 rows. The loop's arguments are read before it: they lie in shared memory, and the compiler must assume
 * that any store changes them. */
template <int SUMS>
__device__ __forceinline__ void mox_sm90_epilogue_rows(float (&sums)[SUMS], const mox_sm90_args &args,
                                                       const mox_sm90_work_unit &unit, const mox_sm90_place &me)
{
    const mox_sm90_fragment fragment = mox_sm90_fragment_of(args, unit, me);
    const int other = args.gated ? args.rows : 8;
    const int all = unit.columns, columns = all - me.lane % 4 * 2; /* columns from this lane's first on */
    const int64_t stride = args.out_stride;
    float *to = args.out + (unit.pair + me.lane % 4 * 2) * stride + fragment.to;
#pragma unroll
    for (int j = 0; j < SUMS / 4; j++) {
        if (8 * j >= all)
            break;
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (8 * j + i % 2 < columns && fragment.stored[i / 2])
                __stcg(to + i % 2 * stride + i / 2 * other, sums[4 * j + i]);
        to += 8 * stride;
    }
}

#endif
