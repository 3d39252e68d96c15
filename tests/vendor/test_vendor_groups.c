/* SPDX-License-Identifier: Apache-2.0
 *
 * test_vendor_groups.c - moe_wna16 when the group does not divide hidden or intermediate: rejected, or halved on
 * request. The scale of every column must be that of the checkpoint, and undo must detect copies that differ.
 */
#include "test_orders.h"
#include "test_vendor_cases.h"

#include "vendor/vendor_internal.h"

static void elements_are_repeated_and_merged(void **state)
{
    (void)state;
    static const uint16_t scales[] = { 10, 11, 12, 13, 14, 15 };
    static const uint16_t twice[] = { 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15 };
    static const uint8_t nibbles[] = { 0x21, 0x03 }, four_times[] = { 0x11, 0x11, 0x22, 0x22, 0x33, 0x33 };
    static const uint8_t bytes[] = { 7, 9 }, bytes_twice[] = { 7, 7, 9, 9 };
    uint16_t out[12] = { 0 };
    mox_groups_repeat(6, 16, 2, (const uint8_t *)scales, (uint8_t *)out);
    assert_memory_equal(out, twice, sizeof twice);
    assert_true(mox_groups_merge(6, 16, 2, (const uint8_t *)twice, (uint8_t *)out));
    assert_memory_equal(out, scales, sizeof scales);
    mox_groups_repeat(3, 4, 4, nibbles, (uint8_t *)out);
    assert_memory_equal(out, four_times, sizeof four_times);
    assert_true(mox_groups_merge(3, 4, 4, four_times, (uint8_t *)out));
    assert_memory_equal(out, nibbles, sizeof nibbles);
    mox_groups_repeat(2, 8, 2, bytes, (uint8_t *)out);
    assert_memory_equal(out, bytes_twice, sizeof bytes_twice);
    assert_true(mox_groups_merge(2, 8, 2, bytes_twice, (uint8_t *)out));
    assert_memory_equal(out, bytes, sizeof bytes);
}

static void elements_that_differ_are_not_merged(void **state)
{
    (void)state;
    uint8_t out[4];
    static const uint16_t scales[] = { 10, 10, 11, 12 };
    static const uint8_t halves[] = { 0x11, 0x21 }, between[] = { 0x11, 0x22 }, bytes[] = { 7, 7, 7, 8 };
    assert_false(mox_groups_merge(2, 16, 2, (const uint8_t *)scales, out));
    assert_false(mox_groups_merge(2, 4, 2, halves, out));
    assert_false(mox_groups_merge(1, 4, 4, between, out));
    assert_false(mox_groups_merge(1, 8, 4, bytes, out));
}

/* ---- whole experts ---- */

typedef struct subject {
    test_expert expert;
    mox_record_shape shape;
    test_packed packed;
} subject;

static const mox_vendor_layout *wna16(void)
{
    return mox_vendor_by_name("moe-wna16");
}

static void make_expert(subject *s, const char *quant, int64_t hidden, int64_t intermediate, test_rng *rng)
{
    const test_expert_spec spec = { .hidden = hidden,
                                    .intermediate = intermediate,
                                    .gated = true,
                                    .w13 = test_weight_quant_named(quant),
                                    .w2 = test_weight_quant_named(quant) };
    s->shape = test_record_shape(&spec);
    test_expert_make(&s->expert, rng, &spec);
}

static moxie_status plan_of(const subject *s, bool pad, moxie_error *error)
{
    mox_vendor_plan plan;
    return mox_vendor_plan_make(wna16(), &s->shape, NULL, &s->expert.view, pad, &plan, error);
}

/* What the kernel of the target finds for column k of row n, with groups of `group` columns, is what the checkpoint
 * has. */
static void check_matrix(const subject *s, int second, int64_t group)
{
    const mox_vendor_tensor *scales, *zeros;
    const moxie_quant *q = second ? &s->shape.w2 : &s->shape.w13;
    const uint8_t *scale = test_packed_named(&s->packed, second ? "w2_scales" : "w13_scales", &scales);
    const uint8_t *zero =
        q->has_zero ? test_packed_named(&s->packed, second ? "w2_qzeros" : "w13_qzeros", &zeros) : NULL;
    for (int64_t n = 0; n < scales->shape[0]; n++) {
        const int64_t rows = s->shape.intermediate;
        const moxie_matrix *m = second ? &s->expert.view.down : n < rows ? &s->expert.view.gate : &s->expert.view.up;
        const int64_t row = second ? n : n % rows;
        for (int64_t k = 0; k < m->codes.cols; k++) {
            const int64_t at = n * scales->shape[1] + k / group;
            assert_true(k / group < scales->shape[1]);
            assert_int_equal(scale[2 * at] | scale[2 * at + 1] << 8, mox_grid_code(&m->scale, row, k / q->group_cols));
            if (zero != NULL)
                assert_int_equal(zero[n / 2 * zeros->shape[1] + k / group] >> n % 2 * 4 & 15,
                                 mox_grid_code(&m->zero, row, k / q->group_cols) + (uint32_t)m->zero_add);
        }
    }
}

