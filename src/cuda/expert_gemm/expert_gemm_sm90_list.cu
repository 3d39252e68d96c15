/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_sm90_list.cu - the work list of the Hopper kernels, by one block; rows to tiled operands, of bf16
 * too where they are codes (sm90_acts.cuh); the launchers.
 *
 *     offsets of all slots -> entries of those that have tokens, with their token tiles counted
 *                          -> octets: whose rows every eight rows of a tiled operand are
 */
#include "cuda/device/device_launch.cuh"
#include "cuda/expert_gemm/sm90_acts.cuh"
#include "cuda/expert_gemm/sm90_few.cuh"
#include "cuda/expert_gemm/sm90_ring.cuh"
#include "cuda/ptx/ptx_sync.cuh"

namespace {

constexpr int THREADS = 1024, WARPS = THREADS / 32;

/* Inclusive sums of three numbers over the block, in the order of its threads. */
__device__ int3 sum_before(int3 v, int3 *warps)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int d = 1; d < 32; d *= 2) {
        const int x = __shfl_up_sync(~0u, v.x, d), y = __shfl_up_sync(~0u, v.y, d), z = __shfl_up_sync(~0u, v.z, d);
        v.x += lane >= d ? x : 0;
        v.y += lane >= d ? y : 0;
        v.z += lane >= d ? z : 0;
    }
    __syncthreads();
    if (lane == 31)
        warps[warp] = v;
    __syncthreads();
    for (int w = 0; w < warp; w++) {
        v.x += warps[w].x;
        v.y += warps[w].y;
        v.z += warps[w].z;
    }
    return v;
}

/* The octets of an entry, a lane one of a token tile's. */
__device__ void write_octets(const mox_sm90_list_args &args, const mox_sm90_entry &entry, int lane)
{
    const int each = ((entry.tokens + entry.tiles - 1) / entry.tiles + 7) & ~7;
    for (int tile = 0; tile < entry.tokens; tile += each) {
        const int columns = min(each, entry.tokens - tile);
        for (int i = 8 * lane; i < columns; i += 8 * 32)
            args.octets[(entry.row + tile + i) / 8] = { entry.pair + tile + i, min(8, columns - i), entry.row + tile,
                                                        (columns + 7) & ~7 };
    }
}

__global__ void __launch_bounds__(THREADS) make_list(const __grid_constant__ mox_sm90_list_args args)
{
    __shared__ int3 warps[WARPS], total;
    mox_grid_release();
    mox_grid_wait();
    mox_sm90_entry *entries = (mox_sm90_entry *)(args.list + 1);
    int3 before = { 0, 0, 0 };
    for (int64_t base = 0; base < args.slots; base += THREADS) {
        const int64_t slot = base + threadIdx.x;
        const int64_t pair = slot < args.slots ? args.offsets[slot] : 0;
        const int tokens = slot < args.slots ? (int)(args.offsets[slot + 1] - pair) : 0;
        const int3 mine = { tokens > 0, (tokens + args.most - 1) / args.most, (tokens + 7) & ~7 };
        const int3 sum = sum_before(mine, warps);
        if (tokens > 0)
            entries[before.x + sum.x - 1] = { (int)slot, (int)pair, tokens, before.y + sum.y - mine.y,
                                              before.z + sum.z - mine.z, mine.y, { 0, 0 } };
        if (threadIdx.x == THREADS - 1)
            total = sum;
        __syncthreads();
        before.x += total.x;
        before.y += total.y;
        before.z += total.z;
    }
    if (threadIdx.x == 0)
        *args.list = { before.x, args.most, before.y, { 0, 0, 0, 0, 0 } };
    for (int e = (int)threadIdx.x / 32; e < before.x; e += WARPS)
        write_octets(args, entries[e], threadIdx.x % 32);
    for (int64_t i = before.z / 8 + threadIdx.x; i < args.octet_count; i += THREADS)
        args.octets[i] = { 0, 0, 0, 0 };
}

