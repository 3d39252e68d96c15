/* SPDX-License-Identifier: Apache-2.0
 *
 * test_orders.h - where an order of the vendor layouts puts one byte, for published examples of positions; and one
 * expert in a layout's tensors, for kernels' ways to read them.
 */
#ifndef TEST_ORDERS_H
#define TEST_ORDERS_H

#include "vendor/vendor.h"
#include "test_problem.h"

/* Puts a matrix of zeros with one byte 0xff at (row, col of bytes) through an order, and returns where it is in the
 * tensor; -1: nowhere. `bits` of an element. `twiddled`: words are untwiddled first. */
int64_t test_order_find(const mox_vendor_order *order, int64_t rows, int64_t cols, int32_t bits, int64_t row,
                        int64_t col, bool twiddled);

typedef struct test_packed {
    mox_vendor_plan plan;
    void *data[MOX_VENDOR_TENSORS];
} test_packed;

/* `use` NULL: the plain use. A layout that needs a survey gets one of this expert alone. */
void test_packed_make(test_packed *out, const mox_vendor_layout *layout, const mox_record_shape *shape,
                      const mox_vendor_use *use, const moxie_expert *expert, bool pad);
void test_packed_free(test_packed *packed);
/* The bytes of a tensor, which must exist; also its entry of the plan when `tensor` is not NULL. */
const uint8_t *test_packed_named(const test_packed *packed, const char *name, const mox_vendor_tensor **tensor);

#endif
