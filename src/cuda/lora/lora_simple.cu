/* SPDX-License-Identifier: Apache-2.0
 *
 * lora_simple.cu - the change that adapters make to a product's result, with the bits of cpu/lora, on every GPU.
 *
 *     group    pairs of a chunk -> tiles of up to 8 pairs of one slot and one adapter (cuda_lora_args.h); for W13 only
 *     shrink   a block has a tile, a matrix and 16 rows of A.       u[j][i] = s sum_k A[i,k] x[j][k]
 *     expand   a block has a tile and 256 columns of the result.    out[j][n] += sum_i B[n,i] u[j][i]
 *
 * The order of a sum is fixed: sixteen partial sums of a row of A, each over every sixteenth column. So a thread has
 * two of these sums, eight threads have a row of A, and no sum is cut any further:
 *
 *     thread 8 i + q of 128    columns 16 s + 2 q and 16 s + 2 q + 1 of row i, s = 0, 1, ...
 *
 * Four such groups of 128 threads share the pairs of a tile: one or two a group. Eight pairs in one thread make a loop
 * so long that its instructions come from memory again and again.
 *
 * A block brings 512 columns of its rows of A into registers before it waits for x in shared memory: so both come from
 * memory at the same time.
 */
#include <moxie/moxie_adapters.h>

#include "cuda/device/device_error.h"
#include "cuda/device/device_format.cuh"
#include "cuda/device/device_launch.cuh"
#include "cuda/device/device_slots.cuh"
#include "cuda/lora/cuda_lora_args.h"
#include "cuda/ptx/ptx_sync.cuh"

