/* SPDX-License-Identifier: Apache-2.0
 *
 * test_vendor_act_order.c - Marlin's layouts of weights in act order (GPTQ's desc_act): the published order of columns,
 * the weights as the kernel reads them, what is rejected. Bytes and undo: test_vendor.c and test_golden_files.c.
 */
#include "test_executors.h"
#include "test_orders.h"
#include "test_vendor_cases.h"

enum { HIDDEN = 256, INTERMEDIATE = 128 };

typedef struct fixture {
    test_expert expert;
    mox_record_shape shape;
    test_packed packed;
} fixture;

static void make(fixture *f, const test_weight_quant *quant, uint64_t seed)
{
    const test_expert_spec spec = {
        .hidden = HIDDEN, .intermediate = INTERMEDIATE, .gated = true, .w13 = quant, .w2 = quant
    };
    test_rng rng = { seed };
    test_expert_make(&f->expert, &rng, &spec);
    f->shape = test_record_shape(&spec);
    test_vendor_settle(&f->expert.view, mox_vendor_find("marlin-gptq", "vllm-0.18"), &f->shape, &rng);
    const moxie_matrix *const all[] = { &f->expert.view.gate, &f->expert.view.up, &f->expert.view.down };
    for (int i = 0; i < 3; i++) /* the middle code as v1 stores it */
        for (int64_t r = 0; all[i]->zero.data != NULL && r < all[i]->zero.rows; r++)
            for (int64_t c = 0; c < all[i]->zero.cols; c++)
                mox_grid_store(&all[i]->zero, r, c, 7);
}

static const int32_t *numbers(const test_packed *p, const char *name)
{
    return (const int32_t *)(const void *)test_packed_named(p, name, NULL);
}

static const test_weight_quant *four_bits(void)
{
    return test_weight_quant_named("gptq act order");
}

static const test_weight_quant *eight_bits(void)
{
    return test_weight_quant_named("gptq 8 bit act order");
}

/* ---- what the kernel computes --------------------------------------------------------------------- */

/* Field (k, n) of N columns: the published formula for 16-bit activations. */
static uint32_t field(const uint8_t *tensor, int64_t k, int64_t n, int64_t columns, int bits)
{
    static const int nibble_of[] = { 0, 4, 1, 5, 2, 6, 3, 7 }, byte_of[] = { 0, 2, 1, 3 };
    const int64_t tile = k / 16 * (columns / 64) + n / 64, warp = n % 64 / 16, half = n % 16 / 8;
    const int64_t lane = n % 8 * 4 + k % 8 / 2, i = k % 2 + 2 * (k % 16 / 8);
    const int64_t word = bits == 4 ? tile * 128 + lane * 4 + warp : tile * 256 + lane * 8 + warp * 2 + half;
    const int shift = bits == 4 ? 4 * nibble_of[4 * half + i] : 8 * byte_of[i];
    uint32_t w;
    memcpy(&w, tensor + 4 * word, sizeof w);
    return w >> shift & ((1u << bits) - 1);
}

/* Row k of the kernel's weights multiplies column sort_indices[k] of the activations; its scale is that of group
 * g_idx[k]. */
