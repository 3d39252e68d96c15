/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_map.c - which rank owns which expert.
 *
 *     base = E / R, rest = E % R;  rank r owns base + (r < rest) experts
 *     linear       r*base + min(r, rest) and the following          E = 10, R = 4:  0-2, 3-5, 6-7, 8-9
 *     round robin  r, r + R, r + 2R, ...                                            0 4 8, 1 5 9, 2 6, 3 7
 *
 * Slots are in the order of the experts. With more ranks than experts, some ranks own none.
 * Source: vLLM's expert maps (determine_expert_map).
 */
#include "route/route.h"

static moxie_status check(moxie_expert_map_kind kind, int32_t experts, int32_t ranks, int32_t rank, moxie_error *error)
{
    MOX_FAIL_IF(kind != MOXIE_MAP_LINEAR && kind != MOXIE_MAP_ROUND_ROBIN, MOXIE_ERR_ARGUMENT, error,
                "expert map: kind %d is neither linear (0) nor round robin (1)", (int)kind);
    MOX_FAIL_IF(experts < 1 || experts > MOXIE_MAX_EXPERTS, MOXIE_ERR_ARGUMENT, error,
                "expert map: %d experts; it must be from 1 to %d", (int)experts, MOXIE_MAX_EXPERTS);
    MOX_FAIL_IF(ranks < 1, MOXIE_ERR_ARGUMENT, error, "expert map: %d ranks; there must be at least 1", (int)ranks);
    MOX_FAIL_IF(rank < 0 || rank >= ranks, MOXIE_ERR_ARGUMENT, error,
                "expert map: rank %d; with %d ranks it must be from 0 to %d", (int)rank, (int)ranks, (int)ranks - 1);
    return MOXIE_OK;
}

moxie_status mox_expert_map(moxie_expert_map_kind kind, int32_t experts, int32_t ranks, int32_t rank, int32_t *local,
                            int32_t *count, moxie_error *error)
{
    MOX_TRY(check(kind, experts, ranks, rank, error));
    const int32_t base = experts / ranks, rest = experts % ranks;
    const int32_t owned = base + (rank < rest);
    const int32_t start = rank * base + (rank < rest ? rank : rest);
    for (int32_t e = 0; e < experts; e++) {
        if (kind == MOXIE_MAP_LINEAR)
            local[e] = e >= start && e < start + owned ? e - start : -1;
        else
            local[e] = e % ranks == rank ? e / ranks : -1;
    }
    *count = owned;
    return MOXIE_OK;
}
