/* SPDX-License-Identifier: Apache-2.0
 *
 * carver.h - cuts one scratch buffer into arrays, each of which starts on a cache line.
 *
 *     base | array 0 .. pad | array 1 .. pad | array 2 ...        pad: up to the next multiple of 64 bytes
 *
 * A layout is written once, as one function that takes a carver:
 *
 *     static void lay_out(mox_carver *carver, int64_t rows, arrays *out)
 *     {
 *         out->sums = mox_carve(carver, rows, sizeof *out->sums);
 *         out->codes = mox_carve(carver, rows, 1);
 *     }
 *
 * On a carver without memory the function measures: every array is NULL, and `used` ends as the size of the buffer. On
 * a buffer of that size it hands out the arrays. So a buffer's size and its use cannot disagree.
 *
 * Workspaces, memory of a device and packed records are cut into offsets instead: mox_offset_carver() and
 * mox_carve_offset(). Their arrays may have another alignment than 64.
 */
#ifndef MOX_BASE_CARVER_H
#define MOX_BASE_CARVER_H

#include <stddef.h>

#include "base/sizes.h"

#define MOX_CARVE_ALIGN 64

typedef struct mox_carver {
    uint8_t *base;  /* a multiple of align; NULL: only measure */
    uint64_t used;  /* bytes so far, a multiple of align; MOX_CARVED_TOO_MUCH once they do not fit 64 bits */
    uint64_t align; /* of every array: a power of two */
} mox_carver;

#define MOX_CARVED_TOO_MUCH (UINT64_MAX - (MOX_CARVE_ALIGN - 1))

/* A carver over `memory`; its buffer is as large as a carver without memory measured. */
static inline mox_carver mox_carver_of(void *memory)
{
    return (mox_carver) { .base = (uint8_t *)memory, .align = MOX_CARVE_ALIGN };
}

/* A carver that hands out offsets: multiples of `align`. */
static inline mox_carver mox_offset_carver(uint64_t align)
{
    return (mox_carver) { .align = align };
}

/* The offset of the next array: `count` elements of `size` bytes. */
static inline uint64_t mox_carve_offset(mox_carver *carver, uint64_t count, uint64_t size)
{
    const uint64_t at = carver->used;
    uint64_t bytes = 0, end = 0;
    const bool fits =
        mox_mul_u64(count, size, &bytes) && mox_add_u64(at, bytes, &end) && mox_align_u64(end, carver->align, &end);
    carver->used = fits ? end : MOX_CARVED_TOO_MUCH;
    return at;
}

/* The next array: `count` elements of `size` bytes. NULL when the carver only measures. */
static inline void *mox_carve(mox_carver *carver, uint64_t count, uint64_t size)
{
    const uint64_t at = mox_carve_offset(carver, count, size);
    return carver->base != NULL ? carver->base + at : NULL;
}

#endif
