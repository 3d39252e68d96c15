/* SPDX-License-Identifier: Apache-2.0
 *
 * test_run_costs.c - what a run costs besides arithmetic. It allocates nothing. It takes at most three parallel regions
 * when the experts are fused and the batch fits one pass. It leaves the floating point modes and the tile unit of every
 * thread as they were.
 *
 *     region 1       routing, for long batches or large routers
 *     regions 2, 3   the experts: W13 with the operations before it, W2 with those after it (cpu/fused)
 */
#include "base/cpu_features.h"
#include "base/memory.h"
#include "layer/plan/plan.h"
#include "small_layer.h"
#include "test_cpu_state.h"
#include "test_executors.h"

enum { MAX_TOKENS = 512, REGIONS = 3, WORKERS = 2 };

static const int64_t token_counts[] = { 1, 8, 32, 33, 64, 512 };

typedef struct part {
    const char *weight, *act;
    moxie_dtype dtype;
    int64_t experts, hidden, intermediate; /* 64 x 512: a router large enough to run in parallel */
    bool shared, shared_gate, router, on_input;
} part;

static const part parts[] = {
    { "mxfp4", "none", MOXIE_BF16, 6, 96, 80, false, false, false, false },
    { "mxfp4", "none", MOXIE_BF16, 6, 96, 80, true, false, false, false },
    { "mxfp4", "none", MOXIE_BF16, 6, 96, 80, true, true, true, false },
    { "mxfp4", "none", MOXIE_BF16, 64, 512, 32, true, true, true, false },
    { "bf16", "none", MOXIE_BF16, 4, 64, 48, true, true, true, true },
    { "mxfp4", "none", MOXIE_F16, 4, 64, 48, false, false, true, false },
    { "fp8 block 128x128", "fp8 1x128", MOXIE_BF16, 4, 200, 150, true, true, true, false },
    { "fp8 per channel", "fp8 token", MOXIE_BF16, 4, 64, 48, true, false, true, false },
    { "mxfp8", "mxfp8", MOXIE_BF16, 4, 64, 48, true, true, true, true },
    { "nvfp4 multiply", "nvfp4 multiply", MOXIE_BF16, 4, 64, 48, true, true, true, false },
    { "int8 per channel", "int8 token away", MOXIE_BF16, 4, 64, 48, true, true, true, false },
    { "int4 words g32", "none", MOXIE_BF16, 4, 64, 48, false, false, true, false },
};
enum { PARTS = sizeof parts / sizeof parts[0] };

/* Counts of the executor's hook, which runs on the threads of the tasks. */
typedef struct witness {
    int64_t wrong_modes, tiles_left, tasks;
} witness;

static test_cpu_state at_start; /* of this program, before any run */

static void inspect_thread(void *user)
{
    witness *w = user;
    const test_cpu_state now = test_cpu_state_now();
    __atomic_add_fetch(&w->tasks, 1, __ATOMIC_RELAXED);
    if (now.control != at_start.control)
        __atomic_add_fetch(&w->wrong_modes, 1, __ATOMIC_RELAXED);
    if (now.tiles != 0)
        __atomic_add_fetch(&w->tiles_left, 1, __ATOMIC_RELAXED);
}

static moxie_options options_for(const moxie_executor *executor)
{
    moxie_options options = MOXIE_OPTIONS_INIT;
    options.executor = executor;
    options.max_tokens = MAX_TOKENS;
    return options;
}

/* A layer of a part, planned for `executor`; `choice`: how its batch chooses experts. False when that is the router and
 * the part has none. */
static bool set_up(test_layer *t, const part *p, small_choice choice, const moxie_executor *executor)
{
    const small_spec spec = { .weight = test_weight_quant_named(p->weight),
                              .act = test_act_quant_named(p->act),
                              .dtype = p->dtype,
                              .experts = p->experts,
                              .top_k = 3,
                              .hidden = p->hidden,
                              .intermediate = p->intermediate,
                              .tokens = MAX_TOKENS,
                              .bias = true,
                              .shared = p->shared,
                              .shared_gate = p->shared_gate,
                              .router = p->router,
                              .on_input = p->on_input,
                              .choice = choice };
    const moxie_options options = options_for(executor);
    test_rng rng = { 9300 };
    if (choice == SMALL_ROUTER && !p->router)
        return false;
    small_layer_make(t, &rng, &spec);
    test_layer_plan(t, &options);
    return true;
}

static void run(const test_layer *t, int64_t tokens)
{
    moxie_error error;
    moxie_run_args args = t->args;
    args.tokens = tokens;
    assert_ok(moxie_plan_run(t->plan, &args, &error), &error);
}

