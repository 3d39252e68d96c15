/* SPDX-License-Identifier: Apache-2.0
 *
 * test_kernels_route_glu.c - every admitted row of the families with transcendental functions: topk and glu,
 *     against the oracle         choices that it accepts, weights and activations within its bounds
 *     against the scalar row     the same bytes, where the row says EXACT
 *     against itself             the same bytes for a token alone
 */
#include "check_support.h"

#include "cpu/glu/glu.h"
#include "cpu/topk/topk.h"
#include "ref/ref.h"

static bool machine_has(const mox_kernel *kernel)
{
    mox_refusal why;
    return mox_kernel_admit(kernel, mox_cpu()->allowed, MOXIE_MODE_THROUGHPUT, &why);
}

/* ---- topk ------------------------------------------------------------------------------------------------- */

typedef struct routed {
    int32_t *ids;
    float *weights;
} routed;

typedef struct route_problem {
    const char *method;
    moxie_routing routing;
    int64_t tokens, experts, top_k;
    moxie_dtype dtype;
    uint8_t *logits;
    int32_t *token_ids;
    float *bias;
    int32_t *table;
    check_buffers buffers;
} route_problem;

static void make_route_problem(route_problem *p, test_rng *rng, const char *method, int64_t tokens)
{
    static const moxie_dtype dtypes[] = { MOXIE_F32, MOXIE_F16, MOXIE_BF16 };
    moxie_error error;
    memset(p, 0, sizeof *p);
    p->method = method;
    assert_ok(mox_routing_by_name(method, &p->routing, &error), &error);
    p->tokens = tokens;
    p->experts = 4 * test_range(rng, 2, 40);
    p->top_k = p->routing.select == MOXIE_SELECT_SPARSEMIXER ? 2 : test_range(rng, 1, 8);
    p->dtype = dtypes[test_below(rng, 3)];
    const int64_t count = tokens * p->experts;
    p->logits = check_buffer(&p->buffers, (size_t)(count * mox_dtype_bytes(p->dtype)));
    test_fill_activations(rng, p->dtype, p->logits, count);
    p->token_ids = check_buffer(&p->buffers, (size_t)tokens * sizeof *p->token_ids);
    p->bias = check_buffer(&p->buffers, (size_t)p->experts * sizeof *p->bias);
    p->table = check_buffer(&p->buffers, (size_t)(10 * p->top_k) * sizeof *p->table);
    for (int64_t t = 0; t < tokens; t++)
        p->token_ids[t] = (int32_t)test_below(rng, 10);
    for (int64_t e = 0; e < p->experts; e++)
        p->bias[e] = 0.1f * test_normal(rng);
    for (int64_t i = 0; i < 10 * p->top_k; i++)
        p->table[i] = (int32_t)((i % p->top_k * 7 + i / p->top_k) % p->experts);
    if (p->routing.select == MOXIE_SELECT_TABLE) {
        p->routing.table = p->table;
        p->routing.table_rows = 10;
    }
    if (strcmp(method, "deepseek_v3") == 0) {
        p->routing.bias = p->bias;
        p->routing.n_group = 4;
        p->routing.topk_group = 2;
        p->routing.scale = 2.5f;
        p->top_k = p->top_k < p->experts / 2 ? p->top_k : p->experts / 2;
    }
    assert_ok(mox_routing_check(&p->routing, p->experts, p->top_k, &error), &error);
}

/* Tokens [first, first + count). */
static routed run_topk(const mox_topk_row *row, const route_problem *p, int64_t first, int64_t count,
                       const moxie_executor *executor, check_buffers *buffers)
{
    const routed out = { check_buffer(buffers, (size_t)(count * p->top_k) * sizeof(int32_t)),
                         check_buffer(buffers, (size_t)(count * p->top_k) * sizeof(float)) };
    moxie_error error;
    const mox_topk_args args = {
        .routing = &p->routing,
        .tokens = count,
        .experts = p->experts,
        .top_k = p->top_k,
        .logits = p->logits + first * p->experts * mox_dtype_bytes(p->dtype),
        .logits_dtype = p->dtype,
        .token_ids = p->token_ids + first,
        .ids = out.ids,
        .weights = out.weights,
        .row_scratch = check_buffer(buffers, (size_t)(executor->workers * p->experts) * sizeof(float)),
        .logits_scratch = check_buffer(buffers, (size_t)(count * p->experts) * sizeof(float)),
    };
    assert_ok(row->run(&args, executor, &error), &error);
    return out;
}

