/* SPDX-License-Identifier: Apache-2.0
 *
 * test_reader_calls.c - the calls of the reader of records: order, deadlines, cancelling; threads that do not start,
 * registered memory, an engine that is missing; memory and arguments.
 */
#include "reader_files.h"

#include <errno.h>
#include <pthread.h>

#include "base/clock.h"

/* ---- order, deadlines, cancelling --------------------------------------------------------------------- */

/* Holds every read until it is opened, and keeps their order. */
typedef struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int passes; /* reads that may pass */
    int n;
    uint64_t order[64]; /* pages */
} gate;
#define CLOSED_GATE                                                                                                    \
    {                                                                                                                  \
        .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER                                         \
    }

static int64_t pass_gate(void *user, int32_t file, int32_t copy, uint64_t offset, int64_t result)
{
    gate *g = user;
    (void)file, (void)copy;
    pthread_mutex_lock(&g->lock);
    while (g->passes == 0)
        pthread_cond_wait(&g->changed, &g->lock);
    g->passes--;
    g->order[g->n++] = offset / PAGE;
    pthread_mutex_unlock(&g->lock);
    return result;
}

static void open_gate(gate *g, int passes)
{
    pthread_mutex_lock(&g->lock);
    g->passes += passes;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

/* One read at a time, through a gate. */
static mox_reader *open_gated(const char *engine, gate *g)
{
    const mox_reader_options options = {
        .engine = engine, .depth = 1, .threads = 1, .chunk_bytes = PAGE, .fault = pass_gate, .fault_user = g
    };
    return open_reader(&options, false);
}

/* With one read at a time, urgent requests come before others that were there first. */
static void test_order(void **state)
{
    (void)state;
    for (int e = 0; e < ENGINES; e++) {
        gate g = CLOSED_GATE;
        mox_reader *reader = open_gated(engines[e], &g);
        job jobs[5];
        if (reader == NULL)
            continue;
        for (int i = 0; i < 5; i++) {
            make_job(&jobs[i], 0, (uint64_t)i * 10, 2);
            jobs[i].request.urgent = i == 3;
            submit(reader, &jobs[i]);
        }
        mox_reader_raise(reader, &jobs[4].request);
        open_gate(&g, 64);
        for (int i = 0; i < 5; i++)
            assert_non_null(mox_reader_wait(reader, MOX_READ_FOREVER));
        /* Job 0 began before the others came; then 3, 4, and the rest. */
        assert_int_equal(g.n, 10);
        int at[5];
        for (int i = 0; i < 10; i++)
            at[g.order[i] / 10] = i;
        assert_true(at[3] < at[4] && at[4] < at[1] && at[4] < at[2] && at[1] < at[2]);
        mox_reader_close(reader);
        for (int i = 0; i < 5; i++) {
            check_bytes(&jobs[i]);
            free_job(&jobs[i]);
        }
    }
}

static void test_deadline(void **state)
{
    (void)state;
    for (int e = 0; e < ENGINES; e++) {
        gate g = CLOSED_GATE;
        mox_reader *reader = open_gated(engines[e], &g);
        job j;
        if (reader == NULL)
            continue;
        make_job(&j, 0, 0, 3);
        submit(reader, &j);
        const uint64_t begin = mox_clock_now();
        assert_false(mox_reader_wait_for(reader, &j.request, begin + 5000000));
        assert_null(mox_reader_wait(reader, begin + 6000000));
        assert_null(mox_reader_poll(reader));
        assert_true(mox_clock_now() - begin >= 6000000);
        open_gate(&g, 64);
        assert_true(mox_reader_wait_for(reader, &j.request, MOX_READ_FOREVER));
        assert_null(mox_reader_poll(reader)); /* it came back once */
        check_bytes(&j);
        mox_reader_close(reader);
        free_job(&j);
    }
}

static void test_cancel(void **state)
{
    (void)state;
    for (int e = 0; e < ENGINES; e++) {
        gate g = CLOSED_GATE;
        mox_reader *reader = open_gated(engines[e], &g);
        job jobs[4];
        moxie_error error = { 0 };
        if (reader == NULL)
            continue;
        for (int i = 0; i < 4; i++) {
            make_job(&jobs[i], 0, (uint64_t)i * 10, 4);
            submit(reader, &jobs[i]);
        }
        mox_reader_cancel(reader, &jobs[1].request);
        assert_true(mox_reader_wait_for(reader, &jobs[1].request, MOX_READ_FOREVER));
        assert_int_equal(jobs[1].request.failed, ECANCELED);
        assert_int_equal(mox_reader_result(reader, &jobs[1].request, &error), MOXIE_ERR_IO);
        assert_int_equal(jobs[1].memory[0], 0xa5); /* nothing was read */
        open_gate(&g, 4);
        assert_true(mox_reader_wait_for(reader, &jobs[0].request, MOX_READ_FOREVER));
        check_bytes(&jobs[0]);
        mox_reader_cancel(reader, &jobs[0].request); /* it is done: nothing happens */
        assert_int_equal(jobs[0].request.failed, 0);
        mox_reader_cancel(reader, &jobs[3].request);
        open_gate(&g, 60);
        mox_reader_close(reader); /* with one under way, and one that was not waited for */
        assert_int_equal(jobs[3].request.failed, ECANCELED);
        assert_true(jobs[2].request.failed == 0 || jobs[2].request.failed == ECANCELED);
        for (int i = 0; i < 4; i++)
            free_job(&jobs[i]);
    }
}

/* ---- threads, memory, arguments ----------------------------------------------------------------------- */

static int threads_allowed = -1; /* -1: any number */
int __real_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int __wrap_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*fn)(void *), void *context)
{
    if (threads_allowed == 0)
        return EAGAIN;
    threads_allowed -= threads_allowed > 0;
    return __real_pthread_create(thread, attributes, fn, context);
}

