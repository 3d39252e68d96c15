/* SPDX-License-Identifier: Apache-2.0
 *
 * test_layer_owns.c - memory that a layer owns and an executor that it shares: records when the layout changes, copies
 * of its configuration's arrays, one executor for several plans at the same time.
 */
#include "small_layer.h"

#include <pthread.h>

#include "base/memory.h"

/* ---- a change of layout ----------------------------------------------------------------------------------- */

/* Prepares and runs the layer; the output must be `want`. `when` and `n` are for the message. */
static void run_again(test_layer *t, moxie_layer *layer, const void *want, const char *when, unsigned long long n)
{
    moxie_error error;
    moxie_plan *plan;
    const size_t bytes = test_layer_output_bytes(t);
    assert_ok(moxie_layer_prepare(layer, &t->weights, NULL, &error), &error);
    assert_ok(moxie_layer_verify(layer, &error), &error);
    assert_ok(moxie_plan_create(layer, NULL, &plan, &error), &error);
    memset(t->args.output, 0xee, bytes);
    assert_ok(moxie_plan_run(plan, &t->args, &error), &error);
    if (memcmp(t->args.output, want, bytes) != 0)
        fail_msg("%s %llu: the output differs: %s", when, n, t->text);
    moxie_plan_destroy(plan);
}

/* Panels cannot hold columns in act order, so preparation changes the layout and allocates other records. Whichever
 * allocation fails, the layer can be prepared again or destroyed. */
static void a_failed_change_of_layout_can_be_repeated(void **state)
{
    (void)state;
    static const char *const weights[] = { "gptq act order", "gptq 8 bit act order" };
    for (size_t w = 0; w < 2; w++) {
        const small_spec spec = { .weight = test_weight_quant_named(weights[w]),
                                  .act = test_act_quant_named("none"),
                                  .dtype = MOXIE_BF16,
                                  .experts = 4,
                                  .top_k = 2,
                                  .hidden = 96,
                                  .intermediate = 64,
                                  .tokens = 3,
                                  .shared = w == 1 };
        test_rng rng = { test_seed(7650) + w };
        test_layer t;
        moxie_layer *layer;
        moxie_error error;
        small_layer_make(&t, &rng, &spec);
        test_layer_plan(&t, NULL);
        void *want = test_layer_output(&t, t.plan);
        test_layer_discard(&t);
        bool failed = true;
        for (uint64_t n = 1; failed; n++) {
            assert_ok(moxie_layer_create(&t.config, NULL, &layer, &error), &error);
            mox_alloc_fail_at(n);
            const moxie_status status = moxie_layer_prepare(layer, &t.weights, NULL, &error);
            mox_alloc_fail_at(0);
            failed = status != MOXIE_OK;
            assert_true(status == MOXIE_OK || status == MOXIE_ERR_MEMORY);
            run_again(&t, layer, want, "allocation", (unsigned long long)n);
            moxie_layer_destroy(layer);
        }
        free(want);
        test_layer_free(&t);
    }
}

/* ---- arrays of the configuration ------------------------------------------------------------------------- */

enum { ARRAYS = 6 };

/* Fills each array that the configuration points to with 0xff, which is a NaN or a bad index. Counts the arrays seen.
 */
static void poison_arrays(const moxie_layer_config *c, int64_t seen[ARRAYS])
{
    const moxie_routing *r = &c->routing;
    const moxie_activation *a = &c->activation;
    const size_t by_expert = (size_t)c->experts * sizeof(float);
    const struct {
        const void *data;
        size_t bytes;
    } arrays[ARRAYS] = {
        { r->bias, by_expert },         { r->per_expert_scale, by_expert },
        { a->expert_alpha, by_expert }, { a->expert_beta, by_expert },
        { a->expert_limit, by_expert }, { r->table, (size_t)(r->table_rows * c->top_k) * sizeof(int32_t) },
    };
    for (int i = 0; i < ARRAYS; i++) {
        if (arrays[i].data == NULL)
            continue;
        memset((void *)(uintptr_t)arrays[i].data, 0xff, arrays[i].bytes);
        seen[i]++;
    }
}

static void the_layer_owns_its_arrays(void **state)
{
    (void)state;
    const test_layer_limits limits = { .tokens = 9, .largest = 40, .no_parallel = true };
    int64_t seen[ARRAYS] = { 0 };
    for (uint64_t seed = 0; seed < 120; seed++) {
        test_rng rng = { test_seed(7670) + seed };
        test_layer t;
        moxie_layer *layer;
        moxie_error error;
        test_layer_make(&t, &rng, &limits);
        test_layer_plan(&t, NULL);
        void *want = test_layer_output(&t, t.plan);
        test_layer_discard(&t);
        assert_ok(moxie_layer_create(&t.config, NULL, &layer, &error), &error);
        poison_arrays(&t.config, seen);
        run_again(&t, layer, want, "seed", (unsigned long long)seed);
        moxie_layer_destroy(layer);
        free(want);
        test_layer_free(&t);
    }
    for (int i = 0; i < ARRAYS; i++)
        assert_true(seen[i] > 0);
}

/* ---- one executor for several plans ---------------------------------------------------------------------- */

enum { SHARERS = 3, ROUNDS = 15 };

typedef struct sharer {
    test_layer t;
    void *want;
    bool same;
} sharer;

static void *run_repeatedly(void *argument)
{
    sharer *s = argument;
    s->same = true;
    for (int i = 0; i < ROUNDS; i++) {
        memset(s->t.args.output, 0xee, test_layer_output_bytes(&s->t));
        s->same = moxie_plan_run(s->t.plan, &s->t.args, NULL) == MOXIE_OK &&
                  memcmp(s->t.args.output, s->want, test_layer_output_bytes(&s->t)) == 0 && s->same;
    }
    return NULL;
}

/* Several threads run one plan each at the same time, all with the same pool. */
static void plans_share_an_executor(void **state)
{
    (void)state;
    const test_layer_limits limits = { .tokens = 70, .experts = 5, .largest = 60, .no_parallel = true };
    static sharer sharers[SHARERS];
    pthread_t threads[SHARERS];
    moxie_options options = MOXIE_OPTIONS_INIT;
    moxie_executor *pool;
    moxie_error error;
    assert_ok(moxie_executor_create(3, &pool, &error), &error);
    options.executor = pool;
    for (int i = 0; i < SHARERS; i++) {
        sharer *s = &sharers[i];
        test_layer_begin(&s->t, test_seed(8100) + (uint64_t)i, &limits, &options);
        s->want = test_layer_output(&s->t, s->t.plan);
    }
    for (int i = 0; i < SHARERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_repeatedly, &sharers[i]), 0);
    for (int i = 0; i < SHARERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_true(sharers[i].same);
        free(sharers[i].want);
        test_layer_free(&sharers[i].t);
    }
    moxie_executor_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_change_of_layout_can_be_repeated),
        cmocka_unit_test(the_layer_owns_its_arrays),
        cmocka_unit_test(plans_share_an_executor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
