/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor_share.h - one tensor-parallel rank's share of every expert, cut before packing.
 *
 *     gate, up [I, H]     rows    first .. first + count of each
 *     down     [H, I]     columns first .. first + count; its bias on rank 0 alone, zeros elsewhere, since the ranks'
 *                         results are added
 *
 * I falls into units: the least common multiple of what may not be cut (quantization groups, words of the checkpoint)
 * and of the layout's own limits, those that are padded left out. Ranks get whole units, the first units % ranks of
 * them one more; the last unit may be short where every limit allows that.
 *
 *     I 2048, unit 256, 3 ranks:   | 0 .. 768 | 768 .. 1536 | 1536 .. 2048 |
 *
 * In the flow: checkpoint views -> [views of the share] -> mox_vendor_pack.
 */
#ifndef MOX_PACK_VENDOR_SHARE_H
#define MOX_PACK_VENDOR_SHARE_H

#include "vendor/vendor.h"

typedef struct mox_vendor_share {
    int32_t rank, ranks;
    int64_t first, count, unit; /* of the intermediate size */
} mox_vendor_share;

/* `whole`: of the uncut weights. `example`: any expert. MOXIE_ERR_UNSUPPORTED names the rule, the rank that would break
 * it, and the nearest number of ranks or size that would do. */
moxie_status mox_vendor_share_make(const mox_vendor_layout *layout, const mox_record_shape *whole,
                                   const moxie_expert *example, bool pad, int32_t rank, int32_t ranks,
                                   mox_vendor_share *out, moxie_error *error);
/* The shape of the share. */
mox_record_shape mox_vendor_share_shape(const mox_record_shape *whole, const mox_vendor_share *share);
/* Views of the share in an expert's views. Where the bias of `down` is not this rank's it becomes `spare`, [H,1] of the
 * bias' dtype: zeros to read, or room for what is not wanted. */
moxie_status mox_vendor_share_expert(const mox_record_shape *whole, const mox_vendor_share *share,
                                     const moxie_expert *expert, void *spare, moxie_expert *out, moxie_error *error);
/* Bytes of `spare`, 0 when none is needed. */
uint64_t mox_vendor_share_spare(const mox_record_shape *whole, const mox_vendor_share *share,
                                const moxie_expert *expert);

#endif
