/* SPDX-License-Identifier: Apache-2.0
 *
 * lora_shrink.cuh - u[j][i] = s sum_k A[i,k] x[j][k]: a block has a tile, a matrix and 8 rows of A.
 *
 *     A  --cp.async--> | stage 0 | stage 1 | ... |  --------------------------------> sums in registers
 *     x  --cp.async--> | stage 0 | stage 1 | ... |  --> a chunk in f32, weighted --'
 *
 * The order of a sum is fixed: sixteen partial sums of a row of A, each over every sixteenth column. So a thread has
 * two of these sums for some of the tile's rows, eight threads have a row of A, and no sum is cut any further:
 *
 *     lane 8 i + q    columns 16 s + 2 q and 16 s + 2 q + 1 of rows i and i + 4, s = 0, 1, ...
 *
 * Four such warps share the rows of a tile. Code is short on purpose: the instructions come from memory,
 * too.
 *
 * For W2 the factors are on their way before the kernel in front has ended (lora_tiles.cuh).
 */
#ifndef MOX_CUDA_LORA_LORA_SHRINK_CUH
#define MOX_CUDA_LORA_LORA_SHRINK_CUH

#include "cuda/device/device_format.cuh"
#include "cuda/lora/lora_tiles.cuh"
#include "cuda/ptx/ptx_copy.cuh"

enum {
    MOX_SHRINK_RANKS = 8, /* rows of A of a block, */
    MOX_SHRINK_OWN = 2,   /* of a thread */
    MOX_SHRINK_EACH = 2,  /* partial sums of a row in a thread */
    MOX_SHRINK_WARPS = 4,
    MOX_SHRINK_THREADS = 32 * MOX_SHRINK_WARPS,
    MOX_SHRINK_STAGES = 4,
    MOX_SHRINK_ROW_BYTES = 512,                       /* of a row of A in a stage */
    MOX_SHRINK_ROW_PITCH = MOX_SHRINK_ROW_BYTES + 32, /* four rows in different banks */
    MOX_SHRINK_A_BYTES = MOX_SHRINK_RANKS * MOX_SHRINK_ROW_PITCH,
    MOX_SHRINK_COLUMNS = MOX_SHRINK_ROW_BYTES / 2, /* of bf16 factors; of f32 factors half of them */
    MOX_SHRINK_CHUNK_BYTES = MOX_CUDA_LORA_ROWS * MOX_SHRINK_COLUMNS * 4,
    MOX_SHRINK_HEAD_BYTES = MOX_LORA_TILE_BYTES + MOX_CUDA_LORA_ROWS * 8,
    MOX_SHRINK_HALVES = MOX_SHRINK_RANKS / MOX_SHRINK_OWN
};

/* Bytes of a number of x; of a stage; of all shared memory:
 * | tile | where its rows of x begin | chunk of x in f32 | stages |. */
static __host__ __device__ inline int mox_shrink_x_bytes(moxie_dtype x_dtype)
{
    return x_dtype == MOXIE_F32 ? 4 : 2;
}

static __host__ __device__ inline int mox_shrink_stage_bytes(moxie_dtype x_dtype)
{
    return MOX_SHRINK_A_BYTES + MOX_CUDA_LORA_ROWS * MOX_SHRINK_COLUMNS * mox_shrink_x_bytes(x_dtype);
}

static inline int mox_shrink_shared_bytes(moxie_dtype x_dtype)
{
    return MOX_SHRINK_HEAD_BYTES + MOX_SHRINK_CHUNK_BYTES + MOX_SHRINK_STAGES * mox_shrink_stage_bytes(x_dtype);
}

/* What a block multiplies: the tile's rows by rows [first, first + 8) of A. */
struct mox_shrink_work {
    const mox_cuda_lora_tile *tile;
    const char *a; /* of the tile's slot; row `first` */
    int64_t padded;
    int ranks;    /* rows of A that there are, up to 8 */
    bool aligned; /* rows of x can be copied 16 bytes at a time */
};

static __device__ __forceinline__ const uint8_t **mox_shrink_rows()
{
    return reinterpret_cast<const uint8_t **>(shared + MOX_LORA_TILE_BYTES);
}