static void test_threads_missing(void **state)
{
    (void)state;
    test_rng rng = { test_seed(30) };
    for (int allowed = 0; allowed < 3; allowed++) {
        mox_reader_info info;
        threads_allowed = allowed;
        const mox_reader_options options = { .engine = "pread", .threads = 3, .chunk_bytes = 8 * PAGE };
        mox_reader *reader = open_reader(&options, false);
        threads_allowed = -1;
        mox_reader_get_info(reader, &info);
        assert_int_equal(info.threads, allowed);
        assert_non_null(strstr(info.why, "of 3 threads that read, the system started"));
        job j;
        make_job(&j, 0, 0, 10);
        submit(reader, &j);
        assert_true(mox_reader_wait_for(reader, &j.request, MOX_READ_FOREVER));
        check_bytes(&j);
        free_job(&j);
        read_random(reader, &rng);
        mox_reader_close(reader);
    }
}

/* Registered memory: requests inside, across its end, and outside. */
static void test_registered(void **state)
{
    (void)state;
    enum { HELD = 64 };
    uint8_t *memory = mox_alloc_pages(2 * HELD * PAGE);
    const mox_read_buffer buffers[] = { { memory, HELD * PAGE / 2 }, { memory + HELD * PAGE / 2, HELD * PAGE / 2 } };
    for (int e = 0; e < ENGINES; e++) {
        const mox_reader_options options = {
            .engine = engines[e], .chunk_bytes = 5 * PAGE, .buffers = buffers, .n_buffers = 2
        };
        mox_reader *reader = open_reader(&options, false);
        mox_reader_info info;
        if (reader == NULL)
            continue;
        mox_reader_get_info(reader, &info);
        if (strcmp(engines[e], "uring") == 0 && info.registered != 2)
            print_message("%s\n", info.why);
        for (int i = 0; i < 8; i++) {
            job j = { .memory = memory + (uint64_t)i * 13 * PAGE };
            memset(memory, 0xa5, 2 * HELD * PAGE);
            j.request = (mox_read_request) { .file = 2, .offset = PAGE, .bytes = 20 * PAGE, .to = j.memory };
            submit(reader, &j);
            assert_true(mox_reader_wait_for(reader, &j.request, MOX_READ_FOREVER));
            check_bytes(&j);
        }
        mox_reader_close(reader);
    }
    mox_free_pages(memory);
}

