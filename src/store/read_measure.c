/* SPDX-License-Identifier: Apache-2.0
 *
 * read_measure.c - how fast records come from disk: what moxie_disk_measure() does.
 *
 *     places (file, record) in a random order -> a window of requests under way, refilled as they end -> bytes / time
 *
 * The first window warms up: time starts when it is through. Where all places were read before the time is over, the
 * order begins anew.
 */
#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/memory.h"
#include "store/record_reader.h"

#define RECORD      (UINT64_C(4) << 20)
#define MAX_RECORD  (UINT64_C(1) << 30)
#define WINDOW      (UINT64_C(64) << 20)
#define MILLISECOND UINT64_C(1000000)
enum { MIN_REQUESTS = 4, DEFAULT_MS = 1000 };

typedef struct place {
    int32_t file;
    uint64_t offset;
} place;

typedef struct measurement {
    mox_read_file *files;
    place *places;
    uint64_t n_places, next, record_bytes;
    mox_read_request *requests;
    int32_t n_requests;
    uint8_t *memory;
    mox_reader *reader;
} measurement;

/* ---- places ------------------------------------------------------------------------------------------- */

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void shuffle(place *places, uint64_t n)
{
    uint64_t state = UINT64_C(0x9e3779b97f4a7c15);
    for (uint64_t i = n; i > 1; i--) {
        const uint64_t other = next_random(&state) % i;
        const place kept = places[i - 1];
        places[i - 1] = places[other];
        places[other] = kept;
    }
}

static moxie_status list_places(measurement *m, int32_t n, moxie_error *error)
{
    uint64_t total = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t f = 0; f < n; f++) {
            struct stat info;
            if (stat(m->files[f].path, &info) != 0)
                return mox_fail_file(MOXIE_ERR_IO, error, m->files[f].path, -1, "cannot open: %m");
            const uint64_t whole = (uint64_t)info.st_size / m->record_bytes;
            total += pass == 0 ? whole : 0;
            for (uint64_t i = 0; pass == 1 && i < whole && m->n_places < total; i++)
                m->places[m->n_places++] = (place) { f, i * m->record_bytes };
        }
        if (pass == 0 && total > 0)
            m->places = mox_calloc(total, sizeof *m->places);
        MOX_FAIL_IF(total == 0, MOXIE_ERR_ARGUMENT, error,
                    "none of the %d files has %llu bytes, which is a record: name larger ones, or smaller records",
                    (int)n, (unsigned long long)m->record_bytes);
        MOX_FAIL_IF(m->places == NULL, MOXIE_ERR_MEMORY, error, "no memory for a list of records");
    }
    shuffle(m->places, m->n_places);
    return MOXIE_OK;
}

/* ---- reading ------------------------------------------------------------------------------------------ */

static moxie_status submit_next(measurement *m, mox_read_request *q, moxie_error *error)
{
    const place at = m->places[m->next++ % m->n_places];
    q->file = at.file;
    q->offset = at.offset;
    return mox_reader_submit(m->reader, q, error);
}

/* One request comes back and the next begins. */
static moxie_status turn_over(measurement *m, moxie_error *error)
{
    mox_read_request *q = mox_reader_wait(m->reader, MOX_READ_FOREVER);
    MOX_TRY(mox_reader_result(m->reader, q, error));
    return submit_next(m, q, error);
}

static moxie_status read_for(measurement *m, uint64_t ns, moxie_disk_rate *out, moxie_error *error)
{
    for (int32_t i = 0; i < m->n_requests; i++)
        MOX_TRY(submit_next(m, &m->requests[i], error));
    for (int32_t i = 0; i < m->n_requests; i++)
        MOX_TRY(turn_over(m, error));
    const uint64_t begin = mox_clock_now();
    uint64_t now = begin;
    while (now - begin < ns) {
        MOX_TRY(turn_over(m, error));
        out->records++;
        now = mox_clock_now();
    }
    out->bytes = out->records * m->record_bytes;
    out->seconds = (double)(now - begin) * 1e-9;
    out->gb_s = (double)out->bytes / (double)(now - begin);
    return MOXIE_OK;
}