/* Eight rows from `row` on by a list of few pairs. */
__device__ mox_sm90_octet octet_of(const mox_sm90_entry *entries, int count, int row)
{
    int e = 0;
#pragma unroll
    for (int step = MOX_SM90_FEW_PAIRS / 2; step > 0; step /= 2)
        e += e + step < count && entries[e + step].row <= row ? step : 0;
    const mox_sm90_entry entry = entries[e];
    const int in = row - entry.row;
    if (count == 0 || in >= entry.tokens)
        return { 0, 0, 0, 0 };
    const int each = ((entry.tokens + entry.tiles - 1) / entry.tiles + 7) & ~7, tile = in / each * each;
    return { entry.pair + in, min(8, entry.tokens - in), entry.row + tile, (min(each, entry.tokens - tile) + 7) & ~7 };
}

/* 16 bytes of a row, zero where it has ended. */
__device__ uint4 row_piece(const uint8_t *row, int at, int bytes)
{
    if (at + 16 <= bytes)
        return *(const uint4 *)(row + at);
    uint32_t words[4] = { 0, 0, 0, 0 };
#pragma unroll
    for (int b = 0; b < 16; b++)
        words[b / 4] |= at + b < bytes ? (uint32_t)row[at + b] << b % 4 * 8 : 0;
    return make_uint4(words[0], words[1], words[2], words[3]);
}

/* A lane's, 512 bytes apart, from byte `at` of the row on. All that it has to fetch is under way at once. */
template <int TOGETHER>
__device__ void copy_pieces(const mox_sm90_gather_args &args, int64_t row, int at, uint4 (&pieces)[TOGETHER])
{
    const uint8_t *from = args.a + row * args.a_stride;
#pragma unroll
    for (int j = 0; j < TOGETHER; j++)
        pieces[j] = row_piece(from, at + 512 * j, args.a_bytes);
}

/* The same as bf16, from `column` on. */
template <int TOGETHER>
__device__ void decode_pieces(const mox_sm90_gather_args &args, int64_t row, int column, uint4 (&pieces)[TOGETHER])
{
    mox_sm90_eight_acts acts[TOGETHER];
#pragma unroll
    for (int j = 0; j < TOGETHER; j++)
        acts[j] = mox_sm90_load_acts(args, row, column + 256 * j);
#pragma unroll
    for (int j = 0; j < TOGETHER; j++)
        pieces[j] = mox_sm90_decode_acts(args.acts, acts[j]);
}

/* A block eight rows of a token tile and `chunks` of their chunks, a warp a row: 128 bytes, a chunk, are 8 lanes. */
template <int TOGETHER>
__global__ void __launch_bounds__(256) gather(const __grid_constant__ mox_sm90_gather_args args)
{
    __shared__ mox_sm90_entry entries[MOX_SM90_FEW_PAIRS];
    __shared__ int count;
    if (args.few.ids != nullptr) {
        mox_grid_release(); /* nobody behind this reads a list of an earlier kernel */
        if (threadIdx.x < 32)
            count = mox_sm90_list_few(args.few, args.most, entries, (int)threadIdx.x).x;
        __syncthreads();
    }
    mox_grid_wait();
    mox_grid_release();
    const int64_t blocks = (int64_t)gridDim.x * gridDim.y, block = (int64_t)blockIdx.y * gridDim.x + blockIdx.x;
    for (int64_t i = block * 256 + threadIdx.x; i < args.state_words / 2; i += blocks * 256)
        ((uint4 *)args.state)[i] = make_uint4(0, 0, 0, 0);
    const mox_sm90_octet octet =
        args.few.ids != nullptr ? octet_of(entries, count, (int)blockIdx.x * 8) : args.octets[blockIdx.x];
    const int lane = threadIdx.x % 32, eighth = threadIdx.x / 32;
    if (eighth >= octet.columns)
        return;
    const int i = (int)blockIdx.x * 8 - octet.row + eighth, first = (int)blockIdx.y * TOGETHER * 4, pair = octet.pair + eighth;
    const int64_t from_row = args.a_row != nullptr ? args.a_row[pair] : pair;
    uint8_t *to = args.to + (int64_t)octet.row * args.chunks * 128 + i * 128 + ((lane % 8 ^ (i & 7)) << 4);
    uint4 pieces[TOGETHER];
    if (args.acts.bits > 0)
        decode_pieces(args, from_row, first * 64 + lane * 8, pieces);
    else
        copy_pieces(args, from_row, first * 128 + lane * 16, pieces);
#pragma unroll
    for (int j = 0; j < TOGETHER; j++) {
        const int k = first + lane / 8 + 4 * j;
        if (k < args.chunks)
            *(uint4 *)(to + (int64_t)k * octet.rows * 128) = pieces[j];
    }
    if (args.to_factor != nullptr && blockIdx.y == 0 && lane == 0)
        args.to_factor[octet.row + i] = mox_sm90_factor_of_row(args, from_row);
    const int end = min(first + TOGETHER * 4, args.chunks) * args.scales;
    for (int s = first * args.scales + lane; s < end; s += 32) {
        const int from_scale = s >> args.scale_shift;
        args.to_scale[(int64_t)octet.row * args.chunks * args.scales + s * octet.rows + i] =
            from_scale < args.scale_cols ? args.a_scale[from_row * args.a_scale_stride + from_scale] : 0.0f;
    }
}

} // namespace

