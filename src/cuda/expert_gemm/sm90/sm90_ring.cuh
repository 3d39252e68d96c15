/* SPDX-License-Identifier: Apache-2.0
 *
 * sm90_ring.cuh - the shared memory of a block, and the job queue between its warps.
 *
 *     0     | barriers, queue of pieces of jobs, arguments    8192 bytes; narrow token tiles: | factors, biases    1024
 *     8192  | stage 0 | stage 1 | ...     each: weights, [scales of weights, scales of tokens,] tokens
 *
 *     stage of 16-bit elements    16384 codes of weights | columns x 128 tokens
 *     stage of 8-bit elements     16384 codes of weights | 64 their scales | 960: a float a column | columns x 128
 * tokens stage of codes              together x 4096, 6144 or 8192 codes of weights | their scales | together x (rows x
 * 128 tokens)
 *
 * A half tile, 64 rows, leaves the upper half of its codes as it was, and a tile past the last all of them. What is
 * made of that is never stored.
 *
 * A stage is full when the bulk copies of its weights and of its tokens have arrived; it is empty when all consumer
 * warps have said so, or all their lanes: eight warps, or in a pair sixteen, since either block fills half of the
 * other's tokens.
 */
#ifndef MOX_CUDA_SM90_RING_CUH
#define MOX_CUDA_SM90_RING_CUH

#include "cpu/glu/glu_tile.h"
#include "cuda/expert_gemm/sm90/sm90_shape.h"
#include "cuda/ptx/ptx_cluster.cuh"

constexpr int MOX_SM90_CONSUMER_WARPS = 4 * MOX_SM90_GROUPS;
constexpr int MOX_SM90_QUEUE = 4, MOX_SM90_TOKEN_SCALES_AT = 16448;

/* Warps of a block: consumers, two producers, and where registers are dealt out, four at a time, two that do nothing.
 */
constexpr int mox_sm90_threads(int element, int max_columns)
{
    return 32 * (MOX_SM90_CONSUMER_WARPS + (mox_sm90_blocks(element, max_columns) == 1 ? 4 : 2));
}

/* A run of chunks of one job. */
struct mox_sm90_work_unit {
    const uint8_t *record;
    int32_t begin, end;          /* chunks; begin == end: there are no more pieces */
    int32_t tile, rows;          /* row tile, how many rows of it are stored: 128, 64, or 0 past the last */
    int32_t slot, pair, columns; /* slot, first pair, tokens */
    int32_t row;                 /* first row in tiled operands */
    int32_t resume, hand_off;    /* boundary whose state it goes on from, or leaves behind; -1: none */
};

struct mox_sm90_header {
    uint64_t full[MOX_SM90_MAX_STAGES], empty[MOX_SM90_MAX_STAGES];
    uint64_t queue_full[MOX_SM90_QUEUE], queue_empty[MOX_SM90_QUEUE];
    mox_sm90_work_unit queue[MOX_SM90_QUEUE];
    /* quantizing; a round is a tile, even or odd (groups of 32 have their own ways: mox_sm90_scale_mx()) */
    uint64_t measured[2];                          /* all who have a part of 128 outputs have left their greatest */
    uint32_t greatest[2][MOX_SM90_MAX_COLUMNS];    /* magnitude of each column, as bits, which are in the same order */
    float2 scales[MOX_SM90_MAX_COLUMNS];           /* and their reciprocals */
    mox_sm90_entry entries[MOX_SM90_INLINE_PAIRS]; /* of few pairs */
    mox_sm90_args args;                            /* for the epilogue: mox_sm90_find_header() */
};
static_assert(sizeof(mox_sm90_header) <= MOX_SM90_HEADER_BYTES, "the front of the shared memory is too small");

/* Columns of a token tile in a tiled operand. */
__device__ __forceinline__ int mox_sm90_tile_rows(const mox_sm90_work_unit &unit)
{
    return (unit.columns + 7) & ~7;
}

/* Bytes of a row of weights in a chunk. */
template <int ELEMENT> constexpr int mox_sm90_row_bytes = mox_sm90_chunk_bytes(ELEMENT) / 128;

/* Where the tokens begin in a stage, where that is fixed. */
template <int ELEMENT> constexpr int mox_sm90_tokens_at = mox_sm90_tokens_from(ELEMENT);

/* Lanes of a warp that say when a stage is empty: all where they read it themselves, one where the tensor cores do. */
template <int ELEMENT> constexpr int mox_sm90_arrivals = MOX_SM90_DECODES(ELEMENT) ? 32 : 1;

/* A position in the ring, which all warps count through alike. */
struct mox_sm90_cursor {
    int32_t stage;
    uint32_t parity;
};

__device__ __forceinline__ void mox_sm90_next(mox_sm90_cursor *at, int32_t stages)
{
    if (++at->stage == stages) {
        at->stage = 0;
        at->parity ^= 1;
    }
}

/* Blocks that share tokens, and which one of them this is. */
__device__ __forceinline__ int mox_sm90_cluster_size(const mox_sm90_args &args)
{
    return args.paired ? 2 : 1;
}

__device__ __forceinline__ int mox_sm90_rank(const mox_sm90_args &args)
{
    return args.paired ? (int)blockIdx.x % 2 : 0;
}

/* By all consumers, which then meet the others. */
template <int ELEMENT>
__device__ __forceinline__ void mox_sm90_header_init(mox_sm90_header *header, const mox_sm90_args &args)
{
    const int lane = (int)threadIdx.x;
    for (int i = lane; i < 2 * MOX_SM90_MAX_COLUMNS; i += 32 * MOX_SM90_CONSUMER_WARPS)
        header->greatest[i / MOX_SM90_MAX_COLUMNS][i % MOX_SM90_MAX_COLUMNS] = 0;
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
        mox_mbarrier_init(header->measured + lane, MOX_SM90_CONSUMER_WARPS * (args.gated ? 2 : 1));
    mox_mbarrier_init_fence();
}

/* By all threads, before they use what mox_sm90_header_init() has set up: the other block may arrive at these barriers.
 */
__device__ __forceinline__ void mox_sm90_header_sync(const mox_sm90_args &args)
{
    __syncthreads();
    if (args.paired)
        mox_cluster_sync();
}

/* Piece `n` of this block, which stays in the queue until mox_sm90_drop(). Both by all lanes of a warp. */
__device__ __forceinline__ const mox_sm90_work_unit &mox_sm90_peek(mox_sm90_header *header, int n)
{
    const int i = n % MOX_SM90_QUEUE;
    mox_mbarrier_wait(header->queue_full + i, n / MOX_SM90_QUEUE & 1);
    return header->queue[i];
}

__device__ __forceinline__ void mox_sm90_drop(mox_sm90_header *header, int n, int lane)
{
    __syncwarp();
    if (lane == 0)
        mox_mbarrier_arrive(header->queue_empty + n % MOX_SM90_QUEUE);
}

/* What each expert_gemm_sm90_<name>.cu gives to the launcher. */
using mox_sm90_kernel = void (*)(mox_sm90_args);
#define MOX_SM90_ELEMENT(name, file, ...) mox_sm90_kernel mox_sm90_kernel_##file(int32_t max_columns);
#define MOX_SM90_CODES                    MOX_SM90_ELEMENT
#include "cuda/expert_gemm/sm90/sm90_elements.def"
#undef MOX_SM90_CODES
#undef MOX_SM90_ELEMENT

#endif
