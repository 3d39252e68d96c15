/* SPDX-License-Identifier: Apache-2.0
 *
 * test_golden.h - golden files of vendor layouts, tests/golden/LAYOUT.safetensors: one expert as it lies in a
 * checkpoint, and the tensors that a layout makes of it. tests/golden/README.md says what is in them.
 *
 *     test_golden_write    smallest weights that the layout takes -> second statement (test_statements.h) -> file
 *     test_golden_read     file -> expert and expected tensors, for whoever checks an implementation against it
 */
#ifndef TEST_GOLDEN_H
#define TEST_GOLDEN_H

#include <moxie/moxie_ckpt.h>

#include "test_vendor_cases.h"

enum { TEST_GOLDEN_TENSORS = MOX_VENDOR_TENSORS };

/* Views of a file. Named as in it, without "output.". */
typedef struct test_golden {
    const mox_vendor_layout *layout;
    mox_record_shape shape;
    mox_vendor_use use;
    moxie_expert expert;
    moxie_named_tensor outputs[TEST_GOLDEN_TENSORS];
    int count;
    moxie_tensor_file *file;
} test_golden;

/* Writes DIR/LAYOUT.safetensors, or DIR/LAYOUT-act-order.safetensors of weights in act order. Ends the program when
 * there is no statement, or nothing small is taken. */
void test_golden_write(const mox_vendor_layout *layout, bool act_order, const char *dir);
/* Fails the test when there is no such file or it says something else than its tensors. */
void test_golden_read(const mox_vendor_layout *layout, bool act_order, const char *dir, test_golden *out);
void test_golden_close(test_golden *golden);

#endif
