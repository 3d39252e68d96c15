/* SPDX-License-Identifier: Apache-2.0
 *
 * test_matrix_slice.c - views of parts of a matrix, in every packing, scale layout and zero-point layout of
 * checkpoints. Each weight of a slice equals the whole matrix's weight at the same place. A slice that would cut a
 * group or a word is rejected with a text.
 */
#include "quant/quant.h"
#include "test_problem.h"

static void make(test_expert *out, test_rng *rng, const test_weight_quant *quant, int64_t hidden, int64_t intermediate)
{
    const test_expert_spec spec = { .hidden = hidden,
                                    .intermediate = intermediate,
                                    .gated = true,
                                    .bias13 = true,
                                    .bias2 = true,
                                    .w13 = quant,
                                    .w2 = quant };
    test_expert_make(out, rng, &spec);
}

static void same_weights(const moxie_matrix *whole, const moxie_matrix *part, const moxie_quant *quant,
                         const mox_rectangle *at, const char *what)
{
    assert_int_equal(part->codes.rows, at->rows);
    assert_int_equal(part->codes.cols, at->cols);
    for (int64_t r = 0; r < at->rows; r++) {
        for (int64_t c = 0; c < at->cols; c++) {
            const double want = mox_matrix_weight(whole, quant, at->row + r, at->col + c);
            const double got = mox_matrix_weight(part, quant, r, c);
            if (memcmp(&want, &got, sizeof got) != 0)
                fail_msg("%s: weight [%lld, %lld] of the slice at [%lld, %lld] is %g, of the whole %g", what,
                         (long long)r, (long long)c, (long long)at->row, (long long)at->col, got, want);
        }
        assert_int_equal(mox_grid_code(&part->bias, r, 0), mox_grid_code(&whole->bias, at->row + r, 0));
    }
}

static void slices_of_every_packing_hold_the_whole_s_weights(void **state)
{
    (void)state;
    test_rng rng = { test_seed(41) };
    for (int i = 0; i < test_weight_quant_count; i++) {
        const test_weight_quant *quant = &test_weight_quants[i];
        test_expert expert;
        make(&expert, &rng, quant, 256, 384);
        const moxie_matrix *m = &expert.view.down; /* [256, 384] */
        const int64_t down = mox_matrix_slice_multiple(m, &quant->quant, false),
                      across = mox_matrix_slice_multiple(m, &quant->quant, true);
        for (int tries = 0; tries < 6; tries++) {
            mox_rectangle at = { 0, 256, 0, 384 };
            at.row = down * test_below(&rng, (256 + down - 1) / down);
            at.rows = tries % 2 ? 256 - at.row : down * test_range(&rng, 0, (256 - at.row) / down);
            if (!quant->act_order) {
                at.col = across * test_below(&rng, (384 + across - 1) / across);
                at.cols = tries % 3 ? 384 - at.col : across * test_range(&rng, 0, (384 - at.col) / across);
            }
            moxie_error error = { 0 };
            moxie_matrix part;
            assert_ok(mox_matrix_slice(m, &quant->quant, &at, quant->name, &part, &error), &error);
            assert_ok(mox_matrix_check(&part, &quant->quant, at.rows, at.cols, true, quant->name, &error), &error);
            same_weights(m, &part, &quant->quant, &at, quant->name);
        }
        test_expert_free(&expert);
    }
}

/* The multiples at which each format may be cut follow from its storage: groups of columns; words along rows (GPTQ's
 * matrix is transposed, so its words of codes lie along columns); zero points in words along rows. */
static void cuts_are_what_the_formats_say(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t rows, cols;
    } known[] = {
        { "bf16", 1, 1 },
        { "fp8 block 128x128", 128, 128 },
        { "fp8 block 5x24 bf16", 5, 24 },
        { "fp8 per tensor", 1, 1 },
        { "mxfp4", 1, 32 },
        { "mxfp6 e3m2", 1, 32 },
        { "nvfp4 multiply", 1, 16 },
        { "int4 words channel", 1, 8 },
        { "int4 row pairs g128", 2, 128 },
        { "awq", 8, 32 },
        { "gptq", 8, 32 },
        { "gptq 8 bit act order", 1, 32 },
    };
    test_rng rng = { 1 };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const test_weight_quant *quant = test_weight_quant_named(known[i].name);
        test_expert expert;
        make(&expert, &rng, quant, 256, 384);
        if (mox_matrix_slice_multiple(&expert.view.down, &quant->quant, false) != known[i].rows ||
            mox_matrix_slice_multiple(&expert.view.down, &quant->quant, true) != known[i].cols)
            fail_msg("%s is cut at multiples of %lld rows and %lld columns, should be %lld and %lld", known[i].name,
                     (long long)mox_matrix_slice_multiple(&expert.view.down, &quant->quant, false),
                     (long long)mox_matrix_slice_multiple(&expert.view.down, &quant->quant, true),
                     (long long)known[i].rows, (long long)known[i].cols);
        test_expert_free(&expert);
    }
}

static void rejects(const char *name, mox_rectangle at, const char *text)
{
    test_rng rng = { 2 };
    const test_weight_quant *quant = test_weight_quant_named(name);
    test_expert expert;
    make(&expert, &rng, quant, 256, 384);
    moxie_error error = { 0 };
    moxie_matrix part = { .zero_add = 5 };
    assert_int_equal(mox_matrix_slice(&expert.view.down, &quant->quant, &at, name, &part, &error),
                     MOXIE_ERR_UNSUPPORTED);
    if (!strstr(error.text, text))
        fail_msg("%s: \"%s\" has no \"%s\"", name, error.text, text);
    assert_true(part.zero_add == 5);
    test_expert_free(&expert);
}

static void cuts_through_groups_and_words_are_rejected(void **state)
{
    (void)state;
    rejects("mxfp4", (mox_rectangle) { 0, 256, 16, 32 }, "cut a group");
    rejects("mxfp4", (mox_rectangle) { 0, 256, 0, 48 }, "1 x 32");
    rejects("fp8 block 128x128", (mox_rectangle) { 64, 128, 0, 384 }, "128 x 128");
    rejects("int4 words channel", (mox_rectangle) { 0, 256, 4, 8 }, "cut a word");
    rejects("int4 row pairs g128", (mox_rectangle) { 1, 2, 0, 384 }, "along rows");
    rejects("awq", (mox_rectangle) { 0, 12, 0, 384 }, "codes are stored 8 in a word along rows");
    rejects("gptq", (mox_rectangle) { 4, 8, 0, 384 }, "zero points are stored 8 in a word along rows");
    rejects("gptq act order", (mox_rectangle) { 0, 256, 32, 64 }, "act order");
    rejects("bf16", (mox_rectangle) { 0, 257, 0, 384 }, "[256, 384]");
    rejects("bf16", (mox_rectangle) { -1, 4, 0, 384 }, "[256, 384]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_of_every_packing_hold_the_whole_s_weights),
        cmocka_unit_test(cuts_are_what_the_formats_say),
        cmocka_unit_test(cuts_through_groups_and_words_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
