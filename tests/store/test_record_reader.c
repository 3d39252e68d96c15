/* SPDX-License-Identifier: Apache-2.0
 *
 * test_record_reader.c - the reader of records: every byte where it belongs, through every engine; reads that are
 * short, interrupted, refused or damaged; mirrors.
 */
#include "reader_files.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "store/read_engine.h"

static void test_bytes(void **state)
{
    (void)state;
    static const mox_reader_options cases[] = {
        { .depth = 0 },
        { .depth = 1, .threads = 1, .chunk_bytes = PAGE },
        { .depth = 3, .threads = 8, .chunk_bytes = 3 * PAGE },
        { .buffered = true, .chunk_bytes = 1 << 20 },
        { .depth = 100, .threads = 4 },
    };
    test_rng rng = { test_seed(2) };
    for (int e = 0; e < ENGINES; e++)
        for (size_t i = 0; i < 2 * sizeof cases / sizeof cases[0]; i++) {
            mox_reader_options options = cases[i / 2];
            options.engine = engines[e];
            mox_reader *reader = open_reader(&options, i % 2 == 1);
            if (reader == NULL)
                break;
            mox_reader_info info;
            mox_reader_get_info(reader, &info);
            assert_string_equal(info.engine, engines[e]);
            assert_int_equal(info.copies, i % 2 == 1 ? 2 * FILES : FILES);
            assert_true(options.buffered ? info.direct_copies == 0 : info.direct_copies <= info.copies);
            read_random(reader, &rng);
            mox_reader_get_info(reader, &info);
            assert_int_equal(info.requests, REQUESTS);
            mox_reader_close(reader);
        }
}

/* ---- faults ------------------------------------------------------------------------------------------- */

/* What a read meets: short, interrupted, refused, damaged, the end. */
typedef struct trouble {
    pthread_mutex_t lock;
    test_rng rng;
    int64_t instead;   /* 0: short reads and interruptions at random */
    int32_t copy;      /* -1: both */
    uint64_t from, to; /* offsets at which it happens */
    int left;          /* how often */
} trouble;

static int64_t trouble_at(trouble *t, int32_t copy, uint64_t offset, int64_t result)
{
    if (t->instead == 0) {
        const uint64_t kind = test_below(&t->rng, 4);
        if (kind == 0)
            return -EINTR;
        return kind == 1 && result > 1 ? 1 + (int64_t)test_below(&t->rng, (uint64_t)result) : result;
    }
    if ((t->copy >= 0 && copy != t->copy) || offset < t->from || offset >= t->to || t->left == 0)
        return result;
    t->left--;
    return t->instead == MOX_READ_ENDED ? 0 : t->instead;
}

static int64_t cause_trouble(void *user, int32_t file, int32_t copy, uint64_t offset, int64_t result)
{
    trouble *t = user;
    (void)file;
    pthread_mutex_lock(&t->lock);
    const int64_t seen = trouble_at(t, copy, offset, result);
    pthread_mutex_unlock(&t->lock);
    return seen;
}

static void test_short_reads(void **state)
{
    (void)state;
    for (int i = 0; i < 4 * ENGINES; i++) {
        trouble t = { .lock = PTHREAD_MUTEX_INITIALIZER, .rng = { test_seed((uint64_t)(10 + i)) } };
        const mox_reader_options options = { .engine = engines[i / 4],
                                             .buffered = i % 2 == 1,
                                             .chunk_bytes = 16 * PAGE,
                                             .fault = cause_trouble,
                                             .fault_user = &t };
        mox_reader *reader = open_reader(&options, i % 4 > 1);
        if (reader == NULL)
            continue;
        test_rng rng = { test_seed((uint64_t)(20 + i)) }; /* t.rng is of the reader's threads */
        read_random(reader, &rng);
        mox_reader_info info;
        mox_reader_get_info(reader, &info);
        assert_true(info.resumed > 10);
        mox_reader_close(reader);
    }
}

