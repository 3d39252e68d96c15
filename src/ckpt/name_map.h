/* SPDX-License-Identifier: Apache-2.0
 *
 * name_map.h - names to indices: open addressing over XXH3, for the 200,000 tensor names of a large model.
 *
 *     slots: | name, hash, value | empty | name, hash, value | ...     at most half of them taken
 *
 * The hash is seeded by an address, so that nobody can prepare a file whose names all collide.
 */
#ifndef MOX_CKPT_NAME_MAP_H
#define MOX_CKPT_NAME_MAP_H

#include <stdint.h>

#include "base/status.h"

struct mox_name_slot;

/* Zero-initialised is a valid, empty map. One-thread-at-a-time; look-ups of a map at rest are thread-safe. */
typedef struct mox_name_map {
    struct mox_name_slot *slots;
    uint64_t capacity, count;
    uint64_t seed;
} mox_name_map;

/* Adds `name` -> `value` (>= 0); the name is borrowed. When it is there already, nothing changes and *existing is
 * its value, else -1. MOXIE_ERR_MEMORY is the only failure. */
moxie_status mox_name_map_put(mox_name_map *map, const char *name, int64_t value, int64_t *existing,
                              moxie_error *error);
/* The value, or -1. */
int64_t mox_name_map_find(const mox_name_map *map, const char *name);
void mox_name_map_free(mox_name_map *map);

#endif
