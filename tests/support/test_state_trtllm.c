/* SPDX-License-Identifier: Apache-2.0
 *
 * test_state_trtllm.c - TRT-LLM-gen layouts by reshape and permute. Source: what vLLM's and FlashInfer's preparation
 * functions do to tensors, step by step.
 */
#include "test_statements.h"

/* reorder_rows_for_gated_act_gemm: rows 0 .. M/2 - 1 and M/2 .. M - 1 alternate. */
static test_array alternate(test_array w)
{
    const int64_t rows = w.shape[0], cols = w.shape[1];
    return TEST_RESHAPE(TEST_PERMUTE(TEST_RESHAPE(w, 2, rows / 2, cols), 1, 0, 2), rows, cols);
}

/* shuffle_matrix_a with a tile of 128: rows 0 4 8 .. 28, 1 5 .. of every 32. */
static test_array shuffle_128(test_array w)
{
    const int64_t rows = w.shape[0], cols = w.shape[1];
    return TEST_RESHAPE(TEST_PERMUTE(TEST_RESHAPE(w, rows / 32, 8, 4, cols), 0, 2, 1, 3), rows, cols);
}

/* block_scale_interleave. */
static test_array interleave_scales(test_array s)
{
    s = test_pad(s, 128, 4);
    const int64_t rows = s.shape[0], cols = s.shape[1];
    return TEST_RESHAPE(TEST_PERMUTE(TEST_RESHAPE(s, rows / 128, 4, 32, cols / 4, 4), 0, 3, 2, 1, 4), rows * cols);
}

/* convert_to_block_layout of a matrix of nibbles, in blocks of 128 bytes. */
static test_array block_nibbles(test_array w)
{
    return TEST_PERMUTE(TEST_RESHAPE(w, w.shape[0], w.shape[1] / 256, 256), 1, 0, 2);
}

static uint32_t to_signed(uint32_t code)
{
    return (code - 8) & 15;
}

int test_state_trtllm_mxint4(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    test_array w31 = test_stack(&e->up.codes, &e->gate.codes, 0), w2 = test_array_of(&e->down.codes);
    if (plan->shape.w13.element == MOXIE_U4B8)
        w31 = test_map(w31, to_signed);
    if (plan->shape.w2.element == MOXIE_U4B8)
        w2 = test_map(w2, to_signed);
    const test_array s31 = test_stack(&e->up.scale, &e->gate.scale, 0), s2 = test_array_of(&e->down.scale);
    out[0] = (test_stated) { "gemm1_weights", block_nibbles(shuffle_128(alternate(w31))), 4 };
    out[1] = (test_stated) { "gemm1_scales", interleave_scales(shuffle_128(alternate(s31))), 16 };
    out[2] = (test_stated) { "gemm2_weights", block_nibbles(shuffle_128(w2)), 4 };
    out[3] = (test_stated) { "gemm2_scales", interleave_scales(shuffle_128(s2)), 16 };
    return 4;
}
