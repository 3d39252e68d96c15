/* SPDX-License-Identifier: Apache-2.0
 *
 * lora_shrink.cuh - u[j][i] = s sum_k A[i,k] x[j][k] on tensor cores: a block has a tile, a matrix and 16 rows of A.
 *
 *     A   16 rows       --> bf16 pieces --> d[16 rows of A, 8 rows of x]  --> | sums of 8 warps | --> s (sum of them)
 *     x   up to 8 rows  --> bf16 pieces ---'
 *
 * The order of a sum depends on the number of columns alone: steps of 32 columns go to the eight warps in turn, a warp
 * adds its steps in order, and the warps' sums are added in order. A lane of a quad loads 8 neighbours of a row, so two
 * MMAs have the 32 columns of a step in an order of their own, the same for A and x.
 *
 * A number in bf16 is one piece. Others are cut into two (f16) or three (f32), each the upper half of what is left in
 * f32, which is exact but for numbers below 2^-110. Every piece of A meets every piece of x. Products of first pieces
 * have sums of their own, so that those of the others, which are 2^-6 of them or less, are not rounded to their size.
 *
 * Nothing is copied to shared memory: no number is read twice. For W2 the first factors are on their way before the
 * kernel in front has ended (lora_tiles.cuh).
 */
#ifndef MOX_CUDA_LORA_LORA_SHRINK_CUH
#define MOX_CUDA_LORA_LORA_SHRINK_CUH

#include "cuda/device/device_format.cuh"
#include "cuda/lora/lora_tiles.cuh"
#include "cuda/ptx/ptx_mma.cuh"

enum {
    MOX_SHRINK_RANKS = 16, /* rows of A of a block */
    MOX_SHRINK_WARPS = 8,
    MOX_SHRINK_THREADS = 32 * MOX_SHRINK_WARPS,
    MOX_SHRINK_EIGHT = 8,                                  /* neighbours that a lane loads */
    MOX_SHRINK_STEP = 4 * MOX_SHRINK_EIGHT,                /* columns of a warp's step */
    MOX_SHRINK_ROUND = MOX_SHRINK_WARPS * MOX_SHRINK_STEP, /* of a step of every warp */
    MOX_SHRINK_SUMS = MOX_SHRINK_RANKS * MOX_CUDA_LORA_ROWS,
    /* | tile | sums [8 warps, 8 rows of x, 16 rows of A] | */
    MOX_SHRINK_SHARED = MOX_LORA_TILE_BYTES + MOX_SHRINK_WARPS * MOX_SHRINK_SUMS * 4
};

template <moxie_dtype DTYPE> constexpr int mox_shrink_size = DTYPE == MOXIE_F32 ? 4 : 2;
template <moxie_dtype DTYPE> constexpr int mox_shrink_pieces = DTYPE == MOXIE_F32 ? 3 : DTYPE == MOXIE_F16 ? 2 : 1;

/* Steps of a warp that are on their way at a time. */
template <moxie_dtype A> constexpr int mox_shrink_batch = A == MOXIE_F32 ? 1 : 4;

/* Eight neighbours in memory. */
template <moxie_dtype DTYPE> struct mox_shrink_eight {
    enum { UNITS = mox_shrink_size<DTYPE> / 2, IN_UNIT = MOX_SHRINK_EIGHT / UNITS };
    uint4 units[UNITS];
};

/* Eight neighbours in bf16: their sum over the pieces is the number. */
template <moxie_dtype DTYPE> struct mox_shrink_bf16 {
    uint32_t pieces[mox_shrink_pieces<DTYPE>][MOX_SHRINK_EIGHT / 2];
};

/* What a lane reads: rows i and i + 8 of A, one row of x, which `weight` multiplies. A row that does not exist has 0
 * columns. */
struct mox_shrink_rows {
    const uint8_t *a[2], *x;
    int a_cols[2], x_cols;
    float weight;
};

/* ---- loads ----------------------------------------------------------------------------------------------------- */

/* Columns [k, k + 8) of a row; zero past the last. */
template <moxie_dtype DTYPE>
static __device__ __forceinline__ mox_shrink_eight<DTYPE> mox_shrink_load(const uint8_t *row, int k, int cols)
{
    typedef mox_shrink_eight<DTYPE> eight;
    eight e;
#pragma unroll
    for (int i = 0; i < eight::UNITS; i++) {
        const int first = k + i * eight::IN_UNIT;
        e.units[i] = make_uint4(0, 0, 0, 0);
        if (first < cols)
            e.units[i] = *reinterpret_cast<const uint4 *>(row + first * mox_shrink_size<DTYPE>);
    }
    return e;
}