static void check_token(const mox_topk_row *row, const route_problem *p, int64_t t, const routed *out)
{
    double logits[MOXIE_MAX_EXPERTS], weights[MOXIE_MAX_TOP_K], bounds[MOXIE_MAX_TOP_K];
    char why[256] = "";
    const int32_t *ids = out->ids + t * p->top_k;
    const int64_t bytes = mox_dtype_bytes(p->dtype);
    for (int64_t e = 0; e < p->experts; e++)
        logits[e] = mox_load(p->dtype, p->logits + (t * p->experts + e) * bytes);
    if (!mox_ref_route_accepts(&p->routing, p->experts, p->top_k, logits, p->token_ids[t], ids, 1e-5, why, sizeof why))
        fail_msg("%s, %s, token %lld: %s", row->base.name, p->method, (long long)t, why);
    mox_ref_route_weights(&p->routing, p->experts, p->top_k, logits, ids, weights);
    mox_ref_route_weight_bounds(&p->routing, p->experts, p->top_k, logits, ids, bounds);
    for (int64_t j = 0; j < p->top_k; j++) {
        const double got = out->weights[t * p->top_k + j];
        if (!(fabs(got - weights[j]) <= bounds[j]))
            fail_msg("%s, %s, token %lld choice %lld: weight %.9g, want %.17g, bound %g", row->base.name, p->method,
                     (long long)t, (long long)j, got, weights[j], bounds[j]);
    }
}

static void same_choices(const routed *a, int64_t at, const routed *b, int64_t count)
{
    assert_memory_equal(a->ids + at, b->ids, (size_t)count * sizeof *a->ids);
    assert_memory_equal(a->weights + at, b->weights, (size_t)count * sizeof *a->weights);
}

static void check_topk(const mox_topk_row *row, const route_problem *p, const moxie_executor *pool)
{
    check_buffers buffers = { .count = 0 };
    const routed out = run_topk(row, p, 0, p->tokens, pool, &buffers);
    const bool simulated = p->routing.select >= MOXIE_SELECT_SIM_UNIFORM;
    for (int64_t t = 0; t < p->tokens && !simulated; t++) {
        check_buffers own = { .count = 0 };
        check_token(row, p, t, &out);
        const routed alone = run_topk(row, p, t, 1, &mox_executor_serial, &own);
        same_choices(&out, t * p->top_k, &alone, p->top_k);
        check_buffers_free(&own);
    }
    const mox_topk_row *last = row;
    for (int32_t i = 0; mox_topk_at(i) != NULL; i++)
        last = mox_topk_at(i);
    if (row->base.exactness == MOX_EXACT && last->base.isa == MOX_ISA_SCALAR) {
        const routed scalar = run_topk(last, p, 0, p->tokens, &mox_executor_serial, &buffers);
        same_choices(&out, 0, &scalar, p->tokens * p->top_k);
    }
    check_buffers_free(&buffers);
}

