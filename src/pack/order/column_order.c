/* SPDX-License-Identifier: Apache-2.0
 *
 * column_order.c - finds, checks and makes the permutations of columns in a record (column_order.h).
 *
 *     accepts    each group has all its columns; gate and up, which read the same activations, have the same order
 *     orders     at the end of the record, each on a 256-byte boundary: records lie end to end, and a GPU's layouts
 *                want them on such boundaries
 */
#include "pack/order/column_order.h"

#include <stdio.h>

#include "base/sizes.h"
#include "pack/grid_move.h"
#include "pack/order/sorted_matrix.h"

/* ---- the end of a record -------------------------------------------------------------------------------------- */

enum { ALIGN = 256 };

static uint64_t padded(int64_t cols)
{
    return ((uint64_t)cols * sizeof(int32_t) + ALIGN - 1) / ALIGN * ALIGN;
}

static int64_t cols_of(const mox_record_shape *shape, bool second)
{
    return second ? shape->intermediate : shape->hidden;
}

uint64_t mox_column_order_bytes(const mox_record_shape *shape)
{
    const bool fits = shape->hidden <= INT32_MAX && shape->intermediate <= INT32_MAX;
    return fits ? 2 * (padded(shape->hidden) + padded(shape->intermediate)) : UINT64_MAX;
}

uint64_t mox_column_order_at(const mox_record_shape *shape, bool second)
{
    return second ? 2 * padded(shape->hidden) : 0;
}

static int32_t *order_in(const mox_record_shape *shape, void *orders, bool second)
{
    return (int32_t *)(void *)((uint8_t *)orders + mox_column_order_at(shape, second));
}

static int32_t *place_in(const mox_record_shape *shape, void *orders, bool second)
{
    return order_in(shape, orders, second) + padded(cols_of(shape, second)) / sizeof(int32_t);
}

mox_column_order mox_column_order_of(const mox_record_shape *shape, const void *record, bool second)
{
    mox_record_header header;
    memcpy(&header, record, sizeof header);
    if ((header.flags & (second ? MOX_ORDER_W2 : MOX_ORDER_W13)) == 0)
        return (mox_column_order) { 0 };
    void *orders = (uint8_t *)(uintptr_t)record + header.bytes - mox_column_order_bytes(shape);
    return (mox_column_order) { order_in(shape, orders, second), place_in(shape, orders, second) };
}

static bool is_permutation(const mox_column_order *o, int64_t cols)
{
    for (int64_t i = 0; o->order != NULL && i < cols; i++)
        if (o->order[i] < 0 || o->order[i] >= cols || o->place[o->order[i]] != i)
            return false;
    return true;
}

bool mox_column_order_is_valid(const mox_layout *layout, const mox_record_shape *shape, const void *record)
{
    mox_record_header header;
    memcpy(&header, record, sizeof header);
    if (layout->base == NULL)
        return (header.flags & (MOX_ORDER_W13 | MOX_ORDER_W2)) == 0;
    const mox_column_order first = mox_column_order_of(shape, record, false);
    const mox_column_order second = mox_column_order_of(shape, record, true);
    return is_permutation(&first, shape->hidden) && is_permutation(&second, shape->intermediate);
}

uint32_t mox_record_act_order(const mox_layout *layout, const void *record)
{
    mox_record_header header;
    memcpy(&header, record, sizeof header);
    if (layout == &mox_layout_rowmajor)
        return header.flags;
    if (layout->base == NULL)
        return 0;
    return (header.flags & MOX_ORDER_W13 ? MOX_ROWMAJOR_ORDER_GATE | MOX_ROWMAJOR_ORDER_UP : 0) |
           (header.flags & MOX_ORDER_W2 ? MOX_ROWMAJOR_ORDER_DOWN : 0);
}

bool mox_ordered_record_bytes(const mox_layout *base, const mox_record_shape *shape, uint64_t *out)
{
    return base->record_bytes(shape, out) && mox_add_u64(*out, mox_column_order_bytes(shape), out);
}

/* ---- which experts it holds ----------------------------------------------------------------------------------- */

static bool is_natural(const moxie_matrix *m, const moxie_quant *q)
{
    return mox_pack_is_natural_order(m->group_index, m->codes.cols, mox_group_cols(q, m->codes.cols));
}

