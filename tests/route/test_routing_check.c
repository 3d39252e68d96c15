/* SPDX-License-Identifier: Apache-2.0
 *
 * test_routing_check.c - names of routing methods, their numbers in other projects, descriptions, and the error text of
 * every rejected routing.
 */
#include "test_support.h"

#include <math.h>

#include "route/route.h"

static const float some_floats[16] = { 0 };
static const int32_t some_ids[64] = { 0 };

static int no_choice(void *user, int64_t tokens, const float *logits, int32_t *ids, float *weights)
{
    (void)user, (void)tokens, (void)logits, (void)ids, (void)weights;
    return 1;
}

/* Fills in the fields that a method requires. */
static void complete(moxie_routing *r)
{
    if (r->select == MOXIE_SELECT_TABLE) {
        r->table = some_ids;
        r->table_rows = 4;
    }
    if (r->select == MOXIE_SELECT_CUSTOM)
        r->custom = no_choice;
}

static void test_every_method_by_name(void **state)
{
    (void)state;
    int32_t count = 0;
    for (; mox_routing_name_at(count); count++) {
        moxie_routing r;
        moxie_error error;
        char words[128];
        memset(&r, 0xff, sizeof r);
        assert_ok(mox_routing_by_name(mox_routing_name_at(count), &r, &error), &error);
        complete(&r);
        assert_ok(mox_routing_check(&r, 8, 2, &error), &error);
        assert_ptr_equal(mox_routing_describe(&r, 8, 2, words, sizeof words), words);
        assert_true(strlen(words) > 5);
    }
    assert_int_equal(count, 16);
    assert_null(mox_routing_name_at(-1));
}

static void test_unknown_names(void **state)
{
    (void)state;
    moxie_routing r = { .seed = 42 };
    moxie_error error;
    assert_int_equal(mox_routing_by_name("softmax", &r, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "\"softmax\""));
    for (int32_t i = 0; mox_routing_name_at(i); i++)
        assert_non_null(strstr(error.text, mox_routing_name_at(i)));
    assert_int_equal(r.seed, 42);
    assert_int_equal(mox_routing_by_name(NULL, &r, NULL), MOXIE_ERR_ARGUMENT);
}

/* The enums as those projects publish them. */
static void test_numbers_of_other_projects(void **state)
{
    (void)state;
    static const char *const old[] = { "default", "renormalize", "deepseek_v3", "llama4", "renormalize_naive",
                                       "topk",    "custom",      "sim_uniform", NULL };
    static const char *const common[] = { "default", "renormalize",    "deepseek_v3", "llama4", "renormalize_naive",
                                          "topk",    "sigmoid_renorm", "minimax2",    "sigmoid" };
    for (int32_t i = 0; i < 9; i++) {
        const char *name = mox_routing_name_of(i, MOXIE_NUMBERING_VLLM_OLD);
        assert_true(old[i] ? name && !strcmp(name, old[i]) : !name);
        assert_string_equal(mox_routing_name_of(i, MOXIE_NUMBERING_VLLM), common[i]);
        assert_string_equal(mox_routing_name_of(i, MOXIE_NUMBERING_FLASHINFER), common[i]);
        assert_int_equal(mox_routing_number(common[i], MOXIE_NUMBERING_FLASHINFER), i);
    }
    assert_string_equal(mox_routing_name_of(9, MOXIE_NUMBERING_FLASHINFER), "topk_sigmoid");
    assert_null(mox_routing_name_of(9, MOXIE_NUMBERING_VLLM)); /* Unspecified */
    assert_null(mox_routing_name_of(10, MOXIE_NUMBERING_FLASHINFER));
    assert_string_equal(mox_routing_name_of(100, MOXIE_NUMBERING_VLLM), "deepseek_v4");
    assert_string_equal(mox_routing_name_of(101, MOXIE_NUMBERING_VLLM), "custom");
    assert_int_equal(mox_routing_number("sim_normal", MOXIE_NUMBERING_VLLM), 102);
    assert_int_equal(mox_routing_number("hash", MOXIE_NUMBERING_VLLM), -1);
    assert_int_equal(mox_routing_number("none", MOXIE_NUMBERING_VLLM), -1);
    assert_null(mox_routing_name_of(-1, MOXIE_NUMBERING_VLLM));
}

