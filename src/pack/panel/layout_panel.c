/* SPDX-License-Identifier: Apache-2.0
 *
 * layout_panel.c - layout "panel16": panels of 16 rows, drawn in panel.h.
 *
 *     sections    sizes and offsets, a pure function of the shape
 *     reject      elements and groups that have no order in panels
 *     parts       what is packed at once; the contents of panels are panel_move.c's
 *
 * A part of a record is some blocks of 16 rows of one product (of gate and up both). The last part of a product also
 * has its globals and biases. When eight blocks or more fit, a part has a multiple of 16 blocks: 256 rows lie together
 * in a kilobyte of GPTQ's words, which a processor reads as a stream, and in two cache lines of AWQ's.
 *
 * In the flow: checkpoint views -> [record] -> slot -> kernels of expert_gemm that read layout panel16.
 */
#include "pack/panel/panel.h"

#include <stdio.h>

#include "base/carver.h"
#include "base/sizes.h"
#include "pack/grid_move.h"
#include "pack/panel/block_panel.h"
#include "pack/panel/panel_codes.h"
#include "pack/panel/panel_move.h"

/* One of the record's two products: W13 (gate and up, or up alone) or W2. */
typedef struct product {
    const moxie_quant *quant;
    int64_t rows, cols; /* of one matrix */
    bool gated, bias;
} product;

/* Offsets in a record. A section whose offset equals the next one is empty. */
typedef struct sections {
    uint64_t panels, global, bias, end;
} sections;

enum { W13, W2, PRODUCTS };

static product product_of(const mox_record_shape *shape, int which)
{
    const product first = { &shape->w13, mox_shape_rows13(shape), shape->hidden, shape->gated, shape->bias13 };
    const product second = { &shape->w2, mox_shape_rows2(shape), shape->intermediate, false, shape->bias2 };
    return which == W13 ? first : second;
}

static int64_t halves_of(const product *p)
{
    return p->gated ? 2 : 1;
}

static int64_t blocks_of(const product *p)
{
    return mox_ceil_div(p->rows, MOX_PANEL_ROWS);
}

static int32_t scale_lanes_of(const product *p)
{
    if (p->quant->scale == MOXIE_DTYPE_NONE)
        return 0;
    const bool shared =
        mox_group_rows(p->quant, p->rows) % MOX_PANEL_ROWS == 0 || mox_scale_rows(p->quant, p->rows) == 1;
    return shared ? 1 : MOX_PANEL_ROWS;
}

/* Sizes and offsets in a panel; false when the panel does not fit in 64 bits. */
static bool measure_panel(const product *p, mox_panel_matrix *m)
{
    const uint64_t groups = (uint64_t)m->groups;
    const mox_panel_order order = mox_panel_order_of(p->quant->element);
    mox_carver carver = mox_offset_carver(MOX_RECORD_ALIGN);
    m->step_bytes = mox_panel_step_bytes(order);
    if (order == MOX_PANEL_BLOCKS)
        mox_carve_offset(&carver, (uint64_t)(m->cols / mox_block_panel_cols(p->quant->element)),
                         (uint64_t)mox_block_panel_bytes(p->quant->element));
    else
        mox_carve_offset(&carver, (uint64_t)m->steps, m->step_bytes);
    const uint64_t scale_bytes = (uint64_t)m->scale_lanes * (uint64_t)mox_dtype_bytes(p->quant->scale);
    m->scale_at = mox_carve_offset(&carver, groups, scale_bytes);
    m->zero_at = p->quant->has_zero ? mox_carve_offset(&carver, groups, MOX_PANEL_ROWS) : 0;
    m->panel_bytes = carver.used;
    return m->panel_bytes != MOX_CARVED_TOO_MUCH;
}

