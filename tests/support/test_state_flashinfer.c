/* SPDX-License-Identifier: Apache-2.0
 *
 * test_state_flashinfer.c - layouts of FlashInfer's CUTLASS kernels by reshape and permute.
 */
#include <math.h>

#include "test_state_steps.h"

/* ---- parts, [w3; w1] before and w2 ---- */

static test_array codes_31(const mox_vendor_plan *plan, const moxie_expert *e)
{
    return test_stack_31(plan, &e->gate.codes, &e->up.codes, plan->intermediate, plan->hidden);
}

static test_array codes_2(const mox_vendor_plan *plan, const moxie_expert *e)
{
    return test_pad(test_array_of(&e->down.codes), plan->hidden, plan->intermediate);
}

static test_array scales_31(const mox_vendor_plan *plan, const moxie_expert *e, int64_t group)
{
    return test_stack_31(plan, &e->gate.scale, &e->up.scale, plan->intermediate, plan->hidden / group);
}

static test_array scales_2(const mox_vendor_plan *plan, const moxie_expert *e, int64_t group)
{
    return test_pad(test_array_of(&e->down.scale), plan->hidden, plan->intermediate / group);
}

static int state_alphas(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    const test_scalars s = test_scalars_of(plan, e);
    out[0] = (test_stated) { "a2_gscale", test_float(1 / s.a2), 32 };
    out[1] = (test_stated) { "g1_alphas", test_float(s.gate * s.a1), 32 };
    out[2] = (test_stated) { "g2_alphas", test_float(s.down * s.a2), 32 };
    return 3 + test_state_swiglu(plan, out + 3);
}

/* ---- fp8 ---- */

int test_state_flashinfer_cutlass_fp8(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    out[0] = (test_stated) { "w13_weight", codes_31(plan, e), 8 };
    out[1] = (test_stated) { "w2_weight", codes_2(plan, e), 8 };
    out[2] = (test_stated) { "w13_input_scale", test_float(e->a13_scale), 32 };
    return 3 + state_alphas(plan, e, out + 3);
}

int test_state_flashinfer_cutlass_fp8_block(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    out[0] = (test_stated) { "w13_weight", codes_31(plan, e), 8 };
    out[1] = (test_stated) { "w2_weight", codes_2(plan, e), 8 };
    test_state_block_scales(plan, e, out + 2);
    return 6 + test_state_swiglu(plan, out + 6);
}

/* ---- nvfp4 ---- */

int test_state_flashinfer_cutlass_nvfp4(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    const test_scalars s = test_scalars_of(plan, e);
    out[0] = (test_stated) { "w13_weight", codes_31(plan, e), 4 };
    out[1] = (test_stated) { "w13_weight_scale", test_interleave_scales(scales_31(plan, e, 16)), 8 };
    out[2] = (test_stated) { "w2_weight", codes_2(plan, e), 4 };
    out[3] = (test_stated) { "w2_weight_scale", test_interleave_scales(scales_2(plan, e, 16)), 8 };
    out[4] = (test_stated) { "a1_gscale", test_float(1 / s.a1), 32 };
    return 5 + state_alphas(plan, e, out + 5);
}

/* _interleave_linear_and_gate in runs of 64 rows. */
static test_array take_turns(const mox_vendor_plan *plan, test_array w31)
{
    const int64_t rows = w31.shape[0], cols = w31.shape[1];
    if (!plan->shape.gated)
        return w31;
    return TEST_RESHAPE(TEST_PERMUTE(TEST_RESHAPE(w31, 2, rows / 128, 64, cols), 1, 0, 2, 3), rows, cols);
}

int test_state_flashinfer_cutedsl_nvfp4(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    const int count = test_state_flashinfer_cutlass_nvfp4(plan, e, out);
    test_array_free(&out[0].array);
    test_array_free(&out[1].array);
    out[0].array = take_turns(plan, codes_31(plan, e));
    out[1].array = test_interleave_scales(take_turns(plan, scales_31(plan, e, 16)));
    return count;
}

/* ---- 4 bits beside other activations ---- */