namespace
{

enum {
    CHUNK = MOX_CUDA_LORA_CHUNK,
    ROWS = MOX_CUDA_LORA_ROWS,
    LANES = MOX_LORA_LANES,
    EACH = LANES / 8, /* partial sums of a thread */
    RANKS = 16,       /* rows of A of a block */
    COLUMNS = 512,    /* between two barriers; half of them where factors are f32 */
    GROUP_THREADS = RANKS * LANES / EACH,
    GROUPS = 4, /* of threads, which share a tile's rows */
    SHRINK_THREADS = GROUPS * GROUP_THREADS,
    EXPAND_THREADS = 256,
    FEW_PAIRS = 4096,                /* so many have a block for each likely tile */
    FEW_TILES_PER_CHUNK = CHUNK / 2, /* a block each; then they take further ones */
    TILES_PER_CHUNK = CHUNK / ROWS
};

/* ---- groups ---------------------------------------------------------------------------------------------------- */

/* NULL for a token without adapter. */
__device__ const mox_lora_adapter *adapter_at(const mox_lora_args &args, int32_t number)
{
    const mox_lora_adapter *adapter = number >= 0 && number < args.count ? args.adapters[number] : nullptr;
    for (int m = 0; adapter != nullptr && m < MOX_LORA_MATRICES; m++)
        if (adapter->matrix[m].rank > args.max_rank)
            return nullptr;
    return adapter;
}

/* Equal for pairs of one slot and one adapter; -1 without an adapter. */
__device__ int64_t key_of(const mox_lora_args &args, int64_t pair)
{
    if (pair >= args.offsets[args.slots])
        return -1;
    const int32_t number = args.adapter_ids[args.token_of[pair]];
    if (adapter_at(args, number) == nullptr)
        return -1;
    return mox_device_slot_of(args.offsets, args.slots, pair) * args.count + number;
}

/* Thread t has pair t of the chunk. The first pair of every eight with one key begins a tile. */
__global__ void __launch_bounds__(CHUNK) group(const __grid_constant__ mox_lora_args args)
{
    __shared__ int64_t keys[CHUNK];
    __shared__ int32_t begins[CHUNK];
    const int t = static_cast<int>(threadIdx.x);
    const int64_t first = static_cast<int64_t>(blockIdx.x) * CHUNK;
    mox_cuda_lora_tile *tiles = static_cast<mox_cuda_lora_tile *>(args.scratch) + first;
    mox_grid_release();
    mox_grid_wait();
    const int64_t key = key_of(args, first + t);
    keys[t] = key;
    __syncthreads();
    int before = 0, all = 0;
    for (int q = 0; q < CHUNK; q++) {
        const int same = keys[q] == key;
        all += same;
        before += q < t ? same : 0;
    }
    const bool begin = key >= 0 && before % ROWS == 0;
    begins[t] = begin;
    __syncthreads();
    int place = 0, seen = 0, count = 0;
    for (int q = 0; q < CHUNK; q++) {
        place += seen <= before / ROWS * ROWS ? begins[q] : 0;
        seen += keys[q] == key;
        count += begins[q];
    }
    if (key >= 0) {
        mox_cuda_lora_tile *tile = tiles + place - 1;
        tile->pair[before % ROWS] = static_cast<int32_t>(first + t);
        if (begin) {
            tile->slot = static_cast<int32_t>(key / args.count);
            tile->adapter = static_cast<int32_t>(key % args.count);
            tile->rows = min(all - before, static_cast<int>(ROWS));
        }
    }
    if (t >= count)
        tiles[t].rows = 0;
}

/* Calls work(tile) for this block's tiles: every `gridDim.x / chunks`-th of a chunk. */
template <class WORK> __device__ void each_tile(const mox_lora_args &args, WORK work)
{
    const int blocks = static_cast<int>(gridDim.x / MOX_CUDA_LORA_CHUNKS(args.max_pairs));
    const mox_cuda_lora_tile *tiles =
        static_cast<const mox_cuda_lora_tile *>(args.scratch) + static_cast<int64_t>(blockIdx.x / blocks) * CHUNK;
    for (int i = static_cast<int>(blockIdx.x % blocks); i < CHUNK && tiles[i].rows > 0; i += blocks)
        work(tiles[i]);
}

/* ---- numbers --------------------------------------------------------------------------------------------------- */

/* Two neighbours of a factor in memory. */
template <moxie_dtype DTYPE> struct two_numbers;
template <> struct two_numbers<MOXIE_BF16> {
    uint32_t codes;
    __device__ float first() const
    {
        return __uint_as_float(codes << 16);
    }
    __device__ float second() const
    {
        return __uint_as_float(codes & 0xffff0000u);
    }
};
template <> struct two_numbers<MOXIE_F32> {
    float2 values;
    __device__ float first() const
    {
        return values.x;
    }
    __device__ float second() const
    {
        return values.y;
    }
};

template <moxie_dtype DTYPE> __device__ float number_at(const void *factor, int64_t i)
{
    if constexpr (DTYPE == MOXIE_BF16)
        return __uint_as_float(static_cast<uint32_t>(static_cast<const uint16_t *>(factor)[i]) << 16);
    else
        return static_cast<const float *>(factor)[i];
}

/* What a group of threads reads of a tile: its rows `group`, `group` + GROUPS, ...; NULL where there is no row. */
template <int N> struct input_rows {
    const char *row[N];
    float weight[N];
};

template <int N> __device__ input_rows<N> rows_of(const mox_lora_args &args, const mox_cuda_lora_tile &tile, int group)
{
    input_rows<N> rows;
    const int64_t bytes = args.cols * (args.x_dtype == MOXIE_F32 ? 4 : 2);
#pragma unroll
    for (int n = 0; n < N; n++) {
        const int j = group + n * GROUPS;
        const int64_t pair = tile.pair[j < tile.rows ? j : 0];
        const int64_t at = args.row_of != nullptr ? args.row_of[pair] : pair;
        rows.row[n] = j < tile.rows ? static_cast<const char *>(args.x) + at * bytes : nullptr;
        rows.weight[n] = args.row_weight != nullptr ? args.row_weight[pair] : 1.0f;
    }
    return rows;
}

__device__ float input(const mox_lora_args &args, uint32_t code, float weight)
{
    const float x = args.x_dtype == MOXIE_F32    ? __uint_as_float(code)
                    : args.x_dtype == MOXIE_BF16 ? __uint_as_float(code << 16)
                                                 : mox_f16_decode(code);
    return args.row_weight != nullptr ? mox_device_round_to(args.x_dtype, __fmul_rn(x, weight)) : x;
}

/* Columns [k, k + WIDTH) of a group's rows -> x [N, WIDTH] in shared memory; zero past the last. All words are on their
 * way before the first is used. */
template <class WORD, int WIDTH, int N>
__device__ void load_x(const mox_lora_args &args, const input_rows<N> &rows, int64_t k, float *x)
{
    enum { EACH_THREAD = WIDTH / GROUP_THREADS };
    const int thread = static_cast<int>(threadIdx.x) % GROUP_THREADS;
    WORD words[N][EACH_THREAD];
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < EACH_THREAD; e++) {
            const int64_t column = k + thread + e * GROUP_THREADS;
            const bool exists = rows.row[n] != nullptr && column < args.cols;
            words[n][e] = exists ? reinterpret_cast<const WORD *>(rows.row[n])[column] : static_cast<WORD>(0);
        }
    __syncthreads(); /* nobody reads the columns before */
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < EACH_THREAD; e++) {
            const int c = thread + e * GROUP_THREADS;
            x[n * WIDTH + c] = k + c < args.cols ? input(args, words[n][e], rows.weight[n]) : 0.0f;
        }
    __syncthreads();
}

