/* SPDX-License-Identifier: Apache-2.0
 *
 * hopper_place.h - where a product lies in a record for Hopper: stated from the text of pack/hopper/hopper.h,
 * independent of mox_hopper_form().
 */
#ifndef HOPPER_PLACE_H
#define HOPPER_PLACE_H

#include "test_problem.h"

typedef struct place {
    const moxie_quant *quant;
    const uint8_t *tiles; /* of the product */
    int64_t rows, cols;   /* of one matrix */
    bool gated;
} place;

static inline int64_t up_to(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

static inline int64_t product_rows(const place *p)
{
    return p->gated ? up_to(p->rows, 8) * 2 : p->rows;
}

static inline int64_t tiles_of(const place *p)
{
    return up_to(product_rows(p), 128) / 128;
}

static inline int64_t rows_of_tile(const place *p, int64_t tile)
{
    return product_rows(p) - tile * 128 <= 64 ? 64 : 128;
}

#endif
