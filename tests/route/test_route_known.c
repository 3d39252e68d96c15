/* SPDX-License-Identifier: Apache-2.0
 *
 * test_route_known.c - routing one token: expected results computed by hand from the formulas of route.h.
 *
 * The main example has the logits (0.5, -1, 2, 1, 0, 3, -2, 1.5) and K = 3. Expected weights have seven digits;
 * they were worked out apart from this library.
 */
#include "test_support.h"

#include <math.h>

#include "route/route.h"

#define N ((float)NAN)
#define I ((float)INFINITY)

static const float example[8] = { 0.5f, -1.0f, 2.0f, 1.0f, 0.0f, 3.0f, -2.0f, 1.5f };

static moxie_routing named(const char *name)
{
    moxie_routing routing;
    moxie_error error;
    memset(&routing, 0xff, sizeof routing);
    assert_ok(mox_routing_by_name(name, &routing, &error), &error);
    return routing;
}

static void route(const moxie_routing *routing, int64_t experts, int64_t top_k, const float *logits, int32_t *ids,
                  float *weights)
{
    moxie_error error;
    assert_ok(mox_routing_check(routing, experts, top_k, &error), &error);
    mox_route_token(routing, experts, top_k, logits, 0, 0, ids, weights);
}

/* Routes and compares ids exactly and weights to six digits. */
static void expect(const moxie_routing *routing, int64_t experts, int64_t top_k, const float *logits,
                   const int32_t *ids, const float *weights)
{
    int32_t got[MOXIE_MAX_TOP_K];
    float w[MOXIE_MAX_TOP_K];
    route(routing, experts, top_k, logits, got, w);
    for (int64_t j = 0; j < top_k; j++) {
        assert_int_equal(got[j], ids[j]);
        if (isinf(weights[j]))
            assert_true(w[j] == weights[j]);
        else
            assert_close(w[j], weights[j], 1e-6 * fabs(weights[j]) + 1e-7);
    }
}

#define EXPECT(routing, experts, k, logits, ids, weights)                                                              \
    expect((routing), (experts), (k), (logits), (const int32_t[])ids, (const float[])weights)
#define LIST(...)                                                                                                      \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

static void test_named_methods(void **state)
{
    (void)state;
    moxie_routing r = named("default");
    EXPECT(&r, 8, 3, example, LIST(5, 2, 7), LIST(0.5309912f, 0.1953407f, 0.1184801f));
    r = named("renormalize");
    EXPECT(&r, 8, 3, example, LIST(5, 2, 7), LIST(0.6285317f, 0.2312239f, 0.1402444f));
    r = named("renormalize_naive");
    EXPECT(&r, 8, 3, example, LIST(5, 2, 7), LIST(0.6285317f, 0.2312239f, 0.1402444f));
    r = named("topk");
    EXPECT(&r, 8, 3, example, LIST(5, 2, 7), LIST(3.0f, 2.0f, 1.5f));
    /* sigmoid(3) = 0.9525741, sigmoid(2) = 0.8807971, sigmoid(1.5) = 0.8175745; sum 2.6509457 */
    r = named("sigmoid");
    EXPECT(&r, 8, 3, example, LIST(5, 2, 7), LIST(0.9525741f, 0.8807971f, 0.8175745f));
    r = named("topk_sigmoid");
    EXPECT(&r, 8, 3, example, LIST(5, 2, 7), LIST(0.9525741f, 0.8807971f, 0.8175745f));
    r = named("sigmoid_renorm");
    EXPECT(&r, 8, 3, example, LIST(5, 2, 7), LIST(0.3593337f, 0.3322577f, 0.3084086f));
    r = named("llama4");
    assert_int_equal(r.on_input, 1);
    EXPECT(&r, 8, 1, example, LIST(5), LIST(0.9525741f));
    /* softplus(3) = 3.0485874, (2) 2.1269280, (1.5) 1.7014133; roots 1.7460205 1.4583992 1.3043823, sum 4.5088020 */
    r = named("deepseek_v4");
    r.scale = 1.5f;
    EXPECT(&r, 8, 3, example, LIST(5, 2, 7), LIST(0.5808706f, 0.4851841f, 0.4339453f));
}

