/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor_plan.c - the list of vendor layouts, and the plan of one layout for one shape, or why there is none
 * (vendor.h).
 *
 *     accepts   elements, scales, groups, zero points, bias: what the target's kernel can read at all
 *     limits    multiples of hidden and intermediate; padding only where the target pads, and only on request
 *     tensors   parts in the order of the table, then constants, act order, and the scalars for undo
 */
#include "vendor/vendor_internal.h"
#include "vendor/vendor_parts.h"

#include <stdio.h>

#include "base/sizes.h"
#include "pack/grid_move.h"

/* Limit of one part. Padding, widening and the sum over the parts of an expert then fit in 64 bits. */
#define MAX_PART_BYTES (UINT64_C(1) << 56)

#define MOX_VENDOR_LAYOUT(object, release, also) extern const mox_vendor_layout object;
#include "pack/layouts.def"
#undef MOX_VENDOR_LAYOUT

static const struct {
    const mox_vendor_layout *layout;
    const char *release, *also;
} layouts[] = {
#define MOX_VENDOR_LAYOUT(object, release, also) { &object, release, also },
#include "pack/layouts.def"
#undef MOX_VENDOR_LAYOUT
};

const mox_vendor_layout *mox_vendor_at(int32_t i)
{
    return i >= 0 && (size_t)i < sizeof layouts / sizeof layouts[0] ? layouts[i].layout : NULL;
}

static size_t row_of(const mox_vendor_layout *layout)
{
    size_t i = 0;
    while (layouts[i].layout != layout)
        i++;
    return i;
}

const char *mox_vendor_release(const mox_vendor_layout *layout)
{
    return layouts[row_of(layout)].release;
}

const char *mox_vendor_also(const mox_vendor_layout *layout)
{
    return layouts[row_of(layout)].also;
}

/* `list`: words separated by single spaces. */
static bool has_word(const char *list, const char *word)
{
    const size_t length = strlen(word);
    while (*list != '\0') {
        const size_t here = strcspn(list, " ");
        if (here == length && !memcmp(list, word, length))
            return true;
        list += here + (list[here] == ' ');
    }
    return false;
}

const mox_vendor_layout *mox_vendor_find(const char *name, const char *release)
{
    for (int32_t i = 0; mox_vendor_at(i) != NULL; i++)
        if (!strcmp(mox_vendor_at(i)->name, name) &&
            (release == NULL || !strcmp(layouts[i].release, release) || has_word(layouts[i].also, release)))
            return mox_vendor_at(i);
    return NULL;
}

const mox_vendor_layout *mox_vendor_by_name(const char *name)
{
    return mox_vendor_find(name, NULL);
}

/* ---- what a layout accepts ------------------------------------------------------------------------ */

static bool has_dtype(const moxie_dtype list[4], moxie_dtype dtype)
{
    for (int i = 0; i < 4 && list[i] != MOXIE_DTYPE_NONE; i++)
        if (list[i] == dtype)
            return true;
    return list[0] == MOXIE_DTYPE_NONE && dtype == MOXIE_DTYPE_NONE;
}

/* The list in words, for errors. */
static const char *dtypes_of(const moxie_dtype list[4], char *buffer, size_t size)
{
    size_t at = (size_t)snprintf(buffer, size, "%s", moxie_dtype_name(list[0]));
    for (int i = 1; i < 4 && list[i] != MOXIE_DTYPE_NONE && at < size; i++)
        at += (size_t)snprintf(buffer + at, size - at, " or %s", moxie_dtype_name(list[i]));
    return list[0] == MOXIE_DTYPE_NONE ? "none" : buffer;
}

/* A group wider than the row counts as the row, except for targets that use the number in the configuration. */
static bool has_group(const mox_vendor_accepts *accepts, const moxie_quant *quant, int64_t cols)
{
    const int64_t group = accepts->min_group > 0 ? quant->group_cols : mox_group_cols(quant, cols);
    for (int i = 0; i < 6 && accepts->group_cols[i] != 0; i++)
        if (accepts->group_cols[i] == group || (accepts->group_cols[i] == -1 && group == cols))
            return true;
    return accepts->group_cols[0] == 0;
}

static bool has_group_rows(const mox_vendor_accepts *accepts, const moxie_quant *quant, int64_t rows)
{
    const int64_t group = mox_group_rows(quant, rows);
    for (int i = 0; i < 4 && accepts->group_rows[i] != 0; i++)
        if (accepts->group_rows[i] == group || (accepts->group_rows[i] == -1 && group == rows))
            return true;
    return accepts->group_rows[0] == 0 && group == 1;
}