static bool measure(const product *p, uint64_t start, mox_panel_matrix *m, sections *s)
{
    const bool scaled = p->quant->scale != MOXIE_DTYPE_NONE;
    *m = (mox_panel_matrix) { .rows = p->rows,
                              .cols = p->cols,
                              .count = blocks_of(p) * halves_of(p),
                              .steps = mox_ceil_div(p->cols, MOX_PANEL_STEP),
                              .groups = scaled ? mox_scale_cols(p->quant, p->cols) : 1,
                              .group_cols = scaled ? mox_group_cols(p->quant, p->cols) : p->cols,
                              .scale_lanes = scale_lanes_of(p),
                              .gated = p->gated };
    if (!measure_panel(p, m))
        return false;
    const uint64_t count = (uint64_t)m->count;
    const bool has_global = p->quant->global != MOXIE_GLOBAL_NONE;
    mox_carver carver = mox_offset_carver(MOX_RECORD_ALIGN);
    carver.used = start;
    s->panels = mox_carve_offset(&carver, count, m->panel_bytes);
    s->global = mox_carve_offset(&carver, has_global ? count : 0, MOX_PANEL_ROWS * sizeof(float));
    s->bias = mox_carve_offset(&carver, p->bias ? count : 0, MOX_PANEL_ROWS * sizeof(float));
    s->end = carver.used;
    return s->end != MOX_CARVED_TOO_MUCH;
}

static bool record_bytes(const mox_record_shape *shape, uint64_t *out)
{
    uint64_t at = sizeof(mox_record_header);
    for (int i = 0; i < PRODUCTS; i++) {
        const product p = product_of(shape, i);
        mox_panel_matrix m;
        sections s;
        if (!measure(&p, at, &m, &s))
            return false;
        at = s.end;
    }
    *out = at;
    return true;
}

void mox_panel_open(const mox_record_shape *shape, const void *record, mox_panel_record *out)
{
    mox_panel_matrix *const to[PRODUCTS] = { &out->w13, &out->w2 };
    const uint8_t *bytes = record;
    uint64_t at = sizeof(mox_record_header);
    for (int i = 0; i < PRODUCTS; i++) {
        const product p = product_of(shape, i);
        sections s = { 0 };
        (void)measure(&p, at, to[i], &s); /* the shape was accepted, so it fits */
        at = s.end;
        if (bytes == NULL)
            continue;
        to[i]->panels = bytes + s.panels;
        if (p.quant->global != MOXIE_GLOBAL_NONE)
            to[i]->global = (const float *)(const void *)(bytes + s.global);
        if (p.bias)
            to[i]->bias = (const float *)(const void *)(bytes + s.bias);
    }
}

/* ---- what the layout holds -------------------------------------------------------------------------------- */

static bool has_groups(const product *p, int64_t group)
{
    return p->quant->scale == MOXIE_DTYPE_NONE || group >= p->cols || group % MOX_PANEL_STEP == 0 ||
           (group == MOX_PANEL_ROWS && mox_dtype_bits(p->quant->element) == 4);
}

static const char *reject(const mox_record_shape *shape, char *buffer, size_t size)
{
    static const char *const names[PRODUCTS] = { "w13", "w2" };
    for (int i = 0; i < PRODUCTS; i++) {
        const product p = product_of(shape, i);
        const mox_format *element = mox_format_of(p.quant->element);
        const int64_t group = mox_group_cols(p.quant, p.cols);
        const char *name = mox_quant_dtype_name(p.quant->element);
        if (mox_panel_order_of(p.quant->element) == MOX_PANEL_NONE) {
            snprintf(
                buffer, size,
                "%s has elements of %s, panels hold those of 4, 6, 8 and 16 bits, and block types of block_fields.def "
                "and block_levels.def",
                names[i], name);
            return buffer;
        }
        if (mox_quant_is_block(p.quant) && p.cols % mox_block_panel_cols(p.quant->element) != 0) {
            snprintf(buffer, size, "%s has rows of %lld numbers, which are no whole blocks of %s", names[i],
                     (long long)p.cols, name);
            return buffer;
        }
        if (p.quant->has_zero && element->kind != MOX_KIND_INTEGER) {
            snprintf(buffer, size, "%s has zero points with %s, panels hold them with integers", names[i], name);
            return buffer;
        }
        if (!has_groups(&p, group)) {
            snprintf(buffer, size,
                     "%s has groups of %lld columns with %s, panels hold whole rows, multiples of 32 columns, and 16 "
                     "columns with elements of 4 bits",
                     names[i], (long long)group, name);
            return buffer;
        }
    }
    return NULL;
}