static void test_bf16_weights(void **state)
{
    (void)state;
    moxie_routing r = named("default");
    r.round_weights_bf16 = 1;
    EXPECT(&r, 8, 3, example, LIST(5, 2, 7), LIST(0.53125f, 0.1953125f, 0.11865234f));
    r = named("renormalize");
    r.round_weights_bf16 = 1;
    EXPECT(&r, 8, 3, example, LIST(5, 2, 7), LIST(0.62890625f, 0.23144531f, 0.140625f));
}

/* 1.0 and 1.001 are one number in bf16, so the lower index wins. */
static void test_bf16_logits(void **state)
{
    (void)state;
    moxie_routing r = named("topk");
    const float logits[3] = { 1.0f, 1.001f, -5.0f };
    EXPECT(&r, 3, 1, logits, LIST(1), LIST(1.001f));
    r.round_logits_bf16 = 1;
    EXPECT(&r, 3, 1, logits, LIST(0), LIST(1.0f));
}

/* Group sums 2.391401 1.611856 1.202574 0.936777: groups 0 and 1 stay, the best logit, expert 5, is not chosen. */
static void test_groups(void **state)
{
    (void)state;
    static const float bias[8] = { 0, 1.5f, 0, 0, 0.25f, -0.5f, 0, 0 };
    moxie_routing r = named("deepseek_v3");
    r.bias = bias;
    r.n_group = 4;
    r.topk_group = 2;
    r.scale = 2.5f;
    EXPECT(&r, 8, 3, example, LIST(1, 2, 3), LIST(0.357483f, 1.170776f, 0.971740f));
    /* By their largest key: 1.768941 0.880797 0.75 0.817574, the same groups. */
    r.group_score = MOXIE_GROUP_MAX;
    EXPECT(&r, 8, 3, example, LIST(1, 2, 3), LIST(0.357483f, 1.170776f, 0.971740f));
    /* One group and K = 2: 1.768941 and 0.622459; weights 2.5 * 0.268941 / 0.891401 and the rest. */
    r.topk_group = 1;
    EXPECT(&r, 8, 2, example, LIST(1, 0), LIST(0.754266f, 1.745734f));
    /* 0 and 1 groups are no groups: keys 1.768941, 0.880797, 0.817574; sum of scores 1.967313. */
    r.topk_group = 0;
    for (r.n_group = 0; r.n_group < 2; r.n_group++)
        EXPECT(&r, 8, 3, example, LIST(1, 2, 7), LIST(0.341762f, 1.119289f, 1.038948f));
}

/* When keys in the kept group are below 0, experts of dropped groups with the fill value 0 are chosen. */
static void test_group_fill(void **state)
{
    (void)state;
    static const float logits[4] = { -1, -2, -3, -4 };
    moxie_routing r = named("topk");
    r.n_group = 2;
    r.topk_group = 1;
    EXPECT(&r, 4, 2, logits, LIST(0, 1), LIST(-1.0f, -2.0f));
    r.group_fill_zero = MOXIE_FILL_ZERO_KEY;
    EXPECT(&r, 4, 2, logits, LIST(2, 3), LIST(-3.0f, -4.0f));
    r.group_fill_zero = MOXIE_FILL_ZERO;
    EXPECT(&r, 4, 2, logits, LIST(2, 3), LIST(0.0f, 0.0f));
}