/* The same where rows are not aligned. */
template <moxie_dtype DTYPE>
static __device__ __forceinline__ mox_shrink_eight<DTYPE> mox_shrink_load_slowly(const uint8_t *row, int k, int cols)
{
    constexpr int IN_WORD = 4 / mox_shrink_size<DTYPE>;
    uint32_t words[MOX_SHRINK_EIGHT / IN_WORD] = {};
    mox_shrink_eight<DTYPE> e;
#pragma unroll
    for (int i = 0; i < MOX_SHRINK_EIGHT; i++) {
        if (k + i >= cols)
            continue;
        words[i / IN_WORD] |= mox_shrink_size<DTYPE> == 4
                                  ? reinterpret_cast<const uint32_t *>(row)[k + i]
                                  : static_cast<uint32_t>(reinterpret_cast<const uint16_t *>(row)[k + i])
                                        << 16 * (i % IN_WORD);
    }
#pragma unroll
    for (int i = 0; i < mox_shrink_eight<DTYPE>::UNITS; i++)
        e.units[i] = make_uint4(words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]);
    return e;
}

/* ---- pieces ---------------------------------------------------------------------------------------------------- */

/* Cuts a number: codes of its pieces. NaN stays NaN, an infinity has zeros behind it. */
template <int PIECES> static __device__ __forceinline__ void mox_shrink_cut(float number, uint32_t (&codes)[PIECES])
{
    const bool finite = (__float_as_uint(number) & 0x7fffffffu) < MOX_F32_INF;
    if (!finite)
        codes[0] = mox_bf16_narrow(number);
#pragma unroll
    for (int p = 0; p < PIECES; p++) {
        const uint32_t upper = __float_as_uint(number) & 0xffff0000u;
        if (finite || p > 0)
            codes[p] = upper >> 16;
        number = finite ? __fadd_rn(number, -__uint_as_float(upper)) : 0.0f;
    }
}

template <moxie_dtype DTYPE>
static __device__ __forceinline__ float mox_shrink_number(const mox_shrink_eight<DTYPE> &e, int i)
{
    const uint4 u = e.units[i / mox_shrink_eight<DTYPE>::IN_UNIT];
    const int word = i % mox_shrink_eight<DTYPE>::IN_UNIT * mox_shrink_size<DTYPE> / 4;
    const uint32_t bits = word == 0 ? u.x : word == 1 ? u.y : word == 2 ? u.z : u.w;
    if (DTYPE == MOXIE_F32)
        return __uint_as_float(bits);
    const uint32_t code = i % 2 == 0 ? bits & 0xffff : bits >> 16;
    return DTYPE == MOXIE_BF16 ? __uint_as_float(code << 16) : mox_f16_decode(code);
}

template <moxie_dtype DTYPE, bool PLAIN>
static __device__ __forceinline__ mox_shrink_bf16<DTYPE> mox_shrink_convert(const mox_shrink_eight<DTYPE> &e,
                                                                            float weight)
{
    constexpr int PIECES = mox_shrink_pieces<DTYPE>;
    mox_shrink_bf16<DTYPE> to;
    if (DTYPE == MOXIE_BF16 && PLAIN) {
        const uint4 u = e.units[0];
        to.pieces[0][0] = u.x, to.pieces[0][1] = u.y, to.pieces[0][2] = u.z, to.pieces[0][3] = u.w;
        return to;
    }
#pragma unroll
    for (int w = 0; w < MOX_SHRINK_EIGHT / 2; w++) {
        uint32_t codes[2][PIECES];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float x = mox_shrink_number<DTYPE>(e, 2 * w + h);
            mox_shrink_cut<PIECES>(PLAIN ? x : mox_device_round_to(DTYPE, __fmul_rn(x, weight)), codes[h]);
        }
#pragma unroll
        for (int p = 0; p < PIECES; p++)
            to.pieces[p][w] = codes[0][p] | codes[1][p] << 16;
    }
    return to;
}

/* ---- sums ------------------------------------------------------------------------------------------------------ */

