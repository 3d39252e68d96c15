/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_pack.c - packers of a device against those of the CPU: the same bytes, headers and checksums included.
 *
 *     experts   every weight format that checkpoints have x packing x layout with a packer; odd shapes, gate, biases
 *     zeros     bytes by row with zero points: whatever their scales, the device packs them
 *     layers    records of random layers, expert parallel ones too, in slots of a device
 *
 * It runs once with packers in plain C, once with the kernels on the emulator (test_cuda_packers.h).
 */
#include "base/checksum.h"
#include "base/sizes.h"
#include "cuda/pack/cuda_pack.h"
#include "layer/weights/layer.h"
#include "layer/weights/layer_prepare.h"
#include "test_cuda_table.h"
#include "test_layer.h"

#ifdef MOX_TEST_EMULATED
enum { QUICK_ROUNDS = 2, QUICK_LAYERS = 4 };
#else
enum { QUICK_ROUNDS = 4, QUICK_LAYERS = 12 };
#endif

/* ---- experts ---------------------------------------------------------------------------------------------------- */

/* The record as a device packs it, sealed as the host does. The memory around it stays as it was. */
static void pack_by_device(const mox_layout *layout, const mox_record_shape *shape, const moxie_expert *expert,
                           uint8_t *record, const char *name)
{
    const mox_cuda_table *table = NULL;
    mox_cuda_pack_stage stage;
    mox_cuda_pack_args args;
    char reason[256];
    moxie_error error = { 0 };
    assert_ok(mox_cuda_open(&table, &error), &error);
    const int32_t packer = mox_cuda_pack_find(layout, shape, reason, sizeof reason);
    if (packer < 0 || !mox_cuda_pack_stage_make(layout, shape, expert, &stage, reason, sizeof reason))
        fail_msg("%s in %s: %s", name, layout->name, reason);
    const int64_t parts = mox_record_parts(layout, shape);
    uint64_t *sums = calloc((size_t)parts, sizeof *sums);
    uint8_t *staged = aligned_alloc(256, stage.bytes);
    memset(staged, 0xb7, stage.bytes);
    mox_cuda_pack_put_parts(layout, shape, staged);
    for (int64_t part = parts - 1; part >= 0; part--)
        layout->pack_rest(shape, expert, part, staged + stage.rest_at);
    for (int32_t i = 0; i < stage.runs; i++)
        memcpy(staged + stage.run[i].at, stage.run[i].from, stage.run[i].bytes);
    mox_cuda_pack_args_make(layout, shape, expert, &stage, staged, record, sums, &args);
    assert_ok(table->pack[packer](&args, NULL, &error), &error);
    mox_record_header header = { 0 };
    mox_record_seal(layout, shape, 5, expert, &header, sums);
    memcpy(record, &header, sizeof header);
    free(staged);
    free(sums);
}

static void compare(const mox_layout *layout, const mox_record_shape *shape, const moxie_expert *expert,
                    const char *name)
{
    uint64_t bytes = 0;
    moxie_error error = { 0 };
    assert_true(layout->record_bytes(shape, &bytes));
    uint8_t *want = aligned_alloc(64, bytes), *found = test_guarded(bytes);
    memset(found, 0x5a, bytes);
    memset(want, 0xa5, bytes);
    assert_ok(mox_record_pack(layout, shape, 5, expert, want, &error), &error);
    pack_by_device(layout, shape, expert, found, name);
    for (uint64_t i = 0; i < bytes; i++)
        if (want[i] != found[i])
            fail_msg("%s, %s, H %lld, I %lld, gated %d: byte %llu of %llu is %02x, the CPU packs %02x", name,
                     layout->name, (long long)shape->hidden, (long long)shape->intermediate, shape->gated,
                     (unsigned long long)i, (unsigned long long)bytes, found[i], want[i]);
    test_guarded_free(found, bytes);
    free(want);
}