static void test_ties_go_to_the_lower_index(void **state)
{
    (void)state;
    static const float flat[6] = { 1, 1, 1, 1, 1, 1 };
    static const float pairs[6] = { -0.0f, 2, 0, 2, 0, 2 };
    moxie_routing r = named("default");
    EXPECT(&r, 6, 3, flat, LIST(0, 1, 2), LIST(1 / 6.0f, 1 / 6.0f, 1 / 6.0f));
    r = named("topk");
    EXPECT(&r, 6, 5, pairs, LIST(1, 3, 5, 0, 2), LIST(2.0f, 2.0f, 2.0f, 0.0f, 0.0f));
    r.n_group = 3;
    r.topk_group = 2;
    EXPECT(&r, 6, 4, flat, LIST(0, 1, 2, 3), LIST(1.0f, 1.0f, 1.0f, 1.0f));
}

static void test_nan_comes_last_with_weight_0(void **state)
{
    (void)state;
    static const float some[4] = { N, 1, N, -I };
    static const float none[4] = { N, N, N, N };
    /* softmax(1, -inf) = 1, 0 */
    for (int32_t i = 0; mox_routing_name_at(i); i++) {
        moxie_routing r = named(mox_routing_name_at(i));
        if (r.select != MOXIE_SELECT_TOPK)
            continue;
        int32_t ids[4];
        float weights[4];
        route(&r, 4, 4, some, ids, weights);
        assert_int_equal(ids[0], 1);
        assert_int_equal(ids[1], 3);
        assert_int_equal(ids[2], 0);
        assert_int_equal(ids[3], 2);
        assert_true(weights[0] > 0);
        assert_true(weights[2] == 0 && weights[3] == 0);
        for (r.norm = MOXIE_NORM_NONE; r.norm <= MOXIE_NORM_ROOT_SQUARES; r.norm++) {
            route(&r, 4, 3, none, ids, weights);
            for (int32_t j = 0; j < 3; j++) {
                assert_int_equal(ids[j], j);
                assert_true(weights[j] == 0);
            }
        }
    }
    moxie_routing r = named("default");
    EXPECT(&r, 4, 2, some, LIST(1, 3), LIST(1.0f, 0.0f));
}

/* A group's key counts only its numbers. A NaN in a dropped group does not get the fill value. */
static void test_nan_in_groups(void **state)
{
    (void)state;
    static const float logits[6] = { 3, N, 1, 1, N, N };
    moxie_routing r = named("topk");
    r.n_group = 3;
    r.topk_group = 1;
    EXPECT(&r, 6, 2, logits, LIST(0, 2), LIST(3.0f, 1.0f));
    r.group_fill_zero = MOXIE_FILL_ZERO_KEY;
    EXPECT(&r, 6, 2, logits, LIST(0, 2), LIST(3.0f, 1.0f));
    r.group_fill_zero = MOXIE_FILL_ZERO;
    EXPECT(&r, 6, 2, logits, LIST(0, 2), LIST(3.0f, 0.0f));
}

static void test_infinite_logits(void **state)
{
    (void)state;
    static const float up[4] = { 0, I, -I, I }, down[3] = { -I, -I, -I };
    moxie_routing r = named("default");
    EXPECT(&r, 4, 3, up, LIST(1, 3, 0), LIST(0.5f, 0.5f, 0.0f));
    EXPECT(&r, 3, 2, down, LIST(0, 1), LIST(1 / 3.0f, 1 / 3.0f));
    r = named("renormalize");
    EXPECT(&r, 4, 3, up, LIST(1, 3, 0), LIST(0.5f, 0.5f, 0.0f));
    EXPECT(&r, 3, 2, down, LIST(0, 1), LIST(0.5f, 0.5f));
    r = named("sigmoid");
    EXPECT(&r, 4, 4, up, LIST(1, 3, 0, 2), LIST(1.0f, 1.0f, 0.5f, 0.0f));
    r = named("deepseek_v4");
    r.norm = MOXIE_NORM_NONE;
    EXPECT(&r, 4, 4, up, LIST(1, 3, 0, 2), LIST(I, I, 0.8325546f, 0.0f));
}

