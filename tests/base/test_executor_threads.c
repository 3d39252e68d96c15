/* SPDX-License-Identifier: Apache-2.0
 *
 * test_executor_threads.c - the system fails to start a thread: making an executor fails with a text, a forked child
 * works alone, and nothing hangs. This program's pthread_create() replaces the system's, also for the thread pool's
 * library, and fails on request.
 */
#include "test_executors.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/executor.h"
#include "base/memory.h"

static atomic_int allowed = INT32_MAX; /* threads that may still be started */
static atomic_int calls;

typedef int create_fn(pthread_t *thread, const pthread_attr_t *attributes, void *(*fn)(void *), void *argument);

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*fn)(void *), void *argument)
{
    void *const next = dlsym(RTLD_NEXT, "pthread_create");
    create_fn *real;
    memcpy(&real, &next, sizeof real);
    calls++;
    if (allowed == 0)
        return EAGAIN;
    allowed--;
    return real(thread, attributes, fn, argument);
}

static void count_task(void *context, int64_t task, int32_t worker)
{
    (void)task, (void)worker;
    __atomic_fetch_add((int64_t *)context, 1, __ATOMIC_RELAXED);
}

static int64_t tasks_done(const moxie_executor *executor)
{
    int64_t done = 0;
    mox_parallel(executor, 100, count_task, &done);
    return done;
}

/* An executor of 7 starts six threads besides the caller's, and one more that starts them. Each in turn fails to start.
 */
static void a_failed_executor_says_why(void **state)
{
    (void)state;
    for (int32_t starts = 0; starts < 7; starts++) {
        const int32_t fewer = starts > 1 ? starts : 1;
        moxie_executor *executor = NULL;
        moxie_error error = { 0 };
        char words[64];
        allowed = starts;
        assert_int_equal(moxie_executor_create(7, &executor, &error), MOXIE_ERR_MEMORY);
        allowed = INT32_MAX;
        assert_null(executor);
        assert_non_null(strstr(error.text, "an executor of 7 threads"));
        snprintf(words, sizeof words, "the system starts %d (", (int)starts);
        assert_non_null(strstr(error.text, words));
        snprintf(words, sizeof words, "ask for %d or fewer", (int)fewer);
        assert_non_null(strstr(error.text, words));
        allowed = starts + fewer;
        assert_ok(moxie_executor_create(fewer, &executor, &error), &error);
        allowed = INT32_MAX;
        assert_int_equal(tasks_done(executor), 100);
        moxie_executor_destroy(executor);
    }
}

/* The trial starts its four threads. Then a thread of the pool itself fails to start, first the one that makes the
 * others: there is no pool, and no hang. At last all threads start. */
static void a_thread_that_fails_after_the_trial_is_no_hang(void **state)
{
    (void)state;
    moxie_executor *executor = NULL;
    moxie_error error = { 0 };
    for (int32_t starts = 0; starts < 4; starts++) {
        allowed = 4 + starts;
        assert_int_equal(moxie_executor_create(4, &executor, &error), MOXIE_ERR_MEMORY);
        assert_int_equal(allowed, 0);
        allowed = INT32_MAX;
        assert_null(executor);
        assert_non_null(strstr(error.text, "an executor of 4 threads"));
    }
    allowed = 4 + 4;
    assert_ok(moxie_executor_create(4, &executor, &error), &error);
    assert_int_equal(tasks_done(executor), 100);
    moxie_executor_destroy(executor);
    allowed = INT32_MAX;
}

static void one_worker_starts_no_thread(void **state)
{
    (void)state;
    moxie_executor *executor = NULL;
    moxie_error error;
    calls = allowed = 0;
    assert_ok(moxie_executor_create(1, &executor, &error), &error);
    assert_int_equal(tasks_done(executor), 100);
    assert_int_equal(calls, 0);
    moxie_executor_destroy(executor);
    allowed = INT32_MAX;
}

static void each_allocation_may_fail(void **state)
{
    (void)state;
    for (uint64_t n = 1; n <= 3; n++) {
        moxie_executor *executor = NULL;
        moxie_error error = { 0 };
        mox_alloc_fail_at(n);
        assert_int_equal(moxie_executor_create(3, &executor, &error), MOXIE_ERR_MEMORY);
        mox_alloc_fail_at(0);
        assert_null(executor);
        assert_true(error.text[0] != '\0');
    }
}

/* In the child no thread starts, or only some of the four. */
static void a_child_without_threads_works_alone(void **state)
{
    (void)state;
    test_skip_where_children_start_no_threads();
    moxie_executor *executor = NULL;
    moxie_error error;
    assert_ok(moxie_executor_create(4, &executor, &error), &error);
    for (int starts = 0; starts < 4; starts++) {
        int status;
        const pid_t child = fork();
        if (child == 0) {
            alarm(200);
            allowed = starts;
            const bool right = tasks_done(executor) == 100 && tasks_done(executor) == 100;
            moxie_executor_destroy(executor);
            _exit(right ? 0 : 1);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    assert_int_equal(tasks_done(executor), 100);
    moxie_executor_destroy(executor);
}

/* A user without other processes, limited to three threads. Pools of two, which need three threads at the start, can be
 * made one after the other; a pool of three cannot. The trial's threads must have ended when the pool starts its own.
 */
static int live_at_the_limit(void)
{
    const struct rlimit three = { 3, 3 };
    if (setresuid(61234, 61234, 61234) != 0 || setrlimit(RLIMIT_NPROC, &three) != 0)
        return 77;
    for (int round = 0; round < 40; round++) {
        moxie_executor *executor = NULL;
        moxie_error error = { 0 };
        if (moxie_executor_create(2, &executor, &error) != MOXIE_OK || tasks_done(executor) != 100)
            return 1;
        moxie_executor_destroy(executor);
        if (moxie_executor_create(3, &executor, &error) != MOXIE_ERR_MEMORY)
            return 2;
    }
    return 0;
}

static void a_pool_may_reach_the_limit(void **state)
{
    (void)state;
    int status;
    if (geteuid() != 0 || test_emulated() || test_sanitized()) {
        print_message(
            "skipped: only root can become a user without processes, and a sanitizer starts threads itself\n");
        skip();
    }
    const pid_t child = fork();
    if (child == 0) {
        alarm(300);
        _exit(live_at_the_limit());
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        print_message("skipped: this system does not let root become another user\n");
        skip();
    }
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_executor_says_why),
        cmocka_unit_test(a_thread_that_fails_after_the_trial_is_no_hang),
        cmocka_unit_test(one_worker_starts_no_thread),
        cmocka_unit_test(each_allocation_may_fail),
        cmocka_unit_test(a_child_without_threads_works_alone),
        cmocka_unit_test(a_pool_may_reach_the_limit),
    };
    alarm(600); /* ends the program if it waits for a thread that never starts */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
