/* SPDX-License-Identifier: Apache-2.0
 *
 * hopper_tiles.c - records of the layouts of hopper.h (hopper_tiles.h).
 *
 *     measure   sizes and offsets of both products, a pure function of the shape
 *     parts     a record is packed in parts: some tiles of one product, the last part also its row factors and biases
 *     unpack    the inverse, matrix by matrix
 */
#include "pack/hopper/hopper_tiles.h"

#include <stdio.h>

#include "base/carver.h"
#include "base/sizes.h"
#include "pack/grid_move.h"

enum { W13, W2 };

static mox_hopper_product product_of(const mox_hopper_order *order, const mox_record_shape *shape, int which)
{
    const bool fp8 = order->to_fp8;
    const mox_hopper_product first = { &shape->w13,  mox_shape_rows13(shape), shape->hidden,
                                       shape->gated, shape->bias13,           fp8 };
    const mox_hopper_product second = { &shape->w2, mox_shape_rows2(shape), shape->intermediate,
                                        false,      shape->bias2,           fp8 };
    mox_hopper_product product = which == W13 ? first : second;
    mox_hopper_classify(&product);
    return product;
}

/* ---- form ----------------------------------------------------------------------------------------------------- */

/* False when the size does not fit in 64 bits. */
static bool tile_bytes_of(const mox_hopper_matrix *m, int64_t rows, uint64_t *bytes)
{
    uint64_t codes, scales;
    return mox_mul_u64((uint64_t)m->chunks, (uint64_t)rows * (uint64_t)m->chunk_row_bytes, &codes) &&
           mox_mul_u64((uint64_t)m->scale_blocks, (uint64_t)(m->scale_bytes * rows / MOX_HOPPER_TILE_ROWS), &scales) &&
           mox_add_u64(codes, scales, bytes) && mox_align_u64(*bytes, MOX_HOPPER_ALIGN, bytes);
}

/* False when the product, which begins behind `start`, does not fit in 64 bits. */
static bool measure(const mox_hopper_order *order, const mox_hopper_product *p, uint64_t start, mox_hopper_matrix *m)
{
    const int64_t stored = p->gated ? mox_ceil_div(p->rows, MOX_HOPPER_HALF_ROWS) * 2 * MOX_HOPPER_HALF_ROWS : p->rows;
    const int64_t rest = stored % MOX_HOPPER_TILE_ROWS;
    *m = (mox_hopper_matrix) { .rows = p->rows,
                               .cols = p->cols,
                               .stored_rows = stored,
                               .tiles = mox_ceil_div(stored, MOX_HOPPER_TILE_ROWS),
                               .last_rows = rest > 0 && rest <= MOX_HOPPER_TILE_ROWS / 2 ? MOX_HOPPER_TILE_ROWS / 2
                                                                                         : MOX_HOPPER_TILE_ROWS,
                               .gated = p->gated };
    order->measure(p, m);
    m->chunks = mox_ceil_div(p->cols, m->chunk_cols);
    m->scale_blocks = m->scale_bytes == 0 ? 0 : ((m->chunks - 1) >> m->scale_shift) + 1;
    uint64_t last;
    if (!tile_bytes_of(m, MOX_HOPPER_TILE_ROWS, &m->tile_bytes) || !tile_bytes_of(m, m->last_rows, &last))
        return false;
    mox_carver carver = mox_offset_carver(MOX_HOPPER_ALIGN);
    mox_carve_offset(&carver, 1, start);
    m->tiles_at = carver.used;
    if (m->tiles > 0) {
        mox_carve_offset(&carver, (uint64_t)m->tiles - 1, m->tile_bytes);
        mox_carve_offset(&carver, 1, last);
    }
    const uint64_t padded = (uint64_t)m->tiles * MOX_HOPPER_TILE_ROWS;
    m->row_scale_at = order->has_row_factors(p) ? mox_carve_offset(&carver, padded, sizeof(float)) : 0;
    m->bias_at = p->bias ? mox_carve_offset(&carver, padded, sizeof(float)) : 0;
    m->end = carver.used;
    return m->end != MOX_CARVED_TOO_MUCH;
}

bool mox_hopper_measure(const mox_hopper_order *order, const mox_record_shape *shape, mox_hopper_record *out)
{
    const mox_hopper_product first = product_of(order, shape, W13), second = product_of(order, shape, W2);
    return measure(order, &first, sizeof(mox_record_header), &out->w13) &&
           measure(order, &second, out->w13.end, &out->w2);
}

