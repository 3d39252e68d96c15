/* SPDX-License-Identifier: Apache-2.0
 *
 * test_hopper.c - layout hopper: every byte of a record against formulas for the text of hopper.h, element by element;
 * unpack(pack(w)) == w; sizes; what the layout rejects. (Parts and seals: test_record_parts.c.)
 *
 *     bf16, f16, f8_e4m3 x scales of blocks, rows and tensors x packing, bias, gate; sizes around tiles, chunks
 */
#include "pack/hopper/hopper.h"
#include "packed_record.h"

static const mox_layout *layout(void)
{
    return mox_layout_by_name("hopper");
}

/* ---- hopper.h in formulas ---------------------------------------------------------------------------------- */

static int64_t up_to(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

static void put_float(uint8_t *to, int64_t i, float value)
{
    memcpy(to + 4 * i, &value, 4);
}

/* One element into the codes of a chunk. */
static void put_code(uint8_t *chunk, int64_t n, int64_t byte, int size, uint32_t code)
{
    const int64_t piece = byte / 16, place = piece ^ (n % 8);
    memcpy(chunk + 128 * n + 16 * place + byte % 16, &code, (size_t)size); /* low bytes first */
}

/* One projection as hopper.h has it, at `to`. gate NULL: ungated. */
static uint8_t *expect_product(uint8_t *to, const moxie_quant *q, const moxie_matrix *gate, const moxie_matrix *up,
                               bool bias)
{
    const int64_t rows = up->codes.rows, cols = up->codes.cols, size = mox_dtype_bits(q->element) / 8;
    const int64_t product_rows = gate ? up_to(rows, 8) * 2 : rows, per_chunk = 128 / size;
    const int64_t tiles = up_to(product_rows, 128) / 128, chunks = up_to(cols, per_chunk) / per_chunk;
    const int64_t last_rows = product_rows - (tiles - 1) * 128 <= 64 ? 64 : 128;
    const int64_t gc = q->group_cols <= 0 || q->group_cols > cols ? cols : q->group_cols;
    const int64_t gr = q->group_rows == 0 ? 1 : q->group_rows < 0 || q->group_rows > rows ? rows : q->group_rows;
    const bool scaled = q->scale != MOXIE_DTYPE_NONE, by_row = scaled && gr % 8 != 0 && gr != rows;
    const int64_t scales_of_8 = size == 1 ? 4 : 0; /* bytes, for one chunk */
    const int64_t full_tile = up_to(chunks * (16384 + 16 * scales_of_8), 128);
    const int64_t last_tile = up_to(chunks * last_rows / 8 * (1024 + scales_of_8), 128);
    uint8_t *row_scales = to + (tiles - 1) * full_tile + last_tile;
    uint8_t *biases = row_scales + (by_row ? tiles * 512 : 0);
    for (int64_t n = 0; n < product_rows; n++) {
        const moxie_matrix *m = gate != NULL && n / 8 % 2 == 0 ? gate : up;
        const int64_t row = gate ? n / 16 * 8 + n % 8 : n, tile = n / 128, at = n % 128;
        const int64_t tile_rows = tile == tiles - 1 ? last_rows : 128;
        if (row >= rows)
            continue;
        for (int64_t c = 0; c < chunks; c++) {
            uint8_t *chunk = to + tile * full_tile + c * tile_rows * 128;
            uint8_t *scales = to + tile * full_tile + chunks * tile_rows * 128;
            for (int64_t k = c * per_chunk; k < cols && k < (c + 1) * per_chunk; k++)
                put_code(chunk, at, (k - c * per_chunk) * size, (int)size, mox_grid_code(&m->codes, row, k));
            if (size == 1 && at % 8 == 0)
                put_float(scales, c * tile_rows / 8 + at / 8,
                          !scaled || by_row ? 1.0f : (float)mox_grid_value(&m->scale, row / gr, c * per_chunk / gc));
        }
        if (by_row)
            put_float(row_scales, n, (float)mox_grid_value(&m->scale, row / gr, 0));
        if (bias)
            put_float(biases, n, (float)mox_grid_value(&m->bias, row, 0));
    }
    return biases + (bias ? tiles * 512 : 0);
}

/* The size, and every byte behind the header. */
static void check_bytes(const mox_record_shape *shape, const moxie_expert *expert, const uint8_t *record,
                        uint64_t bytes)
{
    uint8_t *want = calloc(1, bytes + (1 << 20));
    uint8_t *end =
        expect_product(want + 128, &shape->w13, shape->gated ? &expert->gate : NULL, &expert->up, shape->bias13);
    end = expect_product(end, &shape->w2, NULL, &expert->down, shape->bias2);
    assert_int_equal(bytes, end - want);
    check_same_bytes(shape, record, want, bytes, "hopper.h");
    free(want);
}

static void check_spec(test_rng *rng, const test_expert_spec *spec)
{
    const mox_record_shape shape = test_record_shape(spec);
    const bool exact = spec->fill != TEST_FILL_NAN; /* of a NaN only the fact is stored */
    test_expert expert;
    test_expert_make(&expert, rng, spec);
    check_there_and_back(layout(), &shape, &expert, spec->w13->name, exact ? check_bytes : NULL);
    test_expert_free(&expert);
}

/* ---- every combination ------------------------------------------------------------------------------------ */

static const int64_t row_sizes[] = { 1, 7, 8, 9, 31, 32, 33, 63, 64, 65, 127, 128, 129, 193 };
static const int64_t col_sizes[] = { 1, 15, 63, 64, 65, 127, 128, 129, 200, 257 };

#define PICK(rng, list) (list)[test_below((rng), sizeof(list) / sizeof(list)[0])]

static void check_quant(test_rng *rng, const moxie_quant *quant, test_packing packing)
{
    char name[160], text[128];
    const test_weight_quant which = { .name = name, .quant = *quant, .packing = packing };
    snprintf(name, sizeof name, "%s, packing %d", mox_quant_describe(quant, text, sizeof text), (int)packing);
    test_expert_spec spec = { .hidden = PICK(rng, col_sizes),
                              .intermediate = PICK(rng, row_sizes),
                              .gated = test_below(rng, 2) == 0,
                              .bias13 = test_below(rng, 2) == 0,
                              .bias2 = test_below(rng, 2) == 0,
                              .w13 = &which,
                              .w2 = &which,
                              .a13 = &test_act_quants[1],
                              .fill = (test_fill)test_below(rng, TEST_FILLS) };
    char reason[256];
    const mox_record_shape shape = test_record_shape(&spec);
    const char *rejection = layout()->reject(&shape, reason, sizeof reason);
    if (rejection != NULL)
        fail_msg("%s is rejected: %s", name, rejection);
    check_spec(rng, &spec);
    spec.hidden = PICK(rng, row_sizes);
    spec.intermediate = PICK(rng, col_sizes);
    check_spec(rng, &spec);
}

static void every_quant(void **state)
{
    (void)state;
    static const moxie_dtype scales[] = { MOXIE_F32, MOXIE_F16, MOXIE_BF16, MOXIE_F8_E8M0 };
    static const int32_t group_cols[] = { -1, 128, 256 }, group_rows[] = { 8, 16, 128, -1 };
    static const test_packing packings[] = { TEST_DENSE, TEST_INTERLEAVED, TEST_TRANSPOSED };
    const uint64_t seed = test_seed(1);
    test_rng rng = { seed };
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < 40; i++) {
        const moxie_quant blocks = { .element = MOXIE_F8_E4M3,
                                     .scale = PICK(&rng, scales),
                                     .group_cols = PICK(&rng, group_cols),
                                     .group_rows = PICK(&rng, group_rows) };
        const moxie_quant rows = { .element = MOXIE_F8_E4M3, .scale = PICK(&rng, scales), .group_cols = -1 };
        check_quant(&rng, &blocks, PICK(&rng, packings));
        check_quant(&rng, &rows, PICK(&rng, packings));
        check_quant(&rng, &(moxie_quant) { .element = MOXIE_BF16 }, PICK(&rng, packings));
        check_quant(&rng, &(moxie_quant) { .element = MOXIE_F16 }, PICK(&rng, packings));
        check_quant(&rng, &(moxie_quant) { .element = MOXIE_F8_E4M3 }, PICK(&rng, packings));
    }
}

