/* SPDX-License-Identifier: Apache-2.0
 *
 * test_route_features.c - what single families add to routing, and infinite logits under a norm:
 *
 *     dropped groups      zero weights (DeepSeek-V2), zero keys alone (Mistral-4)
 *     soft cap            Laguna
 *     choices per group   InternS1
 *     marks of tokens     padding; the second bias of DeepSeek-V4's image tokens
 *
 * Expected values come from the routers of the model code, evaluated here in double or by hand.
 */
#include "test_support.h"

#include <math.h>

#include "cpu/topk/topk.h"
#include "ref/ref.h"
#include "ref/ref_bounds.h"
#include "route/route_rules.h"

enum { MAX = 64 };

typedef struct choice {
    int32_t ids[MAX];
    float weights[MAX];
} choice;

static choice choose(const moxie_routing *routing, int64_t experts, int64_t top_k, const float *logits)
{
    moxie_error error;
    choice c;
    assert_ok(mox_routing_check(routing, experts, top_k, &error), &error);
    mox_route_token(routing, experts + routing->zero_experts, top_k, logits, 0, 0, c.ids, c.weights);
    return c;
}

static void same(const choice *got, int64_t top_k, const int32_t *ids, const double *weights)
{
    for (int64_t j = 0; j < top_k; j++) {
        assert_int_equal(got->ids[j], ids[j]);
        assert_close(got->weights[j], weights[j], 2e-6 * fabs(weights[j]));
    }
}

#define SAME(got, ids, ...)                                                                                            \
    same(&(got), (int64_t)(sizeof(ids) / sizeof(ids)[0]), (ids), (const double[]) { __VA_ARGS__ })

/* ---- dropped groups --------------------------------------------------------------------------------------- */

/* Softmax of (104, 103, 105, 0): 0.2447285, 0.0900306, 0.6652410, e^-105 = 2.5e-46, which fp32 rounds to 0. Group
 * {2, 3} is kept. Its second key is 0, so the tie of 0, 1 and 3 goes to expert 0, of the dropped group. */
static void dropped_groups(void **state)
{
    (void)state;
    static const float logits[4] = { 104, 103, 105, 0 };
    static const int32_t ids[2] = { 2, 0 };
    moxie_routing r = { .score = MOXIE_SCORE_SOFTMAX, .n_group = 2, .topk_group = 1, .group_score = MOXIE_GROUP_MAX };
    r.group_fill_zero = MOXIE_FILL_ZERO;
    choice c = choose(&r, 4, 2, logits);
    SAME(c, ids, 0.6652410, 0);
    r.norm = MOXIE_NORM_SUM_PLUS_EPS;
    c = choose(&r, 4, 2, logits);
    SAME(c, ids, 1, 0);
    r.weight = MOXIE_WEIGHT_SIGMOID_SELECTED; /* of the logit; none of a masked one */
    c = choose(&r, 4, 2, logits);
    SAME(c, ids, 1, 0);
    r.weight = MOXIE_WEIGHT_SCORE;
    r.group_fill_zero = MOXIE_FILL_ZERO_KEY; /* weights come from the scores before the mask */
    c = choose(&r, 4, 2, logits);
    SAME(c, ids, 0.6652410 / 0.9099695, 0.2447285 / 0.9099695);
    r.group_fill_zero = MOXIE_FILL_LOWEST;
    c = choose(&r, 4, 2, logits);
    assert_int_equal(c.ids[1], 3);
}

/* Keys below 0 in the group kept, with a bias: keys -0.5 + s against 0. s(1) = 0.7310586, s(-3) = 0.0474259. */
static void dropped_groups_with_bias(void **state)
{
    (void)state;
    static const float logits[4] = { 1, -3, 0.5f, -1 }, bias[4] = { -0.5f, -0.5f, -0.75f, -0.75f };
    static const int32_t ids[2] = { 0, 2 };
    moxie_routing r = { .score = MOXIE_SCORE_SIGMOID, .bias = bias, .n_group = 2, .topk_group = 1 };
    r.group_score = MOXIE_GROUP_MAX;
    r.group_fill_zero = MOXIE_FILL_ZERO_KEY;
    choice c = choose(&r, 4, 2, logits);
    SAME(c, ids, 0.7310586, 0.6224593);
    r.group_fill_zero = MOXIE_FILL_ZERO;
    c = choose(&r, 4, 2, logits);
    SAME(c, ids, 0.7310586, 0);
}