static void describe(const measurement *m, moxie_disk_rate *out)
{
    mox_reader_info info;
    mox_reader_get_info(m->reader, &info);
    out->engine = info.engine;
    out->depth = info.depth;
    out->threads = info.threads;
    out->drives = info.drives;
    out->direct = info.direct_copies == info.copies;
    out->chunk_bytes = info.chunk_bytes;
    snprintf(out->why, sizeof out->why, "%.*s", (int)sizeof out->why - 1, info.why);
}

/* ---- all of it ---------------------------------------------------------------------------------------- */

static moxie_status make_requests(measurement *m, moxie_error *error)
{
    const uint64_t wanted = WINDOW / m->record_bytes;
    m->n_requests = wanted > MIN_REQUESTS ? (int32_t)(wanted < 1024 ? wanted : 1024) : MIN_REQUESTS;
    m->requests = mox_calloc((uint64_t)m->n_requests, sizeof *m->requests);
    m->memory = mox_alloc_pages((uint64_t)m->n_requests * m->record_bytes);
    MOX_FAIL_IF(m->requests == NULL || m->memory == NULL, MOXIE_ERR_MEMORY, error,
                "no memory for %d records of %llu bytes", (int)m->n_requests, (unsigned long long)m->record_bytes);
    for (int32_t i = 0; i < m->n_requests; i++) {
        m->requests[i].bytes = m->record_bytes;
        m->requests[i].to = m->memory + (uint64_t)i * m->record_bytes;
    }
    return MOXIE_OK;
}

static moxie_status measure(measurement *m, const char *const *paths, int32_t n, const moxie_disk_options *o,
                            moxie_disk_rate *out, moxie_error *error)
{
    m->files = mox_calloc((uint64_t)n, sizeof *m->files);
    MOX_FAIL_IF(m->files == NULL, MOXIE_ERR_MEMORY, error, "no memory for a list of %d files", (int)n);
    for (int32_t i = 0; i < n; i++)
        m->files[i] = (mox_read_file) { paths[i], o->mirrors != NULL ? o->mirrors[i] : NULL };
    MOX_TRY(list_places(m, n, error));
    MOX_TRY(make_requests(m, error));
    const mox_read_buffer buffer = { m->memory, (uint64_t)m->n_requests * m->record_bytes };
    const mox_reader_options options = {
        .engine = o->engine, .depth = o->depth, .chunk_bytes = o->chunk_bytes, .buffers = &buffer, .n_buffers = 1
    };
    MOX_TRY(mox_reader_open(m->files, n, &options, &m->reader, error));
    const int32_t ms = o->milliseconds > 0 ? o->milliseconds : DEFAULT_MS;
    MOX_TRY(read_for(m, (uint64_t)ms * MILLISECOND, out, error));
    describe(m, out);
    return MOXIE_OK;
}

moxie_status mox_disk_measure(const char *const *paths, int32_t n, const moxie_disk_options *o, moxie_disk_rate *out,
                              moxie_error *error)
{
    MOX_FAIL_IF(n < 1, MOXIE_ERR_ARGUMENT, error, "no file to read was named");
    MOX_FAIL_IF(o->record_bytes % MOX_READ_ALIGN != 0 || o->record_bytes > MAX_RECORD, MOXIE_ERR_ARGUMENT, error,
                "records of %llu bytes were asked for; they are multiples of %llu bytes, at most 1 GiB",
                (unsigned long long)o->record_bytes, (unsigned long long)MOX_READ_ALIGN);
    measurement m = { .record_bytes = o->record_bytes > 0 ? o->record_bytes : RECORD };
    const moxie_status status = measure(&m, paths, n, o, out, error);
    mox_reader_close(m.reader);
    mox_free_pages(m.memory);
    mox_free(m.requests);
    mox_free(m.places);
    mox_free(m.files);
    return status;
}
