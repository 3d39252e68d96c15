/* SPDX-License-Identifier: Apache-2.0
 *
 * test_ref_activate.c - the oracle's activations: known values, long double, limits. Also their sensitivity, which
 * gives the bound of an fp32 evaluation: plain fp32 code in this file must be within the bound, and come close to it.
 */
#include "test_problem.h"

#include <float.h>
#include <math.h>

#include "ref/ref.h"
#include "ref/ref_bounds.h"

static double value_of(const moxie_activation *activation, double g, double u)
{
    const mox_ref_act act = mox_ref_act_resolve(activation, -1);
    double sensitivity;
    return mox_ref_activate(&act, g, u, &sensitivity);
}

/* ---- values -------------------------------------------------------------------------------------- */

static void test_known_values(void **state)
{
    (void)state;
    const moxie_activation oai = { MOXIE_ACT_SILU, 1.702f, 1, 7, 7, NULL, NULL, NULL };
    assert_close(value_of(&oai, 8, -9), -41.99971877, 1e-8);
    assert_close(value_of(&oai, 0.5, 0.25), 0.43798555, 5e-9);
    assert_close(value_of(&oai, -8, 3), -3.9065715e-05, 1e-11); /* 1.702f is 1.702 + 5e-9 */
    assert_close(value_of(&oai, 1, -1), 0, 0);
    const moxie_activation silu = { .kind = MOXIE_ACT_SILU };
    assert_close(value_of(&silu, 1, 2), 1.4621171572600098, 1e-15); /* 2 / (1 + 1/e) */
    assert_close(value_of(&silu, 100, 3), 300, 1e-13);
    const moxie_activation limited = { .kind = MOXIE_ACT_SILU, .gate_limit = 10, .up_limit = 10 };
    assert_close(value_of(&limited, 30, -50), -99.9954602131, 1e-9);      /* -100 / (1 + e^-10) */
    assert_close(value_of(&limited, -30, 1), -30 / (1 + exp(30)), 1e-26); /* the gate has no lower limit */
    const moxie_activation erf_kind = { .kind = MOXIE_ACT_GELU_ERF };
    assert_close(value_of(&erf_kind, 1, 3), 3 * 0.8413447460685429, 1e-14); /* the normal distribution at 1 */
    assert_close(value_of(&erf_kind, -2, 1), -2 * 0.022750131948179212, 1e-16);
    const moxie_activation tanh_kind = { .kind = MOXIE_ACT_GELU_TANH };
    assert_close(value_of(&tanh_kind, 1, 1), 0.8411919906082768, 1e-14);
    const moxie_activation step = { .kind = MOXIE_ACT_SWIGLU_STEP, .gate_limit = 7, .up_limit = 7 };
    assert_close(value_of(&step, 20, -8), -49, 1e-12);
    assert_close(value_of(&step, 1, 2), 1.4621171572600098, 1e-15);
    const moxie_activation situ = { .kind = MOXIE_ACT_SITU, .beta = 25 };
    /* 4 tanh(1/2) s(2) 25 tanh(1/5) = 4 * 0.46211716 * 0.88079708 * 25 * 0.19737532 */
    assert_close(value_of(&situ, 2, 5), 8.03379612, 1e-8);
    const moxie_activation plain_situ = { .kind = MOXIE_ACT_SITU };
    assert_close(value_of(&plain_situ, 2, 5), 8.14062884, 1e-8);
    const moxie_activation relu2 = { .kind = MOXIE_ACT_RELU2 };
    assert_close(value_of(&relu2, 3, -2), -18, 0);
    assert_close(value_of(&relu2, -3, -2), 0, 0);
    const moxie_activation relu2_no_mul = { .kind = MOXIE_ACT_RELU2_NO_MUL };
    assert_close(value_of(&relu2_no_mul, 3, 99), 9, 0);
    const moxie_activation relu = { .kind = MOXIE_ACT_RELU_NO_MUL };
    assert_close(value_of(&relu, -3, 99), 0, 0);
    const moxie_activation gated_relu = { .kind = MOXIE_ACT_RELU };
    assert_close(value_of(&gated_relu, 3, -2), -6, 0);
    assert_close(value_of(&gated_relu, -3, -2), 0, 0);
    const moxie_activation identity = { .kind = MOXIE_ACT_IDENTITY_NO_MUL };
    assert_close(value_of(&identity, -3, 99), -3, 0);
}