/* ---- norms ------------------------------------------------------------------------------------------------ */

static void infinite_scores_share(void **state)
{
    (void)state;
    static const float logits[4] = { 0, INFINITY, -INFINITY, INFINITY };
    static const int32_t three[3] = { 1, 3, 0 }, table[1][3] = { { 2, 3, 0 } };
    moxie_routing r;
    moxie_error error;
    assert_ok(mox_routing_by_name("deepseek_v4", &r, &error), &error);
    r.scale = 2.5f;
    for (r.norm = MOXIE_NORM_SUM_PLUS_EPS; r.norm <= MOXIE_NORM_ROOT_SQUARES; r.norm++) {
        r.norm_eps = 0.25f;
        choice c = choose(&r, 4, 3, logits);
        SAME(c, three, 1.25, 1.25, 0);
        double want[3], bounds[3];
        mox_ref_route_weights(&r, 4, 3, (const double[]) { 0, INFINITY, -INFINITY, INFINITY }, three, want);
        mox_ref_route_weight_bounds(&r, 4, 3, (const double[]) { 0, INFINITY, -INFINITY, INFINITY }, three, bounds);
        for (int j = 0; j < 3; j++)
            assert_true(want[j] == (j < 2 ? 1.25 : 0) && bounds[j] < 1e-5);
    }
    assert_ok(mox_routing_by_name("hash", &r, &error), &error);
    r.table = table[0];
    r.table_rows = 1;
    choice c = choose(&r, 4, 3, logits);
    SAME(c, table[0], 0, 1, 0);
}

/* torch.norm(weights, p=2), as DbrxFFN divides by it: raw logits, from squares below the numbers of fp32 to squares
 * above them. Where the squares are numbers, the bound is a few roundings; elsewhere it holds all the same. */
static void root_of_squares(void **state)
{
    (void)state;
    static const double sizes[] = { 1e-30, 1e-22, 1e-19, 1e-10, 1, 1e10, 1e18, 1e25 };
    test_rng rng = { test_seed(8820) };
    const moxie_routing r = { .score = MOXIE_SCORE_LOGIT, .norm = MOXIE_NORM_ROOT_SQUARES, .scale = 0.75f };
    for (int i = 0; i < 400; i++) {
        const double size = sizes[i % 8];
        float logits[6];
        double wide[6], bounds[4], want[4], squares = 0;
        for (int e = 0; e < 6; e++)
            wide[e] = logits[e] = (float)(size * (1.1 + test_uniform(&rng)));
        const choice c = choose(&r, 6, 4, logits);
        mox_ref_route_weights(&r, 6, 4, wide, c.ids, want);
        mox_ref_route_weight_bounds(&r, 6, 4, wide, c.ids, bounds);
        for (int j = 0; j < 4; j++)
            squares += wide[c.ids[j]] * wide[c.ids[j]];
        for (int j = 0; j < 4; j++) {
            const double plain = wide[c.ids[j]] / sqrt(squares) * 0.75;
            assert_close(want[j], plain, 1e-14);
            if (isfinite(bounds[j]))
                assert_close(c.weights[j], plain, bounds[j]);
            if (size >= 1e-10 && size <= 1e18)
                assert_true(bounds[j] < 3e-6);
        }
    }
}

/* sqrt(softplus(-100)) = e^-50 = 1.9e-22: far below 1e-20, which would swallow it. Scores of 0 give weights of 0. */
static void small_sums_of_deepseek_v4(void **state)
{
    (void)state;
    static const float low[3] = { -100, -100, -102 }, lowest[3] = { -INFINITY, -INFINITY, -INFINITY };
    static const int32_t ids[2] = { 0, 1 };
    moxie_routing r;
    moxie_error error;
    assert_ok(mox_routing_by_name("deepseek_v4", &r, &error), &error);
    choice c = choose(&r, 3, 2, low);
    SAME(c, ids, 0.5, 0.5);
    c = choose(&r, 3, 2, lowest);
    SAME(c, ids, 0, 0);
}

/* ---- soft cap --------------------------------------------------------------------------------------------- */

