/* SPDX-License-Identifier: Apache-2.0
 *
 * test_orders.c - one byte through an order, one expert through a layout (test_orders.h).
 */
#include "test_orders.h"

#include "vendor/vendor_twiddle.h"

int64_t test_order_find(const mox_vendor_order *order, int64_t rows, int64_t cols, int32_t bits, int64_t row,
                        int64_t col, bool twiddled)
{
    const mox_vendor_matrix m = { rows, cols, cols * bits / 8, bits, 1 };
    uint8_t *matrix = calloc((size_t)rows, (size_t)m.row_bytes), *tensor = calloc((size_t)rows, (size_t)m.row_bytes);
    const uint8_t *pointers[MOX_VENDOR_BLOCK];
    int64_t found = -1;
    matrix[row * m.row_bytes + col] = 0xff;
    for (int64_t block = 0; block < rows; block += MOX_VENDOR_BLOCK) {
        for (int64_t r = 0; r < MOX_VENDOR_BLOCK && block + r < rows; r++)
            pointers[r] = matrix + (block + r) * m.row_bytes;
        order->put(&m, block, rows - block < MOX_VENDOR_BLOCK ? rows - block : MOX_VENDOR_BLOCK, pointers, tensor);
    }
    for (int64_t i = 0; i < rows * m.row_bytes; i += 4) {
        uint32_t word;
        memcpy(&word, tensor + i, sizeof word);
        word = twiddled ? mox_untwiddle4(word) : word;
        for (int64_t b = 0; b < 4; b++)
            if ((word >> (8 * b) & 0xff) == 0xff)
                found = i + b;
    }
    free(matrix);
    free(tensor);
    return found;
}

void test_packed_make(test_packed *out, const mox_vendor_layout *layout, const mox_record_shape *shape,
                      const mox_vendor_use *use, const moxie_expert *expert, bool pad)
{
    moxie_error error = { 0 };
    assert_ok(mox_vendor_plan_make(layout, shape, use, expert, pad, &out->plan, &error), &error);
    if (layout->surveys)
        assert_ok(mox_vendor_survey(&out->plan, expert, &error), &error);
    for (int32_t i = 0; i < out->plan.count; i++)
        out->data[i] = test_guarded((size_t)out->plan.tensors[i].bytes);
    assert_ok(mox_vendor_pack(&out->plan, expert, out->data, &mox_executor_serial, &error), &error);
}

void test_packed_free(test_packed *packed)
{
    for (int32_t i = 0; i < packed->plan.count; i++)
        test_guarded_free(packed->data[i], (size_t)packed->plan.tensors[i].bytes);
}

const uint8_t *test_packed_named(const test_packed *packed, const char *name, const mox_vendor_tensor **tensor)
{
    for (int32_t i = 0; i < packed->plan.count; i++)
        if (!strcmp(packed->plan.tensors[i].name, name)) {
            if (tensor != NULL)
                *tensor = &packed->plan.tensors[i];
            return packed->data[i];
        }
    fail_msg("%s has no tensor %s", packed->plan.layout->name, name);
    return NULL;
}