/* Words of four bytes: (r, c), (r + 8, c), (r, c + 4), (r + 8, c + 4), twiddled. */
static test_array interleave_fp4(test_array w)
{
    w = test_to_bytes(w);
    const int64_t rows = w.shape[0], cols = w.shape[1];
    return test_twiddle(TEST_PERMUTE(TEST_RESHAPE(w, rows / 16, 2, 8, cols / 16, 2, 2, 4), 0, 4, 2, 3, 6, 5, 1));
}

/* Units of four nibbles, of rows r and r + 8 in turn. */
static test_array interleave_int4(test_array w)
{
    const int64_t rows = w.shape[0], cols = w.shape[1];
    return TEST_PERMUTE(TEST_RESHAPE(w, rows / 16, 2, 8, cols / 32, 2, 4, 4), 0, 4, 2, 3, 5, 1, 6);
}

/* Scales of 64 rows and 128 columns, `across` of them in a row, to lines of 16 bytes. */
static test_array fold(test_array s, int64_t across, int64_t folds)
{
    const int64_t rows = s.shape[0], cols = s.shape[1];
    return TEST_PERMUTE(TEST_RESHAPE(s, rows / 64, folds, 64 / folds, cols / across, across), 0, 3, 2, 1, 4);
}

static test_array lines(test_array s)
{
    const int64_t rows = s.shape[0], cols = s.shape[1], f = cols % 4 == 0 ? 4 : cols % 2 == 0 ? 2 : 1;
    return TEST_PERMUTE(TEST_RESHAPE(s, rows, cols / f, f), 1, 0, 2);
}

static test_array fold_mxfp4(test_array s)
{
    return fold(s, 4, 4);
}

static test_array fold_int4(test_array s)
{
    return fold(s, 1, 8);
}

static test_array as_it_is(test_array w)
{
    return w;
}

static int state_mxfp4(const mox_vendor_plan *plan, const moxie_expert *e, test_array (*values)(test_array), int bits,
                       test_array (*scales)(test_array), test_stated out[])
{
    out[0] = (test_stated) { "w13_weight", values(codes_31(plan, e)), bits };
    out[1] = (test_stated) { "w13_weight_scale", scales(scales_31(plan, e, 32)), 8 };
    out[2] = (test_stated) { "w2_weight", values(codes_2(plan, e)), bits };
    out[3] = (test_stated) { "w2_weight_scale", scales(scales_2(plan, e, 32)), 8 };
    int n = 4;
    if (plan->shape.bias13) {
        const test_array b13 = test_stack_31(plan, &e->gate.bias, &e->up.bias, plan->intermediate, 1);
        out[n++] = (test_stated) { "w13_bias", b13, 16 };
        out[n++] = (test_stated) { "w2_bias", test_pad(test_array_of(&e->down.bias), plan->hidden, 1), 16 };
    }
    return n + test_state_swiglu(plan, out + n);
}

int test_state_flashinfer_cutlass_mxfp4_mxfp8(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    return state_mxfp4(plan, e, as_it_is, 4, test_interleave_scales, out);
}

int test_state_flashinfer_sm90_mxfp4_bf16(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    return state_mxfp4(plan, e, interleave_fp4, 32, fold_mxfp4, out);
}

int test_state_flashinfer_sm90_mxfp4_bf16_lines(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    return state_mxfp4(plan, e, interleave_fp4, 32, lines, out);
}

int test_state_flashinfer_sm90_mxfp4_bf16_rows(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    return state_mxfp4(plan, e, as_it_is, 4, lines, out);
}

/* ---- Humming ---- */

/* Signs of nibble i of each 32-bit word to bit 8i + 7, or 8(i - 4) + 3 from the fifth on. */
static test_array move_signs(test_array nibbles)
{
    for (int64_t w = 0; w < test_array_count(&nibbles); w += 8) {
        uint32_t *n = nibbles.data + w, sign[8];
        for (int i = 0; i < 8; i++) {
            sign[i] = n[i] & 8;
            n[i] &= 7;
        }
        for (int i = 0; i < 8; i++)
            n[i < 4 ? 2 * i + 1 : 2 * (i - 4)] |= sign[i];
    }
    return nibbles;
}

