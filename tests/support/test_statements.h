/* SPDX-License-Identifier: Apache-2.0
 *
 * test_statements.h - vendor layouts stated a second time, by reshape and permute, from the codes of an expert's
 * grids: one function per layout, which makes every tensor of one expert. test_vendor.c compares the library with
 * them, and the golden files are theirs.
 */
#ifndef TEST_STATEMENTS_H
#define TEST_STATEMENTS_H

#include "vendor/vendor.h"
#include "test_arrays.h"

/* One stated tensor: elements of `bits` bits each, or f32 values as their bits. */
typedef struct test_stated {
    const char *name;
    test_array array;
    int bits;
} test_stated;

typedef struct test_statement {
    const char *layout;
    /* Fills out[] and returns how many. `plan` for the facts of the layer and the padded extents only. */
    int (*state)(const mox_vendor_plan *plan, const moxie_expert *expert, test_stated out[]);
} test_statement;

#define STATEMENT(layout, function) int function(const mox_vendor_plan *, const moxie_expert *, test_stated[]);
#include "test_statements.def"
#undef STATEMENT

/* All statements; the last one has layout NULL. */
extern const test_statement test_statements[];

/* [gate; up] codes or other grids as one array, each half padded by zeros to `half_rows` (0: not padded). */
test_array test_stack(const moxie_grid *gate, const moxie_grid *up, int64_t half_rows);
/* The bits of one f32, for a tensor of 32-bit elements. */
test_array test_float(float value);

#endif
