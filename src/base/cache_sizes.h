/* SPDX-License-Identifier: Apache-2.0
 *
 * cache_sizes.h - how large the caches are that stand between a core and memory.
 *
 * Probes need it twice: a buffer that shall come from memory must be well over the last level, one that shall
 * come from L2 well under the second. The numbers are what the system reports; a virtual machine may report its
 * host's.
 */
#ifndef MOX_BASE_CACHE_SIZES_H
#define MOX_BASE_CACHE_SIZES_H

#include <stdint.h>

typedef struct mox_cache_sizes {
    uint64_t l2;   /* of one core */
    uint64_t last; /* of the last level, all instances together */
} mox_cache_sizes;

/* Reads the system's description, slowly. Levels it does not tell are guessed (512 KB, 32 MB). Thread-safe. */
mox_cache_sizes mox_cache_sizes_find(void);

#endif