static uint32_t without_minus_zero(uint32_t code)
{
    return code == 8 ? 0 : code;
}

static uint32_t is_minus_zero(uint32_t code)
{
    return code == 8;
}

/* Offsets of scales, and the lowest that has one of its own. */
static test_array split(test_array s, uint32_t *low)
{
    uint32_t most = 0, least = 255;
    for (int64_t i = 0; i < test_array_count(&s); i++) {
        most = s.data[i] > most ? s.data[i] : most;
        least = s.data[i] < least ? s.data[i] : least;
    }
    *low = most - least > 11 ? most - 11 : least;
    for (int64_t i = 0; i < test_array_count(&s); i++)
        s.data[i] = ((s.data[i] < *low ? *low : s.data[i]) - *low + 1) & 15;
    return s;
}

int test_state_flashinfer_sm90_mxfp4_fp8(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    uint32_t low13, low2;
    const test_array s13 = fold_mxfp4(split(scales_31(plan, e, 32), &low13));
    const test_array s2 = fold_mxfp4(split(scales_2(plan, e, 32), &low2));
    const test_array w13 = interleave_int4(test_map(codes_31(plan, e), without_minus_zero));
    const test_array w2 = interleave_int4(test_map(codes_2(plan, e), without_minus_zero));
    out[0] = (test_stated) { "w13_weight", move_signs(w13), 4 };
    out[1] = (test_stated) { "w2_weight", move_signs(w2), 4 };
    out[2] = (test_stated) { "w13_weight_scale", s13, 8 };
    out[3] = (test_stated) { "w2_weight_scale", s2, 8 };
    out[4] = (test_stated) { "moxie.w13_weight_scale", test_stack(&e->gate.scale, &e->up.scale, 0), 8 };
    out[5] = (test_stated) { "moxie.w2_weight_scale", test_array_of(&e->down.scale), 8 };
    const test_array z13 = test_map(test_stack(&e->gate.codes, &e->up.codes, 0), is_minus_zero);
    out[6] = (test_stated) { "moxie.w13_minus_zeros", z13, 1 };
    out[7] = (test_stated) { "moxie.w2_minus_zeros", test_map(test_array_of(&e->down.codes), is_minus_zero), 1 };
    out[8] = (test_stated) { "w13_residual", test_float(ldexpf(1, (int)low13 - 127) * 0.5f), 32 };
    out[9] = (test_stated) { "w2_residual", test_float(ldexpf(1, (int)low2 - 127) * 0.5f), 32 };
    int n = 10;
    if (plan->shape.bias13) {
        out[n++] = (test_stated) { "w13_bias", test_stack(&e->up.bias, &e->gate.bias, 0), 16 };
        out[n++] = (test_stated) { "w2_bias", test_array_of(&e->down.bias), 16 };
    }
    return n + test_state_swiglu(plan, out + n);
}

/* ---- int4 ---- */

static int state_int4(const mox_vendor_plan *plan, const moxie_expert *e, test_array (*scales)(test_array),
                      test_stated out[])
{
    test_array w13 = codes_31(plan, e), w2 = codes_2(plan, e);
    if (plan->shape.w13.element == MOXIE_U4B8) {
        w13 = test_map(w13, test_to_signed);
        w2 = test_map(w2, test_to_signed);
    }
    out[0] = (test_stated) { "w13_weight", interleave_int4(w13), 4 };
    out[1] = (test_stated) { "w13_weight_scale", scales(scales_31(plan, e, 128)), 16 };
    out[2] = (test_stated) { "w2_weight", interleave_int4(w2), 4 };
    out[3] = (test_stated) { "w2_weight_scale", scales(scales_2(plan, e, 128)), 16 };
    return 4 + test_state_swiglu(plan, out + 4);
}

int test_state_flashinfer_sm90_int4_fp8(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    return state_int4(plan, e, fold_int4, out);
}

int test_state_flashinfer_sm90_int4_fp8_lines(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    return state_int4(plan, e, lines, out);
}