/* ---- what the layouts hold ------------------------------------------------------------------------------------ */

const char *mox_hopper_reject(const mox_hopper_order *order, const mox_record_shape *shape, char *buffer, size_t size)
{
    const mox_hopper_product first = product_of(order, shape, W13), second = product_of(order, shape, W2);
    const char *why = order->reject(&first, "w13", buffer, size);
    return why != NULL ? why : order->reject(&second, "w2", buffer, size);
}

static bool accepts_matrix(const mox_hopper_order *order, const mox_hopper_product *p, const moxie_matrix *from,
                           const char *name, char *reason, size_t size)
{
    if (!mox_pack_is_natural_order(from->group_index, from->codes.cols, mox_group_cols(p->quant, from->codes.cols))) {
        snprintf(reason, size, "the group index of %s reorders its columns, chunks hold columns in natural order",
                 name);
        return false;
    }
    return order->accepts == NULL || order->accepts(p, from, name, reason, size);
}

bool mox_hopper_accepts(const mox_hopper_order *order, const mox_record_shape *shape, const moxie_expert *expert,
                        char *reason, size_t size)
{
    const mox_hopper_product w13 = product_of(order, shape, W13), w2 = product_of(order, shape, W2);
    return (!shape->gated || accepts_matrix(order, &w13, &expert->gate, "gate", reason, size)) &&
           accepts_matrix(order, &w13, &expert->up, "up", reason, size) &&
           accepts_matrix(order, &w2, &expert->down, "down", reason, size);
}

/* ---- tiles ---------------------------------------------------------------------------------------------------- */

uint64_t mox_hopper_tile_bytes(const mox_hopper_matrix *m, int64_t rows)
{
    uint64_t bytes = 0;
    (void)tile_bytes_of(m, rows, &bytes);
    return bytes;
}

/* ---- parts ---------------------------------------------------------------------------------------------------- */

static const mox_hopper_matrix *matrix_of(const mox_hopper_record *form, int which)
{
    return which == W13 ? &form->w13 : &form->w2;
}

static int64_t tiles_per_part(const mox_hopper_matrix *m)
{
    return m->tile_bytes > 0 ? mox_max_i64((int64_t)(MOX_RECORD_PART / m->tile_bytes), 1) : 1;
}

static int64_t parts_of(const mox_hopper_matrix *m)
{
    return mox_max_i64(mox_ceil_div(m->tiles, tiles_per_part(m)), 1);
}

int64_t mox_hopper_parts(const mox_hopper_order *order, const mox_record_shape *shape)
{
    mox_hopper_record form;
    (void)mox_hopper_measure(order, shape, &form);
    return parts_of(&form.w13) + parts_of(&form.w2);
}

/* Which product the part belongs to; *index is the number of the part in it. */
static int find_part(const mox_hopper_record *form, int64_t part, int64_t *index)
{
    const int64_t first = parts_of(&form->w13);
    const int which = part < first ? W13 : W2;
    *index = which == W13 ? part : part - first;
    return which;
}

uint64_t mox_hopper_part_at(const mox_hopper_order *order, const mox_record_shape *shape, int64_t part)
{
    mox_hopper_record form;
    int64_t index;
    (void)mox_hopper_measure(order, shape, &form);
    const mox_hopper_matrix *m = matrix_of(&form, find_part(&form, part, &index));
    if (part == 0)
        return sizeof(mox_record_header);
    return index == parts_of(m) ? m->end : mox_hopper_tile_at(m, index * tiles_per_part(m));
}

/* Where the bytes of a record go: its own memory, or the rest, which has no codes. */
typedef struct target {
    uint8_t *to;
    const mox_hopper_record *form; /* NULL: a whole record */
} target;

static uint8_t *place_in(const target *t, uint64_t at)
{
    return t->to + (t->form != NULL ? mox_hopper_rest_at(t->form, at) : at);
}