/* Products of 32 columns: sums[0] of the first pieces, sums[1] of all others. */
template <moxie_dtype A, moxie_dtype X>
static __device__ __forceinline__ void mox_shrink_multiply(float (&sums)[2][4], const mox_shrink_bf16<A> &first,
                                                           const mox_shrink_bf16<A> &second,
                                                           const mox_shrink_bf16<X> &x)
{
#pragma unroll
    for (int p = 0; p < mox_shrink_pieces<A>; p++)
#pragma unroll
        for (int q = 0; q < mox_shrink_pieces<X>; q++)
#pragma unroll
            for (int half = 0; half < MOX_SHRINK_EIGHT / 2; half += 2) {
                const uint32_t a[4] = { first.pieces[p][half], second.pieces[p][half], first.pieces[p][half + 1],
                                        second.pieces[p][half + 1] };
                const uint32_t b[2] = { x.pieces[q][half], x.pieces[q][half + 1] };
                mox_mma_bf16(sums[p + q > 0], a, b);
            }
}

/* A warp's steps. `find` returns this lane's row of x, which exists from then on. */
template <moxie_dtype A, moxie_dtype X, bool PLAIN, class FIND>
static __device__ __forceinline__ void mox_shrink_add(float (&sums)[2][4], mox_shrink_rows &rows, int cols, FIND find)
{
    constexpr int BATCH = mox_shrink_batch<A>;
    const int begin = static_cast<int>(threadIdx.x) / 32 * MOX_SHRINK_STEP,
              lane = static_cast<int>(threadIdx.x) % 4 * MOX_SHRINK_EIGHT;
    mox_shrink_eight<A> a[BATCH][2];
    mox_shrink_eight<X> x[BATCH];
    bool found = false;
    for (int step = begin; step < cols || !found; step += BATCH * MOX_SHRINK_ROUND) {
#pragma unroll
        for (int i = 0; i < BATCH; i++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                a[i][h] = mox_shrink_load<A>(rows.a[h], step + i * MOX_SHRINK_ROUND + lane, rows.a_cols[h]);
        if (!found)
            find(rows);
        found = true;
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            const int k = step + i * MOX_SHRINK_ROUND + lane;
            x[i] =
                PLAIN ? mox_shrink_load<X>(rows.x, k, rows.x_cols) : mox_shrink_load_slowly<X>(rows.x, k, rows.x_cols);
        }
#pragma unroll
        for (int i = 0; i < BATCH; i++)
            mox_shrink_multiply<A, X>(sums, mox_shrink_convert<A, true>(a[i][0], 1.0f),
                                      mox_shrink_convert<A, true>(a[i][1], 1.0f),
                                      mox_shrink_convert<X, PLAIN>(x[i], rows.weight));
    }
}

/* ---- a tile ---------------------------------------------------------------------------------------------------- */

/* What a block multiplies: the tile's rows by rows [first, first + 16) of A. */
struct mox_shrink_work {
    const mox_cuda_lora_tile *tile;
    const mox_lora_adapter *adapter;
    int matrix, first;
};

/* Finds the row of x of this lane. */
template <moxie_dtype X>
static __device__ __forceinline__ void mox_shrink_find(const mox_lora_args &args, const mox_cuda_lora_tile &tile,
                                                       mox_shrink_rows &rows)
{
    const int j = static_cast<int>(threadIdx.x) % 32 / 4;
    const int64_t row_bytes = args.cols * mox_shrink_size<X>;
    if (j >= tile.rows)
        return;
    const int64_t pair = tile.pair[j], row = args.row_of != nullptr ? args.row_of[pair] : pair;
    rows.x = static_cast<const uint8_t *>(args.x) + row * row_bytes;
    rows.x_cols = static_cast<int>(args.cols);
    rows.weight = args.row_weight != nullptr ? args.row_weight[pair] : 1.0f;
}

