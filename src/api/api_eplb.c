/* SPDX-License-Identifier: Apache-2.0
 *
 * api_eplb.c - the second part of moxie_parallel.h: slot maps, EPLB, load windows. Checks pointers, structs and maps,
 * then calls src/route.
 */
#include <math.h>

#include <moxie/moxie_parallel.h>

#include "api_need.h"
#include "layer/config/struct_size.h"
#include "route/eplb.h"
#include "route/load_window.h"

/* ---- slot maps --------------------------------------------------------------------------------------- */

moxie_status moxie_slot_map_first_slots(int32_t slots, int32_t ranks, int32_t *first_slot, moxie_error *error)
{
    NEED(first_slot);
    MOX_TRY(mox_expert_slots_sizes(1, slots, ranks, error));
    mox_expert_slots_first_slots(slots, ranks, first_slot);
    return MOXIE_OK;
}

moxie_status moxie_slot_map_default(moxie_expert_map_kind kind, int32_t experts, int32_t slots, int32_t ranks,
                                    int32_t *expert_of, int32_t *first_slot, moxie_error *error)
{
    NEED(expert_of);
    NEED(first_slot);
    return mox_expert_slots_default(kind, experts, slots, ranks, expert_of, first_slot, error);
}

/* Reads a map and checks it. */
static moxie_status read_map(const moxie_slot_map *map, moxie_slot_map *known, moxie_error *error)
{
    MOX_TRY(mox_struct_read(map, known, MOX_STRUCT(moxie_slot_map), error));
    return mox_expert_slots_check(known, error);
}

moxie_status moxie_slot_map_check(const moxie_slot_map *map, moxie_error *error)
{
    moxie_slot_map known;
    NEED(map);
    return read_map(map, &known, error);
}

moxie_status moxie_slot_map_without(const moxie_slot_map *map, const int32_t *dead, int32_t count, const double *loads,
                                    int32_t *expert_of, int32_t *first_slot, int32_t *slots, moxie_error *error)
{
    moxie_slot_map known;
    NEED(map);
    NEED(expert_of);
    NEED(first_slot);
    NEED(slots);
    MOX_FAIL_IF(count > 0 && dead == NULL, MOXIE_ERR_ARGUMENT, error, "dead is NULL");
    MOX_TRY(read_map(map, &known, error));
    return mox_expert_slots_without(&known, dead, count, loads, expert_of, first_slot, slots, error);
}

moxie_status moxie_slot_map_replicas(const moxie_slot_map *map, int32_t width, int32_t *counts, int32_t *slots,
                                     moxie_error *error)
{
    moxie_slot_map known;
    NEED(map);
    MOX_TRY(read_map(map, &known, error));
    return mox_expert_slots_replicas(&known, width, counts, slots, error);
}

moxie_status moxie_slot_map_serve(const moxie_slot_map *map, int32_t source, int64_t first_token, const int32_t *ids,
                                  int64_t tokens, int64_t top_k, int32_t *slots, moxie_error *error)
{
    moxie_slot_map known;
    mox_replicas replicas;
    NEED(map);
    MOX_FAIL_IF(tokens < 0 || top_k < 0 || first_token < 0 || tokens > INT64_MAX / 4 || top_k > INT64_MAX / 4 ||
                    first_token > INT64_MAX / 4,
                MOXIE_ERR_ARGUMENT, error,
                "moxie_slot_map_serve: %lld tokens from number %lld on, %lld choices; each must be from 0 to 2^61 - 1",
                (long long)tokens, (long long)first_token, (long long)top_k);
    MOX_TRY(read_map(map, &known, error));
    MOX_FAIL_IF(source < -1 || source >= known.ranks, MOXIE_ERR_ARGUMENT, error,
                "moxie_slot_map_serve: source %d; with %d ranks it must be from 0 to %d, or -1", (int)source,
                (int)known.ranks, (int)known.ranks - 1);
    if (tokens == 0 || top_k == 0)
        return MOXIE_OK;
    NEED(ids);
    NEED(slots);
    MOX_TRY(mox_replicas_create(&known, source, &replicas, error));
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t j = 0; j < top_k; j++)
            slots[t * top_k + j] = mox_replicas_serve(&replicas, ids[t * top_k + j], first_token + t, j);
    mox_replicas_destroy(&replicas);
    return MOXIE_OK;
}

