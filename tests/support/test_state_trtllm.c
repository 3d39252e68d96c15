/* SPDX-License-Identifier: Apache-2.0
 *
 * test_state_trtllm.c - TRT-LLM-gen layouts by reshape and permute. Source: what vLLM's and FlashInfer's preparation
 * functions do to tensors, step by step.
 */
#include "test_state_steps.h"

/* ---- steps ---- */

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

/* The same with a tile of 64: rows 0 2 4 .. 14, 1 3 .. of every 16. */
static test_array shuffle_64(test_array w)
{
    const int64_t rows = w.shape[0], cols = w.shape[1];
    return TEST_RESHAPE(TEST_PERMUTE(TEST_RESHAPE(w, rows / 16, 8, 2, cols), 0, 2, 1, 3), rows, cols);
}

/* convert_to_block_layout, in blocks of so many elements, 128 bytes. */
static test_array block(test_array w, int64_t elements)
{
    return TEST_PERMUTE(TEST_RESHAPE(w, w.shape[0], w.shape[1] / elements, elements), 1, 0, 2);
}

/* What becomes of w13's rows where gated activation is fused. */
static test_array gated_rows(const mox_vendor_plan *plan, test_array w31)
{
    return shuffle_128(plan->shape.gated ? alternate(w31) : w31);
}

/* Codes of both projections, shuffled; scales in groups of so many columns. */
static test_array codes_13(const mox_vendor_plan *plan, const moxie_expert *e)
{
    return gated_rows(plan, test_stack_31(plan, &e->gate.codes, &e->up.codes, plan->intermediate, plan->hidden));
}

static test_array codes_2(const mox_vendor_plan *plan, const moxie_expert *e)
{
    return shuffle_128(test_pad(test_array_of(&e->down.codes), plan->hidden, plan->intermediate));
}

static test_array scales_13(const mox_vendor_plan *plan, const moxie_expert *e, int64_t group)
{
    return gated_rows(plan,
                      test_stack_31(plan, &e->gate.scale, &e->up.scale, plan->intermediate, plan->hidden / group));
}

static test_array scales_2(const mox_vendor_plan *plan, const moxie_expert *e, int64_t group)
{
    return shuffle_128(test_pad(test_array_of(&e->down.scale), plan->hidden, plan->intermediate / group));
}

/* ---- layouts ---- */

int test_state_trtllm_mxint4(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    test_array w13 = codes_13(plan, e), w2 = codes_2(plan, e);
    if (plan->shape.w13.element == MOXIE_U4B8)
        w13 = test_map(w13, test_to_signed);
    if (plan->shape.w2.element == MOXIE_U4B8)
        w2 = test_map(w2, test_to_signed);
    out[0] = (test_stated) { "w13_weight_packed", block(w13, 256), 4 };
    out[1] = (test_stated) { "w13_weight_scale", test_interleave_scales(scales_13(plan, e, 32)), 16 };
    out[2] = (test_stated) { "w2_weight_packed", block(w2, 256), 4 };
    out[3] = (test_stated) { "w2_weight_scale", test_interleave_scales(scales_2(plan, e, 32)), 16 };
    return 4;
}

static int state_block_scaled(const mox_vendor_plan *plan, const moxie_expert *e, int bits, int64_t group,
                              test_stated out[])
{
    out[0] = (test_stated) { "w13_weight", codes_13(plan, e), bits };
    out[1] = (test_stated) { "w13_weight_scale", test_interleave_scales(scales_13(plan, e, group)), 8 };
    out[2] = (test_stated) { "w2_weight", codes_2(plan, e), bits };
    out[3] = (test_stated) { "w2_weight_scale", test_interleave_scales(scales_2(plan, e, group)), 8 };
    return 4;
}

/* gpt-oss's way: gate and up rows in turn, each pair swapped, then shuffled. */
static test_array swap_pairs(const mox_vendor_plan *plan, const moxie_grid *gate, const moxie_grid *up, int64_t cols)
{
    const test_array pairs = test_pad(alternate(test_stack(gate, up, plan->intermediate)), 1, cols);
    test_array out = test_array_new(2, pairs.shape);
    for (int64_t r = 0; r < pairs.shape[0]; r++)
        memcpy(out.data + (r ^ 1) * cols, pairs.data + r * cols, (size_t)cols * sizeof *out.data);
    free(pairs.data);
    return shuffle_128(out);
}

