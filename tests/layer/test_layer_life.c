/* SPDX-License-Identifier: Apache-2.0
 *
 * test_layer_life.c - the life of a layer: every allocation fails once, experts are replaced in place, preparation
 * reports progress and errors, records are verified and read.
 */
#include "test_layer.h"

#include "base/memory.h"

/* ---- allocation failure ---------------------------------------------------------------------------------- */

typedef struct life {
    moxie_layer *layer;
    moxie_plan *plan, *explained;
} life;

static void end(life *l)
{
    moxie_plan_destroy(l->explained);
    moxie_plan_destroy(l->plan);
    moxie_layer_destroy(l->layer);
    *l = (life) { 0 };
}

/* All calls that allocate. The workspace is the caller's and not part of it. */
static moxie_status live(test_layer *t, life *l, moxie_error *error)
{
    test_report report = { 0 };
    moxie_status status = moxie_plan_explain(&t->config, NULL, &l->explained, error);
    if (status == MOXIE_OK)
        status = moxie_layer_create(&t->config, NULL, &l->layer, error);
    if (status == MOXIE_OK)
        status = moxie_layer_prepare(l->layer, &t->weights, NULL, error);
    if (status == MOXIE_OK)
        status = moxie_layer_update_expert(l->layer, 0, &t->experts[0], error);
    if (status == MOXIE_OK)
        status = moxie_plan_create(l->layer, NULL, &l->plan, error);
    if (status == MOXIE_OK)
        status = moxie_plan_run(l->plan, &t->args, error);
    if (status == MOXIE_OK)
        status = test_plan_check(l->plan, &t->weights, &t->args, &report, error);
    return status;
}

static void every_allocation_fails_once(void **state)
{
    (void)state;
    const test_layer_limits limits = { .tokens = 4, .experts = 5, .largest = 24, .no_parallel = true };
    for (uint64_t seed = 0; seed < 6; seed++) {
        test_rng rng = { test_seed(7600) + seed };
        test_layer layer;
        life l = { 0 };
        moxie_error error;
        test_layer_make(&layer, &rng, &limits);
        assert_ok(moxie_plan_explain(&layer.config, NULL, &l.plan, &error), &error);
        test_layer_workspace(&layer, l.plan);
        end(&l);
        assert_ok(live(&layer, &l, &error), &error);
        end(&l);

        const uint64_t before = mox_alloc_count();
        assert_ok(live(&layer, &l, &error), &error);
        end(&l);
        const uint64_t allocations = mox_alloc_count() - before;
        assert_true(allocations > 10);
        for (uint64_t n = 1; n <= allocations; n++) {
            error.text[0] = '\0';
            mox_alloc_fail_at(n);
            const moxie_status status = live(&layer, &l, &error);
            mox_alloc_fail_at(0);
            end(&l);
            if (status != MOXIE_ERR_MEMORY || error.text[0] == '\0')
                fail_msg("allocation %llu of %llu failed, the status is %s: %s", (unsigned long long)n,
                         (unsigned long long)allocations, moxie_status_name(status), error.text);
        }
        assert_ok(live(&layer, &l, &error), &error);
        end(&l);
        test_layer_free(&layer);
    }
}

/* ---- replacing an expert --------------------------------------------------------------------------------- */

/* Replaces expert 1 by a copy of expert 0 with other static scales. The layer must equal one that was prepared with
 * these experts, and the old plan stays valid. */
static void replaced_is_as_prepared(void **state)
{
    (void)state;
    const test_layer_limits limits = { .tokens = 11, .experts = 4, .largest = 64, .no_parallel = true };
    for (uint64_t seed = 0; seed < 30; seed++) {
        test_layer t;
        moxie_layer *fresh_layer;
        moxie_plan *fresh_plan;
        moxie_error error;
        test_layer_begin(&t, test_seed(7700) + seed, &limits, NULL);
        t.experts[1] = t.experts[0];
        t.experts[1].a13_scale *= 1.5f;
        t.experts[1].a2_scale *= 0.75f;
        assert_ok(moxie_layer_update_expert(t.built, 1, &t.experts[1], &error), &error);
        assert_ok(moxie_layer_verify(t.built, &error), &error);
        test_layer_build(&t, NULL, &fresh_layer, &fresh_plan);
        void *updated = test_layer_output(&t, t.plan), *fresh = test_layer_output(&t, fresh_plan);
        if (memcmp(updated, fresh, test_layer_output_bytes(&t)) != 0)
            fail_msg("an updated layer differs from a fresh one: %s", t.text);
        free(updated);
        free(fresh);
        moxie_plan_destroy(fresh_plan);
        moxie_layer_destroy(fresh_layer);
        test_layer_free(&t);
    }
}

