/* SPDX-License-Identifier: Apache-2.0
 *
 * name_map.c - linear probing in a table whose size is a power of two and doubles when half full.
 *
 * Slots store whole hashes, so that a probe compares strings only on a likely match, and growing never hashes again.
 * Hash: XXH3 (github.com/Cyan4973/xxHash), 64 bits.
 */
#include "ckpt/name_map.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/memory.h"

struct mox_name_slot {
    const char *name; /* NULL: empty */
    uint64_t hash;
    int64_t value;
};

/* The slot that holds `name`, or the empty one where it belongs. Terminates because half the slots are empty. */
static struct mox_name_slot *slot_of(const mox_name_map *map, const char *name, uint64_t hash)
{
    uint64_t i = hash & (map->capacity - 1);
    for (;; i = (i + 1) & (map->capacity - 1)) {
        struct mox_name_slot *slot = &map->slots[i];
        if (!slot->name || (slot->hash == hash && strcmp(slot->name, name) == 0))
            return slot;
    }
}

static moxie_status grow(mox_name_map *map, moxie_error *error)
{
    mox_name_map larger = { .capacity = map->capacity ? 2 * map->capacity : 64, .count = map->count };
    larger.slots = mox_calloc(larger.capacity, sizeof *larger.slots);
    MOX_FAIL_IF(!larger.slots, MOXIE_ERR_MEMORY, error, "no memory for a table of %llu names",
                (unsigned long long)larger.capacity);
    larger.seed = map->slots ? map->seed : (uintptr_t)larger.slots;
    for (uint64_t i = 0; i < map->capacity; i++)
        if (map->slots[i].name)
            *slot_of(&larger, map->slots[i].name, map->slots[i].hash) = map->slots[i];
    mox_free(map->slots);
    *map = larger;
    return MOXIE_OK;
}

moxie_status mox_name_map_put(mox_name_map *map, const char *name, int64_t value, int64_t *existing, moxie_error *error)
{
    if (2 * (map->count + 1) > map->capacity)
        MOX_TRY(grow(map, error));
    const uint64_t hash = XXH3_64bits_withSeed(name, strlen(name), map->seed);
    struct mox_name_slot *slot = slot_of(map, name, hash);
    *existing = slot->name ? slot->value : -1;
    if (!slot->name) {
        *slot = (struct mox_name_slot) { .name = name, .hash = hash, .value = value };
        map->count++;
    }
    return MOXIE_OK;
}

int64_t mox_name_map_find(const mox_name_map *map, const char *name)
{
    if (map->count == 0)
        return -1;
    const struct mox_name_slot *slot = slot_of(map, name, XXH3_64bits_withSeed(name, strlen(name), map->seed));
    return slot->name ? slot->value : -1;
}

void mox_name_map_free(mox_name_map *map)
{
    mox_free(map->slots);
    *map = (mox_name_map) { 0 };
}