static moxie_status check_quant(const mox_vendor_layout *layout, const moxie_quant *quant, int64_t rows, int64_t cols,
                                const char *what, moxie_error *error)
{
    const mox_vendor_accepts *accepts = &layout->accepts;
    char found[96], list[64];
    mox_quant_describe(quant, found, sizeof found);
    MOX_FAIL_IF(!has_dtype(accepts->elements, quant->element), MOXIE_ERR_UNSUPPORTED, error,
                "layout %s: %s is %s, its elements must be %s", layout->name, what, found,
                dtypes_of(accepts->elements, list, sizeof list));
    MOX_FAIL_IF(!has_dtype(accepts->scales, quant->scale), MOXIE_ERR_UNSUPPORTED, error,
                "layout %s: %s is %s, its scales must be %s", layout->name, what, found,
                dtypes_of(accepts->scales, list, sizeof list));
    MOX_FAIL_IF(quant->scale != MOXIE_DTYPE_NONE &&
                    (!has_group(accepts, quant, cols) || !has_group_rows(accepts, quant, rows)),
                MOXIE_ERR_UNSUPPORTED, error,
                "layout %s: %s is %s, and the target has no kernel for these groups; `moxie prepare --list` "
                "shows the groups that it accepts",
                layout->name, what, found);
    MOX_FAIL_IF(quant->has_zero && !accepts->zeros, MOXIE_ERR_UNSUPPORTED, error,
                "layout %s: %s has zero points, and the target accepts none", layout->name, what);
    MOX_FAIL_IF(!quant->has_zero && accepts->zeros && !accepts->no_zeros, MOXIE_ERR_UNSUPPORTED, error,
                "layout %s: %s has no zero points, and the target requires them", layout->name, what);
    MOX_FAIL_IF((quant->global != MOXIE_GLOBAL_NONE) != (accepts->global != MOXIE_GLOBAL_NONE), MOXIE_ERR_UNSUPPORTED,
                error, "layout %s: %s %s a global scale, and the target %s", layout->name, what,
                quant->global != MOXIE_GLOBAL_NONE ? "has" : "lacks",
                accepts->global != MOXIE_GLOBAL_NONE ? "requires one" : "accepts none");
    return MOXIE_OK;
}

static moxie_status check_accepted(const mox_vendor_layout *layout, const mox_record_shape *shape, moxie_error *error)
{
    MOX_TRY(check_quant(layout, &shape->w13, shape->intermediate, shape->hidden, "w13", error));
    MOX_TRY(check_quant(layout, &shape->w2, shape->hidden, shape->intermediate, "w2", error));
    MOX_FAIL_IF((shape->bias13 || shape->bias2) && !layout->accepts.bias, MOXIE_ERR_UNSUPPORTED, error,
                "layout %s: the experts have biases, and the target accepts none", layout->name);
    MOX_FAIL_IF(!shape->gated && !layout->accepts.ungated, MOXIE_ERR_UNSUPPORTED, error,
                "layout %s: the experts have no gate, and the target requires gate and up", layout->name);
    return MOXIE_OK;
}

/* ---- limits and padding --------------------------------------------------------------------------- */

/* Checks one extent against all its limits, or pads it. */
static moxie_status resolve_extent(const mox_vendor_layout *layout, mox_vendor_extent which, bool gated, bool pad,
                                   int64_t *extent, moxie_error *error)
{
    const char *name = which == MOX_VENDOR_HIDDEN ? "hidden" : "intermediate";
    for (const mox_vendor_limit *limit = layout->limits; limit < layout->limits + MOX_VENDOR_LIMITS; limit++) {
        const int32_t multiple = !gated && limit->ungated != 0 ? limit->ungated : limit->multiple;
        if (multiple == 0 || limit->extent != which || *extent % multiple == 0)
            continue;
        const int64_t below = *extent / multiple * multiple, above = below + multiple;
        if (pad && limit->pads) {
            *extent = above;
            continue;
        }
        char nearest[64];
        snprintf(nearest, sizeof nearest, below > 0 ? "%lld or %lld" : "%.0lld%lld", (long long)below,
                 (long long)above);
        MOX_FAIL_IF(true, MOXIE_ERR_UNSUPPORTED, error,
                    "layout %s: %s is %lld, which must be a multiple of %d: %s; the nearest that would do: %s%s",
                    layout->name, name, (long long)*extent, multiple, limit->why, nearest,
                    limit->pads ? " (padding with zeros: --pad)" : "");
    }
    return MOXIE_OK;
}

