/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor_groups.c - groups that do not divide a row, for targets that need whole groups: rejected, or halved on request
 * as vLLM's moe_wna16 does.
 *
 *     group     halved, for both projections, until hidden and intermediate are multiples of it
 *     scales    each repeated for all parts of its group; zero points likewise
 *
 *         704 columns, groups of 128     |   0   |   1   |   2   |   3   |   4   | 5 |        6 scales, the last for 64
 *         groups of 64                   | 0   0 | 1   1 | 2   2 | 3   3 | 4   4 | 5          11
 *
 * Undo checks that the copies are still equal and merges them.
 * In the flow: code -> [halved groups] -> order (vendor.h).
 * Source: vLLM's MoeWNA16Method, create_weights and its weight loader.
 */
#include <stdio.h>

#include "base/sizes.h"
#include "vendor/vendor_internal.h"

/* ---- whole groups --------------------------------------------------------------------------------- */

static moxie_status reject(const mox_vendor_plan *plan, const char *extent, int64_t cols, int64_t group, int64_t halved,
                           moxie_error *error)
{
    char nearest[64], other[96] = "";
    const int64_t below = cols / group * group;
    snprintf(nearest, sizeof nearest, below > 0 ? "%lld or %lld" : "%.0lld%lld", (long long)below,
             (long long)(below + group));
    if (halved > 0)
        snprintf(other, sizeof other, " (groups of %lld, each scale repeated: --pad)", (long long)halved);
    return mox_fail(MOXIE_ERR_UNSUPPORTED, error,
                    "layout %s: %s is %lld, which must be a multiple of the group, %lld: the target needs whole "
                    "groups; the nearest that would do: %s%s",
                    plan->layout->name, extent, (long long)cols, (long long)group, nearest, other);
}

/* The columns of a group. A group wider than the row counts as the row, but a block of rows and columns does not: vLLM
 * would pad the row to the block. */
static int64_t group_of(const mox_vendor_plan *plan, const moxie_quant *quant, int64_t cols)
{
    return plan->layout->accepts.min_group > 0 || quant->group_rows > 1 ? quant->group_cols
                                                                        : mox_group_cols(quant, cols);
}

moxie_status mox_groups_resolve(mox_vendor_plan *plan, bool pad, moxie_error *error)
{
    const moxie_quant *w13 = &plan->shape.w13, *w2 = &plan->shape.w2;
    const int64_t hidden = plan->hidden, intermediate = plan->intermediate, min_group = plan->layout->accepts.min_group;
    const int64_t group13 = group_of(plan, w13, hidden), group2 = group_of(plan, w2, intermediate);
    plan->repeat = 1;
    if (!plan->layout->accepts.whole_groups)
        return MOXIE_OK;
    MOX_FAIL_IF(min_group > 0 && group13 != group2, MOXIE_ERR_UNSUPPORTED, error,
                "layout %s: w13 has groups of %lld and w2 of %lld, and the target has one size for both",
                plan->layout->name, (long long)group13, (long long)group2);
    int64_t group = group13;
    while (min_group > 0 && (hidden % group != 0 || intermediate % group != 0) && group / 2 >= min_group)
        group /= 2;
    if (pad && hidden % group == 0 && intermediate % group == 0)
        plan->repeat = (int32_t)(group13 / group);
    if (hidden % group13 != 0 && plan->repeat == 1)
        return reject(plan, "hidden", hidden, group13, group < group13 ? group : 0, error);
    if (intermediate % group2 != 0 && plan->repeat == 1)
        return reject(plan, "intermediate", intermediate, group2, group < group13 ? group : 0, error);
    return MOXIE_OK;
}

/* ---- columns -------------------------------------------------------------------------------------- */

int32_t mox_vendor_times(const mox_vendor_plan *plan, const mox_vendor_part *part)
{
    const bool halved = part->of == MOX_VENDOR_SCALES || part->of == MOX_VENDOR_ZEROS;
    return halved && !(part->how & MOX_VENDOR_SYMMETRIC) ? plan->repeat : 1;
}

int64_t mox_vendor_scale_cols(const mox_vendor_plan *plan, const mox_vendor_part *part, int64_t cols)
{
    const moxie_quant *quant = part->projection == MOX_VENDOR_W2 ? &plan->shape.w2 : &plan->shape.w13;
    const int32_t times = mox_vendor_times(plan, part);
    return times > 1 ? mox_ceil_div(cols, quant->group_cols / times) : mox_scale_cols(quant, cols);
}

/* ---- scales of halved groups ---------------------------------------------------------------------- */

/* Copies are whole bytes: two copies of a nibble make a byte. `size`: bytes of an element, `bytes`: of all its copies.
 * All are constants where this is inlined. */
static inline __attribute__((always_inline)) void repeat(int64_t cols, bool nibbles, int64_t size, int64_t bytes,
                                                         const uint8_t *row, uint8_t *out)
{
    for (int64_t c = 0; c < cols; c++) {
        const uint8_t twice = (uint8_t)((row[c / 2] >> c % 2 * 4 & 15) * 0x11);
        for (int64_t b = 0; b < bytes; b += size)
            memcpy(out + c * bytes + b, nibbles ? &twice : row + c * size, (size_t)size);
    }
}

static inline __attribute__((always_inline)) bool merge(int64_t cols, bool nibbles, int64_t size, int64_t bytes,
                                                        const uint8_t *row, uint8_t *out)
{
    bool same = true;
    for (int64_t c = 0; c < cols; c++) {
        const uint8_t *first = row + c * bytes;
        for (int64_t b = 0; b < bytes; b += size)
            same = same && memcmp(first, first + b, (size_t)size) == 0;
        if (nibbles) {
            same = same && first[0] >> 4 == (first[0] & 15);
            out[c / 2] = (uint8_t)(c % 2 ? (out[c / 2] & 15) | (first[0] & 0xf0) : first[0] & 15);
        } else {
            memcpy(out + c * size, first, (size_t)size);
        }
    }
    return same;
}

void mox_groups_repeat(int64_t cols, int32_t bits, int32_t times, const uint8_t *row, uint8_t *out)
{
    if (bits == 4)
        repeat(cols, true, 1, times / 2, row, out);
    else if (bits == 8)
        repeat(cols, false, 1, times, row, out);
    else
        repeat(cols, false, 2, 2 * (int64_t)times, row, out);
}

bool mox_groups_merge(int64_t cols, int32_t bits, int32_t times, const uint8_t *row, uint8_t *out)
{
    if (bits == 4)
        return merge(cols, true, 1, times / 2, row, out);
    if (bits == 8)
        return merge(cols, false, 1, times, row, out);
    return merge(cols, false, 2, 2 * (int64_t)times, row, out);
}
