/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_list.cu - the two small kernels before a gemm on the layouts of pack/hopper/hopper.h:
 *
 *     make_list   one block: tokens of all slots -> an entry for each slot with tokens, its token tiles counted
 *                                                -> octets: the rows of every eight rows of tiled activations
 *     gather      rows of activations -> tiled activations, swizzled; codes become bf16 (sm90_acts.cuh). And sums of
 *                 tiled activations, where a product reads those
 */
#include "cuda/device/device_launch.cuh"
#include "cuda/expert_gemm/cuda_expert_gemm_args.h"
#include "cuda/expert_gemm/sm90/sm90_acts.cuh"
#include "cuda/expert_gemm/tensor_cores/mma_inline_routing.cuh"
#include "cuda/expert_gemm/tensor_cores/mma_ring.cuh"
#include "cuda/ptx/ptx_cluster.cuh"
#include "cuda/ptx/ptx_sync.cuh"

namespace
{

constexpr int THREADS = 1024, WARPS = THREADS / 32;
static_assert(MOXIE_MAX_EXPERTS <= THREADS, "a thread a slot");
constexpr int GATHER_THREADS = 256; /* eight rows, a warp each */

/* Inclusive sums of four numbers over the block, in the order of its threads; *total: the sums over all. */
__device__ int4 sum_before(int4 v, int4 *warps, int4 *total)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int d = 1; d < 32; d *= 2) {
        const int4 other = { __shfl_up_sync(~0u, v.x, d), __shfl_up_sync(~0u, v.y, d), __shfl_up_sync(~0u, v.z, d),
                             __shfl_up_sync(~0u, v.w, d) };
        if (lane >= d)
            v = { v.x + other.x, v.y + other.y, v.z + other.z, v.w + other.w };
    }
    if (lane == 31)
        warps[warp] = v;
    __syncthreads();
    *total = { 0, 0, 0, 0 };
    int4 before = { 0, 0, 0, 0 };
    for (int w = 0; w < WARPS; w++) {
        if (w == warp)
            before = *total;
        *total = { total->x + warps[w].x, total->y + warps[w].y, total->z + warps[w].z, total->w + warps[w].w };
    }
    return { before.x + v.x, before.y + v.y, before.z + v.z, before.w + v.w };
}

/* Columns of a token tile, by the tokens of all slots. */
__device__ int tile_columns(const mox_sm90_list_args &args, int tokens, int4 *warps)
{
    int4 total;
    if (args.even_columns == args.max_columns)
        return args.max_columns;
    sum_before({ tokens > 0, tokens > args.even_columns, 0, 0 }, warps, &total);
    __syncthreads(); /* `warps` is used once more */
    return 2 * total.y >= total.x ? args.max_columns : args.even_columns;
}

/* Tokens of this thread's slot, counted from the routing. */
__device__ int count_tokens(const mox_sm90_list_args &args, int32_t *slot_of, int32_t *counts)
{
    constexpr int EACH = MOX_SM90_LIST_PAIRS / THREADS;
    const mox_sm90_routing &routing = args.routing;
    int32_t id[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int pair = i * THREADS + (int)threadIdx.x;
        id[i] = pair < routing.pairs ? routing.ids[pair] : -1;
    }
    slot_of[threadIdx.x] = threadIdx.x < routing.experts ? routing.slot_of[threadIdx.x] : -1;
    counts[threadIdx.x] = 0;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int slot = mox_sm90_slot_of(routing, slot_of, id[i]);
        if (slot >= 0)
            atomicAdd(counts + slot, 1);
    }
    __syncthreads();
    return counts[threadIdx.x];
}

/* Columns of a token tile of an entry, rounded up to 8. */
__device__ int columns_of(int tokens, int tiles)
{
    return ((tokens + tiles - 1) / tiles + 7) & ~7;
}

/* The octets of one entry; each lane writes one octet of a token tile. */
__device__ void write_octets(const mox_sm90_list_args &args, const mox_sm90_entry &entry, int lane)
{
    const int each = columns_of(entry.tokens, entry.tiles);
    for (int tile = 0; tile < entry.tokens; tile += each) {
        const int columns = min(each, entry.tokens - tile);
        for (int i = 8 * lane; i < columns; i += 8 * 32)
            args.octets[(entry.row + tile + i) / 8] = { entry.pair + tile + i, min(8, columns - i), entry.row + tile,
                                                        (columns + 7) & ~7 };
    }
}

