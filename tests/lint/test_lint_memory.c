/* SPDX-License-Identifier: Apache-2.0
 *
 * test_lint_memory.c - each allocation of a run fails once: the call says so, and gives no report. A caller
 * may end a run.
 */
#include "lint_plant.h"

#include "base/memory.h"

static void every_allocation_may_fail(void **state)
{
    (void)state;
    plant p;
    plant_open(&p, "qwen3-30b-a3b", "nvfp4-modelopt", 0, 0);
    moxie_lint_options o = MOXIE_LINT_OPTIONS_INIT;
    o.deep = 1;
    moxie_status status = MOXIE_ERR_MEMORY;
    uint64_t failed = 0;
    /* All of the first allocations, then some of many. */
    for (uint64_t n = 1; status != MOXIE_OK; n += n < 300 ? 1 : 17) {
        moxie_error error = { 0 };
        moxie_lint *lint = NULL;
        mox_alloc_fail_at(n);
        status = moxie_lint_run(p.path, &o, &lint, &error);
        mox_alloc_fail_at(0);
        if (status == MOXIE_OK)
            assert_false(plant_only(lint, ""));
        else
            assert_int_equal(status, MOXIE_ERR_MEMORY);
        assert_true((status == MOXIE_OK) == (lint != NULL));
        moxie_lint_free(lint);
        failed += status != MOXIE_OK;
    }
    assert_true(failed > 100);
    plant_close(&p);
}

static int stop_at_third(void *user, int64_t done, int64_t total)
{
    *(int64_t *)user = total;
    return done == 3;
}

static void the_caller_may_stop_it(void **state)
{
    (void)state;
    plant p;
    plant_open(&p, "qwen3-30b-a3b", "nvfp4-modelopt", 0, 0);
    moxie_lint_options o = MOXIE_LINT_OPTIONS_INIT;
    moxie_error error = { 0 };
    moxie_lint *lint = NULL;
    int64_t total = 0;
    o.deep = 1;
    o.progress = stop_at_third;
    o.progress_user = &total;
    assert_int_equal(moxie_lint_run(p.path, &o, &lint, &error), MOXIE_ERR_TIMEOUT);
    assert_null(lint);
    assert_int_equal(total, 8);
    o.only = "mystery";
    assert_int_equal(moxie_lint_run(p.path, &o, &lint, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "mystery"));
    plant_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(the_caller_may_stop_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
