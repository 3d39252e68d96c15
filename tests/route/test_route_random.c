/* SPDX-License-Identifier: Apache-2.0
 *
 * test_route_random.c - every routing rule on random logits, compared with the oracle's routing: ids with its order,
 * weights within its bounds. Logits are normal, widely spread, far below zero, drawn from a few values (ties), or have
 * NaN and infinities.
 *
 * MOXIE_TEST_ROUTES sets the number of tokens, MOXIE_TEST_SEED the first one.
 */
#include "test_support.h"

#include <math.h>

#include "ref/ref.h"
#include "ref/ref_bounds.h"
#include "route/route.h"

typedef struct fixture {
    test_rng rng;
    uint64_t seed;
    int64_t experts, top_k;
    moxie_routing routing;
    float logits[MOXIE_MAX_EXPERTS], bias[MOXIE_MAX_EXPERTS], own_scale[MOXIE_MAX_EXPERTS];
    int32_t table[4 * MOXIE_MAX_TOP_K];
    double wide[MOXIE_MAX_EXPERTS];
    int32_t ids[MOXIE_MAX_TOP_K], token_id;
    float weights[MOXIE_MAX_TOP_K];
} fixture;

static int32_t below(fixture *f, int32_t bound)
{
    return (int32_t)test_below(&f->rng, (uint64_t)bound);
}

static void draw_logits(fixture *f)
{
    const int32_t kind = below(f, 8);
    for (int64_t e = 0; e < f->experts; e++) {
        float *x = &f->logits[e];
        switch (kind) {
        case 0: *x = test_normal(&f->rng) * 40; break;
        case 1: *x = test_normal(&f->rng) - 60 - (float)below(f, 80); break;
        case 2: *x = (float)below(f, 3) - 1; break;
        case 3: *x = 1.5f; break;
        case 4: *x = 1.0f + (float)below(f, 5) * 0x1p-23f; break;
        default: *x = test_normal(&f->rng); break;
        }
        if (kind == 5 && below(f, 4) == 0)
            *x = NAN;
        if (kind == 6 && below(f, 4) == 0)
            *x = below(f, 2) ? INFINITY : -INFINITY;
        f->wide[e] = *x;
    }
}

static void draw_arrays(fixture *f)
{
    const float height = below(f, 3) == 0 ? 7.0f : 0.0f; /* biases far above their spread, as in real models */
    for (int64_t e = 0; e < f->experts; e++) {
        f->bias[e] = height + test_normal(&f->rng) * 0.25f;
        f->own_scale[e] = 1 + test_uniform(&f->rng) * 0.5f;
    }
    for (int64_t i = 0; i < 4 * f->top_k; i++)
        f->table[i] = below(f, (int32_t)f->experts + 2) - 1;
}

static void draw_groups(fixture *f)
{
    moxie_routing *r = &f->routing;
    for (int32_t tries = 0; tries < 8; tries++) {
        const int32_t groups = 2 << below(f, 10);
        const int64_t size = f->experts / groups;
        if (groups > f->experts || f->experts % groups)
            continue;
        const int32_t least = (int32_t)((f->top_k + size - 1) / size);
        if (least > groups)
            continue;
        r->n_group = groups;
        if (f->top_k % groups == 0 && f->top_k / groups <= size && below(f, 2)) {
            r->topk_per_group = (int32_t)(f->top_k / groups);
            return;
        }
        r->topk_group = least + below(f, groups - least + 1);
        r->group_score = below(f, 2);
        r->group_fill_zero = below(f, 3);
        return;
    }
}

static void draw_routing(fixture *f)
{
    static const int32_t sizes[] = { 1, 2, 7, 8, 32, 128, 256, 1024 };
    static const int32_t selects[] = { MOXIE_SELECT_TOPK, MOXIE_SELECT_TOPK, MOXIE_SELECT_TOPK, MOXIE_SELECT_TABLE,
                                       MOXIE_SELECT_SPARSEMIXER };
    moxie_routing *r = &f->routing;
    *r = (moxie_routing) { 0 };
    f->experts = sizes[below(f, 8)];
    f->top_k = 1 + below(f, (int32_t)(f->experts < MOXIE_MAX_TOP_K ? f->experts : MOXIE_MAX_TOP_K));
    r->select = f->experts >= 2 ? selects[below(f, 5)] : MOXIE_SELECT_TOPK;
    if (r->select == MOXIE_SELECT_SPARSEMIXER) {
        f->top_k = 2;
        r->jitter = below(f, 2) ? 0.0f : 0.1f;
    } else {
        r->score = below(f, 4);
        r->weight = below(f, 3);
        r->softcap = below(f, 4) == 0 ? 0.25f + 30 * fabsf(test_uniform(&f->rng)) : 0;
    }
    draw_arrays(f);
    if (r->select == MOXIE_SELECT_TOPK && below(f, 2))
        r->bias = f->bias;
    if (r->select == MOXIE_SELECT_TOPK && below(f, 2))
        draw_groups(f);
    if (r->select == MOXIE_SELECT_TABLE) {
        r->table = f->table;
        r->table_rows = 4;
        f->token_id = below(f, 6) - 1;
    }
    r->norm = below(f, MOXIE_NORM_ROOT_SQUARES + 1);
    r->norm_eps = below(f, 3) == 0 ? 0.25f : 0;
    r->scale = below(f, 2) ? 2.5f : 0;
    r->per_expert_scale = below(f, 3) == 0 ? f->own_scale : NULL;
    r->round_logits_bf16 = below(f, 4) == 0;
    r->round_weights_bf16 = below(f, 4) == 0;
}

