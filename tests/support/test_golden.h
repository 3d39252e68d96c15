/* SPDX-License-Identifier: Apache-2.0
 *
 * test_golden.h - golden files of vendor layouts, tests/golden/LAYOUT.safetensors: one expert as it lies in a
 * checkpoint, and the tensors that a layout makes of it. tests/golden/README.md says what is in them.
 *
 *     test_golden_write    smallest weights that the layout accepts -> second statement (test_statements.h) -> file
 *     test_golden_read     file -> expert and expected tensors, for whoever checks an implementation against it
 */
#ifndef TEST_GOLDEN_H
#define TEST_GOLDEN_H

#include <moxie/moxie_ckpt.h>

#include "test_vendor_cases.h"

enum { TEST_GOLDEN_TENSORS = MOX_VENDOR_TENSORS };

/* The kind of a file's weights: plain; in act order; in groups, with zero points, that the layout must halve. */
typedef enum test_golden_kind {
    TEST_GOLDEN_PLAIN,
    TEST_GOLDEN_ACT_ORDER,
    TEST_GOLDEN_HALVED,
    TEST_GOLDEN_KINDS
} test_golden_kind;
/* Whether the layout accepts such weights, and so has such a file. */
bool test_golden_has(const mox_vendor_layout *layout, test_golden_kind kind);

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

/* Writes DIR/LAYOUT.safetensors, or DIR/LAYOUT-act-order.safetensors, DIR/LAYOUT-halved.safetensors. Ends the program
 * when the layout has no statement or accepts nothing small. */
void test_golden_write(const mox_vendor_layout *layout, test_golden_kind kind, const char *dir);
/* Fails the test when there is no such file, or when its metadata contradict its tensors. */
void test_golden_read(const mox_vendor_layout *layout, test_golden_kind kind, const char *dir, test_golden *out);
void test_golden_close(test_golden *golden);

#endif