/* One request of 40 pages in chunks of 4; returns what became of it. */
static int read_with(const char *engine, trouble *t, bool mirrors, job *j, mox_reader_info *info, moxie_error *error)
{
    const mox_reader_options options = {
        .engine = engine, .chunk_bytes = 4 * PAGE, .fault = cause_trouble, .fault_user = t
    };
    mox_reader *reader = open_reader(&options, mirrors);
    if (reader == NULL)
        return -2;
    make_job(j, 1, 100, 40);
    submit(reader, j);
    assert_ptr_equal(mox_reader_wait(reader, MOX_READ_FOREVER), &j->request);
    const moxie_status status = mox_reader_result(reader, &j->request, error);
    assert_int_equal(status == MOXIE_OK, j->request.failed == 0);
    mox_reader_get_info(reader, info);
    mox_reader_close(reader);
    return j->request.failed;
}

/* A chunk that fails: the request says which, and the text too. With a mirror it is read there. */
static void test_failures(void **state)
{
    (void)state;
    mox_reader_info info;
    for (int e = 0; e < ENGINES; e++)
        for (int i = 0; i < 4; i++) {
            const bool ended = i % 2 == 1, mirrors = i > 1;
            moxie_error error = { 0 };
            char at[32];
            job j;
            trouble t = { .lock = PTHREAD_MUTEX_INITIALIZER,
                          .instead = ended ? MOX_READ_ENDED : -EIO,
                          .copy = mirrors ? -1 : 0,
                          .from = 120 * PAGE,
                          .to = 121 * PAGE,
                          .left = 1000 };
            const int failed = read_with(engines[e], &t, mirrors, &j, &info, &error);
            if (failed == -2)
                continue;
            assert_int_equal(failed, ended ? MOX_READ_ENDED : EIO);
            assert_int_equal(j.request.failed_at, 120 * PAGE);
            snprintf(at, sizeof at, "%d", 120 * PAGE);
            assert_non_null(strstr(error.text, ended ? "cut short" : "Input/output error"));
            assert_int_equal(error.offset, 120 * PAGE);
            assert_int_equal(info.mirrored, mirrors ? 1 : 0);
            free_job(&j);
        }
}

static void test_mirror_recovers(void **state)
{
    (void)state;
    static const int64_t kinds[] = { -EIO, MOX_READ_ENDED };
    mox_reader_info info;
    for (int e = 0; e < ENGINES; e++)
        for (int i = 0; i < 4; i++) {
            moxie_error error;
            job j;
            trouble t = { .lock = PTHREAD_MUTEX_INITIALIZER,
                          .instead = kinds[i / 2],
                          .copy = i % 2,
                          .from = 0,
                          .to = UINT64_MAX,
                          .left = 1000 };
            const int failed = read_with(engines[e], &t, true, &j, &info, &error);
            if (failed == -2)
                continue;
            assert_int_equal(failed, 0);
            assert_in_range(info.mirrored, 1, 10);
            check_bytes(&j);
            free_job(&j);
        }
}

/* A file system that refuses direct reads only when they come: the rest goes through the page cache. */
static void test_direct_refused(void **state)
{
    (void)state;
    mox_reader_info info;
    for (int e = 0; e < ENGINES; e++) {
        moxie_error error;
        job j;
        trouble t = {
            .lock = PTHREAD_MUTEX_INITIALIZER, .instead = -EINVAL, .copy = -1, .from = 0, .to = UINT64_MAX, .left = 1
        };
        const mox_reader_options probe = { .engine = engines[e] };
        mox_reader *reader = open_reader(&probe, false);
        if (reader == NULL)
            continue;
        mox_reader_get_info(reader, &info);
        const int32_t direct = info.direct_copies;
        mox_reader_close(reader);
        if (direct < FILES) {
            print_message("no O_DIRECT in /tmp\n");
            return;
        }
        assert_int_equal(read_with(engines[e], &t, false, &j, &info, &error), 0);
        assert_int_equal(info.direct_copies, FILES - 1);
        check_bytes(&j);
        free_job(&j);
        t.left = 1000; /* then it is an error */
        assert_int_equal(read_with(engines[e], &t, false, &j, &info, &error), EINVAL);
        free_job(&j);
    }
}

