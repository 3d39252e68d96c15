/* SPDX-License-Identifier: Apache-2.0
 *
 * test_prepare_api.c - moxie_prepare.h: lists, preparations, packing and unpacking. Rejections name the rule, the rank
 * and what would be accepted. Shares of ranks: test_prepare_shares.c.
 */
#include <math.h>

#include "base/memory.h"
#include "prepare_problem.h"
#include "vendor/vendor_slice.h"

/* ---- what is listed and planned ---- */

static void layouts_are_listed(void **state)
{
    (void)state;
    moxie_prepare_layout layout = MOXIE_PREPARE_LAYOUT_INIT;
    int count = 0;
    while (moxie_prepare_layout_at(count, &layout)) {
        assert_true(layout.name[0] && layout.summary[0] && layout.caller[0] && layout.accepts[0]);
        moxie_prepare_limit limit = MOXIE_PREPARE_LIMIT_INIT;
        int limits = 0;
        for (; moxie_prepare_limit_at(count, limits, &limit); limits++)
            assert_true(limit.multiple > 1 && limit.why[0]);
        assert_int_equal(limits, layout.n_limits);
        count++;
    }
    assert_true(count > 0);
    assert_int_equal(moxie_prepare_layout_at(-1, &layout), 0);
    assert_int_equal(moxie_prepare_layout_at(0, NULL), 0);
    assert_true(moxie_prepare_layout_at(0, &layout));
    assert_string_equal(layout.name, "trtllm-mxint4");
    assert_string_equal(layout.accepts,
                        "u4b8 or i4, bf16 scales per 32 columns, no zero points, no biases, gate and up");
}

/* Entries of one name are versions, the newest first. */
static void versions_are_listed(void **state)
{
    (void)state;
    moxie_prepare_layout layout = MOXIE_PREPARE_LAYOUT_INIT;
    char before[64] = "";
    int versions = 0;
    for (int32_t i = 0; moxie_prepare_layout_at(i, &layout); i++) {
        assert_true(layout.release[0] && !strchr(layout.release, ' ') && layout.also);
        assert_int_equal(layout.is_default, strcmp(layout.name, before) != 0);
        if (!strcmp(layout.name, "trtllm-mxfp4"))
            assert_string_equal(layout.release, versions++ == 0 ? "vllm-0.33" : "vllm-0.18");
        snprintf(before, sizeof before, "%s", layout.name);
    }
    assert_int_equal(versions, 2);
}

static test_expert_spec int4_words(int64_t hidden, int64_t intermediate)
{
    return (test_expert_spec) { .hidden = hidden,
                                .intermediate = intermediate,
                                .gated = true,
                                .w13 = test_weight_quant_named("int4 words g32"),
                                .w2 = test_weight_quant_named("int4 words g32") };
}

/* Bytes, shapes and shares by hand: 512 x 1280 in int4 with a bf16 scale per 32. */
static void a_plan_says_what_it_makes(void **state)
{
    (void)state;
    test_rng rng = { 5 };
    moxie_error error = { 0 };
    const test_expert_spec spec = int4_words(512, 1280);
    test_expert expert;
    test_expert_make(&expert, &rng, &spec);
    moxie_layer_config config = config_of(&spec);
    config.ep_size = 4;
    config.ep_rank = 1;
    config.ep_map = MOXIE_MAP_ROUND_ROBIN;
    const moxie_preparation_options options = options_of("trtllm-mxint4", 1, 3);
    moxie_preparation *p = NULL;
    assert_ok(moxie_preparation_create(&config, &options, &expert.view, &p, &error), &error);
    moxie_preparation_info info = MOXIE_PREPARATION_INFO_INIT;
    assert_ok(moxie_preparation_get_info(p, &info, &error), &error);
    assert_string_equal(info.layout, "trtllm-mxint4");
    assert_int_equal(info.whole_intermediate, 1280);
    assert_int_equal(info.first_intermediate, 512); /* 5 units of 256: 2, 2, 1 */
    assert_int_equal(info.intermediate, 512);
    assert_int_equal(info.padded_intermediate, 512);
    assert_int_equal(info.hidden, 512);
    assert_int_equal(info.n_experts, 3); /* 1, 5, 9 of 10 */
    assert_int_equal(info.experts[0], 1);
    assert_int_equal(info.experts[1], 5);
    assert_int_equal(info.experts[2], 9);
    assert_int_equal(info.n_tensors, 4);
    assert_int_equal(info.expert_bytes, 3 * 512 * 512 / 2 + 3 * 512 * 512 / 32 * 2);
    moxie_prepared_tensor tensor = MOXIE_PREPARED_TENSOR_INIT;
    assert_true(moxie_preparation_tensor_at(p, 0, &tensor));
    assert_int_equal(tensor.dtype, MOXIE_U8);
    assert_int_equal(tensor.bytes, 2 * 512 * 512 / 2);
    assert_int_equal(moxie_preparation_tensor_at(p, 4, &tensor), 0);
    assert_int_equal(moxie_preparation_tensor_at(p, -1, &tensor), 0);
    moxie_preparation_destroy(p);
    test_expert_free(&expert);
}

