/* SPDX-License-Identifier: Apache-2.0
 *
 * sm90_producers.cuh - the two producer warps, one of weights and one of tokens. For each stage each of them issues a
 * bulk copy, and a small one for scales.
 *
 *     weights    They do not depend on the kernel before, so this warp does not wait for it: when the tokens are there
 *                the ring is full of weights, and L2 has some more. L2 evicts weights first. Otherwise they would evict
 *                all that is used again, such as the kernels' own code, which takes 20 us to come back in mid-stream.
 *     tokens     Each block of a pair multicasts half of them to both. Columns behind the last one of a tile stay as
 *                they were: column n of a product depends on token n alone.
 */
#ifndef MOX_CUDA_SM90_PRODUCERS_CUH
#define MOX_CUDA_SM90_PRODUCERS_CUH

#include "cuda/expert_gemm/tensor_cores/mma_work.cuh"
#include "cuda/ptx/ptx_copy.cuh"
#include "cuda/ptx/ptx_sync.cuh"

/* Chunks that a stage has for this unit. */
template <int ELEMENT>
__device__ __forceinline__ int mox_sm90_unit_chunks(const mox_sm90_args &args, const mox_sm90_work_unit &unit)
{
    return !MOX_SM90_DECODES(ELEMENT) ? 1 : unit.columns <= args.few_columns ? args.few_chunks : args.chunks_per_stage;
}

/* Where the tokens begin in its stages. */
template <int ELEMENT>
__device__ __forceinline__ uint32_t mox_sm90_unit_tokens_at(const mox_sm90_args &args, const mox_sm90_work_unit &unit)
{
    return !MOX_SM90_DECODES(ELEMENT)         ? mox_sm90_tokens_at<ELEMENT>
           : unit.columns <= args.few_columns ? args.few_tokens_at
                                              : args.tokens_at;
}

/* Where the scales of weights begin in a stage of `chunks` chunks. */
template <int ELEMENT> __device__ __forceinline__ uint32_t mox_sm90_scales_at(int chunks)
{
    return MOX_SM90_DECODES(ELEMENT) ? chunks * mox_sm90_chunk_bytes(ELEMENT) : MOX_SM90_WEIGHT_BYTES;
}

/* Prefetches to L2 the row constants that the epilogue of wide token tiles will read. */
__device__ __forceinline__ void mox_sm90_l2_prefetch_constants(const mox_sm90_args &args,
                                                               const mox_sm90_work_unit &unit)
{
    const uint64_t row = (uint64_t)unit.tile * 128;
    if (args.row_scale_at != 0)
        mox_bulk_prefetch(unit.record + args.row_scale_at + row * 4, 128 * 4);
    if (args.bias_at != 0)
        mox_bulk_prefetch(unit.record + args.bias_at + row * 4, 128 * 4);
}

/* Prefetches to L2 what comes from chunk k of work unit n on, while the kernel before still computes the tokens. */
template <int ELEMENT>
__device__ __forceinline__ void mox_sm90_l2_prefetch(const mox_sm90_args &args, const mox_sm90_work &work, int n, int k,
                                                     int lane)
{
    constexpr int ROW_BYTES = mox_sm90_row_bytes<ELEMENT>;
    for (int left = args.l2_prefetch * (128 / ROW_BYTES); left > 0; n++, k = 0) {
        const mox_sm90_work_unit unit = mox_sm90_work_unit_at(args, work, n, lane);
        if (unit.begin == unit.end)
            return;
        const int begin = max(k, unit.begin), count = min(unit.end - begin, left);
        const uint8_t *tile = unit.record + args.tiles_at + (uint64_t)unit.tile * args.tile_bytes;
        if (lane < count && unit.rows > 0)
            mox_bulk_prefetch_hint(tile + (uint64_t)(begin + lane) * unit.rows * ROW_BYTES, unit.rows * ROW_BYTES,
                                   mox_policy_read_once());
        left -= count;
    }
}