static void test_per_expert_parameters(void **state)
{
    (void)state;
    static const float alpha[3] = { 2, 0, -1 }, beta[3] = { 0, 1, 2 }, limit[3] = { 3, 0, 5 };
    const moxie_activation a = { MOXIE_ACT_SILU, 9, 9, 9, 9, alpha, beta, limit };
    const mox_ref_act first = mox_ref_act_resolve(&a, 0), second = mox_ref_act_resolve(&a, 1);
    assert_true(first.alpha == 2 && first.beta == 0 && first.gate_limit == 3 && first.up_limit == 3);
    assert_true(second.alpha == 1 && second.beta == 1 && isinf(second.gate_limit) && isinf(second.up_limit));
    const mox_ref_act none = mox_ref_act_resolve(&a, -1); /* the shared expert */
    assert_true(none.alpha == 9 && none.beta == 9 && none.gate_limit == 9);
    const moxie_activation situ = { .kind = MOXIE_ACT_SITU };
    assert_true(mox_ref_act_resolve(&situ, 0).alpha == 4);
}

static void test_nan_and_infinity_pass(void **state)
{
    (void)state;
    for (size_t i = 0; i < TEST_ACT_KINDS; i++) {
        const moxie_activation a = { .kind = test_act_kinds[i], .beta = 1, .gate_limit = 7, .up_limit = 7 };
        assert_true(isnan(value_of(&a, NAN, 1)));
        assert_true(test_act_kinds[i] >= MOXIE_ACT_SILU_NO_MUL || isnan(value_of(&a, 1, NAN)));
    }
    const moxie_activation silu = { .kind = MOXIE_ACT_SILU };
    assert_true(value_of(&silu, INFINITY, 2) == INFINITY);
    const moxie_activation unknown = { .kind = 15 };
    assert_true(isnan(value_of(&unknown, 1, 1)));
}

static void test_rows(void **state)
{
    (void)state;
    const moxie_activation relu2 = { .kind = MOXIE_ACT_RELU2 }, relu = { .kind = MOXIE_ACT_RELU_NO_MUL };
    const mox_ref_act gated = mox_ref_act_resolve(&relu2, 0), ungated = mox_ref_act_resolve(&relu, 0);
    const double h[6] = { 1, 2, -3, 10, 100, 1000 };
    double out[3], sensitivity[3];
    mox_ref_glu_row(&gated, 0, h, 3, out, sensitivity); /* gate 1 2 -3, up 10 100 1000 */
    assert_true(out[0] == 10 && out[1] == 400 && out[2] == 0);
    mox_ref_glu_row(&gated, 1, h, 3, out, sensitivity); /* (1,2) (-3,10) (100,1000) */
    assert_true(out[0] == 2 && out[1] == 0 && out[2] == 1e7);
    mox_ref_glu_row(&ungated, 1, h, 3, out, sensitivity); /* nothing to interleave */
    assert_true(out[0] == 1 && out[1] == 2 && out[2] == 0);
}

/* ---- long double, by formulas in another form ---------------------------------------------------- */

static long double wide_sigmoid(long double x)
{
    return x < 0 ? expl(x) / (1 + expl(x)) : 1 / (1 + expl(-x));
}

static long double wide(const mox_ref_act *p, long double g, long double u)
{
    const long double gl = fminl(g, p->gate_limit), ul = fmaxl(fminl(u, p->up_limit), -(long double)p->up_limit);
    const long double pi = acosl(-1);
    switch (p->kind) {
    case MOXIE_ACT_SILU: return gl * wide_sigmoid(p->alpha * gl) * (ul + p->beta);
    case MOXIE_ACT_GELU_ERF: return 0.5L * g * erfcl(-g / sqrtl(2)) * u;
    case MOXIE_ACT_GELU_TANH: return g * wide_sigmoid(2 * sqrtl(2 / pi) * (g + 0.044715L * g * g * g)) * u;
    case MOXIE_ACT_SWIGLU_STEP: return fminl(g * wide_sigmoid(g), p->gate_limit) * ul;
    case MOXIE_ACT_SITU:
        return p->alpha * tanhl(g / p->alpha) * wide_sigmoid(g) * (p->beta > 0 ? p->beta * tanhl(u / p->beta) : u);
    case MOXIE_ACT_RELU2: return g > 0 ? g * g * u : 0;
    case MOXIE_ACT_RELU: return g > 0 ? g * u : 0;
    case MOXIE_ACT_SILU_NO_MUL: return g * wide_sigmoid(g);
    case MOXIE_ACT_GELU_ERF_NO_MUL: return 0.5L * g * erfcl(-g / sqrtl(2));
    case MOXIE_ACT_GELU_TANH_NO_MUL: return g * wide_sigmoid(2 * sqrtl(2 / pi) * (g + 0.044715L * g * g * g));
    case MOXIE_ACT_RELU2_NO_MUL: return g > 0 ? g * g : 0;
    case MOXIE_ACT_RELU_NO_MUL: return g > 0 ? g : 0;
    default: return g;
    }
}