static void refuses(const test_expert_spec *spec, const moxie_preparation_options *options, moxie_status status,
                    const char *text)
{
    test_rng rng = { 6 };
    moxie_error error = { 0 };
    test_expert expert;
    test_expert_make(&expert, &rng, spec);
    const moxie_layer_config config = config_of(spec);
    moxie_preparation *p = NULL;
    assert_int_equal(moxie_preparation_create(&config, options, &expert.view, &p, &error), status);
    assert_null(p);
    if (!strstr(error.text, text))
        fail_msg("\"%s\" has no \"%s\"", error.text, text);
    test_expert_free(&expert);
}

/* 320 is padded to 384 for vLLM 0.33, to 512 for 0.18. */
static void a_release_chooses_the_version(void **state)
{
    (void)state;
    static const struct {
        const char *release, *is;
        int64_t padded;
    } cases[] = { { NULL, "vllm-0.33", 384 },
                  { "", "vllm-0.33", 384 },
                  { "vllm-0.33", "vllm-0.33", 384 },
                  { "vllm-0.18", "vllm-0.18", 512 } };
    const test_expert_spec spec = { .hidden = 256,
                                    .intermediate = 320,
                                    .gated = true,
                                    .w13 = test_weight_quant_named("mxfp4"),
                                    .w2 = test_weight_quant_named("mxfp4") };
    test_rng rng = { 5 };
    test_expert expert;
    test_expert_make(&expert, &rng, &spec);
    const moxie_layer_config config = config_of(&spec);
    moxie_preparation_options options = options_of("trtllm-mxfp4", 0, 1);
    options.pad = 1;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        moxie_preparation *p = NULL;
        moxie_error error = { 0 };
        moxie_preparation_info info = MOXIE_PREPARATION_INFO_INIT;
        options.release = cases[i].release;
        assert_ok(moxie_preparation_create(&config, &options, &expert.view, &p, &error), &error);
        assert_ok(moxie_preparation_get_info(p, &info, &error), &error);
        assert_string_equal(info.release, cases[i].is);
        assert_int_equal(info.padded_intermediate, cases[i].padded);
        moxie_preparation_destroy(p);
    }
    test_expert_free(&expert);
    options.release = "vllm-0.1";
    refuses(&spec, &options, MOXIE_ERR_ARGUMENT,
            "has no version for \"vllm-0.1\"; it has those for: vllm-0.33 vllm-0.18");
}

static void refusals_name_rule_rank_and_remedy(void **state)
{
    (void)state;
    const test_expert_spec even = int4_words(512, 1280), odd = int4_words(512, 800),
                           bf16 = { .hidden = 256,
                                    .intermediate = 256,
                                    .gated = true,
                                    .w13 = test_weight_quant_named("bf16"),
                                    .w2 = test_weight_quant_named("bf16") };
    moxie_preparation_options o = options_of("trtllm-mxint9", 0, 1);
    refuses(&even, &o, MOXIE_ERR_ARGUMENT, "trtllm-mxint4");
    o = options_of(NULL, 0, 1);
    refuses(&even, &o, MOXIE_ERR_ARGUMENT, "trtllm-..., triton-...");
    o = options_of("trtllm-mxint4", 0, 1);
    refuses(&bf16, &o, MOXIE_ERR_UNSUPPORTED, "u4b8 or i4");
    refuses(&odd, &o, MOXIE_ERR_UNSUPPORTED, "the nearest that would do: 768 or 1024");
    o = options_of("trtllm-mxint4", 0, 6);
    refuses(&even, &o, MOXIE_ERR_UNSUPPORTED, "of 6 ranks rank 5 would get none");
    refuses(&even, &o, MOXIE_ERR_UNSUPPORTED, "5 ranks, or an intermediate size of 1536");
    o = options_of("trtllm-mxint4", 1, 2);
    refuses(&odd, &o, MOXIE_ERR_UNSUPPORTED, "the slice of rank 1 would end 32 past one");
    refuses(&odd, &o, MOXIE_ERR_UNSUPPORTED, "768 or 1024");
    o = options_of("trtllm-mxint4", 2, 2);
    refuses(&even, &o, MOXIE_ERR_ARGUMENT, "rank 2 of 2");
}

