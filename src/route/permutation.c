/* SPDX-License-Identifier: Apache-2.0
 *
 * permutation.c - groups pairs (token, choice) by the expert slot that serves them: a counting sort.
 *
 *     ids [T,K]      2 0      slot_of: expert e lives in slot e       offsets   0 1 2 4
 *                    1 2                                              pair_at   1 2 0 3     (pair = t*K + j)
 *                                                                     position  2 0 1 3
 *
 * It is stable, so the pairs of a slot stay in token order. It is serial, since its T*K steps are few beside the
 * products.
 */
#include "route/route.h"

/* The slot of pair `id`, or -1. */
static int64_t slot_for(int32_t id, int64_t experts, const int32_t *slot_of)
{
    return id >= 0 && id < experts ? slot_of[id] : -1;
}

void mox_permute(const int32_t *ids, int64_t tokens, int64_t top_k, int64_t experts, const int32_t *slot_of,
                 int64_t slots, mox_permutation *out)
{
    const int64_t pairs = tokens * top_k;
    int64_t *offsets = out->offsets;
    memset(offsets, 0, (size_t)(slots + 1) * sizeof *offsets);
    for (int64_t p = 0; p < pairs; p++) {
        const int64_t slot = slot_for(ids[p], experts, slot_of);
        if (slot >= 0)
            offsets[slot + 1]++;
    }
    for (int64_t s = 0; s < slots; s++)
        offsets[s + 1] += offsets[s];
    /* Each offset advances through its slot and ends where the next slot begins. Shifting all by one restores them. */
    for (int64_t p = 0; p < pairs; p++) {
        const int64_t slot = slot_for(ids[p], experts, slot_of);
        out->position[p] = slot >= 0 ? offsets[slot]++ : -1;
        if (slot >= 0)
            out->pair_at[out->position[p]] = p;
    }
    memmove(offsets + 1, offsets, (size_t)slots * sizeof *offsets);
    offsets[0] = 0;
}