/* Notes where the tile's rows of x begin. */
static __device__ __forceinline__ void mox_shrink_find_rows(const mox_lora_args &args, const mox_cuda_lora_tile &tile)
{
    const int j = threadIdx.x;
    if (j < tile.rows) {
        const int64_t pair = tile.pair[j], row = args.row_of != nullptr ? args.row_of[pair] : pair;
        mox_shrink_rows()[j] =
            static_cast<const uint8_t *>(args.x) + row * args.cols * mox_shrink_x_bytes(args.x_dtype);
    }
    __syncthreads();
}

template <int SIZE> static __device__ __forceinline__ uint8_t *mox_shrink_stage(int stage)
{
    return shared + MOX_SHRINK_HEAD_BYTES + MOX_SHRINK_CHUNK_BYTES +
           stage * (MOX_SHRINK_A_BYTES + MOX_CUDA_LORA_ROWS * MOX_SHRINK_COLUMNS * SIZE);
}

/* Columns [k, k + width) of the rows of A, as far as there are any. */
template <int SIZE>
static __device__ __forceinline__ void mox_shrink_copy_a(const mox_shrink_work &work, int64_t k, uint8_t *stage)
{
    enum { UNITS = MOX_SHRINK_ROW_BYTES / 16 };
    for (int u = threadIdx.x; u < work.ranks * UNITS; u += MOX_SHRINK_THREADS) {
        const int row = u / UNITS, unit = u % UNITS;
        if (k + unit * (16 / SIZE) < work.padded)
            mox_async_copy_16(stage + row * MOX_SHRINK_ROW_PITCH + unit * 16,
                              work.a + (row * work.padded + k) * SIZE + unit * 16);
    }
}

/* The same columns of x, where rows are aligned. */
template <int WIDTH, int SIZE>
static __device__ __forceinline__ void mox_shrink_copy_x(const mox_lora_args &args, const mox_shrink_work &work,
                                                         int64_t k, uint8_t *stage)
{
    enum { UNITS = WIDTH * SIZE / 16 };
    for (int u = threadIdx.x; work.aligned && u < work.tile->rows * UNITS; u += MOX_SHRINK_THREADS) {
        const int j = u / UNITS, unit = u % UNITS;
        if (k + unit * (16 / SIZE) < args.cols)
            mox_async_copy_16(stage + MOX_SHRINK_A_BYTES + u * 16, mox_shrink_rows()[j] + k * SIZE + unit * 16);
    }
}

static __device__ __forceinline__ float mox_shrink_number(const mox_lora_args &args, uint32_t code, float weight)
{
    const float x = args.x_dtype == MOXIE_F32    ? __uint_as_float(code)
                    : args.x_dtype == MOXIE_BF16 ? __uint_as_float(code << 16)
                                                 : mox_f16_decode(code);
    return args.row_weight != nullptr ? mox_device_round_to(args.x_dtype, __fmul_rn(x, weight)) : x;
}

/* Two neighbours of a row, at a column that is even; zero past the last. Where rows are not aligned they come from
 * global memory. */
template <int SIZE>
static __device__ __forceinline__ uint2 mox_shrink_codes(const mox_shrink_work &work, const uint8_t *row, int64_t left)
{
    uint2 codes = { 0, 0 };
    if (SIZE == 4) {
        codes.x = left > 0 ? reinterpret_cast<const uint32_t *>(row)[0] : 0;
        codes.y = left > 1 ? reinterpret_cast<const uint32_t *>(row)[1] : 0;
    } else if (work.aligned) { /* both exist, or neither */
        const uint32_t both = left > 0 ? *reinterpret_cast<const uint32_t *>(row) : 0;
        codes = { both & 0xffff, both >> 16 };
    } else {
        codes.x = left > 0 ? reinterpret_cast<const uint16_t *>(row)[0] : 0;
        codes.y = left > 1 ? reinterpret_cast<const uint16_t *>(row)[1] : 0;
    }
    return codes;
}

