/* SPDX-License-Identifier: Apache-2.0
 *
 * layout_rowmajor.c - layout "rowmajor", the plain one: every projection as dense rows, read by the portable kernels.
 *
 *     +--------+-------------------------+-------------------------+-------------------------+
 *     | header | gate (gated only)       | up                      | down                    |
 *     +--------+-------------------------+-------------------------+-------------------------+
 *     one projection [N, K], each section on a 64-byte boundary, absent ones empty:
 *       codes [N] rows, each starting on a byte, elements low bits first, columns in natural order
 *       scale [ceil(N/gr), ceil(K/gc)] in the dtype of the scales
 *       zero  [the same] f32, zero_add included        global [N] f32        bias [N] f32
 *       group_index [K] i32, visit [K] i32             only for integers with column groups
 *
 * Every integer projection with column groups has room for group_index and visit, since sizes follow from the shape
 * alone. A header flag says whether this expert has an act order (GPTQ), that is, an order other than column /
 * group_cols. visit lists the columns group by group, ascending within a group, so that each group is one run.
 */
#include "pack/layout.h"

#include "base/carver.h"
#include "base/sizes.h"
#include "pack/grid_move.h"

/* Offsets in a record. A section whose offset equals the next one is empty. */
typedef struct sections {
    uint64_t codes, scale, zero, global, bias, group_index, visit, end;
} sections;

typedef struct projection {
    const moxie_quant *quant;
    int64_t rows, cols;
    bool bias;
    uint32_t order_flag;
} projection;

enum { GATE, UP, DOWN, PROJECTIONS };

static projection projection_of(const mox_record_shape *shape, int which)
{
    const projection first = { .quant = &shape->w13,
                               .rows = which == GATE && !shape->gated ? 0 : mox_shape_rows13(shape),
                               .cols = shape->hidden,
                               .bias = shape->bias13,
                               .order_flag = which == GATE ? MOX_ROWMAJOR_ORDER_GATE : MOX_ROWMAJOR_ORDER_UP };
    const projection second = { .quant = &shape->w2,
                                .rows = mox_shape_rows2(shape),
                                .cols = shape->intermediate,
                                .bias = shape->bias2,
                                .order_flag = MOX_ROWMAJOR_ORDER_DOWN };
    return which == DOWN ? second : first;
}

static bool can_reorder(const projection *p)
{
    const mox_format *element = mox_format_of(p->quant->element);
    return element != NULL && element->kind == MOX_KIND_INTEGER && mox_scale_cols(p->quant, p->cols) > 1;
}

static bool layout_sections(const projection *p, uint64_t start, sections *out)
{
    const moxie_quant *q = p->quant;
    uint64_t widest;
    *out = (sections) { .codes = start, .scale = start, .zero = start, .global = start, .bias = start };
    out->group_index = out->visit = out->end = start;
    if (p->rows == 0)
        return true;
    /* mox_dense_row_bytes() cannot report overflow: no row of 64-bit elements may have too many bits for it. */
    if (!mox_mul_u64((uint64_t)p->cols, 64, &widest))
        return false;
    const uint64_t rows = (uint64_t)p->rows, scale_rows = (uint64_t)mox_scale_rows(q, p->rows);
    const int64_t scale_cols = mox_scale_cols(q, p->cols);
    const uint64_t indices = can_reorder(p) ? (uint64_t)p->cols : 0;
    mox_carver carver = mox_offset_carver(MOX_RECORD_ALIGN);
    carver.used = start;
    out->codes = mox_carve_offset(&carver, rows, mox_dense_row_bytes(q->element, p->cols));
    out->scale = carver.used;
    if (q->scale != MOXIE_DTYPE_NONE)
        mox_carve_offset(&carver, scale_rows, mox_dense_row_bytes(q->scale, scale_cols));
    out->zero = mox_carve_offset(&carver, q->has_zero ? scale_rows : 0, (uint64_t)scale_cols * sizeof(float));
    out->global = mox_carve_offset(&carver, q->global != MOXIE_GLOBAL_NONE ? rows : 0, sizeof(float));
    out->bias = mox_carve_offset(&carver, p->bias ? rows : 0, sizeof(float));
    out->group_index = mox_carve_offset(&carver, indices, sizeof(int32_t));
    out->visit = mox_carve_offset(&carver, indices, sizeof(int32_t));
    out->end = carver.used;
    return out->end != MOX_CARVED_TOO_MUCH;
}

