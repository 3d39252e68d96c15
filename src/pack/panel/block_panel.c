/* SPDX-License-Identifier: Apache-2.0
 *
 * block_panel.c - blocks of 16 rows to panels and back (block_panel.h).
 */
#include "pack/panel/block_panel.h"

#include "base/sizes.h"
#include "format/block_levels.h"

#define ROWS MOX_PANEL_ROWS

enum { VECTOR = 32, QUAD = 4 };

bool mox_block_panel_holds(moxie_dtype element)
{
    return mox_is_block(element) && (mox_block_fields_of(element) != NULL || mox_block_levels_of(element) != NULL);
}

static mox_block_panel form_of(moxie_dtype element)
{
    return mox_block_panel_of(mox_block_fields_of(element), mox_block_of(element)->weights);
}

int64_t mox_block_panel_bytes(moxie_dtype element)
{
    if (mox_block_levels_of(element) != NULL)
        return ROWS * (int64_t)mox_block_of(element)->bytes;
    return form_of(element).bytes;
}

int64_t mox_block_panel_cols(moxie_dtype element)
{
    return mox_block_of(element)->weights;
}

/* ---- planes ------------------------------------------------------------------------------------------------- */

/* Four rows of a block's codes, four columns each, and where they lie in a plane of `bits` bits. */
typedef struct quad_place {
    int64_t byte;
    int32_t shift;
} quad_place;

/* Rows 4 q .. 4 q + 3, columns 4 g .. 4 g + 3 of a step. */
static quad_place place_of(int32_t bits, int32_t q, int32_t g)
{
    const int32_t fields = 8 / bits;
    return (quad_place) { (2 * (g / fields) + q / 2) * VECTOR + 16 * (q % 2), bits * (g % fields) };
}

/* ORs a step's codes, bits `up` and above, into a plane. codes: 16 rows, MOX_BLOCK_MAX apart. */
static void put_plane(int32_t bits, int32_t up, const uint8_t *codes, uint8_t *plane)
{
    const uint8_t mask = (uint8_t)((1 << bits) - 1);
    for (int32_t g = 0; g < MOX_PANEL_STEP / QUAD; g++)
        for (int32_t q = 0; q < ROWS / QUAD; q++) {
            const quad_place at = place_of(bits, q, g);
            for (int32_t r = 0; r < QUAD; r++)
                for (int32_t v = 0; v < QUAD; v++) {
                    const uint8_t code = codes[(QUAD * q + r) * MOX_BLOCK_MAX + QUAD * g + v];
                    plane[at.byte + QUAD * v + r] |= (uint8_t)((code >> up & mask) << at.shift);
                }
        }
}

static void get_plane(int32_t bits, int32_t up, const uint8_t *plane, uint8_t *codes)
{
    const uint8_t mask = (uint8_t)((1 << bits) - 1);
    for (int32_t g = 0; g < MOX_PANEL_STEP / QUAD; g++)
        for (int32_t q = 0; q < ROWS / QUAD; q++) {
            const quad_place at = place_of(bits, q, g);
            for (int32_t r = 0; r < QUAD; r++)
                for (int32_t v = 0; v < QUAD; v++)
                    codes[(QUAD * q + r) * MOX_BLOCK_MAX + QUAD * g + v] |=
                        (uint8_t)((plane[at.byte + QUAD * v + r] >> at.shift & mask) << up);
        }
}

/* ---- 16 blocks ---------------------------------------------------------------------------------------------- */

/* One block of each of 16 rows. */
typedef struct block_rows {
    uint8_t codes[ROWS][MOX_BLOCK_MAX];
    mox_block_parts parts; /* of one row */
} block_rows;

/* Everything but the codes of row n, at its place in 16 blocks; and back. */
static void put_scales(const mox_block_fields *f, const mox_block_panel *form, const mox_block_parts *p, int64_t n,
                       uint8_t *to)
{
    memcpy(to + 2 * n, p->d, sizeof p->d);
    if (f->m_at >= 0)
        memcpy(to + form->m_at + 2 * n, p->m, sizeof p->m);
    for (int32_t i = 0; i < form->runs; i++) {
        to[form->s_at + i * ROWS + n] = p->s[i];
        if (mox_block_has_minimum_integers(f->integers))
            to[form->t_at + i * ROWS + n] = p->t[i];
    }
}

static void get_scales(const mox_block_fields *f, const mox_block_panel *form, const uint8_t *from, int64_t n,
                       mox_block_parts *p)
{
    memcpy(p->d, from + 2 * n, sizeof p->d);
    if (f->m_at >= 0)
        memcpy(p->m, from + form->m_at + 2 * n, sizeof p->m);
    for (int32_t i = 0; i < form->runs; i++) {
        p->s[i] = from[form->s_at + i * ROWS + n];
        p->t[i] = mox_block_has_minimum_integers(f->integers) ? from[form->t_at + i * ROWS + n] : 0;
    }
}