/* Zeroes columns [first, end) of every place: the part of thread `thread` of `threads`. */
__device__ __noinline__ void zero_state(const mox_sm90_clear &clear, int first, int end, int thread, int threads)
{
    const int of_column = 128 / 2 / 2, each = (end - first) * of_column; /* of 16 bytes */
    for (int i = thread; i < clear.places * each; i += threads) {
        const int place = i / each, in = i - place * each;
        ((uint4 *)clear.state)[(place * clear.max_columns + first) * of_column + in] = make_uint4(0, 0, 0, 0);
    }
}

/* Block 0 makes the list. Up to MOX_SM90_LIST_PAIRS pairs it counts the routing itself, and need not wait for permute,
 * which counts the same. The other blocks zero the state. For routed experts only permute can still run before this
 * kernel. */
__global__ void __launch_bounds__(THREADS) make_list(const __grid_constant__ mox_sm90_list_args args)
{
    __shared__ mox_sm90_entry entries[THREADS];
    __shared__ int32_t slot_of[THREADS], counts[THREADS];
    __shared__ int4 warps[WARPS];
    __shared__ uint32_t widest;
    const int slot = (int)threadIdx.x;
    const bool early = args.routing.ids != nullptr;
    const bool counts_itself = early && args.routing.pairs <= MOX_SM90_LIST_PAIRS;
    mox_grid_release();
    if (blockIdx.x > 0) {
        if (!early)
            mox_grid_wait();
        zero_state(args.clear, 0, args.clear.usual_columns, (blockIdx.x - 1) * THREADS + threadIdx.x,
                   (gridDim.x - 1) * THREADS);
        if (early)
            mox_grid_wait();
        return;
    }
    if (!counts_itself)
        mox_grid_wait();
    const int tokens = counts_itself       ? count_tokens(args, slot_of, counts)
                       : slot < args.slots ? (int)(args.offsets[slot + 1] - args.offsets[slot])
                                           : 0;
    const int columns = tile_columns(args, tokens, warps);
    const int4 mine = { tokens > 0, (tokens + columns - 1) / columns, (tokens + 7) & ~7, tokens };
    if (slot == 0)
        widest = 0;
    int4 total;
    const int4 sum = sum_before(mine, warps, &total);
    if (tokens > 0) {
        entries[sum.x - 1] = { slot, sum.w - tokens, tokens, sum.y - mine.y, sum.z - mine.z, mine.y, 0, 0 };
        mox_shared_max(&widest, (uint32_t)columns_of(tokens, mine.y));
    }
    __syncthreads();
    if (slot == 0)
        *args.list = { total.x, (int)widest, total.y, { 0, 0, 0, 0, 0 } };
    if (slot < total.x)
        ((mox_sm90_entry *)(args.list + 1))[slot] = entries[slot];
    for (int e = slot / 32; e < total.x; e += WARPS)
        write_octets(args, entries[e], slot % 32);
    for (int64_t i = total.z / 8 + slot; i < args.octet_count; i += THREADS)
        args.octets[i] = { 0, 0, 0, 0 };
    if (counts_itself)
        mox_grid_wait(); /* a kernel that waits for this one then has waited for permute, too */
}

/* The octet of the eight rows from `row` on, found in a list of few pairs. */
__device__ mox_sm90_octet octet_of(const mox_sm90_entry *entries, int count, int row)
{
    int e = 0;
#pragma unroll
    for (int step = MOX_SM90_INLINE_PAIRS / 2; step > 0; step /= 2)
        e += e + step < count && entries[e + step].row <= row ? step : 0;
    const mox_sm90_entry entry = entries[e];
    const int in = row - entry.row;
    if (count == 0 || in >= entry.tokens)
        return { 0, 0, 0, 0 };
    const int each = columns_of(entry.tokens, entry.tiles), tile = in / each * each;
    return { entry.pair + in, min(8, entry.tokens - in), entry.row + tile, (min(each, entry.tokens - tile) + 7) & ~7 };
}

/* 16 bytes of a row; zero behind its end. */
__device__ uint4 row_vector(const uint8_t *row, int at, int bytes)
{
    if (at + 16 <= bytes)
        return *(const uint4 *)(row + at);
    uint32_t words[4] = { 0, 0, 0, 0 };
#pragma unroll
    for (int b = 0; b < 16; b++)
        words[b / 4] |= at + b < bytes ? (uint32_t)row[at + b] << b % 4 * 8 : 0;
    return make_uint4(words[0], words[1], words[2], words[3]);
}