static bool all_sections(const mox_record_shape *shape, sections out[PROJECTIONS])
{
    uint64_t at = sizeof(mox_record_header);
    for (int i = 0; i < PROJECTIONS; i++) {
        const projection p = projection_of(shape, i);
        if (!layout_sections(&p, at, &out[i]))
            return false;
        at = out[i].end;
    }
    return true;
}

static const char *reject(const mox_record_shape *shape, char *buffer, size_t size)
{
    (void)shape, (void)buffer, (void)size;
    return NULL;
}

static bool record_bytes(const mox_record_shape *shape, uint64_t *out)
{
    sections s[PROJECTIONS];
    if (!all_sections(shape, s))
        return false;
    *out = s[DOWN].end;
    return true;
}

/* ---- moving grids -------------------------------------------------------------------------------- */

static bool has_whole_bytes(const moxie_grid *grid)
{
    return mox_pack_has_dense_rows(grid) && grid->cols * mox_dtype_bits(grid->dtype) % 8 == 0;
}

static void copy_grid(const moxie_grid *from, const moxie_grid *to)
{
    if (has_whole_bytes(from) && has_whole_bytes(to)) {
        const uint64_t bytes = mox_dense_row_bytes(from->dtype, from->cols);
        for (int64_t r = 0; r < from->rows; r++)
            memcpy((uint8_t *)(uintptr_t)to->data + r * to->row_stride,
                   (const uint8_t *)from->data + r * from->row_stride, bytes);
        return;
    }
    for (int64_t r = 0; r < from->rows; r++)
        for (int64_t c = 0; c < from->cols; c++)
            mox_grid_store(to, r, c, mox_grid_code(from, r, c));
}

static void pack_floats(const moxie_grid *from, float add, float *to, int64_t rows, int64_t cols)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            to[r * cols + c] = mox_pack_plus(mox_pack_get_float(from, from->rows == 1 ? 0 : r, c), add);
}

static void unpack_floats(const float *from, float add, const moxie_grid *to)
{
    for (int64_t r = 0; r < to->rows; r++)
        for (int64_t c = 0; c < to->cols; c++)
            mox_pack_put_float(to, r, c, mox_pack_plus(from[r * to->cols + c], -add));
}

/* ---- act order ------------------------------------------------------------------------------------ */

static moxie_status pack_order(const projection *p, const moxie_matrix *from, const sections *s, uint8_t *record,
                               uint32_t *flags, moxie_error *error)
{
    if (mox_pack_is_natural_order(from->group_index, p->cols, mox_group_cols(p->quant, p->cols)))
        return MOXIE_OK;
    MOX_FAIL_IF(!can_reorder(p), MOXIE_ERR_UNSUPPORTED, error,
                "a group index that reorders columns was passed for an element or group size without act order: layout "
                "rowmajor keeps one for integer elements with more than one group of columns; leave it out");
    MOX_FAIL_IF(p->cols > INT32_MAX, MOXIE_ERR_UNSUPPORTED, error,
                "act order over %lld columns: layout rowmajor indexes columns with 31 bits", (long long)p->cols);
    memcpy(record + s->group_index, from->group_index, (size_t)p->cols * sizeof(int32_t));
    mox_pack_sort_columns(from->group_index, p->cols, mox_scale_cols(p->quant, p->cols),
                          (int32_t *)(void *)(record + s->visit));
    *flags |= p->order_flag;
    return MOXIE_OK;
}

static void unpack_order(const mox_rowmajor_matrix *from, int32_t *group_index)
{
    for (int64_t k = 0; k < from->cols; k++)
        group_index[k] = from->group_index != NULL ? from->group_index[k] : (int32_t)(k / from->group_cols);
}

/* ---- one projection ------------------------------------------------------------------------------- */