/* Laguna: logits, then tanh(x / cap) cap, sigmoid, + bias for the choice, v / sum. */
static void soft_cap(void **state)
{
    (void)state;
    test_rng rng = { 71 };
    for (int i = 0; i < 200; i++) {
        const float cap = 0.5f + 10 * fabsf(test_uniform(&rng));
        float logits[16], bias[16];
        double score[16], sum = 0;
        for (int e = 0; e < 16; e++) {
            logits[e] = 6 * test_normal(&rng);
            bias[e] = 0.2f * (float)e; /* so that no keys are close */
            score[e] = 1 / (1 + exp(-tanh((double)logits[e] / (double)cap) * (double)cap));
        }
        moxie_routing r = { .score = MOXIE_SCORE_SIGMOID, .norm = MOXIE_NORM_SUM, .bias = bias, .softcap = cap };
        const choice c = choose(&r, 16, 4, logits);
        for (int j = 0; j < 4; j++)
            sum += score[c.ids[j]];
        for (int j = 0; j < 4; j++) {
            assert_close(c.weights[j], score[c.ids[j]] / sum, 1e-5 * score[c.ids[j]] / sum);
            for (int e = 0; e < 16; e++)
                if (e != c.ids[0] && e != c.ids[1] && e != c.ids[2] && e != c.ids[3])
                    assert_true(score[e] + (double)bias[e] <= score[c.ids[j]] + (double)bias[c.ids[j]] + 1e-5);
        }
    }
    /* 30 tanh(inf / 30) = 30; tanh(1/2) = 0.4621172. */
    static const float logits[3] = { -INFINITY, INFINITY, 1 };
    static const int32_t ids[3] = { 1, 2, 0 };
    moxie_routing r = { .softcap = 2 };
    choice c = choose(&r, 3, 3, logits);
    SAME(c, ids, 2, 0.9242343, -2);
    r.weight = MOXIE_WEIGHT_SIGMOID_SELECTED; /* s(2), s(0.9242343), s(-2) */
    c = choose(&r, 3, 3, logits);
    SAME(c, ids, 0.8807971, 0.7159041, 0.1192029);
}

static void tanh_is_exact_enough(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 0x42000000u; bits += 30011) {
        const float z = mox_float_of(bits);
        const double want = tanh((double)z), ulp = ldexp(1, ilogb(want == 0 ? 0x1p-126 : fmax(want, 0x1p-126)) - 23);
        assert_true(fabs((double)mox_tanh(z) - want) <= 2 * ulp);
        assert_true(mox_tanh(-z) == -mox_tanh(z));
    }
    assert_true(mox_tanh(INFINITY) == 1 && mox_tanh(-INFINITY) == -1 && isnan(mox_tanh(NAN)));
}

/* ---- choices in each group -------------------------------------------------------------------------------- */

/* InternS1: softmax over all; K / n of each group of E / n, descending, group after group; v / sum. */
static void choices_per_group(void **state)
{
    (void)state;
    static const float logits[8] = { 1, 2, 2, -1, 5, 0, 4, 3 };
    static const int32_t ids[4] = { 1, 2, 4, 6 };
    const double sum = 2 * exp(2) + exp(5) + exp(4);
    moxie_routing r = { .score = MOXIE_SCORE_SOFTMAX, .norm = MOXIE_NORM_SUM, .n_group = 2, .topk_per_group = 2 };
    const choice c = choose(&r, 8, 4, logits);
    SAME(c, ids, exp(2) / sum, exp(2) / sum, exp(5) / sum, exp(4) / sum);
    const double wide[8] = { 1, 2, 2, -1, 5, 0, 4, 3 };
    char why[256] = "";
    assert_true(mox_ref_route_accepts(&r, 8, 4, wide, 0, ids, 1e-6, why, sizeof why));
    static const int32_t wrong[3][4] = { { 4, 6, 1, 2 }, { 2, 1, 4, 6 }, { 1, 2, 4, 7 } };
    for (int i = 0; i < 3; i++) {
        why[0] = '\0';
        assert_false(mox_ref_route_accepts(&r, 8, 4, wide, 0, wrong[i], 1e-6, why, sizeof why));
        assert_true(why[0] != '\0');
    }
}