/* Without the module, or where its thread does not start, "auto" reads by pread and says why. */
static void test_uring_missing(void **state)
{
    (void)state;
    const char *variable = "MOXIE_URING_LIBRARY", *module = getenv(variable);
    char *kept = module != NULL ? strdup(module) : NULL;
    moxie_read_engine engine = MOXIE_READ_ENGINE_INIT;
    mox_reader_info info;
    moxie_error error = { 0 };
    setenv(variable, "/nowhere/libmoxie_uring.so", 1);
    mox_reader *reader = open_reader(NULL, false);
    mox_reader_get_info(reader, &info);
    assert_string_equal(info.engine, "pread");
    assert_non_null(strstr(info.why, "uring: MOXIE_URING_LIBRARY is /nowhere/libmoxie_uring.so"));
    mox_reader_close(reader);
    assert_true(moxie_read_engine_at(0, &engine));
    assert_false(engine.usable);
    assert_non_null(strstr(engine.missing, "/nowhere/libmoxie_uring.so"));
    assert_true(moxie_read_engine_at(1, &engine) && engine.usable && engine.missing[0] == 0);
    assert_false(moxie_read_engine_at(2, &engine));
    const mox_read_file file = { paths[0], NULL };
    const mox_reader_options options = { .engine = "uring" };
    reader = NULL;
    assert_int_equal(mox_reader_open(&file, 1, &options, &reader, &error), MOXIE_ERR_UNSUPPORTED);
    assert_null(reader);
    if (kept != NULL)
        setenv(variable, kept, 1);
    else
        unsetenv(variable);
    free(kept);
    threads_allowed = 0;
    reader = open_reader(NULL, false);
    threads_allowed = -1;
    mox_reader_get_info(reader, &info);
    assert_string_equal(info.engine, "pread");
    mox_reader_close(reader);
}

static void test_no_memory(void **state)
{
    (void)state;
    for (int e = 0; e < ENGINES; e++) {
        mox_read_file file = { paths[0], paths[1] };
        const mox_reader_options options = { .engine = engines[e], .threads = 2 };
        moxie_status status = MOXIE_ERR_MEMORY;
        moxie_error error;
        for (uint64_t n = 1; status != MOXIE_OK && status != MOXIE_ERR_UNSUPPORTED; n++) {
            mox_reader *reader = NULL;
            mox_alloc_fail_at(n);
            status = mox_reader_open(&file, 1, &options, &reader, &error);
            mox_alloc_fail_at(0);
            assert_true(status == MOXIE_ERR_MEMORY || status == MOXIE_OK || status == MOXIE_ERR_UNSUPPORTED);
            assert_true(n > 3 || status == MOXIE_ERR_MEMORY);
            mox_reader_close(reader);
        }
    }
}

static void expect_refused(const mox_read_file *file, const mox_reader_options *options, moxie_status expected,
                           const char *text)
{
    mox_reader *reader = NULL;
    moxie_error error = { 0 };
    assert_int_equal(mox_reader_open(file, 1, options, &reader, &error), expected);
    assert_null(reader);
    if (strstr(error.text, text) == NULL)
        fail_msg("\"%s\" does not have \"%s\"", error.text, text);
}

static void test_arguments(void **state)
{
    (void)state;
    const mox_read_file file = { paths[0], NULL }, none = { "/nowhere/at/all", NULL }, dir = { folder, NULL };
    const mox_reader_options odd = { .chunk_bytes = 1000 }, deep = { .depth = 1 << 20 }, name = { .engine = "tape" };
    expect_refused(&file, &odd, MOXIE_ERR_ARGUMENT, "multiples of 4096");
    expect_refused(&file, &deep, MOXIE_ERR_ARGUMENT, "1 to 1024");
    expect_refused(&file, &name, MOXIE_ERR_ARGUMENT, "there are auto");
    expect_refused(&none, NULL, MOXIE_ERR_IO, "No such file");
    expect_refused(&dir, NULL, MOXIE_ERR_IO, "no regular file");
    mox_reader *reader = open_reader(NULL, false);
    moxie_error error;
    job j;
    make_job(&j, 0, 0, 2);
    const mox_read_request good = j.request;
    const mox_read_request bad[] = {
        { .file = FILES, .bytes = PAGE, .to = good.to },
        { .file = -1, .bytes = PAGE, .to = good.to },
        { .bytes = PAGE, .to = NULL },
        { .bytes = 0, .to = good.to },
        { .bytes = PAGE + 1, .to = good.to },
        { .bytes = PAGE, .offset = 512, .to = good.to },
        { .bytes = PAGE, .to = (char *)good.to + 64 },
        { .bytes = PAGE, .offset = UINT64_MAX - PAGE + 1, .to = good.to },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        j.request = bad[i];
        assert_int_equal(mox_reader_submit(reader, &j.request, &error), MOXIE_ERR_ARGUMENT);
    }
    assert_null(mox_reader_wait(reader, MOX_READ_FOREVER));
    mox_reader_close(reader);
    mox_reader_close(NULL);
    free_job(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),           cmocka_unit_test(test_deadline),   cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_threads_missing), cmocka_unit_test(test_registered), cmocka_unit_test(test_uring_missing),
        cmocka_unit_test(test_no_memory),       cmocka_unit_test(test_arguments),
    };
    return cmocka_run_group_tests(tests, begin_files, end_files);
}