/* Every group has as many columns as in natural order, so that sorting gives natural groups. */
static bool has_whole_groups(const moxie_matrix *m, const moxie_quant *q, const char *name, char *reason, size_t size)
{
    const int64_t cols = m->codes.cols, group_cols = mox_group_cols(q, cols);
    for (int64_t g = 0; g < mox_scale_cols(q, cols); g++) {
        const int64_t want = mox_min_i64(group_cols, cols - g * group_cols);
        int64_t count = 0;
        for (int64_t k = 0; k < cols; k++)
            count += m->group_index[k] == g;
        if (count != want) {
            snprintf(reason, size, "the group index of %s gives group %lld %lld columns, sorted columns need %lld",
                     name, (long long)g, (long long)count, (long long)want);
            return false;
        }
    }
    return true;
}

static bool accepts_matrix(const moxie_matrix *m, const moxie_quant *q, const char *name, char *reason, size_t size)
{
    if (is_natural(m, q))
        return true;
    const int32_t bits = mox_dtype_bits(q->element);
    if (bits != 4 && bits != 8) {
        snprintf(reason, size, "the group index of %s reorders elements of %d bits, columns are sorted of 4 and 8 bits",
                 name, (int)bits);
        return false;
    }
    return has_whole_groups(m, q, name, reason, size);
}

static bool same_order(const moxie_matrix *gate, const moxie_matrix *up, const moxie_quant *q)
{
    const int64_t cols = up->codes.cols, group_cols = mox_group_cols(q, cols);
    for (int64_t k = 0; k < cols; k++) {
        const int64_t a = gate->group_index != NULL ? gate->group_index[k] : k / group_cols;
        const int64_t b = up->group_index != NULL ? up->group_index[k] : k / group_cols;
        if (a != b)
            return false;
    }
    return true;
}

bool mox_ordered_accepts(const mox_layout *base, const mox_record_shape *shape, const moxie_expert *expert,
                         char *reason, size_t size)
{
    moxie_expert sorted = *expert;
    sorted.gate.group_index = sorted.up.group_index = sorted.down.group_index = NULL;
    if (base->accepts != NULL && !base->accepts(shape, &sorted, reason, size))
        return false;
    if (shape->gated && !same_order(&expert->gate, &expert->up, &shape->w13)) {
        snprintf(reason, size, "gate's columns are in another act order than up's, and both read the same activations");
        return false;
    }
    return accepts_matrix(&expert->up, &shape->w13, "up", reason, size) &&
           accepts_matrix(&expert->down, &shape->w2, "down", reason, size);
}

/* ---- packing -------------------------------------------------------------------------------------------------- */

static moxie_status pack_base(const mox_layout *base, const mox_record_shape *shape, const moxie_expert *expert,
                              void *record, moxie_error *error)
{
    if (base->pack_part == NULL)
        return base->pack(shape, expert, record, error);
    for (int64_t part = 0; part < base->parts(shape); part++)
        MOX_TRY(base->pack_part(shape, expert, part, record, error));
    return MOXIE_OK;
}

/* Writes the order of a product at the record's end. */
static void put_order(const mox_record_shape *shape, const moxie_matrix *m, bool second, void *orders)
{
    const int64_t cols = cols_of(shape, second);
    int32_t *order = order_in(shape, orders, second), *place = place_in(shape, orders, second);
    mox_pack_sort_columns(m->group_index, cols, mox_scale_cols(second ? &shape->w2 : &shape->w13, cols), order);
    for (int64_t i = 0; i < cols; i++)
        place[order[i]] = (int32_t)i;
}

/* The expert with its columns sorted; its codes are in memory of `arena`. */
static moxie_status sort_expert(const mox_record_shape *shape, const moxie_expert *expert, void *orders,
                                mox_arena *arena, moxie_expert *out, uint32_t *flags)
{
    *out = *expert;
    *flags = 0;
    if (!is_natural(&expert->up, &shape->w13)) {
        *flags |= MOX_ORDER_W13;
        put_order(shape, &expert->up, false, orders);
        if (shape->gated)
            MOX_TRY(mox_sorted_matrix(&expert->gate, order_in(shape, orders, false), arena, &out->gate));
        MOX_TRY(mox_sorted_matrix(&expert->up, order_in(shape, orders, false), arena, &out->up));
    }
    if (is_natural(&expert->down, &shape->w2))
        return MOXIE_OK;
    *flags |= MOX_ORDER_W2;
    put_order(shape, &expert->down, true, orders);
    return mox_sorted_matrix(&expert->down, order_in(shape, orders, true), arena, &out->down);
}