static moxie_status pack_matrix(const projection *p, const moxie_matrix *from, const sections *s, uint8_t *record,
                                uint32_t *flags, moxie_error *error)
{
    const moxie_quant *q = p->quant;
    const int64_t scale_rows = mox_scale_rows(q, p->rows), scale_cols = mox_scale_cols(q, p->cols);
    const moxie_grid codes = mox_grid_dense(record + s->codes, q->element, p->rows, p->cols);
    copy_grid(&from->codes, &codes);
    if (q->scale != MOXIE_DTYPE_NONE) {
        const moxie_grid scale = mox_grid_dense(record + s->scale, q->scale, scale_rows, scale_cols);
        copy_grid(&from->scale, &scale);
    }
    if (q->has_zero)
        pack_floats(&from->zero, from->zero_add, (float *)(void *)(record + s->zero), scale_rows, scale_cols);
    if (q->global != MOXIE_GLOBAL_NONE)
        pack_floats(&from->global, 0.0f, (float *)(void *)(record + s->global), p->rows, 1);
    if (p->bias)
        pack_floats(&from->bias, 0.0f, (float *)(void *)(record + s->bias), p->rows, 1);
    return pack_order(p, from, s, record, flags, error);
}

static void unpack_matrix(const moxie_quant *q, const mox_rowmajor_matrix *from, const moxie_matrix *to)
{
    if (from->rows == 0) /* a rank that has no rows of this matrix */
        return;
    const moxie_grid codes = mox_grid_dense(from->codes, q->element, from->rows, from->cols);
    copy_grid(&codes, &to->codes);
    if (from->scale != NULL) {
        const moxie_grid scale = mox_grid_dense(from->scale, q->scale, from->scale_rows, from->scale_cols);
        copy_grid(&scale, &to->scale);
    }
    if (from->zero != NULL)
        unpack_floats(from->zero, to->zero_add, &to->zero);
    if (from->global != NULL)
        unpack_floats(from->global, 0.0f, &to->global);
    if (from->bias != NULL)
        unpack_floats(from->bias, 0.0f, &to->bias);
    if (to->group_index != NULL)
        unpack_order(from, (int32_t *)(uintptr_t)to->group_index);
}

static void open_matrix(const projection *p, const sections *s, const uint8_t *record, uint32_t flags,
                        mox_rowmajor_matrix *out)
{
    const moxie_quant *q = p->quant;
    *out = (mox_rowmajor_matrix) { .rows = p->rows, .cols = p->cols };
    if (p->rows == 0)
        return;
    out->codes = record + s->codes;
    out->row_bytes = mox_dense_row_bytes(q->element, p->cols);
    out->scale_rows = mox_scale_rows(q, p->rows);
    out->scale_cols = mox_scale_cols(q, p->cols);
    out->group_rows = mox_group_rows(q, p->rows);
    out->group_cols = mox_group_cols(q, p->cols);
    if (q->scale != MOXIE_DTYPE_NONE)
        out->scale = record + s->scale;
    if (q->has_zero)
        out->zero = (const float *)(const void *)(record + s->zero);
    if (q->global != MOXIE_GLOBAL_NONE)
        out->global = (const float *)(const void *)(record + s->global);
    if (p->bias)
        out->bias = (const float *)(const void *)(record + s->bias);
    if ((flags & p->order_flag) && can_reorder(p)) { /* the flag comes from the record: other shapes have no room */
        out->group_index = (const int32_t *)(const void *)(record + s->group_index);
        out->visit = (const int32_t *)(const void *)(record + s->visit);
    }
}

/* ---- the record ----------------------------------------------------------------------------------- */

static moxie_status pack(const mox_record_shape *shape, const moxie_expert *expert, void *record, moxie_error *error)
{
    const moxie_matrix *const from[PROJECTIONS] = { &expert->gate, &expert->up, &expert->down };
    sections s[PROJECTIONS];
    MOX_FAIL_IF(!all_sections(shape, s), MOXIE_ERR_ARGUMENT, error, "the record's size does not fit in 64 bits");
    uint32_t flags = 0;
    for (int i = 0; i < PROJECTIONS; i++) {
        const projection p = projection_of(shape, i);
        if (p.rows > 0)
            MOX_TRY(pack_matrix(&p, from[i], &s[i], record, &flags, error));
    }
    memcpy((uint8_t *)record + offsetof(mox_record_header, flags), &flags, sizeof flags);
    return MOXIE_OK;
}