/* Copies `total` bytes, up to 32 contiguous parts, to places of `room` bytes each. Parts that fill their places are one
 * copy by the first lane. Otherwise each lane copies one: 32 copies by one lane, at 25 ns each, made half tiles the
 * last to end. */
__device__ __forceinline__ void mox_sm90_copy_run(uint8_t *to, const uint8_t *from, uint32_t total, uint32_t part,
                                                  uint32_t room, uint64_t *barrier, uint64_t policy, int lane)
{
    const uint32_t each = part == room ? total : part;
    if (lane * each < total)
        mox_bulk_copy_hint(to + lane * room, from + lane * each, each, barrier, policy);
}

/* Brings weights, and queues work units for the other warps. It looks up the next unit before the last stage of this
 * one, when the ring is full; later the ring would run empty while the look-up waits for memory. NARROW: registers
 * suffice for the L2 prefetch. */
template <int ELEMENT, bool NARROW>
__device__ __forceinline__ void mox_sm90_produce_weights(const mox_sm90_args &args, mox_sm90_header *header,
                                                         uint8_t *stages, int lane)
{
    constexpr bool SCALES = ELEMENT == MOX_SM90_E4M3 || MOX_SM90_DECODES(ELEMENT);
    constexpr bool SPREADS = MOX_SM90_DECODES(ELEMENT); /* half tiles go to the places of whole ones */
    constexpr uint32_t ROW_BYTES = mox_sm90_row_bytes<ELEMENT>;
    const mox_sm90_work work = mox_sm90_work_begin(args, header->entries, MOX_SM90_DECODES(ELEMENT), lane);
    mox_sm90_cursor at = { 0, 1 };
    int issued = 0;
    mox_sm90_work_unit found = mox_sm90_work_unit_at(args, work, 0, lane);
    mox_sm90_header_sync(args); /* the first unit is found while other warps initialise barriers */
    for (int n = 0;; n++) {
        const int i = n % MOX_SM90_QUEUE;
        mox_mbarrier_wait(header->queue_empty + i, (n / MOX_SM90_QUEUE & 1) ^ 1);
        if (lane == 0) {
            header->queue[i] = found;
            mox_mbarrier_arrive(header->queue_full + i);
            if (!NARROW && found.rows > 0)
                mox_sm90_l2_prefetch_constants(args, found);
        }
        __syncwarp();
        const mox_sm90_work_unit unit =
            header->queue[i]; /* read back, so that the compiler knows it to be equal in all lanes */
        if (unit.begin == unit.end)
            return;
        const int per_stage = mox_sm90_unit_chunks<ELEMENT>(args, unit);
        const bool spread = SPREADS && unit.rows < 128;
        const uint32_t chunk = unit.rows * ROW_BYTES, all = args.chunks * chunk;
        const uint32_t block = SCALES ? unit.rows * args.scale_bytes / 128 : 0;
        const uint8_t *tile = unit.record + args.tiles_at + (uint64_t)unit.tile * args.tile_bytes;
        for (int k = unit.begin; k < unit.end; k += per_stage) {
            const uint32_t chunks = min(per_stage, unit.end - k);
            const int first = SCALES ? k >> args.scale_shift : 0;
            const uint32_t blocks = SCALES ? ((k + (int)chunks - 1) >> args.scale_shift) - first + 1 : 0;
            if (k + per_stage >= unit.end)
                found = mox_sm90_work_unit_at(args, work, n + 1, lane);
            mox_mbarrier_wait(header->empty + at.stage, at.parity);
            if (lane == 0)
                mox_mbarrier_arrive_expect(header->full + at.stage, chunks * chunk + blocks * block);
            if (spread)
                __syncwarp();
            if (lane == 0 || spread) {
                uint8_t *stage = stages + (uint64_t)at.stage * args.stage_bytes;
                uint64_t *full = header->full + at.stage;
                const uint64_t policy = mox_policy_read_once(); /* created anew each time: registers are few */
                mox_sm90_copy_run(stage, tile + (uint64_t)k * chunk, chunks * chunk, chunk,
                                  SPREADS ? 128 * ROW_BYTES : chunk, full, policy, lane);
                if constexpr (SCALES)
                    mox_sm90_copy_run(stage + mox_sm90_scales_at<ELEMENT>(per_stage),
                                      tile + (all + (uint64_t)first * block), blocks * block, block,
                                      SPREADS ? args.scale_bytes : block, full, policy, lane);
            }
            mox_sm90_next_stage(&at, args.stages);
            if constexpr (NARROW)
                if (++issued == args.stages)
                    mox_sm90_l2_prefetch<ELEMENT>(args, work, n, k + per_stage, lane);
        }
    }
}