static moxie_status check_dtypes(const mox_vendor_plan *plan, moxie_error *error)
{
    const mox_vendor_accepts *accepts = &plan->layout->accepts;
    char list[64];
    MOX_FAIL_IF(plan->shape.w13.has_zero && plan->zero[0] != plan->shape.w13.element, MOXIE_ERR_UNSUPPORTED, error,
                "layout %s: zero points are %s, and the target requires the dtype of the weights, %s",
                plan->layout->name, moxie_dtype_name(plan->zero[0]), moxie_dtype_name(plan->shape.w13.element));
    for (int i = 0; i < 2; i++)
        MOX_FAIL_IF(plan->bias[i] != MOXIE_DTYPE_NONE && accepts->biases[0] != MOXIE_DTYPE_NONE &&
                        !has_dtype(accepts->biases, plan->bias[i]),
                    MOXIE_ERR_UNSUPPORTED, error, "layout %s: the bias of %s is %s, and the target accepts %s",
                    plan->layout->name, i ? "w2" : "w13", moxie_dtype_name(plan->bias[i]),
                    dtypes_of(accepts->biases, list, sizeof list));
    return MOXIE_OK;
}

/* ---- tensors -------------------------------------------------------------------------------------- */

static int64_t round_up(int64_t value, int64_t multiple)
{
    return mox_ceil_div(value, multiple) * multiple;
}

/* The dtype of the elements of a part in the checkpoint; NONE when the experts have no such part. */
static moxie_dtype source_dtype(const mox_vendor_plan *plan, const mox_vendor_part *part)
{
    const bool second = part->projection == MOX_VENDOR_W2;
    const moxie_quant *quant = second ? &plan->shape.w2 : &plan->shape.w13;
    switch (part->of) {
    case MOX_VENDOR_CODES: return quant->element;
    case MOX_VENDOR_SCALES: return quant->scale;
    case MOX_VENDOR_ZEROS:
        return quant->has_zero && !(part->how & (plan->use.symmetric ? MOX_VENDOR_ASYMMETRIC : MOX_VENDOR_SYMMETRIC))
                   ? plan->zero[second]
                   : MOXIE_DTYPE_NONE;
    default: return (second ? plan->shape.bias2 : plan->shape.bias13) ? plan->bias[second] : MOXIE_DTYPE_NONE;
    }
}

/* Rows of one matrix, and columns, of a part; padded as the plan says. */
static void extents_of(const mox_vendor_plan *plan, const mox_vendor_part *part, int64_t *rows, int64_t *cols)
{
    const bool second = part->projection == MOX_VENDOR_W2;
    const moxie_quant *quant = second ? &plan->shape.w2 : &plan->shape.w13;
    *rows = second ? plan->hidden : plan->intermediate;
    *cols = second ? plan->intermediate : plan->hidden;
    if (part->of == MOX_VENDOR_SCALES || part->of == MOX_VENDOR_ZEROS) {
        *rows = part->how & MOX_VENDOR_SPREAD ? *rows : mox_scale_rows(quant, *rows);
        *cols = mox_vendor_scale_cols(plan, part, *cols);
    }
    if (part->of == MOX_VENDOR_BIAS)
        *cols = 1;
}

const mox_vendor_code *mox_vendor_code_for(const mox_vendor_code *code, moxie_dtype dtype)
{
    while (code != NULL && code->of != dtype)
        code = code->fallback;
    return code;
}

/* The dtype of a tensor that holds such elements unchanged: one that files have a name for. */
static moxie_dtype stored_as(moxie_dtype source)
{
    return mox_dtype_bytes(source) == 0 || source == MOXIE_U8B128 ? MOXIE_U8 : source;
}

