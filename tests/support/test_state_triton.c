/* SPDX-License-Identifier: Apache-2.0
 *
 * test_state_triton.c - Triton's MXFP4 layouts by reshape and permute. Source: what triton_kernels' layout classes do
 * to tensors, and what vLLM's loader does before (rows of gate and up alternate, biases in f32).
 */
#include "test_state_steps.h"

static test_array hopper_values(test_array w, int64_t align_rows, int64_t align_cols, int mma_version)
{
    w = test_to_bytes(test_pad(w, align_rows, align_cols));
    const int64_t rows = w.shape[0] / 16, cols = w.shape[1] / 32;
    if (mma_version == 3)
        return test_twiddle(TEST_PERMUTE(TEST_RESHAPE(w, rows, 2, 4, 2, cols, 4, 2, 4), 0, 2, 4, 3, 7, 5, 6, 1));
    return test_twiddle(TEST_PERMUTE(TEST_RESHAPE(w, rows, 2, 4, 2, cols, 2, 4, 4), 0, 2, 4, 3, 6, 5, 1, 7));
}

static test_array hopper_scales(test_array s, int64_t warps)
{
    s = test_pad(s, 32 * warps, 2);
    const int64_t rows = s.shape[0], cols = s.shape[1];
    return TEST_PERMUTE(TEST_RESHAPE(s, rows / (32 * warps), 2, warps, 2, 8, cols / 2, 2), 0, 2, 5, 1, 4, 6, 3);
}

static test_array blackwell_scales(test_array s)
{
    s = test_pad(s, 128, 8);
    const int64_t rows = s.shape[0], cols = s.shape[1];
    return TEST_PERMUTE(TEST_RESHAPE(s, rows / 128, 4, 32, cols / 4, 4), 0, 3, 2, 1, 4);
}

static test_array blackwell_tiles(test_array w)
{
    w = test_pad(w, 256, 256);
    const int64_t rows = w.shape[0], cols = w.shape[1];
    return TEST_PERMUTE(TEST_RESHAPE(w, rows / 256, 256, cols / 128, 128), 2, 0, 1, 3);
}

/* ---- one expert ---- */

static test_array alternate(test_array w)
{
    const int64_t rows = w.shape[0], cols = w.shape[1];
    return TEST_RESHAPE(TEST_PERMUTE(TEST_RESHAPE(w, 2, rows / 2, cols), 1, 0, 2), rows, cols);
}

static uint32_t widen(uint32_t bf16)
{
    return bf16 << 16;
}

static test_array floats(const moxie_grid *grid, int64_t rows)
{
    const test_array bias = test_pad(test_array_of(grid), rows, 1);
    return grid->dtype == MOXIE_BF16 ? test_map(bias, widen) : bias;
}

/* The four matrices and the biases, padded by the loader and in its order. */
typedef struct loaded {
    test_array w13, s13, w2, s2;
} loaded;

static loaded load(const mox_vendor_plan *plan, const moxie_expert *e)
{
    const int64_t i = plan->intermediate;
    return (loaded) { alternate(test_stack(&e->gate.codes, &e->up.codes, i)),
                      alternate(test_stack(&e->gate.scale, &e->up.scale, i)),
                      test_pad(test_array_of(&e->down.codes), 1, i),
                      test_pad(test_array_of(&e->down.scale), 1, i / 32) };
}

static int finish(const mox_vendor_plan *plan, const moxie_expert *e, const loaded *l, int value_bits,
                  test_stated out[])
{
    int n = 0;
    out[n++] = (test_stated) { "w13_weight", l->w13, value_bits };
    out[n++] = (test_stated) { "w13_weight_scale", l->s13, 8 };
    out[n++] = (test_stated) { "w2_weight", l->w2, value_bits };
    out[n++] = (test_stated) { "w2_weight_scale", l->s2, 8 };
    if (plan->shape.bias13)
        out[n++] = (test_stated) { "w13_bias",
                                   alternate(test_concat(floats(&e->gate.bias, plan->intermediate),
                                                         floats(&e->up.bias, plan->intermediate))),
                                   32 };
    if (plan->shape.bias2)
        out[n++] = (test_stated) { "w2_bias", floats(&e->down.bias, 1), 32 };
    return n;
}

static int state_hopper(const mox_vendor_plan *plan, const moxie_expert *e, int64_t align_rows, int mma_version,
                        int64_t warps, test_stated out[])
{
    loaded l = load(plan, e);
    l.w13 = hopper_values(l.w13, align_rows, 128, mma_version);
    l.s13 = hopper_scales(l.s13, warps);
    l.w2 = hopper_values(l.w2, align_rows, 128, mma_version);
    l.s2 = hopper_scales(l.s2, warps);
    return finish(plan, e, &l, 32, out);
}

/* vLLM 0.33: its own Triton pads rows to 16 and bytes to 32; before, vLLM pads the groups of the scales to 4. */
int test_state_triton_hopper(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    loaded l = load(plan, e);
    l.w13 = hopper_values(l.w13, 16, 64, 3);
    l.s13 = hopper_scales(test_pad(l.s13, 1, 4), 8);
    l.w2 = hopper_values(l.w2, 16, 64, 3);
    l.s2 = hopper_scales(test_pad(l.s2, 1, 4), 8);
    return finish(plan, e, &l, 32, out);
}

int test_state_triton_hopper_rows256(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    return state_hopper(plan, e, 256, 3, 8, out);
}

int test_state_triton_hopper_warps4(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    return state_hopper(plan, e, 256, 3, 4, out);
}

int test_state_triton_hopper_rows64(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    return state_hopper(plan, e, 64, 3, 8, out);
}

int test_state_triton_mma2(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    return state_hopper(plan, e, 256, 2, 8, out);
}

int test_state_triton_blackwell(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    loaded l = load(plan, e);
    l.w13 = test_pad(l.w13, 1, 256);
    l.s13 = blackwell_scales(l.s13);
    l.w2 = test_pad(l.w2, 1, 256);
    l.s2 = blackwell_scales(l.s2);
    return finish(plan, e, &l, 4, out);
}

int test_state_triton_blackwell_tiles(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    loaded l = load(plan, e);
    l.w13 = blackwell_tiles(l.w13);
    l.s13 = blackwell_scales(l.s13);
    l.w2 = blackwell_tiles(l.w2);
    l.s2 = blackwell_scales(l.s2);
    return finish(plan, e, &l, 4, out);
}

int test_state_triton_mxfp4(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    const loaded l = load(plan, e);
    return finish(plan, e, &l, 4, out);
}