static void null_is_refused(void **state)
{
    (void)state;
    test_rng rng = { 7 };
    moxie_error error = { 0 };
    const test_expert_spec spec = int4_words(256, 256);
    test_expert expert;
    test_expert_make(&expert, &rng, &spec);
    const moxie_layer_config config = config_of(&spec);
    const moxie_preparation_options options = options_of("trtllm-mxint4", 0, 1);
    moxie_preparation *p = NULL;
    assert_int_equal(moxie_preparation_create(NULL, &options, &expert.view, &p, &error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_preparation_create(&config, NULL, &expert.view, &p, &error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_preparation_create(&config, &options, NULL, &p, &error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_preparation_create(&config, &options, &expert.view, NULL, &error), MOXIE_ERR_ARGUMENT);
    assert_ok(moxie_preparation_create(&config, &options, &expert.view, &p, &error), &error);
    void *none[MAX_TENSORS] = { NULL };
    assert_int_equal(moxie_preparation_pack(p, &expert.view, none, NULL, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "no memory is given"));
    assert_int_equal(moxie_preparation_pack(p, NULL, none, NULL, &error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_preparation_pack(NULL, &expert.view, none, NULL, &error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_preparation_unpack(p, none, &expert.view, NULL, &error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_preparation_unpack(p, NULL, &expert.view, NULL, &error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_preparation_survey(p, NULL, &error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_preparation_get_info(p, NULL, &error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_preparation_tensor_at(NULL, 0, NULL), 0);
    moxie_preparation_destroy(p);
    moxie_preparation_destroy(NULL);
    test_expert_free(&expert);
}

static moxie_preparation_facts facts_of(float most13, float least13, float a13)
{
    moxie_preparation_facts facts = MOXIE_PREPARATION_FACTS_INIT;
    facts.scale_max[0] = most13;
    facts.scale_min[0] = least13;
    facts.scale_max[1] = facts.scale_min[1] = 0.25f;
    facts.a13_max = a13;
    return facts;
}

/* Facts that no survey finds are rejected, and the old ones stay. */
static void odd_facts_are_refused(void **state)
{
    (void)state;
    test_rng rng = { 9 };
    moxie_error error = { 0 };
    const test_expert_spec spec = int4_words(128, 128);
    test_expert expert;
    test_expert_make(&expert, &rng, &spec);
    const moxie_layer_config config = config_of(&spec);
    const moxie_preparation_options options = options_of("marlin-ct-int8", 0, 1);
    moxie_preparation *p = NULL;
    assert_ok(moxie_preparation_create(&config, &options, &expert.view, &p, &error), &error);
    const moxie_preparation_facts good = facts_of(2, 0.5f, 0), odd[] = {
        facts_of(NAN, 0.5f, 0), facts_of(INFINITY, 0.5f, 0), facts_of(-2, -3, 0),   facts_of(2, NAN, 0),
        facts_of(2, -0.5f, 0),  facts_of(2, 3, 0),           facts_of(2, 0, 0),     facts_of(0, 0.5f, 0),
        facts_of(2, 0.5f, NAN), facts_of(2, 0.5f, INFINITY), facts_of(2, 0.5f, -1),
    };
    assert_ok(moxie_preparation_set_facts(p, &good, &error), &error);
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        moxie_preparation_facts found = MOXIE_PREPARATION_FACTS_INIT;
        error.text[0] = '\0';
        assert_int_equal(moxie_preparation_set_facts(p, &odd[i], &error), MOXIE_ERR_ARGUMENT);
        assert_non_null(strstr(error.text, "w13"));
        assert_ok(moxie_preparation_get_facts(p, &found, &error), &error);
        assert_memory_equal(&found, &good, sizeof good);
    }
    moxie_preparation_destroy(p);
    test_expert_free(&expert);
}

/* All scales of a projection are `code`: the failure of the survey, else that of packing. */
static moxie_status pack_scales_of(uint16_t code, moxie_error *error)
{
    test_rng rng = { 10 };
    const test_expert_spec spec = int4_words(128, 128);
    test_expert expert;
    test_expert_make(&expert, &rng, &spec);
    const moxie_layer_config config = config_of(&spec);
    const moxie_preparation_options options = options_of("marlin-ct-int8", 0, 1);
    moxie_preparation *p = NULL;
    tensors t = { .count = 0 };
    const moxie_grid *scale = &expert.view.down.scale;
    for (int64_t r = 0; r < scale->rows; r++)
        for (int64_t c = 0; c < scale->cols; c++)
            mox_grid_store(scale, r, c, code);
    assert_ok(moxie_preparation_create(&config, &options, &expert.view, &p, error), error);
    moxie_status status = moxie_preparation_survey(p, &expert.view, error);
    if (status == MOXIE_OK) {
        make_tensors(p, &t);
        status = moxie_preparation_pack(p, &expert.view, t.data, pool, error);
    }
    free_tensors(&t);
    moxie_preparation_destroy(p);
    test_expert_free(&expert);
    return status;
}

static void scales_without_a_largest_are_refused(void **state)
{
    (void)state;
    moxie_error error = { 0 };
    assert_int_equal(test_weight_quant_named("int4 words g32")->quant.scale, MOXIE_BF16);
    assert_ok(pack_scales_of(0x3f80, &error), &error); /* 1 */
    assert_int_equal(pack_scales_of(0x0000, &error), MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "no scale of the layer is above zero"));
    assert_int_equal(pack_scales_of(0x7fc0, &error), MOXIE_ERR_UNSUPPORTED); /* NaN */
    assert_int_equal(pack_scales_of(0x7f80, &error), MOXIE_ERR_UNSUPPORTED); /* infinity */
    assert_non_null(strstr(error.text, "finite"));
}

/* One row of bf16 numbers, viewed as very many rows (a stride of 0). Its packed size does not fit into 64 bits. */
static void tensors_beyond_64_bits_are_refused(void **state)
{
    (void)state;
    moxie_error error = { 0 };
    static const uint16_t one;
    const int64_t most = INT32_MAX / 128 * 128;
    const moxie_grid grid = { .data = &one,
                              .bytes = sizeof one,
                              .rows = most,
                              .cols = most,
                              .dtype = MOXIE_BF16,
                              .packing = { .word_bytes = 2, .per_word = 1 } };
    const moxie_expert expert = { .gate.codes = grid, .up.codes = grid, .down.codes = grid };
    moxie_layer_config config = MOXIE_LAYER_CONFIG_INIT;
    config.experts = 1;
    config.hidden = config.intermediate = most;
    config.w13.element = config.w2.element = MOXIE_BF16;
    const moxie_preparation_options options = options_of("trtllm-bf16", 0, 1);
    moxie_preparation *p = NULL;
    assert_int_equal(moxie_preparation_create(&config, &options, &expert, &p, &error), MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "more than a tensor of a real model"));
    assert_null(p);
}

/* Each allocation of creating, packing and unpacking fails once, on a rank that does not own the bias. */
static void every_allocation_may_fail(void **state)
{
    (void)state;
    test_rng rng = { 8 };
    moxie_error error = { 0 };
    const test_expert_spec spec = { .hidden = 64,
                                    .intermediate = 128,
                                    .gated = true,
                                    .bias13 = true,
                                    .bias2 = true,
                                    .w13 = test_weight_quant_named("mxfp4"),
                                    .w2 = test_weight_quant_named("mxfp4") };
    test_expert expert;
    test_expert_make(&expert, &rng, &spec);
    void *vectors[2] = { NULL };
    expert.view.gate.bias = copy_vector(&expert.view.up.bias, 0, 128, &vectors[0]); /* one type for both */
    const moxie_layer_config config = config_of(&spec);
    const moxie_preparation_options options = options_of("triton-mxfp4", 1, 2);
    moxie_status status = MOXIE_ERR_MEMORY;
    uint64_t n = 0;
    while (status == MOXIE_ERR_MEMORY) {
        moxie_preparation *p = NULL;
        tensors t = { .count = 0 };
        mox_alloc_fail_at(++n);
        status = moxie_preparation_create(&config, &options, &expert.view, &p, &error);
        if (status == MOXIE_OK) {
            make_tensors(p, &t);
            status = moxie_preparation_pack(p, &expert.view, t.data, NULL, &error);
        }
        if (status == MOXIE_OK)
            status = moxie_preparation_unpack(p, t.data, &expert.view, NULL, &error);
        mox_alloc_fail_at(0);
        free_tensors(&t);
        moxie_preparation_destroy(p);
    }
    assert_ok(status, &error);
    assert_true(n > 4);
    free(vectors[0]);
    test_expert_free(&expert);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts_are_listed),
        cmocka_unit_test(versions_are_listed),
        cmocka_unit_test(a_release_chooses_the_version),
        cmocka_unit_test(a_plan_says_what_it_makes),
        cmocka_unit_test(refusals_name_rule_rank_and_remedy),
        cmocka_unit_test(null_is_refused),
        cmocka_unit_test(odd_facts_are_refused),
        cmocka_unit_test(scales_without_a_largest_are_refused),
        cmocka_unit_test(tensors_beyond_64_bits_are_refused),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, make_pool, free_pool);
}
