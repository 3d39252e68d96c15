/* SPDX-License-Identifier: Apache-2.0
 *
 * config_arrays.c - copies the arrays that a layer's configuration points to. The caller's arrays may be freed before
 * the layer: they belong to a model layer or to a stack frame.
 *
 *     routing:     bias, bias_alt, per_expert_scale [E + Z], table [table_rows, K]
 *     activation:  expert_alpha, expert_beta, expert_limit [E]
 *     slot_map:    expert_of [slots], first_slot [ranks + 1]
 *
 * In the flow: config (checked) -> [copies] -> layer; plans of the layer read them there.
 */
#include "base/sizes.h"
#include "layer/config/config.h"
#include "layer/config/slot_map.h"

/* Replaces *array, [rows, cols] elements, by a copy; NULL stays NULL. False when there is no memory. */
static bool copy_array(mox_arena *arena, const void **array, int64_t rows, int64_t cols, uint64_t element)
{
    uint64_t bytes;
    if (*array == NULL)
        return true;
    if (!mox_mul_u64((uint64_t)rows, (uint64_t)cols, &bytes) || !mox_mul_u64(bytes, element, &bytes))
        return false;
    void *copy = mox_arena_alloc(arena, bytes);
    if (copy != NULL)
        memcpy(copy, *array, bytes);
    *array = copy;
    return copy != NULL;
}

static bool copy_floats(mox_arena *arena, const float **array, int64_t count)
{
    const void *any = *array;
    const bool copied = copy_array(arena, &any, count, 1, sizeof **array);
    *array = any;
    return copied;
}

moxie_status mox_config_own_arrays(moxie_layer_config *config, mox_arena *arena, moxie_error *error)
{
    moxie_routing *r = &config->routing;
    moxie_activation *a = &config->activation;
    const void *table = r->table;
    const int64_t candidates = mox_config_candidates(config);
    const bool copied =
        copy_array(arena, &table, r->table_rows, config->top_k, sizeof *r->table) &&
        copy_floats(arena, &r->bias, candidates) && copy_floats(arena, &r->bias_alt, candidates) &&
        copy_floats(arena, &r->per_expert_scale, candidates) && copy_floats(arena, &a->expert_alpha, config->experts) &&
        copy_floats(arena, &a->expert_beta, config->experts) && copy_floats(arena, &a->expert_limit, config->experts);
    r->table = table;
    const moxie_slot_map *map = config->slot_map != NULL ? mox_slot_map_copy(config->slot_map, arena) : NULL;
    const bool map_copied = (map != NULL) == (config->slot_map != NULL);
    config->slot_map = map;
    MOX_FAIL_IF(!copied || !map_copied, MOXIE_ERR_MEMORY, error,
                "no memory to copy the arrays of a configuration: %lld experts, a routing table of %lld rows",
                (long long)config->experts, (long long)r->table_rows);
    return MOXIE_OK;
}