typedef struct typed {
    const char *scoring;
    int32_t top_k, renormalize, groups, bias;
    int32_t want[3]; /* VLLM_OLD, VLLM, FLASHINFER */
} typed;

/* Every branch of vLLM 0.33's get_routing_method_type(), and of the old one. */
static void test_method_types(void **state)
{
    (void)state;
    static const typed types[] = {
        { "sqrtsoftplus", 6, 1, 0, 0, { 8, 100, 10 } }, { "sqrtsoftplus", 6, 1, 4, 1, { 8, 100, 10 } },
        { "sqrtsoftplus", 6, 0, 0, 1, { 8, 9, 10 } },   { "sigmoid", 8, 1, 8, 1, { 2, 2, 2 } },
        { "sigmoid", 8, 1, 1, 1, { 2, 2, 2 } },         { "sigmoid", 8, 1, 0, 1, { 8, 7, 7 } },
        { "sigmoid", 8, 0, 8, 1, { 2, 9, 10 } },        { "softmax", 8, 1, 8, 1, { 8, 9, 10 } },
        { "sigmoid", 8, 1, 8, 0, { 8, 6, 6 } },         { "sigmoid", 1, 0, 0, 0, { 3, 8, 8 } },
        { "softmax", 8, 1, 0, 0, { 1, 4, 4 } },         { "softmax", 8, 0, 8, 0, { 0, 0, 0 } },
        { "relu", 8, 1, 0, 0, { 8, 9, 10 } },           { NULL, 8, 0, 0, 0, { 8, 9, 10 } },
    };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        for (int32_t n = 0; n < 3; n++)
            assert_int_equal(moxie_routing_method_type(types[i].scoring, types[i].top_k, types[i].renormalize,
                                                       types[i].groups, types[i].bias, n),
                             types[i].want[n]);
    assert_int_equal(moxie_routing_method_type("softmax", 8, 0, 0, 0, 3), -1);
    assert_int_equal(moxie_routing_number("minimax2", MOXIE_NUMBERING_VLLM), 7);
    assert_int_equal(moxie_routing_number("minimax2", -1), -1);
    assert_string_equal(moxie_routing_name_of(100, MOXIE_NUMBERING_VLLM), "deepseek_v4");
    assert_null(moxie_routing_name_of(0, 3));
}

/* A method's routing has the method's number, when vLLM tells it from its fields. */
static void test_numbers_of_routings(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool bias;
        int32_t want[3];
    } cases[] = {
        { "default", false, { 0, 0, 0 } },
        { "renormalize", false, { 1, 1, 1 } },
        { "renormalize_naive", false, { 1, 4, 4 } },
        { "llama4", false, { 3, 3, 3 } },
        { "topk", false, { 5, 5, 5 } },
        { "sigmoid", false, { 8, 8, 8 } },
        { "sigmoid_renorm", false, { 8, 6, 6 } },
        { "topk_sigmoid", false, { 8, 9, 9 } },
        { "minimax2", true, { 8, 7, 7 } },
        { "deepseek_v4", true, { 8, 100, 10 } },
        { "hash", false, { 8, 100, 10 } },
        { "sparsemixer", false, { 6, 101, 10 } },
        { "custom", false, { 6, 101, 10 } },
        { "sim_normal", false, { 7, 102, 10 } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int32_t n = 0; n < 3; n++) {
            moxie_routing r;
            assert_int_equal(moxie_routing_by_name(cases[i].name, &r, NULL), MOXIE_OK);
            r.bias = cases[i].bias ? some_floats : NULL;
            assert_int_equal(moxie_routing_number_of(&r, 8, n), cases[i].want[n]);
        }
    moxie_routing r = { .score = MOXIE_SCORE_SIGMOID, .norm = MOXIE_NORM_SUM, .bias = some_floats, .n_group = 8 };
    assert_int_equal(moxie_routing_number_of(&r, 8, MOXIE_NUMBERING_VLLM), 2);
    r.zero_experts = 4;
    assert_int_equal(moxie_routing_number_of(&r, 8, MOXIE_NUMBERING_VLLM), 9);
    r = (moxie_routing) { .bias = some_floats };
    assert_int_equal(moxie_routing_number_of(&r, 8, MOXIE_NUMBERING_VLLM), 9);
    r = (moxie_routing) { .score = MOXIE_SCORE_SOFTMAX, .norm = MOXIE_NORM_ROOT_SQUARES };
    assert_int_equal(moxie_routing_number_of(&r, 8, MOXIE_NUMBERING_VLLM), 9);
    assert_int_equal(moxie_routing_number_of(NULL, 8, MOXIE_NUMBERING_VLLM), -1);
}

