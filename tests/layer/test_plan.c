/* SPDX-License-Identifier: Apache-2.0
 *
 * test_plan.c - plans and their explanations; which arguments a run rejects, and what it returns.
 */
#include "layer/plan/plan.h"
#include "small_layer.h"

/* ---- explanations ---------------------------------------------------------------------------------------- */

static moxie_plan *explain(const moxie_layer_config *config, const moxie_options *options)
{
    moxie_plan *plan = NULL;
    moxie_error error;
    assert_ok(moxie_plan_explain(config, options, &plan, &error), &error);
    return plan;
}

/* The chosen steps as "family role, ...". Every rejected kernel has a reason and comes before its family's choice. */
static void expect_chain(const moxie_plan *plan, const char *want)
{
    char got[1024] = "";
    for (int32_t i = 0; i < moxie_plan_step_count(plan); i++) {
        const moxie_plan_step *s = moxie_plan_step_at(plan, i);
        assert_true(s->family[0] != '\0' && s->kernel[0] != '\0' && s->isa[0] != '\0' && s->exactness[0] != '\0');
        if (!s->chosen) {
            const moxie_plan_step *next = moxie_plan_step_at(plan, i + 1);
            assert_true(s->reason[0] != '\0');
            assert_non_null(next);
            assert_string_equal(next->family, s->family);
            assert_string_equal(next->role, s->role);
            continue;
        }
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s%s%s", got[0] ? ", " : "", s->family,
                 s->role[0] ? " " : "", s->role);
    }
    assert_string_equal(got, want);
    assert_null(moxie_plan_step_at(plan, moxie_plan_step_count(plan)));
    assert_null(moxie_plan_step_at(plan, -1));
}

static void a_plan_is_the_chain_printed(void **state)
{
    (void)state;
    moxie_layer_config c = test_config();
    moxie_plan *plan = explain(&c, NULL);
    expect_chain(plan, "topk, permute, quant_act w13, expert_gemm w13, glu, quant_act w2, expert_gemm w2, combine");
    moxie_plan_destroy(plan);

    c.router_width = 64;
    c.shared.intermediate = 16;
    c.shared.w13 = c.shared.w2 = c.w2;
    c.shared.has_gate = 1;
    static const char whole[] =
        "dense router, topk, permute, quant_act w13, expert_gemm w13, glu, quant_act w2, "
        "expert_gemm w2, quant_act shared w13, expert_gemm shared w13, glu shared, quant_act shared "
        "w2, expert_gemm shared w2, dense shared gate, combine";
    moxie_options options = MOXIE_OPTIONS_INIT;
    plan = explain(&c, &options);
    expect_chain(plan, whole);
    moxie_plan_destroy(plan);

    options.backend = MOXIE_BACKEND_REF;
    plan = explain(&c, &options);
    expect_chain(plan, whole);
    for (int32_t i = 0; i < moxie_plan_step_count(plan); i++)
        assert_string_equal(moxie_plan_step_at(plan, i)->kernel, "ref");
    moxie_plan_destroy(plan);

    /* Another rank than the first leaves the shared expert to it. */
    c.ep_size = 2;
    c.ep_rank = 1;
    plan = explain(&c, NULL);
    expect_chain(plan,
                 "dense router, topk, permute, quant_act w13, expert_gemm w13, glu, quant_act w2, expert_gemm w2, "
                 "combine");
    moxie_plan_destroy(plan);
}

static void every_step_obeys_the_isa_cap(void **state)
{
    (void)state;
    const moxie_layer_config c = test_config();
    moxie_options options = MOXIE_OPTIONS_INIT;
    options.isa = "scalar";
    moxie_plan *plan = explain(&c, &options);
    for (int32_t i = 0; i < moxie_plan_step_count(plan); i++)
        if (moxie_plan_step_at(plan, i)->chosen)
            assert_string_equal(moxie_plan_step_at(plan, i)->isa, "scalar");
    moxie_plan_destroy(plan);
}