static void failed_replacement_changes_nothing(void **state)
{
    (void)state;
    const test_layer_limits limits = { .tokens = 5, .experts = 3, .largest = 40, .no_parallel = true };
    test_layer t;
    moxie_error error;
    test_layer_begin(&t, 7800, &limits, NULL);
    void *before = test_layer_output(&t, t.plan);

    moxie_expert bad = t.experts[2];
    bad.down.codes.cols++;
    assert_int_equal(moxie_layer_update_expert(t.built, 2, &bad, &error), MOXIE_ERR_MISMATCH);
    assert_non_null(strstr(error.text, "expert 2 down"));
    assert_int_equal(moxie_layer_update_expert(t.built, 3, &t.experts[0], &error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_layer_update_expert(t.built, -1, &t.experts[0], &error), MOXIE_ERR_ARGUMENT);
    mox_alloc_fail_at(1);
    assert_int_equal(moxie_layer_update_expert(t.built, 0, &t.experts[1], &error), MOXIE_ERR_MEMORY);
    mox_alloc_fail_at(0);

    void *after = test_layer_output(&t, t.plan);
    assert_memory_equal(before, after, test_layer_output_bytes(&t));
    free(before);
    free(after);
    test_layer_free(&t);
}

/* ---- preparation ----------------------------------------------------------------------------------------- */

typedef struct counter {
    int64_t calls, done, total, stop_at;
} counter;

static int count_progress(void *user, int64_t done, int64_t total)
{
    counter *c = user;
    assert_true(done > c->done);
    c->calls++;
    c->done = done;
    c->total = total;
    return c->stop_at > 0 && done >= c->stop_at;
}

static void progress_is_reported_and_can_cancel(void **state)
{
    (void)state;
    const test_layer_limits limits = { .tokens = 1, .experts = 7, .largest = 16, .no_parallel = true };
    test_rng rng = { 7900 };
    test_layer t;
    moxie_error error;
    test_layer_make(&t, &rng, &limits);
    counter seen = { 0 };
    moxie_options options = MOXIE_OPTIONS_INIT;
    options.progress = count_progress;
    options.progress_user = &seen;
    assert_ok(moxie_layer_create(&t.config, &options, &t.built, &error), &error);
    assert_ok(moxie_layer_prepare(t.built, &t.weights, &options, &error), &error);
    assert_int_equal(seen.calls, 7);
    assert_int_equal(seen.done, 7);
    assert_int_equal(seen.total, 7);

    seen = (counter) { .stop_at = 3 };
    assert_int_equal(moxie_layer_prepare(t.built, &t.weights, &options, &error), MOXIE_ERR_TIMEOUT);
    assert_int_equal(seen.done, 3);
    assert_int_equal(moxie_layer_verify(t.built, &error), MOXIE_ERR_ARGUMENT);
    test_layer_free(&t);
}

/* The error names the first bad expert, whichever worker finds one first. */
static void the_first_bad_expert_is_named(void **state)
{
    (void)state;
    const test_layer_limits limits = { .tokens = 1, .experts = 9, .largest = 16, .no_parallel = true };
    test_rng rng = { 7901 };
    test_layer t;
    moxie_error error;
    moxie_options options = MOXIE_OPTIONS_INIT;
    moxie_executor *pool;
    test_layer_make(&t, &rng, &limits);
    assert_ok(moxie_executor_create(4, &pool, &error), &error);
    options.executor = pool;
    t.experts[5].up.codes.data = NULL;
    t.experts[6].up.codes.rows++;
    assert_ok(moxie_layer_create(&t.config, &options, &t.built, &error), &error);
    assert_int_equal(moxie_layer_prepare(t.built, &t.weights, &options, &error), MOXIE_ERR_MISMATCH);
    assert_non_null(strstr(error.text, "expert 5"));
    t.weights.n_experts--;
    assert_int_equal(moxie_layer_prepare(t.built, &t.weights, &options, &error), MOXIE_ERR_MISMATCH);
    assert_non_null(strstr(error.text, "8 experts"));
    moxie_executor_destroy(pool);
    test_layer_free(&t);
}

/* ---- records --------------------------------------------------------------------------------------------- */

static void damage_is_found(void **state)
{
    (void)state;
    const test_layer_limits limits = { .tokens = 1, .experts = 6, .largest = 48, .no_parallel = true };
    test_rng rng = { 8000 };
    test_layer t;
    moxie_error error;
    test_layer_make(&t, &rng, &limits);
    test_layer_plan(&t, NULL);
    assert_ok(moxie_layer_verify(t.built, &error), &error);
    for (int64_t e = 0; e < 6; e++) {
        const void *data;
        uint64_t bytes;
        char name[32];
        assert_ok(moxie_layer_record(t.built, e, &data, &bytes, &error), &error);
        assert_int_equal((uintptr_t)data % 64, 0);
        snprintf(name, sizeof name, "expert %lld", (long long)e);
        for (int i = 0; i < 50; i++) {
            uint8_t *byte = (uint8_t *)(uintptr_t)data + test_below(&rng, bytes);
            const uint8_t bit = (uint8_t)(1u << test_below(&rng, 8));
            *byte ^= bit;
            assert_int_equal(moxie_layer_verify(t.built, &error), MOXIE_ERR_MISMATCH);
            assert_non_null(strstr(error.text, name));
            *byte ^= bit;
        }
    }
    assert_ok(moxie_layer_verify(t.built, &error), &error);
    test_layer_free(&t);
}

/* Experts of other ranks have no record; the layer's bytes are those of its own experts. */
static void records_follow_the_map(void **state)
{
    (void)state;
    const test_layer_limits limits = { .tokens = 1, .experts = 7, .largest = 24, .no_parallel = true };
    test_rng rng = { 8001 };
    test_layer t;
    moxie_error error;
    test_layer_make(&t, &rng, &limits);
    t.config.shared = (moxie_shared_config) { 0 };
    t.config.router_width = t.config.router_has_bias = 0;
    t.config.ep_size = 3;
    t.config.ep_rank = 1;
    t.config.ep_map = MOXIE_MAP_ROUND_ROBIN;
    for (int64_t e = 0; e < 7; e++) /* experts of other ranks only have static scales */
        if (e % 3 != 1)
            t.experts[e] = (moxie_expert) { .a13_scale = t.experts[e].a13_scale, .a2_scale = t.experts[e].a2_scale };
    test_report report = { 0 };
    t.args.logits = test_layer_own(&t, 7 * sizeof(float));
    t.args.logits_dtype = MOXIE_F32;
    test_layer_plan(&t, NULL);
    assert_ok(test_plan_check(t.plan, &t.weights, &t.args, &report, &error), &error);
    assert_true(report.worst_ratio <= 1);
    uint64_t total = 0;
    for (int64_t e = 0; e < 7; e++) {
        const void *data;
        uint64_t bytes;
        assert_ok(moxie_layer_record(t.built, e, &data, &bytes, &error), &error);
        assert_int_equal(data != NULL, e % 3 == 1);
        total += bytes;
        if (e % 3 != 1)
            assert_int_equal(moxie_layer_update_expert(t.built, e, &t.experts[e], &error), MOXIE_ERR_ARGUMENT);
    }
    assert_int_equal(moxie_layer_bytes(t.built), total);
    const void *data;
    uint64_t bytes;
    assert_int_equal(moxie_layer_record(t.built, 7, &data, &bytes, &error), MOXIE_ERR_ARGUMENT);
    test_layer_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_fails_once),
        cmocka_unit_test(replaced_is_as_prepared),
        cmocka_unit_test(failed_replacement_changes_nothing),
        cmocka_unit_test(progress_is_reported_and_can_cancel),
        cmocka_unit_test(the_first_bad_expert_is_named),
        cmocka_unit_test(damage_is_found),
        cmocka_unit_test(records_follow_the_map),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