static void check_costs(const test_layer *t, test_executor *executor, small_choice choice)
{
    static const char *const choices[] = { "ids", "logits", "router" };
    const bool fused = t->plan->experts[MOX_ROUTED].fused &&
                       (!mox_plan_has_shared(t->plan) || t->plan->experts[MOX_SHARED_EXPERT].fused);
    assert_true(t->plan->pass_tokens == MAX_TOKENS || !fused);
    for (size_t i = 0; i < sizeof token_counts / sizeof token_counts[0]; i++) {
        const uint64_t allocations = mox_alloc_count();
        executor->regions = 0;
        run(t, token_counts[i]);
        assert_int_equal(mox_alloc_count(), allocations);
        if (fused && executor->regions > REGIONS)
            fail_msg("%lld tokens by %s take %lld parallel regions: %s", (long long)token_counts[i], choices[choice],
                     (long long)executor->regions, t->text);
        assert_true(executor->regions >= 2);
    }
}

static void no_allocation_and_three_regions(void **state)
{
    (void)state;
    int64_t fused = 0;
    for (int i = 0; i < PARTS; i++)
        for (small_choice choice = SMALL_IDS; choice <= SMALL_ROUTER; choice++) {
            test_executor executor;
            test_layer t;
            test_executor_init(&executor, WORKERS, TEST_IN_TURN);
            if (!set_up(&t, &parts[i], choice, &executor.executor))
                continue;
            check_costs(&t, &executor, choice);
            fused += t.plan->experts[MOX_ROUTED].fused;
            test_layer_free(&t);
        }
    if (fused == 0) {
        print_message("allocations counted; no panel kernel runs on this machine, or under MOXIE_MAX_ISA, so that "
                      "nothing is fused and regions have no limit\n");
        skip();
    }
}

static int choose_first(void *user, int64_t tokens, const float *logits, int32_t *ids, float *weights)
{
    (void)logits;
    for (int64_t i = 0; i < tokens * *(const int64_t *)user; i++) {
        ids[i] = (int32_t)(i % *(const int64_t *)user);
        weights[i] = 0.5f;
    }
    return 0;
}

/* A custom routing callback is called once, between the router and the experts. */
static void custom_routing_costs_no_more(void **state)
{
    (void)state;
    static int64_t top_k = 3;
    const part p = { "mxfp4", "none", MOXIE_BF16, 64, 512, 32, true, true, true, false };
    test_executor executor;
    test_layer t;
    test_executor_init(&executor, WORKERS, TEST_IN_TURN);
    const moxie_options options = options_for(&executor.executor);
    assert_true(set_up(&t, &p, SMALL_ROUTER, &executor.executor));
    t.config.routing = (moxie_routing) { .select = MOXIE_SELECT_CUSTOM, .custom = choose_first, .custom_user = &top_k };
    test_layer_plan(&t, &options);
    check_costs(&t, &executor, SMALL_ROUTER);
    test_layer_free(&t);
}

/* Every task, on whichever thread, ends as it began; so does the call. */
static void leaves_modes_and_tiles_alone(void **state)
{
    (void)state;
    for (int i = 0; i < PARTS; i++) {
        test_executor executor;
        test_layer t;
        witness w = { .tasks = 0 };
        test_executor_init(&executor, 3, i % 2 == 0 ? TEST_THREADS : TEST_IN_TURN);
        executor.after = inspect_thread;
        executor.after_user = &w;
        assert_true(set_up(&t, &parts[i], SMALL_LOGITS, &executor.executor));
        for (size_t n = 0; n < sizeof token_counts / sizeof token_counts[0]; n++) {
            run(&t, token_counts[n]);
            inspect_thread(&w);
        }
        if (w.wrong_modes + w.tiles_left > 0)
            fail_msg("of %lld tasks %lld leave other floating point modes, %lld leave tiles configured: %s",
                     (long long)w.tasks, (long long)w.wrong_modes, (long long)w.tiles_left, t.text);
        test_layer_free(&t);
    }
    if (!test_cpu_knows_tiles() || mox_cpu()->allowed < MOX_ISA_AMX) {
        print_message("floating point modes looked at; this machine has no tile unit, or MOXIE_MAX_ISA forbids it\n");
        skip();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_allocation_and_three_regions),
        cmocka_unit_test(custom_routing_costs_no_more),
        cmocka_unit_test(leaves_modes_and_tiles_alone),
    };
    at_start = test_cpu_state_now();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