static void every_topk_row(void **state)
{
    (void)state;
    static const char *const methods[] = { "default", "renormalize", "renormalize_naive", "deepseek_v3", "llama4",
                                           "topk",    "sigmoid",     "sigmoid_renorm",    "minimax2",    "deepseek_v4",
                                           "hash",    "sparsemixer", "sim_uniform",       "sim_normal" };
    const uint64_t seed = test_seed(33);
    print_message("seed %llu\n", (unsigned long long)seed);
    test_rng rng = { seed };
    moxie_executor *pool = check_pool();
    for (size_t m = 0; m < sizeof methods / sizeof methods[0]; m++)
        for (int64_t tokens = 0; tokens < 24; tokens += 4) {
            route_problem p;
            mox_refusal why;
            make_route_problem(&p, &rng, methods[m], tokens);
            for (int32_t i = 0; mox_topk_at(i) != NULL; i++)
                if (machine_has(&mox_topk_at(i)->base) && mox_topk_at(i)->admit(&p.routing, p.experts, p.top_k, &why))
                    check_topk(mox_topk_at(i), &p, pool);
            check_buffers_free(&p.buffers);
        }
    mox_executor_destroy(pool);
}

typedef struct asked {
    int calls, answer;
    float first;
} asked;

static int choose_last(void *user, int64_t tokens, const float *logits, int32_t *ids, float *weights)
{
    asked *a = user;
    a->calls++;
    a->first = logits[0];
    for (int64_t t = 0; t < tokens; t++) {
        ids[t] = 7;
        weights[t] = (float)t;
    }
    return a->answer;
}

/* Asked once for all tokens, with logits widened; a refusal fails the run. */
static void custom_routing(void **state)
{
    (void)state;
    asked user = { 0, 0, 0.0f };
    const moxie_routing routing = { .select = MOXIE_SELECT_CUSTOM, .custom = choose_last, .custom_user = &user };
    uint16_t logits[3 * 8];
    for (int i = 0; i < 3 * 8; i++)
        logits[i] = 0x3fc0; /* bf16 1.5 */
    float scratch[3 * 8], row_scratch[8], weights[3];
    int32_t ids[3];
    moxie_error error = { 0 };
    const mox_topk_args args = { .routing = &routing,
                                 .tokens = 3,
                                 .experts = 8,
                                 .top_k = 1,
                                 .logits = logits,
                                 .logits_dtype = MOXIE_BF16,
                                 .ids = ids,
                                 .weights = weights,
                                 .row_scratch = row_scratch,
                                 .logits_scratch = scratch };
    const mox_topk_row *row = mox_topk_at(0);
    assert_ok(row->run(&args, &mox_executor_serial, &error), &error);
    assert_int_equal(user.calls, 1);
    assert_true(user.first == 1.5f);
    assert_int_equal(ids[2], 7);
    assert_true(weights[2] == 2.0f);
    user.answer = 3;
    assert_int_equal(row->run(&args, &mox_executor_serial, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "3"));
}

static void too_many_experts(void **state)
{
    (void)state;
    const moxie_routing routing = { 0 };
    mox_refusal why = { .reason = "", .remedy = "" };
    assert_true(mox_topk_at(0)->admit(&routing, MOXIE_MAX_EXPERTS, MOXIE_MAX_TOP_K, &why));
    assert_false(mox_topk_at(0)->admit(&routing, MOXIE_MAX_EXPERTS + 1, 1, &why));
    assert_non_null(strstr(why.reason, "1025"));
    assert_false(mox_topk_at(0)->admit(&routing, 64, MOXIE_MAX_TOP_K + 1, &why));
    assert_true(strlen(why.remedy) > 0);
}

/* ---- glu -------------------------------------------------------------------------------------------------- */

static const int32_t kinds[] = { MOXIE_ACT_SILU,
                                 MOXIE_ACT_GELU_ERF,
                                 MOXIE_ACT_GELU_TANH,
                                 MOXIE_ACT_SWIGLU_STEP,
                                 MOXIE_ACT_SITU,
                                 MOXIE_ACT_RELU2,
                                 MOXIE_ACT_SILU_NO_MUL,
                                 MOXIE_ACT_GELU_ERF_NO_MUL,
                                 MOXIE_ACT_GELU_TANH_NO_MUL,
                                 MOXIE_ACT_RELU2_NO_MUL,
                                 MOXIE_ACT_RELU_NO_MUL,
                                 MOXIE_ACT_IDENTITY_NO_MUL };

