/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_lora_args.h - what CUDA kernels of family lora keep in their scratch (mox_lora_args.scratch). The launch for W13
 * groups the pass's pairs: those of one slot and one adapter share tiles, which read a factor once. The launch
 * for W2 uses the same tiles.
 *
 *     scratch   mox_cuda_lora_tile [max_pairs rounded up to MOX_CUDA_LORA_CHUNK]
 *               pairs [128 c, 128 c + 128) have tiles 128 c, 128 c + 1, ...; the first without rows ends them
 */
#ifndef MOX_CUDA_CUDA_LORA_ARGS_H
#define MOX_CUDA_CUDA_LORA_ARGS_H

#include "cpu/lora/lora_args.h"

#define MOX_CUDA_LORA_CHUNK 128 /* pairs that are grouped together */
#define MOX_CUDA_LORA_ROWS  8   /* pairs of a tile */

/* Pairs of one slot and one adapter. `slot` is the place of its factors (mox_lora_args.place_of). */
typedef struct mox_cuda_lora_tile {
    int32_t slot, adapter, rows;
    int32_t pair[MOX_CUDA_LORA_ROWS];
} mox_cuda_lora_tile;

/* How many chunks there are. */
#define MOX_CUDA_LORA_CHUNKS(max_pairs) (((max_pairs) + MOX_CUDA_LORA_CHUNK - 1) / MOX_CUDA_LORA_CHUNK)

#endif