/* This block's tokens of `chunks` chunks: all of them, or, in a pair, its half of the octets, multicast to both blocks.
 */
__device__ __forceinline__ void mox_sm90_copy_tokens(const mox_sm90_args &args, uint8_t *to, const uint8_t *from,
                                                     uint32_t rows, int chunks, uint64_t *full)
{
    const uint32_t half = args.paired ? (rows / 8 + 1) / 2 * 8 : rows;
    const uint32_t first = mox_sm90_rank(args) == 0 ? 0 : half, end = mox_sm90_rank(args) == 0 ? half : rows;
    if (first == end)
        return;
    if (!args.paired)
        mox_bulk_copy(to, from, rows * 128 * chunks, full);
    else
        for (int c = 0; c < chunks; c++)
            mox_bulk_copy_multicast(to + (c * rows + first) * 128, from + (c * rows + first) * 128, (end - first) * 128,
                                    full, 3);
}

template <int ELEMENT>
__device__ __forceinline__ void mox_sm90_produce_tokens(const mox_sm90_args &args, mox_sm90_header *header,
                                                        uint8_t *stages, int lane)
{
    constexpr int SCALES = mox_sm90_token_scales(ELEMENT), SUMS = mox_sm90_token_sum_bytes(ELEMENT);
    mox_sm90_header_sync(args);
    mox_grid_wait();
    mox_sm90_cursor at = { 0, 1 };
    for (int n = 0;; n++) {
        const mox_sm90_work_unit unit = mox_sm90_queue_peek(header, n);
        mox_sm90_queue_pop(header, n, lane);
        if (unit.begin == unit.end)
            return;
        const int per_stage = mox_sm90_unit_chunks<ELEMENT>(args, unit);
        const uint32_t rows = mox_sm90_tile_rows(unit), tokens_at = mox_sm90_unit_tokens_at<ELEMENT>(args, unit);
        const uint8_t *tile = args.a + (int64_t)unit.row * args.chunks * 128;
        const float *scales = args.a_scale + (int64_t)unit.row * args.chunks * SCALES;
        const uint8_t *sums = args.a_sums + (int64_t)unit.row * (args.chunks / 4) * SUMS;
        for (int k = unit.begin; k < unit.end; k += per_stage) {
            const int chunks = min(per_stage, unit.end - k);
            mox_mbarrier_wait(header->empty + at.stage, at.parity);
            if (lane == 0) {
                uint8_t *stage = stages + (uint64_t)at.stage * args.stage_bytes;
                uint64_t *full = header->full + at.stage;
                const uint32_t sum_bytes = SUMS > 0 && mox_sm90_ends_block(k, chunks) ? rows * SUMS : 0;
                mox_mbarrier_arrive_expect(full, chunks * rows * (128 + SCALES * 4) + sum_bytes);
                mox_sm90_copy_tokens(args, stage + tokens_at, tile + (uint64_t)k * rows * 128, rows, chunks, full);
                if (SCALES > 0 && rows > 0)
                    mox_bulk_copy(stage + mox_sm90_token_scales_at<ELEMENT>(args), scales + (uint64_t)k * rows,
                                  chunks * rows * 4, full);
                if (SUMS > 0 && sum_bytes > 0)
                    mox_bulk_copy(stage + tokens_at - sum_bytes, sums + (uint64_t)(k / 4) * rows * SUMS, sum_bytes,
                                  full);
            }
            mox_sm90_next_stage(&at, args.stages);
        }
    }
}

#endif