enum { GLU_SLOTS = 3, GLU_EXPERTS = 5 };

static float special(test_rng *rng)
{
    static const float values[] = { 0.0f, -0.0f, NAN, 100.0f, -100.0f, 1e30f, -1e30f, 7.0f, -7.0f };
    return values[test_below(rng, sizeof values / sizeof values[0])];
}

/* An activation with the parameters that its kind knows, some of them per expert. */
static moxie_activation random_activation(test_rng *rng, int32_t kind, float arrays[3][GLU_EXPERTS])
{
    moxie_activation a = { .kind = kind };
    const bool per_expert = test_below(rng, 2) == 0;
    for (int e = 0; e < GLU_EXPERTS; e++) {
        arrays[0][e] = 1.0f + 0.5f * test_uniform(rng);
        arrays[1][e] = 1.0f + test_uniform(rng);
        arrays[2][e] = 2.0f + test_uniform(rng);
    }
    if (kind == MOXIE_ACT_SILU || kind == MOXIE_ACT_SITU) {
        a.alpha = test_below(rng, 2) == 0 ? 1.702f : 0.0f;
        a.beta = test_below(rng, 2) == 0 ? 1.0f : 0.0f;
        a.expert_alpha = per_expert ? arrays[0] : NULL;
        a.expert_beta = per_expert ? arrays[1] : NULL;
    }
    if (kind == MOXIE_ACT_SILU || kind == MOXIE_ACT_SWIGLU_STEP) {
        a.gate_limit = test_below(rng, 2) == 0 ? 1.5f : 0.0f;
        a.up_limit = test_below(rng, 2) == 0 ? 1.0f : 0.0f;
        a.expert_limit = per_expert ? arrays[2] : NULL;
    }
    return a;
}

/* The oracle's bound is 8 u S (ref_activate.c). */
static void check_glu_row(const mox_glu_row *row, const mox_glu_args *args, int64_t expert, int64_t p)
{
    const int64_t n = args->intermediate;
    const int gated = args->activation->kind < MOXIE_ACT_SILU_NO_MUL;
    double h[2 * 521], want[521], sensitivity[521];
    for (int64_t i = 0; i < n * (gated ? 2 : 1); i++)
        h[i] = args->h[p * n * (gated ? 2 : 1) + i];
    const mox_ref_act act = mox_ref_act_resolve(args->activation, expert);
    mox_ref_glu_row(&act, args->interleaved, h, n, want, sensitivity);
    for (int64_t i = 0; i < n; i++) {
        const double bound = 8 * 0x1p-24 * sensitivity[i];
        if (!check_within(args->out[p * n + i], want[i], fmax(fabs(want[i]), sensitivity[i]), bound))
            fail_msg("%s, kind %d, row %lld column %lld: %.9g, want %.17g, bound %g", row->base.name,
                     (int)args->activation->kind, (long long)p, (long long)i, (double)args->out[p * n + i], want[i],
                     bound);
    }
}