/* Packs an expert of one format in every layout that has a packer and holds it. Returns how many did. */
static int check_format(test_rng *rng, const test_weight_quant *quant, int64_t hidden, int64_t intermediate)
{
    const test_expert_spec spec = { .hidden = hidden,
                                    .intermediate = intermediate,
                                    .gated = test_below(rng, 2) == 0,
                                    .bias13 = test_below(rng, 2) == 0,
                                    .bias2 = test_below(rng, 2) == 0,
                                    .w13 = quant,
                                    .w2 = quant,
                                    .a13 = &test_act_quants[1],
                                    .fill = TEST_FILL_RANDOM };
    const mox_record_shape shape = test_record_shape(&spec);
    int layouts = 0;
    test_expert expert;
    test_expert_make(&expert, rng, &spec);
    for (int32_t i = 0; mox_layout_at(i) != NULL; i++) {
        const mox_layout *layout = mox_layout_at(i);
        char reason[256];
        if (layout->pack_rest == NULL || layout->reject(&shape, reason, sizeof reason) != NULL ||
            (layout->accepts != NULL && !layout->accepts(&shape, &expert.view, reason, sizeof reason)))
            continue;
        compare(layout, &shape, &expert.view, quant->name);
        layouts++;
    }
    test_expert_free(&expert);
    return layouts;
}

/* The format with codes that lie in another way. */
static test_weight_quant packed_otherwise(test_rng *rng, const test_weight_quant *quant)
{
    static const test_packing any[] = { TEST_DENSE, TEST_INTERLEAVED, TEST_TRANSPOSED };
    static const test_packing fours[] = { TEST_DENSE, TEST_WORDS, TEST_GPTQ, TEST_AWQ, TEST_ROW_PAIRS };
    test_weight_quant other = *quant;
    const int bits = mox_dtype_bits(quant->quant.element);
    const bool integer = quant->quant.element == MOXIE_U4B8 || quant->quant.element == MOXIE_I4;
    other.act_order = false;
    if (integer && quant->zero_dtype == MOXIE_DTYPE_NONE)
        other.packing = fours[test_below(rng, sizeof fours / sizeof fours[0])];
    else if (bits % 8 == 0)
        other.packing = any[test_below(rng, sizeof any / sizeof any[0])];
    return other;
}

static const int64_t sizes[] = { 1, 7, 8, 9, 31, 33, 63, 64, 65, 127, 128, 129, 193, 200, 257 };
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static void experts_have_the_cpus_bytes(void **state)
{
    (void)state;
    const uint64_t seed = test_seed(1);
    const int64_t rounds = test_env("MOXIE_TEST_CONFIGS", test_quick() ? QUICK_ROUNDS : 12);
    int held = 0;
    test_rng rng = { seed };
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int q = 0; q < test_weight_quant_count; q++) {
        int times = 0;
        for (int64_t i = 0; i < rounds; i++) {
            const test_weight_quant other = packed_otherwise(&rng, &test_weight_quants[q]);
            times += check_format(&rng, i % 2 == 0 ? &test_weight_quants[q] : &other, sizes[test_below(&rng, SIZES)],
                                  sizes[test_below(&rng, SIZES)]);
        }
        held += times > 0;
    }
    print_message("%d of %d formats have a layout with a packer\n", held, test_weight_quant_count);
    assert_true(held > 20);
}

/* A zero point a row lies in the rest, which then has words where it otherwise has bytes. */
static void bytes_by_row_with_zero_points(void **state)
{
    (void)state;
    static const moxie_dtype scales[] = { MOXIE_F32, MOXIE_BF16, MOXIE_F16 };
    test_rng rng = { test_seed(4) };
    for (int i = 0; i < 12; i++) {
        test_weight_quant quant = *test_weight_quant_named("int8 channel zero");
        quant.quant.element = i < 6 ? MOXIE_I8 : MOXIE_U8B128;
        quant.quant.scale = scales[i % 3];
        quant.quant.group_rows = i / 3 % 2 == 0 ? 1 : -1;
        assert_int_equal(check_format(&rng, &quant, sizes[test_below(&rng, SIZES)], sizes[test_below(&rng, SIZES)]), 1);
    }
}

