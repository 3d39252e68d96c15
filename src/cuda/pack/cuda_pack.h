/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_pack.h - records packed on a device: which layouts, and what one expert needs there.
 *
 *     staged    | part_at | rest | bytes with the codes of gate, up, down |      one copy from the host to the device
 *               '- table -'      '- as they lie in the checkpoint --------'
 *
 * The host fills all of it in any order, by any threads; a launch packs it into a record and sums its parts. The record
 * then lacks its header, which the host seals (mox_record_seal).
 */
#ifndef MOX_CUDA_CUDA_PACK_H
#define MOX_CUDA_CUDA_PACK_H

#include "cuda/cuda_table.h"
#include "pack/layout.h"

#define MOX_CUDA_PACK_ALIGN 256

/* A run of bytes that codes of an expert lie in, and its place in the staged memory. */
typedef struct mox_cuda_pack_run {
    const uint8_t *from;
    uint64_t bytes, at;
} mox_cuda_pack_run;

/* How one expert is staged. Codes of projections that overlap (interleaved rows) share a run. */
typedef struct mox_cuda_pack_stage {
    uint64_t rest_at, bytes;
    int32_t runs;
    mox_cuda_pack_run run[3];
    int32_t run_of[3]; /* of gate, up, down; -1: no such projection */
} mox_cuda_pack_stage;

/* The position in the launch table of the layout's packer; -1, with a sentence in `reason`, when the device packs no
 * such records: the CPU does. */
int32_t mox_cuda_pack_find(const mox_layout *layout, const mox_record_shape *shape, char *reason, size_t size);
/* False, with a sentence, when the CPU had better pack this expert. */
bool mox_cuda_pack_stage_make(const mox_layout *layout, const mox_record_shape *shape, const moxie_expert *expert,
                              mox_cuda_pack_stage *out, char *reason, size_t size);
/* Writes the table of parts to its place. */
void mox_cuda_pack_put_parts(const mox_layout *layout, const mox_record_shape *shape, void *staged);
/* A launch's arguments. `staged`, `record` and `sums` are device memory. */
void mox_cuda_pack_args_make(const mox_layout *layout, const mox_record_shape *shape, const moxie_expert *expert,
                             const mox_cuda_pack_stage *stage, const void *staged, void *record, uint64_t *sums,
                             mox_cuda_pack_args *out);

#endif