/* ---- sizes ------------------------------------------------------------------------------------------------ */

/* DeepSeek-V3: 3 x 7168 x 2048 bytes, and a scale for every 8 rows of a chunk; 2880 rows end in a half tile. */
static void sizes_are_minimal(void **state)
{
    (void)state;
    const moxie_quant block = { .element = MOXIE_F8_E4M3, .scale = MOXIE_F32, .group_cols = 128, .group_rows = 128 };
    const moxie_quant bf16 = { .element = MOXIE_BF16 };
    mox_record_shape shape = { .hidden = 7168, .intermediate = 2048, .gated = true, .w13 = block, .w2 = block };
    uint64_t bytes = 0;
    assert_true(layout()->record_bytes(&shape, &bytes));
    assert_int_equal(bytes, 128 + INT64_C(3) * 7168 * 2048 * (8 * 128 + 4) / (8 * 128));
    shape = (mox_record_shape) { .hidden = 2880, .intermediate = 2880, .gated = true, .w13 = bf16, .w2 = bf16 };
    assert_true(layout()->record_bytes(&shape, &bytes));
    assert_int_equal(bytes, 128 + 3 * 2880 * 2880 * 2);
    mox_hopper_record form;
    assert_true(mox_hopper_form(layout(), &shape, &form));
    assert_int_equal(form.w13.tiles, 45);
    assert_int_equal(form.w13.last_rows, 128);
    assert_int_equal(form.w2.tiles, 23);
    assert_int_equal(form.w2.last_rows, 64);
    assert_int_equal(form.w2.chunks, 45);
    assert_int_equal(form.w2.chunk_cols, 64);
    assert_true(form.w13.gated && !form.w2.gated);
}

