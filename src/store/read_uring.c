/* SPDX-License-Identifier: Apache-2.0
 *
 * read_uring.c - chunks by io_uring: one thread keeps `depth` reads of every drive in flight with few system calls.
 *
 *     thread: take chunks -> queue their reads -> start all, wait for a result -> put it -> ...
 *     submit -> eventfd -> a read of it is in the ring, too, so the thread wakes
 *
 * liburing is in a module that is opened at run time (uring/uring_table.h). A kernel may refuse io_uring: it is old, a
 * sandbox filters the call, or kernel.io_uring_disabled is set.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/module.h"
#include "store/read_engine.h"
#include "store/uring/uring_table.h"

enum { RESULTS = 64, MAX_PIECES = 1024 };
#define PIECE_BYTES (UINT64_C(1) << 30) /* the kernel's limit */
#define WAKE_TAG    UINT64_MAX

typedef struct uring_state {
    const mox_uring_table *table;
    void *ring;
    pthread_t thread;
    int event;      /* eventfd; -1: none */
    uint64_t count; /* what a read of it gives */
    bool listening; /* a read of it is in the ring */
    bool woken;     /* it was written to since the thread last looked; with the lock */
    struct iovec *pieces;
    int32_t n_chunks, n_free;
    mox_read_chunk *chunks; /* [n_chunks] */
    int32_t *unused;        /* [n_free] of them */
} uring_state;

/* ---- module ------------------------------------------------------------------------------------------- */

static moxie_status open_module(const mox_uring_table **out, moxie_error *error)
{
    static const mox_module_name name = { .file = "libmoxie_uring.so",
                                          .variable = "MOXIE_URING_LIBRARY",
                                          .needed_by = "reading by io_uring",
                                          .build = "liburing-dev installed",
                                          .instead = "read by pread" };
    mox_module module;
    MOX_TRY(mox_module_open(&name, &module, error));
    const mox_uring_table *table = mox_module_table(&module, MOX_URING_TABLE_SYMBOL);
    MOX_FAIL_IF(table == NULL || table->version != MOX_URING_TABLE_VERSION || table->bytes != sizeof *table,
                MOXIE_ERR_UNSUPPORTED, error, "%s is of another build of moxie: install both from one", module.path);
    *out = table;
    return MOXIE_OK;
}

static moxie_status open_ring(const mox_uring_table *table, uint32_t reads, void **out, moxie_error *error)
{
    const int status = table->open(reads, out);
    MOX_FAIL_IF(status < 0, MOXIE_ERR_UNSUPPORTED, error,
                "the kernel refuses io_uring (%s): it is older than 5.6, a sandbox forbids it, or "
                "kernel.io_uring_disabled is set",
                strerror(-status));
    return MOXIE_OK;
}

static moxie_status find(moxie_error *error)
{
    const mox_uring_table *table;
    void *ring;
    MOX_TRY(open_module(&table, error));
    MOX_TRY(open_ring(table, 1, &ring, error));
    table->close(ring);
    return MOXIE_OK;
}

/* ---- reads -------------------------------------------------------------------------------------------- */

/* The registered piece in which a chunk lies, or -1. */
static int32_t piece_of(const mox_reader *r, const mox_read_chunk *chunk)
{
    const uring_state *u = r->state;
    for (int32_t i = 0; i < r->registered; i++) {
        const uintptr_t first = (uintptr_t)u->pieces[i].iov_base, to = (uintptr_t)chunk->to;
        if (to >= first && to + chunk->bytes <= first + u->pieces[i].iov_len)
            return i;
    }
    return -1;
}

/* The ring has room for all chunks and the eventfd. */
static void queue_chunk(const mox_reader *r, int32_t slot)
{
    uring_state *u = r->state;
    const mox_read_chunk *chunk = &u->chunks[slot];
    const mox_uring_read read = { .fd = chunk->fd,
                                  .piece = piece_of(r, chunk),
                                  .to = chunk->to,
                                  .bytes = chunk->bytes,
                                  .offset = chunk->offset,
                                  .tag = (uint64_t)slot };
    (void)u->table->read(u->ring, &read);
}

static void listen_to_event(uring_state *u)
{
    const mox_uring_read read = {
        .fd = u->event, .piece = -1, .to = &u->count, .bytes = sizeof u->count, .offset = UINT64_MAX, .tag = WAKE_TAG
    };
    if (!u->listening)
        u->listening = u->table->read(u->ring, &read) == 0;
}

/* False: the reader closes. */
static bool queue_all(mox_reader *r)
{
    uring_state *u = r->state;
    pthread_mutex_lock(&r->lock);
    u->woken = false;
    while (u->n_free > 0 && mox_read_take(r, &u->chunks[u->unused[u->n_free - 1]]))
        queue_chunk(r, u->unused[--u->n_free]);
    const bool open = !r->closing;
    pthread_mutex_unlock(&r->lock);
    return open;
}

static void take_result(mox_reader *r, int32_t slot, int64_t result)
{
    uring_state *u = r->state;
    mox_read_chunk *chunk = &u->chunks[slot];
    const int64_t seen = mox_read_faulted(r, chunk, result);
    pthread_mutex_lock(&r->lock);
    const bool again = mox_read_put(r, chunk, seen);
    pthread_mutex_unlock(&r->lock);
    if (again)
        queue_chunk(r, slot);
    else {
        chunk->request = NULL;
        u->unused[u->n_free++] = slot;
    }
}