static void compare(const fixture *f, int second, const char *codes, const char *scales, const char *groups,
                    const char *order)
{
    const int64_t rows = second ? HIDDEN : 2 * INTERMEDIATE, cols = second ? INTERMEDIATE : HIDDEN;
    const int32_t *g = numbers(&f->packed, groups), *from = numbers(&f->packed, order);
    const uint8_t *s = test_packed_named(&f->packed, scales, NULL);
    const int bits = mox_dtype_bits(f->shape.w13.element);
    const moxie_expert *e = &f->expert.view;
    for (int64_t n = 0; n < rows; n++)
        for (int64_t k = 0; k < cols; k++) {
            const int64_t at = g[k] * rows + n / 64 * 64 + n % 8 * 8 + n % 64 / 8;
            const double scale = (double)moxie_decode(f->shape.w13.scale, (uint32_t)(s[2 * at] | s[2 * at + 1] << 8));
            const uint32_t code = field(test_packed_named(&f->packed, codes, NULL), k, n, rows, bits);
            const moxie_matrix *m = second ? &e->down : n < INTERMEDIATE ? &e->gate : &e->up;
            const double want =
                mox_matrix_weight(m, second ? &f->shape.w2 : &f->shape.w13, second ? n : n % INTERMEDIATE, from[k]);
            assert_true(k == 0 || g[k] > g[k - 1] || (g[k] == g[k - 1] && from[k] > from[k - 1]));
            if (((double)code - (bits == 4 ? 8 : 128)) * scale != want)
                fail_msg("%s (%d, %d) is not column %d of the checkpoint", codes, (int)n, (int)k, from[k]);
        }
}

static void kernels_read_the_checkpoints_weights(void **state)
{
    (void)state;
    const test_weight_quant *const quants[] = { four_bits(), eight_bits() };
    for (uint64_t i = 0; i < 8; i++) {
        fixture f;
        make(&f, quants[i % 2], test_seed(3) + i);
        test_packed_make(&f.packed, mox_vendor_find("marlin-gptq", "vllm-0.18"), &f.shape, NULL, &f.expert.view, false);
        compare(&f, 0, "w13_qweight", "w13_scales", "w13_g_idx", "w13_g_idx_sort_indices");
        compare(&f, 1, "w2_qweight", "w2_scales", "w2_g_idx", "w2_g_idx_sort_indices");
        test_packed_free(&f.packed);
        if (i % 2 == 1) { /* compressed-tensors has no zero points */
            test_packed_make(&f.packed, mox_vendor_find("marlin-ct", "vllm-0.18"), &f.shape, NULL, &f.expert.view,
                             false);
            compare(&f, 0, "w13_weight_packed", "w13_weight_scale", "w13_weight_g_idx", "w13_g_idx_sort_indices");
            compare(&f, 1, "w2_weight_packed", "w2_weight_scale", "w2_weight_g_idx", "w2_g_idx_sort_indices");
            test_packed_free(&f.packed);
        }
        test_expert_free(&f.expert);
    }
}

/* ---- orders --------------------------------------------------------------------------------------- */

static void columns_are_sorted_by_group_and_stay_in_order_within(void **state)
{
    (void)state;
    fixture f;
    make(&f, four_bits(), 1);
    int32_t *index = (int32_t *)(uintptr_t)f.expert.view.down.group_index;
    for (int k = 0; k < INTERMEDIATE; k++)
        index[k] = 3 - k % 4;
    test_packed_make(&f.packed, mox_vendor_find("marlin-gptq", "vllm-0.18"), &f.shape, NULL, &f.expert.view, false);
    const int32_t *g = numbers(&f.packed, "w2_g_idx"), *from = numbers(&f.packed, "w2_g_idx_sort_indices");
    for (int k = 0; k < INTERMEDIATE; k++) {
        assert_int_equal(g[k], k / 32);
        assert_int_equal(from[k], k % 32 * 4 + 3 - k / 32);
    }
    test_packed_free(&f.packed);
    test_expert_free(&f.expert);
}