static moxie_status measure_matrix(const mox_vendor_plan *plan, mox_vendor_tensor *tensor, moxie_error *error)
{
    const mox_vendor_part *part = tensor->part;
    const mox_vendor_order *order = part->order;
    mox_vendor_matrix *m = &tensor->matrix;
    extents_of(plan, part, &tensor->half_rows, &m->cols);
    m->rows = tensor->half_rows * (part->projection == MOX_VENDOR_W13 && plan->shape.gated ? 2 : 1);
    m->rows = round_up(m->rows, order->pad_rows);
    m->cols = round_up(m->cols, order->pad_cols);
    const moxie_dtype source = source_dtype(plan, part);
    const mox_vendor_code *code = mox_vendor_code_for(part->code, source);
    m->bits = code != NULL ? code->out_bits : mox_dtype_bits(source);
    tensor->dtype = part->dtype != MOXIE_DTYPE_NONE ? part->dtype : stored_as(source);
    m->item_bytes = mox_dtype_bytes(tensor->dtype);
    m->row_bytes = mox_ceil_div(m->cols * m->bits, 8);
    uint64_t bytes;
    MOX_FAIL_IF(!mox_mul_u64((uint64_t)m->rows, (uint64_t)m->row_bytes, &bytes) || bytes > MAX_PART_BYTES,
                MOXIE_ERR_UNSUPPORTED, error,
                "layout %s: %s has %lld rows of %lld bytes, more than a tensor of a real model has: check the shapes",
                plan->layout->name, part->name, (long long)m->rows, (long long)m->row_bytes);
    MOX_FAIL_IF(part->rows != NULL && m->rows % part->rows->multiple != 0, MOXIE_ERR_UNSUPPORTED, error,
                "layout %s: %s has %lld rows, which %s permutes in blocks of %d", plan->layout->name, part->name,
                (long long)m->rows, part->rows->name, part->rows->multiple);
    MOX_FAIL_IF(m->rows % order->step != 0 || m->row_bytes % order->bytes_multiple != 0 ||
                    (order->shape == NULL && m->row_bytes % m->item_bytes != 0),
                MOXIE_ERR_UNSUPPORTED, error,
                "layout %s: %s has %lld rows of %lld bytes; order %s requires multiples of %d rows and %d bytes",
                plan->layout->name, part->name, (long long)m->rows, (long long)m->row_bytes, order->name, order->step,
                order->bytes_multiple > m->item_bytes ? order->bytes_multiple : m->item_bytes);
    return MOXIE_OK;
}

static moxie_status add_part(mox_vendor_plan *plan, const mox_vendor_part *part, moxie_error *error)
{
    mox_vendor_tensor *t = &plan->tensors[plan->count];
    *t = (mox_vendor_tensor) { .name = part->name, .kind = MOX_VENDOR_PART, .part = part };
    MOX_TRY(measure_matrix(plan, t, error));
    const mox_vendor_matrix *m = &t->matrix;
    if (part->order->shape != NULL) {
        t->rank = part->order->shape(m, t->shape);
    } else {
        t->rank = 2;
        t->shape[0] = m->rows;
        t->shape[1] = m->row_bytes / m->item_bytes;
    }
    t->bytes = part->order->bytes != NULL ? part->order->bytes(m) : (uint64_t)m->rows * (uint64_t)m->row_bytes;
    plan->count++;
    return MOXIE_OK;
}

static void add_values(mox_vendor_plan *plan, const char *name, const mox_vendor_constant *constant, int64_t count)
{
    plan->tensors[plan->count++] =
        (mox_vendor_tensor) { .name = name,
                              .kind = constant ? MOX_VENDOR_CONSTANT : MOX_VENDOR_SCALAR_VALUES,
                              .constant = constant,
                              .dtype = MOXIE_F32,
                              .rank = count > 1,
                              .shape = { count },
                              .bytes = (uint64_t)count * sizeof(float) };
}

/* Adds a tensor with one value for each column of W13 or W2. */
static void add_columns(mox_vendor_plan *plan, const char *name, mox_vendor_kind kind, mox_vendor_projection projection)
{
    const int64_t cols = projection == MOX_VENDOR_W2 ? plan->intermediate : plan->hidden;
    plan->tensors[plan->count++] = (mox_vendor_tensor) { .name = name,
                                                         .kind = kind,
                                                         .projection = projection,
                                                         .dtype = MOXIE_I32,
                                                         .rank = 1,
                                                         .shape = { cols },
                                                         .bytes = (uint64_t)cols * sizeof(int32_t) };
}

static bool in_natural_order(const moxie_matrix *matrix, const moxie_quant *quant)
{
    return mox_pack_is_natural_order(matrix->group_index, matrix->codes.cols,
                                     mox_group_cols(quant, matrix->codes.cols));
}

