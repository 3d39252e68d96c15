/* SPDX-License-Identifier: Apache-2.0
 *
 * hopper_words.h - the words of layouts "hopper_codes" and "hopper_fp8" (hopper.h).
 *
 * In the flow: grid -> tile of dense rows (grid_tile.h) -> [words] -> record.
 */
#ifndef MOX_PACK_HOPPER_WORDS_H
#define MOX_PACK_HOPPER_WORDS_H

#include "quant/quant.h"

#define MOX_HOPPER_PLANE    512 /* bytes: [32 lanes][4 words]; of 6 bits the second has 2 words */
#define MOX_HOPPER_TOGETHER 2   /* chunks that are packed at a time: a cache line or two of a row */

/* Bytes of 16 rows in a chunk: of one warp. `fp8`: in layout hopper_fp8, here and below. */
static inline int64_t mox_hopper_warp_bytes(const moxie_quant *q, bool fp8)
{
    return fp8 ? 2 * MOX_HOPPER_PLANE : mox_dtype_bits(q->element) * (MOX_HOPPER_PLANE / 4);
}

/* Where 16 rows go. */
typedef struct mox_hopper_warp {
    uint8_t *to; /* mox_hopper_warp_bytes(), in the first chunk */
    int64_t chunk_bytes;
    int chunks; /* up to MOX_HOPPER_TOGETHER; of hopper_fp8 half of that */
} mox_hopper_warp;

/* From eight dense rows r (`low`) and eight r + 8; NULL: zeros. */
void mox_hopper_put_warp(const moxie_quant *q, bool fp8, const uint8_t *low, int64_t low_stride, const uint8_t *high,
                         int64_t high_stride, const mox_hopper_warp *place);
/* The code of row 0 .. 15 and a column of the chunk. */
uint32_t mox_hopper_code_of(const moxie_quant *q, bool fp8, const uint8_t *warp, int row, int col);

#endif
