/* SPDX-License-Identifier: Apache-2.0
 *
 * layout_panel.c - layout "panel16": panels of 16 rows, drawn in panel.h.
 *
 *     projection       panel by panel: tiles of dense rows (grid_tile.h) -> codes in steps (panel_codes.h),
 *                                      scales [groups][16 or 1], zero points [groups][16]
 *                      then globals and biases, one f32 a panel row
 *
 * A part of a record is some blocks of 16 rows of one product (of gate and up both), the last part of a product also
 * its globals and biases. Blocks are grouped by 8 where that many fit: checkpoints that pack along rows keep 128 of
 * them in a cache line.
 *
 * In the flow: checkpoint views -> [record] -> slot -> kernels of expert_gemm that read layout panel16.
 */
#include "pack/panel.h"

#include <stdio.h>

#include "base/sizes.h"
#include "pack/grid_move.h"
#include "pack/grid_tile.h"
#include "pack/panel_codes.h"

#define STEPS_OF_TILE (MOX_TILE_COLS / MOX_PANEL_STEP)

enum { ZERO_BIAS = 8, ZERO_MOST = 16 }; /* a zero point is kept as zero + 8, of 0 .. 16 */

/* One of the record's two products: W13 (gate and up, or up alone) or W2. */
typedef struct product {
    const moxie_quant *quant;
    int64_t rows, cols; /* of one matrix */
    bool gated, bias;
} product;

/* Offsets in a record; equal neighbours are an empty section. */
typedef struct sections {
    uint64_t panels, global, bias, end;
} sections;

enum { W13, W2, PRODUCTS };