/* ---- what cannot be held ---------------------------------------------------------------------------------- */

static void rejects(const moxie_quant *quant, const char *word)
{
    test_layout_refuses(layout(), 300, quant, word);
}

static void shapes_are_refused(void **state)
{
    (void)state;
    rejects(&(moxie_quant) { .element = MOXIE_F32 }, "f32");
    rejects(&(moxie_quant) { .element = MOXIE_F8_E5M2 }, "f8_e5m2");
    rejects(&(moxie_quant) { .element = MOXIE_F4_E2M1, .scale = MOXIE_F8_E8M0, .group_cols = 32 }, "f4_e2m1");
    rejects(&(moxie_quant) { .element = MOXIE_BF16, .scale = MOXIE_F32 }, "with scales");
    rejects(&(moxie_quant) { .element = MOXIE_F8_E4M3, .scale = MOXIE_F32, .global = MOXIE_GLOBAL_MULTIPLY }, "global");
    rejects(&(moxie_quant) { .element = MOXIE_F8_E4M3, .scale = MOXIE_F32, .group_cols = 64, .group_rows = 64 },
            "64 x 64");
    rejects(&(moxie_quant) { .element = MOXIE_F8_E4M3, .scale = MOXIE_F32, .group_cols = 128 }, "1 x 128");
    uint64_t bytes = 77;
    const moxie_quant bf16 = { .element = MOXIE_BF16 };
    const mox_record_shape larger = {
        .hidden = INT64_C(1) << 31, .intermediate = INT64_C(1) << 31, .gated = true, .w13 = bf16, .w2 = bf16
    };
    assert_false(layout()->record_bytes(&larger, &bytes));
    assert_int_equal(bytes, 77);
}

static void order_of_columns(void **state)
{
    (void)state;
    const moxie_quant bf16 = { .element = MOXIE_BF16 };
    const mox_record_shape shape = { .hidden = 4, .intermediate = 2, .w13 = bf16, .w2 = bf16 };
    const uint16_t codes[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    const int32_t natural[4] = { 0, 0, 0, 0 }, other[4] = { 0, 0, 1, 0 };
    moxie_expert expert = { .up = { .codes = mox_grid_dense(codes, MOXIE_BF16, 2, 4), .group_index = natural },
                            .down = { .codes = mox_grid_dense(codes, MOXIE_BF16, 4, 2) } };
    char reason[256] = "";
    assert_true(layout()->accepts(&shape, &expert, reason, sizeof reason));
    expert.up.group_index = other;
    assert_false(layout()->accepts(&shape, &expert, reason, sizeof reason));
    assert_non_null(strstr(reason, "group index of up"));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_quant), cmocka_unit_test(sizes_are_minimal),
                                        cmocka_unit_test(shapes_are_refused), cmocka_unit_test(order_of_columns) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
