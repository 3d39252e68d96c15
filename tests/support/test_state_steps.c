/* SPDX-License-Identifier: Apache-2.0
 *
 * test_state_steps.c - steps that statements of several layouts take (test_state_steps.h).
 */
#include "test_state_steps.h"

#include <math.h>

test_array test_interleave_scales(test_array s)
{
    s = test_pad(s, 128, 4);
    const int64_t rows = s.shape[0], cols = s.shape[1];
    return TEST_RESHAPE(TEST_PERMUTE(TEST_RESHAPE(s, rows / 128, 4, 32, cols / 4, 4), 0, 3, 2, 1, 4), rows * cols);
}

test_array test_stack_31(const mox_vendor_plan *plan, const moxie_grid *gate, const moxie_grid *up, int64_t rows,
                         int64_t cols)
{
    const moxie_grid none = { 0 };
    const test_array w = plan->shape.gated ? test_stack(up, gate, rows) : test_stack(&none, up, rows);
    return test_pad(w, 1, cols);
}

test_array test_widen(test_array bias, moxie_dtype dtype)
{
    for (int64_t i = 0; dtype == MOXIE_BF16 && i < test_array_count(&bias); i++)
        bias.data[i] <<= 16;
    return bias;
}

uint32_t test_to_signed(uint32_t code)
{
    return (code - 8) & 15;
}

float test_value_of(const moxie_grid *grid)
{
    return (float)mox_grid_value(grid, 0, 0);
}

/* ---- codes of four bits ---- */

test_array test_to_bytes(test_array w)
{
    const int64_t shape[] = { w.shape[0], w.shape[1] / 2 };
    test_array bytes = test_array_new(2, shape);
    for (int64_t i = 0; i < test_array_count(&bytes); i++)
        bytes.data[i] = w.data[2 * i] | w.data[2 * i + 1] << 4;
    test_array_free(&w);
    return bytes;
}

/* A code where slot 0, 1 or 2 keeps it: shifted by 0, 3 or 6. */
static uint32_t compress(uint32_t code)
{
    return (code >> 3) << 15 | (code & 7) << 6;
}

static uint32_t compress_fourth(uint32_t code)
{
    return (code >> 3) << 14 | (code >> 1 & 3) << 10 | (code & 1) << 13;
}

test_array test_twiddle(test_array bytes)
{
    const int64_t count = test_array_count(&bytes) / 4;
    test_array words = test_array_new(1, &count);
    for (int64_t i = 0; i < count; i++) {
        const uint32_t *b = bytes.data + 4 * i;
        for (int high = 0; high < 2; high++) {
            const uint32_t half = compress(b[0] >> (4 * high) & 15) | compress(b[1] >> (4 * high) & 15) >> 3 |
                                  compress(b[2] >> (4 * high) & 15) >> 6 | compress_fourth(b[3] >> (4 * high) & 15);
            words.data[i] |= half << (16 * high);
        }
    }
    test_array_free(&bytes);
    return words;
}

/* ---- scales ---- */

/* scale.clamp_(min=1e-10). */
static test_array clamp(test_array scale, moxie_dtype dtype)
{
    scale = test_widen(scale, dtype);
    for (int64_t i = 0; i < test_array_count(&scale); i++) {
        float value;
        memcpy(&value, scale.data + i, sizeof value);
        value = fmaxf(value, 1e-10f);
        memcpy(scale.data + i, &value, sizeof value);
    }
    return scale;
}

int test_state_block_scales(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    const moxie_dtype dtype = plan->shape.w13.scale;
    const int bits = dtype == MOXIE_BF16 ? 16 : 32;
    out[0] = (test_stated) { "w13_weight_scale_inv", clamp(test_stack(&e->up.scale, &e->gate.scale, 0), dtype), 32 };
    out[1] = (test_stated) { "w2_weight_scale_inv", clamp(test_array_of(&e->down.scale), dtype), 32 };
    out[2] = (test_stated) { "moxie.w13_weight_scale_inv", test_stack(&e->gate.scale, &e->up.scale, 0), bits };
    out[3] = (test_stated) { "moxie.w2_weight_scale_inv", test_array_of(&e->down.scale), bits };
    return 4;
}

/* ---- constants ---- */

int test_state_swiglu(const mox_vendor_plan *plan, test_stated out[])
{
    const moxie_activation *a = &plan->use.activation;
    if (a->gate_limit == 0)
        return 0;
    out[0] = (test_stated) { "gemm1_alpha", test_float(a->alpha), 32 };
    out[1] = (test_stated) { "gemm1_beta", test_float(a->beta), 32 };
    out[2] = (test_stated) { "gemm1_clamp_limit", test_float(a->gate_limit), 32 };
    return 3;
}

test_scalars test_scalars_of(const mox_vendor_plan *plan, const moxie_expert *e)
{
    const bool global = plan->shape.w13.global != MOXIE_GLOBAL_NONE;
    const moxie_matrix *first = plan->shape.gated ? &e->gate : &e->up;
    test_scalars s = { test_value_of(global ? &first->global : &first->scale),
                       test_value_of(global ? &e->up.global : &e->up.scale),
                       test_value_of(global ? &e->down.global : &e->down.scale), e->a13_scale, e->a2_scale };
    if (plan->shape.w13.global == MOXIE_GLOBAL_DIVIDE)
        s = (test_scalars) { 1 / s.gate, 1 / s.up, 1 / s.down, 1 / s.a1, 1 / s.a2 };
    return s;
}