/* Columns [k, k + WIDTH) of the tile's rows -> x [8, WIDTH] in f32. */
template <int WIDTH, int SIZE>
static __device__ __forceinline__ void mox_shrink_widen(const mox_lora_args &args, const mox_shrink_work &work,
                                                        int64_t k, const uint8_t *stage, float *x)
{
    const int c = 2 * (threadIdx.x % (WIDTH / 2)), rows = work.tile->rows;
    for (int j = static_cast<int>(threadIdx.x) / (WIDTH / 2); j < rows; j += MOX_SHRINK_THREADS / (WIDTH / 2)) {
        const float weight = args.row_weight != nullptr ? args.row_weight[work.tile->pair[j]] : 1.0f;
        const uint8_t *row =
            work.aligned ? stage + MOX_SHRINK_A_BYTES + j * WIDTH * SIZE : mox_shrink_rows()[j] + k * SIZE;
        const uint2 codes = mox_shrink_codes<SIZE>(work, row + c * SIZE, args.cols - k - c);
        *reinterpret_cast<float2 *>(x + j * WIDTH + c) =
            make_float2(mox_shrink_number(args, codes.x, weight), mox_shrink_number(args, codes.y, weight));
    }
}

/* The terms of one chunk of columns. */
template <int N, moxie_dtype DTYPE, int WIDTH>
static __device__ __forceinline__ void mox_shrink_add(float (&sums)[N][MOX_SHRINK_OWN][MOX_SHRINK_EACH],
                                                      const uint8_t *stage, const float *x, int steps)
{
    typedef mox_lora_two<DTYPE> two;
    const int warp = static_cast<int>(threadIdx.x) / 32, i = threadIdx.x % 32 / 8, lane = threadIdx.x % 8;
    const two *a = reinterpret_cast<const two *>(stage + i * MOX_SHRINK_ROW_PITCH) + lane;
    const two *b = reinterpret_cast<const two *>(stage + (i + MOX_SHRINK_HALVES) * MOX_SHRINK_ROW_PITCH) + lane;
    const float *from = x + warp * WIDTH + MOX_SHRINK_EACH * lane;
#pragma unroll 4
    for (int s = 0; s < steps; s++) {
        const two own[MOX_SHRINK_OWN] = { a[s * (MOX_LORA_LANES / 2)], b[s * (MOX_LORA_LANES / 2)] };
#pragma unroll
        for (int n = 0; n < N; n++) {
            const float2 v =
                *reinterpret_cast<const float2 *>(from + n * MOX_SHRINK_WARPS * WIDTH + s * MOX_LORA_LANES);
#pragma unroll
            for (int o = 0; o < MOX_SHRINK_OWN; o++) {
                sums[n][o][0] = __fadd_rn(sums[n][o][0], __fmul_rn(own[o].first(), v.x));
                sums[n][o][1] = __fadd_rn(sums[n][o][1], __fmul_rn(own[o].second(), v.y));
            }
        }
    }
}

/* Adds the sixteen sums of a row of A up, and stores them times the scale. */
template <int N>
static __device__ __forceinline__ void mox_shrink_store(float (&sums)[N][MOX_SHRINK_OWN][MOX_SHRINK_EACH],
                                                        const mox_lora_args &args, const mox_shrink_work &work,
                                                        const mox_lora_adapter *adapter, int matrix, int first)
{
    const int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int o = 0; o < MOX_SHRINK_OWN; o++) {
            const int j = warp + n * MOX_SHRINK_WARPS, i = threadIdx.x % 32 / 8 + o * MOX_SHRINK_HALVES;
            float *sum = sums[n][o];
#pragma unroll
            for (int width = MOX_LORA_LANES / MOX_SHRINK_EACH / 2; width > 0; width /= 2)
#pragma unroll
                for (int e = 0; e < MOX_SHRINK_EACH; e++)
                    sum[e] = __fadd_rn(sum[e], __shfl_xor_sync(0xffffffffu, sum[e], width));
            if (threadIdx.x % 8 == 0 && i < work.ranks && j < work.tile->rows)
                mox_lora_u(&args, adapter, work.tile->pair[j], matrix)[first + i] =
                    __fmul_rn(adapter->matrix[matrix].scale, __fadd_rn(sum[0], sum[1]));
        }
}

