/* SPDX-License-Identifier: Apache-2.0
 *
 * mma_ring.cuh - the shared memory of a block, and the queue of work units between its warps.
 *
 *     0       | header: barriers, queue, arguments       8192 bytes; with narrow token tiles | row constants 1024
 *     8192    | stage 0 | stage 1 | ...                  each: weights, [scales of weights, scales of tokens,] tokens
 *
 *     stage of 16-bit elements    16384 weights | columns x 128 tokens
 *     stage of 8-bit elements     16384 weights | 64 their scales | 960: a float a column | columns x 128 tokens
 *     stage of codes              chunks_per_stage x (4096, 5120, 6144 or 8192) weights | their scales
 *                                 | [scales or sums of tokens] | chunks_per_stage x (columns x 128) tokens
 *
 * A half tile (64 rows) leaves the upper half of its weights as they were, and a tile past the last leaves all of them.
 * What is computed from those is never stored.
 *
 * A stage is full when the bulk copies of its weights and of its tokens have arrived. It is empty when all consumer
 * warps have released it: eight warps, or sixteen in a pair, since each block fills half of the other's tokens.
 */
#ifndef MOX_CUDA_SM90_RING_CUH
#define MOX_CUDA_SM90_RING_CUH

#include "cpu/glu/glu_tile.h"
#include "cuda/expert_gemm/tensor_cores/mma_shape.h"
#include "cuda/ptx/ptx_cluster.cuh"

constexpr int MOX_SM90_CONSUMER_WARPS = 4 * MOX_SM90_GROUPS;
constexpr int MOX_SM90_QUEUE = 4, MOX_SM90_TOKEN_SCALES_AT = 16448;

/* Threads of a block: consumers, two producers and, where registers are reallocated four warps at a time, two idle
 * warps. */
constexpr int mox_sm90_threads(int element, int max_columns)
{
    return 32 * (MOX_SM90_CONSUMER_WARPS + (mox_sm90_blocks_per_sm(element, max_columns) == 1 ? 4 : 2));
}

/* This thread's place among the consumers. */
struct mox_sm90_place {
    int group, thread, warp, lane; /* group: the warpgroup; thread, warp: within it */
};

/* A run of chunks of one job. */
struct mox_sm90_work_unit {
    const uint8_t *record;
    int32_t begin, end;          /* chunks; begin == end: no more work units */
    int32_t tile, rows;          /* row tile; rows of it that are stored: 128, 64, or 0 past the last tile */
    int32_t slot, pair, columns; /* slot, first pair, tokens */
    int32_t row;                 /* first row in tiled activations */
    int32_t resume, hand_off;    /* boundary between blocks that it resumes from, or hands off to; -1: none */
};

struct mox_sm90_header {
    uint64_t full[MOX_SM90_MAX_STAGES], empty[MOX_SM90_MAX_STAGES];
    uint64_t queue_full[MOX_SM90_QUEUE], queue_empty[MOX_SM90_QUEUE];
    mox_sm90_work_unit queue[MOX_SM90_QUEUE];
    /* Quantizing to e4m3. A round is a tile, even or odd. (Groups of 32 use the memory as mox_sm90_make_scales_mx()
     * says.) */
    uint64_t maxima_ready[2];                 /* all warps with a part of the 128 outputs have added their maxima */
    uint32_t maxima[2][MOX_SM90_MAX_COLUMNS]; /* magnitude of each column, as bits: they order like the numbers */
    float2 scales[MOX_SM90_MAX_COLUMNS];      /* and their reciprocals */
    mox_sm90_entry entries[MOX_SM90_INLINE_PAIRS]; /* with inline routing */
    mox_sm90_args args;                            /* for the epilogue: mox_sm90_find_header() */
};
static_assert(sizeof(mox_sm90_header) <= MOX_SM90_HEADER_BYTES, "the header does not fit");

/* Rows of a token tile in tiled activations. */
__device__ __forceinline__ int mox_sm90_tile_rows(const mox_sm90_work_unit &unit)
{
    return (unit.columns + 7) & ~7;
}

/* Bytes of a row of weights in a chunk. */
template <int ELEMENT> constexpr int mox_sm90_row_bytes = mox_sm90_chunk_bytes(ELEMENT) / 128;

/* Where the tokens begin in a stage of weights that are not dequantized. */
template <int ELEMENT> constexpr int mox_sm90_tokens_at = mox_sm90_tokens_from(ELEMENT);