static product product_of(const mox_record_shape *shape, int which)
{
    const product first = { &shape->w13, shape->intermediate, shape->hidden, shape->gated, shape->bias13 };
    const product second = { &shape->w2, shape->hidden, shape->intermediate, false, shape->bias2 };
    return which == W13 ? first : second;
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

/* Adds count * size bytes to *at, then aligns it. */
static bool advance(uint64_t *at, uint64_t count, uint64_t size)
{
    uint64_t bytes;
    return mox_mul_u64(count, size, &bytes) && mox_add_u64(*at, bytes, at) && mox_align_u64(*at, MOX_RECORD_ALIGN, at);
}

/* The parts of a panel; false when its size does not fit 64 bits. */
static bool measure_panel(const product *p, mox_panel_matrix *m)
{
    uint64_t at = 0;
    m->step_bytes = mox_panel_step_bytes(mox_panel_order_of(p->quant->element));
    if (!advance(&at, (uint64_t)m->steps, m->step_bytes))
        return false;
    m->scale_at = at;
    const uint64_t scale_bytes = (uint64_t)m->scale_lanes * (uint64_t)mox_dtype_bytes(p->quant->scale);
    if (!advance(&at, (uint64_t)m->groups, scale_bytes))
        return false;
    m->zero_at = p->quant->has_zero ? at : 0;
    if (p->quant->has_zero && !advance(&at, (uint64_t)m->groups, MOX_PANEL_ROWS))
        return false;
    m->panel_bytes = at;
    return true;
}

static bool measure(const product *p, uint64_t start, mox_panel_matrix *m, sections *s)
{
    const bool scaled = p->quant->scale != MOXIE_DTYPE_NONE;
    *m = (mox_panel_matrix) { .rows = p->rows,
                              .cols = p->cols,
                              .count = blocks_of(p) * (p->gated ? 2 : 1),
                              .steps = mox_ceil_div(p->cols, MOX_PANEL_STEP),
                              .groups = scaled ? mox_scale_cols(p->quant, p->cols) : 1,
                              .group_cols = scaled ? mox_group_cols(p->quant, p->cols) : p->cols,
                              .scale_lanes = scale_lanes_of(p),
                              .gated = p->gated };
    uint64_t at = start;
    s->panels = at;
    if (!measure_panel(p, m) || !advance(&at, (uint64_t)m->count, m->panel_bytes))
        return false;
    s->global = at;
    if (p->quant->global != MOXIE_GLOBAL_NONE && !advance(&at, (uint64_t)m->count, MOX_PANEL_ROWS * sizeof(float)))
        return false;
    s->bias = at;
    if (p->bias && !advance(&at, (uint64_t)m->count, MOX_PANEL_ROWS * sizeof(float)))
        return false;
    s->end = at;
    return true;
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

mox_panel_order mox_panel_order_of(moxie_dtype element)
{
    const mox_format *format = mox_format_of(element);
    if (format == NULL || format->kind == MOX_KIND_EXPONENT)
        return MOX_PANEL_NONE;
    switch (format->bits) {
    case 4: return MOX_PANEL_NIBBLES;
    case 6: return MOX_PANEL_PLANES;
    case 8: return format->kind == MOX_KIND_INTEGER ? MOX_PANEL_QUADS : MOX_PANEL_ZIPPED;
    case 16: return element == MOXIE_BF16 ? MOX_PANEL_PAIRS : MOX_PANEL_HALVES;
    default: return MOX_PANEL_NONE;
    }
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

static const char *refuse(const mox_record_shape *shape, char *buffer, size_t size)
{
    static const char *const names[PRODUCTS] = { "w13", "w2" };
    for (int i = 0; i < PRODUCTS; i++) {
        const product p = product_of(shape, i);
        const mox_format *element = mox_format_of(p.quant->element);
        const int64_t group = mox_group_cols(p.quant, p.cols);
        const char *name = mox_quant_dtype_name(p.quant->element);
        if (mox_panel_order_of(p.quant->element) == MOX_PANEL_NONE) {
            snprintf(buffer, size, "%s has elements of %s, panels hold those of 4, 6, 8 and 16 bits", names[i], name);
            return buffer;
        }
        if (p.quant->has_zero && (element->kind != MOX_KIND_INTEGER || element->bits != 4)) {
            snprintf(buffer, size, "%s has zero points with %s, panels hold them with integers of 4 bits", names[i],
                     name);
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

/* The zero point at (r, g) as a record keeps it; false when unpacking that would not give the same code. */
static bool zero_byte(const moxie_matrix *from, int64_t r, int64_t g, uint8_t *out)
{
    const float value = mox_pack_plus(mox_pack_get_float(&from->zero, r, g), from->zero_add) + ZERO_BIAS;
    if (!(value >= 0 && value <= ZERO_MOST) || value != (float)(int32_t)value)
        return false;
    *out = (uint8_t)value;
    const float back = mox_pack_plus(value - ZERO_BIAS, -from->zero_add);
    return mox_format_of(from->zero.dtype)->encode(back) == mox_grid_code(&from->zero, r, g);
}

/* Whatever the codes, they are in range: 4 bits, and a checkpoint's usual 0 or 1 to add. */
static bool has_safe_zeros(const moxie_matrix *from)
{
    return mox_dtype_bits(from->zero.dtype) == 4 && (from->zero_add == 0.0f || from->zero_add == 1.0f);
}

static bool takes_zeros(const moxie_matrix *from, const char *name, char *reason, size_t size)
{
    uint8_t byte;
    if (has_safe_zeros(from))
        return true;
    for (int64_t r = 0; r < from->zero.rows; r++)
        for (int64_t g = 0; g < from->zero.cols; g++)
            if (!zero_byte(from, r, g, &byte)) {
                snprintf(reason, size, "%s has zero point %g at (%lld, %lld), panels hold whole numbers from %d to %d",
                         name, mox_grid_value(&from->zero, r, g) + (double)from->zero_add, (long long)r, (long long)g,
                         -ZERO_BIAS, ZERO_MOST - ZERO_BIAS);
                return false;
            }
    return true;
}

static bool takes_matrix(const moxie_quant *q, const moxie_matrix *from, const char *name, char *reason, size_t size)
{
    if (!mox_pack_is_natural_order(from->group_index, from->codes.cols, mox_group_cols(q, from->codes.cols))) {
        snprintf(reason, size, "the group index of %s reorders its columns, panels hold columns in natural order",
                 name);
        return false;
    }
    return !q->has_zero || takes_zeros(from, name, reason, size);
}

static bool takes(const mox_record_shape *shape, const moxie_expert *expert, char *reason, size_t size)
{
    return (!shape->gated || takes_matrix(&shape->w13, &expert->gate, "gate", reason, size)) &&
           takes_matrix(&shape->w13, &expert->up, "up", reason, size) &&
           takes_matrix(&shape->w2, &expert->down, "down", reason, size);
}

/* ---- one panel -------------------------------------------------------------------------------------------- */

static void zero_fill(uint8_t *from, const uint8_t *to)
{
    memset(from, 0, (size_t)(to - from));
}

static void pack_codes(const mox_panel_matrix *m, const moxie_grid *from, int64_t row, uint8_t *to)
{
    const mox_panel_order order = mox_panel_order_of(from->dtype);
    mox_tile tile;
    for (int64_t s = 0; s < m->steps; s += STEPS_OF_TILE) {
        const int64_t steps = mox_min_i64(STEPS_OF_TILE, m->steps - s);
        int64_t stride;
        const uint8_t *rows = mox_tile_read(from, row, s * MOX_PANEL_STEP, steps * MOX_PANEL_STEP, &tile, &stride);
        mox_panel_codes_pack(order, rows, stride, steps, to + (uint64_t)s * m->step_bytes);
    }
}

static void unpack_codes(const mox_panel_matrix *m, const uint8_t *from, const moxie_grid *to, int64_t row)
{
    const mox_panel_order order = mox_panel_order_of(to->dtype);
    mox_tile tile;
    for (int64_t s = 0; s < m->steps; s += STEPS_OF_TILE) {
        const int64_t steps = mox_min_i64(STEPS_OF_TILE, m->steps - s), cols = steps * MOX_PANEL_STEP;
        const int64_t stride = (int64_t)mox_dense_row_bytes(to->dtype, cols);
        mox_panel_codes_unpack(order, from + (uint64_t)s * m->step_bytes, steps, tile.bytes, stride);
        mox_tile_write(to, row, s * MOX_PANEL_STEP, cols, tile.bytes, stride);
    }
}

/* The scales of a panel as a grid [groups, lanes]. */
static moxie_grid scale_view(const mox_panel_matrix *m, moxie_dtype dtype, const uint8_t *panel)
{
    return mox_grid_dense(panel + m->scale_at, dtype, m->groups, m->scale_lanes);
}

static void pack_scales(const mox_panel_matrix *m, const moxie_quant *q, const moxie_grid *from, int64_t row,
                        uint8_t *panel)
{
    const int64_t group_rows = mox_group_rows(q, m->rows);
    const moxie_grid to = scale_view(m, q->scale, panel);
    for (int64_t g = 0; g < m->groups; g++)
        for (int64_t n = 0; n < m->scale_lanes; n++)
            mox_grid_store(&to, g, n, row + n < m->rows ? mox_grid_code(from, (row + n) / group_rows, g) : 0);
    uint8_t *end = panel + m->scale_at + to.bytes;
    zero_fill(end, panel + (m->zero_at != 0 ? m->zero_at : m->panel_bytes));
}

static void unpack_scales(const mox_panel_matrix *m, const moxie_quant *q, const uint8_t *panel, const moxie_grid *to,
                          int64_t row)
{
    const int64_t group_rows = mox_group_rows(q, m->rows);
    const moxie_grid from = scale_view(m, q->scale, panel);
    for (int64_t n = 0; n < m->scale_lanes && row + n < m->rows; n++)
        for (int64_t g = 0; g < m->groups && (row + n) % group_rows == 0; g++)
            mox_grid_store(to, (row + n) / group_rows, g, mox_grid_code(&from, g, n));
}

static void pack_zeros(const mox_panel_matrix *m, const moxie_quant *q, const moxie_matrix *from, int64_t row,
                       uint8_t *panel)
{
    const int64_t group_rows = mox_group_rows(q, m->rows);
    uint8_t *to = panel + m->zero_at;
    for (int64_t g = 0; g < m->groups; g++)
        for (int64_t n = 0; n < MOX_PANEL_ROWS; n++, to++) {
            *to = 0;
            if (row + n < m->rows)
                zero_byte(from, (row + n) / group_rows, g, to);
        }
    zero_fill(to, panel + m->panel_bytes);
}

static void unpack_zeros(const mox_panel_matrix *m, const moxie_quant *q, const uint8_t *panel, const moxie_matrix *to,
                         int64_t row)
{
    const int64_t group_rows = mox_group_rows(q, m->rows);
    const uint8_t *from = panel + m->zero_at;
    for (int64_t n = 0; n < MOX_PANEL_ROWS && row + n < m->rows; n++)
        for (int64_t g = 0; g < m->groups && (row + n) % group_rows == 0; g++) {
            const float value = (float)(from[g * MOX_PANEL_ROWS + n] - ZERO_BIAS);
            mox_pack_put_float(&to->zero, (row + n) / group_rows, g, mox_pack_plus(value, -to->zero_add));
        }
}

/* ---- one product ------------------------------------------------------------------------------------------ */

static int64_t halves_of(const product *p)
{
    return p->gated ? 2 : 1;
}

/* Blocks [block, end) of 16 rows; `from` has one matrix, or gate and up. */
static void pack_blocks(const product *p, const mox_panel_matrix *m, const moxie_matrix *const *from, int64_t block,
                        int64_t end, uint8_t *to)
{
    for (; block < end; block++)
        for (int64_t half = 0; half < halves_of(p); half++, to += m->panel_bytes) {
            const moxie_matrix *matrix = from[half];
            const int64_t row = block * MOX_PANEL_ROWS;
            pack_codes(m, &matrix->codes, row, to);
            if (m->scale_lanes > 0)
                pack_scales(m, p->quant, &matrix->scale, row, to);
            if (p->quant->has_zero)
                pack_zeros(m, p->quant, matrix, row, to);
        }
}

static void unpack_panels(const product *p, const mox_panel_matrix *m, const moxie_matrix *const *to)
{
    const int64_t halves = halves_of(p);
    for (int64_t panel = 0; panel < m->count; panel++) {
        const uint8_t *from = m->panels + (uint64_t)panel * m->panel_bytes;
        const moxie_matrix *matrix = to[panel % halves];
        const int64_t row = panel / halves * MOX_PANEL_ROWS;
        unpack_codes(m, from, &matrix->codes, row);
        if (m->scale_lanes > 0)
            unpack_scales(m, p->quant, from, &matrix->scale, row);
        if (p->quant->has_zero)
            unpack_zeros(m, p->quant, from, matrix, row);
    }
}

/* Globals or biases of one half: those of panel rows half * 16 .., then of every second panel when gated. */
static void pack_rows(const product *p, const moxie_grid *from, int64_t half, float *to)
{
    const int64_t padded = blocks_of(p) * MOX_PANEL_ROWS, halves = halves_of(p);
    for (int64_t r = 0; r < padded; r++) {
        const int64_t panel = r / MOX_PANEL_ROWS * halves + half;
        to[panel * MOX_PANEL_ROWS + r % MOX_PANEL_ROWS] =
            r < p->rows ? mox_pack_get_float(from, from->rows == 1 ? 0 : r, 0) : 0.0f;
    }
}

static void unpack_rows(const product *p, const float *from, int64_t half, const moxie_grid *to)
{
    const int64_t halves = halves_of(p);
    for (int64_t r = 0; r < to->rows; r++) {
        const int64_t panel = r / MOX_PANEL_ROWS * halves + half;
        mox_pack_put_float(to, r, 0, from[panel * MOX_PANEL_ROWS + r % MOX_PANEL_ROWS]);
    }
}

static void pack_all_rows(const product *p, const sections *s, const moxie_matrix *const *from, uint8_t *record)
{
    for (int half = 0; half < halves_of(p); half++) {
        if (p->quant->global != MOXIE_GLOBAL_NONE)
            pack_rows(p, &from[half]->global, half, (float *)(void *)(record + s->global));
        if (p->bias)
            pack_rows(p, &from[half]->bias, half, (float *)(void *)(record + s->bias));
    }
}

static void unpack_product(const product *p, const mox_panel_matrix *m, const moxie_matrix *const *to)
{
    unpack_panels(p, m, to);
    for (int half = 0; half < halves_of(p); half++) {
        if (m->global != NULL)
            unpack_rows(p, m->global, half, &to[half]->global);
        if (m->bias != NULL)
            unpack_rows(p, m->bias, half, &to[half]->bias);
        int32_t *group_index = (int32_t *)(uintptr_t)to[half]->group_index;
        for (int64_t k = 0; group_index != NULL && k < p->cols; k++)
            group_index[k] = (int32_t)(k / m->group_cols);
    }
}

/* ---- parts ------------------------------------------------------------------------------------------------ */

/* Both products of a shape that the layout accepted. */
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
        f.blocks_per_part[i] = fit >= 8 ? fit / 8 * 8 : mox_max_i64(fit, 1);
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
    pack_blocks(p, &f.m[which], from, block, end, (uint8_t *)record + part_at(shape, part));
    if (index == f.parts[which] - 1)
        pack_all_rows(p, &f.s[which], from, record);
    return MOXIE_OK;
}

/* ---- the record ------------------------------------------------------------------------------------------- */

static moxie_status unpack(const mox_record_shape *shape, const void *record, moxie_expert *out, moxie_error *error)
{
    (void)error;
    const moxie_matrix *const to13[] = { shape->gated ? &out->gate : &out->up, &out->up };
    const moxie_matrix *const to2[] = { &out->down };
    const product w13 = product_of(shape, W13), w2 = product_of(shape, W2);
    mox_record_header header;
    mox_panel_record from;
    memcpy(&header, record, sizeof header);
    mox_panel_open(shape, record, &from);
    unpack_product(&w13, &from.w13, to13);
    unpack_product(&w2, &from.w2, to2);
    out->a13_scale = header.a13_scale;
    out->a2_scale = header.a2_scale;
    return MOXIE_OK;
}

const mox_layout mox_layout_panel16 = {
    .number = 2,
    .name = "panel16",
    .summary = "panels of 16 rows in steps of 32 columns, in the order of vector and tile units",
    .refuse = refuse,
    .takes = takes,
    .record_bytes = record_bytes,
    .parts = parts,
    .part_at = part_at,
    .pack_part = pack_part,
    .unpack = unpack,
};
