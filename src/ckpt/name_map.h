/* SPDX-License-Identifier: Apache-2.0
 *
 * name_map.h - names to indices: a hash table with open addressing (XXH3), for the 200,000 tensor names of a large
 * model.
 *
 *     slots: | name, hash, value | empty | name, hash, value | ...     at most half of them are used
 *
 * The hash is seeded with an address, so that no file can be prepared whose names all collide.
 */
#ifndef MOX_CKPT_NAME_MAP_H
#define MOX_CKPT_NAME_MAP_H

#include <stdint.h>

#include "base/status.h"

struct mox_name_slot;

/* A zero-initialised map is valid and empty. One-thread-at-a-time; look-ups are thread-safe while no name is added. */
typedef struct mox_name_map {
    struct mox_name_slot *slots;
    uint64_t capacity, count;
    uint64_t seed;
} mox_name_map;

/* Adds `name` -> `value` (>= 0); the name is borrowed. If the name exists, nothing changes and *existing is its value;
 * else *existing is -1. MOXIE_ERR_MEMORY is the only failure. */
moxie_status mox_name_map_put(mox_name_map *map, const char *name, int64_t value, int64_t *existing,
                              moxie_error *error);
/* The value, or -1. */
int64_t mox_name_map_find(const mox_name_map *map, const char *name);
void mox_name_map_free(mox_name_map *map);

#endif