/* e^-100 = 3.720076e-44, a subnormal: the form 1 / (1 + e^100) would give 0. */
static void test_weak_experts_keep_their_weight(void **state)
{
    (void)state;
    static const float logits[3] = { -100, -90, -101 };
    moxie_routing r = named("sigmoid");
    int32_t ids[3];
    float weights[3];
    route(&r, 3, 3, logits, ids, weights);
    assert_int_equal(ids[0], 1);
    assert_int_equal(ids[1], 0);
    assert_int_equal(ids[2], 2);
    assert_close(weights[0], 8.194013e-40, 1e-44);
    assert_close(weights[1], 3.720076e-44, 1.5e-45);
}

/* The scores 0.25 and 0.125 (raw logits) are chosen; each guard of the sum is applied to them. */
static void test_guards(void **state)
{
    (void)state;
    static const float logits[3] = { 0.25f, -1, 0.125f };
    static const float tiny[2] = { 1e-25f, 3e-25f };
    moxie_routing r = named("topk");
    for (r.norm = MOXIE_NORM_SUM_PLUS_EPS; r.norm <= MOXIE_NORM_SUM_OR_ONE; r.norm++)
        EXPECT(&r, 3, 2, logits, LIST(0, 2), LIST(2 / 3.0f, 1 / 3.0f));
    r.norm_eps = 0.625f;
    r.norm = MOXIE_NORM_SUM_PLUS_EPS;
    EXPECT(&r, 3, 2, logits, LIST(0, 2), LIST(0.25f, 0.125f));
    r.norm = MOXIE_NORM_MAX_SUM_EPS;
    EXPECT(&r, 3, 2, logits, LIST(0, 2), LIST(0.4f, 0.2f));
    r.norm_eps = 0;
    int32_t ids[2];
    float weights[2];
    route(&r, 2, 2, tiny, ids, weights);
    assert_close(weights[0], 3e-5, 1e-11);
    r.norm = MOXIE_NORM_SUM;
    EXPECT(&r, 2, 2, tiny, LIST(1, 0), LIST(0.75f, 0.25f));
    /* Sum -1 is not above 0. */
    static const float negative[2] = { -0.25f, -0.75f };
    r.norm = MOXIE_NORM_SUM_OR_ONE;
    EXPECT(&r, 2, 2, negative, LIST(0, 1), LIST(-0.25f, -0.75f));
    r.norm = MOXIE_NORM_ROOT_SQUARES; /* 3, 4, 5 */
    static const float three_four[2] = { 3, -4 };
    EXPECT(&r, 2, 2, three_four, LIST(0, 1), LIST(0.6f, -0.8f));
}

static void test_scales_and_bias(void **state)
{
    (void)state;
    static const float scales[4] = { 1, 2, 4, 0.5f }, bias[4] = { 0, 0, 0, 10 };
    static const float logits[4] = { 4, 3, 2, 1 };
    moxie_routing r = named("topk");
    r.per_expert_scale = scales;
    r.scale = 2.5f;
    EXPECT(&r, 4, 3, logits, LIST(0, 1, 2), LIST(10.0f, 15.0f, 20.0f));
    r.bias = bias; /* chosen by 11, with weight 1 */
    EXPECT(&r, 4, 2, logits, LIST(3, 0), LIST(1.25f, 10.0f));
    r.norm = MOXIE_NORM_SUM; /* 1/5 and 4/5, then the scales */
    EXPECT(&r, 4, 2, logits, LIST(3, 0), LIST(0.25f, 2.0f));
}

/* Phi-3.5-MoE, jitter 0.01. Logits 2, 1.97, 1.9, 0.5, 1.99. First: (2 - z) / 2 is 0, 0.015, 0.05, .., 0.005, so 1, 4
 * and 0 stay: 1 / (1 + e^-.03 + e^-.01) = 0.3377813. Second, against 1.99 without the first: 1.97 stays (0.01005), 1.9
 * does not (0.045): 1 / (1 + e^-.02) = 0.5049998. */