static void test_descriptions(void **state)
{
    (void)state;
    char words[160];
    moxie_routing r = { .score = MOXIE_SCORE_SIGMOID, .norm = MOXIE_NORM_SUM, .scale = 2.5f, .bias = some_floats };
    r.n_group = 8;
    r.topk_group = 4;
    assert_string_equal(mox_routing_describe(&r, 256, 8, words, sizeof words),
                        "sigmoid + bias top-8 of 256 in the best 4 of 8 groups, renormalised, times 2.5");
    r = (moxie_routing) { .weight = MOXIE_WEIGHT_SOFTMAX_SELECTED, .per_expert_scale = some_floats, .on_input = 1 };
    assert_string_equal(mox_routing_describe(&r, 32, 4, words, sizeof words),
                        "logit top-4 of 32, softmax over the chosen, times a scale per expert, applied to the input");
    r = (moxie_routing) { .n_group = 2, .topk_per_group = 2, .softcap = 30, .bias_alt = some_floats };
    assert_string_equal(mox_routing_describe(&r, 32, 4, words, sizeof words),
                        "logit top-4 of 32, 2 in each of 2 groups, a second bias for some tokens, soft cap 30");
    r = (moxie_routing) { .score = MOXIE_SCORE_SOFTMAX, .norm = MOXIE_NORM_ROOT_SQUARES };
    assert_string_equal(mox_routing_describe(&r, 16, 4, words, sizeof words),
                        "softmax top-4 of 16, renormalised by the root of squares");
    r = (moxie_routing) { .score = MOXIE_SCORE_SOFTMAX, .zero_experts = 256, .scale = 6 };
    assert_string_equal(mox_routing_describe(&r, 512, 12, words, sizeof words),
                        "softmax top-12 of 512, beside them 256 identity expert(s), times 6");
    assert_string_equal(mox_routing_describe(&r, 32, 4, words, 6), "softm");
}

typedef struct rejection {
    moxie_routing routing;
    int64_t experts, top_k;
    const char *word; /* that the text must contain */
} rejection;

static void expect_rejections(const rejection *rejections, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        moxie_error error = { 0 };
        const rejection *r = &rejections[i];
        assert_int_equal(mox_routing_check(&r->routing, r->experts, r->top_k, &error), MOXIE_ERR_ARGUMENT);
        if (!strstr(error.text, r->word))
            fail_msg("rejection %d: \"%s\" does not say \"%s\"", (int)i, error.text, r->word);
    }
}

