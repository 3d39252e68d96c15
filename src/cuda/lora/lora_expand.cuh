/* SPDX-License-Identifier: Apache-2.0
 *
 * lora_expand.cuh - out[j][n] += sum_i B[n,i] u[j][i]: a block has a tile and 256 rows of one B, two a thread. Factors
 * of the first sixteen i are on their way before the shrink has ended (lora_tiles.cuh).
 */
#ifndef MOX_CUDA_LORA_LORA_EXPAND_CUH
#define MOX_CUDA_LORA_LORA_EXPAND_CUH

#include "cuda/lora/lora_tiles.cuh"

enum { MOX_EXPAND_THREADS = 128, MOX_EXPAND_ROWS = 2 * MOX_EXPAND_THREADS, MOX_EXPAND_BATCH = 16 };

/* Numbers i of a row of B that are on their way at a time. */
template <moxie_dtype DTYPE>
constexpr int mox_expand_batch = DTYPE == MOXIE_F32 ? MOX_EXPAND_BATCH / 2 : MOX_EXPAND_BATCH;

/* The rank with room for a whole batch: behind the last number there are zeros, whose products change no sum. */
static __host__ __device__ inline int mox_expand_padded(int64_t rank)
{
    return static_cast<int>((rank + MOX_EXPAND_BATCH - 1) / MOX_EXPAND_BATCH * MOX_EXPAND_BATCH);
}

/* | tile | u [padded rank, 8] | */
static inline int mox_expand_shared_bytes(int64_t max_rank)
{
    return MOX_LORA_TILE_BYTES + mox_expand_padded(max_rank) * MOX_CUDA_LORA_ROWS * 4;
}

/* What a thread computes: rows `row` and `row` + 1 of a matrix, columns `n` and `n` + 1 of the result. */
struct mox_expand_place {
    int matrix;
    int64_t row, rows, n; /* rows: of the matrix */
};

static __device__ __forceinline__ mox_expand_place mox_expand_place_of(const mox_lora_args &args)
{
    const bool gated = !args.second && args.gated;
    const int64_t rows = gated ? args.n_out / 2 : args.n_out, blocks = (rows + MOX_EXPAND_ROWS - 1) / MOX_EXPAND_ROWS;
    const bool up = blockIdx.y >= blocks;
    const int64_t row = (blockIdx.y - (up ? blocks : 0)) * MOX_EXPAND_ROWS + 2 * threadIdx.x;
    return { args.second    ? MOX_LORA_DOWN
             : gated && !up ? MOX_LORA_GATE
                            : MOX_LORA_UP,
             row, rows, row + (up ? rows : 0) };
}

/* u of a tile's rows: u[i][j] in shared memory. */
static __device__ __forceinline__ void mox_expand_load_u(const mox_lora_args &args, const mox_cuda_lora_tile &tile,
                                                         const mox_lora_adapter *adapter, int matrix, float *u)
{
    const int rank = adapter->matrix[matrix].rank;
    for (int at = static_cast<int>(threadIdx.x); at < mox_expand_padded(rank) * MOX_CUDA_LORA_ROWS;
         at += MOX_EXPAND_THREADS) {
        const int j = at % MOX_CUDA_LORA_ROWS, i = at / MOX_CUDA_LORA_ROWS;
        u[at] = j < tile.rows && i < rank ? mox_lora_u(&args, adapter, tile.pair[j], matrix)[i] : 0.0f;
    }
}

/* Numbers i, i + 1, ... of this thread's two rows of B. */
template <moxie_dtype DTYPE>
static __device__ __forceinline__ void mox_expand_load_b(mox_lora_two<DTYPE> (&b)[mox_expand_batch<DTYPE>],
                                                         const mox_lora_matrix &m, int64_t slot, int64_t row, int i)
{
    const mox_lora_two<DTYPE> *from =
        reinterpret_cast<const mox_lora_two<DTYPE> *>(static_cast<const char *>(m.b) + slot * m.b_expert_bytes) +
        ((row / MOX_LORA_LANES * m.rank + i) * MOX_LORA_LANES + row % MOX_LORA_LANES) / 2;
#pragma unroll
    for (int k = 0; k < mox_expand_batch<DTYPE>; k++)
        b[k] = i + k < m.rank ? from[k * (MOX_LORA_LANES / 2)] : mox_lora_two<DTYPE> {};
}

