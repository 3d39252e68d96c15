/* SPDX-License-Identifier: Apache-2.0
 *
 * hopper_codes.h - what kind of codes and of scales a product has in layouts "hopper_codes" and "hopper_fp8". How its
 * scales become multipliers (hopper_scales.c) depends on that.
 *
 *     MX          float elements, an f8_e8m0 scale for every 32 columns      by row   8 bits, one scale per row
 *     blocks      8-bit floats, a scale for a block of columns               words    integers with 16-bit scales
 *     super       block types (hopper_blocks.h)
 */
#ifndef MOX_PACK_HOPPER_CODES_H
#define MOX_PACK_HOPPER_CODES_H

#include "pack/hopper/hopper.h"
#include "pack/hopper/hopper_blocks.h"
#include "pack/hopper/hopper_words.h"

/* A decoded code is 2^-unit times its value, as bf16. Values are multiples of 2^-fine. */
typedef struct mox_hopper_element {
    moxie_dtype dtype;
    bool integer;
    int unit, fine;
} mox_hopper_element;

/* One of a record's two products. */
typedef struct mox_hopper_product {
    const moxie_quant *quant;
    int64_t rows, cols; /* of one matrix */
    bool gated, bias;
    bool to_fp8; /* layout hopper_fp8: codes are decoded to 8 bits, not to 16 */
    /* What follows from the above, since it is asked for each row (mox_hopper_classify). */
    int32_t bits;                      /* of an element */
    const mox_hopper_element *element; /* NULL: layouts of codes do not hold it */
    mox_hopper_block super;            /* of a block type; bits 0: it is none */
    mox_hopper_words words;            /* of codes */
    bool is_mx, is_by_row, has_window, has_words, has_blocks;
} mox_hopper_product;

/* Sets what follows from a product's quantization:
 *     element      of its weights; NULL: the layouts do not hold it
 *     is_mx        MX formats: float elements with an f8_e8m0 scale for every 32 columns
 *     is_by_row    8-bit codes with one scale per row. The scale is the row factor, and all multipliers are equal
 *     has_window   of layout hopper_fp8, e2m1: codes hold their scales, within MOX_HOPPER_WINDOW powers of two
 *     has_words, has_blocks   as mox_hopper_has_words and _has_block_scales; never of layout hopper_fp8 */
void mox_hopper_classify(mox_hopper_product *p);

/* Columns of a chunk. */
static inline int32_t mox_hopper_chunk_cols(const mox_hopper_product *p)
{
    return p->to_fp8 ? MOX_HOPPER_FP8_COLS : MOX_HOPPER_CODE_COLS;
}

#endif
