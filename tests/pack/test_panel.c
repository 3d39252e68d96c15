/* SPDX-License-Identifier: Apache-2.0
 *
 * test_panel.c - layout panel16: every byte of a record against formulas for the text of panel.h, element by element;
 * unpack(pack(w)) == w; sizes; what the layout rejects.
 *
 *     every element x scale x groups x packing, bias, gate, zero points; rows and columns around panels and steps
 */
#include <math.h>

#include "pack/panel/panel.h"
#include "packed_record.h"

static const mox_layout *layout(void)
{
    return mox_layout_by_name("panel16");
}

/* ---- panel.h in formulas ---------------------------------------------------------------------------------- */

static int64_t up_to(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

static void put(uint8_t *bytes, int64_t bit, int bits, uint32_t value)
{
    for (int i = 0; i < bits; i++)
        bytes[(bit + i) / 8] |= (uint8_t)((value >> i & 1) << (bit + i) % 8);
}

/* Stores the code of row n, column k in a step: finds the line, then the lane or its equivalent, then the bits. */
static void put_code(uint8_t *step, moxie_dtype element, int n, int k, uint32_t code)
{
    const int lane = 32 * n;
    switch (element) {
    case MOXIE_BF16: put(step, 512 * (k / 2) + lane + 16 * (k % 2), 16, code); break;
    case MOXIE_F16: put(step, 512 * (k / 2) + 256 * (k % 2) + 16 * n, 16, code); break;
    case MOXIE_I8:
    case MOXIE_U8B128: put(step, 512 * (k / 4) + lane + 8 * (k % 4), 8, code); break;
    case MOXIE_F8_E4M3:
    case MOXIE_F8_E5M2:
        put(step, 512 * (k / 4) + 128 * (n / 4) + (k % 4 >= 2 ? 64 : 0) + 16 * (n % 4) + 8 * (k % 2), 8, code);
        break;
    case MOXIE_F6_E3M2:
    case MOXIE_F6_E2M3:
        put(step + 256, 512 * (k / 16) + lane + 16 * (k % 2) + 2 * (k % 16 / 2), 2, code >> 4);
        put(step, 512 * (k / 8) + lane + 16 * (k % 2) + 4 * (k % 8 / 2), 4, code & 15);
        break;
    default: put(step, 512 * (k / 8) + lane + 16 * (k % 2) + 4 * (k % 8 / 2), 4, code); break;
    }
}

/* One projection as panel.h has it, at `to`. gate NULL: ungated. */
static uint8_t *expect_product(uint8_t *to, const moxie_quant *q, const moxie_matrix *gate, const moxie_matrix *up,
                               bool bias)
{
    const int64_t rows = up->codes.rows, cols = up->codes.cols, steps = (cols + 31) / 32;
    const int64_t step_bytes = 4 * 16 * mox_dtype_bits(q->element), count = up_to(rows, 16) / 16 * (gate ? 2 : 1);
    const int64_t gc = q->group_cols <= 0 || q->group_cols > cols ? cols : q->group_cols;
    const int64_t gr = q->group_rows == 0 ? 1 : q->group_rows < 0 || q->group_rows > rows ? rows : q->group_rows;
    const int64_t groups = (cols + gc - 1) / gc, scale_size = mox_dtype_bits(q->scale) / 8;
    const int64_t lanes = gr % 16 == 0 || gr == rows ? 1 : 16;
    const int64_t scale_at = steps * step_bytes, zero_at = scale_at + up_to(groups * lanes * scale_size, 64);
    const int64_t panel_bytes = zero_at + (q->has_zero ? up_to(groups * 16, 64) : 0);
    uint8_t *global = to + count * panel_bytes;
    uint8_t *biases = global + (q->global != MOXIE_GLOBAL_NONE ? count * 64 : 0);
    for (int64_t panel = 0; panel < count; panel++, to += panel_bytes) {
        const moxie_matrix *m = gate == NULL ? up : panel % 2 == 0 ? gate : up;
        const int64_t row = (gate == NULL ? panel : panel / 2) * 16;
        for (int n = 0; n < 16 && row + n < rows; n++) {
            for (int64_t k = 0; k < cols; k++)
                put_code(to + k / 32 * step_bytes, q->element, n, (int)(k % 32), mox_grid_code(&m->codes, row + n, k));
            for (int64_t g = 0; g < groups && scale_size > 0 && n < lanes; g++)
                put(to + scale_at, 8 * scale_size * (g * lanes + n), 8 * (int)scale_size,
                    mox_grid_code(&m->scale, (row + n) / gr, g));
            for (int64_t g = 0; g < groups && q->has_zero; g++)
                to[zero_at + g * 16 + n] = (uint8_t)(mox_grid_value(&m->zero, (row + n) / gr, g) + (double)m->zero_add +
                                                     (mox_dtype_bits(q->element) == 4 ? 8.0 : 128.0));
            float f = 0;
            if (q->global != MOXIE_GLOBAL_NONE) {
                f = (float)mox_grid_value(&m->global, m->global.rows == 1 ? 0 : row + n, 0);
                memcpy(global + (panel * 16 + n) * 4, &f, 4);
            }
            if (bias) {
                f = (float)mox_grid_value(&m->bias, row + n, 0);
                memcpy(biases + (panel * 16 + n) * 4, &f, 4);
            }
        }
    }
    return biases + (bias ? count * 64 : 0);
}

static void pack_one(const mox_record_shape *shape, const moxie_expert *expert, int64_t part, uint8_t *record)
{
    moxie_error error;
    assert_ok(layout()->pack_part(shape, expert, part, record, &error), &error);
}

/* Packing the first part alone writes nothing behind it; packing the others, last to first, writes nothing before
 * them. */
static void pack_parts(const mox_record_shape *shape, const moxie_expert *expert, uint8_t *record, uint64_t bytes)
{
    memset(record, 0xcc, bytes);
    pack_one(shape, expert, 0, record);
    for (uint64_t i = layout()->part_at(shape, 1); i < bytes; i++)
        assert_true(record[i] == 0xcc);
    memset(record, 0xcc, bytes);
    for (int64_t part = layout()->parts(shape) - 1; part >= 0; part--) {
        pack_one(shape, expert, part, record);
        for (uint64_t i = 0; i < layout()->part_at(shape, part); i++)
            assert_true(record[i] == 0xcc);
    }
}

/* Packs part by part over other bytes: the size, and every byte behind the header. */
static void check_parts(const mox_record_shape *shape, const moxie_expert *expert, const uint8_t *whole, uint64_t bytes)
{
    uint8_t *want = calloc(1, bytes + 4096), *record = test_guarded(bytes);
    uint8_t *end =
        expect_product(want + 64, &shape->w13, shape->gated ? &expert->gate : NULL, &expert->up, shape->bias13);
    end = expect_product(end, &shape->w2, NULL, &expert->down, shape->bias2);
    assert_int_equal(bytes, end - want);
    assert_int_equal(layout()->part_at(shape, 0), 64);
    assert_int_equal(layout()->part_at(shape, layout()->parts(shape)), bytes);
    pack_parts(shape, expert, record, bytes);
    check_same_bytes(shape, record, want, bytes, "panel.h");
    check_same_bytes(shape, whole, want, bytes, "panel.h");
    test_guarded_free(record, bytes);
    free(want);
}

static void check_spec(test_rng *rng, const test_expert_spec *spec)
{
    const mox_record_shape shape = test_record_shape(spec);
    test_expert expert;
    test_expert_make(&expert, rng, spec);
    check_there_and_back(layout(), &shape, &expert, spec->w13->name, check_parts);
    test_expert_free(&expert);
}

/* ---- every combination ------------------------------------------------------------------------------------ */

static const int64_t row_sizes[] = { 1, 15, 16, 17, 33 }, col_sizes[] = { 1, 31, 32, 33, 63, 65, 100, 288, 300 };

#define PICK(rng, list) (list)[test_below((rng), sizeof(list) / sizeof(list)[0])]

static void check_quant(test_rng *rng, const test_weight_quant *which)
{
    test_expert_spec spec = { .hidden = PICK(rng, col_sizes),
                              .intermediate = PICK(rng, row_sizes),
                              .gated = test_below(rng, 2) == 0,
                              .bias13 = test_below(rng, 2) == 0,
                              .bias2 = test_below(rng, 2) == 0,
                              .w13 = which,
                              .w2 = which,
                              .a13 = &test_act_quants[1],
                              .fill = (test_fill)test_below(rng, TEST_FILLS) };
    char reason[256];
    const mox_record_shape shape = test_record_shape(&spec);
    const char *rejection = layout()->reject(&shape, reason, sizeof reason);
    if (rejection != NULL)
        fail_msg("%s is rejected: %s", which->name, rejection);
    check_spec(rng, &spec);
    spec.hidden = PICK(rng, row_sizes);
    spec.intermediate = PICK(rng, col_sizes);
    check_spec(rng, &spec);
}

static bool can_pack(moxie_dtype element, test_packing packing)
{
    const int32_t bits = mox_dtype_bits(element);
    switch (packing) {
    case TEST_TRANSPOSED: return bits % 8 == 0;
    case TEST_AWQ: return bits == 4;
    case TEST_ROW_PAIRS: return bits == 4;
    case TEST_WORDS:
    case TEST_GPTQ: return bits == 4 || bits == 8;
    default: return true;
    }
}

/* One of `step` packings, another one each time. */
static void check_packings(test_rng *rng, const moxie_quant *quant, int64_t turn, int64_t step)
{
    static const float to_add[] = { 0.0f, 1.0f };
    char name[160], text[128];
    for (test_packing packing = TEST_DENSE; packing <= TEST_ROW_PAIRS; packing++) {
        test_weight_quant which = { .name = name, .quant = *quant, .packing = packing };
        if (!can_pack(quant->element, packing) || (turn + packing) % step != 0)
            continue;
        /* one more than the largest 8-bit number does not fit */
        if (quant->has_zero && mox_dtype_bits(quant->element) == 4)
            which.zero_add = PICK(rng, to_add);
        snprintf(name, sizeof name, "%s, packing %d", mox_quant_describe(quant, text, sizeof text), (int)packing);
        check_quant(rng, &which);
    }
}

static void every_quant(void **state)
{
    (void)state;
    static const moxie_dtype elements[] = { MOXIE_F8_E4M3, MOXIE_F8_E5M2, MOXIE_F6_E3M2, MOXIE_F6_E2M3, MOXIE_F4_E2M1,
                                            MOXIE_I8,      MOXIE_I4,      MOXIE_U4B8,    MOXIE_U8B128 };
    static const moxie_dtype scales[] = { MOXIE_F32, MOXIE_F16, MOXIE_BF16, MOXIE_F8_E4M3, MOXIE_F8_E8M0 };
    static const int32_t group_cols[] = { -1, 16, 32, 64, 128 }, group_rows[] = { 0, 5, 8, 16, 32, -1 };
    const uint64_t seed = test_seed(1);
    test_rng rng = { seed };
    print_message("seed %llu\n", (unsigned long long)seed);
    const int64_t step = test_one_in(5, "packings of each quantization");
    int64_t turn = 0;
    for (size_t e = 0; e < sizeof elements / sizeof elements[0]; e++)
        for (size_t s = 0; s < sizeof scales / sizeof scales[0]; s++)
            for (size_t g = 0; g < sizeof group_cols / sizeof group_cols[0]; g++) {
                const bool integer = mox_format_of(elements[e])->kind == MOX_KIND_INTEGER;
                const bool narrow = mox_dtype_bits(elements[e]) == 4;
                moxie_quant quant = { .element = elements[e],
                                      .scale = scales[s],
                                      .group_cols = group_cols[g],
                                      .group_rows = PICK(&rng, group_rows),
                                      .global = (int32_t)test_below(&rng, 3) };
                if (group_cols[g] == 16 && !narrow)
                    continue;
                check_packings(&rng, &quant, turn++, step);
                quant.group_rows = 1;
                quant.has_zero = integer;
                check_packings(&rng, &quant, turn++, step);
            }
}

static void unscaled_floats(void **state)
{
    (void)state;
    test_rng rng = { 2 };
    const int64_t step = test_one_in(5, "packings of each size");
    for (int i = 0; i < 20; i++) {
        check_packings(&rng, &(moxie_quant) { .element = MOXIE_BF16 }, i, step);
        check_packings(&rng, &(moxie_quant) { .element = MOXIE_F16 }, i, step);
    }
}

/* Rows of real length, and tasks of several panels: the formats of test_problem.c that panels hold. */
static void real_sizes(void **state)
{
    (void)state;
    test_rng rng = { 3 };
    const int64_t fewer = test_one_in(4, "columns");
    char reason[256];
    for (int q = 0; q < test_weight_quant_count; q++) {
        const test_expert_spec spec = { .hidden = 2880 / fewer,
                                        .intermediate = 65,
                                        .gated = q % 2 == 0,
                                        .bias13 = true,
                                        .w13 = &test_weight_quants[q],
                                        .w2 = &test_weight_quants[q] };
        const mox_record_shape shape = test_record_shape(&spec);
        const bool fractions = test_weight_quants[q].zero_dtype != MOXIE_DTYPE_NONE;
        if (layout()->reject(&shape, reason, sizeof reason) == NULL && !test_weight_quants[q].act_order && !fractions)
            check_spec(&rng, &spec);
    }
}

/* ---- sizes ------------------------------------------------------------------------------------------------ */

/* gpt-oss-20b: gate and up of 2880 x 2880 in MXFP4 with biases, and nothing more. */
static void sizes_are_minimal(void **state)
{
    (void)state;
    const moxie_quant mxfp4 = { .element = MOXIE_F4_E2M1, .scale = MOXIE_F8_E8M0, .group_cols = 32 };
    const mox_record_shape shape = {
        .hidden = 2880, .intermediate = 2880, .gated = true, .w13 = mxfp4, .w2 = mxfp4, .bias13 = true, .bias2 = true
    };
    uint64_t bytes = 0;
    assert_true(layout()->record_bytes(&shape, &bytes));
    const uint64_t codes = 2880 * 1440, scales = 180 * (90 * 16 + 32 /* to the next line */), biases = 2880 * 4;
    assert_int_equal(bytes, 64 + 3 * (codes + scales + biases));
    mox_panel_record record;
    mox_panel_open(&shape, NULL, &record);
    assert_int_equal(record.w13.count, 360);
    assert_int_equal(record.w13.steps, 90);
    assert_int_equal(record.w13.groups, 90);
    assert_int_equal(record.w13.group_cols, 32);
    assert_int_equal(record.w13.scale_lanes, 16);
    assert_int_equal(record.w13.scale_at, 90 * 256);
    assert_int_equal(record.w13.zero_at, 0);
    assert_int_equal(record.w2.count, 180);
    assert_true(record.w13.gated && !record.w2.gated);
}

/* ---- what cannot be held ---------------------------------------------------------------------------------- */

static void rejects(const moxie_quant *quant, const char *word)
{
    test_layout_refuses(layout(), 70, quant, word);
}

static void shapes_are_refused(void **state)
{
    (void)state;
    rejects(&(moxie_quant) { .element = MOXIE_F32 }, "f32");
    rejects(&(moxie_quant) { .element = MOXIE_F8_E4M3, .scale = MOXIE_F16, .has_zero = 1 }, "zero points");
    rejects(&(moxie_quant) { .element = MOXIE_U4B8, .scale = MOXIE_F16, .group_cols = 24 }, "24 columns");
    rejects(&(moxie_quant) { .element = MOXIE_I8, .scale = MOXIE_F16, .group_cols = 16 }, "16 columns");
    rejects(&(moxie_quant) { .element = MOXIE_F6_E2M3, .scale = MOXIE_F8_E8M0, .group_cols = 16 }, "16 columns");
    uint64_t bytes = 77;
    const moxie_quant bf16 = { .element = MOXIE_BF16 };
    const mox_record_shape wide = { .hidden = INT64_MAX, .intermediate = 1, .w13 = bf16, .w2 = bf16 };
    const mox_record_shape large = {
        .hidden = INT64_C(1) << 30, .intermediate = INT64_C(1) << 31, .gated = true, .w13 = bf16, .w2 = bf16
    };
    assert_false(layout()->record_bytes(&wide, &bytes));
    assert_true(layout()->record_bytes(&large, &bytes));
    const mox_record_shape larger = {
        .hidden = INT64_C(1) << 31, .intermediate = INT64_C(1) << 31, .gated = true, .w13 = bf16, .w2 = bf16
    };
    bytes = 77;
    assert_false(layout()->record_bytes(&larger, &bytes));
    assert_int_equal(bytes, 77);
}

/* A matrix of integers with one group per row and f32 zero points, so that a zero point can be any number. */
static void float_zero(moxie_dtype element, float zero, float add, bool accepted)
{
    const moxie_quant quant = { .element = element, .scale = MOXIE_F32, .has_zero = 1 };
    const mox_record_shape shape = { .hidden = 3, .intermediate = 2, .w13 = quant, .w2 = quant };
    const uint8_t codes[6] = { 1, 2, 3, 4, 5, 6 };
    const float scales[3] = { 1, 1, 1 }, up_zero[2] = { 0.0f - add, zero }, down_zero[3] = { 0, 1, 2 };
    const moxie_expert expert = { .up = { .codes = mox_grid_dense(codes, element, 2, 3),
                                          .scale = mox_grid_dense(scales, MOXIE_F32, 2, 1),
                                          .zero = mox_grid_dense(up_zero, MOXIE_F32, 2, 1),
                                          .zero_add = add },
                                  .down = { .codes = mox_grid_dense(codes, element, 3, 2),
                                            .scale = mox_grid_dense(scales, MOXIE_F32, 3, 1),
                                            .zero = mox_grid_dense(down_zero, MOXIE_F32, 3, 1) } };
    uint64_t bytes = 0;
    char reason[256] = "";
    moxie_error error = { 0 };
    assert_true(layout()->record_bytes(&shape, &bytes));
    uint8_t *record = test_guarded(bytes);
    assert_int_equal(layout()->accepts(&shape, &expert, reason, sizeof reason), accepted);
    assert_int_equal(mox_record_pack(layout(), &shape, 9, &expert, record, &error),
                     accepted ? MOXIE_OK : MOXIE_ERR_UNSUPPORTED);
    if (!accepted) {
        assert_non_null(strstr(reason, "up has zero point"));
        assert_non_null(strstr(error.text, "expert 9"));
        assert_non_null(strstr(error.text, reason));
    } else {
        float zeros[5] = { 0 };
        uint8_t room[6];
        moxie_expert back = expert;
        mox_panel_record open;
        mox_panel_open(&shape, record, &open);
        assert_int_equal(open.w13.panels[open.w13.zero_at + 1], (int)(zero + add) + (element == MOXIE_U4B8 ? 8 : 128));
        back.up.zero.data = zeros;
        back.down.zero.data = zeros + 2;
        back.up.codes.data = back.down.codes.data = room;
        back.up.scale.data = back.down.scale.data = (float[3]) { 0 };
        assert_ok(layout()->unpack(&shape, record, &back, &error), &error);
        assert_memory_equal(zeros, up_zero, sizeof up_zero);
        assert_memory_equal(zeros + 2, down_zero, sizeof down_zero);
    }
    test_guarded_free(record, bytes);
}

static void float_zeros(void **state)
{
    (void)state;
    float_zero(MOXIE_U4B8, 0.0f, 0.0f, true);
    float_zero(MOXIE_U4B8, -8.0f, 0.0f, true);
    float_zero(MOXIE_U4B8, 8.0f, 0.0f, true);
    float_zero(MOXIE_U4B8, 7.0f, 1.0f, true);
    float_zero(MOXIE_U4B8, -9.0f, 1.0f, true);
    float_zero(MOXIE_U4B8, 2.5f, 0.5f, true);
    float_zero(MOXIE_U4B8, 8.0f, 1.0f, false);
    float_zero(MOXIE_U4B8, -9.0f, 0.0f, false);
    float_zero(MOXIE_U4B8, 7.5f, 0.0f, false);
    float_zero(MOXIE_U4B8, -0.0f, 0.0f, false); /* its sign would be lost */
    float_zero(MOXIE_U4B8, 1e30f, 0.0f, false);
    float_zero(MOXIE_U4B8, INFINITY, 0.0f, false);
    float_zero(MOXIE_U4B8, NAN, 0.0f, false);
    float_zero(MOXIE_I8, -128.0f, 0.0f, true);
    float_zero(MOXIE_U8B128, 127.0f, 0.0f, true);
    float_zero(MOXIE_U8B128, 126.0f, 1.0f, true);
    float_zero(MOXIE_U8B128, 127.0f, 1.0f, false);
    float_zero(MOXIE_I8, -129.0f, 0.0f, false);
    float_zero(MOXIE_I8, 0.5f, 0.0f, false);
}

static void order_of_columns(void **state)
{
    (void)state;
    test_rng rng = { 5 };
    const test_weight_quant which = { .name = "gptq",
                                      .quant = { .element = MOXIE_U4B8, .scale = MOXIE_F16, .group_cols = 32 },
                                      .packing = TEST_GPTQ };
    const test_expert_spec spec = { .hidden = 70, .intermediate = 40, .gated = true, .w13 = &which, .w2 = &which };
    const mox_record_shape shape = test_record_shape(&spec);
    test_expert expert, back;
    moxie_error error;
    uint64_t bytes = 0;
    const char *what;
    test_expert_make(&expert, &rng, &spec);
    assert_true(layout()->record_bytes(&shape, &bytes));
    uint8_t *record = test_guarded(bytes);
    int32_t index[70];
    for (int k = 0; k < 70; k++)
        index[k] = k / 32;
    expert.view.gate.group_index = index;
    assert_ok(mox_record_pack(layout(), &shape, 3, &expert.view, record, &error), &error);
    test_expert_twin(&back, &expert);
    assert_ok(layout()->unpack(&shape, record, &back.view, &error), &error);
    assert_true(test_expert_equal(&expert.view, &back.view, &what));
    index[69] = 0;
    assert_int_equal(mox_record_pack(layout(), &shape, 3, &expert.view, record, &error), MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "group index of gate"));
    test_guarded_free(record, bytes);
    test_expert_free(&expert);
    test_expert_free(&back);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_quant),       cmocka_unit_test(unscaled_floats),    cmocka_unit_test(real_sizes),
        cmocka_unit_test(sizes_are_minimal), cmocka_unit_test(shapes_are_refused), cmocka_unit_test(float_zeros),
        cmocka_unit_test(order_of_columns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
