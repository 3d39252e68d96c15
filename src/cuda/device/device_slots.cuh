/* SPDX-License-Identifier: Apache-2.0
 *
 * device_slots.cuh - which slot a pair belongs to, from the offsets that permute writes.
 */
#ifndef MOX_CUDA_DEVICE_DEVICE_SLOTS_CUH
#define MOX_CUDA_DEVICE_DEVICE_SLOTS_CUH

#include <stdint.h>

/* The slot that owns pair p: the last s with offsets[s] <= p. */
static __device__ inline int64_t mox_device_slot_of(const int64_t *offsets, int64_t slots, int64_t p)
{
    int64_t low = 0, high = slots;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (offsets[middle] <= p)
            low = middle;
        else
            high = middle;
    }
    return low;
}

#endif