/* `group`: the group size that the target must have. */
static void check_case(const char *quant, int64_t hidden, int64_t intermediate, int64_t group, test_rng *rng)
{
    subject s;
    moxie_error error = { 0 };
    make_expert(&s, quant, hidden, intermediate, rng);
    test_packed_make(&s.packed, wna16(), &s.shape, NULL, &s.expert.view, true);
    assert_int_equal(s.packed.plan.repeat, s.shape.w13.group_cols / group);
    check_matrix(&s, 0, group);
    check_matrix(&s, 1, group);
    test_expert twin;
    const char *differs = "";
    test_expert_twin(&twin, &s.expert);
    assert_ok(mox_vendor_unpack(&s.packed.plan, s.packed.data, &twin.view, &mox_executor_serial, &error), &error);
    if (!test_expert_equal(&s.expert.view, &twin.view, &differs))
        fail_msg("%s, hidden %lld, intermediate %lld: %s does not come back", quant, (long long)hidden,
                 (long long)intermediate, differs);
    test_expert_free(&twin);
    test_packed_free(&s.packed);
    test_expert_free(&s.expert);
}

static void groups_are_halved_until_they_divide(void **state)
{
    (void)state;
    test_rng rng = { test_seed(11) };
    check_case("int4 words g128", 256, 704, 64, &rng);
    check_case("int4 words g128", 256, 96, 32, &rng);
    check_case("int4 words g128", 160, 256, 32, &rng);
    check_case("int4 words g128", 256, 64, 64, &rng); /* a row shorter than the group */
    check_case("int8 words g64", 128, 96, 32, &rng);
    check_case("int4 words g128 zero", 192, 256, 64, &rng);
    check_case("int4 words g128", 256, 384, 128, &rng);
}

static void random_extents_are_halved_for(void **state)
{
    (void)state;
    static const char *const quants[] = { "int4 words g128", "int8 words g64", "int4 words g64",
                                          "int4 words g128 zero" };
    test_rng rng = { test_seed(12) };
    for (int i = 0; i < 50; i++) {
        const test_weight_quant *q = test_weight_quant_named(quants[i % 4]);
        const int64_t whole = q->quant.group_cols;
        const int64_t hidden = 32 * test_range(&rng, 1, 12);
        const int64_t intermediate = (q->quant.has_zero ? whole : 32) * test_range(&rng, 1, q->quant.has_zero ? 2 : 12);
        int64_t group = whole;
        while (hidden % group != 0 || intermediate % group != 0)
            group /= 2;
        check_case(q->name, hidden, intermediate, group, &rng);
    }
}

/* ---- rejections ---- */

static void parts_of_groups_are_refused_unless_asked_for(void **state)
{
    (void)state;
    test_rng rng = { 1 };
    subject s;
    moxie_error error = { 0 };
    make_expert(&s, "int4 words g128", 256, 704, &rng);
    assert_int_equal(plan_of(&s, false, &error), MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "intermediate is 704"));
    assert_non_null(strstr(error.text, "640 or 768"));
    assert_non_null(strstr(error.text, "groups of 64"));
    assert_ok(plan_of(&s, true, &error), &error);
    s.shape.w2.group_cols = 64;
    assert_int_equal(plan_of(&s, true, &error), MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "w2 of 64"));
    test_expert_free(&s.expert);
}

static void zero_points_of_a_part_of_w2s_groups_are_refused(void **state)
{
    (void)state;
    test_rng rng = { 1 };
    subject s;
    moxie_error error = { 0 };
    mox_vendor_plan plan;
    make_expert(&s, "int4 words g128 zero", 256, 192, &rng);
    assert_ok(mox_vendor_plan_make(wna16(), &s.shape, NULL, &s.expert.view, true, &plan, &error), &error);
    assert_int_equal(mox_vendor_check(&plan, &s.expert.view, &error), MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "w2_qzeros"));
    test_expert_free(&s.expert);
}