moxie_status mox_ordered_pack(const mox_layout *base, const mox_record_shape *shape, const moxie_expert *expert,
                              void *record, moxie_error *error)
{
    mox_arena arena = { 0 };
    moxie_expert sorted;
    uint64_t bytes;
    uint32_t flags;
    MOX_FAIL_IF(!base->record_bytes(shape, &bytes), MOXIE_ERR_ARGUMENT, error,
                "the record's size does not fit in 64 bits");
    moxie_status status = sort_expert(shape, expert, (uint8_t *)record + bytes, &arena, &sorted, &flags);
    if (status != MOXIE_OK)
        status = mox_fail(status, error, "no memory to sort the columns of an expert in act order");
    if (status == MOXIE_OK)
        status = pack_base(base, shape, &sorted, record, error);
    memcpy((uint8_t *)record + offsetof(mox_record_header, flags), &flags, sizeof flags);
    mox_arena_free(&arena);
    return status;
}

/* ---- unpacking ------------------------------------------------------------------------------------------------ */

/* A matrix like `to` whose codes are dense memory of `arena`, in the record's order. */
static moxie_status hold_sorted(const moxie_matrix *to, mox_arena *arena, moxie_matrix *out)
{
    const moxie_grid *codes = &to->codes;
    void *memory = mox_arena_alloc(arena, mox_dense_bytes(codes->dtype, codes->rows, codes->cols));
    if (memory == NULL)
        return MOXIE_ERR_MEMORY;
    *out = *to;
    out->codes = mox_grid_dense(memory, codes->dtype, codes->rows, codes->cols);
    out->group_index = NULL;
    return MOXIE_OK;
}

static void put_group_index(const moxie_matrix *to, const moxie_quant *q, const int32_t *order)
{
    int32_t *group_index = (int32_t *)(uintptr_t)to->group_index;
    const int64_t cols = to->codes.cols, group_cols = mox_group_cols(q, cols);
    for (int64_t i = 0; group_index != NULL && i < cols; i++)
        group_index[order[i]] = (int32_t)(i / group_cols);
}

static moxie_status unsort(const moxie_matrix *sorted, const moxie_quant *q, const mox_column_order *o,
                           mox_arena *arena, const moxie_matrix *to)
{
    put_group_index(to, q, o->order);
    return mox_unsort_matrix(sorted, o->place, arena, to);
}

static moxie_status unpack_sorted(const mox_layout *base, const mox_record_shape *shape, const void *record,
                                  mox_arena *arena, moxie_expert *out, moxie_error *error)
{
    const mox_column_order first = mox_column_order_of(shape, record, false);
    const mox_column_order second = mox_column_order_of(shape, record, true);
    moxie_expert sorted = *out;
    MOX_FAIL_IF(!is_permutation(&first, shape->hidden) || !is_permutation(&second, shape->intermediate),
                MOXIE_ERR_FORMAT, error, "the record has an order of columns that is no permutation: prepare it anew");
    if (first.order != NULL && shape->gated)
        MOX_TRY(hold_sorted(&out->gate, arena, &sorted.gate));
    if (first.order != NULL)
        MOX_TRY(hold_sorted(&out->up, arena, &sorted.up));
    if (second.order != NULL)
        MOX_TRY(hold_sorted(&out->down, arena, &sorted.down));
    MOX_TRY(base->unpack(shape, record, &sorted, error));
    out->a13_scale = sorted.a13_scale;
    out->a2_scale = sorted.a2_scale;
    if (first.order != NULL && shape->gated)
        MOX_TRY(unsort(&sorted.gate, &shape->w13, &first, arena, &out->gate));
    if (first.order != NULL)
        MOX_TRY(unsort(&sorted.up, &shape->w13, &first, arena, &out->up));
    return second.order != NULL ? unsort(&sorted.down, &shape->w2, &second, arena, &out->down) : MOXIE_OK;
}

moxie_status mox_ordered_unpack(const mox_layout *base, const mox_record_shape *shape, const void *record,
                                moxie_expert *out, moxie_error *error)
{
    mox_arena arena = { 0 };
    moxie_status status = unpack_sorted(base, shape, record, &arena, out, error);
    if (status == MOXIE_ERR_MEMORY)
        status = mox_fail(status, error, "no memory to bring an expert's columns back to act order");
    mox_arena_free(&arena);
    return status;
}
