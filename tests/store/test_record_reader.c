/* SPDX-License-Identifier: Apache-2.0
 *
 * test_record_reader.c - the reader of records: every byte where it belongs, through every engine; reads that are
 * short, interrupted, refused or damaged; mirrors; cancelling, deadlines, order; threads that do not start.
 */
#include "test_support.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "store/record_reader.h"

enum { FILES = 3, PAGES = 600, PAGE = 4096, REQUESTS = 40 };

static char folder[] = "/tmp/moxie-test-XXXXXX", paths[2 * FILES][64];
static uint8_t *content[FILES];
static const char *const engines[] = {
#define MOX_READ_ENGINE(id, name, about) name,
#include "store/read_engines.def"
#undef MOX_READ_ENGINE
};
enum { ENGINES = sizeof engines / sizeof engines[0] };

/* ---- files -------------------------------------------------------------------------------------------- */

static void write_file(const char *path, const void *data, size_t bytes)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

static int begin_files(void **state)
{
    (void)state;
    test_rng rng = { test_seed(1) };
    if (mkdtemp(folder) == NULL)
        return -1;
    for (int i = 0; i < FILES; i++) {
        content[i] = malloc(PAGES * PAGE);
        for (int k = 0; k < PAGES * PAGE; k += 8) {
            const uint64_t word = test_u64(&rng);
            memcpy(content[i] + k, &word, 8);
        }
        for (int copy = 0; copy < 2; copy++) {
            char *path = paths[i + copy * FILES];
            snprintf(path, sizeof paths[0], "%s/%d-%d", folder, i, copy);
            write_file(path, content[i], PAGES * PAGE);
        }
    }
    return 0;
}

static int end_files(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * FILES; i++)
        unlink(paths[i]);
    for (int i = 0; i < FILES; i++)
        free(content[i]);
    return rmdir(folder);
}

static mox_reader *open_reader(const mox_reader_options *options, bool mirrors)
{
    mox_read_file files[FILES];
    mox_reader *reader = NULL;
    moxie_error error;
    for (int i = 0; i < FILES; i++)
        files[i] = (mox_read_file) { paths[i], mirrors ? paths[i + FILES] : NULL };
    const moxie_status status = mox_reader_open(files, FILES, options, &reader, &error);
    static bool told;
    if (status == MOXIE_ERR_UNSUPPORTED && !told) {
        print_message("%s\n", error.text);
        told = true;
    }
    if (status == MOXIE_ERR_UNSUPPORTED)
        return NULL;
    assert_ok(status, &error);
    return reader;
}

/* ---- requests ----------------------------------------------------------------------------------------- */

typedef struct job {
    mox_read_request request;
    uint8_t *memory;
} job;

static void free_job(job *j)
{
    mox_free_pages(j->memory);
}

/* A request of pages [first, first + pages), into poisoned memory. */
static void make_job(job *j, int32_t file, uint64_t first, uint64_t pages)
{
    j->memory = mox_alloc_pages(pages * PAGE);
    assert_non_null(j->memory);
    memset(j->memory, 0xa5, pages * PAGE);
    j->request =
        (mox_read_request) { .file = file, .offset = first * PAGE, .bytes = pages * PAGE, .to = j->memory, .user = j };
}

static void make_random(job *j, test_rng *rng)
{
    const uint64_t pages = 1 + test_below(rng, test_below(rng, 4) == 0 ? 200 : 20);
    make_job(j, (int32_t)test_below(rng, FILES), test_below(rng, PAGES - pages + 1), pages);
}

static void submit(mox_reader *reader, job *j)
{
    moxie_error error;
    assert_ok(mox_reader_submit(reader, &j->request, &error), &error);
}

static void check_bytes(const job *j)
{
    const mox_read_request *q = &j->request;
    if (q->failed != 0)
        fail_msg("file %d at %llu: failed with %d", (int)q->file, (unsigned long long)q->offset, q->failed);
    assert_memory_equal(j->memory, content[q->file] + q->offset, q->bytes);
}

/* Random requests, all at once or a few at a time; every one comes back once, with its bytes. */
static void read_random(mox_reader *reader, test_rng *rng)
{
    static job jobs[REQUESTS];
    bool seen[REQUESTS] = { false };
    int submitted = 0, back = 0;
    const int window = 1 + (int)test_below(rng, REQUESTS);
    while (back < REQUESTS) {
        for (; submitted < REQUESTS && submitted - back < window; submitted++) {
            make_random(&jobs[submitted], rng);
            jobs[submitted].request.urgent = test_below(rng, 5) == 0;
            submit(reader, &jobs[submitted]);
        }
        const mox_read_request *q =
            test_below(rng, 3) == 0 ? mox_reader_poll(reader) : mox_reader_wait(reader, MOX_READ_FOREVER);
        if (q == NULL)
            continue;
        job *j = q->user;
        assert_false(seen[j - jobs]);
        seen[j - jobs] = true;
        check_bytes(j);
        free_job(j);
        back++;
    }
    assert_null(mox_reader_wait(reader, MOX_READ_FOREVER)); /* none is under way */
}

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

/* ---- mirrors ------------------------------------------------------------------------------------------ */

static void test_mirrors_share(void **state)
{
    (void)state;
    for (int e = 0; e < ENGINES; e++) {
        trouble t = {
            .lock = PTHREAD_MUTEX_INITIALIZER, .instead = -EIO, .copy = 0, .from = 0, .to = UINT64_MAX, .left = 1000
        };
        mox_reader_info info;
        moxie_error error;
        job j;
        if (read_with(engines[e], &t, true, &j, &info, &error) == -2)
            continue;
        /* Ten chunks; about half of them met the damaged copy first. */
        assert_in_range(1000 - t.left, 3, 7);
        free_job(&j);
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
        cmocka_unit_test(test_bytes),           cmocka_unit_test(test_short_reads),
        cmocka_unit_test(test_failures),        cmocka_unit_test(test_mirror_recovers),
        cmocka_unit_test(test_direct_refused),  cmocka_unit_test(test_end),
        cmocka_unit_test(test_order),           cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_cancel),          cmocka_unit_test(test_mirrors_share),
        cmocka_unit_test(test_threads_missing), cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_registered),      cmocka_unit_test(test_uring_missing),
        cmocka_unit_test(test_arguments),
    };
    return cmocka_run_group_tests(tests, begin_files, end_files);
}