/* A symmetric GPTQ file has zero points that are all 8, and vLLM's layer then has none; also where a part of a group
 * would leave no room for them. */
static void symmetric_files_get_no_zero_points(void **state)
{
    (void)state;
    test_rng rng = { 1 };
    subject s;
    moxie_error error = { 0 };
    mox_vendor_plan plan;
    const mox_vendor_use symmetric = { .activation.kind = MOXIE_ACT_SILU, .symmetric = true };
    make_expert(&s, "int4 words g128 zero", 256, 192, &rng);
    assert_ok(mox_vendor_plan_make(wna16(), &s.shape, &symmetric, &s.expert.view, true, &plan, &error), &error);
    void *data[MOX_VENDOR_TENSORS];
    for (int32_t i = 0; i < plan.count; i++) {
        assert_null(strncmp(plan.tensors[i].name, "w", 1) == 0 ? strstr(plan.tensors[i].name, "qzeros") : NULL);
        data[i] = malloc((size_t)plan.tensors[i].bytes);
    }
    assert_int_equal(mox_vendor_pack(&plan, &s.expert.view, data, &mox_executor_serial, &error),
                     MOXIE_ERR_UNSUPPORTED); /* random zero points */
    assert_non_null(strstr(error.text, "middle of the codes"));
    for (int32_t i = 0; i < plan.count; i++)
        free(data[i]);
    moxie_matrix *const matrices[] = { &s.expert.view.gate, &s.expert.view.up, &s.expert.view.down };
    for (int m = 0; m < 3; m++)
        for (int64_t r = 0; r < matrices[m]->zero.rows; r++)
            for (int64_t c = 0; c < matrices[m]->zero.cols; c++)
                mox_grid_store(&matrices[m]->zero, r, c, 8 - (uint32_t)matrices[m]->zero_add);
    test_packed_make(&s.packed, wna16(), &s.shape, &symmetric, &s.expert.view, true);
    const mox_vendor_tensor *scales, *zeros;
    test_packed_named(&s.packed, "w2_scales", &scales);
    test_packed_named(&s.packed, "moxie.w2_qzeros", &zeros);
    assert_int_equal(scales->shape[1], 3); /* groups of 64 */
    assert_int_equal(zeros->shape[1], 1);  /* two zero points in a byte, groups of 128 */
    test_expert twin;
    const char *differs = "";
    test_expert_twin(&twin, &s.expert);
    assert_ok(mox_vendor_unpack(&s.packed.plan, s.packed.data, &twin.view, &mox_executor_serial, &error), &error);
    assert_true(test_expert_equal(&s.expert.view, &twin.view, &differs));
    test_expert_free(&twin);
    test_packed_free(&s.packed);
    test_expert_free(&s.expert);
}

static void what_does_not_repeat_is_not_undone(void **state)
{
    (void)state;
    static const char *const names[] = { "w13_scales", "w2_scales", "w13_qzeros" };
    test_rng rng = { 1 };
    subject s;
    moxie_error error = { 0 };
    test_expert twin;
    make_expert(&s, "int4 words g128 zero", 192, 128, &rng);
    test_packed_make(&s.packed, wna16(), &s.shape, NULL, &s.expert.view, true);
    test_expert_twin(&twin, &s.expert);
    for (int i = 0; i < 3; i++) {
        const mox_vendor_tensor *t;
        test_packed_named(&s.packed, names[i], &t);
        uint8_t *first = s.packed.data[t - s.packed.plan.tensors]; /* one of two copies */
        *first ^= 0x10;
        assert_int_equal(mox_vendor_unpack(&s.packed.plan, s.packed.data, &twin.view, &mox_executor_serial, &error),
                         MOXIE_ERR_FORMAT);
        assert_non_null(strstr(error.text, "differ"));
        *first ^= 0x10;
    }
    test_expert_free(&twin);
    test_packed_free(&s.packed);
    test_expert_free(&s.expert);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_are_repeated_and_merged),
        cmocka_unit_test(elements_that_differ_are_not_merged),
        cmocka_unit_test(groups_are_halved_until_they_divide),
        cmocka_unit_test(random_extents_are_halved_for),
        cmocka_unit_test(parts_of_groups_are_refused_unless_asked_for),
        cmocka_unit_test(zero_points_of_a_part_of_w2s_groups_are_refused),
        cmocka_unit_test(symmetric_files_get_no_zero_points),
        cmocka_unit_test(what_does_not_repeat_is_not_undone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
