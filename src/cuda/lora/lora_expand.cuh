/* SPDX-License-Identifier: Apache-2.0
 *
 * lora_expand.cuh - out[j][n] += sum_i B[n,i] u[j][i]: a block has a tile and 256 rows of one B, two a thread. Factors
 * of the first sixteen i are on their way before the shrink has ended (lora_tiles.cuh).
 */
#ifndef MOX_CUDA_LORA_LORA_EXPAND_CUH
#define MOX_CUDA_LORA_LORA_EXPAND_CUH

#include "cuda/lora/lora_tiles.cuh"

enum { MOX_EXPAND_THREADS = 128, MOX_EXPAND_ROWS = 2 * MOX_EXPAND_THREADS, MOX_EXPAND_BATCH = 16 };

/* | tile | u [rank, 8] | */
static inline int mox_expand_shared_bytes(int64_t max_rank)
{
    return MOX_LORA_TILE_BYTES + static_cast<int>(max_rank) * MOX_CUDA_LORA_ROWS * 4;
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
    for (int at = static_cast<int>(threadIdx.x); at < rank * MOX_CUDA_LORA_ROWS; at += MOX_EXPAND_THREADS) {
        const int j = at / rank, i = at % rank;
        u[i * MOX_CUDA_LORA_ROWS + j] = j < tile.rows ? mox_lora_u(&args, adapter, tile.pair[j], matrix)[i] : 0.0f;
    }
}

/* Numbers i, i + 1, ... of this thread's two rows of B. */
template <moxie_dtype DTYPE>
static __device__ __forceinline__ void mox_expand_load_b(mox_lora_two<DTYPE> (&b)[MOX_EXPAND_BATCH],
                                                         const mox_lora_matrix &m, int64_t slot, int64_t row, int i)
{
    const mox_lora_two<DTYPE> *from =
        reinterpret_cast<const mox_lora_two<DTYPE> *>(static_cast<const char *>(m.b) + slot * m.b_expert_bytes) +
        ((row / MOX_LORA_LANES * m.rank + i) * MOX_LORA_LANES + row % MOX_LORA_LANES) / 2;
#pragma unroll
    for (int k = 0; k < MOX_EXPAND_BATCH; k++)
        b[k] = i + k < m.rank ? from[k * (MOX_LORA_LANES / 2)] : mox_lora_two<DTYPE> {};
}

/* Adds the sums to the two columns of the result, or stores them. */
template <int N>
static __device__ __forceinline__ void mox_expand_store(const mox_lora_args &args, const mox_cuda_lora_tile &tile,
                                                        const mox_expand_place &at, const float (&sums)[N][2])
{
#pragma unroll
    for (int j = 0; j < N; j++)
#pragma unroll
        for (int e = 0; e < 2; e++)
            if (j < tile.rows && at.row + e < at.rows) {
                float *to = args.out + static_cast<int64_t>(tile.pair[j]) * args.n_out + at.n + e;
                *to = args.writes ? sums[j][e] : __fadd_rn(*to, sums[j][e]);
            }
}

template <int N, moxie_dtype DTYPE, class WAIT>
static __device__ __forceinline__ void mox_expand_tile(const mox_lora_args &args, const mox_cuda_lora_tile &tile,
                                                       const mox_lora_adapter *adapter, const mox_expand_place &at,
                                                       WAIT wait)
{
    const mox_lora_matrix &m = adapter->matrix[at.matrix];
    float *u = reinterpret_cast<float *>(shared + MOX_LORA_TILE_BYTES);
    const int rank = m.rank;
    mox_lora_two<DTYPE> b[MOX_EXPAND_BATCH] = {};
    float sums[N][2] = {};
    if (at.row < at.rows)
        mox_expand_load_b<DTYPE>(b, m, tile.slot, at.row, 0);
    wait();
    mox_expand_load_u(args, tile, adapter, at.matrix, u);
    __syncthreads();
    for (int i = 0; i < rank && at.row < at.rows; i += MOX_EXPAND_BATCH) {
        if (i > 0)
            mox_expand_load_b<DTYPE>(b, m, tile.slot, at.row, i);
#pragma unroll
        for (int k = 0; k < MOX_EXPAND_BATCH; k++)
#pragma unroll
            for (int j = 0; j < N && i + k < rank; j++) {
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

static __global__ void __launch_bounds__(MOX_EXPAND_THREADS) mox_lora_expand(const __grid_constant__ mox_lora_args args)
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
