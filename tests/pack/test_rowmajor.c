/* SPDX-License-Identifier: Apache-2.0
 *
 * test_rowmajor.c - the rowmajor layout: unpack(pack(w)) == w for every format and packing at odd shapes, the views of
 * a record, its bytes for a case computed by hand, sizes, and the seal.
 */
#include "test_problem.h"

static const mox_layout *layout(void)
{
    return mox_layout_by_name("rowmajor");
}

typedef struct packed {
    mox_record_shape shape;
    uint64_t bytes;
    void *record;
} packed;

static packed pack_spec(const test_expert_spec *spec, const test_expert *expert, int64_t index)
{
    packed p = { .shape = test_record_shape(spec) };
    moxie_error error;
    assert_true(layout()->record_bytes(&p.shape, &p.bytes));
    assert_int_equal(p.bytes % MOX_RECORD_ALIGN, 0);
    p.record = test_guarded(p.bytes);
    memset(p.record, 0xcc, p.bytes);
    assert_ok(mox_record_pack(layout(), &p.shape, index, &expert->view, p.record, &error), &error);
    assert_ok(mox_record_verify(layout(), &p.shape, index, p.record, &error), &error);
    return p;
}

/* ---- round trips ------------------------------------------------------------------------------------------ */

static void same_weights(const moxie_matrix *a, const moxie_matrix *b, const moxie_quant *quant, const char *name)
{
    for (int64_t n = 0; n < a->codes.rows; n++)
        for (int64_t k = 0; k < a->codes.cols; k++) {
            const double x = mox_matrix_weight(a, quant, n, k), y = mox_matrix_weight(b, quant, n, k);
            if (!(x == y || (x != x && y != y)))
                fail_msg("%s: view of the record has %g at (%lld, %lld), the checkpoint %g", name, y, (long long)n,
                         (long long)k, x);
        }
}

static void round_trip(test_rng *rng, const test_expert_spec *spec)
{
    const char *name = spec->w13->name, *what;
    test_expert expert, back;
    moxie_error error;
    test_expert_make(&expert, rng, spec);
    const packed p = pack_spec(spec, &expert, 7);

    moxie_expert view;
    mox_rowmajor_view(&p.shape, p.record, &view);
    if (spec->gated)
        same_weights(&expert.view.gate, &view.gate, &p.shape.w13, name);
    same_weights(&expert.view.up, &view.up, &p.shape.w13, name);
    same_weights(&expert.view.down, &view.down, &p.shape.w2, name);

    test_expert_twin(&back, &expert);
    assert_ok(layout()->unpack(&p.shape, p.record, &back.view, &error), &error);
    if (!test_expert_equal(&expert.view, &back.view, &what))
        fail_msg("%s %s, %lld x %lld: unpack(pack(w)) differs from w in %s", name, test_fill_names[spec->fill],
                 (long long)spec->hidden, (long long)spec->intermediate, what);
    test_guarded_free(p.record, p.bytes);
    test_expert_free(&expert);
    test_expert_free(&back);
}

static void every_format_comes_back(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = { { 1, 1 }, { 31, 17 }, { 64, 96 }, { 133, 130 } };
    const uint64_t seed = test_seed(1);
    test_rng rng = { seed };
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int q = 0; q < test_weight_quant_count; q++)
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            const test_expert_spec spec = {
                .hidden = sizes[s][0],
                .intermediate = sizes[s][1],
                .gated = s % 2 == 0,
                .bias13 = test_below(&rng, 2) == 0,
                .bias2 = test_below(&rng, 2) == 0,
                .w13 = &test_weight_quants[q],
                .w2 = &test_weight_quants[test_below(&rng, (uint64_t)test_weight_quant_count)],
                .a13 = &test_act_quants[1],
                .fill = (test_fill)test_below(&rng, TEST_FILLS),
            };
            round_trip(&rng, &spec);
        }
}

/* A group index of column / group comes back although the record does not store it. */
static void natural_order_comes_back(void **state)
{
    (void)state;
    test_rng rng = { 2 };
    const test_weight_quant *gptq = NULL;
    for (int q = 0; q < test_weight_quant_count; q++)
        if (strcmp(test_weight_quants[q].name, "gptq") == 0)
            gptq = &test_weight_quants[q];
    assert_non_null(gptq);
    const test_expert_spec spec = { .hidden = 70, .intermediate = 40, .gated = true, .w13 = gptq, .w2 = gptq };
    test_expert expert, back;
    moxie_error error;
    const char *what;
    test_expert_make(&expert, &rng, &spec);
    int32_t index[70];
    for (int k = 0; k < 70; k++)
        index[k] = k / 32;
    expert.view.gate.group_index = index;
    const packed p = pack_spec(&spec, &expert, 0);
    mox_rowmajor_record record;
    mox_rowmajor_open(&p.shape, p.record, &record);
    assert_null(record.gate.group_index);
    test_expert_twin(&back, &expert);
    assert_ok(layout()->unpack(&p.shape, p.record, &back.view, &error), &error);
    assert_true(test_expert_equal(&expert.view, &back.view, &what));
    test_guarded_free(p.record, p.bytes);
    test_expert_free(&expert);
    test_expert_free(&back);
}

