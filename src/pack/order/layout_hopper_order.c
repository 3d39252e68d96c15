/* SPDX-License-Identifier: Apache-2.0
 *
 * layout_hopper_order.c - layout "hopper_codes_order": codes in the order of registers (hopper/hopper.h) with columns
 * sorted by group, and the order of the columns (column_order.h). Kernels of layout hopper_codes read it: the gather
 * that comes before each product permutes the activations.
 */
#include "pack/hopper/hopper.h"
#include "pack/order/column_order.h"

static const char *reject(const mox_record_shape *shape, char *buffer, size_t size)
{
    return mox_layout_hopper_codes.reject(shape, buffer, size);
}

static bool accepts(const mox_record_shape *shape, const moxie_expert *expert, char *reason, size_t size)
{
    return mox_ordered_accepts(&mox_layout_hopper_codes, shape, expert, reason, size);
}

static bool record_bytes(const mox_record_shape *shape, uint64_t *out)
{
    return mox_ordered_record_bytes(&mox_layout_hopper_codes, shape, out);
}

static moxie_status pack(const mox_record_shape *shape, const moxie_expert *expert, void *record, moxie_error *error)
{
    return mox_ordered_pack(&mox_layout_hopper_codes, shape, expert, record, error);
}

static moxie_status unpack(const mox_record_shape *shape, const void *record, moxie_expert *out, moxie_error *error)
{
    return mox_ordered_unpack(&mox_layout_hopper_codes, shape, record, out, error);
}

const mox_layout mox_layout_hopper_codes_order = {
    .number = 7,
    .name = "hopper_codes_order",
    .summary = "hopper_codes with columns sorted by group (GPTQ act order), and their order",
    .base = &mox_layout_hopper_codes,
    .reject = reject,
    .accepts = accepts,
    .record_bytes = record_bytes,
    .pack = pack,
    .unpack = unpack,
};