static void check_glu(const mox_glu_row *row, test_rng *rng, int32_t kind, const moxie_executor *pool)
{
    check_buffers buffers = { .count = 0 };
    float arrays[3][GLU_EXPERTS];
    const moxie_activation activation = random_activation(rng, kind, arrays);
    int64_t offsets[GLU_SLOTS + 1] = { 0 }, expert_of[GLU_SLOTS] = { 4, 0, 2 };
    for (int s = 0; s < GLU_SLOTS; s++)
        offsets[s + 1] = offsets[s] + test_range(rng, 0, 5);
    const int64_t pairs = offsets[GLU_SLOTS], n = check_size(rng, 129);
    const int64_t width = n * (kind < MOXIE_ACT_SILU_NO_MUL ? 2 : 1);
    float *h = check_buffer(&buffers, (size_t)(pairs * width) * sizeof *h);
    for (int64_t i = 0; i < pairs * width; i++)
        h[i] = test_below(rng, 20) == 0 ? special(rng) : 3.0f * test_normal(rng);
    const mox_glu_args args = { .activation = &activation,
                                .slots = GLU_SLOTS,
                                .offsets = offsets,
                                .expert_of = test_below(rng, 4) > 0 ? expert_of : NULL,
                                .h = h,
                                .intermediate = n,
                                .interleaved = test_below(rng, 2) == 0,
                                .out = check_buffer(&buffers, (size_t)(pairs * n) * sizeof(float)) };
    row->run(&args, pool);
    for (int s = 0; s < GLU_SLOTS; s++)
        for (int64_t p = offsets[s]; p < offsets[s + 1]; p++)
            check_glu_row(row, &args, args.expert_of != NULL ? expert_of[s] : -1, p);
    const mox_glu_row *last = row;
    for (int32_t i = 0; mox_glu_at(i) != NULL; i++)
        last = mox_glu_at(i);
    if (row->base.exactness == MOX_EXACT && last->base.isa == MOX_ISA_SCALAR) {
        mox_glu_args scalar = args;
        scalar.out = check_buffer(&buffers, (size_t)(pairs * n) * sizeof(float));
        last->run(&scalar, &mox_executor_serial);
        for (int64_t i = 0; i < pairs * n; i++)
            assert_true(memcmp(&args.out[i], &scalar.out[i], sizeof(float)) == 0 ||
                        (isnan(args.out[i]) && isnan(scalar.out[i])));
    }
    check_buffers_free(&buffers);
}

static void every_glu_row(void **state)
{
    (void)state;
    const uint64_t seed = test_seed(34);
    print_message("seed %llu\n", (unsigned long long)seed);
    test_rng rng = { seed };
    moxie_executor *pool = check_pool();
    for (int32_t i = 0; mox_glu_at(i) != NULL; i++)
        for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
            for (int n = 0; machine_has(&mox_glu_at(i)->base) && n < 20; n++) {
                mox_refusal why;
                const moxie_activation plain = { .kind = kinds[k] };
                if (mox_glu_at(i)->admit(&plain, &why))
                    check_glu(mox_glu_at(i), &rng, kinds[k], pool);
            }
    mox_executor_destroy(pool);
}

/* gpt-oss's swigluoai, alpha 1.702, beta 1, limits 7, at four points computed beforehand. */
static void known_swiglu(void **state)
{
    (void)state;
    const moxie_activation oai = {
        .kind = MOXIE_ACT_SILU, .alpha = 1.702f, .beta = 1.0f, .gate_limit = 7.0f, .up_limit = 7.0f
    };
    const float h[] = { 8.0f, 0.5f, -8.0f, 1.0f, -9.0f, 0.25f, 3.0f, -1.0f };
    const double want[] = { -41.99971877, 0.43798555, -3.9065715e-05, 0.0 };
    const int64_t offsets[] = { 0, 1 };
    float out[4];
    const mox_glu_args args = {
        .activation = &oai, .slots = 1, .offsets = offsets, .h = h, .intermediate = 4, .out = out
    };
    for (int32_t i = 0; mox_glu_at(i) != NULL; i++) {
        if (!machine_has(&mox_glu_at(i)->base))
            continue;
        mox_glu_at(i)->run(&args, &mox_executor_serial);
        for (int n = 0; n < 4; n++)
            assert_close((double)out[n], want[n], 4e-7 * fabs(want[n]));
    }
}

static void unknown_activation(void **state)
{
    (void)state;
    const moxie_activation odd = { .kind = 99 };
    mox_refusal why = { .reason = "", .remedy = "" };
    assert_false(mox_glu_at(0)->admit(&odd, &why));
    assert_non_null(strstr(why.reason, "99"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_topk_row), cmocka_unit_test(custom_routing), cmocka_unit_test(too_many_experts),
        cmocka_unit_test(every_glu_row),  cmocka_unit_test(known_swiglu),   cmocka_unit_test(unknown_activation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
