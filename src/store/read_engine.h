/* SPDX-License-Identifier: Apache-2.0
 *
 * read_engine.h - what a reader (record_reader.h) and its engine know of each other.
 *
 *     engine: take a chunk -> read it -> put its result -> read the rest of it, or take another
 *
 * A chunk is a part of one request, on one copy of its file. The reader keeps the queue, the accounts of drives and all
 * results; an engine only reads. read_open.c and read_requests.c have the calls, read_queue.c queue and results.
 */
#ifndef MOX_STORE_READ_ENGINE_H
#define MOX_STORE_READ_ENGINE_H

#include <pthread.h>

#include "store/record_reader.h"

typedef struct mox_read_chunk {
    mox_read_request *request;
    int32_t copy, drive;
    bool tried_other; /* the other copy has failed */
    bool direct;      /* the fd was O_DIRECT when the chunk was taken */
    int fd;
    uint64_t offset;
    uint8_t *to;
    uint32_t bytes; /* still to read */
} mox_read_chunk;

typedef struct mox_read_engine {
    const char *name;
    /* MOXIE_OK where it works. */
    moxie_status (*find)(moxie_error *error);
    /* Starts to take chunks. On failure nothing is left, and `error` says why. */
    moxie_status (*start)(mox_reader *reader, moxie_error *error);
    /* There is something to take, or `closing` is set; the lock is held. NULL: it waits for `work`. */
    void (*wake)(mox_reader *reader);
    /* Joins its threads, once `closing` is set and nothing is in flight. */
    void (*stop)(mox_reader *reader);
} mox_read_engine;
#define MOX_READ_ENGINE(id, name, about) extern const mox_read_engine mox_read_engine_##id;
#include "store/read_engines.def"
#undef MOX_READ_ENGINE

/* One path of a file. */
typedef struct mox_read_copy {
    char *path;
    int fd;      /* -1: not opened */
    bool direct; /* the fd is O_DIRECT */
    int32_t drive;
    uint64_t reads; /* of equally busy drives the copy with fewer reads is taken */
} mox_read_copy;

typedef struct mox_reader_file {
    mox_read_copy copies[2];
    int32_t n_copies;
} mox_reader_file;

typedef struct mox_read_list {
    mox_read_request *first, *last;
} mox_read_list;

struct mox_reader {
    const mox_read_engine *engine;
    void *state; /* the engine's */
    int32_t depth, threads;
    uint64_t chunk_bytes;
    bool buffered;
    mox_read_buffer *buffers;
    int32_t n_buffers, registered;
    mox_read_fault fault;
    void *fault_user;
    char why[512];

    mox_reader_file *files;
    int32_t n_files, n_drives;
    uint64_t devices[MOX_READ_DRIVES];

    pthread_mutex_t lock; /* of all below, and of `copies` */
    pthread_cond_t work;  /* there may be a chunk to take */
    pthread_cond_t done;  /* a request is done */
    mox_read_list urgent, queue, finished;
    int32_t under_way; /* requests: submitted, not done */
    int32_t in_flight, drive_in_flight[MOX_READ_DRIVES];
    bool closing;
    mox_reader_info counters;
};

enum { MOX_READ_IDLE, MOX_READ_QUEUED, MOX_READ_BEGUN, MOX_READ_DONE }; /* mox_read_request.state */

/* ---- read_queue.c; the lock is held ---------------------------------------------------------------- */

void mox_read_list_add(mox_read_list *list, mox_read_request *request);
void mox_read_list_remove(mox_read_list *list, mox_read_request *request);
/* The list in which a queued request is. */
mox_read_list *mox_read_list_of(mox_reader *reader, const mox_read_request *request);

/* Cuts a chunk off a queued request whose file is on a drive that has room. False: there is none. */
bool mox_read_take(mox_reader *reader, mox_read_chunk *out);
/* Ends a read: bytes, or -errno. True: read again what is left of the chunk, which changed. */
bool mox_read_put(mox_reader *reader, mox_read_chunk *chunk, int64_t result);
/* What is not begun of the request will not be. */
void mox_read_drop(mox_reader *reader, mox_read_request *request, int failed);

/* What the reader shall see of a result: the same, but in tests. Without the lock. */
static inline int64_t mox_read_faulted(const mox_reader *r, const mox_read_chunk *chunk, int64_t result)
{
    return r->fault == NULL ? result
                            : r->fault(r->fault_user, chunk->request->file, chunk->copy, chunk->offset, result);
}

/* Adds to `why`, which mox_reader_info shows (read_open.c). */
void mox_read_add_reason(mox_reader *reader, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- read_pread.c ----------------------------------------------------------------------------------- */

/* pthread_create, with all signals blocked: these are for the threads of the application. */
int mox_read_start_thread(pthread_t *out, void *(*fn)(void *), mox_reader *reader);
/* Takes one chunk and reads it whole, in this thread. The lock is held, but not while it reads. False: none to take. */
bool mox_read_one_chunk(mox_reader *reader);

#endif