/* Codes inside the blocks of a GGUF file. */
static void codes_of_blocks(void **state)
{
    (void)state;
    static const moxie_packing packings[] = { { .word_bytes = 16, .per_word = 32, .order = MOX_ORDER_HALVES },
                                              { .word_bytes = 32, .per_word = 64, .order = MOX_ORDER_HALVES_16 },
                                              { .word_bytes = 32, .per_word = 32, .order = MOX_ORDER_HALVES } };
    static const moxie_dtype elements[] = { MOXIE_U4B8, MOXIE_U4B8, MOXIE_I8 };
    uint8_t bytes[4096];
    test_rng rng = { test_seed(3) };
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)test_below(&rng, 256);
    for (int i = 0; i < 3; i++) {
        const int64_t step = packings[i].word_bytes + 2;
        const moxie_grid grid = { .data = bytes,
                                  .bytes = sizeof bytes,
                                  .rows = 3,
                                  .cols = 256,
                                  .row_stride = 8 * step,
                                  .col_stride = step,
                                  .dtype = elements[i],
                                  .packing = packings[i] };
        for (int64_t r = 0; r < grid.rows; r++)
            for (int64_t c = 0; c < grid.cols; c++)
                assert_int_equal(mox_grid_short_code(&grid, r, c, mox_dtype_bits(grid.dtype)),
                                 mox_grid_code(&grid, r, c));
    }
}

/* The codes of a matrix in blocks of 32 weights, each behind two bytes of another field, as Q4_0 and Q8_0 have them. */
static void put_in_blocks(test_rng *rng, moxie_grid *codes, uint8_t *bytes)
{
    const int8_t in_block = mox_dtype_bits(codes->dtype) == 4 ? 16 : 32;
    const int64_t step = in_block + 2, row = mox_ceil_div(codes->cols, 32) * step;
    for (int64_t i = 0; i < codes->rows * row; i++)
        bytes[i] = (uint8_t)test_below(rng, 256);
    *codes = (moxie_grid) { .data = bytes + 2,
                            .bytes = (uint64_t)(codes->rows * row - 2),
                            .rows = codes->rows,
                            .cols = codes->cols,
                            .row_stride = row,
                            .col_stride = step,
                            .dtype = codes->dtype,
                            .packing = { .word_bytes = in_block, .per_word = 32, .order = MOX_ORDER_HALVES } };
}

static void experts_in_blocks(void **state)
{
    (void)state;
    enum { ROWS = 96, COLS = 160 };
    static uint8_t bytes[3][ROWS * COLS * 2];
    test_rng rng = { test_seed(5) };
    for (int i = 0; i < 4; i++) {
        const moxie_quant q = { .element = i % 2 == 0 ? MOXIE_U4B8 : MOXIE_I8, .scale = MOXIE_F16, .group_cols = 32 };
        const test_weight_quant quant = { .name = "blocks", .quant = q, .packing = TEST_DENSE };
        const test_expert_spec spec = { .hidden = COLS,
                                        .intermediate = ROWS,
                                        .gated = i < 2,
                                        .w13 = &quant,
                                        .w2 = &quant,
                                        .a13 = &test_act_quants[0],
                                        .fill = TEST_FILL_RANDOM };
        const mox_record_shape shape = test_record_shape(&spec);
        test_expert expert;
        test_expert_make(&expert, &rng, &spec);
        if (spec.gated)
            put_in_blocks(&rng, &expert.view.gate.codes, bytes[0]);
        put_in_blocks(&rng, &expert.view.up.codes, bytes[1]);
        put_in_blocks(&rng, &expert.view.down.codes, bytes[2]);
        compare(mox_layout_by_name("hopper_codes"), &shape, &expert.view, quant.name);
        test_expert_free(&expert);
    }
}

/* Parts of more than a kilobyte of checksum blocks: the sums of real records. */
static void parts_of_real_size(void **state)
{
    (void)state;
    test_rng rng = { test_seed(2) };
    assert_true(check_format(&rng, test_weight_quant_named("int4 words g128"), 1500, 520) > 0);
}

/* ---- layers ----------------------------------------------------------------------------------------------------- */

static int records_checked;

