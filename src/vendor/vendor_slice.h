/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor_slice.h - tensor parallelism: the slice of every expert that belongs to one rank, cut before packing.
 *
 *     gate, up [I, H]     rows    first .. first + count of each
 *     down     [H, I]     columns first .. first + count; its bias on rank 0 only, zeros elsewhere, since the
 *                         results of the ranks are added
 *
 * I is divided into units. A unit is the least common multiple of what must not be cut (quantization groups, words of
 * the checkpoint) and of the layout's limits; limits that padding meets do not count. Ranks get whole units, the first
 * `units % ranks` ranks one more. The last unit may be short where every limit allows it.
 *
 *     I 2048, unit 256, 3 ranks:   | 0 .. 768 | 768 .. 1536 | 1536 .. 2048 |
 *
 * In the flow: checkpoint views -> [views of the slice] -> mox_vendor_pack.
 */
#ifndef MOX_VENDOR_SLICE_H
#define MOX_VENDOR_SLICE_H

#include "vendor/vendor.h"

typedef struct mox_vendor_slice {
    int32_t rank, ranks;
    int64_t first, count, unit; /* elements of the intermediate size */
} mox_vendor_slice;

/* Finds the slice of a rank. `whole`: shape of the uncut weights. `example`: any expert. MOXIE_ERR_UNSUPPORTED names
 * the rule, the rank that would break it, and the nearest number of ranks or size that would do. */
moxie_status mox_vendor_slice_make(const mox_vendor_layout *layout, const mox_record_shape *whole,
                                   const moxie_expert *example, bool pad, int32_t rank, int32_t ranks,
                                   mox_vendor_slice *out, moxie_error *error);
/* The shape of the sliced weights. */
mox_record_shape mox_vendor_slice_shape(const mox_record_shape *whole, const mox_vendor_slice *slice);
/* Views of the slice in the views of an expert. On ranks other than 0 the bias of `down` becomes `scratch`, [H,1] of
 * the dtype of the bias: zeros when it is read, ignored when it is written. */
moxie_status mox_vendor_slice_expert(const mox_record_shape *whole, const mox_vendor_slice *slice,
                                     const moxie_expert *expert, void *scratch, moxie_expert *out, moxie_error *error);
/* Bytes of `scratch`, 0 when none is needed. */
uint64_t mox_vendor_slice_scratch(const mox_record_shape *whole, const mox_vendor_slice *slice,
                                  const moxie_expert *expert);

#endif