/* Calls fn<N, DTYPE>(...) with the smallest N of 1, 2, 4 and 8 that has room for a tile's rows. */
#define LORA_FOR(fn, tile, dtype, ...)                                                                                 \
    do {                                                                                                               \
        if ((dtype) == MOXIE_BF16) {                                                                                   \
            LORA_FOR_ROWS(fn, tile, MOXIE_BF16, __VA_ARGS__)                                                           \
        } else {                                                                                                       \
            LORA_FOR_ROWS(fn, tile, MOXIE_F32, __VA_ARGS__)                                                            \
        }                                                                                                              \
    } while (0)
#define LORA_FOR_ROWS(fn, tile, dtype, ...)                                                                            \
    if ((tile).rows > 4)                                                                                               \
        fn<8, dtype>(__VA_ARGS__);                                                                                     \
    else if ((tile).rows > 2)                                                                                          \
        fn<4, dtype>(__VA_ARGS__);                                                                                     \
    else if ((tile).rows > 1)                                                                                          \
        fn<2, dtype>(__VA_ARGS__);                                                                                     \
    else                                                                                                               \
        fn<1, dtype>(__VA_ARGS__);

/* ---- shrink ---------------------------------------------------------------------------------------------------- */

/* The sums of one row of A, of a group's N rows of a tile. `x`: [GROUPS, N, WIDTH] in shared memory. */
template <int N, moxie_dtype DTYPE>
__device__ void shrink_tile(const mox_lora_args &args, const mox_cuda_lora_tile &tile, const mox_lora_matrix &m,
                            int matrix, int first, float *x)
{
    typedef two_numbers<DTYPE> numbers;
    enum { WIDTH = DTYPE == MOXIE_F32 ? COLUMNS / 2 : COLUMNS, STEPS = WIDTH / LANES };
    const int group = static_cast<int>(threadIdx.x) / GROUP_THREADS,
              thread = static_cast<int>(threadIdx.x) % GROUP_THREADS;
    const int i = first + thread / (LANES / EACH), lane = thread % (LANES / EACH);
    const int64_t padded = mox_lora_padded(args.cols);
    const numbers *a =
        reinterpret_cast<const numbers *>(static_cast<const char *>(m.a) + tile.slot * m.a_expert_bytes) +
        (i < m.rank ? i : 0) * (padded / EACH) + lane;
    const input_rows<N> rows = rows_of<N>(args, tile, group);
    float *own = x + group * N * WIDTH;
    float sums[N][EACH] = {};
    for (int64_t k = 0; k < padded; k += WIDTH) {
        numbers columns[STEPS];
#pragma unroll
        for (int s = 0; s < STEPS; s++)
            columns[s] = k + s * LANES < padded ? a[(k / LANES + s) * (LANES / EACH)] : numbers {};
        if (args.x_dtype == MOXIE_F32)
            load_x<uint32_t, WIDTH>(args, rows, k, own);
        else
            load_x<uint16_t, WIDTH>(args, rows, k, own);
#pragma unroll
        for (int s = 0; s < STEPS; s++)
#pragma unroll
            for (int n = 0; n < N; n++) {
                const float2 v = *reinterpret_cast<const float2 *>(own + n * WIDTH + s * LANES + EACH * lane);
                sums[n][0] = __fadd_rn(sums[n][0], __fmul_rn(columns[s].first(), v.x));
                sums[n][1] = __fadd_rn(sums[n][1], __fmul_rn(columns[s].second(), v.y));
            }
    }
    const mox_lora_adapter *adapter = args.adapters[tile.adapter];
#pragma unroll
    for (int n = 0; n < N; n++) {
        const int j = group + n * GROUPS;
        for (int width = LANES / EACH / 2; width > 0; width /= 2)
            for (int e = 0; e < EACH; e++)
                sums[n][e] = __fadd_rn(sums[n][e], __shfl_xor_sync(0xffffffffu, sums[n][e], width));
        if (lane == 0 && i < m.rank && j < tile.rows)
            mox_lora_u(&args, adapter, tile.pair[j], matrix)[i] = __fmul_rn(m.scale, __fadd_rn(sums[n][0], sums[n][1]));
    }
}