/* The kernel no longer serves the ring: all reads fail, now and later. The lock is held. */
static void fail_all(mox_reader *r, int64_t result)
{
    uring_state *u = r->state;
    for (int32_t slot = 0; slot < u->n_chunks; slot++)
        if (u->chunks[slot].request != NULL) {
            while (mox_read_put(r, &u->chunks[slot], result))
                continue;
            u->chunks[slot].request = NULL;
        }
    while (mox_read_take(r, &u->chunks[0]))
        while (mox_read_put(r, &u->chunks[0], result))
            continue;
}

static void serve_broken(mox_reader *r, int64_t result)
{
    pthread_mutex_lock(&r->lock);
    mox_read_add_reason(r, "io_uring failed: %s", strerror((int)-result));
    while (!r->closing) {
        fail_all(r, result);
        pthread_cond_wait(&r->work, &r->lock);
    }
    pthread_mutex_unlock(&r->lock);
}

static void *work(void *context)
{
    mox_reader *r = context;
    uring_state *u = r->state;
    mox_uring_result results[RESULTS];
    while (queue_all(r)) {
        listen_to_event(u);
        const int n = u->table->wait(u->ring, results, RESULTS);
        if (n < 0 && n != -EINTR && n != -EAGAIN && n != -EBUSY) {
            serve_broken(r, n);
            break;
        }
        for (int i = 0; i < n; i++)
            if (results[i].tag == WAKE_TAG)
                u->listening = false;
            else
                take_result(r, (int32_t)results[i].tag, results[i].result);
    }
    return NULL;
}

/* ---- start and stop ----------------------------------------------------------------------------------- */

static void wake(mox_reader *r)
{
    static const uint64_t one = 1;
    uring_state *u = r->state;
    pthread_cond_signal(&r->work); /* of serve_broken() */
    if (!u->woken)
        u->woken = write(u->event, &one, sizeof one) == sizeof one;
}

/* Cuts the caller's buffers into pieces and registers them. Without that, reads work too. */
static void register_buffers(mox_reader *r)
{
    uring_state *u = r->state;
    int32_t n = 0;
    if (r->n_buffers == 0)
        return;
    u->pieces = mox_calloc(MAX_PIECES, sizeof *u->pieces);
    for (int32_t i = 0; u->pieces != NULL && i < r->n_buffers; i++)
        for (uint64_t at = 0; at < r->buffers[i].bytes && n < MAX_PIECES; at += PIECE_BYTES) {
            const uint64_t left = r->buffers[i].bytes - at;
            u->pieces[n].iov_base = (uint8_t *)r->buffers[i].data + at;
            u->pieces[n++].iov_len = left < PIECE_BYTES ? left : PIECE_BYTES;
        }
    const int status = u->pieces != NULL ? u->table->pin(u->ring, u->pieces, (uint32_t)n) : -ENOMEM;
    r->registered = status == 0 ? n : 0;
    if (status != 0)
        mox_read_add_reason(r, "buffers are not registered (%s): `ulimit -l` limits them", strerror(-status));
}

static void free_state(mox_reader *r)
{
    uring_state *u = r->state;
    if (u->ring != NULL)
        u->table->close(u->ring);
    if (u->event >= 0)
        close(u->event);
    mox_free(u->pieces);
    mox_free(u->unused);
    mox_free(u->chunks);
    mox_free(u);
    r->state = NULL;
}

static moxie_status make_ring(mox_reader *r, moxie_error *error)
{
    uring_state *u = r->state;
    MOX_TRY(open_module(&u->table, error));
    u->n_chunks = u->n_free = r->depth * r->n_drives;
    u->chunks = mox_calloc((uint64_t)u->n_chunks, sizeof *u->chunks);
    u->unused = mox_calloc((uint64_t)u->n_chunks, sizeof *u->unused);
    MOX_FAIL_IF(u->chunks == NULL || u->unused == NULL, MOXIE_ERR_MEMORY, error, "no memory for a list of reads");
    for (int32_t i = 0; i < u->n_chunks; i++)
        u->unused[i] = i;
    MOX_TRY(open_ring(u->table, (uint32_t)u->n_chunks + 1, &u->ring, error));
    u->event = eventfd(0, EFD_CLOEXEC);
    MOX_FAIL_IF(u->event < 0, MOXIE_ERR_UNSUPPORTED, error, "no eventfd: %m");
    return MOXIE_OK;
}

static moxie_status start(mox_reader *r, moxie_error *error)
{
    uring_state *u = mox_alloc(sizeof *u);
    MOX_FAIL_IF(u == NULL, MOXIE_ERR_MEMORY, error, "no memory for a ring of reads");
    u->event = -1;
    r->state = u;
    moxie_status status = make_ring(r, error);
    if (status == MOXIE_OK) {
        register_buffers(r);
        const int failed = mox_read_start_thread(&u->thread, work, r);
        if (failed != 0)
            status = mox_fail(MOXIE_ERR_UNSUPPORTED, error, "its thread does not start: %s", strerror(failed));
    }
    if (status != MOXIE_OK) {
        r->registered = 0;
        free_state(r);
        return status;
    }
    r->threads = 1;
    mox_read_add_reason(r, "%s", u->table->built);
    return MOXIE_OK;
}

static void stop(mox_reader *r)
{
    uring_state *u = r->state;
    pthread_join(u->thread, NULL);
    free_state(r);
}

const mox_read_engine mox_read_engine_uring = {
    .name = "uring", .find = find, .start = start, .wake = wake, .stop = stop
};