/* Adds the warps' sums up in order, and stores them times the scale. */
static __device__ __forceinline__ void mox_shrink_store(const mox_lora_args &args, const mox_shrink_work &work,
                                                        const float (&sums)[2][4])
{
    float *all = reinterpret_cast<float *>(shared + MOX_LORA_TILE_BYTES);
    const int t = static_cast<int>(threadIdx.x), row = t % 32 / 4, column = t % 4 * 2;
    const mox_lora_matrix &m = work.adapter->matrix[work.matrix];
#pragma unroll
    for (int e = 0; e < 4; e++)
        all[t / 32 * MOX_SHRINK_SUMS + (column + e % 2) * MOX_SHRINK_RANKS + row + e / 2 * 8] =
            __fadd_rn(sums[0][e], sums[1][e]);
    __syncthreads();
    const int j = t / MOX_SHRINK_RANKS, i = work.first + t % MOX_SHRINK_RANKS;
    if (t >= MOX_SHRINK_SUMS || j >= work.tile->rows || i >= m.rank)
        return;
    float sum = all[t];
#pragma unroll
    for (int w = 1; w < MOX_SHRINK_WARPS; w++)
        sum = __fadd_rn(sum, all[w * MOX_SHRINK_SUMS + t]);
    mox_lora_u(&args, work.adapter, work.tile->pair[j], work.matrix)[i] = __fmul_rn(m.scale, sum);
}

/* `wait`: what must have ended before x is read. */
template <moxie_dtype A, moxie_dtype X, bool PLAIN, class WAIT>
static __device__ __forceinline__ void mox_shrink_tile(const mox_lora_args &args, const mox_shrink_work &work,
                                                       WAIT wait)
{
    const mox_lora_matrix &m = work.adapter->matrix[work.matrix];
    const int64_t padded = mox_lora_padded(args.cols);
    const uint8_t *a = static_cast<const uint8_t *>(m.a) + work.tile->slot * m.a_expert_bytes;
    mox_shrink_rows rows = {};
    float sums[2][4] = {};
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int i = work.first + static_cast<int>(threadIdx.x) % 32 / 4 + 8 * h;
        rows.a[h] = a + i * padded * mox_shrink_size<A>;
        rows.a_cols[h] = i < m.rank ? static_cast<int>(padded) : 0;
    }
    mox_shrink_add<A, X, PLAIN>(sums, rows, static_cast<int>(padded), [&](mox_shrink_rows &to) {
        wait();
        mox_shrink_find<X>(args, *work.tile, to);
    });
    mox_shrink_store(args, work, sums);
}

template <moxie_dtype X, bool PLAIN, class WAIT>
static __device__ __forceinline__ void mox_shrink_any(const mox_lora_args &args, const mox_shrink_work &work, WAIT wait)
{
    if (work.adapter->matrix[work.matrix].a_dtype == MOXIE_BF16)
        mox_shrink_tile<MOXIE_BF16, X, PLAIN>(args, work, wait);
    else
        mox_shrink_tile<MOXIE_F32, X, PLAIN>(args, work, wait);
}

/* Matrix y of a product: gate and up, or the one it has. */
static __device__ __forceinline__ int mox_lora_matrix_at(const mox_lora_args &args, int y)
{
    return args.second ? MOX_LORA_DOWN : args.gated && y == 0 ? MOX_LORA_GATE : MOX_LORA_UP;
}

/* X: dtype of x. PLAIN: its rows have no weight, and can be loaded 16 bytes at a time. */
template <moxie_dtype X, bool PLAIN>
static __global__ void __launch_bounds__(MOX_SHRINK_THREADS, 2)
    mox_lora_shrink(const __grid_constant__ mox_lora_args args)
{
    const int matrices = !args.second && args.gated ? 2 : 1;
    const int matrix = mox_lora_matrix_at(args, static_cast<int>(blockIdx.y) % matrices),
              first = static_cast<int>(blockIdx.y) / matrices * MOX_SHRINK_RANKS;
    bool waited = false;
    const auto wait = [&]() {
        if (waited)
            return;
        mox_grid_wait();
        mox_grid_release(); /* not earlier: expand reads tiles without waiting */
        waited = true;
    };
    if (!args.second)
        wait(); /* for the tiles */
    mox_lora_each_tile(args, [&](const mox_cuda_lora_tile &tile) {
        const mox_lora_adapter *adapter = tile.adapter >= 0 ? args.adapters[tile.adapter] : nullptr;
        if (adapter == nullptr || first >= adapter->matrix[matrix].rank ||
            (matrix == MOX_LORA_UP && args.gated && adapter->one_a))
            return;
        mox_shrink_any<X, PLAIN>(args, { &tile, adapter, matrix, first }, wait);
    });
    wait();
}

#endif