static void check_ids(fixture *f)
{
    char why[256] = "";
    if (!mox_ref_route_accepts(&f->routing, f->experts, f->top_k, f->wide, f->token_id, f->ids,
                               mox_tolerance_keys(f->experts), why, sizeof why))
        fail_msg("seed %llu: %s", (unsigned long long)f->seed, why);
}

/* Returns true when the oracle could bound at least one weight. */
static bool check_weights(fixture *f)
{
    double want[MOXIE_MAX_TOP_K], bounds[MOXIE_MAX_TOP_K];
    bool told = false;
    mox_ref_route_weights(&f->routing, f->experts, f->top_k, f->wide, f->ids, want);
    mox_ref_route_weight_bounds(&f->routing, f->experts, f->top_k, f->wide, f->ids, bounds);
    for (int64_t j = 0; j < f->top_k; j++) {
        const double got = f->weights[j];
        if (!(bounds[j] < INFINITY) || !isfinite(want[j]))
            continue; /* a sum near 0, or infinite raw scores */
        told = true;
        if (!(fabs(got - want[j]) <= bounds[j]))
            fail_msg("seed %llu: weight %d of expert %d is %.9g, want %.9g within %.3g (score %d weight %d norm %d)",
                     (unsigned long long)f->seed, (int)j, (int)f->ids[j], got, want[j], bounds[j], f->routing.score,
                     f->routing.weight, f->routing.norm);
    }
    return told;
}

static void test_random_tokens(void **state)
{
    (void)state;
    const uint64_t first = test_seed(1);
    const int64_t tokens = test_env("MOXIE_TEST_ROUTES", 12000 / test_one_in(4, "tokens"));
    int64_t told = 0;
    for (int64_t i = 0; i < tokens; i++) {
        fixture f = { .seed = first + (uint64_t)i };
        f.rng.state = f.seed * 0x9e3779b97f4a7c15u;
        moxie_error error;
        draw_routing(&f);
        draw_logits(&f);
        assert_ok(mox_routing_check(&f.routing, f.experts, f.top_k, &error), &error);
        mox_route_token(&f.routing, f.experts, f.top_k, f.logits, i, f.token_id, f.ids, f.weights);
        check_ids(&f);
        told += check_weights(&f);
    }
    assert_true(told > tokens * 8 / 10);
}

/* The oracle rejects a choice that differs in one place. */
static void test_oracle_rejects_wrong_choices(void **state)
{
    (void)state;
    static const double logits[8] = { 0.5, -1, 2, 1, 0, 3, NAN, 1 };
    static const float bias[8] = { 0, 1.5f, 0, 0, 0.25f, -0.5f, 0, 0 };
    static const struct {
        int32_t ids[3], score, grouped;
        bool right;
    } cases[] = {
        { { 5, 2, 3 }, MOXIE_SCORE_LOGIT, 0, true },    { { 5, 2, 7 }, MOXIE_SCORE_LOGIT, 0, false },
        { { 2, 5, 3 }, MOXIE_SCORE_LOGIT, 0, false },   { { 5, 2, 0 }, MOXIE_SCORE_LOGIT, 0, false },
        { { 5, 2, 6 }, MOXIE_SCORE_LOGIT, 0, false },   { { 5, 2, 2 }, MOXIE_SCORE_LOGIT, 0, false },
        { { 5, 2, 8 }, MOXIE_SCORE_LOGIT, 0, false },   { { 5, 2, -1 }, MOXIE_SCORE_LOGIT, 0, false },
        { { 5, 2, 3 }, MOXIE_SCORE_SOFTMAX, 0, true },  { { 5, 2, 7 }, MOXIE_SCORE_SOFTMAX, 0, false },
        { { 1, 2, 3 }, MOXIE_SCORE_SIGMOID, 1, true },  { { 1, 2, 7 }, MOXIE_SCORE_SIGMOID, 1, false },
        { { 1, 2, 0 }, MOXIE_SCORE_SIGMOID, 1, false }, { { 1, 2, 3 }, MOXIE_SCORE_SQRTSOFTPLUS, 1, true },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        moxie_routing r = { .score = cases[i].score };
        if (cases[i].grouped) {
            r.bias = bias;
            r.n_group = 4;
            r.topk_group = 2;
        }
        char why[256] = "";
        const bool right = mox_ref_route_accepts(&r, 8, 3, logits, 0, cases[i].ids, 1e-6, why, sizeof why);
        if (right != cases[i].right || right != (why[0] == '\0'))
            fail_msg("case %d: %s", (int)i, why);
    }
}

/* fp32 cannot order the sigmoids of 1 and 1 + 2^-23 reliably: either order is accepted, a third expert is not. */
static void test_oracle_accepts_near_ties(void **state)
{
    (void)state;
    static const double logits[3] = { 1, 1 + 0x1p-23, 0 };
    moxie_routing r = { .score = MOXIE_SCORE_SIGMOID };
    char why[256];
    for (int32_t id = 0; id < 3; id++) {
        const bool right = mox_ref_route_accepts(&r, 3, 1, logits, 0, &id, mox_tolerance_keys(3), why, sizeof why);
        assert_true(right == (id < 2));
    }
    r.score = MOXIE_SCORE_LOGIT; /* raw logits are exact */
    for (int32_t id = 0; id < 3; id++) {
        const bool right = mox_ref_route_accepts(&r, 3, 1, logits, 0, &id, mox_tolerance_keys(3), why, sizeof why);
        assert_true(right == (id == 1));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_tokens),
        cmocka_unit_test(test_oracle_rejects_wrong_choices),
        cmocka_unit_test(test_oracle_accepts_near_ties),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
