/* SPDX-License-Identifier: Apache-2.0
 *
 * test_state_steps.h - steps that statements of several layouts share; each does what a function of FlashInfer or vLLM
 * does.
 */
#ifndef TEST_STATE_STEPS_H
#define TEST_STATE_STEPS_H

#include "test_statements.h"

/* block_scale_interleave: 128 x 4 atoms, padded with zeros, flat. */
test_array test_interleave_scales(test_array s);
/* [w3; w1], each half padded to `rows` x `cols`; without a gate the one matrix. */
test_array test_stack_31(const mox_vendor_plan *plan, const moxie_grid *gate, const moxie_grid *up, int64_t rows,
                         int64_t cols);
/* Bits of bf16 to those of f32; other dtypes stay. */
test_array test_widen(test_array bias, moxie_dtype dtype);
/* u4b8 to i4. */
uint32_t test_to_signed(uint32_t code);
/* Pairs of codes as the bytes that hold them. */
test_array test_to_bytes(test_array w);
/* Every four bytes of the last axis as a twiddled word, flat. */
test_array test_twiddle(test_array bytes);
/* The first number of a grid. */
float test_value_of(const moxie_grid *grid);
/* The factor of the codes: activations' scales, and weights' scalars, multiplied or divided as stored. */
typedef struct test_scalars {
    float gate, up, down, a1, a2;
} test_scalars;
test_scalars test_scalars_of(const mox_vendor_plan *plan, const moxie_expert *e);
/* f32 scales of 128 x 128 blocks, w3's before w1's, at least 1e-10; and the checkpoint's. Returns 4. */
int test_state_block_scales(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[]);
/* alpha, beta and limit, when the activation is not plain. Returns how many. */
int test_state_swiglu(const mox_vendor_plan *plan, test_stated out[]);

#endif