/* Matrix y of a product: gate and up, or the one it has. */
__device__ int matrix_at(const mox_lora_args &args, int y)
{
    return args.second ? MOX_LORA_DOWN : args.gated && y == 0 ? MOX_LORA_GATE : MOX_LORA_UP;
}

__global__ void __launch_bounds__(SHRINK_THREADS) shrink(const __grid_constant__ mox_lora_args args)
{
    __shared__ __align__(16) float x[ROWS * COLUMNS];
    const int matrices = !args.second && args.gated ? 2 : 1;
    const int matrix = matrix_at(args, static_cast<int>(blockIdx.y) % matrices),
              first = static_cast<int>(blockIdx.y) / matrices * RANKS;
    mox_grid_release();
    mox_grid_wait();
    each_tile(args, [&](const mox_cuda_lora_tile &tile) {
        const mox_lora_adapter *adapter = args.adapters[tile.adapter];
        const mox_lora_matrix &m = adapter->matrix[matrix];
        if (first >= m.rank || (matrix == MOX_LORA_UP && adapter->one_a))
            return;
        if (m.a_dtype == MOXIE_BF16 && tile.rows > GROUPS)
            shrink_tile<ROWS / GROUPS, MOXIE_BF16>(args, tile, m, matrix, first, x);
        else if (m.a_dtype == MOXIE_BF16)
            shrink_tile<1, MOXIE_BF16>(args, tile, m, matrix, first, x);
        else
            shrink_tile<ROWS / GROUPS, MOXIE_F32>(args, tile, m, matrix, first, x);
    });
}

/* ---- expand ---------------------------------------------------------------------------------------------------- */

/* u of a tile's rows for a matrix: u[i][j] in shared memory, zero where there is no row. */
__device__ void load_u(const mox_lora_args &args, const mox_cuda_lora_tile &tile, int matrix, float *u)
{
    const mox_lora_adapter *adapter = args.adapters[tile.adapter];
    const int rank = adapter->matrix[matrix].rank;
    for (int at = static_cast<int>(threadIdx.x); at < rank * ROWS; at += EXPAND_THREADS) {
        const int j = at / rank, i = at % rank;
        u[i * ROWS + j] = j < tile.rows ? mox_lora_u(&args, adapter, tile.pair[j], matrix)[i] : 0.0f;
    }
}

