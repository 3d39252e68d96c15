/* SPDX-License-Identifier: Apache-2.0
 *
 * sm90_few.cuh - the work list of few pairs, made by a warp from the choices themselves: what permute finds out too, but
 * with nobody to wait for. Choices are there before permute begins (device_launch.cuh).
 *
 *     choices -> slots -> a bit a slot, a word a lane -> a slot's place among those that have tokens
 *             -> tokens counted in that place         -> sums over all before it, two places a lane
 */
#ifndef MOX_CUDA_SM90_FEW_CUH
#define MOX_CUDA_SM90_FEW_CUH

#include "cuda/expert_gemm/sm90_args.h"

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

/* Of a choice; -1: none. `slot_of` is that of the choices, or a copy. */
__device__ __forceinline__ int mox_sm90_slot_of(const mox_sm90_choices &choices, const int32_t *slot_of, int id)
{
    return id >= 0 && id < choices.experts ? slot_of[id] : -1;
}

/* Fills entries[x], room for MOX_SM90_FEW_PAIRS, in the order of slots, with y token tiles; returns both. By a whole warp;
 * entries are in shared memory. */
__device__ __forceinline__ int2 mox_sm90_list_few(const mox_sm90_choices &few, int most, mox_sm90_entry *entries, int lane)
{
    static_assert(MOX_SM90_FEW_PAIRS == 2 * 32 && MOXIE_MAX_EXPERTS <= 32 * 32, "two pairs a lane, a bit a slot");
    int slot[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int p = 32 * r + lane, id = p < few.pairs ? few.ids[p] : -1;
        slot[r] = mox_sm90_slot_of(few, few.slot_of, id);
        entries[p].tokens = entries[p].padding[0] = 0;
    }
    __syncwarp();
#pragma unroll
    for (int r = 0; r < 2; r++)
        if (slot[r] >= 0)
            atomicOr(&entries[slot[r] / 32].padding[0], 1 << slot[r] % 32);
    __syncwarp();
    const int mine = entries[lane].padding[0], sum = mox_sm90_sum_to_lane(__popc(mine), lane);
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
    const int tokens[2] = { own[0].tokens, own[1].tokens }, tokens_to = mox_sm90_sum_to_lane(tokens[0] + tokens[1], lane);
    const int tiles[2] = { (tokens[0] + most - 1) / most, (tokens[1] + most - 1) / most };
    const int rows[2] = { (tokens[0] + 7) & ~7, (tokens[1] + 7) & ~7 };
    const int tiles_to = mox_sm90_sum_to_lane(tiles[0] + tiles[1], lane);
    const int rows_to = mox_sm90_sum_to_lane(rows[0] + rows[1], lane);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        own[r].pair = tokens_to - tokens[1] - (r == 0 ? tokens[0] : 0);
        own[r].first = tiles_to - tiles[1] - (r == 0 ? tiles[0] : 0);
        own[r].row = rows_to - rows[1] - (r == 0 ? rows[0] : 0);
        own[r].tiles = tiles[r];
    }
    __syncwarp();
    return make_int2(__shfl_sync(~0u, sum, 31), __shfl_sync(~0u, tiles_to, 31));
}

#endif