static void test_rejections(void **state)
{
    (void)state;
    const rejection rejections[] = {
        { { 0 }, 0, 1, "0 experts" },
        { { 0 }, 1025, 1, "1025 experts" },
        { { 0 }, 8, 0, "top_k is 0" },
        { { 0 }, 64, 33, "top_k is 33" },
        { { 0 }, 4, 5, "only 4 experts" },
        { { .score = 4 }, 8, 2, "routing.score is 4" },
        { { .select = -1 }, 8, 2, "routing.select is -1" },
        { { .weight = 3 }, 8, 2, "routing.weight is 3" },
        { { .norm = 6 }, 8, 2, "routing.norm is 6" },
        { { .group_score = 2 }, 8, 2, "routing.group_score is 2" },
        { { .norm_eps = -1 }, 8, 2, "norm_eps" },
        { { .scale = NAN }, 8, 2, "routing.scale is nan" },
        { { .scale = INFINITY }, 8, 2, "routing.scale is inf" },
        { { .select = MOXIE_SELECT_SPARSEMIXER, .jitter = -1 }, 8, 2, "jitter" },
        { { .n_group = -1 }, 8, 2, "n_group is -1" },
        { { .topk_group = 2 }, 8, 2, "there are no groups" },
        { { .n_group = 3, .topk_group = 1 }, 8, 2, "do not divide into 3 groups" },
        { { .n_group = 16, .topk_group = 1 }, 8, 1, "do not divide into 16 groups" },
        { { .n_group = 4 }, 8, 2, "topk_group is 0" },
        { { .n_group = 4, .topk_group = 5 }, 8, 2, "from 1 to 4" },
        { { .n_group = 4, .topk_group = 1 }, 8, 3, "hold 2, fewer than top_k 3" },
        { { .select = MOXIE_SELECT_TABLE }, 8, 2, "there is no table" },
        { { .select = MOXIE_SELECT_TABLE, .table = some_ids }, 8, 2, "0 rows" },
        { { .select = MOXIE_SELECT_TABLE, .table = some_ids, .table_rows = 1, .bias = some_floats },
          8,
          2,
          "routing.bias" },
        { { .select = MOXIE_SELECT_SPARSEMIXER }, 8, 3, "exactly 2" },
        { { .select = MOXIE_SELECT_SPARSEMIXER, .score = 1 }, 8, 2, "routing.score is set" },
        { { .select = MOXIE_SELECT_SPARSEMIXER, .weight = 1 }, 8, 2, "routing.weight is set" },
        { { .select = MOXIE_SELECT_CUSTOM }, 8, 2, "routing.custom is NULL" },
        { { .select = MOXIE_SELECT_CUSTOM, .custom = no_choice, .scale = 2 }, 8, 2, "routing.scale" },
        { { .select = MOXIE_SELECT_CUSTOM, .custom = no_choice, .norm = 1 }, 8, 2, "routing.norm" },
        { { .select = MOXIE_SELECT_CUSTOM, .custom = no_choice, .round_logits_bf16 = 1 }, 8, 2, "round_logits_bf16" },
        { { .select = MOXIE_SELECT_CUSTOM, .custom = no_choice, .round_weights_bf16 = 1 }, 8, 2, "round_weights_bf16" },
        { { .select = MOXIE_SELECT_CUSTOM, .custom = no_choice, .per_expert_scale = some_floats }, 8, 2, "per_expert" },
        { { .select = MOXIE_SELECT_SIM_UNIFORM, .n_group = 4, .topk_group = 2 }, 8, 2, "routing.n_group" },
        { { .custom = no_choice }, 8, 2, "routing.custom is set" },
        { { .table = some_ids }, 8, 2, "routing.table is set" },
        { { .jitter = 0.1f }, 8, 2, "routing.jitter is set" },
        { { .softcap = -1 }, 8, 2, "routing.softcap is -1" },
        { { .softcap = INFINITY }, 8, 2, "routing.softcap is inf" },
        { { .zero_experts = -1 }, 8, 2, "routing.zero_experts is -1" },
        { { .zero_kind = 2 }, 8, 2, "routing.zero_kind is 2" },
        { { .topk_per_group = -1 }, 8, 2, "routing.topk_per_group is -1" },
        { { .select = MOXIE_SELECT_CUSTOM, .custom = no_choice, .softcap = 30 }, 8, 2, "routing.softcap is set" },
        { { .select = MOXIE_SELECT_SPARSEMIXER, .bias_alt = some_floats }, 8, 2, "routing.bias_alt is set" },
        { { .select = MOXIE_SELECT_SPARSEMIXER, .topk_per_group = 1 }, 8, 2, "routing.topk_per_group is set" },
    };
    expect_rejections(rejections, sizeof rejections / sizeof rejections[0]);
}

