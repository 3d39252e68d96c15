/* SPDX-License-Identifier: Apache-2.0
 *
 * test_executor.c - parallel-for: every task runs exactly once; worker numbers are in range; a worker runs one task at
 * a time; the caller sees the results; executors work in a child after fork; idle threads sleep if asked to.
 *
 * Also run under ThreadSanitizer. Tasks write plain memory on purpose, so that it reports a missing ordering between
 * tasks and caller.
 */
#include "test_executors.h"

#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cpu_features.h"
#include "base/executor.h"
#include "base/memory.h"

enum { MAX_TASKS = 1000, MAX_WORKERS = 64, IDLE_TRIES = 40 };

typedef struct count {
    int32_t workers;
    int32_t runs[MAX_TASKS];   /* of each task */
    int64_t sums[MAX_WORKERS]; /* each worker's own: plain, because one worker has one task at a time */
    _Atomic int32_t busy[MAX_WORKERS];
    _Atomic int32_t broken; /* violations seen; only the main thread may assert */
} count;

static void count_task(void *context, int64_t task, int32_t worker)
{
    count *c = context;
    if (worker < 0 || worker >= c->workers || task < 0 || task >= MAX_TASKS) {
        atomic_fetch_add(&c->broken, 1);
        return;
    }
    if (atomic_exchange(&c->busy[worker], 1) != 0)
        atomic_fetch_add(&c->broken, 1);
    c->runs[task]++;
    c->sums[worker] += task * task;
    for (volatile int spin = 0; spin < (int)(task % 7) * 20; spin++)
        continue; /* tasks of unequal length */
    atomic_store(&c->busy[worker], 0);
}

/* Runs the loop; true when every promise above was kept. */
static bool loop_is_right(const moxie_executor *executor, int64_t tasks)
{
    static count c;
    int64_t sum = 0, want = 0;
    memset(&c, 0, sizeof c);
    c.workers = executor->workers;
    mox_parallel(executor, tasks, count_task, &c);
    for (int64_t i = 0; i < MAX_TASKS; i++) {
        if (c.runs[i] != (i < tasks))
            return false;
        want += i < tasks ? i * i : 0;
    }
    for (int32_t w = 0; w < MAX_WORKERS; w++)
        sum += c.sums[w];
    return sum == want && c.broken == 0;
}

static const int64_t task_counts[] = { 0, 1, 2, 3, 7, 64, 1000 };

static void test_every_task_once(void **state)
{
    moxie_error error;
    (void)state;
    for (int32_t threads = 1; threads <= 4; threads++) {
        moxie_executor *executor = NULL;
        assert_ok(mox_executor_create(threads, &executor, &error), &error);
        assert_int_equal(executor->workers, threads);
        for (int round = 0; round < 20; round++) {
            for (size_t i = 0; i < sizeof task_counts / sizeof *task_counts; i++)
                assert_true(loop_is_right(executor, task_counts[i]));
        }
        mox_executor_destroy(executor);
    }
}

static void test_serial(void **state)
{
    (void)state;
    assert_int_equal(mox_executor_serial.workers, 1);
    for (size_t i = 0; i < sizeof task_counts / sizeof *task_counts; i++)
        assert_true(loop_is_right(&mox_executor_serial, task_counts[i]));
    assert_true(loop_is_right(&mox_executor_serial, -5)); /* nothing to do */
}

static void remember_order(void *context, int64_t task, int32_t worker)
{
    int64_t *next = context;
    if (*next == task && worker == 0)
        ++*next;
}

static void test_serial_keeps_order(void **state)
{
    int64_t next = 0;
    (void)state;
    mox_parallel(&mox_executor_serial, 100, remember_order, &next);
    assert_int_equal(next, 100);
}

typedef struct meeting {
    _Atomic int32_t arrived;
    bool met[2];
} meeting;

static void wait_for_the_other(void *context, int64_t task, int32_t worker)
{
    meeting *m = context;
    (void)worker;
    atomic_fetch_add(&m->arrived, 1);
    for (int patience = 0; patience < 60000 && atomic_load(&m->arrived) < 2; patience++)
        usleep(1000);
    m->met[task] = atomic_load(&m->arrived) == 2;
}

/* Two tasks that wait for each other end only if two threads run them. */
static void test_really_parallel(void **state)
{
    moxie_executor *executor = NULL;
    moxie_error error;
    meeting m = { 0 };
    (void)state;
    assert_ok(mox_executor_create(2, &executor, &error), &error);
    mox_parallel(executor, 2, wait_for_the_other, &m);
    assert_true(m.met[0] && m.met[1]);
    mox_executor_destroy(executor);
}

