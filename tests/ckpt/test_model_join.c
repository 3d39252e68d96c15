/* SPDX-License-Identifier: Apache-2.0
 *
 * test_model_join.c - shared experts in tensors of their own, "shared_experts.0.up_proj" and on, joined into one: the
 * output is the sum of all of them, and every weight of the wide expert is one of theirs.
 */
#include "feature_rules.h"

enum { SHARED = 3 };

#define DEEP "model.layers.2.mlp."

static const char *shared_root(int s)
{
    static char text[SHARED][64];
    snprintf(text[s], sizeof text[s], DEEP "shared_experts.%d", s);
    return text[s];
}

static const char *deep_config(const char *more)
{
    static char text[600];
    snprintf(text, sizeof text,
             "{\"model_type\":\"deepseek_v3\",\"dtype\":\"float32\",\"n_routed_experts\":%d,\"num_experts_per_tok\":%d,"
             "\"hidden_size\":%d,\"moe_intermediate_size\":%d,\"n_group\":1,\"topk_group\":1%s}",
             E, K, H, I, more);
    return text;
}

static void add_routed(hand_checkpoint *c, test_rng *rng, expert *experts)
{
    add(c, rng, DEEP "gate.weight", E, H, -1, 0, 0.3f);
    add(c, rng, DEEP "gate.e_score_correction_bias", E, -1, -1, 0, 0.1f);
    for (int e = 0; e < E; e++) {
        char root[64];
        snprintf(root, sizeof root, DEEP "experts.%d", e);
        add_three(c, rng, root, I, 0.2f);
        experts[e] = three(c, root, I);
    }
}

static void check_sum(const results *r, const float *x, const expert *routed, const expert *shared)
{
    for (int t = 0; t < T; t++) {
        double row[H], y[H] = { 0 };
        for (int k = 0; k < H; k++)
            row[k] = x[t * H + k];
        for (int j = 0; j < K; j++)
            add_expert(&routed[r->ids[t * K + j]], row, r->weights[t * K + j], y);
        for (int s = 0; s < SHARED; s++)
            add_expert(&shared[s], row, 1, y);
        for (int k = 0; k < H; k++)
            near((double)r->output[t * H + k], y[k]);
    }
}

static void the_sum_of_all(void **state)
{
    (void)state;
    test_rng rng = { test_seed(8830) };
    float x[T * H];
    expert experts[E], shared[SHARED];
    hand_checkpoint c;
    moxie_error error = { 0 };
    hand_open(&c);
    add_routed(&c, &rng, experts);
    for (int s = 0; s < SHARED; s++) {
        add_three(&c, &rng, shared_root(s), I, 0.2f);
        shared[s] = three(&c, shared_root(s), I);
    }
    random_states(&rng, x);
    /* the number is said, and left to the tensors */
    static const char *const keys[2] = { ",\"n_shared_experts\":3", "" };
    for (int i = 0; i < 4; i++) {
        results r;
        hand_write(&c, deep_config(keys[i % 2]));
        hand_model m = hand_load(&c, 2, MOXIE_ACTIVATIONS_CHECKPOINT);
        assert_int_equal(m.config->shared.intermediate, SHARED * I);
        run(&m, i < 2 ? MOXIE_BACKEND_CPU : MOXIE_BACKEND_REF, x, NULL, &r);
        check_sum(&r, x, experts, shared);
        hand_unload(&m);
    }
    hand_write(&c, deep_config(",\"n_shared_experts\":2"));
    assert_int_equal(hand_try(&c, 2, &error), MOXIE_ERR_MISMATCH);
    assert_non_null(strstr(error.text, "n_shared_experts is 2"));
    hand_remove(&c, DEEP "shared_experts.1.down_proj.weight");
    hand_write(&c, deep_config(""));
    assert_true(hand_try(&c, 2, &error) != MOXIE_OK);
    assert_non_null(strstr(error.text, "shared_experts.1.down_proj"));
    hand_close(&c);
}

/* ---- quantized ---------------------------------------------------------------------------------------------- */

static const char *matrix_name(int s, int p)
{
    static char text[SHARED][3][96];
    snprintf(text[s][p], sizeof text[s][p], "%sshared_experts.%d.%s", DEEP, s, projections[p]);
    return text[s][p];
}

/* int8 with a scale per row. */
static void add_int8(hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    hand_add2(c, join(name, ".weight"), MOXIE_I8, n, k);
    hand_add2(c, join(name, ".weight_scale"), MOXIE_BF16, n, 1);
    hand_scramble(c, join(name, ".weight"));
    hand_ramp(c, join(name, ".weight_scale"), 0.5f + (float)strlen(name) + (float)name[strlen(DEEP "shared_experts.")],
              0.25f);
}

static double int8_at(const hand_checkpoint *c, const char *name, int64_t n, int64_t k, int64_t cols)
{
    return (int8_t)hand_byte(c, join(name, ".weight"), n * cols + k) * hand_value(c, join(name, ".weight_scale"), n);
}

static void every_weight_is_theirs(void **state)
{
    (void)state;
    test_rng rng = { test_seed(8831) };
    expert experts[E];
    hand_checkpoint c;
    moxie_error error = { 0 };
    hand_open(&c);
    add_routed(&c, &rng, experts);
    for (int s = 0; s < SHARED; s++)
        for (int p = 0; p < 3; p++)
            add_int8(&c, matrix_name(s, p), p < 2 ? I : H, p < 2 ? H : I);
    hand_write(&c, deep_config(""));
    hand_model m = hand_load(&c, 2, MOXIE_ACTIVATIONS_16BIT);
    const moxie_expert *wide = m.weights->shared;
    const moxie_matrix *const matrices[3] = { &wide->gate, &wide->up, &wide->down };
    for (int s = 0; s < SHARED; s++)
        for (int p = 0; p < 3; p++)
            for (int64_t n = 0; n < (p < 2 ? I : H); n++)
                for (int64_t k = 0; k < (p < 2 ? H : I); k++) {
                    const double got = p < 2 ? mox_matrix_weight(matrices[p], &m.config->shared.w13, s * I + n, k)
                                             : mox_matrix_weight(matrices[p], &m.config->shared.w2, n, s * I + k);
                    assert_true(got == int8_at(&c, matrix_name(s, p), n, k, p < 2 ? H : I));
                }
    hand_unload(&m);
    /* int8 activations have a scale per token in each of the experts */
    assert_int_equal(hand_try(&c, 2, &error), MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "3 shared experts in tensors of their own"));
    assert_non_null(strstr(error.text, "activations have a scale each"));
    hand_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(the_sum_of_all), cmocka_unit_test(every_weight_is_theirs) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
