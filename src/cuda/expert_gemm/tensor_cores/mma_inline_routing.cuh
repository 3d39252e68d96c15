/* SPDX-License-Identifier: Apache-2.0
 *
 * mma_inline_routing.cuh - the work list of up to 64 pairs, computed by each warp that needs it from the top-k itself.
 * It is what permute computes, too, but no warp has to wait for permute: the top-k is there before permute begins
 * (device_launch.cuh).
 *
 *     top-k -> slots -> a bit a slot, a word a lane -> a slot's place among the slots that have tokens
 *           -> tokens counted in that place         -> prefix sums, two places a lane, three sums in one word
 */
#ifndef MOX_CUDA_SM90_INLINE_ROUTING_CUH
#define MOX_CUDA_SM90_INLINE_ROUTING_CUH

#include "cuda/expert_gemm/tensor_cores/mma_args.h"

/* Inclusive sum over the lanes. */
__device__ __forceinline__ int mox_sm90_sum_to_lane(int mine, int lane)
{
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        const int other = __shfl_up_sync(~0u, mine, d);
        mine += lane >= d ? other : 0;
    }
    return mine;
}

/* Tokens, token tiles and octets of one or more entries, one byte each: none exceeds the number of pairs. */
__device__ __forceinline__ int mox_sm90_tally(int tokens, int max_columns)
{
    static_assert(MOX_SM90_INLINE_PAIRS < 256, "a byte each");
    const int tiles = tokens <= max_columns ? tokens > 0 : (tokens + max_columns - 1) / max_columns;
    return tokens | tiles << 8 | (tokens + 7) / 8 << 16;
}

/* The slot of an expert; -1: none. `slot_of` is the routing's, or a copy. */
__device__ __forceinline__ int mox_sm90_slot_of(const mox_sm90_routing &routing, const int32_t *slot_of, int id)
{
    return id >= 0 && id < routing.experts ? slot_of[id] : -1;
}

/* Fills entries[x] (in shared memory, room for MOX_SM90_INLINE_PAIRS) in the order of slots, with y token tiles in all;
 * returns { x, y }. By a whole warp. */
__device__ __forceinline__ int2 mox_sm90_list_inline(const mox_sm90_routing &routing, int max_columns,
                                                     mox_sm90_entry *entries, int lane)
{
    static_assert(MOX_SM90_INLINE_PAIRS == 2 * 32 && MOXIE_MAX_EXPERTS <= 32 * 32, "two pairs a lane, a bit a slot");
    int slot[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int p = 32 * r + lane, id = p < routing.pairs ? routing.ids[p] : -1;
        slot[r] = mox_sm90_slot_of(routing, routing.slot_of, id);
        entries[p].tokens = entries[p].used = 0;
    }
    __syncwarp();
#pragma unroll
    for (int r = 0; r < 2; r++)
        if (slot[r] >= 0)
            atomicOr(&entries[slot[r] / 32].used, 1 << slot[r] % 32);
    __syncwarp();
    const int mine = entries[lane].used, sum = mox_sm90_sum_to_lane(__popc(mine), lane);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int word = max(slot[r], 0) / 32, bits = __shfl_sync(~0u, mine, word);
        const int place = __shfl_sync(~0u, sum, word) - __popc((uint32_t)bits >> slot[r] % 32);
        if (slot[r] >= 0) {
            entries[place].slot = slot[r];
            atomicAdd(&entries[place].tokens, 1);
        }
    }
    __syncwarp();
    mox_sm90_entry *own = entries + 2 * lane;
    const int tally[2] = { mox_sm90_tally(own[0].tokens, max_columns), mox_sm90_tally(own[1].tokens, max_columns) };
    const int to = mox_sm90_sum_to_lane(tally[0] + tally[1], lane);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int before = to - tally[1] - (r == 0 ? tally[0] : 0);
        own[r].pair = before & 0xff;
        own[r].first = before >> 8 & 0xff;
        own[r].row = (before >> 16) * 8;
        own[r].tiles = tally[r] >> 8 & 0xff;
    }
    __syncwarp();
    return make_int2(__shfl_sync(~0u, sum, 31), __shfl_sync(~0u, to, 31) >> 8 & 0xff);
}

#endif