/* Of what few families have. */
static void test_rejections_of_features(void **state)
{
    (void)state;
    const rejection rejections[] = {
        { { .softcap = -1 }, 8, 2, "routing.softcap is -1" },
        { { .softcap = INFINITY }, 8, 2, "routing.softcap is inf" },
        { { .zero_experts = -1 }, 8, 2, "routing.zero_experts is -1" },
        { { .zero_experts = 1017 }, 8, 2, "from 0 to 1016" },
        { { .group_fill_zero = 3 }, 8, 2, "routing.group_fill_zero is 3" },
        { { .n_group = 2, .topk_per_group = 1 }, 8, 4, "topk_per_group is 1; with 2 group(s) and top_k 4" },
        { { .topk_per_group = 2 }, 8, 2, "with 0 group(s)" },
        { { .n_group = 4, .topk_per_group = 1, .topk_group = 2 }, 8, 4, "topk_group is 2" },
        { { .n_group = 4, .topk_per_group = 3 }, 8, 12, "top_k is 12" },
        { { .n_group = 3, .topk_per_group = 1 }, 8, 3, "do not divide into 3 groups" },
        { { .select = MOXIE_SELECT_SPARSEMIXER, .softcap = 3 }, 8, 2, "routing.softcap is set" },
        { { .zero_kind = 2 }, 8, 2, "routing.zero_kind is 2" },
        { { .zero_kind = MOXIE_ZERO_NULL }, 8, 2, "zero_experts is 0" },
        { { .select = MOXIE_SELECT_SIM_UNIFORM, .zero_experts = 2 }, 8, 2, "routing.zero_experts is set" },
        { { .zero_experts = 2 }, 4, 7, "only 6 experts" },
        { { .zero_experts = 2, .n_group = 4, .topk_group = 1 }, 8, 1, "10 experts do not divide into 4 groups" },
        { { .topk_per_group = -1 }, 8, 2, "routing.topk_per_group is -1" },
        { { .select = MOXIE_SELECT_CUSTOM, .custom = no_choice, .softcap = 30 }, 8, 2, "routing.softcap is set" },
        { { .select = MOXIE_SELECT_SPARSEMIXER, .bias_alt = some_floats }, 8, 2, "routing.bias_alt is set" },
        { { .select = MOXIE_SELECT_SPARSEMIXER, .topk_per_group = 1 }, 8, 2, "routing.topk_per_group is set" },
    };
    expect_rejections(rejections, sizeof rejections / sizeof rejections[0]);
}

static void test_accepted(void **state)
{
    (void)state;
    const moxie_routing admitted[] = {
        { .bias = some_floats },                                             /* on raw logits */
        { .score = MOXIE_SCORE_SOFTMAX, .n_group = 4, .topk_group = 2 },     /* groups by softmax */
        { .n_group = 8, .topk_group = 3 },                                   /* groups of one expert */
        { .n_group = 1, .topk_group = 1 },                                   /* as configs write "no groups" */
        { .weight = MOXIE_WEIGHT_SOFTMAX_SELECTED, .norm = MOXIE_NORM_SUM }, /* twice normalised */
        { .weight = MOXIE_WEIGHT_SIGMOID_SELECTED, .on_input = 1 },          /* on the input with K > 1 */
        { .select = MOXIE_SELECT_SIM_NORMAL, .scale = 2, .per_expert_scale = some_floats },
    };
    for (size_t i = 0; i < sizeof admitted / sizeof admitted[0]; i++) {
        moxie_error error;
        assert_ok(mox_routing_check(&admitted[i], 8, 3, &error), &error);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_method_by_name),
        cmocka_unit_test(test_unknown_names),
        cmocka_unit_test(test_numbers_of_other_projects),
        cmocka_unit_test(test_method_types),
        cmocka_unit_test(test_numbers_of_routings),
        cmocka_unit_test(test_descriptions),
        cmocka_unit_test(test_rejections),
        cmocka_unit_test(test_rejections_of_features),
        cmocka_unit_test(test_accepted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