/* Adds the sums to the two columns of the result, or stores them. */
template <int N>
static __device__ __forceinline__ void mox_expand_store(const mox_lora_args &args, const mox_cuda_lora_tile &tile,
                                                        const mox_expand_place &at, const float (&sums)[N][2])
{
    float *to[N];
    float old[N][2];
    const int rows = tile.rows;
    const bool adds = !args.writes, exists[2] = { at.row < at.rows, at.row + 1 < at.rows };
#pragma unroll
    for (int j = 0; j < N; j++) { /* all are on their way before the first is used */
        to[j] = args.out + static_cast<int64_t>(tile.pair[j < rows ? j : 0]) * args.n_out + at.n;
#pragma unroll
        for (int e = 0; e < 2; e++)
            old[j][e] = adds && j < rows && exists[e] ? __ldcg(to[j] + e) : -0.0f;
    }
#pragma unroll
    for (int j = 0; j < N; j++)
#pragma unroll
        for (int e = 0; e < 2; e++)
            if (j < rows && exists[e])
                __stcg(to[j] + e, __fadd_rn(old[j][e], sums[j][e]));
}

template <int N, moxie_dtype DTYPE, class WAIT>
static __device__ __forceinline__ void mox_expand_tile(const mox_lora_args &args, const mox_cuda_lora_tile &tile,
                                                       const mox_lora_adapter *adapter, const mox_expand_place &at,
                                                       WAIT wait)
{
    const mox_lora_matrix &m = adapter->matrix[at.matrix];
    float *u = reinterpret_cast<float *>(shared + MOX_LORA_TILE_BYTES);
    const int rank = m.rank;
    mox_lora_two<DTYPE> b[mox_expand_batch<DTYPE>] = {};
    float sums[N][2] = {};
    if (at.row < at.rows)
        mox_expand_load_b<DTYPE>(b, m, tile.slot, at.row, 0);
    wait();
    mox_expand_load_u(args, tile, adapter, at.matrix, u);
    __syncthreads();
    for (int i = 0; i < rank && at.row < at.rows; i += mox_expand_batch<DTYPE>) {
        if (i > 0)
            mox_expand_load_b<DTYPE>(b, m, tile.slot, at.row, i);
#pragma unroll
        for (int k = 0; k < mox_expand_batch<DTYPE>; k++)
#pragma unroll
            for (int j = 0; j < N; j++) {
                const float v = u[(i + k) * MOX_CUDA_LORA_ROWS + j];
                sums[j][0] = __fadd_rn(sums[j][0], __fmul_rn(b[k].first(), v));
                sums[j][1] = __fadd_rn(sums[j][1], __fmul_rn(b[k].second(), v));
            }
    }
    mox_expand_store<N>(args, tile, at, sums);
}

template <moxie_dtype DTYPE, class WAIT>
static __device__ __forceinline__ void mox_expand_any(const mox_lora_args &args, const mox_cuda_lora_tile &tile,
                                                      const mox_lora_adapter *adapter, const mox_expand_place &at,
                                                      WAIT wait)
{
    if (tile.rows > 4)
        mox_expand_tile<8, DTYPE>(args, tile, adapter, at, wait);
    else if (tile.rows > 2)
        mox_expand_tile<4, DTYPE>(args, tile, adapter, at, wait);
    else
        mox_expand_tile<2, DTYPE>(args, tile, adapter, at, wait);
}

static __global__ void __launch_bounds__(MOX_EXPAND_THREADS, 8)
    mox_lora_expand(const __grid_constant__ mox_lora_args args)
{
    const mox_expand_place at = mox_expand_place_of(args);
    bool waited = false;
    const auto wait = [&]() {
        if (!waited)
            mox_grid_wait();
        waited = true;
    };
    mox_grid_release();
    mox_lora_each_tile(args, [&](const mox_cuda_lora_tile &tile) {
        const mox_lora_adapter *adapter = tile.adapter >= 0 ? args.adapters[tile.adapter] : nullptr;
        if (adapter == nullptr || adapter->matrix[at.matrix].rank == 0) {
            const float none[MOX_CUDA_LORA_ROWS][2] = { { -0.0f, -0.0f }, { -0.0f, -0.0f }, { -0.0f, -0.0f },
                                                        { -0.0f, -0.0f }, { -0.0f, -0.0f }, { -0.0f, -0.0f },
                                                        { -0.0f, -0.0f }, { -0.0f, -0.0f } };
            wait();
            if (args.writes)
                mox_expand_store<MOX_CUDA_LORA_ROWS>(args, tile, at, none);
        } else if (adapter->matrix[at.matrix].b_dtype == MOXIE_BF16) {
            mox_expand_any<MOXIE_BF16>(args, tile, adapter, at, wait);
        } else {
            mox_expand_any<MOXIE_F32>(args, tile, adapter, at, wait);
        }
    });
    wait();
}

#endif