int test_state_trtllm_mxfp4(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    const int64_t h = plan->hidden;
    out[0] = (test_stated) { "w13_weight", swap_pairs(plan, &e->gate.codes, &e->up.codes, h), 4 };
    out[1] = (test_stated) { "w13_weight_scale",
                             test_interleave_scales(swap_pairs(plan, &e->gate.scale, &e->up.scale, h / 32)), 8 };
    out[2] = (test_stated) { "w2_weight", codes_2(plan, e), 4 };
    out[3] = (test_stated) { "w2_weight_scale", test_interleave_scales(scales_2(plan, e, 32)), 8 };
    int count = 4;
    if (plan->shape.bias13) {
        const test_array b13 = test_widen(swap_pairs(plan, &e->gate.bias, &e->up.bias, 1), plan->bias[0]);
        const test_array b2 = test_widen(shuffle_128(test_pad(test_array_of(&e->down.bias), h, 1)), plan->bias[1]);
        out[count++] = (test_stated) { "w13_bias", b13, 32 };
        out[count++] = (test_stated) { "w2_bias", b2, 32 };
    }
    return count + test_state_swiglu(plan, out + count);
}

/* The version of vLLM 0.18 differs in the plan's padding only. */
int test_state_trtllm_mxfp4_i256(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    return test_state_trtllm_mxfp4(plan, e, out);
}

static uint32_t from_ones(uint32_t scale)
{
    return scale ^ 127;
}

/* Scales of padding are 2^0. */
static test_array pad_ones(const moxie_grid *scale, int64_t rows, int64_t cols)
{
    return test_map(test_pad(test_map(test_array_of(scale), from_ones), rows, cols), from_ones);
}

int test_state_trtllm_mxfp8(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    const int64_t h = plan->hidden, i = plan->intermediate;
    test_array s13 = pad_ones(&e->up.scale, i, h / 32);
    if (plan->shape.gated)
        s13 = test_concat(s13, pad_ones(&e->gate.scale, i, h / 32));
    out[0] = (test_stated) { "w13_weight", codes_13(plan, e), 8 };
    out[1] = (test_stated) { "w13_weight_scale", test_interleave_scales(gated_rows(plan, s13)), 8 };
    out[2] = (test_stated) { "w2_weight", codes_2(plan, e), 8 };
    out[3] = (test_stated) { "w2_weight_scale",
                             test_interleave_scales(shuffle_128(pad_ones(&e->down.scale, h, i / 32))), 8 };
    const int count = 4;
    return count + test_state_swiglu(plan, out + count);
}

int test_state_trtllm_nvfp4(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    const test_scalars s = test_scalars_of(plan, e);
    const float up_alpha = plan->shape.gated ? s.up * s.a1 : 1;
    int n = state_block_scaled(plan, e, 4, 16, out);
    out[n++] = (test_stated) { "a1_gscale", test_float(1 / s.a1), 32 };
    out[n++] = (test_stated) { "a2_gscale", test_float(1 / s.a2), 32 };
    out[n++] = (test_stated) { "g1_alphas", test_float(s.gate * s.a1), 32 };
    out[n++] = (test_stated) { "g1_scale_c", test_float(up_alpha * (1 / s.a2)), 32 };
    out[n++] = (test_stated) { "g2_alphas", test_float(s.down * s.a2), 32 };
    return n;
}

int test_state_trtllm_fp8_tensor(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    const test_scalars s = test_scalars_of(plan, e);
    const float up_alpha = plan->shape.gated ? s.up * s.a1 : 1;
    out[0] = (test_stated) { "w13_weight", codes_13(plan, e), 8 };
    out[1] = (test_stated) { "w2_weight", codes_2(plan, e), 8 };
    out[2] = (test_stated) { "w13_input_scale", test_float(s.a1), 32 };
    out[3] = (test_stated) { "w2_input_scale_inv", test_float(1 / s.a2), 32 };
    out[4] = (test_stated) { "output1_scales_gate_scalar", test_float(s.gate * s.a1), 32 };
    out[5] = (test_stated) { "output1_scales_scalar", test_float(up_alpha / s.a2), 32 };
    out[6] = (test_stated) { "output2_scales_scalar", test_float(s.down * s.a2), 32 };
    return 7;
}

int test_state_trtllm_fp8_block(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    out[0] = (test_stated) { "w13_weight", test_stack(&e->up.codes, &e->gate.codes, 0), 8 };
    out[1] = (test_stated) { "w2_weight", test_array_of(&e->down.codes), 8 };
    return 2 + test_state_block_scales(plan, e, out + 2);
}

int test_state_trtllm_fp8_block_shuffled(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    out[0] = (test_stated) { "w13_weight", block(shuffle_64(test_stack(&e->up.codes, &e->gate.codes, 0)), 128), 8 };
    out[1] = (test_stated) { "w2_weight", block(shuffle_64(test_array_of(&e->down.codes)), 128), 8 };
    return 2 + test_state_block_scales(plan, e, out + 2);
}

int test_state_trtllm_bf16(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    out[0] = (test_stated) { "w13_weight", block(codes_13(plan, e), 64), 16 };
    out[1] = (test_stated) { "w2_weight", block(codes_2(plan, e), 64), 16 };
    return 2;
}