static bool accepts_zeros(const moxie_matrix *from, const char *name, char *reason, size_t size)
{
    uint8_t byte;
    if (mox_panel_has_safe_zeros(from))
        return true;
    for (int64_t r = 0; r < from->zero.rows; r++)
        for (int64_t g = 0; g < from->zero.cols; g++)
            if (!mox_panel_zero_byte(from, r, g, &byte)) {
                const bool narrow = mox_dtype_bits(from->codes.dtype) == 4;
                snprintf(reason, size, "%s has zero point %g at (%lld, %lld), panels hold whole numbers from %s", name,
                         mox_grid_value(&from->zero, r, g) + (double)from->zero_add, (long long)r, (long long)g,
                         narrow ? "-8 to 8 with integers of 4 bits" : "-128 to 127 with integers of 8 bits");
                return false;
            }
    return true;
}

static bool accepts_matrix(const moxie_quant *q, const moxie_matrix *from, const char *name, char *reason, size_t size)
{
    if (!mox_pack_is_natural_order(from->group_index, from->codes.cols, mox_group_cols(q, from->codes.cols))) {
        snprintf(reason, size, "the group index of %s reorders its columns, panels hold columns in natural order",
                 name);
        return false;
    }
    return !q->has_zero || accepts_zeros(from, name, reason, size);
}

static bool accepts(const mox_record_shape *shape, const moxie_expert *expert, char *reason, size_t size)
{
    return (!shape->gated || accepts_matrix(&shape->w13, &expert->gate, "gate", reason, size)) &&
           accepts_matrix(&shape->w13, &expert->up, "up", reason, size) &&
           accepts_matrix(&shape->w2, &expert->down, "down", reason, size);
}

/* ---- products ----------------------------------------------------------------------------------------------- */

static void pack_rows(const product *p, const mox_panel_matrix *m, const sections *s, const moxie_matrix *const *from,
                      uint8_t *record)
{
    for (int half = 0; half < halves_of(p); half++) {
        if (p->quant->global != MOXIE_GLOBAL_NONE)
            mox_panel_pack_rows(m, &from[half]->global, half, (float *)(void *)(record + s->global));
        if (p->bias)
            mox_panel_pack_rows(m, &from[half]->bias, half, (float *)(void *)(record + s->bias));
    }
}

static void unpack_matrix(const product *p, const mox_panel_matrix *m, int half, const moxie_matrix *to)
{
    const int64_t halves = halves_of(p);
    if (p->rows == 0) /* a rank that has no rows of this matrix */
        return;
    for (int64_t block = 0; block < blocks_of(p); block++)
        mox_panel_unpack(m, p->quant, m->panels + (uint64_t)(block * halves + half) * m->panel_bytes, to,
                         block * MOX_PANEL_ROWS);
    if (m->global != NULL)
        mox_panel_unpack_rows(m, m->global, half, &to->global);
    if (m->bias != NULL)
        mox_panel_unpack_rows(m, m->bias, half, &to->bias);
    mox_pack_put_natural_order(to, p->cols, m->group_cols);
}

/* ---- parts ------------------------------------------------------------------------------------------------ */

/* Both products of a shape that the layout accepts. */
typedef struct record_form {
    product p[PRODUCTS];
    mox_panel_matrix m[PRODUCTS];
    sections s[PRODUCTS];
    int64_t blocks_per_part[PRODUCTS], parts[PRODUCTS];
} record_form;

