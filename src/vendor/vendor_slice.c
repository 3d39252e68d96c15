/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor_slice.c - which slice of the intermediate size each rank gets, and the views of it (vendor_slice.h).
 */
#include "vendor/vendor_slice.h"

#include <stdio.h>

#include "base/sizes.h"

/* The unit of slices, and the rules that it comes from, for errors. */
typedef struct slice_unit {
    int64_t unit, limits; /* unit: by all rules; limits: by the limits of the layout alone */
    char why[320];
} slice_unit;

static void add_rule(slice_unit *u, int64_t multiple, const char *why)
{
    const size_t at = strlen(u->why);
    if (multiple <= 1)
        return;
    u->unit = mox_common_multiple(u->unit, multiple);
    snprintf(u->why + at, sizeof u->why - at, "%s%lld: %s", at > 0 ? "; " : "", (long long)multiple, why);
}

static void find_unit(const mox_vendor_layout *layout, const mox_record_shape *whole, const moxie_expert *example,
                      bool pad, slice_unit *u)
{
    *u = (slice_unit) { .unit = 1, .limits = 1 };
    for (const mox_vendor_limit *l = layout->limits; l < layout->limits + MOX_VENDOR_LIMITS && l->multiple; l++)
        if (l->extent == MOX_VENDOR_INTERMEDIATE && !(pad && l->pads)) {
            add_rule(u, l->multiple, l->why);
            u->limits = mox_common_multiple(u->limits, l->multiple);
        }
    int64_t rows = mox_matrix_slice_multiple(&example->up, &whole->w13, false);
    if (whole->gated)
        rows = mox_common_multiple(rows, mox_matrix_slice_multiple(&example->gate, &whole->w13, false));
    add_rule(u, rows, "groups and words of the checkpoint along w13's rows");
    add_rule(u, mox_matrix_slice_multiple(&example->down, &whole->w2, true),
             "groups and words of the checkpoint along w2's columns");
}

static moxie_status reject_rest(const mox_vendor_layout *layout, const slice_unit *u, int64_t intermediate,
                                int32_t ranks, moxie_error *error)
{
    const int64_t below = intermediate / u->limits * u->limits;
    char smaller[32] = "";
    if (below > 0)
        snprintf(smaller, sizeof smaller, "%lld or ", (long long)below);
    return mox_fail(MOXIE_ERR_UNSUPPORTED, error,
                    "layout %s: an intermediate size of %lld cannot be cut for %d ranks: slices are multiples of %lld "
                    "(%s), and the slice of rank %d would end %lld past one; the nearest sizes that would do: %s%lld",
                    layout->name, (long long)intermediate, (int)ranks, (long long)u->unit, u->why, (int)ranks - 1,
                    (long long)(intermediate % u->limits), smaller, (long long)(below + u->limits));
}

static moxie_status reject_ranks(const mox_vendor_layout *layout, const slice_unit *u, int64_t intermediate,
                                 int64_t units, int32_t ranks, moxie_error *error)
{
    return mox_fail(MOXIE_ERR_UNSUPPORTED, error,
                    "layout %s: an intermediate size of %lld has %lld slices of %lld (%s), so of %d ranks rank %lld "
                    "would get none; the nearest that would do: %lld rank%s, or an intermediate size of %lld",
                    layout->name, (long long)intermediate, (long long)units, (long long)u->unit, u->why, (int)ranks,
                    (long long)units, (long long)units, units == 1 ? "" : "s", (long long)(ranks * u->unit));
}

moxie_status mox_vendor_slice_make(const mox_vendor_layout *layout, const mox_record_shape *whole,
                                   const moxie_expert *example, bool pad, int32_t rank, int32_t ranks,
                                   mox_vendor_slice *out, moxie_error *error)
{
    const int64_t intermediate = whole->intermediate;
    MOX_FAIL_IF(ranks < 1 || rank < 0 || rank >= ranks, MOXIE_ERR_ARGUMENT, error,
                "tensor parallel: rank %d of %d; ranks count from 0", (int)rank, (int)ranks);
    if (ranks == 1) {
        *out = (mox_vendor_slice) { .ranks = 1, .count = intermediate, .unit = intermediate };
        return MOXIE_OK;
    }
    slice_unit u;
    find_unit(layout, whole, example, pad, &u);
    const int64_t units = mox_ceil_div(intermediate, u.unit);
    if (intermediate % u.limits != 0)
        return reject_rest(layout, &u, intermediate, ranks, error);
    if (units < ranks)
        return reject_ranks(layout, &u, intermediate, units, ranks, error);
    const int64_t base = units / ranks, more = units % ranks;
    const int64_t first = (rank * base + mox_min_i64(rank, more)) * u.unit;
    const int64_t count = mox_min_i64((base + (rank < more)) * u.unit, intermediate - first);
    *out = (mox_vendor_slice) { .rank = rank, .ranks = ranks, .first = first, .count = count, .unit = u.unit };
    return MOXIE_OK;
}

mox_record_shape mox_vendor_slice_shape(const mox_record_shape *whole, const mox_vendor_slice *slice)
{
    mox_record_shape shape = *whole;
    shape.intermediate = slice->count;
    return shape;
}

uint64_t mox_vendor_slice_scratch(const mox_record_shape *whole, const mox_vendor_slice *slice,
                                  const moxie_expert *expert)
{
    return slice->rank > 0 && whole->bias2 ? mox_dense_bytes(expert->down.bias.dtype, whole->hidden, 1) : 0;
}

moxie_status mox_vendor_slice_expert(const mox_record_shape *whole, const mox_vendor_slice *slice,
                                     const moxie_expert *expert, void *scratch, moxie_expert *out, moxie_error *error)
{
    moxie_expert sliced = *expert;
    if (slice->ranks == 1) {
        *out = sliced;
        return MOXIE_OK;
    }
    const mox_rectangle rows = { slice->first, slice->count, 0, whole->hidden };
    const mox_rectangle cols = { 0, whole->hidden, slice->first, slice->count };
    if (whole->gated)
        MOX_TRY(mox_matrix_slice(&expert->gate, &whole->w13, &rows, "gate", &sliced.gate, error));
    MOX_TRY(mox_matrix_slice(&expert->up, &whole->w13, &rows, "up", &sliced.up, error));
    MOX_TRY(mox_matrix_slice(&expert->down, &whole->w2, &cols, "down", &sliced.down, error));
    if (mox_vendor_slice_scratch(whole, slice, expert) > 0)
        sliced.down.bias = mox_grid_dense(scratch, expert->down.bias.dtype, whole->hidden, 1);
    *out = sliced;
    return MOXIE_OK;
}
