/* SPDX-License-Identifier: Apache-2.0
 *
 * test_vendor_cases.h - what tests of vendor layouts need to make weights that a layout takes: its unit of each extent,
 * formats worth trying, experts as the target wants them.
 */
#ifndef TEST_VENDOR_CASES_H
#define TEST_VENDOR_CASES_H

#include "test_problem.h"
#include "test_statements.h"

/* The row of test_statements; the last, with layout NULL, when there is none. */
const test_statement *test_statement_of(const mox_vendor_layout *layout);
/* Elements and scales are such as the layout takes: others would be made only to be refused. */
bool test_vendor_takes(const mox_vendor_layout *layout, const moxie_quant *quant);
/* The least common multiple of what a layout asks of an extent. */
int64_t test_vendor_unit(const mox_vendor_layout *layout, mox_vendor_extent extent);
/* Format i that vendor layouts are tried with: those of test_weight_quants, and some that no kernel of ours is tested
 * with. NULL past the last. */
const test_weight_quant *test_vendor_quant_at(int i);
/* Plain SiLU, or gpt-oss's. */
mox_vendor_use test_vendor_use(test_rng *rng);
/* One act order for gate and up, and one global per matrix, which targets want; half of the experts have the same
 * global or scale for gate and up, which some want, or scales in f32 that are powers of two. */
void test_vendor_settle(moxie_expert *expert, const mox_vendor_layout *layout, const mox_record_shape *shape,
                        test_rng *rng);

#endif