/* ---- bytes worked out by hand ----------------------------------------------------------------------------- */

/* H = 3, I = 1, ungated: up is [1, 3] in 4 bits, groups of 2 columns; down is [3, 1]. */
static void known_bytes(void **state)
{
    (void)state;
    const moxie_quant quant = { .element = MOXIE_U4B8, .scale = MOXIE_F16, .group_cols = 2, .has_zero = 1 };
    const mox_record_shape shape = { .hidden = 3, .intermediate = 1, .w13 = quant, .w2 = quant, .bias13 = true };
    const uint8_t up_codes[] = { 0x21, 0xf3 }, up_zero[] = { 0x98 }, down_codes[] = { 0x0a, 0x0b, 0x0c };
    const uint8_t up_scale[] = { 0x00, 0x3c, 0x00, 0x40 }, down_scale[] = { 1, 2, 3, 4, 5, 6 },
                  down_zero[] = { 1, 2, 3 };
    const float bias = 0.5f;
    const int32_t order[] = { 1, 0, 1 };
    const moxie_expert expert = {
        .up = { .codes = mox_grid_dense(up_codes, MOXIE_U4B8, 1, 3),
                .scale = mox_grid_dense(up_scale, MOXIE_F16, 1, 2),
                .zero = mox_grid_dense(up_zero, MOXIE_U4B8, 1, 2),
                .bias = mox_grid_dense(&bias, MOXIE_F32, 1, 1),
                .zero_add = 1,
                .group_index = order },
        .down = { .codes = mox_grid_dense(down_codes, MOXIE_U4B8, 3, 1),
                  .scale = mox_grid_dense(down_scale, MOXIE_F16, 3, 1),
                  .zero = mox_grid_dense(down_zero, MOXIE_U4B8, 3, 1) },
        .a13_scale = 0.25f,
    };
    /* header; up: codes, scale, zero, bias, group_index, visit; down: codes, scale, zero. A line of 64 each. */
    uint64_t bytes = 0;
    assert_true(layout()->record_bytes(&shape, &bytes));
    assert_int_equal(bytes, 10 * 64);
    uint8_t record[10 * 64];
    moxie_error error;
    assert_ok(mox_record_pack(layout(), &shape, 5, &expert, record, &error), &error);

    const float zeros[] = { 1.0f, 2.0f }; /* codes 8 and 9 less 8, plus 1 */
    const int32_t visit[] = { 1, 0, 2 };
    assert_memory_equal(record + 64, ((uint8_t[]) { 0x21, 0x03 }), 2); /* the fourth nibble is unused */
    assert_memory_equal(record + 128, up_scale, sizeof up_scale);
    assert_memory_equal(record + 192, zeros, sizeof zeros);
    assert_memory_equal(record + 256, &bias, sizeof bias);
    assert_memory_equal(record + 320, order, sizeof order);
    assert_memory_equal(record + 384, visit, sizeof visit);
    assert_memory_equal(record + 448, down_codes, sizeof down_codes);
    assert_memory_equal(record + 512, down_scale, sizeof down_scale);

    mox_record_header header;
    memcpy(&header, record, sizeof header);
    assert_int_equal(header.magic, MOX_RECORD_MAGIC);
    assert_int_equal(header.expert, 5);
    assert_int_equal(header.bytes, bytes);
    assert_int_equal(header.flags, MOX_ROWMAJOR_ORDER_UP);
    assert_true(header.a13_scale == 0.25f);
}

/* ---- sizes and the seal ----------------------------------------------------------------------------------- */

static void sizes_that_do_not_fit(void **state)
{
    (void)state;
    uint64_t bytes = 77;
    const moxie_quant f32 = { .element = MOXIE_F32 };
    const mox_record_shape wide = { .hidden = INT64_MAX, .intermediate = 1, .w13 = f32, .w2 = f32 };
    const mox_record_shape large = {
        .hidden = INT64_C(1) << 40, .intermediate = INT64_C(1) << 40, .w13 = f32, .w2 = f32
    };
    assert_false(layout()->record_bytes(&wide, &bytes));
    assert_false(layout()->record_bytes(&large, &bytes));
    assert_int_equal(bytes, 77);
    moxie_error error = { 0 };
    assert_int_equal(mox_record_pack(layout(), &large, 0, &(moxie_expert) { 0 }, &bytes, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "64 bits"));
}