static void natural_order_has_no_such_tensors(void **state)
{
    (void)state;
    fixture f;
    mox_vendor_plan plan;
    moxie_error error = { 0 };
    make(&f, four_bits(), 1);
    const moxie_expert in_order = f.expert.view;
    moxie_expert e = in_order;
    e.gate.group_index = e.up.group_index = e.down.group_index = NULL;
    const mox_vendor_layout *layout = mox_vendor_find("marlin-gptq", "vllm-0.18");
    assert_ok(mox_vendor_plan_make(layout, &f.shape, NULL, &e, false, &plan, &error), &error);
    const int32_t count = plan.count;
    assert_false(plan.act_order);
    /* Another expert of such a layer has no tensors for an act order. */
    assert_int_equal(mox_vendor_check(&plan, &f.expert.view, &error), MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "act order"));
    /* An expert in natural order can be packed with a plan for act order. */
    assert_ok(mox_vendor_plan_make(layout, &f.shape, NULL, &f.expert.view, false, &plan, &error), &error);
    assert_int_equal(plan.count, count + 4);
    assert_ok(mox_vendor_check(&plan, &e, &error), &error);
    test_expert_free(&f.expert);
}

static void other_orders_are_refused(void **state)
{
    (void)state;
    static const char *const none[] = { "marlin-awq", "marlin-gptq-fp8", "marlin-gptq-int8", "moe-wna16",
                                        "marlin-gptq" };
    fixture f;
    mox_vendor_plan plan;
    moxie_error error = { 0 };
    make(&f, four_bits(), 1);
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        const mox_vendor_layout *layout = mox_vendor_by_name(none[i]);
        assert_ok(mox_vendor_plan_make(layout, &f.shape, NULL, &f.expert.view, false, &plan, &error), &error);
        assert_int_equal(mox_vendor_check(&plan, &f.expert.view, &error), MOXIE_ERR_UNSUPPORTED);
        assert_non_null(strstr(error.text, "act order"));
        assert_true((strstr(error.text, "--for vllm-0.18") != NULL) == !strcmp(none[i], "marlin-gptq"));
    }
    const mox_vendor_layout *layout = mox_vendor_find("marlin-gptq", "vllm-0.18");
    assert_ok(mox_vendor_plan_make(layout, &f.shape, NULL, &f.expert.view, false, &plan, &error), &error);
    int32_t index[HIDDEN]; /* up's would change with gate's own */
    memcpy(index, f.expert.view.gate.group_index, sizeof index);
    index[5] = (index[5] + 1) % 8;
    f.expert.view.gate.group_index = index;
    assert_int_equal(mox_vendor_check(&plan, &f.expert.view, &error), MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "gate's columns"));
    test_expert_free(&f.expert);
}

static void tensors_that_hold_no_permutation_are_refused(void **state)
{
    (void)state;
    fixture f;
    test_expert twin;
    moxie_error error = { 0 };
    make(&f, four_bits(), 1);
    test_packed_make(&f.packed, mox_vendor_find("marlin-gptq", "vllm-0.18"), &f.shape, NULL, &f.expert.view, false);
    test_expert_twin(&twin, &f.expert);
    int32_t *from = (int32_t *)(uintptr_t)numbers(&f.packed, "w13_g_idx_sort_indices");
    const int32_t wrong[] = { -1, HIDDEN, from[1], INT32_MIN };
    const int32_t saved = from[0];
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        from[0] = wrong[i];
        assert_int_equal(mox_vendor_unpack(&f.packed.plan, f.packed.data, &twin.view, &mox_executor_serial, &error),
                         MOXIE_ERR_FORMAT);
        assert_non_null(strstr(error.text, "w13_g_idx_sort_indices"));
    }
    from[0] = saved;
    assert_ok(mox_vendor_unpack(&f.packed.plan, f.packed.data, &twin.view, &mox_executor_serial, &error), &error);
    const char *differs = "";
    if (!test_expert_equal(&f.expert.view, &twin.view, &differs))
        fail_msg("%s does not come back", differs);
    test_packed_free(&f.packed);
    test_expert_free(&twin);
    test_expert_free(&f.expert);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_read_the_checkpoints_weights),
        cmocka_unit_test(columns_are_sorted_by_group_and_stay_in_order_within),
        cmocka_unit_test(natural_order_has_no_such_tensors),
        cmocka_unit_test(other_orders_are_refused),
        cmocka_unit_test(tensors_that_hold_no_permutation_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