static void says_how_it_routes(void **state)
{
    (void)state;
    moxie_layer_config c = test_config();
    moxie_error error;
    assert_int_equal(moxie_routing_by_name("renormalize_naive", &c.routing, &error), MOXIE_OK);
    moxie_plan *plan = explain(&c, NULL);
    bool found = false;
    for (int32_t i = 0; i < moxie_plan_step_count(plan); i++) {
        const moxie_plan_step *s = moxie_plan_step_at(plan, i);
        if (s->chosen && strcmp(s->family, "topk") == 0)
            found = strstr(s->reason, "softmax top-") != NULL && strstr(s->reason, "renormalised") != NULL;
    }
    assert_true(found);
    moxie_plan_destroy(plan);
}

static void says_when_codes_depend_on_the_batch(void **state)
{
    (void)state;
    moxie_layer_config c = test_config();
    c.a2 = (moxie_quant) { .element = MOXIE_F8_E4M3, .scale = MOXIE_F32, .group_rows = -1, .group_cols = -1 };
    moxie_plan *plan = explain(&c, NULL);
    int32_t found = 0;
    for (int32_t i = 0; i < moxie_plan_step_count(plan); i++) {
        const moxie_plan_step *s = moxie_plan_step_at(plan, i);
        if (s->chosen && s->reason[0] != '\0' && strcmp(s->family, "topk") != 0) {
            assert_string_equal(s->family, "quant_act");
            assert_string_equal(s->role, "w2");
            assert_non_null(strstr(s->reason, "all tokens"));
            found++;
        }
    }
    assert_int_equal(found, 1);
    moxie_plan_destroy(plan);
}

static void routing_tables_can_wait(void **state)
{
    (void)state;
    moxie_layer_config c = test_config();
    moxie_layer *layer = NULL;
    moxie_error error;
    c.routing = (moxie_routing) { .select = MOXIE_SELECT_TABLE, .score = MOXIE_SCORE_SIGMOID };
    moxie_plan_destroy(explain(&c, NULL));
    assert_int_equal(moxie_layer_create(&c, NULL, &layer, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "table"));
}

