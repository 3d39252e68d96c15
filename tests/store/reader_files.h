/* SPDX-License-Identifier: Apache-2.0
 *
 * reader_files.h - files of random bytes, and requests of them, for tests of the reader of records.
 */
#ifndef READER_FILES_H
#define READER_FILES_H

#include "test_support.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

static inline void write_file(const char *path, const void *data, size_t bytes)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

static inline int begin_files(void **state)
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

static inline int end_files(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * FILES; i++)
        unlink(paths[i]);
    for (int i = 0; i < FILES; i++)
        free(content[i]);
    return rmdir(folder);
}

static inline mox_reader *open_reader(const mox_reader_options *options, bool mirrors)
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

static inline void free_job(job *j)
{
    mox_free_pages(j->memory);
}

/* A request of pages [first, first + pages), into poisoned memory. */
static inline void make_job(job *j, int32_t file, uint64_t first, uint64_t pages)
{
    j->memory = mox_alloc_pages(pages * PAGE);
    assert_non_null(j->memory);
    memset(j->memory, 0xa5, pages * PAGE);
    j->request =
        (mox_read_request) { .file = file, .offset = first * PAGE, .bytes = pages * PAGE, .to = j->memory, .user = j };
}

static inline void make_random(job *j, test_rng *rng)
{
    const uint64_t pages = 1 + test_below(rng, test_below(rng, 4) == 0 ? 200 : 20);
    make_job(j, (int32_t)test_below(rng, FILES), test_below(rng, PAGES - pages + 1), pages);
}

static inline void submit(mox_reader *reader, job *j)
{
    moxie_error error;
    assert_ok(mox_reader_submit(reader, &j->request, &error), &error);
}

static inline void check_bytes(const job *j)
{
    const mox_read_request *q = &j->request;
    if (q->failed != 0)
        fail_msg("file %d at %llu: failed with %d", (int)q->file, (unsigned long long)q->offset, q->failed);
    assert_memory_equal(j->memory, content[q->file] + q->offset, q->bytes);
}

/* Random requests, all at once or a few at a time; every one comes back once, with its bytes. */
static inline void read_random(mox_reader *reader, test_rng *rng)
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

#endif