int mox_sm90_launch_list(const mox_sm90_list_args *args, int dependent, void *stream)
{
    mox_device_attributes attributes;
    const cudaLaunchConfig_t config = mox_device_config(1, THREADS, 0, stream, dependent, &attributes);
    return cudaLaunchKernelEx(&config, make_list, *args);
}

int mox_sm90_launch_gather(const mox_sm90_gather_args *args, int dependent, void *stream)
{
    constexpr int MANY = 8, FEW = 2;
    mox_device_attributes attributes;
    cudaLaunchConfig_t config = mox_device_config((int)args->octet_count, 256, 0, stream, dependent, &attributes);
    const bool many = args->octet_count >= 1024;
    const int together = many ? MANY : FEW;
    config.gridDim.y = (unsigned)((args->chunks + 4 * together - 1) / (4 * together));
    return cudaLaunchKernelEx(&config, many ? gather<MANY> : gather<FEW>, *args);
}

static mox_sm90_kernel kernel_of(mox_sm90_element element, int32_t most)
{
    switch (element) {
#define MOX_SM90_ELEMENT(name, file, ...)                                                                                   \
    case MOX_SM90_##name:                                                                                                   \
        return mox_sm90_kernel_##file(most);
#define MOX_SM90_CODES MOX_SM90_ELEMENT
#include "cuda/expert_gemm/sm90_elements.def"
#undef MOX_SM90_CODES
#undef MOX_SM90_ELEMENT
    default:
        return nullptr;
    }
}

int mox_sm90_launch_gemm(mox_sm90_element element, const mox_sm90_args *args, int32_t blocks, int dependent,
                         void *stream)
{
    const mox_sm90_kernel kernel = kernel_of(element, args->most);
    mox_sm90_args ringed = *args;
    const uint32_t shared = mox_sm90_make_ring(element, &ringed);
    if (ringed.stages < 2) /* a consumer keeps one while it waits for the next */
        return cudaErrorInvalidValue;
    const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    if (error != cudaSuccess)
        return error;
    mox_device_attributes attributes;
    cudaLaunchConfig_t config =
        mox_device_config(blocks, mox_sm90_threads(element, args->most), shared, stream, dependent, &attributes);
    if (args->paired) {
        attributes.list[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
        attributes.list[config.numAttrs].val.clusterDim = { 2, 1, 1 };
        config.numAttrs++;
        config.gridDim.x = (unsigned)blocks / 2 * 2;
    }
    return cudaLaunchKernelEx(&config, kernel, ringed);
}
