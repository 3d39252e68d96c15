/* SPDX-License-Identifier: Apache-2.0
 *
 * test_kernels_route.c - every admitted kernel of the families before the experts: dense (the router) and topk,
 *     against the oracle         sums within their bound, choices that it accepts, weights within its bounds
 *     against the scalar kernel  the same bytes, where the kernel says EXACT
 *     against itself             the same bytes for a token alone
 */
#include "check_support.h"

#include "cpu/dense/dense.h"
#include "cpu/topk/topk.h"
#include "ref/ref.h"
#include "ref/ref_bounds.h"

/* ---- dense ------------------------------------------------------------------------------------------------ */

typedef struct dense_problem {
    int64_t tokens, rows, cols;
    moxie_dtype dtype;
    uint8_t *x;
    float *weight, *bias; /* bias NULL: none */
    bool logistic;
    check_buffers buffers;
} dense_problem;

static void make_dense_problem(dense_problem *p, test_rng *rng, int64_t tokens)
{
    static const moxie_dtype dtypes[] = { MOXIE_F32, MOXIE_F16, MOXIE_BF16 };
    *p = (dense_problem) { .tokens = tokens,
                           .rows = check_size(rng, 65),
                           .cols = check_size(rng, 521) * test_range(rng, 1, 3),
                           .dtype = dtypes[test_below(rng, 3)],
                           .logistic = test_below(rng, 2) == 0 };
    p->x = check_buffer(&p->buffers, (size_t)(tokens * p->cols * mox_dtype_bytes(p->dtype)));
    p->weight = check_buffer(&p->buffers, (size_t)(p->rows * p->cols) * sizeof(float));
    test_fill_activations(rng, p->dtype, p->x, tokens * p->cols);
    test_fill_activations(rng, MOXIE_F32, p->weight, p->rows * p->cols);
    if (test_below(rng, 2) == 0) {
        p->bias = check_buffer(&p->buffers, (size_t)p->rows * sizeof(float));
        test_fill_activations(rng, MOXIE_F32, p->bias, p->rows);
    }
}

/* Tokens [first, first + count). */
static const float *run_dense(const mox_dense_kernel *kernel, const dense_problem *p, int64_t first, int64_t count,
                              const moxie_executor *executor, check_buffers *buffers)
{
    const mox_dense_args args = { .tokens = count,
                                  .rows = p->rows,
                                  .cols = p->cols,
                                  .weight = p->weight,
                                  .bias = p->bias,
                                  .x = p->x + first * p->cols * mox_dtype_bytes(p->dtype),
                                  .x_dtype = p->dtype,
                                  .x_scratch = check_buffer(buffers, (size_t)(count * p->cols) * sizeof(float)),
                                  .logistic = p->logistic,
                                  .out = check_buffer(buffers, (size_t)(count * p->rows) * sizeof(float)) };
    kernel->run(&args, executor);
    return args.out;
}

/* The logistic function's slope is at most 1/4; it adds an exponential of 4 ulp, a sum and a quotient. */
static void check_dense_element(const mox_dense_kernel *kernel, const dense_problem *p, int64_t t, int64_t n,
                                double got)
{
    double want = p->bias != NULL ? p->bias[n] : 0.0, magnitude = fabs(want);
    for (int64_t k = 0; k < p->cols; k++) {
        const double x = mox_load(p->dtype, p->x + (t * p->cols + k) * mox_dtype_bytes(p->dtype));
        want += x * p->weight[n * p->cols + k];
        magnitude += fabs(x * p->weight[n * p->cols + k]);
    }
    double bound = mox_bound_dot(p->cols, mox_dot_depth(p->cols, p->cols, p->cols), magnitude);
    if (p->logistic) {
        want = 1.0 / (1.0 + exp(-want));
        bound = bound / 4 + 10 * 0x1p-24 * want + 0x1p-126;
    }
    if (!(fabs(got - want) <= bound))
        fail_msg("%s: token %lld row %lld of %lld x %lld is %.9g, want %.17g, bound %g", kernel->base.name,
                 (long long)t, (long long)n, (long long)p->rows, (long long)p->cols, got, want, bound);
}

static void check_dense(const mox_dense_kernel *kernel, const dense_problem *p, const moxie_executor *pool)
{
    check_buffers buffers = { .count = 0 };
    const float *out = run_dense(kernel, p, 0, p->tokens, pool, &buffers);
    for (int64_t t = 0; t < p->tokens; t++) {
        check_buffers own = { .count = 0 };
        const float *alone = run_dense(kernel, p, t, 1, &mox_executor_serial, &own);
        assert_memory_equal(alone, out + t * p->rows, (size_t)p->rows * sizeof *out);
        for (int64_t n = 0; n < p->rows; n++)
            check_dense_element(kernel, p, t, n, (double)out[t * p->rows + n]);
        check_buffers_free(&own);
    }
    const mox_dense_kernel *last = kernel;
    for (int32_t i = 0; mox_dense_at(i) != NULL; i++)
        last = mox_dense_at(i);
    if (kernel->base.exactness == MOX_EXACT && last->base.isa == MOX_ISA_SCALAR) {
        const float *scalar = run_dense(last, p, 0, p->tokens, &mox_executor_serial, &buffers);
        assert_memory_equal(out, scalar, (size_t)(p->tokens * p->rows) * sizeof *out);
    }
    check_buffers_free(&buffers);
}

