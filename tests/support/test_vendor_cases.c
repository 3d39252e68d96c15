/* SPDX-License-Identifier: Apache-2.0
 *
 * test_vendor_cases.c - weights that vendor layouts take (test_vendor_cases.h).
 */
#include "test_vendor_cases.h"

#include "vendor/vendor_internal.h"

const char *test_vendor_title(const mox_vendor_layout *layout, char buffer[80])
{
    const bool newest = layout == mox_vendor_by_name(layout->name);
    snprintf(buffer, 80, "%s%s%s", layout->name, newest ? "" : "-", newest ? "" : mox_vendor_release(layout));
    return buffer;
}

const test_statement *test_statement_of(const mox_vendor_layout *layout)
{
    char title[80];
    const test_statement *s = test_statements;
    test_vendor_title(layout, title);
    while (s->layout != NULL && strcmp(s->layout, title) != 0)
        s++;
    return s;
}

#define FP8(scale_dtype, rows, cols)                                                                                   \
    .packing = TEST_DENSE,                                                                                             \
    .quant = { .element = MOXIE_F8_E4M3, .scale = (scale_dtype), .group_rows = (rows), .group_cols = (cols) }

static const test_weight_quant more[] = {
    { "fp8 per tensor, bf16", FP8(MOXIE_BF16, -1, -1) },  { "fp8 per tensor, f16", FP8(MOXIE_F16, -1, -1) },
    { "fp8 per channel, bf16", FP8(MOXIE_BF16, 1, -1) },  { "fp8 per channel, f16", FP8(MOXIE_F16, 1, -1) },
    { "fp8 128 x 128, bf16", FP8(MOXIE_BF16, 128, 128) }, { "fp8 128 x 128, f16", FP8(MOXIE_F16, 128, 128) },
};

const test_weight_quant *test_vendor_quant_at(int i)
{
    const int count = (int)(sizeof more / sizeof more[0]);
    if (i < test_weight_quant_count)
        return &test_weight_quants[i];
    return i - test_weight_quant_count < count ? &more[i - test_weight_quant_count] : NULL;
}

bool test_vendor_takes(const mox_vendor_layout *layout, const moxie_quant *quant)
{
    bool element = false, scale = layout->accepts.scales[0] == quant->scale;
    for (int i = 0; i < 4; i++) {
        element = element || layout->accepts.elements[i] == quant->element;
        scale = scale || (quant->scale != MOXIE_DTYPE_NONE && layout->accepts.scales[i] == quant->scale);
    }
    return element && scale &&
           (quant->has_zero ? layout->accepts.zeros : layout->accepts.no_zeros || !layout->accepts.zeros);
}

int64_t test_vendor_unit(const mox_vendor_layout *layout, mox_vendor_extent extent)
{
    int64_t unit = 1;
    for (const mox_vendor_limit *l = layout->limits; l < layout->limits + MOX_VENDOR_LIMITS && l->multiple; l++) {
        int64_t next = unit;
        while (l->extent == extent && next % l->multiple != 0)
            next += unit;
        unit = next;
    }
    return unit;
}

mox_vendor_use test_vendor_use(test_rng *rng)
{
    mox_vendor_use use = { .activation.kind = MOXIE_ACT_SILU };
    if (test_below(rng, 2) == 0)
        use.activation = (moxie_activation) { MOXIE_ACT_SILU, 1.702f, 1.0f, 7.0f, 7.0f, NULL, NULL, NULL };
    return use;
}

static void keep_exponents(const moxie_grid *scale)
{
    for (int64_t r = 0; r < scale->rows; r++)
        for (int64_t c = 0; c < scale->cols; c++)
            mox_grid_store(scale, r, c, mox_grid_code(scale, r, c) & 0x7f800000);
}

void test_vendor_settle(moxie_expert *expert, const mox_vendor_layout *layout, const mox_record_shape *shape,
                        test_rng *rng)
{
    /* Gate and up share their inputs, and so the order in which they were quantized. */
    if (expert->gate.group_index != NULL)
        memcpy((int32_t *)(uintptr_t)expert->up.group_index, expert->gate.group_index,
               (size_t)expert->gate.codes.cols * sizeof(int32_t));
    if (layout->accepts.static_acts) {
        expert->a13_scale = (float)test_range(rng, 1, 4000) / 1024;
        expert->a2_scale = (float)test_range(rng, 1, 4000) / 1024;
    }
    expert->gate.global.rows = expert->gate.global.data != NULL;
    expert->up.global.rows = expert->up.global.data != NULL;
    expert->down.global.rows = expert->down.global.data != NULL;
    const bool scalar = mox_vendor_has_scalar(shape, MOX_VENDOR_W13) && shape->w13.global == MOXIE_GLOBAL_NONE;
    const moxie_grid *gate = scalar ? &expert->gate.scale : &expert->gate.global;
    const moxie_grid *up = scalar ? &expert->up.scale : &expert->up.global;
    if (gate->data != NULL && (scalar || shape->w13.global != MOXIE_GLOBAL_NONE) && test_below(rng, 2) == 0)
        mox_grid_store(up, 0, 0, mox_grid_code(gate, 0, 0));
    if (shape->w13.scale == MOXIE_F32 && test_below(rng, 2) == 0) {
        keep_exponents(&expert->gate.scale);
        keep_exponents(&expert->up.scale);
        keep_exponents(&expert->down.scale);
    }
}