static bool has_act_order(const mox_record_shape *shape, const moxie_expert *expert)
{
    return !in_natural_order(&expert->up, &shape->w13) || !in_natural_order(&expert->down, &shape->w2) ||
           (shape->gated && !in_natural_order(&expert->gate, &shape->w13));
}

bool mox_vendor_has_scalar(const mox_record_shape *shape, mox_vendor_projection which)
{
    const moxie_quant *quant = which == MOX_VENDOR_W2 ? &shape->w2 : &shape->w13;
    const int64_t rows = which == MOX_VENDOR_W2 ? shape->hidden : shape->intermediate;
    const int64_t cols = which == MOX_VENDOR_W2 ? shape->intermediate : shape->hidden;
    return quant->scale != MOXIE_DTYPE_NONE && mox_scale_rows(quant, rows) == 1 && mox_scale_cols(quant, cols) == 1;
}

/* The layout asks whether rows are gate0 up0 gate1 up1 ... in memory, and they are. */
static bool has_pairs(const mox_vendor_layout *layout, const moxie_expert *expert)
{
    bool asks = false;
    for (int i = 0; i < MOX_VENDOR_PARTS; i++)
        asks = asks || (layout->parts[i].how & MOX_VENDOR_AS_STORED);
    if (!asks)
        return false;
    const moxie_grid *gate = &expert->gate.codes, *up = &expert->up.codes;
    return gate->data != NULL && up->data != NULL && gate->row_stride == up->row_stride && gate->row_stride > 0 &&
           (intptr_t)up->data - (intptr_t)gate->data == gate->row_stride / 2;
}

static moxie_dtype dtype_of(const moxie_grid *grid)
{
    return grid->data != NULL ? grid->dtype : MOXIE_DTYPE_NONE;
}

moxie_status mox_vendor_plan_make(const mox_vendor_layout *layout, const mox_record_shape *shape,
                                  const mox_vendor_use *use, const moxie_expert *example, bool pad,
                                  mox_vendor_plan *out, moxie_error *error)
{
    MOX_TRY(check_accepted(layout, shape, error));
    mox_vendor_plan plan = { .layout = layout,
                             .use = use != NULL ? *use : (mox_vendor_use) { .a13 = { 0 } },
                             .shape = *shape,
                             .zero = { dtype_of(&example->up.zero), dtype_of(&example->down.zero) },
                             .bias = { dtype_of(&example->up.bias), dtype_of(&example->down.bias) },
                             .hidden = shape->hidden,
                             .intermediate = shape->intermediate,
                             .act_order = layout->act_order.order[0] != NULL && has_act_order(shape, example) };
    plan.pairs = shape->gated && mox_use_has_alpha(&plan.use) && has_pairs(layout, example);
    MOX_TRY(resolve_extent(layout, MOX_VENDOR_HIDDEN, shape->gated, pad, &plan.hidden, error));
    MOX_TRY(resolve_extent(layout, MOX_VENDOR_INTERMEDIATE, shape->gated, pad, &plan.intermediate, error));
    MOX_TRY(mox_groups_resolve(&plan, pad, error));
    MOX_TRY(check_dtypes(&plan, error));
    for (const mox_vendor_part *part = layout->parts; part < layout->parts + MOX_VENDOR_PARTS && part->name; part++)
        if (source_dtype(&plan, part) != MOXIE_DTYPE_NONE)
            MOX_TRY(add_part(&plan, part, error));
    const mox_vendor_constant *constant = layout->constants;
    for (; constant < layout->constants + MOX_VENDOR_CONSTANTS && constant->name; constant++)
        if (constant->has == NULL || constant->has(&plan.use))
            add_values(&plan, constant->name, constant, 1);
    for (int i = 0; plan.act_order && i < 2; i++) {
        add_columns(&plan, layout->act_order.groups[i], MOX_VENDOR_GROUPS, (mox_vendor_projection)i);
        add_columns(&plan, layout->act_order.order[i], MOX_VENDOR_ORDER, (mox_vendor_projection)i);
    }
    if (layout->accepts.global != MOXIE_GLOBAL_NONE || layout->accepts.static_acts || example->a13_scale != 0 ||
        example->a2_scale != 0 || mox_vendor_has_scalar(shape, MOX_VENDOR_W13) ||
        mox_vendor_has_scalar(shape, MOX_VENDOR_W2))
        add_values(&plan, MOX_VENDOR_SCALARS, NULL, MOX_VENDOR_SCALAR_COUNT);
    *out = plan;
    return MOXIE_OK;
}