/* Where the scales of tokens begin in a stage: chunk by chunk, a float for each row of the token tile. */
template <int ELEMENT> __device__ __forceinline__ uint32_t mox_sm90_token_scales_at(const mox_sm90_args &args)
{
    return MOX_SM90_DECODES(ELEMENT)
               ? args.tokens_at - mox_sm90_token_scale_bytes(ELEMENT, args.chunks_per_stage, args.max_columns)
               : MOX_SM90_TOKEN_SCALES_AT;
}

/* Does chunk `k`, the next one being k + `chunks`, or one between, end a block of columns whose sums a stage has? */
__device__ __forceinline__ bool mox_sm90_ends_block(int k, int chunks)
{
    return (k + chunks) / 4 > k / 4;
}

/* Lanes of a warp that arrive when a stage is empty: all where they read it themselves, one where the tensor cores do.
 */
template <int ELEMENT> constexpr int mox_sm90_arrivals = MOX_SM90_DECODES(ELEMENT) ? 32 : 1;

/* A position in the ring. All warps count through it alike. */
struct mox_sm90_cursor {
    int32_t stage;
    uint32_t parity;
};

__device__ __forceinline__ void mox_sm90_next_stage(mox_sm90_cursor *at, int32_t stages)
{
    if (++at->stage == stages) {
        at->stage = 0;
        at->parity ^= 1;
    }
}

/* Blocks that share tokens; and which of them this block is. */
__device__ __forceinline__ int mox_sm90_cluster_size(const mox_sm90_args &args)
{
    return args.paired ? 2 : 1;
}

__device__ __forceinline__ int mox_sm90_rank(const mox_sm90_args &args)
{
    return args.paired ? (int)blockIdx.x % 2 : 0;
}

/* By all consumers, before mox_sm90_header_sync(). */
template <int ELEMENT>
__device__ __forceinline__ void mox_sm90_header_init(mox_sm90_header *header, const mox_sm90_args &args)
{
    const int lane = (int)threadIdx.x;
    for (int i = lane; i < 2 * MOX_SM90_MAX_COLUMNS; i += 32 * MOX_SM90_CONSUMER_WARPS)
        header->maxima[i / MOX_SM90_MAX_COLUMNS][i % MOX_SM90_MAX_COLUMNS] = 0;
    if (lane >= 32)
        return;
    if (lane == 0)
        header->args = args;
    if (lane < args.stages) {
        mox_mbarrier_init(header->full + lane, 2);
        mox_mbarrier_init(header->empty + lane,
                          MOX_SM90_CONSUMER_WARPS * (mox_sm90_arrivals<ELEMENT> + mox_sm90_cluster_size(args) - 1));
    }
    if (lane < MOX_SM90_QUEUE) {
        mox_mbarrier_init(header->queue_full + lane, 1);
        mox_mbarrier_init(header->queue_empty + lane, 1 + MOX_SM90_CONSUMER_WARPS);
    }
    if (lane < 2)
        mox_mbarrier_init(header->maxima_ready + lane, MOX_SM90_CONSUMER_WARPS * (args.gated ? 2 : 1));
    mox_mbarrier_init_fence();
}

/* By all threads, before they use the header: the other block of a pair may arrive at these barriers. */
__device__ __forceinline__ void mox_sm90_header_sync(const mox_sm90_args &args)
{
    __syncthreads();
    if (args.paired)
        mox_cluster_sync();
}

/* Work unit `n` of this block, which stays in the queue until mox_sm90_queue_pop(). Both by all lanes of a warp. */
__device__ __forceinline__ const mox_sm90_work_unit &mox_sm90_queue_peek(mox_sm90_header *header, int n)
{
    const int i = n % MOX_SM90_QUEUE;
    mox_mbarrier_wait(header->queue_full + i, n / MOX_SM90_QUEUE & 1);
    return header->queue[i];
}

__device__ __forceinline__ void mox_sm90_queue_pop(mox_sm90_header *header, int n, int lane)
{
    __syncwarp();
    if (lane == 0)
        mox_mbarrier_arrive(header->queue_empty + n % MOX_SM90_QUEUE);
}

/* The kernel that each expert_gemm_sm90_<name>.cu gives to the launcher. */
using mox_sm90_kernel = void (*)(mox_sm90_args);
#define MOX_SM90_ELEMENT(name, file, ...) mox_sm90_kernel mox_sm90_kernel_##file(int32_t max_columns);
#define MOX_SM90_CODES                    MOX_SM90_ELEMENT
#include "cuda/expert_gemm/tensor_cores/mma_elements.def"
#undef MOX_SM90_CODES
#undef MOX_SM90_ELEMENT

#endif