static void test_sparsemixer(void **state)
{
    (void)state;
    static const float logits[5] = { 2.0f, 1.97f, 1.9f, 0.5f, 1.99f };
    moxie_routing r = named("sparsemixer");
    EXPECT(&r, 5, 2, logits, LIST(0, 4), LIST(0.3377813f, 0.5049998f));
    r.jitter = 0.03f; /* up to 0.06: all but 0.5; then 1.97 and 1.9 beside 1.99 */
    EXPECT(&r, 5, 2, logits, LIST(0, 4), LIST(0.2587099f, 0.3455270f));
    static const float one[3] = { N, -4, N }, flat[3] = { 0, 0, 0 }, high[3] = { I, 5, I };
    r.jitter = 0;
    EXPECT(&r, 3, 2, one, LIST(1, 0), LIST(1.0f, 0.0f));
    EXPECT(&r, 3, 2, flat, LIST(0, 1), LIST(1 / 3.0f, 0.5f));
    EXPECT(&r, 3, 2, high, LIST(0, 2), LIST(0.5f, 1.0f));
}

static void test_table(void **state)
{
    (void)state;
    static const int32_t table[3][2] = { { 5, 2 }, { 0, 0 }, { 8, -1 } };
    moxie_routing r = named("hash");
    r.table = &table[0][0];
    r.table_rows = 3;
    int32_t ids[2];
    float weights[2];
    mox_route_token(&r, 8, 2, example, 7, 0, ids, weights);
    assert_int_equal(ids[0], 5);
    assert_int_equal(ids[1], 2);
    assert_close(weights[0], 1.7460205 / 3.2044197, 1e-6); /* roots of softplus, test_named_methods */
    assert_close(weights[1], 1.4583992 / 3.2044197, 1e-6);
    mox_route_token(&r, 8, 2, example, 7, 1, ids, weights); /* an expert listed twice contributes twice */
    assert_true(ids[0] == 0 && ids[1] == 0 && weights[0] == 0.5f && weights[1] == 0.5f);
    mox_route_token(&r, 8, 2, example, 7, 2, ids, weights); /* ids outside the experts are kept, with weight 0 */
    assert_true(ids[0] == 8 && ids[1] == -1 && weights[0] == 0 && weights[1] == 0);
    for (int32_t token_id = -1; token_id < 4; token_id += 4) {
        mox_route_token(&r, 8, 2, example, 7, token_id, ids, weights);
        assert_true(ids[0] == -1 && ids[1] == -1 && weights[0] == 0 && weights[1] == 0);
    }
}

/* Reads exactly E logits and writes exactly K results: inaccessible pages follow the arrays. */
static void test_extremes_of_size(void **state)
{
    (void)state;
    for (int64_t experts = 1; experts <= MOXIE_MAX_EXPERTS; experts = experts == 1 ? 31 : experts * 33) {
        const int64_t k = experts < MOXIE_MAX_TOP_K ? experts : MOXIE_MAX_TOP_K;
        float *logits = test_guarded((size_t)experts * sizeof *logits);
        int32_t *ids = test_guarded((size_t)k * sizeof *ids);
        float *weights = test_guarded((size_t)k * sizeof *weights);
        for (int64_t e = 0; e < experts; e++)
            logits[e] = (float)(e * 7 % experts);
        moxie_routing r = named("topk");
        route(&r, experts, k, logits, ids, weights);
        for (int64_t j = 0; j < k; j++)
            assert_true(weights[j] == (float)(experts - 1 - j));
        test_guarded_free(logits, (size_t)experts * sizeof *logits);
        test_guarded_free(ids, (size_t)k * sizeof *ids);
        test_guarded_free(weights, (size_t)k * sizeof *weights);
    }
}