/* A tile whose warps have up to N rows each. `wait`: what must have ended before x is read. */
template <int N, moxie_dtype DTYPE, int XSIZE, class WAIT>
static __device__ __forceinline__ void mox_shrink_tile(const mox_lora_args &args, const mox_shrink_work &work,
                                                       const mox_lora_adapter *adapter, int matrix, int first,
                                                       WAIT wait)
{
    enum { SIZE = DTYPE == MOXIE_F32 ? 4 : 2, WIDTH = MOX_SHRINK_ROW_BYTES / SIZE };
    float *x = reinterpret_cast<float *>(shared + MOX_SHRINK_HEAD_BYTES);
    const int chunks = static_cast<int>((work.padded + WIDTH - 1) / WIDTH);
    float sums[N][MOX_SHRINK_OWN][MOX_SHRINK_EACH] = {};
    for (int c = 0; c < MOX_SHRINK_STAGES - 1 && c < chunks; c++)
        mox_shrink_copy_a<SIZE>(work, static_cast<int64_t>(c) * WIDTH, mox_shrink_stage<XSIZE>(c));
    wait();
    mox_shrink_find_rows(args, *work.tile);
    for (int c = 0; c < MOX_SHRINK_STAGES - 1; c++) {
        if (c < chunks)
            mox_shrink_copy_x<WIDTH, XSIZE>(args, work, static_cast<int64_t>(c) * WIDTH, mox_shrink_stage<XSIZE>(c));
        mox_async_copy_commit();
    }
    for (int c = 0; c < chunks; c++) {
        const int64_t k = static_cast<int64_t>(c) * WIDTH, ahead = k + (MOX_SHRINK_STAGES - 1) * WIDTH;
        const uint8_t *stage = mox_shrink_stage<XSIZE>(c % MOX_SHRINK_STAGES);
        mox_async_copy_wait_groups<MOX_SHRINK_STAGES - 2>();
        __syncthreads(); /* everybody's copies are there, and nobody reads the chunk before */
        uint8_t *next = mox_shrink_stage<XSIZE>((c + MOX_SHRINK_STAGES - 1) % MOX_SHRINK_STAGES);
        mox_shrink_copy_a<SIZE>(work, ahead, next);
        mox_shrink_copy_x<WIDTH, XSIZE>(args, work, ahead, next);
        mox_async_copy_commit();
        mox_shrink_widen<WIDTH, XSIZE>(args, work, k, stage, x);
        __syncthreads();
        mox_shrink_add<N, DTYPE, WIDTH>(
            sums, stage, x, static_cast<int>(min(work.padded - k, static_cast<int64_t>(WIDTH))) / MOX_LORA_LANES);
    }
    mox_shrink_store<N>(sums, args, work, adapter, matrix, first);
}

template <moxie_dtype DTYPE, int XSIZE, class WAIT>
static __device__ __forceinline__ void mox_shrink_any(const mox_lora_args &args, const mox_shrink_work &work,
                                                      const mox_lora_adapter *adapter, int matrix, int first, WAIT wait)
{
    if (work.tile->rows > MOX_SHRINK_WARPS)
        mox_shrink_tile<MOX_CUDA_LORA_ROWS / MOX_SHRINK_WARPS, DTYPE, XSIZE>(args, work, adapter, matrix, first, wait);
    else
        mox_shrink_tile<1, DTYPE, XSIZE>(args, work, adapter, matrix, first, wait);
}

/* Matrix y of a product: gate and up, or the one it has. */
static __device__ __forceinline__ int mox_lora_matrix_at(const mox_lora_args &args, int y)
{
    return args.second ? MOX_LORA_DOWN : args.gated && y == 0 ? MOX_LORA_GATE : MOX_LORA_UP;
}

/* XSIZE: bytes of a number of x. */
template <int XSIZE>
static __global__ void __launch_bounds__(MOX_SHRINK_THREADS) mox_lora_shrink(const __grid_constant__ mox_lora_args args)
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
        const mox_lora_matrix &m = adapter->matrix[matrix];
        const int64_t padded = mox_lora_padded(args.cols), size = m.a_dtype == MOXIE_F32 ? 4 : 2;
        const int64_t row_bytes = args.cols * XSIZE;
        const mox_shrink_work work = { &tile,
                                       static_cast<const char *>(m.a) + tile.slot * m.a_expert_bytes +
                                           first * padded * size,
                                       padded, min(m.rank - first, static_cast<int>(MOX_SHRINK_RANKS)),
                                       reinterpret_cast<uintptr_t>(args.x) % 16 == 0 && row_bytes % 16 == 0 };
        if (m.a_dtype == MOXIE_BF16)
            mox_shrink_any<MOXIE_BF16, XSIZE>(args, work, adapter, matrix, first, wait);
        else
            mox_shrink_any<MOXIE_F32, XSIZE>(args, work, adapter, matrix, first, wait);
    });
    wait();
}

#endif