/* A lane's vectors, 512 bytes apart, from byte `at` of the row on. All its loads are in flight before the first is
 * used. */
template <int IN_FLIGHT>
__device__ void copy_vectors(const mox_sm90_gather_args &args, int64_t row, int at, uint4 (&vectors)[IN_FLIGHT])
{
    const uint8_t *from = args.a + row * args.a_stride;
#pragma unroll
    for (int j = 0; j < IN_FLIGHT; j++)
        vectors[j] = row_vector(from, at + 512 * j, args.a_bytes);
}

/* The same vectors, dequantized to bf16, from `column` on. */
template <int IN_FLIGHT>
__device__ void decode_vectors(const mox_sm90_gather_args &args, int64_t row, int column, uint4 (&vectors)[IN_FLIGHT])
{
    mox_sm90_eight_acts acts[IN_FLIGHT];
#pragma unroll
    for (int j = 0; j < IN_FLIGHT; j++)
        acts[j] = mox_sm90_load_acts(args, row, column + 256 * j);
#pragma unroll
    for (int j = 0; j < IN_FLIGHT; j++)
        vectors[j] = mox_sm90_decode_acts(args.acts, acts[j]);
}

/* The order of columns of the slot that owns a row of the tiled activations; null: natural. */
__device__ const int32_t *order_of(const mox_sm90_gather_args &args, const mox_sm90_entry *entries, int count, int row)
{
    if (args.order_flag == 0)
        return nullptr;
    const bool inlined = args.inline_routing.ids != nullptr;
    const mox_sm90_entry *list = inlined ? entries : reinterpret_cast<const mox_sm90_entry *>(args.list + 1);
    int low = 0, high = inlined ? count : args.list->count;
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        if (list[middle].row <= row)
            low = middle;
        else
            high = middle;
    }
    const uint8_t *record = args.records + list[low].slot * args.record_bytes;
    const uint32_t flags = *reinterpret_cast<const uint32_t *>(record + MOX_CUDA_HEADER_FLAGS);
    return flags & args.order_flag ? reinterpret_cast<const int32_t *>(record + args.order_at) : nullptr;
}

/* A lane's vectors in that order. An order has room for whole vectors of columns. */
template <int IN_FLIGHT>
__device__ void permute_vectors(const mox_sm90_gather_args &args, int64_t row, const int32_t *order, int at,
                                uint4 (&vectors)[IN_FLIGHT])
{
    const uint16_t *from = reinterpret_cast<const uint16_t *>(args.a + row * args.a_stride);
#pragma unroll
    for (int j = 0; j < IN_FLIGHT; j++) {
        const int first = (at + 512 * j) / 2, columns = args.a_bytes / 2;
        uint32_t words[4] = { 0, 0, 0, 0 };
#pragma unroll
        for (int i = 0; i < 8; i++)
            words[i / 2] |= first + i < columns ? (uint32_t)from[order[first + i]] << i % 2 * 16 : 0;
        vectors[j] = make_uint4(words[0], words[1], words[2], words[3]);
    }
}

/* Where this lane's 16 bytes of a chunk of row i of a token tile lie, counted from the tile's bytes of that chunk. */
__device__ int place_in_chunk(int i, int lane)
{
    return i * 128 + ((lane % 8 ^ (i & 7)) << 4);
}

/* The same vectors of tiled activations. */
template <int IN_FLIGHT>
__device__ void tiled_vectors(const mox_sm90_gather_args &args, const mox_sm90_octet &octet, int i, int first, int lane,
                              uint4 (&vectors)[IN_FLIGHT])
{
    const uint8_t *from = args.a + (int64_t)octet.row * args.chunks * 128 + place_in_chunk(i, lane);
#pragma unroll
    for (int j = 0; j < IN_FLIGHT; j++) {
        const int k = first + lane / 8 + 4 * j;
        vectors[j] = k < args.chunks ? *(const uint4 *)(from + (int64_t)k * octet.rows * 128) : make_uint4(0, 0, 0, 0);
    }
}

/* Where a row of the tiled activations comes from. An octet without tokens has columns 0. */
struct row_source {
    mox_sm90_octet octet;
    int row;
};

