/* SPDX-License-Identifier: Apache-2.0
 *
 * mma_work.cuh - which work units (runs of chunks) a block computes, and in which order. mma_args.h describes the
 * cut.
 *
 *     jobs      0 ........................ rounds x blocks | rest
 *               block b: b, b + blocks, ...                | chunks, equally many a block, the first ones one more;
 *                                                          | for "chunk" read "two chunks" where they have one sum
 *
 * A block's order: first the beginning of a job that the next block ends; then whole jobs of the rounds and of the
 * rest; last the end of a job that the block before began. Only that one waits, and only for a lower block. Where
 * blocks work in pairs, read "pair" for block here; a row tile is then two.
 */
#ifndef MOX_CUDA_SM90_WORK_CUH
#define MOX_CUDA_SM90_WORK_CUH

#include "cuda/expert_gemm/tensor_cores/mma_inline_routing.cuh"
#include "cuda/expert_gemm/tensor_cores/mma_ring.cuh"

/* Counts fit 31 bits (scratch_bytes() checks that). One warp finds the first unit alone, and no weight is fetched
 * before: 32-bit divisions take 80 ns there, 64-bit ones 100 ns. */
struct mox_sm90_work {
    const mox_sm90_entry *entries;
    int32_t count, tiles; /* entries; row tiles, or pairs of them */
    int32_t block, blocks;
    int32_t rounds;      /* whole jobs of this block before the rest */
    int32_t first, from; /* of the rest, under two jobs a block: job and chunk where this block begins, */
    int32_t last, to;    /* and where the next one does */
};

/* By a whole warp; `own` has room for a list with inline routing. `whole`: where there are no more jobs than blocks,
 * jobs are not cut. There a chunk takes about as long to multiply as to fetch, so a cut job would take as long, and the
 * hand-off besides. */
__device__ __forceinline__ mox_sm90_work mox_sm90_work_begin(const mox_sm90_args &args, mox_sm90_entry *own, bool whole,
                                                             int lane)
{
    mox_sm90_work w;
    const int cluster = mox_sm90_cluster_size(args);
    int token_tiles;
    if (args.inline_routing.ids != nullptr) {
        const int2 list = mox_sm90_list_inline(args.inline_routing, args.max_columns, own, lane);
        w.entries = own;
        w.count = list.x;
        token_tiles = list.y;
    } else {
        const int4 head = *(const int4 *)args.list; /* one load */
        w.entries = (const mox_sm90_entry *)(args.list + 1);
        w.count = head.x;
        token_tiles = head.z;
    }
    w.blocks = gridDim.x / cluster;
    w.block = blockIdx.x / cluster;
    w.tiles = (args.tiles + cluster - 1) / cluster;
    const int jobs = token_tiles * w.tiles;
    w.rounds = jobs < 2 * w.blocks ? 0 : jobs / w.blocks - 1;
    if (whole && jobs <= w.blocks) {
        w.first = min(w.block, jobs);
        w.last = min(w.block + 1, jobs);
        w.from = w.to = 0;
        return w;
    }
    const int shift = args.sum_shift, sums = (args.chunks + (1 << shift) - 1) >> shift; /* of a job */
    const int rest = (jobs - w.rounds * w.blocks) * sums, each = rest / w.blocks, more = rest - each * w.blocks;
    const int begin = w.block * each + min(w.block, more), end = begin + each + (w.block < more);
    w.first = begin / sums;
    w.from = (begin - w.first * sums) << shift;
    w.last = end / sums;
    w.to = (end - w.last * sums) << shift;
    return w;
}

/* The entry of token tile `column`: the last entry with `first` <= column. The whole warp compares 32 entries at a
 * time. In the last step each lane holds one entry, and one lane holds the result. */
__device__ __forceinline__ mox_sm90_entry mox_sm90_find_entry(const mox_sm90_work &w, int column, int lane)
{
    int low = 0, size = w.count;
    for (;;) {
        const int step = (size + 31) / 32;
        const int at = min(low + lane * step, w.count - 1);
        const int4 *from = (const int4 *)(w.entries + at);
        const int4 a = from[0], b = from[1];
        const int found = __popc(__ballot_sync(~0u, lane * step < size && a.w <= column)) - 1;
        if (step == 1)
            return { __shfl_sync(~0u, a.x, found),
                     __shfl_sync(~0u, a.y, found),
                     __shfl_sync(~0u, a.z, found),
                     __shfl_sync(~0u, a.w, found),
                     __shfl_sync(~0u, b.x, found),
                     __shfl_sync(~0u, b.y, found),
                     0,
                     0 };
        low += found * step;
        size = min(step, size - found * step);
    }
}

/* Chunks [begin, end) of `job`. By a whole warp. */
__device__ __forceinline__ mox_sm90_work_unit mox_sm90_work_unit_of(const mox_sm90_args &args, const mox_sm90_work &w,
                                                                    int job, int begin, int end, int lane)
{
    mox_sm90_work_unit p;
    const mox_sm90_entry entry = mox_sm90_find_entry(w, job / w.tiles, lane);
    const int local = job - entry.first * w.tiles;
    int tile = local, which = 0, each = entry.tokens;
    if (entry.tiles > 1) {
        tile = local / entry.tiles;
        which = local - tile * entry.tiles;
        each = ((entry.tokens + entry.tiles - 1) / entry.tiles + 7) & ~7;
    }
    p.tile = tile * mox_sm90_cluster_size(args) + mox_sm90_rank(args);
    p.rows = p.tile < args.tiles - 1 ? 128 : p.tile == args.tiles - 1 ? args.last_rows : 0;
    p.pair = entry.pair + which * each;
    p.columns = max(min(each, entry.tokens - which * each), 0);
    p.row = entry.row + which * each;
    p.slot = entry.slot;
    p.record = args.records + (uint64_t)entry.slot * args.record_bytes;
    p.begin = begin;
    p.end = end;
    p.resume = begin > 0 ? w.block : -1;
    p.hand_off = end < args.chunks ? w.block + 1 : -1;
    return p;
}

/* Work unit `n`; begin == end when there are no more. By a whole warp. All kinds of units share one look-up: code that
 * runs for the first time while weights stream is fetched behind them. */
__device__ __forceinline__ mox_sm90_work_unit mox_sm90_work_unit_at(const mox_sm90_args &args, const mox_sm90_work &w,
                                                                    int n, int lane)
{
    const int rest = w.rounds * w.blocks; /* the first job of the rest */
    const int whole = w.first + (w.from > 0), jobs = max(w.last - whole, 0);
    const int behind =
        n - (w.to > 0 && (w.last > w.first || w.from == 0)); /* n less one, where the first unit only begins a job */
    int job, begin = 0, end = args.chunks;
    if (behind < 0) {
        job = rest + w.last;
        end = w.to;
    } else if (behind < w.rounds) {
        job = behind * w.blocks + w.block;
    } else if (behind < w.rounds + jobs) {
        job = rest + whole + behind - w.rounds;
    } else if (behind == w.rounds + jobs && w.from > 0 && (w.last > w.first || w.to > w.from)) {
        job = rest + w.first;
        begin = w.from;
        end = w.last > w.first ? args.chunks : w.to;
    } else {
        return {};
    }
    return mox_sm90_work_unit_of(args, w, job, begin, end, lane);
}

#endif
