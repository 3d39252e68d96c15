/* SPDX-License-Identifier: Apache-2.0
 *
 * test_sliced_records.c - records with the rows of one tensor parallel rank: all ranks' records, unpacked into one
 * expert, give the whole expert, in every layout and every format. A rank may have no rows.
 */
#include "test_problem.h"

#include "layer/config/tp_slice.h"

static moxie_layer_config config_of(const test_expert_spec *spec, int32_t ranks)
{
    moxie_layer_config c = MOXIE_LAYER_CONFIG_INIT;
    c.hidden = spec->hidden;
    c.intermediate = spec->intermediate;
    c.activation.kind = spec->gated ? MOXIE_ACT_SILU : MOXIE_ACT_SILU_NO_MUL;
    c.w13 = spec->w13->quant;
    c.w2 = spec->w2->quant;
    c.bias13 = spec->bias13;
    c.bias2 = spec->bias2;
    c.tp_size = ranks;
    return c;
}

/* Packs the rows of the configuration's rank, and unpacks them into the rows of `back`. */
static void move_slice(const mox_layout *layout, const moxie_layer_config *config, const moxie_expert *expert,
                       moxie_expert *back)
{
    const mox_tp_cut cut = mox_tp_cut_of(config, MOXIE_MODE_EXACT, NULL);
    const mox_record_shape shape = mox_tp_shape(config, cut);
    moxie_expert from, to;
    moxie_error error;
    uint64_t bytes;
    assert_ok(mox_tp_slice_expert(config, MOX_ROUTED, cut, expert, &from, &error), &error);
    assert_ok(mox_tp_slice_expert(config, MOX_ROUTED, cut, back, &to, &error), &error);
    assert_int_equal(from.down.codes.rows, mox_shape_rows2(&shape));
    assert_true(layout->record_bytes(&shape, &bytes));
    assert_int_equal(bytes % MOX_RECORD_ALIGN, 0);
    uint8_t *record = test_guarded(bytes);
    memset(record, 0x33, bytes);
    assert_ok(mox_record_pack(layout, &shape, 7, &from, record, &error), &error);
    assert_ok(mox_record_verify(layout, &shape, 7, record, &error), &error);
    assert_ok(layout->unpack(&shape, record, &to, &error), &error);
    back->a13_scale = to.a13_scale;
    back->a2_scale = to.a2_scale;
    test_guarded_free(record, bytes);
}

/* False when the layout does not hold the expert. */
static bool there_and_back(const mox_layout *layout, const test_expert_spec *spec, const test_expert *expert,
                           int32_t ranks)
{
    moxie_layer_config config = config_of(spec, ranks);
    const mox_record_shape whole = test_record_shape(spec);
    test_expert back;
    const char *what;
    if (mox_record_check(layout, &whole, 7, &expert->view, NULL) != MOXIE_OK)
        return false;
    test_expert_twin(&back, expert);
    for (config.tp_rank = 0; config.tp_rank < ranks; config.tp_rank++)
        move_slice(layout, &config, &expert->view, &back.view);
    if (!test_expert_equal(&expert->view, &back.view, &what))
        fail_msg("layout %s, %s and %s, %lld x %lld on %d ranks: %s differs", layout->name, spec->w13->name,
                 spec->w2->name, (long long)spec->hidden, (long long)spec->intermediate, (int)ranks, what);
    test_expert_free(&back);
    return true;
}

static void slices_make_the_whole(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = { { 40, 7 }, { 64, 96 }, { 133, 130 }, { 320, 300 } };
    static const int32_t ranks[] = { 2, 3, 8, 5 };
    const uint64_t seed = test_seed(26053000);
    test_rng rng = { seed };
    int held[8] = { 0 };
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < 4 * test_weight_quant_count; i++) {
        const test_expert_spec spec = {
            .hidden = sizes[i % 4][0],
            .intermediate = sizes[i % 4][1],
            .gated = test_below(&rng, 2) == 0,
            .bias13 = test_below(&rng, 2) == 0,
            .bias2 = test_below(&rng, 2) == 0,
            .w13 = &test_weight_quants[i / 4],
            .w2 = &test_weight_quants[test_below(&rng, 2) ? i / 4 : (int)test_below(&rng, (uint64_t)(i / 4) + 1)],
            .fill = (test_fill)test_below(&rng, TEST_FILLS),
        };
        test_expert expert;
        test_expert_make(&expert, &rng, &spec);
        for (int32_t l = 0; mox_layout_at(l) != NULL; l++)
            held[l] += there_and_back(mox_layout_at(l), &spec, &expert, ranks[test_below(&rng, 4)]);
        test_expert_free(&expert);
    }
    for (int32_t l = 0; mox_layout_at(l) != NULL; l++)
        assert_true(held[l] > 0);
}

/* A layer that is not tensor parallel has the shape that it always had. */
static void one_rank_is_not_cut(void **state)
{
    (void)state;
    const test_expert_spec spec = {
        .hidden = 64, .intermediate = 96, .gated = true, .w13 = &test_weight_quants[0], .w2 = &test_weight_quants[0]
    };
    for (int32_t ranks = 0; ranks <= 1; ranks++) {
        const moxie_layer_config config = config_of(&spec, ranks);
        const mox_record_shape shape = mox_tp_shape(&config, mox_tp_cut_of(&config, MOXIE_MODE_EXACT, NULL));
        assert_false(shape.cut);
        assert_int_equal(mox_shape_rows13(&shape), 96);
        assert_int_equal(mox_shape_rows2(&shape), 64);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(slices_make_the_whole),
                                        cmocka_unit_test(one_rank_is_not_cut) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
