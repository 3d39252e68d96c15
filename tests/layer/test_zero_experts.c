/* SPDX-License-Identifier: Apache-2.0
 *
 * test_zero_experts.c - experts without weights (LongCat-Flash), and tokens that are padding, through whole layers.
 *
 *     y[t] = sum over choices in order:  w f(x)  for ids below E,  w x  for identity experts,  nothing for null experts
 *
 * Expected outputs are sums in fp32 of the rows that moxie_plan_experts gives for experts with weights. Routing is that
 * of the model's own router: softmax over E + Z logits, a bias for the choice, weights times the scale.
 */
#include "test_layer.h"

#include <math.h>

enum { E = 4, Z = 3, K = 3, T = 5 };

/* A layer of E experts with weights, f32, without a shared expert; Z zero experts of a kind. */
static void make_layer(test_layer *t, uint64_t seed, int32_t kind)
{
    const test_layer_limits limits = { .experts = E, .top_k = K, .tokens = T, .largest = 70, .no_parallel = true };
    test_rng rng = { seed };
    do {
        if (t->owners != NULL)
            test_layer_free(t);
        test_layer_make(t, &rng, &limits);
    } while (t->config.dtype != MOXIE_F32 || t->config.shared.intermediate != 0);
    t->config.routing = (moxie_routing) { .score = MOXIE_SCORE_SOFTMAX, .zero_experts = Z, .zero_kind = kind };
    t->config.router_width = 0;
    t->config.router_has_bias = 0;
    t->args.logits = NULL;
    t->args.router_hidden = NULL;
}

/* Ids of every sort in every place, weights of both signs. */
static void give_choices(test_layer *t, const int32_t ids[T * K])
{
    int32_t *copy = test_layer_own(t, sizeof(int32_t[T * K]));
    float *weights = test_layer_own(t, sizeof(float[T * K]));
    for (int i = 0; i < T * K; i++) {
        copy[i] = ids[i];
        weights[i] = 0.375f - 0.21f * (float)i;
    }
    t->args.ids = copy;
    t->args.weights = weights;
}

static const int32_t mixed[T * K] = { 0, 4, 1, 6, 2, 3, 5, 4, 6, -1, 7, 4, 1, 1, 8 };

static void expect_output(const test_layer *t, const float *rows, bool adds_identity)
{
    const int64_t h = t->config.hidden;
    for (int i = 0; i < T; i++)
        for (int64_t n = 0; n < h; n++) {
            float acc = 0;
            for (int j = 0; j < K; j++) {
                const int32_t id = t->args.ids[i * K + j];
                const float weight = t->args.weights[i * K + j];
                if (id >= 0 && id < E)
                    acc = acc + weight * rows[(i * K + j) * h + n];
                else if (adds_identity && id >= E && id < E + Z)
                    acc = acc + weight * ((const float *)t->args.hidden)[i * h + n];
            }
            const float got = ((const float *)t->args.output)[i * h + n];
            if (!(got == acc || (isnan(got) && isnan(acc))))
                fail_msg("token %d column %d: %.9g, want %.9g (%s)", i, (int)n, (double)got, (double)acc, t->text);
        }
}

static float *rows_of(test_layer *t)
{
    moxie_error error;
    float *rows = test_layer_own(t, (size_t)(T * K * t->config.hidden) * sizeof *rows);
    assert_ok(moxie_plan_experts(t->plan, &t->args, rows, &error), &error);
    for (int i = 0; i < T * K; i++)
        for (int64_t n = 0; n < t->config.hidden && (mixed[i] < 0 || mixed[i] >= E); n++)
            assert_true(rows[i * t->config.hidden + n] == 0);
    return rows;
}

static void run_and_expect(test_layer *t, const moxie_options *options, bool adds_identity)
{
    moxie_error error;
    test_layer_plan(t, options);
    const float *rows = rows_of(t);
    assert_ok(moxie_plan_run(t->plan, &t->args, &error), &error);
    expect_output(t, rows, adds_identity);
    memset(t->args.output, 0xee, (size_t)(T * t->config.hidden) * sizeof(float));
    assert_ok(moxie_plan_combine(t->plan, &t->args, rows, &error), &error);
    expect_output(t, rows, adds_identity);
}

static void kinds_and_ranks(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 12; seed++)
        for (int32_t kind = MOXIE_ZERO_IDENTITY; kind <= MOXIE_ZERO_NULL; kind++) {
            test_layer t = { .owners = NULL };
            make_layer(&t, 900 + seed, kind);
            give_choices(&t, mixed);
            run_and_expect(&t, NULL, kind == MOXIE_ZERO_IDENTITY);
            t.config.ep_size = 2;
            for (t.config.ep_rank = 0; t.config.ep_rank < 2; t.config.ep_rank++)
                run_and_expect(&t, NULL, kind == MOXIE_ZERO_IDENTITY && t.config.ep_rank == 0);
            test_layer_free(&t);
        }
}

/* Only combine needs the hidden states: an engine that has lost them is told so. */
static void combine_needs_hidden_states(void **state)
{
    (void)state;
    moxie_error error;
    test_layer t = { .owners = NULL };
    make_layer(&t, 950, MOXIE_ZERO_IDENTITY);
    give_choices(&t, mixed);
    test_layer_plan(&t, NULL);
    const float *rows = rows_of(&t);
    moxie_run_args args = t.args;
    args.hidden = NULL;
    assert_int_equal(moxie_plan_combine(t.plan, &args, rows, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "hidden"));
    test_layer_free(&t);
}