/* A request behind the end of a real file. */
static void test_end(void **state)
{
    (void)state;
    for (int e = 0; e < ENGINES; e++) {
        const mox_reader_options options = { .engine = engines[e], .chunk_bytes = 4 * PAGE };
        mox_reader *reader = open_reader(&options, e % 2 == 0);
        moxie_error error = { 0 };
        job j;
        if (reader == NULL)
            continue;
        make_job(&j, 2, PAGES - 6, 20);
        submit(reader, &j);
        assert_true(mox_reader_wait_for(reader, &j.request, MOX_READ_FOREVER));
        assert_int_equal(j.request.failed, MOX_READ_ENDED);
        assert_int_equal(mox_reader_result(reader, &j.request, &error), MOXIE_ERR_FORMAT);
        assert_true(error.offset >= (int64_t)PAGES * PAGE);
        mox_reader_close(reader);
        free_job(&j);
    }
}

/* With O_NONBLOCK, kernels may answer each read with EAGAIN, for ever. */
static void test_reads_may_wait(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        const mox_reader_options options = { .engine = "pread", .buffered = i == 1 };
        mox_reader *reader = open_reader(&options, true);
        assert_non_null(reader);
        for (int f = 0; f < 2 * FILES; f++) {
            const mox_read_copy *copy = &reader->files[f % FILES].copies[f / FILES];
            const int flags = fcntl(copy->fd, F_GETFL);
            assert_int_equal(flags & O_NONBLOCK, 0);
            assert_int_equal((flags & O_DIRECT) != 0, copy->direct);
        }
        mox_reader_close(reader);
    }
}

/* ---- mirrors ------------------------------------------------------------------------------------------ */

static int64_t count_reads(void *user, int32_t file, int32_t copy, uint64_t offset, int64_t result)
{
    atomic_int *reads = user;
    (void)file;
    (void)offset;
    atomic_fetch_add(&reads[copy], 1);
    return result;
}

/* Ten chunks, each taken from the copy that is less busy, and of equally busy ones from the one that was read less. One
 * thread reads them one after the other, so both are equally busy each time; several chunks in flight only have to meet
 * both, since their order is the drives'. */
static void test_mirrors_share(void **state)
{
    (void)state;
    for (int e = 0; e < ENGINES; e++) {
        atomic_int reads[2] = { 0, 0 };
        const mox_reader_options options = {
            .engine = engines[e], .threads = 1, .chunk_bytes = 4 * PAGE, .fault = count_reads, .fault_user = reads
        };
        mox_reader *reader = open_reader(&options, true);
        job j;
        if (reader == NULL)
            continue;
        make_job(&j, 1, 100, 40);
        submit(reader, &j);
        assert_true(mox_reader_wait_for(reader, &j.request, MOX_READ_FOREVER));
        assert_int_equal(j.request.failed, 0);
        mox_reader_close(reader);
        check_bytes(&j);
        free_job(&j);
        assert_int_equal(reads[0] + reads[1], 10);
        if (strcmp(engines[e], "pread") == 0)
            assert_int_equal(reads[0], 5);
        assert_true(reads[0] > 0 && reads[1] > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),           cmocka_unit_test(test_short_reads),    cmocka_unit_test(test_failures),
        cmocka_unit_test(test_mirror_recovers), cmocka_unit_test(test_direct_refused), cmocka_unit_test(test_end),
        cmocka_unit_test(test_reads_may_wait),  cmocka_unit_test(test_mirrors_share),
    };
    return cmocka_run_group_tests(tests, begin_files, end_files);
}