/* Column `n` of the result, which is row `row` of the matrix. */
template <int N, moxie_dtype DTYPE>
__device__ void expand_tile(const mox_lora_args &args, const mox_cuda_lora_tile &tile, const mox_lora_matrix &m,
                            const float *u, int64_t n, int64_t row)
{
    const char *b = static_cast<const char *>(m.b) + tile.slot * m.b_expert_bytes;
    const int64_t first = row / LANES * m.rank * LANES + row % LANES;
    float sums[N] = {}, results[N];
#pragma unroll
    for (int j = 0; j < N; j++)
        results[j] = j < tile.rows ? args.out[tile.pair[j] * args.n_out + n] : 0.0f;
#pragma unroll 16
    for (int i = 0; i < m.rank; i++) {
        const float number = number_at<DTYPE>(b, first + i * LANES);
#pragma unroll
        for (int j = 0; j < N; j++)
            sums[j] = __fadd_rn(sums[j], __fmul_rn(number, u[i * ROWS + j]));
    }
#pragma unroll
    for (int j = 0; j < N; j++)
        if (j < tile.rows)
            args.out[tile.pair[j] * args.n_out + n] = __fadd_rn(results[j], sums[j]);
}

__global__ void __launch_bounds__(EXPAND_THREADS) expand(const __grid_constant__ mox_lora_args args)
{
    __shared__ __align__(
        16) float u[2 * MOXIE_MAX_ADAPTER_RANK * ROWS]; /* of the matrices that the columns belong to */
    const int64_t first = static_cast<int64_t>(blockIdx.y) * EXPAND_THREADS, n = first + threadIdx.x;
    int64_t begin = first, end = min(first + EXPAND_THREADS, args.n_out) - 1, row = n;
    const int low = mox_lora_matrix_of(&args, &begin), high = mox_lora_matrix_of(&args, &end);
    const int matrix = mox_lora_matrix_of(&args, &row);
    float *of_high = u + MOXIE_MAX_ADAPTER_RANK * ROWS;
    mox_grid_release();
    mox_grid_wait();
    each_tile(args, [&](const mox_cuda_lora_tile &tile) {
        const mox_lora_matrix &m = args.adapters[tile.adapter]->matrix[matrix];
        __syncthreads();
        load_u(args, tile, low, u);
        if (high != low)
            load_u(args, tile, high, of_high);
        __syncthreads();
        if (n < args.n_out && m.rank > 0)
            LORA_FOR(expand_tile, tile, m.b_dtype, args, tile, m, matrix == low ? u : of_high, n, row);
    });
}

} // namespace

/* ---- launch ---------------------------------------------------------------------------------------------------- */

moxie_status mox_cuda_lora_simple_launch(const mox_lora_args *args, mox_cuda_stream stream, moxie_error *error)
{
    const unsigned chunks = static_cast<unsigned>(MOX_CUDA_LORA_CHUNKS(args->max_pairs));
    const unsigned tiles = chunks * (args->max_pairs <= FEW_PAIRS ? FEW_TILES_PER_CHUNK : TILES_PER_CHUNK);
    const unsigned matrices = !args->second && args->gated ? 2 : 1;
    const unsigned ranks = static_cast<unsigned>((args->max_rank + RANKS - 1) / RANKS);
    const unsigned columns = static_cast<unsigned>((args->n_out + EXPAND_THREADS - 1) / EXPAND_THREADS);
    if (args->max_pairs == 0)
        return MOXIE_OK;
    cudaError_t status = cudaSuccess;
    if (!args->second)
        status = mox_device_launch_dependent(group, chunks, CHUNK, 0, stream, *args);
    if (status == cudaSuccess)
        status = mox_device_launch_dependent(shrink, dim3(tiles, matrices * ranks), SHRINK_THREADS, 0, stream, *args);
    if (status == cudaSuccess)
        status = mox_device_launch_dependent(expand, dim3(tiles, columns), EXPAND_THREADS, 0, stream, *args);
    return mox_cuda_status(status, "lora simple", error);
}