/* ---- marks of tokens -------------------------------------------------------------------------------------- */

typedef struct batch {
    int32_t ids[4][2];
    float weights[4][2];
} batch;

static batch run_batch(const moxie_routing *routing, const uint8_t *padding, const uint8_t *bias_choice)
{
    static const float logits[4][4] = { { 1, 2, 3, 4 }, { 4, 3, 2, 1 }, { 0, 0, 1, 0 }, { NAN, 1, 0, INFINITY } };
    static const int32_t token_ids[4] = { 0, 1, 99, 0 };
    batch b;
    float row[4];
    moxie_error error;
    const mox_topk_args args = { .routing = *routing,
                                 .tokens = 4,
                                 .experts = 4,
                                 .top_k = 2,
                                 .logits = logits,
                                 .logits_dtype = MOXIE_F32,
                                 .token_ids = token_ids,
                                 .padding = padding,
                                 .bias_choice = bias_choice,
                                 .ids = b.ids[0],
                                 .weights = b.weights[0],
                                 .row_scratch = row };
    memset(&b, 0x55, sizeof b);
    assert_ok(mox_topk_at(0)->run(&args, &mox_executor_serial, &error), &error);
    return b;
}

static void padding_gets_no_experts(void **state)
{
    (void)state;
    static const uint8_t padding[4] = { 0, 1, 0, 255 };
    const moxie_routing r = { .score = MOXIE_SCORE_SOFTMAX, .norm = MOXIE_NORM_SUM };
    const batch whole = run_batch(&r, NULL, NULL), marked = run_batch(&r, padding, NULL);
    for (int t = 0; t < 4; t += 2) {
        assert_memory_equal(marked.ids[t], whole.ids[t], sizeof whole.ids[t]);
        assert_memory_equal(marked.weights[t], whole.weights[t], sizeof whole.weights[t]);
        for (int j = 0; j < 2; j++)
            assert_true(marked.ids[t + 1][j] == -1 && mox_float_bits(marked.weights[t + 1][j]) == 0);
    }
}

/* Biases of 10 and 20 decide alone; weights stay the logits. */
static void second_bias(void **state)
{
    (void)state;
    static const float bias[4] = { 20, 10, 0, 0 }, alt[4] = { 0, 0, 10, 20 };
    static const uint8_t image[4] = { 0, 1, 1, 0 };
    static const int32_t table[2][2] = { { 3, 1 }, { 1, 1 } };
    moxie_routing r = { .bias = bias, .bias_alt = alt };
    batch b = run_batch(&r, NULL, image);
    assert_true(b.ids[0][0] == 0 && b.ids[0][1] == 1 && b.weights[0][0] == 1 && b.weights[0][1] == 2);
    assert_true(b.ids[1][0] == 3 && b.ids[1][1] == 2 && b.weights[1][0] == 1 && b.weights[1][1] == 2);
    b = run_batch(&r, NULL, NULL);
    assert_true(b.ids[1][0] == 0 && b.ids[1][1] == 1);
    r.bias = NULL; /* text tokens have none */
    b = run_batch(&r, NULL, image);
    assert_true(b.ids[0][0] == 3 && b.ids[0][1] == 2 && b.ids[2][0] == 3 && b.ids[2][1] == 2);
    r = (moxie_routing) { .select = MOXIE_SELECT_TABLE, .table = table[0], .table_rows = 2, .bias_alt = alt };
    b = run_batch(&r, NULL, image); /* token 2's id has no row in the table, and needs none */
    assert_true(b.ids[0][0] == 3 && b.ids[0][1] == 1 && b.ids[1][0] == 3 && b.ids[1][1] == 2);
    assert_true(b.ids[2][0] == 3 && b.ids[2][1] == 2 && b.weights[2][1] == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dropped_groups),
        cmocka_unit_test(dropped_groups_with_bias),
        cmocka_unit_test(infinite_scores_share),
        cmocka_unit_test(root_of_squares),
        cmocka_unit_test(small_sums_of_deepseek_v4),
        cmocka_unit_test(soft_cap),
        cmocka_unit_test(tanh_is_exact_enough),
        cmocka_unit_test(choices_per_group),
        cmocka_unit_test(padding_gets_no_experts),
        cmocka_unit_test(second_bias),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