/* ---- fp32, as in a kernel ------------------------------------------------------------------------ */

static float narrow_sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

static float narrow_gelu_tanh(float g)
{
    return 0.5f * g * (1.0f + tanhf(0.797884561f * (g + 0.044715f * (g * g * g))));
}

static float narrow(const mox_ref_act *p, float g, float u)
{
    const float alpha = (float)p->alpha, beta = (float)p->beta, limit = (float)p->up_limit;
    const float gl = fminf(g, (float)p->gate_limit), ul = fmaxf(fminf(u, limit), -limit);
    switch (p->kind) {
    case MOXIE_ACT_SILU: return gl * narrow_sigmoid(alpha * gl) * (ul + beta);
    case MOXIE_ACT_GELU_ERF: return 0.5f * g * (1.0f + erff(g * 0.707106781f)) * u;
    case MOXIE_ACT_GELU_TANH: return narrow_gelu_tanh(g) * u;
    case MOXIE_ACT_SWIGLU_STEP: return fminf(g * narrow_sigmoid(g), (float)p->gate_limit) * ul;
    case MOXIE_ACT_SITU: return alpha * tanhf(g / alpha) * narrow_sigmoid(g) * (beta > 0 ? beta * tanhf(u / beta) : u);
    case MOXIE_ACT_RELU2: return fmaxf(g, 0) * fmaxf(g, 0) * u;
    case MOXIE_ACT_RELU: return fmaxf(g, 0) * u;
    case MOXIE_ACT_SILU_NO_MUL: return g * narrow_sigmoid(g);
    case MOXIE_ACT_GELU_ERF_NO_MUL: return 0.5f * g * (1.0f + erff(g * 0.707106781f));
    case MOXIE_ACT_GELU_TANH_NO_MUL: return narrow_gelu_tanh(g);
    case MOXIE_ACT_RELU2_NO_MUL: return fmaxf(g, 0) * fmaxf(g, 0);
    case MOXIE_ACT_RELU_NO_MUL: return fmaxf(g, 0);
    default: return g;
    }
}

/* SILU in its other common forms: as a quotient, and with a fused last step. */
static float narrow_silu_fused(const mox_ref_act *p, float g, float u)
{
    const float limit = (float)p->up_limit, gl = fminf(g, (float)p->gate_limit);
    const float ul = fmaxf(fminf(u, limit), -limit), s = gl / (1.0f + expf(-(float)p->alpha * gl));
    return fmaf(s, ul, s * (float)p->beta);
}

/* ---- arguments ----------------------------------------------------------------------------------- */

/* Moderate numbers, numbers of any magnitude, and numbers near the limits of exp. */
static float draw(test_rng *rng, int32_t kind)
{
    switch (kind) {
    case 0: return test_normal(rng) * 4;
    case 1: return test_uniform(rng) * ldexpf(1, (int)test_range(rng, -60, 12));
    case 2: return test_uniform(rng) * ldexpf(1, (int)test_range(rng, -140, 20));
    case 3: return (float)test_range(rng, -104, 104) + test_uniform(rng);
    default: return (float)test_range(rng, -3, 3);
    }
}

static moxie_activation draw_activation(test_rng *rng, int32_t kind)
{
    static const float alphas[] = { 0, 1.702f, 0.25f, -1, 4, 1e30f }, betas[] = { 0, 1, -0.5f, 25, 1e-3f };
    static const float limits[] = { 0, 7, 10, 0.5f };
    return (moxie_activation) { .kind = kind,
                                .alpha = alphas[test_below(rng, 6)],
                                .beta = betas[test_below(rng, 5)],
                                .gate_limit = limits[test_below(rng, 4)],
                                .up_limit = limits[test_below(rng, 4)] };
}

