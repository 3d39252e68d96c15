/* SPDX-License-Identifier: Apache-2.0
 *
 * layout_panel_order.c - layout "panel16_order": panels of 16 rows (panel/panel.h) with columns sorted by group, and
 * the order of the columns (column_order.h). Kernels of layout panel16 read it.
 */
#include "pack/order/column_order.h"
#include "pack/panel/panel.h"

static const char *reject(const mox_record_shape *shape, char *buffer, size_t size)
{
    return mox_layout_panel16.reject(shape, buffer, size);
}

static bool accepts(const mox_record_shape *shape, const moxie_expert *expert, char *reason, size_t size)
{
    return mox_ordered_accepts(&mox_layout_panel16, shape, expert, reason, size);
}

static bool record_bytes(const mox_record_shape *shape, uint64_t *out)
{
    return mox_ordered_record_bytes(&mox_layout_panel16, shape, out);
}

static moxie_status pack(const mox_record_shape *shape, const moxie_expert *expert, void *record, moxie_error *error)
{
    return mox_ordered_pack(&mox_layout_panel16, shape, expert, record, error);
}

static moxie_status unpack(const mox_record_shape *shape, const void *record, moxie_expert *out, moxie_error *error)
{
    return mox_ordered_unpack(&mox_layout_panel16, shape, record, out, error);
}

const mox_layout mox_layout_panel16_order = {
    .number = 6,
    .name = "panel16_order",
    .summary = "panel16 with columns sorted by group (GPTQ act order), and their order",
    .base = &mox_layout_panel16,
    .reject = reject,
    .accepts = accepts,
    .record_bytes = record_bytes,
    .pack = pack,
    .unpack = unpack,
};