static void pack_codes(const mox_block_fields *f, const mox_block_panel *form, const block_rows *rows, uint8_t *to)
{
    for (int32_t s = 0; s < form->steps; s++, to += form->step_bytes) {
        const uint8_t *codes = rows->codes[0] + s * MOX_PANEL_STEP;
        put_plane(f->low.bits, 0, codes, to);
        if (f->high.bits > 0)
            put_plane(f->high.bits, f->low.bits, codes, to + 4 * ROWS * f->low.bits);
    }
}

/* Blocks that stay as they are, row by row. */
static void pack_whole(const mox_panel_matrix *m, const moxie_grid *from, int64_t row, uint8_t *panel)
{
    const mox_block *type = mox_block_of(from->dtype);
    const int64_t count = mox_min_i64(ROWS, m->rows - row);
    memset(panel, 0, m->panel_bytes);
    for (int64_t b = 0; b < m->cols / type->weights; b++, panel += ROWS * type->bytes)
        for (int64_t n = 0; n < count; n++)
            memcpy(panel + n * type->bytes,
                   (const uint8_t *)from->data + (row + n) * from->row_stride + b * from->col_stride,
                   (size_t)type->bytes);
}

static void unpack_whole(const mox_panel_matrix *m, const uint8_t *panel, const moxie_grid *to, int64_t row)
{
    const mox_block *type = mox_block_of(to->dtype);
    const int64_t count = mox_min_i64(ROWS, m->rows - row);
    for (int64_t b = 0; b < m->cols / type->weights; b++, panel += ROWS * type->bytes)
        for (int64_t n = 0; n < count; n++)
            memcpy((uint8_t *)(uintptr_t)to->data + (row + n) * to->row_stride + b * to->col_stride,
                   panel + n * type->bytes, (size_t)type->bytes);
}

void mox_block_panel_pack(const mox_panel_matrix *m, const moxie_grid *from, int64_t row, uint8_t *panel)
{
    const mox_block_fields *f = mox_block_fields_of(from->dtype);
    if (f == NULL) {
        pack_whole(m, from, row, panel);
        return;
    }
    const mox_block_panel form = form_of(from->dtype);
    const int64_t count = mox_min_i64(ROWS, m->rows - row);
    block_rows rows = { .codes = { { 0 } } };
    memset(panel, 0, m->panel_bytes);
    for (int64_t b = 0; b < m->cols / form.weights; b++, panel += form.bytes) {
        for (int64_t n = 0; n < count; n++) {
            mox_block_split(f, (const uint8_t *)from->data + (row + n) * from->row_stride + b * from->col_stride,
                            &rows.parts);
            memcpy(rows.codes[n], rows.parts.code, sizeof rows.parts.code);
            put_scales(f, &form, &rows.parts, n, panel);
        }
        pack_codes(f, &form, &rows, panel + form.codes_at);
    }
}

void mox_block_panel_unpack(const mox_panel_matrix *m, const uint8_t *panel, const moxie_grid *to, int64_t row)
{
    const mox_block_fields *f = mox_block_fields_of(to->dtype);
    if (f == NULL) {
        unpack_whole(m, panel, to, row);
        return;
    }
    const mox_block_panel form = form_of(to->dtype);
    const int64_t count = mox_min_i64(ROWS, m->rows - row);
    for (int64_t b = 0; b < m->cols / form.weights; b++, panel += form.bytes) {
        block_rows rows = { .codes = { { 0 } } };
        for (int32_t s = 0; s < form.steps; s++) {
            const uint8_t *step = panel + form.codes_at + s * form.step_bytes;
            uint8_t *codes = rows.codes[0] + s * MOX_PANEL_STEP;
            get_plane(f->low.bits, 0, step, codes);
            if (f->high.bits > 0)
                get_plane(f->high.bits, f->low.bits, step + 4 * ROWS * f->low.bits, codes);
        }
        for (int64_t n = 0; n < count; n++) {
            /* A view is const, since most users only read it. The cast through uintptr_t lets a writer store. */
            uint8_t *block = (uint8_t *)(uintptr_t)to->data + (row + n) * to->row_stride + b * to->col_stride;
            memcpy(rows.parts.code, rows.codes[n], sizeof rows.parts.code);
            get_scales(f, &form, panel, n, &rows.parts);
            mox_block_join(f, &rows.parts, block);
        }
    }
}
