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

/* Both products of a record of layout hopper_codes, and its size. Each product begins on 128 bytes. Behind its tiles
 * are factors and, with a bias, biases, 128 f32 a tile. `check` looks at one matrix; half 1 of W13 is up. */
static inline void check_products(const mox_record_shape *shape, const moxie_expert *expert, const uint8_t *record,
                                  uint64_t bytes, int64_t (*tiles_bytes)(const place *),
                                  void (*check)(const place *, const moxie_matrix *, int half))
{
    place p = { &shape->w13, record + 128, shape->intermediate, shape->hidden, shape->gated };
    check(&p, shape->gated ? &expert->gate : &expert->up, 0);
    if (shape->gated)
        check(&p, &expert->up, 1);
    const uint8_t *end = p.tiles + tiles_bytes(&p) + tiles_of(&p) * (shape->bias13 ? 1024 : 512);
    p = (place) { &shape->w2, end, shape->hidden, shape->intermediate, false };
    check(&p, &expert->down, 0);
    assert_int_equal(bytes, end + tiles_bytes(&p) + tiles_of(&p) * (shape->bias2 ? 1024 : 512) - record);
}

#endif