/* Zeros behind the last tile of a product, then row factors and biases. */
static void pack_tail(const mox_hopper_order *order, const mox_hopper_matrix *m, const mox_hopper_product *p,
                      const moxie_matrix *const *from, const target *t)
{
    const uint64_t last = m->tiles > 0 ? mox_hopper_tile_bytes(m, m->last_rows) : 0;
    const uint64_t begin = mox_hopper_tile_at(m, mox_max_i64(m->tiles - 1, 0)) + last;
    float *factors = (float *)(void *)place_in(t, m->row_scale_at), *bias = (float *)(void *)place_in(t, m->bias_at);
    memset(place_in(t, begin), 0, m->end - begin);
    for (int64_t n = 0; n < m->tiles * MOX_HOPPER_TILE_ROWS; n++) {
        int64_t row;
        const int half = mox_hopper_half(m, n, &row);
        if (row < m->rows && m->row_scale_at != 0)
            factors[n] = order->row_factor(p, from[half], row);
        if (row < m->rows && m->bias_at != 0)
            bias[n] = mox_pack_get_float(&from[half]->bias, from[half]->bias.rows == 1 ? 0 : row, 0);
    }
}

/* One part of a record, without its codes where the target is the rest. */
static void pack_part(const mox_hopper_order *order, const mox_record_shape *shape, const moxie_expert *expert,
                      const mox_hopper_record *form, int64_t part, const target *t)
{
    const moxie_matrix *const from13[] = { shape->gated ? &expert->gate : &expert->up, &expert->up };
    const moxie_matrix *const from2[] = { &expert->down };
    int64_t index;
    const int which = find_part(form, part, &index);
    const mox_hopper_matrix *m = matrix_of(form, which);
    const moxie_matrix *const *from = which == W13 ? from13 : from2;
    const mox_hopper_product p = product_of(order, shape, which);
    const int64_t first = index * tiles_per_part(m), end = mox_min_i64(first + tiles_per_part(m), m->tiles);
    if (part == 0)
        memset(place_in(t, sizeof(mox_record_header)), 0, m->tiles_at - sizeof(mox_record_header));
    for (int64_t tile = first; tile < end; tile++) {
        const uint64_t at = mox_hopper_tile_at(m, tile);
        if (t->form == NULL)
            order->pack_codes(m, &p, from, tile, t->to + at);
        order->pack_scales(m, &p, from, tile, place_in(t, at + mox_hopper_tile_codes(m, tile)));
    }
    if (end == m->tiles)
        pack_tail(order, m, &p, from, t);
}

void mox_hopper_pack_part(const mox_hopper_order *order, const mox_record_shape *shape, const moxie_expert *expert,
                          int64_t part, uint8_t *record)
{
    mox_hopper_record form;
    (void)mox_hopper_measure(order, shape, &form);
    const target whole = { record, NULL };
    pack_part(order, shape, expert, &form, part, &whole);
}

void mox_hopper_pack_rest(const mox_hopper_order *order, const mox_record_shape *shape, const moxie_expert *expert,
                          int64_t part, uint8_t *rest)
{
    mox_hopper_record form;
    (void)mox_hopper_measure(order, shape, &form);
    const target without_codes = { rest, &form };
    if (part == 0)
        memset(rest, 0, sizeof(mox_record_header));
    pack_part(order, shape, expert, &form, part, &without_codes);
}

/* ---- back ----------------------------------------------------------------------------------------------------- */

static void unpack_matrix(const mox_hopper_order *order, const mox_hopper_matrix *m, const mox_hopper_product *p,
                          const uint8_t *record, int half, const moxie_matrix *to)
{
    if (m->rows == 0) /* a rank that has no rows of this matrix */
        return;
    order->unpack(m, p, record, half, to);
    const float *bias = (const float *)(const void *)(record + m->bias_at);
    for (int64_t r = 0; p->bias && r < m->rows; r++)
        mox_pack_put_float(&to->bias, r, 0, bias[mox_hopper_product_row(m, half, r)]);
    mox_pack_put_natural_order(to, p->cols, mox_group_cols(p->quant, p->cols));
}

void mox_hopper_unpack(const mox_hopper_order *order, const mox_record_shape *shape, const uint8_t *record,
                       moxie_expert *out)
{
    const mox_hopper_product w13 = product_of(order, shape, W13), w2 = product_of(order, shape, W2);
    mox_hopper_record form;
    mox_record_header header;
    memcpy(&header, record, sizeof header);
    (void)mox_hopper_measure(order, shape, &form);
    unpack_matrix(order, &form.w13, &w13, record, 0, shape->gated ? &out->gate : &out->up);
    if (shape->gated)
        unpack_matrix(order, &form.w13, &w13, record, 1, &out->up);
    unpack_matrix(order, &form.w2, &w2, record, 0, &out->down);
    out->a13_scale = header.a13_scale;
    out->a2_scale = header.a2_scale;
}