static moxie_status unpack(const mox_record_shape *shape, const void *record, moxie_expert *out, moxie_error *error)
{
    (void)error;
    mox_record_header header;
    memcpy(&header, record, sizeof header);
    mox_rowmajor_record from;
    mox_rowmajor_open(shape, record, &from);
    if (shape->gated)
        unpack_matrix(&shape->w13, &from.gate, &out->gate);
    unpack_matrix(&shape->w13, &from.up, &out->up);
    unpack_matrix(&shape->w2, &from.down, &out->down);
    out->a13_scale = header.a13_scale;
    out->a2_scale = header.a2_scale;
    return MOXIE_OK;
}

const mox_layout mox_layout_rowmajor = {
    .number = 1,
    .name = "rowmajor",
    .summary = "dense rows of codes in natural order, with their scales; read by the portable kernels",
    .reject = reject,
    .record_bytes = record_bytes,
    .pack = pack,
    .unpack = unpack,
};

void mox_rowmajor_open(const mox_record_shape *shape, const void *record, mox_rowmajor_record *out)
{
    mox_rowmajor_matrix *const to[PROJECTIONS] = { &out->gate, &out->up, &out->down };
    mox_record_header header;
    memcpy(&header, record, sizeof header);
    uint64_t at = sizeof header;
    for (int i = 0; i < PROJECTIONS; i++) {
        const projection p = projection_of(shape, i);
        sections s;
        layout_sections(&p, at, &s);
        open_matrix(&p, &s, record, header.flags, to[i]);
        at = s.end;
    }
}

static mox_rowmajor_place place_of(const projection *p, const sections *s)
{
    const moxie_quant *q = p->quant;
    mox_rowmajor_place place = { .rows = p->rows, .cols = p->cols };
    if (p->rows == 0)
        return place;
    place.codes = s->codes;
    place.row_bytes = mox_dense_row_bytes(q->element, p->cols);
    place.scale_rows = mox_scale_rows(q, p->rows);
    place.scale_cols = mox_scale_cols(q, p->cols);
    place.group_rows = mox_group_rows(q, p->rows);
    place.group_cols = mox_group_cols(q, p->cols);
    place.scale = q->scale != MOXIE_DTYPE_NONE ? s->scale : 0;
    place.zero = q->has_zero ? s->zero : 0;
    place.global = q->global != MOXIE_GLOBAL_NONE ? s->global : 0;
    place.bias = p->bias ? s->bias : 0;
    if (can_reorder(p)) {
        place.order_flag = p->order_flag;
        place.group_index = s->group_index;
        place.visit = s->visit;
    }
    return place;
}

void mox_rowmajor_locate(const mox_record_shape *shape, mox_rowmajor_places *out)
{
    mox_rowmajor_place *const to[PROJECTIONS] = { &out->gate, &out->up, &out->down };
    sections s[PROJECTIONS];
    all_sections(shape, s);
    for (int i = 0; i < PROJECTIONS; i++) {
        const projection p = projection_of(shape, i);
        *to[i] = place_of(&p, &s[i]);
    }
}

static moxie_grid float_view(const float *data, int64_t rows, int64_t cols)
{
    return data != NULL ? mox_grid_dense(data, MOXIE_F32, rows, cols) : (moxie_grid) { 0 };
}

static moxie_matrix matrix_view(const moxie_quant *q, const mox_rowmajor_matrix *m)
{
    moxie_matrix view = { .group_index = m->group_index };
    if (m->codes == NULL)
        return view;
    view.codes = mox_grid_dense(m->codes, q->element, m->rows, m->cols);
    if (m->scale != NULL)
        view.scale = mox_grid_dense(m->scale, q->scale, m->scale_rows, m->scale_cols);
    view.zero = float_view(m->zero, m->scale_rows, m->scale_cols);
    view.global = float_view(m->global, m->rows, 1);
    view.bias = float_view(m->bias, m->rows, 1);
    return view;
}

void mox_rowmajor_view(const mox_record_shape *shape, const void *record, moxie_expert *out)
{
    mox_rowmajor_record from;
    mox_rowmajor_open(shape, record, &from);
    mox_record_header header;
    memcpy(&header, record, sizeof header);
    *out = (moxie_expert) { .gate = matrix_view(&shape->w13, &from.gate),
                            .up = matrix_view(&shape->w13, &from.up),
                            .down = matrix_view(&shape->w2, &from.down),
                            .a13_scale = header.a13_scale,
                            .a2_scale = header.a2_scale };
}
