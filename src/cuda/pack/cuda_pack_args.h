/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_pack_args.h - packs one expert on a device: codes as they lie in a checkpoint become a record of pack/hopper,
 * and every part of the record gets its checksum.
 *
 *     record byte   a code: gathered from the grids      else: copied from the rest (pack/layout.h)
 *     sums[i]       XXH3-64 of part i, that is of record[part_at[i] .. part_at[i + 1])
 *
 * Each packer is a line of cuda_pack.def. They are no kernel family: no plan chooses one. Pointers are device memory.
 */
#ifndef MOX_CUDA_CUDA_PACK_ARGS_H
#define MOX_CUDA_CUDA_PACK_ARGS_H

#include <moxie/moxie.h>

#include "pack/hopper/hopper_matrix.h"

#define MOX_CUDA_PACK_MIN_PART 241 /* bytes; XXH3 sums shorter parts by other formulas */
#define MOX_CUDA_PACK_SECRET   24  /* words of XXH3's secret */

typedef struct mox_cuda_pack_args {
    mox_hopper_record form;
    moxie_grid codes[3];     /* gate, up, down; of the first product the only matrix is both gate and up */
    int32_t bits[2];         /* of an element, by product */
    int32_t element[2];      /* a moxie_dtype, by product */
    const uint8_t *rest;     /* aligned to 16 bytes, as is `record` */
    uint8_t *record;         /* [form.w2.end] */
    int64_t parts;           /* none shorter than MOX_CUDA_PACK_MIN_PART */
    const uint64_t *part_at; /* [parts + 1] */
    uint64_t *sums;          /* [parts] */
    uint64_t secret[MOX_CUDA_PACK_SECRET];
} mox_cuda_pack_args;

#endif
