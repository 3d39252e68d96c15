/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor_share.c - how large each rank's share of the intermediate size is, and the views of it (vendor_share.h).
 */
#include "vendor/vendor_share.h"

#include <stdio.h>

#include "base/sizes.h"

/* The unit of shares and where it comes from, for refusals. */
typedef struct share_unit {
    int64_t unit, limits; /* of everything; of the layout's limits alone */
    char why[320];
} share_unit;

static void add_rule(share_unit *u, int64_t multiple, const char *why)
{
    const size_t at = strlen(u->why);
    if (multiple <= 1)
        return;
    u->unit = mox_common_multiple(u->unit, multiple);
    snprintf(u->why + at, sizeof u->why - at, "%s%lld: %s", at > 0 ? "; " : "", (long long)multiple, why);
}

static void find_unit(const mox_vendor_layout *layout, const mox_record_shape *whole, const moxie_expert *example,
                      bool pad, share_unit *u)
{
    *u = (share_unit) { .unit = 1, .limits = 1 };
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

static moxie_status refuse_rest(const mox_vendor_layout *layout, const share_unit *u, int64_t intermediate,
                                int32_t ranks, moxie_error *error)
{
    const int64_t below = intermediate / u->limits * u->limits;
    char smaller[32] = "";
    if (below > 0)
        snprintf(smaller, sizeof smaller, "%lld or ", (long long)below);
    return mox_fail(
        MOXIE_ERR_UNSUPPORTED, error,
        "layout %s: an intermediate size of %lld cannot be shared by %d ranks: shares are multiples of %lld "
        "(%s), and rank %d would be left with %lld past one; the nearest sizes that would do: %s%lld",
        layout->name, (long long)intermediate, (int)ranks, (long long)u->unit, u->why, (int)ranks - 1,
        (long long)(intermediate % u->limits), smaller, (long long)(below + u->limits));
}

static moxie_status refuse_ranks(const mox_vendor_layout *layout, const share_unit *u, int64_t intermediate,
                                 int64_t units, int32_t ranks, moxie_error *error)
{
    return mox_fail(MOXIE_ERR_UNSUPPORTED, error,
                    "layout %s: an intermediate size of %lld has %lld shares of %lld (%s), so of %d ranks rank %lld "
                    "would get none; the nearest that would do: %lld rank%s, or an intermediate size of %lld",
                    layout->name, (long long)intermediate, (long long)units, (long long)u->unit, u->why, (int)ranks,
                    (long long)units, (long long)units, units == 1 ? "" : "s", (long long)(ranks * u->unit));
}

moxie_status mox_vendor_share_make(const mox_vendor_layout *layout, const mox_record_shape *whole,
                                   const moxie_expert *example, bool pad, int32_t rank, int32_t ranks,
                                   mox_vendor_share *out, moxie_error *error)
{
    const int64_t intermediate = whole->intermediate;
    MOX_FAIL_IF(ranks < 1 || rank < 0 || rank >= ranks, MOXIE_ERR_ARGUMENT, error,
                "tensor parallel: rank %d of %d; ranks count from 0", (int)rank, (int)ranks);
    if (ranks == 1) {
        *out = (mox_vendor_share) { .ranks = 1, .count = intermediate, .unit = intermediate };
        return MOXIE_OK;
    }
    share_unit u;
    find_unit(layout, whole, example, pad, &u);
    const int64_t units = mox_ceil_div(intermediate, u.unit);
    if (intermediate % u.limits != 0)
        return refuse_rest(layout, &u, intermediate, ranks, error);
    if (units < ranks)
        return refuse_ranks(layout, &u, intermediate, units, ranks, error);
    const int64_t base = units / ranks, more = units % ranks;
    const int64_t first = (rank * base + mox_min_i64(rank, more)) * u.unit;
    const int64_t count = mox_min_i64((base + (rank < more)) * u.unit, intermediate - first);
    *out = (mox_vendor_share) { .rank = rank, .ranks = ranks, .first = first, .count = count, .unit = u.unit };
    return MOXIE_OK;
}

mox_record_shape mox_vendor_share_shape(const mox_record_shape *whole, const mox_vendor_share *share)
{
    mox_record_shape shape = *whole;
    shape.intermediate = share->count;
    return shape;
}

uint64_t mox_vendor_share_spare(const mox_record_shape *whole, const mox_vendor_share *share,
                                const moxie_expert *expert)
{
    return share->rank > 0 && whole->bias2 ? mox_dense_bytes(expert->down.bias.dtype, whole->hidden, 1) : 0;
}

moxie_status mox_vendor_share_expert(const mox_record_shape *whole, const mox_vendor_share *share,
                                     const moxie_expert *expert, void *spare, moxie_expert *out, moxie_error *error)
{
    moxie_expert taken = *expert;
    if (share->ranks == 1) {
        *out = taken;
        return MOXIE_OK;
    }
    const mox_rectangle rows = { share->first, share->count, 0, whole->hidden };
    const mox_rectangle cols = { 0, whole->hidden, share->first, share->count };
    if (whole->gated)
        MOX_TRY(mox_matrix_slice(&expert->gate, &whole->w13, &rows, "gate", &taken.gate, error));
    MOX_TRY(mox_matrix_slice(&expert->up, &whole->w13, &rows, "up", &taken.up, error));
    MOX_TRY(mox_matrix_slice(&expert->down, &whole->w2, &cols, "down", &taken.down, error));
    if (mox_vendor_share_spare(whole, share, expert) > 0)
        taken.down.bias = mox_grid_dense(spare, expert->down.bias.dtype, whole->hidden, 1);
    *out = taken;
    return MOXIE_OK;
}
