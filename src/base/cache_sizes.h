/* SPDX-License-Identifier: Apache-2.0
 *
 * cache_sizes.h - the sizes of the L2 and of the last-level cache.
 *
 * The probes of cpu/limits use them: a buffer read from memory must be much larger than the last level, a buffer read
 * from L2 much smaller than L2. The numbers are the system's; a virtual machine may report those of its host.
 */
#ifndef MOX_BASE_CACHE_SIZES_H
#define MOX_BASE_CACHE_SIZES_H

#include <stdint.h>

typedef struct mox_cache_sizes {
    uint64_t l2;   /* of one core */
    uint64_t last; /* of the last level, all instances together */
} mox_cache_sizes;

/* Reads the system's description, which is slow. Unknown levels are guessed (512 KB, 32 MB). Thread-safe. */
mox_cache_sizes mox_cache_sizes_find(void);

#endif
