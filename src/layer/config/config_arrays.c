/* SPDX-License-Identifier: Apache-2.0
 *
 * config_arrays.c - a layer's own copies of the arrays that its configuration points to, since the caller's go with
 * the model layer or the stack frame that they came from.
 *
 *     routing:     bias, per_expert_scale [E], table [table_rows, K]
 *     activation:  expert_alpha, expert_beta, expert_limit [E]
 *
 * In the flow: config (checked) -> [copies] -> layer; plans of the layer read them there.
 */
#include "base/memory.h"
#include "base/sizes.h"
#include "layer/config/config.h"

/* Puts a copy of [rows, cols] elements in the place of *array; NULL stays NULL. False when there is no memory. */
static bool own(mox_arena *arena, const void **array, int64_t rows, int64_t cols, uint64_t element)
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

static bool own_floats(mox_arena *arena, const float **array, int64_t count)
{
    const void *at = *array;
    const bool owned = own(arena, &at, count, 1, sizeof **array);
    *array = at;
    return owned;
}

moxie_status mox_config_own_arrays(moxie_layer_config *config, mox_arena *arena, moxie_error *error)
{
    moxie_routing *r = &config->routing;
    moxie_activation *a = &config->activation;
    const void *table = r->table;
    const bool owned =
        own(arena, &table, r->table_rows, config->top_k, sizeof *r->table) &&
        own_floats(arena, &r->bias, config->experts) && own_floats(arena, &r->per_expert_scale, config->experts) &&
        own_floats(arena, &a->expert_alpha, config->experts) && own_floats(arena, &a->expert_beta, config->experts) &&
        own_floats(arena, &a->expert_limit, config->experts);
    r->table = table;
    MOX_FAIL_IF(!owned, MOXIE_ERR_MEMORY, error,
                "no memory to copy the arrays of a configuration: %lld experts, a routing table of %lld rows",
                (long long)config->experts, (long long)r->table_rows);
    return MOXIE_OK;
}