moxie_status moxie_slot_map_loads(const moxie_slot_map *map, const double *loads, double *rank_loads,
                                  moxie_error *error)
{
    moxie_slot_map known;
    NEED(map);
    NEED(loads);
    NEED(rank_loads);
    MOX_TRY(read_map(map, &known, error));
    return mox_expert_slots_loads(&known, loads, rank_loads, error);
}

double moxie_balancedness(const double *rank_loads, int32_t ranks)
{
    return rank_loads != NULL && ranks > 0 ? mox_balancedness(rank_loads, ranks) : (double)NAN;
}

/* ---- EPLB -------------------------------------------------------------------------------------------- */

moxie_status moxie_eplb_balance(const moxie_eplb_config *config, const double *loads, int32_t *expert_of,
                                int32_t *first_slot, int32_t *hierarchical, moxie_error *error)
{
    moxie_eplb_config known;
    NEED(config);
    NEED(loads);
    NEED(expert_of);
    NEED(first_slot);
    MOX_TRY(mox_struct_read(config, &known, MOX_STRUCT(moxie_eplb_config), error));
    return mox_eplb_balance(&known, loads, expert_of, first_slot, hierarchical, error);
}

moxie_status moxie_eplb_keep_slots(int32_t layers, int32_t slots, int32_t ranks, const int32_t *first_slot,
                                   const int32_t *old, int32_t *expert_of, moxie_error *error)
{
    NEED(first_slot);
    NEED(old);
    NEED(expert_of);
    return mox_eplb_keep_slots(layers, slots, ranks, first_slot, old, expert_of, error);
}

moxie_status moxie_eplb_step(const moxie_eplb_config *config, const double *loads, const int32_t *target,
                             int64_t max_moves, int32_t *expert_of, moxie_eplb_moves *moves, moxie_error *error)
{
    moxie_eplb_config known;
    moxie_eplb_moves made = MOXIE_EPLB_MOVES_INIT;
    NEED(config);
    NEED(loads);
    NEED(target);
    NEED(expert_of);
    MOX_TRY(mox_struct_read(config, &known, MOX_STRUCT(moxie_eplb_config), error));
    if (moves != NULL)
        MOX_TRY(mox_struct_check(moves, MOX_STRUCT(moxie_eplb_moves), error));
    MOX_TRY(mox_eplb_step(&known, loads, target, max_moves, expert_of, &made, error));
    if (moves != NULL)
        mox_struct_write(&made, moves, MOX_STRUCT(moxie_eplb_moves));
    return MOXIE_OK;
}

/* ---- load windows ------------------------------------------------------------------------------------ */

moxie_status moxie_load_window_create(int32_t layers, int32_t experts, int32_t steps, moxie_load_window **out,
                                      moxie_error *error)
{
    NEED(out);
    return mox_load_window_create(layers, experts, steps, out, error);
}

void moxie_load_window_destroy(moxie_load_window *window)
{
    mox_load_window_destroy(window);
}

moxie_status moxie_load_window_add(moxie_load_window *window, int32_t layer, const int32_t *ids, int64_t tokens,
                                   int64_t top_k, moxie_error *error)
{
    NEED(window);
    if (tokens > 0 && top_k > 0)
        NEED(ids);
    return mox_load_window_add(window, layer, ids, tokens, top_k, error);
}

moxie_status moxie_load_window_end_step(moxie_load_window *window, moxie_error *error)
{
    NEED(window);
    mox_load_window_end_step(window);
    return MOXIE_OK;
}

moxie_status moxie_load_window_counts(const moxie_load_window *window, int64_t *counts, int32_t *steps,
                                      moxie_error *error)
{
    NEED(window);
    NEED(counts);
    mox_load_window_counts(window, counts, steps);
    return MOXIE_OK;
}