/* If any byte is damaged, the record no longer verifies, and the text names the expert. */
static void damage_is_found(void **state)
{
    (void)state;
    test_rng rng = { 3 };
    const test_expert_spec spec = {
        .hidden = 20, .intermediate = 12, .gated = true, .w13 = &test_weight_quants[10], .w2 = &test_weight_quants[10]
    };
    test_expert expert;
    test_expert_make(&expert, &rng, &spec);
    const packed p = pack_spec(&spec, &expert, 41);
    for (uint64_t i = 0; i < p.bytes; i++) {
        uint8_t *byte = (uint8_t *)p.record + i;
        moxie_error error = { 0 };
        *byte ^= 0x10;
        assert_int_equal(mox_record_verify(layout(), &p.shape, 41, p.record, &error), MOXIE_ERR_MISMATCH);
        assert_non_null(strstr(error.text, "41"));
        *byte ^= 0x10;
    }
    moxie_error error;
    assert_ok(mox_record_verify(layout(), &p.shape, 41, p.record, &error), &error);
    assert_int_equal(mox_record_verify(layout(), &p.shape, 40, p.record, &error), MOXIE_ERR_MISMATCH);
    test_guarded_free(p.record, p.bytes);
    test_expert_free(&expert);
}

/* The same expert gives the same bytes, whatever the memory held before. */
static void packing_is_canonical(void **state)
{
    (void)state;
    test_rng rng = { 4 };
    for (int q = 0; q < test_weight_quant_count; q++) {
        const test_expert_spec spec = {
            .hidden = 33, .intermediate = 21, .gated = true, .w13 = &test_weight_quants[q], .w2 = &test_weight_quants[q]
        };
        test_expert expert;
        moxie_error error;
        test_expert_make(&expert, &rng, &spec);
        const packed p = pack_spec(&spec, &expert, 1);
        void *other = test_guarded(p.bytes);
        memset(other, 0x33, p.bytes);
        assert_ok(mox_record_pack(layout(), &p.shape, 1, &expert.view, other, &error), &error);
        assert_memory_equal(p.record, other, p.bytes);
        test_guarded_free(other, p.bytes);
        test_guarded_free(p.record, p.bytes);
        test_expert_free(&expert);
    }
}

static void wrong_experts_are_refused(void **state)
{
    (void)state;
    test_rng rng = { 5 };
    const test_expert_spec spec = {
        .hidden = 40, .intermediate = 24, .gated = true, .w13 = &test_weight_quants[10], .w2 = &test_weight_quants[10]
    };
    test_expert expert;
    moxie_error error = { 0 };
    test_expert_make(&expert, &rng, &spec);
    mox_record_shape shape = test_record_shape(&spec);
    uint64_t bytes = 0;
    assert_true(layout()->record_bytes(&shape, &bytes));
    void *record = test_guarded(bytes);

    int32_t order[40] = { 1 };
    moxie_expert reordered = expert.view;
    reordered.up.group_index = order;
    assert_int_equal(mox_record_pack(layout(), &shape, 9, &reordered, record, &error), MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "group index"));

    moxie_expert short_gate = expert.view;
    short_gate.gate.codes.rows = 23;
    assert_int_not_equal(mox_record_pack(layout(), &shape, 9, &short_gate, record, &error), MOXIE_OK);
    assert_non_null(strstr(error.text, "expert 9 gate"));

    shape.gated = false;
    assert_int_equal(mox_record_pack(layout(), &shape, 9, &expert.view, record, &error), MOXIE_ERR_MISMATCH);
    assert_non_null(strstr(error.text, "expert 9"));
    test_guarded_free(record, bytes);
    test_expert_free(&expert);
}

static void list_is_sound(void **state)
{
    (void)state;
    for (int32_t i = 0; mox_layout_at(i) != NULL; i++) {
        assert_ptr_equal(mox_layout_by_name(mox_layout_at(i)->name), mox_layout_at(i));
        for (int32_t j = 0; j < i; j++)
            assert_int_not_equal(mox_layout_at(i)->number, mox_layout_at(j)->number);
    }
    assert_null(mox_layout_at(-1));
    assert_null(mox_layout_by_name("nosuch"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_comes_back),
        cmocka_unit_test(natural_order_comes_back),
        cmocka_unit_test(known_bytes),
        cmocka_unit_test(sizes_that_do_not_fit),
        cmocka_unit_test(damage_is_found),
        cmocka_unit_test(packing_is_canonical),
        cmocka_unit_test(wrong_experts_are_refused),
        cmocka_unit_test(list_is_sound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