/* The source of row `warp` of octet `o`. */
__device__ row_source find_row(const mox_sm90_gather_args &args, const mox_sm90_entry *entries, int count, int o,
                               int warp)
{
    const mox_sm90_octet octet = o >= args.octet_count                ? mox_sm90_octet { 0, 0, 0, 0 }
                                 : args.inline_routing.ids != nullptr ? octet_of(entries, count, o * 8)
                                                                      : args.octets[o];
    const int pair = octet.pair + warp;
    return { octet, warp < octet.columns && args.a_row != nullptr ? (int)args.a_row[pair] : pair };
}

template <int IN_FLIGHT>
__device__ void load_vectors(const mox_sm90_gather_args &args, int64_t row, const int32_t *order, int first, int lane,
                             uint4 (&vectors)[IN_FLIGHT])
{
    if (order != nullptr)
        permute_vectors(args, row, order, first * 128 + lane * 16, vectors);
    else if (args.acts.bits > 0)
        decode_vectors(args, row, first * 64 + lane * 8, vectors);
    else
        copy_vectors(args, row, first * 128 + lane * 16, vectors);
}

/* 4 * IN_FLIGHT chunks of row i of a token tile, from `first` on. 8 lanes store the 128 bytes of one chunk. */
template <int IN_FLIGHT>
__device__ void store_vectors(const mox_sm90_gather_args &args, const mox_sm90_octet &octet, int i, int first, int lane,
                              const uint4 (&vectors)[IN_FLIGHT])
{
    uint8_t *to = args.to + (int64_t)octet.row * args.chunks * 128 + place_in_chunk(i, lane);
#pragma unroll
    for (int j = 0; j < IN_FLIGHT; j++) {
        const int k = first + lane / 8 + 4 * j;
        if (k >= args.chunks)
            break;
        uint4 *at = (uint4 *)(to + (int64_t)k * octet.rows * 128);
        if (args.streams)
            __stcs(at, vectors[j]);
        else
            *at = vectors[j];
    }
}

/* 2^-5 times the sum of eight bf16 of a vector. */
__device__ float sum_of_vector(const uint4 &vector)
{
    const uint32_t words[4] = { vector.x, vector.y, vector.z, vector.w };
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        sum = __fmaf_rn(__uint_as_float(words[i] << 16), 0x1p-5f, sum);
        sum = __fmaf_rn(__uint_as_float(words[i] & 0xffff0000u), 0x1p-5f, sum);
    }
    return sum;
}

/* x as three bf16 that add up to it, and a zero. */
__device__ uint2 split_in_three(float x)
{
    const uint32_t high = mox_convert_bf16x2(x, 0.0f);
    const float rest = __fsub_rn(x, __uint_as_float(high << 16));
    const uint32_t middle = mox_convert_bf16x2(rest, 0.0f);
    return make_uint2((high & 0xffff) | middle << 16,
                      mox_convert_bf16x2(__fsub_rn(rest, __uint_as_float(middle << 16)), 0.0f));
}

/* The sums of 32 columns of row i, from those vectors: four lanes have the columns of one. */
template <int IN_FLIGHT>
__device__ void store_sums(const mox_sm90_gather_args &args, const mox_sm90_octet &octet, int i, int first, int lane,
                           const uint4 (&vectors)[IN_FLIGHT])
{
    constexpr int BYTES = MOX_SM90_SUM_COLUMNS / 32 * 8, EIGHT = 8 * BYTES;
    uint8_t *to = args.to_sums + (int64_t)octet.row * (args.chunks / 4) * BYTES + i / 8 * EIGHT + i % 8 * 16;
#pragma unroll
    for (int j = 0; j < IN_FLIGHT; j++) {
        const int k = first + lane / 8 + 4 * j, sum = k % 4 * 2 + lane % 8 / 4;
        float x = sum_of_vector(vectors[j]);
        x = __fadd_rn(x, __shfl_xor_sync(~0u, x, 1));
        x = __fadd_rn(x, __shfl_xor_sync(~0u, x, 2));
        if (k < args.chunks && lane % 4 == 0)
            *(uint2 *)(to + (int64_t)(k / 4) * octet.rows * BYTES + sum / 2 * 128 + sum % 2 * 8) = split_in_three(x);
    }
}

__device__ void gather_scales(const mox_sm90_gather_args &args, const row_source &from, int i, int first, int end,
                              int lane)
{
    if (args.to_factor != nullptr && first == 0 && lane == 0)
        args.to_factor[from.octet.row + i] = mox_sm90_factor_of_row(args, from.row);
    for (int k = first + lane; k < end * args.scales; k += 32)
        args.to_scale[(int64_t)from.octet.row * args.chunks + k * from.octet.rows + i] =
            args.a_scale[from.row * args.a_scale_stride + (k >> args.scale_shift)];
}