static void test_create(void **state)
{
    moxie_executor *executor = NULL;
    moxie_error error;
    (void)state;
    assert_ok(mox_executor_create(0, &executor, &error), &error);
    assert_int_equal(executor->workers, mox_processor_count());
    assert_true(loop_is_right(executor, 1000));
    mox_executor_destroy(executor);
    mox_executor_destroy(NULL);

    executor = NULL;
    assert_int_equal(mox_executor_create(-1, &executor, &error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(mox_executor_create(MOX_MAX_WORKERS + 1, &executor, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "4097"));
    assert_non_null(strstr(error.text, "4096"));
    /* More threads than a pool starts in a moment are refused before one of them starts. */
    const int32_t most = MOX_MAX_WORKERS_EACH * mox_processor_count();
    if (most < MOX_MAX_WORKERS) {
        char limit[32];
        snprintf(limit, sizeof limit, "%d is the limit", (int)most);
        assert_int_equal(mox_executor_create(most + 1, &executor, &error), MOXIE_ERR_ARGUMENT);
        assert_non_null(strstr(error.text, limit));
        assert_int_equal(mox_executor_create(MOX_MAX_WORKERS, &executor, &error), MOXIE_ERR_ARGUMENT);
    }
    mox_alloc_fail_at(1);
    assert_int_equal(mox_executor_create(2, &executor, &error), MOXIE_ERR_MEMORY);
    assert_null(executor);
}

/* Uses the executor `loops` times in a forked child and destroys it there. A child that hangs is killed. */
static void check_in_child(moxie_executor *executor, int loops)
{
    int status;
    const pid_t child = fork();
    if (child == 0) {
        bool right = true;
        alarm(300);
        for (int i = 0; i < loops; i++)
            right = loop_is_right(executor, 1000) && right;
        mox_executor_destroy(executor);
        _exit(right ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void test_fork(void **state)
{
    moxie_error error;
    (void)state;
    test_skip_where_children_start_no_threads();
    for (int32_t threads = 1; threads <= 4; threads++) {
        moxie_executor *executor = NULL;
        assert_ok(mox_executor_create(threads, &executor, &error), &error);
        check_in_child(executor, 2); /* before its first use */
        assert_true(loop_is_right(executor, 1000));
        check_in_child(executor, 2);
        check_in_child(executor, 0);                /* destroyed unused */
        assert_true(loop_is_right(executor, 1000)); /* the parent's threads are still there */
        mox_executor_destroy(executor);
    }
}

static void fork_in_task(void *context, int64_t task, int32_t worker)
{
    moxie_executor *executor = context;
    int status = 1;
    (void)worker;
    if (task != 3)
        return;
    const pid_t child = fork();
    if (child == 0) {
        alarm(300);
        _exit(loop_is_right(executor, 1000) ? 0 : 1);
    }
    if (waitpid(child, &status, 0) != child || status != 0)
        abort();
}

/* A fork in the middle of a loop, perhaps by one of the pool's own threads. */
static void test_fork_inside_a_task(void **state)
{
    moxie_executor *executor = NULL;
    moxie_error error;
    (void)state;
    test_skip_where_children_start_no_threads();
    assert_ok(mox_executor_create(3, &executor, &error), &error);
    mox_parallel(executor, 8, fork_in_task, executor);
    assert_true(loop_is_right(executor, 1000));
    mox_executor_destroy(executor);
}

/* ---- idle threads ------------------------------------------------------------------------------------ */

static double processor_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Processor time of short loops with long pauses between them, under MOXIE_SPIN=`spin`. */
static double idle_seconds(const char *spin)
{
    const struct timespec pause = { .tv_nsec = 15 * 1000 * 1000 };
    moxie_executor *executor = NULL;
    moxie_error error;
    setenv("MOXIE_SPIN", spin, 1);
    assert_ok(mox_executor_create(4, &executor, &error), &error);
    const double begin = processor_seconds();
    for (int i = 0; i < 8; i++) {
        assert_true(loop_is_right(executor, 7));
        nanosleep(&pause, NULL);
    }
    const double seconds = processor_seconds() - begin;
    mox_executor_destroy(executor);
    return seconds;
}

static void test_idle_threads_sleep_at_once(void **state)
{
    const char *before = getenv("MOXIE_SPIN");
    char *kept = before != NULL ? strdup(before) : NULL;
    (void)state;
    double sleeping = 0, spinning = 0;
    for (int i = 0; i < IDLE_TRIES && sleeping >= spinning / 2; i++) { /* a busy machine lets few threads spin */
        sleeping = idle_seconds("0");
        spinning = idle_seconds("1");
    }
    if (kept != NULL)
        setenv("MOXIE_SPIN", kept, 1);
    else
        unsetenv("MOXIE_SPIN");
    free(kept);
    if (sleeping >= spinning / 2)
        fail_msg("%.1f ms with idle threads that sleep, %.1f ms with some that spin", 1e3 * sleeping, 1e3 * spinning);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_task_once),
        cmocka_unit_test(test_serial),
        cmocka_unit_test(test_serial_keeps_order),
        cmocka_unit_test(test_really_parallel),
        cmocka_unit_test(test_create),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_fork_inside_a_task),
        cmocka_unit_test(test_idle_threads_sleep_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