/* The oracle's error is at most 2^-26 of the bound for fp32. */
static void test_against_long_double(void **state)
{
    (void)state;
    const uint64_t seed = test_seed(3);
    test_rng rng = { seed };
    for (int64_t i = 0; i < 200000; i++) {
        const moxie_activation a = draw_activation(&rng, test_act_kinds[i % TEST_ACT_KINDS]);
        const mox_ref_act act = mox_ref_act_resolve(&a, -1);
        const float g = draw(&rng, (int32_t)test_below(&rng, 5)), u = draw(&rng, (int32_t)test_below(&rng, 5));
        double sensitivity;
        const double got = mox_ref_activate(&act, g, u, &sensitivity);
        const double error = (double)fabsl(got - wide(&act, g, u));
        if (!(error <= 0x1p-26 * mox_bound_act(sensitivity) + DBL_EPSILON * fabs(got)))
            fail_msg("seed %llu, kind %d (g %.9g, u %.9g): off by %.3g", (unsigned long long)seed, act.kind, (double)g,
                     (double)u, error);
    }
}

/* Every fp32 evaluation is within the bound. For moderate arguments (half of all) the worst error comes close to it. */
static void test_sensitivity(void **state)
{
    (void)state;
    const uint64_t seed = test_seed(5);
    const int64_t rounds = test_env("MOXIE_TEST_ACTIVATIONS", 60000);
    test_rng rng = { seed };
    for (size_t k = 0; k < TEST_ACT_KINDS; k++) {
        double worst = 0;
        for (int64_t i = 0; i < rounds; i++) {
            const moxie_activation a = draw_activation(&rng, test_act_kinds[k]);
            const mox_ref_act act = mox_ref_act_resolve(&a, -1);
            const bool everyday = i % 2;
            const int32_t span = everyday ? 0 : (int32_t)test_below(&rng, 5);
            const float g = draw(&rng, span), u = draw(&rng, everyday ? 0 : (int32_t)test_below(&rng, 5));
            double sensitivity;
            const double want = mox_ref_activate(&act, g, u, &sensitivity);
            const double bound = mox_bound_act(sensitivity) + mox_bound_round(MOXIE_F32, want);
            double error = fabs(narrow(&act, g, u) - want);
            if (act.kind == MOXIE_ACT_SILU)
                error = fmax(error, fabs(narrow_silu_fused(&act, g, u) - want));
            if (!(error <= bound))
                fail_msg("seed %llu, kind %d, alpha %g beta %g limits %g %g (g %.9g, u %.9g): off by %.3g, bound %.3g",
                         (unsigned long long)seed, act.kind, act.alpha, act.beta, act.gate_limit, act.up_limit,
                         (double)g, (double)u, error, bound);
            if (everyday)
                worst = fmax(worst, error / bound);
        }
        print_message("kind %2d: worst error %.3f of its bound\n", (int)test_act_kinds[k], worst);
        assert_true(test_act_kinds[k] == MOXIE_ACT_RELU_NO_MUL || test_act_kinds[k] == MOXIE_ACT_IDENTITY_NO_MUL ||
                    worst > 0.1);
    }
}

/* Wrong formulas exceed the bound: gelu in place of its tanh form, alpha left out, 1 percent of beta missing. */
static void test_bound_catches_wrong_formulas(void **state)
{
    (void)state;
    const mox_ref_act tanh_kind = { MOXIE_ACT_GELU_TANH, 1, 0, INFINITY, INFINITY };
    const mox_ref_act erf_kind = { MOXIE_ACT_GELU_ERF, 1, 0, INFINITY, INFINITY };
    const mox_ref_act oai = { MOXIE_ACT_SILU, 1.702f, 1, 7, 7 }, other = { MOXIE_ACT_SILU, 1.702f, 0.99f, 7, 7 };
    double sensitivity;
    const double right = mox_ref_activate(&tanh_kind, 2, 1, &sensitivity);
    assert_true(fabs(narrow(&erf_kind, 2, 1) - right) > 30 * mox_bound_act(sensitivity));
    const double clamped = mox_ref_activate(&oai, 0.5, 1, &sensitivity);
    assert_true(fabs(narrow(&other, 0.5f, 1) - clamped) > 30 * mox_bound_act(sensitivity));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_values),
        cmocka_unit_test(test_per_expert_parameters),
        cmocka_unit_test(test_nan_and_infinity_pass),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_against_long_double),
        cmocka_unit_test(test_sensitivity),
        cmocka_unit_test(test_bound_catches_wrong_formulas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