static record_form form_of(const mox_record_shape *shape)
{
    record_form f = { 0 };
    uint64_t at = sizeof(mox_record_header);
    for (int i = 0; i < PRODUCTS; i++) {
        f.p[i] = product_of(shape, i);
        (void)measure(&f.p[i], at, &f.m[i], &f.s[i]);
        at = f.s[i].end;
        const uint64_t block_bytes = f.m[i].panel_bytes * (uint64_t)halves_of(&f.p[i]);
        const int64_t fit = block_bytes > 0 ? (int64_t)(MOX_RECORD_PART / block_bytes) : 1;
        f.blocks_per_part[i] = fit >= 8 ? (fit + 8) / 16 * 16 : mox_max_i64(fit, 1);
        f.parts[i] = mox_max_i64(mox_ceil_div(blocks_of(&f.p[i]), f.blocks_per_part[i]), 1);
    }
    return f;
}

static int64_t parts(const mox_record_shape *shape)
{
    const record_form f = form_of(shape);
    return f.parts[W13] + f.parts[W2];
}

static uint64_t part_at(const mox_record_shape *shape, int64_t part)
{
    const record_form f = form_of(shape);
    const int which = part < f.parts[W13] ? W13 : W2;
    const int64_t index = which == W13 ? part : part - f.parts[W13];
    if (index == f.parts[which])
        return f.s[which].end;
    const uint64_t blocks = (uint64_t)(index * f.blocks_per_part[which]);
    return f.s[which].panels + blocks * (uint64_t)halves_of(&f.p[which]) * f.m[which].panel_bytes;
}

static moxie_status pack_part(const mox_record_shape *shape, const moxie_expert *expert, int64_t part, void *record,
                              moxie_error *error)
{
    (void)error;
    const moxie_matrix *const from13[] = { shape->gated ? &expert->gate : &expert->up, &expert->up };
    const moxie_matrix *const from2[] = { &expert->down };
    const record_form f = form_of(shape);
    const int which = part < f.parts[W13] ? W13 : W2;
    const moxie_matrix *const *from = which == W13 ? from13 : from2;
    const product *p = &f.p[which];
    const int64_t index = which == W13 ? part : part - f.parts[W13], block = index * f.blocks_per_part[which];
    const int64_t end = mox_min_i64(block + f.blocks_per_part[which], blocks_of(p));
    const uint64_t panel_bytes = f.m[which].panel_bytes;
    uint8_t *panels = (uint8_t *)record + part_at(shape, part);
    for (int half = 0; half < halves_of(p); half++)
        mox_panel_pack(&f.m[which], p->quant, from[half], block * MOX_PANEL_ROWS, end - block,
                       panels + (uint64_t)half * panel_bytes, (uint64_t)halves_of(p) * panel_bytes);
    if (index == f.parts[which] - 1)
        pack_rows(p, &f.m[which], &f.s[which], from, record);
    return MOXIE_OK;
}

/* ---- the record ------------------------------------------------------------------------------------------- */

static moxie_status unpack(const mox_record_shape *shape, const void *record, moxie_expert *out, moxie_error *error)
{
    (void)error;
    const product w13 = product_of(shape, W13), w2 = product_of(shape, W2);
    mox_record_header header;
    mox_panel_record from;
    memcpy(&header, record, sizeof header);
    mox_panel_open(shape, record, &from);
    unpack_matrix(&w13, &from.w13, 0, shape->gated ? &out->gate : &out->up);
    if (shape->gated)
        unpack_matrix(&w13, &from.w13, 1, &out->up);
    unpack_matrix(&w2, &from.w2, 0, &out->down);
    out->a13_scale = header.a13_scale;
    out->a2_scale = header.a2_scale;
    return MOXIE_OK;
}

const mox_layout mox_layout_panel16 = {
    .number = 2,
    .name = "panel16",
    .summary = "panels of 16 rows in steps of 32 columns, in the order of vector and tile units",
    .reject = reject,
    .accepts = accepts,
    .fallback = &mox_layout_panel16_order,
    .record_bytes = record_bytes,
    .parts = parts,
    .part_at = part_at,
    .pack_part = pack_part,
    .unpack = unpack,
};