static void every_dense_row(void **state)
{
    (void)state;
    const uint64_t seed = test_seed(35);
    print_message("seed %llu\n", (unsigned long long)seed);
    test_rng rng = { seed };
    moxie_executor *pool = check_pool();
    for (int64_t n = 0; n < 36; n++) {
        dense_problem p;
        make_dense_problem(&p, &rng, n % 18);
        for (int32_t i = 0; mox_dense_at(i) != NULL; i++)
            if (check_machine_has(&mox_dense_at(i)->base))
                check_dense(mox_dense_at(i), &p, pool);
        check_buffers_free(&p.buffers);
    }
    mox_executor_destroy(pool);
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
static routed run_topk(const mox_topk_kernel *kernel, const route_problem *p, int64_t first, int64_t count,
                       const moxie_executor *executor, check_buffers *buffers)
{
    const routed out = { check_buffer(buffers, (size_t)(count * p->top_k) * sizeof(int32_t)),
                         check_buffer(buffers, (size_t)(count * p->top_k) * sizeof(float)) };
    moxie_error error;
    const mox_topk_args args = {
        .routing = p->routing,
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
    assert_ok(kernel->run(&args, executor, &error), &error);
    return out;
}

static void check_token(const mox_topk_kernel *kernel, const route_problem *p, int64_t t, const routed *out)
{
    double logits[MOXIE_MAX_EXPERTS], weights[MOXIE_MAX_TOP_K], bounds[MOXIE_MAX_TOP_K];
    char why[256] = "";
    const int32_t *ids = out->ids + t * p->top_k;
    const int64_t bytes = mox_dtype_bytes(p->dtype);
    for (int64_t e = 0; e < p->experts; e++)
        logits[e] = mox_load(p->dtype, p->logits + (t * p->experts + e) * bytes);
    if (!mox_ref_route_accepts(&p->routing, p->experts, p->top_k, logits, p->token_ids[t], ids, 1e-5, why, sizeof why))
        fail_msg("%s, %s, token %lld: %s", kernel->base.name, p->method, (long long)t, why);
    mox_ref_route_weights(&p->routing, p->experts, p->top_k, logits, ids, weights);
    mox_ref_route_weight_bounds(&p->routing, p->experts, p->top_k, logits, ids, bounds);
    for (int64_t j = 0; j < p->top_k; j++) {
        const double got = out->weights[t * p->top_k + j];
        if (!(fabs(got - weights[j]) <= bounds[j]))
            fail_msg("%s, %s, token %lld choice %lld: weight %.9g, want %.17g, bound %g", kernel->base.name, p->method,
                     (long long)t, (long long)j, got, weights[j], bounds[j]);
    }
}

static void same_choices(const routed *a, int64_t at, const routed *b, int64_t count)
{
    assert_memory_equal(a->ids + at, b->ids, (size_t)count * sizeof *a->ids);
    assert_memory_equal(a->weights + at, b->weights, (size_t)count * sizeof *a->weights);
}

static void check_topk(const mox_topk_kernel *kernel, const route_problem *p, const moxie_executor *pool)
{
    check_buffers buffers = { .count = 0 };
    const routed out = run_topk(kernel, p, 0, p->tokens, pool, &buffers);
    const bool simulated = p->routing.select >= MOXIE_SELECT_SIM_UNIFORM;
    for (int64_t t = 0; t < p->tokens && !simulated; t++) {
        check_buffers own = { .count = 0 };
        check_token(kernel, p, t, &out);
        const routed alone = run_topk(kernel, p, t, 1, &mox_executor_serial, &own);
        same_choices(&out, t * p->top_k, &alone, p->top_k);
        check_buffers_free(&own);
    }
    const mox_topk_kernel *last = kernel;
    for (int32_t i = 0; mox_topk_at(i) != NULL; i++)
        last = mox_topk_at(i);
    if (kernel->base.exactness == MOX_EXACT && last->base.isa == MOX_ISA_SCALAR) {
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
            mox_rejection why;
            make_route_problem(&p, &rng, methods[m], tokens);
            for (int32_t i = 0; mox_topk_at(i) != NULL; i++)
                if (check_machine_has(&mox_topk_at(i)->base) &&
                    mox_topk_at(i)->admit(&p.routing, p.experts, p.top_k, &why))
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

/* A callback is called once for all tokens, with widened logits; its failure fails the run. */
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
    const mox_topk_args args = { .routing = routing,
                                 .tokens = 3,
                                 .experts = 8,
                                 .top_k = 1,
                                 .logits = logits,
                                 .logits_dtype = MOXIE_BF16,
                                 .ids = ids,
                                 .weights = weights,
                                 .row_scratch = row_scratch,
                                 .logits_scratch = scratch };
    const mox_topk_kernel *kernel = mox_topk_at(0);
    assert_ok(kernel->run(&args, &mox_executor_serial, &error), &error);
    assert_int_equal(user.calls, 1);
    assert_true(user.first == 1.5f);
    assert_int_equal(ids[2], 7);
    assert_true(weights[2] == 2.0f);
    user.answer = 3;
    assert_int_equal(kernel->run(&args, &mox_executor_serial, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "3"));
}

static void too_many_experts(void **state)
{
    (void)state;
    const moxie_routing routing = { 0 };
    mox_rejection why = { .reason = "", .remedy = "" };
    assert_true(mox_topk_at(0)->admit(&routing, MOXIE_MAX_EXPERTS, MOXIE_MAX_TOP_K, &why));
    assert_false(mox_topk_at(0)->admit(&routing, MOXIE_MAX_EXPERTS + 1, 1, &why));
    assert_non_null(strstr(why.reason, "1025"));
    assert_false(mox_topk_at(0)->admit(&routing, 64, MOXIE_MAX_TOP_K + 1, &why));
    assert_true(strlen(why.remedy) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_dense_row),
        cmocka_unit_test(every_topk_row),
        cmocka_unit_test(custom_routing),
        cmocka_unit_test(too_many_experts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