/* ---- routing among E + Z ------------------------------------------------------------------------------- */

/* LongCat-Flash's router, on given logits. */
static void routed_as_longcat(void **state)
{
    (void)state;
    static const float logits[T][E + Z] = { { 0, 1, 2, 3, 4, 5, 6 }, { 6, 5, 4, 3, 2, 1, 0 }, { 0, 0, 0, 0, 1, 0, 0 } };
    static const float bias[E + Z] = { 0, 0.5f, 0, 0, 0, 0, 0.25f };
    int32_t ids[T][K];
    float weights[T][K], logits_out[T][E + Z];
    moxie_error error;
    test_layer t = { .owners = NULL };
    make_layer(&t, 960, MOXIE_ZERO_IDENTITY);
    t.config.routing.bias = bias;
    t.config.routing.scale = 6;
    t.args.logits = logits;
    t.args.logits_dtype = MOXIE_F32;
    t.args.ids = NULL;
    t.args.ids_out = ids[0];
    t.args.weights_out = weights[0];
    t.args.logits_out = logits_out[0];
    test_layer_plan(&t, NULL);
    assert_ok(moxie_plan_run(t.plan, &t.args, &error), &error);
    assert_memory_equal(logits_out, logits, sizeof logits);
    for (int i = 0; i < T; i++) {
        double score[E + Z], sum = 0;
        bool taken[E + Z] = { false };
        for (int e = 0; e < E + Z; e++)
            sum += exp((double)logits[i][e]);
        for (int e = 0; e < E + Z; e++)
            score[e] = exp((double)logits[i][e]) / sum;
        for (int j = 0; j < K; j++) {
            int best = -1;
            for (int e = 0; e < E + Z; e++)
                if (!taken[e] && (best < 0 || score[e] + (double)bias[e] > score[best] + (double)bias[best]))
                    best = e;
            taken[best] = true;
            assert_int_equal(ids[i][j], best);
            assert_close(weights[i][j], 6 * score[best], 1e-5);
        }
    }
    t.args.ids = ids[0]; /* the same with the choices given */
    t.args.weights = weights[0];
    t.args.ids_out = NULL;
    t.args.weights_out = t.args.logits_out = NULL;
    float *whole = test_layer_output(&t, t.plan), *rows = test_layer_own(&t, (size_t)(T * K * t.config.hidden) * 4);
    assert_ok(moxie_plan_experts(t.plan, &t.args, rows, &error), &error);
    expect_output(&t, rows, true);
    free(whole);
    test_layer_free(&t);
}

/* ---- padding ------------------------------------------------------------------------------------------- */

/* Tokens 1 and 4 are padding: their output is 0, their ids -1; the others' bytes do not change. */
static void padding(void **state)
{
    (void)state;
    static const uint8_t marks[T] = { 0, 1, 0, 0, 200 };
    moxie_error error;
    const test_layer_limits limits = {
        .experts = E, .tokens = T, .largest = 70, .plain_routing = true, .plain_acts = true, .features = true
    };
    int checked = 0;
    for (uint64_t seed = 0; seed < 60; seed++) {
        test_layer t;
        test_layer_begin(&t, 5000 + seed, &limits, NULL);
        if (t.args.ids == NULL && t.config.shared.intermediate == 0) {
            const size_t row = test_layer_output_bytes(&t) / T;
            int32_t *ids = test_layer_own(&t, (size_t)(T * t.config.top_k) * sizeof *ids);
            t.args.padding = NULL;
            char *plain = test_layer_output(&t, t.plan);
            t.args.padding = marks;
            t.args.ids_out = ids;
            assert_ok(moxie_plan_run(t.plan, &t.args, &error), &error);
            for (size_t i = 0; i < T; i++) {
                const char *out = (const char *)t.args.output + i * row;
                if (marks[i] == 0)
                    assert_memory_equal(out, plain + i * row, row);
                for (size_t n = 0; n < row && marks[i] != 0; n++)
                    assert_int_equal(out[n], 0);
                for (int64_t j = 0; j < t.config.top_k && marks[i] != 0; j++)
                    assert_int_equal(ids[(int64_t)i * t.config.top_k + j], -1);
            }
            free(plain);
            checked++;
        }
        test_layer_free(&t);
    }
    assert_true(checked > 10);
}

static void marks_that_would_be_ignored(void **state)
{
    (void)state;
    static const uint8_t marks[T] = { 0, 1, 0, 0, 1 };
    moxie_error error;
    test_layer t = { .owners = NULL };
    make_layer(&t, 970, MOXIE_ZERO_NULL);
    give_choices(&t, mixed);
    test_layer_plan(&t, NULL);
    t.args.padding = marks;
    assert_int_equal(moxie_plan_run(t.plan, &t.args, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "padding is set beside ids"));
    t.args.padding = NULL;
    t.args.bias_choice = marks;
    assert_int_equal(moxie_plan_run(t.plan, &t.args, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "bias_choice is set beside ids"));
    t.args.ids = NULL;
    t.args.logits = t.args.hidden;
    assert_int_equal(moxie_plan_run(t.plan, &t.args, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "routing.bias_alt is NULL"));
    test_layer_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_and_ranks),
        cmocka_unit_test(combine_needs_hidden_states),
        cmocka_unit_test(routed_as_longcat),
        cmocka_unit_test(padding),
        cmocka_unit_test(marks_that_would_be_ignored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