static void check_layer(const moxie_layer *layer, const moxie_weights *weights, const char *text)
{
    uint8_t *want = aligned_alloc(64, layer->record_bytes);
    for (int32_t s = 0; s < layer->slots; s++) {
        const int64_t e = layer->expert_of[s];
        moxie_error error = { 0 };
        assert_ok(mox_layer_pack_alone(layer, e, &weights->experts[e], want, &error), &error);
        if (memcmp(want, layer->records[s], layer->record_bytes) != 0)
            fail_msg("%s: the record of expert %lld differs from the CPU's", text, (long long)e);
        records_checked += layer->layouts[MOX_ROUTED]->pack_rest != NULL;
    }
    free(want);
}

static void layers_have_the_cpus_records(void **state)
{
    (void)state;
    static const char *const devices[] = { "sm_90", "sm_80" };
    const int layers = test_quick() ? QUICK_LAYERS : 30;
    for (int i = 0; i < layers; i++) {
        const test_layer_limits limits = { .tokens = 1,
                                           .plain_routing = true,
                                           .largest = 200,
                                           .decoded = i % 4 == 0,
                                           .mma = i % 4 == 1,
                                           .to_fp8 = i % 4 == 2,
                                           .blocks = i % 4 == 3 };
        test_rng rng = { test_seed(100) + (uint64_t)i };
        test_layer layer;
        moxie_options options = MOXIE_OPTIONS_INIT;
        test_layer_make(&layer, &rng, &limits);
        options.backend = MOXIE_BACKEND_CUDA;
        options.mode = i % 2 == 0 ? MOXIE_MODE_FAST : MOXIE_MODE_EXACT;
        options.max_tokens = 1;
        test_cuda_set_device(devices[i / 4 % 2]);
        test_cuda_clear();
        test_layer_plan(&layer, &options);
        check_layer(layer.built, &layer.weights, layer.text);
        test_layer_free(&layer);
    }
    assert_true(records_checked > layers);
}

/* ---- what the CPU packs ----------------------------------------------------------------------------------------- */

static void packers_say_why_not(void **state)
{
    (void)state;
    const moxie_quant bf16 = { .element = MOXIE_BF16 };
    mox_record_shape shape = { .hidden = 64, .intermediate = 64, .gated = true, .w13 = bf16, .w2 = bf16 };
    char reason[256];
    assert_int_equal(mox_cuda_pack_find(&mox_layout_rowmajor, &shape, reason, sizeof reason), -1);
    assert_non_null(strstr(reason, "rowmajor"));
    const mox_layout *hopper = mox_layout_by_name("hopper");
    assert_true(mox_cuda_pack_find(hopper, &shape, reason, sizeof reason) >= 0);
    shape.cut = true; /* a rank without rows: its parts are nearly empty */
    assert_int_equal(mox_cuda_pack_find(hopper, &shape, reason, sizeof reason), -1);
    assert_non_null(strstr(reason, "fewer than 241 bytes"));
    /* rows far apart, as of a matrix that other ranks have nearly all of */
    static uint8_t memory[64 << 10];
    moxie_grid grid = mox_grid_dense(memory, MOXIE_BF16, 64, 64);
    moxie_expert expert = { .gate.codes = grid, .up.codes = grid, .down.codes = grid };
    mox_cuda_pack_stage stage;
    shape.cut = false;
    assert_true(mox_cuda_pack_stage_make(hopper, &shape, &expert, &stage, reason, sizeof reason));
    assert_int_equal(stage.runs, 1); /* all three overlap */
    expert.down.codes.row_stride = 1000000;
    assert_false(mox_cuda_pack_stage_make(hopper, &shape, &expert, &stage, reason, sizeof reason));
    assert_non_null(strstr(reason, "lie in"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(experts_have_the_cpus_bytes, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(bytes_by_row_with_zero_points, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(parts_of_real_size, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(layers_have_the_cpus_records, test_cuda_begin, test_cuda_end),
        cmocka_unit_test(codes_of_blocks),
        cmocka_unit_test_setup_teardown(experts_in_blocks, test_cuda_begin, test_cuda_end),
        cmocka_unit_test(packers_say_why_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
