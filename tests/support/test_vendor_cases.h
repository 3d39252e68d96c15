/* SPDX-License-Identifier: Apache-2.0
 *
 * test_vendor_cases.h - how tests make weights that a vendor layout accepts: its unit of each extent, formats worth
 * trying, experts that obey its rules.
 */
#ifndef TEST_VENDOR_CASES_H
#define TEST_VENDOR_CASES_H

#include "test_problem.h"
#include "test_statements.h"

/* A layout's name; of a version that is not the default with its release: "trtllm-mxfp4-vllm-0.18". Returns
 * `buffer`. */
const char *test_vendor_title(const mox_vendor_layout *layout, char buffer[80]);
/* The entry of test_statements; the last one, with layout NULL, when there is none. */
const test_statement *test_statement_of(const mox_vendor_layout *layout);
/* Whether the layout accepts such elements and scales; others need not be made. */
bool test_vendor_takes(const mox_vendor_layout *layout, const moxie_quant *quant);
/* The least common multiple of a layout's limits on an extent. */
int64_t test_vendor_unit(const mox_vendor_layout *layout, mox_vendor_extent extent);
/* Format i for tests of vendor layouts: those of test_weight_quants, and some that moxie's kernels are not tested with.
 * NULL past the last. */
const test_weight_quant *test_vendor_quant_at(int i);
/* Plain SiLU, or gpt-oss's. */
mox_vendor_use test_vendor_use(test_rng *rng);
/* Gives gate and up one act order, and each matrix one global, as layouts need it. Half of the experts have the same
 * global or scale for gate and up, which some layouts need, or f32 scales that are powers of two. */
void test_vendor_settle(moxie_expert *expert, const mox_vendor_layout *layout, const mox_record_shape *shape,
                        test_rng *rng);

#endif