/* splitmix64's published first output for state 0 is e220a8397b1dcdaf; seed 0 starts at mix(0) = 0. */
static void test_simulated_uniform(void **state)
{
    (void)state;
    moxie_routing r = named("sim_uniform");
    int32_t ids[4], again[2];
    float weights[4], w[2];
    mox_route_token(&r, 256, 4, NULL, 0, 0, ids, weights);
    assert_int_equal(ids[0], 0xe2);
    for (int j = 0; j < 4; j++)
        assert_true(weights[j] == 1);
    mox_route_token(&r, 256, 2, NULL, 0, 0, again, w); /* K changes nothing */
    assert_true(again[0] == ids[0] && again[1] == ids[1]);

    /* 80,000 draws over 5 experts: 16,000 each, deviation 113. */
    int64_t count[5] = { 0 };
    r.seed = 12345;
    for (int64_t token = 0; token < 20000; token++) {
        mox_route_token(&r, 5, 4, NULL, token, 0, ids, weights);
        for (int j = 0; j < 4; j++)
            count[ids[j]]++;
    }
    for (int e = 0; e < 5; e++)
        assert_in_range(count[e], 15400, 16600);
}

/* Token 7 under seed 1 with 1000 experts, by the formulas of simulate.c in another language: a benchmark's choices must
 * not change from one version to the next. */
static void test_simulated_choices_are_fixed(void **state)
{
    (void)state;
    static const int32_t uniform[3] = { 162, 306, 643 }, normal[3] = { 129, 380, 524 };
    static const float shares[3] = { 0.33329725f, 0.64216343f, 0.024539316f };
    int32_t ids[3];
    float weights[3];
    moxie_routing r = named("sim_uniform");
    r.seed = 1;
    mox_route_token(&r, 1000, 3, NULL, 7, 0, ids, weights);
    assert_memory_equal(ids, uniform, sizeof ids);
    r.select = MOXIE_SELECT_SIM_NORMAL;
    mox_route_token(&r, 1000, 3, NULL, 7, 0, ids, weights);
    assert_memory_equal(ids, normal, sizeof ids);
    for (int j = 0; j < 3; j++)
        assert_close(weights[j], shares[j], 1e-7);
}

/* P(id < 4 of 16) = P(n < logit(1/4) = -1.0986) = 0.1360; the middle eight 0.7281. */
static void test_simulated_normal(void **state)
{
    (void)state;
    moxie_routing r = named("sim_normal");
    r.seed = 99;
    int64_t low = 0, high = 0;
    for (int64_t token = 0; token < 20000; token++) {
        int32_t ids[4];
        float weights[4], sum = 0;
        mox_route_token(&r, 16, 4, NULL, token, 0, ids, weights);
        for (int j = 0; j < 4; j++) {
            assert_in_range(ids[j], 0, 15);
            low += ids[j] < 4;
            high += ids[j] >= 12;
            sum += weights[j];
        }
        assert_close(sum, 1.0, 1e-6);
    }
    assert_in_range(low, 10880 - 600, 10880 + 600); /* deviation 97 */
    assert_in_range(high, 10880 - 600, 10880 + 600);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_named_methods),
        cmocka_unit_test(test_bf16_weights),
        cmocka_unit_test(test_bf16_logits),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_group_fill),
        cmocka_unit_test(test_ties_go_to_the_lower_index),
        cmocka_unit_test(test_nan_comes_last_with_weight_0),
        cmocka_unit_test(test_nan_in_groups),
        cmocka_unit_test(test_infinite_logits),
        cmocka_unit_test(test_weak_experts_keep_their_weight),
        cmocka_unit_test(test_guards),
        cmocka_unit_test(test_scales_and_bias),
        cmocka_unit_test(test_sparsemixer),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_extremes_of_size),
        cmocka_unit_test(test_simulated_uniform),
        cmocka_unit_test(test_simulated_choices_are_fixed),
        cmocka_unit_test(test_simulated_normal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
