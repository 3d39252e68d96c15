/* SPDX-License-Identifier: Apache-2.0
 *
 * hopper_codes.h - what kind of codes and of scales a product has in layouts "hopper_codes" and "hopper_fp8". How its
 * scales become multipliers (hopper_scales.c) depends on that.
 *
 *     MX          float elements, an f8_e8m0 scale for every 32 columns      by row   8 bits, one scale per row
 *     blocks      8-bit floats, a scale for a block of columns               words    integers with 16-bit scales
 */
#ifndef MOX_PACK_HOPPER_CODES_H
#define MOX_PACK_HOPPER_CODES_H

#include "pack/hopper/hopper_tiles.h"

/* A decoded code is 2^-unit times its value, as bf16. Values are multiples of 2^-fine. */
typedef struct mox_hopper_element {
    moxie_dtype dtype;
    bool integer;
    int unit, fine;
} mox_hopper_element;

/* The element of the product's weights; NULL: the layouts do not hold it. */
const mox_hopper_element *mox_hopper_element_of(const mox_hopper_product *p);

static inline bool mox_hopper_is_over_4_bits(const mox_hopper_product *p)
{
    return mox_dtype_bits(p->quant->element) > 4;
}

/* MX formats: float elements with an f8_e8m0 scale for every 32 columns. */
static inline bool mox_hopper_is_mx(const mox_hopper_product *p)
{
    return p->quant->scale == MOXIE_F8_E8M0 && p->quant->group_cols == 32 && !mox_hopper_element_of(p)->integer;
}

/* 8-bit codes with one scale per row. The scale is the row factor, and all multipliers are equal. */
static inline bool mox_hopper_is_by_row(const mox_hopper_product *p)
{
    return mox_dtype_bits(p->quant->element) == 8 && !mox_hopper_is_mx(p) &&
           mox_group_cols(p->quant, p->cols) >= p->cols;
}

static inline bool mox_hopper_product_has_words(const mox_hopper_product *p)
{
    return !p->to_fp8 && mox_hopper_has_words(p->quant, p->cols);
}

static inline bool mox_hopper_product_has_blocks(const mox_hopper_product *p)
{
    return !p->to_fp8 && mox_hopper_has_block_scales(p->quant, p->cols);
}

/* Columns of a chunk. */
static inline int32_t mox_hopper_chunk_cols(const mox_hopper_product *p)
{
    return p->to_fp8 ? MOX_HOPPER_FP8_COLS : MOX_HOPPER_CODE_COLS;
}

#endif