static int64_t cache_lines(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* The workspace depends on the plan alone and does not grow with T past one pass. That holds for fused experts, whose
 * pass has as many tokens as MOX_PASS_BYTES holds, and for experts that run stage by stage. */
static void workspace_is_bounded(void **state)
{
    (void)state;
    static const char *const isas[] = { "scalar", NULL };
    enum { MANY = 4000000 };
    const moxie_layer_config c = test_config();
    for (int i = 0; i < 2; i++) {
        moxie_options options = MOXIE_OPTIONS_INIT;
        options.isa = isas[i];
        options.max_tokens = MANY;
        moxie_plan *many = explain(&c, &options);
        const int64_t pass = many->pass_tokens;
        assert_int_equal(many->max_tokens, MANY);
        assert_true(many->experts[MOX_ROUTED].fused ? pass >= MOX_PASS_TOKENS && pass < MANY : pass == MOX_PASS_TOKENS);
        options.max_tokens = pass;
        moxie_plan *one_pass = explain(&c, &options), *again = explain(&c, &options);
        const uint64_t a = moxie_plan_workspace_bytes(one_pass), b = moxie_plan_workspace_bytes(many);
        assert_int_equal(a, moxie_plan_workspace_bytes(again));
        assert_int_equal(a % 64, 0); /* aligned_alloc() wants it */
        assert_int_equal(b % 64, 0);
        /* Only ids and weights, 4 bytes a choice each, are kept for the whole batch. */
        assert_int_equal(b - a, 2 * (cache_lines(MANY * 2 * 4) - cache_lines(pass * 2 * 4)));
        /* What a pass holds besides operands and results, the permutation, is small. */
        assert_true(a < (uint64_t)MOX_PASS_BYTES * 5 / 4);
        moxie_plan_destroy(one_pass);
        moxie_plan_destroy(again);
        moxie_plan_destroy(many);
    }
}

/* ---- runs ------------------------------------------------------------------------------------------------ */

/* Scratch of a worker for W13, in a plan for so many tokens. */
static uint64_t scratch_for(const moxie_layer_config *c, moxie_mode mode, int64_t max_tokens)
{
    moxie_options options = MOXIE_OPTIONS_INIT;
    options.backend = MOXIE_BACKEND_CPU;
    options.mode = mode;
    options.max_tokens = max_tokens;
    moxie_plan *plan = explain(c, &options);
    const mox_expert_plan *experts = &plan->experts[MOX_ROUTED];
    const uint64_t bytes = experts->fused ? experts->fused_product[MOX_W13].scratch_bytes : 0;
    moxie_plan_destroy(plan);
    return bytes;
}

/* With AVX512-VNNI 4-bit weights need 96 bytes for a row of 32 activations, in fast mode 64, for as many rows as an
 * expert may have: two tokens may choose one expert twice. */
static void scratch_is_for_the_rows_there_may_be(void **state)
{
    (void)state;
    static const int64_t line[] = { [MOXIE_MODE_EXACT] = 96, [MOXIE_MODE_FAST] = 64 };
    const int64_t hidden = 7168, steps = hidden / 32;
    moxie_layer_config c = test_config_of(
        hidden, 64, (moxie_quant) { .element = MOXIE_F4_E2M1, .scale = MOXIE_F8_E8M0, .group_cols = 32 });
    for (moxie_mode mode = MOXIE_MODE_EXACT; mode <= MOXIE_MODE_FAST; mode++) {
        const uint64_t four = scratch_for(&c, mode, 2), eight = scratch_for(&c, mode, 4),
                       all = scratch_for(&c, mode, 64);
        assert_true(four <= eight && eight <= all);
        assert_int_equal(all, scratch_for(&c, mode, 640));
        if (mox_cpu()->allowed != MOX_ISA_AVX512 || !mox_cpu()->avx512_vnni)
            continue;
        assert_in_range(eight - four, 4 * steps * line[mode], 4 * steps * (line[mode] + 4));
        assert_in_range(all - four, 124 * steps * line[mode], 124 * steps * (line[mode] + 4));
    }
}

static void set_up(test_layer *t, uint64_t seed)
{
    const test_layer_limits limits = {
        .tokens = 3, .experts = 4, .largest = 16, .plain_routing = true, .no_parallel = true
    };
    moxie_options options = MOXIE_OPTIONS_INIT;
    options.max_tokens = 3;
    test_layer_begin(t, seed, &limits, &options);
}

static void run_rejected(const test_layer *t, moxie_run_args args, moxie_status status, const char *words)
{
    moxie_error error = { 0 };
    const moxie_status got = moxie_plan_run(t->plan, &args, &error);
    if (got != status || strstr(error.text, words) == NULL)
        fail_msg("got %s: \"%s\", want %s with \"%s\"", moxie_status_name(got), error.text, moxie_status_name(status),
                 words);
}

#define RUN_REJECTED(status, words, ...)                                                                               \
    do {                                                                                                               \
        moxie_run_args a = t.args;                                                                                     \
        __VA_ARGS__;                                                                                                   \
        run_rejected(&t, a, status, words);                                                                            \
    } while (0)

static void rules_of_a_run(void **state)
{
    (void)state;
    static float logits[3 * 4], weights[3 * 4];
    static int32_t ids[3 * 4];
    test_layer t;
    set_up(&t, 42);
    t.args.ids = ids;
    t.args.weights = weights;
    moxie_error error;
    assert_ok(moxie_plan_run(t.plan, &t.args, &error), &error);
    RUN_REJECTED(MOXIE_ERR_ARGUMENT, "tokens is 4", a.tokens = 4);
    RUN_REJECTED(MOXIE_ERR_ARGUMENT, "tokens is -1", a.tokens = -1);
    RUN_REJECTED(MOXIE_ERR_ARGUMENT, "workspace", a.workspace = NULL);
    RUN_REJECTED(MOXIE_ERR_ARGUMENT, "aligned", a.workspace = (char *)a.workspace + 4);
    RUN_REJECTED(MOXIE_ERR_MEMORY, "the plan needs", a.workspace_bytes--);
    RUN_REJECTED(MOXIE_ERR_ARGUMENT, "hidden is NULL", a.hidden = NULL);
    RUN_REJECTED(MOXIE_ERR_ARGUMENT, "output is NULL", a.output = NULL);
    RUN_REJECTED(MOXIE_ERR_ARGUMENT, "weights is NULL", a.weights = NULL);
    RUN_REJECTED(MOXIE_ERR_ARGUMENT, "output overlaps hidden", a.hidden = a.output);
    RUN_REJECTED(MOXIE_ERR_ARGUMENT, "logits_dtype is i8", a.ids = NULL; a.logits = logits; a.logits_dtype = MOXIE_I8);
    RUN_REJECTED(MOXIE_ERR_ARGUMENT, "INIT", a.struct_size = 0);
    test_layer_free(&t);
}

static void zero_tokens_need_nothing(void **state)
{
    (void)state;
    test_layer t;
    moxie_error error;
    set_up(&t, 43);
    moxie_run_args args = MOXIE_RUN_ARGS_INIT;
    args.workspace = t.args.workspace;
    args.workspace_bytes = t.args.workspace_bytes;
    assert_ok(moxie_plan_run(t.plan, &args, &error), &error);
    assert_ok(moxie_plan_route(t.plan, &args, &error), &error);
    test_layer_free(&t);
}

static void explanations_and_empty_layers_do_not_run(void **state)
{
    (void)state;
    test_layer t;
    moxie_error error;
    moxie_layer *empty;
    moxie_plan *explained, *early;
    set_up(&t, 44);
    assert_ok(moxie_plan_explain(&t.config, NULL, &explained, &error), &error);
    assert_int_equal(moxie_plan_run(explained, &t.args, &error), MOXIE_ERR_ARGUMENT);
    assert_ok(moxie_layer_create(&t.config, NULL, &empty, &error), &error);
    assert_ok(moxie_plan_create(empty, NULL, &early, &error), &error);
    assert_int_equal(moxie_plan_run(early, &t.args, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "moxie_layer_prepare"));
    moxie_plan_destroy(explained);
    moxie_plan_destroy(early);
    moxie_layer_destroy(empty);
    test_layer_free(&t);
}

/* Logits, ids and weights are written where the caller asks for them; passed back in, they give the same output. */
static void outputs_of_routing(void **state)
{
    (void)state;
    const small_spec spec = { .weight = test_weight_quant_named("bf16"),
                              .act = test_act_quant_named("none"),
                              .dtype = MOXIE_BF16,
                              .experts = 8,
                              .top_k = 2,
                              .hidden = 64,
                              .intermediate = 32,
                              .tokens = 5,
                              .router = true,
                              .choice = SMALL_ROUTER };
    test_layer t;
    test_rng rng = { 45 };
    small_layer_make(&t, &rng, &spec);
    test_layer_plan(&t, NULL);
    uint16_t first[5 * 64], second[5 * 64];
    int32_t ids[5 * 2];
    float weights[5 * 2], logits[5 * 8];
    t.args.output = first;
    t.args.ids_out = ids;
    t.args.weights_out = weights;
    t.args.logits_out = logits;
    moxie_error error;
    assert_ok(moxie_plan_run(t.plan, &t.args, &error), &error);
    for (int i = 0; i < 5; i++) {
        assert_true(ids[2 * i] != ids[2 * i + 1]);
        for (int e = 0; e < 8; e++)
            assert_true(logits[8 * i + e] <= logits[8 * i + ids[2 * i]]);
        assert_close(weights[2 * i] + weights[2 * i + 1], 1, 1e-6);
    }
    moxie_run_args again = t.args;
    again.ids_out = NULL;
    again.weights_out = again.logits_out = NULL;
    again.output = second;
    again.logits = logits;
    assert_ok(moxie_plan_run(t.plan, &again, &error), &error);
    assert_memory_equal(first, second, sizeof first);
    /* Logits of 16 bits come back widened. */
    uint16_t narrow[5 * 8];
    float widened[5 * 8];
    for (int i = 0; i < 5 * 8; i++)
        narrow[i] = (uint16_t)moxie_encode(MOXIE_F16, logits[i]);
    again.logits = narrow;
    again.logits_dtype = MOXIE_F16;
    again.logits_out = widened;
    assert_ok(moxie_plan_run(t.plan, &again, &error), &error);
    for (int i = 0; i < 5 * 8; i++)
        assert_true(widened[i] == moxie_decode(MOXIE_F16, narrow[i]));
    again.logits = NULL;
    again.ids = ids;
    again.weights = weights;
    memset(second, 0, sizeof second);
    assert_ok(moxie_plan_run(t.plan, &again, &error), &error);
    assert_memory_equal(first, second, sizeof first);
    test_layer_free(&t);
}

/* ---- for another processor ------------------------------------------------------------------------------ */

static void expect_isa(const moxie_layer_config *config, const char *device, const char *isa)
{
    moxie_options options = MOXIE_OPTIONS_INIT;
    options.device = device;
    moxie_plan *plan = explain(config, &options);
    const moxie_plan_step *product = NULL;
    for (int32_t i = 0; i < moxie_plan_step_count(plan); i++) {
        const moxie_plan_step *s = moxie_plan_step_at(plan, i);
        if (s->chosen && strcmp(s->family, "expert_gemm") == 0 && strcmp(s->role, "w13") == 0)
            product = s;
    }
    assert_non_null(product);
    assert_string_equal(product->isa, isa);
    moxie_plan_destroy(plan);
}

static void another_processor_is_explained(void **state)
{
#if defined(__x86_64__)
    static const char *const classes[] = { "scalar", "avx2", "avx512", "amx" };
#elif defined(__aarch64__)
    static const char *const classes[] = { "scalar", "neon" };
#else
    static const char *const classes[] = { "scalar" };
#endif
    (void)state;
    moxie_layer_config c = test_config();
    c.hidden = 256, c.intermediate = 128;
    c.w13 = c.w2 = (moxie_quant) { .element = MOXIE_BF16 };
    c.a13 = c.a2 = (moxie_quant) { 0 };
    c.dtype = MOXIE_BF16;
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++)
        expect_isa(&c, classes[i], classes[i]);

    /* Only explanations may be for another machine, and only by names of processors. */
    moxie_options options = MOXIE_OPTIONS_INIT;
    moxie_plan *plan;
    moxie_layer *layer;
    moxie_error error;
    options.device = "scalar";
    assert_int_equal(moxie_layer_create(&c, &options, &layer, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "but the back end is not cuda"));
    options.device = "avx1024";
    assert_int_equal(moxie_plan_explain(&c, &options, &plan, &error), MOXIE_ERR_ARGUMENT);
    options.device = "scalar";
    options.backend = MOXIE_BACKEND_REF;
    assert_int_equal(moxie_plan_explain(&c, &options, &plan, &error), MOXIE_ERR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_is_the_chain_printed),
        cmocka_unit_test(every_step_obeys_the_isa_cap),
        cmocka_unit_test(says_how_it_routes),
        cmocka_unit_test(says_when_codes_depend_on_the_batch),
        cmocka_unit_test(routing_tables_can_wait),
        cmocka_unit_test(workspace_is_bounded),
        cmocka_unit_test(scratch_is_for_the_rows_there_may_be),
        cmocka_unit_test(rules_of_a_run),
        cmocka_unit_test(zero_tokens_need_nothing),
        cmocka_unit_test(explanations_and_empty_layers_do_not_run),
        cmocka_unit_test(outputs_of_routing),
        cmocka_unit_test(another_processor_is_explained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