/* Blocks take octets in turn, one warp a row. All blocks run at the same time: the gemm behind starts to fetch weights
 * when the last block of this kernel has started. The next row's source is asked for before this row's data is waited
 * for. SUMS: it makes sums, and maybe nothing else. */
template <int IN_FLIGHT, bool SUMS>
__global__ void __launch_bounds__(GATHER_THREADS, 4) gather(const __grid_constant__ mox_sm90_gather_args args)
{
    __shared__ mox_sm90_entry entries[MOX_SM90_INLINE_PAIRS];
    __shared__ int count;
    const bool inlined = args.inline_routing.ids != nullptr;
    if (inlined) {
        mox_grid_release(); /* with inline routing no later kernel reads a list of an earlier one */
        if (threadIdx.x < 32)
            count = mox_sm90_list_inline(args.inline_routing, args.max_columns, entries, (int)threadIdx.x).x;
        __syncthreads();
    }
    mox_grid_wait();
    mox_grid_release();
    const int zeroed = inlined ? 0 : args.clear.usual_columns;
    const int widest = inlined ? args.clear.max_columns : args.clear.places > 0 ? args.list->widest : 0;
    if (widest > zeroed)
        zero_state(args.clear, zeroed, widest, (blockIdx.y * gridDim.x + blockIdx.x) * GATHER_THREADS + threadIdx.x,
                   gridDim.x * gridDim.y * GATHER_THREADS);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = (int)blockIdx.y * IN_FLIGHT * 4;
    row_source from = find_row(args, entries, count, (int)blockIdx.x, warp);
#pragma unroll 1
    for (int o = (int)blockIdx.x; o < args.octet_count;) {
        const bool has_row = warp < from.octet.columns;
        const int i = o * 8 - from.octet.row + warp;
        uint4 vectors[IN_FLIGHT];
        if (SUMS && has_row && args.a_tiled)
            tiled_vectors(args, from.octet, i, first, lane, vectors);
        else if (has_row)
            load_vectors(args, from.row, order_of(args, entries, count, o * 8), first, lane, vectors);
        o += (int)gridDim.x;
        const row_source next = find_row(args, entries, count, o, warp);
        if (SUMS && has_row)
            store_sums(args, from.octet, i, first, lane, vectors);
        if (has_row && !(SUMS && args.a_tiled)) {
            store_vectors(args, from.octet, i, first, lane, vectors);
            gather_scales(args, from, i, first, min(first + IN_FLIGHT * 4, args.chunks), lane);
        }
        from = next;
    }
}

bool may_depend(int dependent)
{
    return dependent && mox_device_has_dependent_code(reinterpret_cast<const void *>(make_list));
}

} // namespace

int mox_sm90_launch_list(const mox_sm90_list_args *args, int dependent, void *stream)
{
    mox_device_attributes attributes;
    const int blocks = args->clear.places > 0 ? args->multiprocessors : 0;
    const cudaLaunchConfig_t config =
        mox_device_config(1 + blocks, THREADS, 0, stream, may_depend(dependent), &attributes);
    return cudaLaunchKernelEx(&config, make_list, *args);
}

int mox_sm90_launch_gather(const mox_sm90_gather_args *args, int dependent, void *stream)
{
    constexpr int LOADS = 8, LOADS_INLINE = 2, LOADS_SUMS = 2;
    mox_device_attributes attributes;
    const bool inlined = args->inline_routing.ids != nullptr, sums = args->to_sums != nullptr;
    const int step = 4 * (sums ? LOADS_SUMS : inlined ? LOADS_INLINE : LOADS), parts = (args->chunks + step - 1) / step;
    const int64_t fit = args->blocks > parts ? args->blocks / parts : 1;
    const dim3 grid((unsigned)(args->octet_count < fit ? args->octet_count : fit), (unsigned)parts);
    const cudaLaunchConfig_t config =
        mox_device_config(grid, GATHER_THREADS, 0, stream, may_depend(dependent), &attributes);
    const auto kernel = sums ? gather<LOADS_SUMS, true> : inlined ? gather<LOADS_INLINE, false> : gather<LOADS, false>;
    return cudaLaunchKernelEx(&config, kernel, *args);
}
