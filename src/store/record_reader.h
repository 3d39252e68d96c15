/* SPDX-License-Identifier: Apache-2.0
 *
 * record_reader.h - reads records of expert files in the background, as fast as the disks can.
 *
 *     submit(request)  ->  queue  ->  chunks of chunk_bytes, `depth` in flight on each drive  ->  done  ->  wait, poll
 *
 * Disks need many large reads at a time. So a request is cut into chunks, and threads keep `depth` of them in flight on
 * every drive while the caller computes. Requests are the caller's memory: submitting and waiting allocate nothing.
 *
 * A file may have a mirror: the same bytes on another drive. Each chunk goes to the copy whose drive has room; what one
 * copy cannot read is read from the other. Files on several drives (stripes) are read side by side.
 *
 * Reads go past the page cache (O_DIRECT) where the file system can, else through it; mox_reader_info says which.
 * Engines are rows of read_engines.def.
 */
#ifndef MOX_STORE_RECORD_READER_H
#define MOX_STORE_RECORD_READER_H

#include <stdbool.h>
#include <stdint.h>

#include <moxie/moxie_store.h>

#include "base/status.h"

/* Offsets, sizes and destinations are multiples of this: records lie on pages, padded to pages. */
#define MOX_READ_ALIGN UINT64_C(4096)
/* More drives than this share the queue of the last. */
#define MOX_READ_DRIVES 8
/* mox_read_request.failed: the file ends before the request does. */
#define MOX_READ_ENDED (-1)
/* A deadline that never comes. */
#define MOX_READ_FOREVER UINT64_MAX

typedef struct mox_reader mox_reader;

typedef struct mox_read_file {
    const char *path;
    const char *mirror; /* NULL: there is none */
} mox_read_file;

/* Memory that requests read into; an engine may register it with the kernel. */
typedef struct mox_read_buffer {
    void *data;
    uint64_t bytes;
} mox_read_buffer;

/* For tests: sees the result of each read (bytes, or -errno) and returns what the reader shall see instead. Called by
 * any thread. */
typedef int64_t (*mox_read_fault)(void *user, int32_t file, int32_t copy, uint64_t offset, int64_t result);

typedef struct mox_reader_options {
    const char *engine;             /* "auto" or NULL: the best that works here; or a name of read_engines.def */
    int32_t depth;                  /* chunks in flight on a drive; 0: 32 */
    uint64_t chunk_bytes;           /* a multiple of MOX_READ_ALIGN, at most 1 GiB; 0: 256 KiB */
    int32_t threads;                /* of the pread engine; 0: the depth, at most 16 */
    bool buffered;                  /* through the page cache, everywhere */
    const mox_read_buffer *buffers; /* [n_buffers] copied in the call; the memory outlives the reader */
    int32_t n_buffers;
    mox_read_fault fault; /* NULL: none */
    void *fault_user;
} mox_reader_options;

/* A request. The caller sets the first part, and leaves the request alone from submit until it comes back done. Zero
 * what is not set. */
typedef struct mox_read_request {
    int32_t file;           /* index into the reader's files */
    uint64_t offset, bytes; /* multiples of MOX_READ_ALIGN; bytes > 0 */
    void *to;               /* [bytes] aligned to MOX_READ_ALIGN */
    void *user;
    bool urgent; /* before all that are not: somebody waits for it */

    /* When it is done: 0; an errno (ECANCELED: cancelled); or MOX_READ_ENDED. */
    int failed;
    uint64_t failed_at; /* the offset of the read that failed */

    /* The reader's own. */
    struct mox_read_request *next, *previous;
    uint64_t begun; /* bytes that were handed to drives */
    int32_t in_flight;
    int32_t state;
} mox_read_request;

typedef struct mox_reader_info {
    const char *engine; /* static */
    const char *why; /* of this engine: what was refused before it, or what is missing. Lives as long as the reader */
    int32_t depth, threads, drives;
    uint64_t chunk_bytes;
    int32_t copies, direct_copies; /* opened files, mirrors included; those read past the page cache */
    int32_t registered;            /* pieces of buffers that the kernel knows */
    /* Counters. */
    uint64_t requests, reads, bytes;
    uint64_t drive_bytes[MOX_READ_DRIVES];
    uint64_t resumed;  /* reads that were short or interrupted, and went on */
    uint64_t mirrored; /* reads that failed on one copy, and were tried on the other */
} mox_reader_info;

/* Opens the files and starts the threads. `options` NULL: all defaults. Where no thread starts, the calls that wait
 * read themselves; where an engine that was asked for by name does not work, MOXIE_ERR_UNSUPPORTED says why. Not to be
 * used across fork(). */
moxie_status mox_reader_open(const mox_read_file *files, int32_t n_files, const mox_reader_options *options,
                             mox_reader **out, moxie_error *error);
/* Requests in flight end, all others end with ECANCELED. Nobody may wait any more. NULL is fine. */
void mox_reader_close(mox_reader *reader);

/* Queues a request; MOXIE_ERR_ARGUMENT for sizes that are not aligned, or a file that is none. Thread-safe. */
moxie_status mox_reader_submit(mox_reader *reader, mox_read_request *request, moxie_error *error);
/* Puts a queued request before all that are not urgent. Nothing changes when it is done. Thread-safe. */
void mox_reader_raise(mox_reader *reader, mox_read_request *request);
/* What was not begun will not be read; the request comes back done, with ECANCELED if anything was missing.
 * Thread-safe. */
void mox_reader_cancel(mox_reader *reader, mox_read_request *request);

/* A request that is done, or NULL. Thread-safe. */
mox_read_request *mox_reader_poll(mox_reader *reader);
/* Waits until a request is done; NULL when none is under way, or at `until` (mox_clock_now(), in ns). Thread-safe. */
mox_read_request *mox_reader_wait(mox_reader *reader, uint64_t until);
/* Waits for this request, which no other call returns then. False at `until`. Thread-safe, for different requests. */
bool mox_reader_wait_for(mox_reader *reader, mox_read_request *request, uint64_t until);

/* MOXIE_OK, or what went wrong with a request that is done, with file and offset. */
moxie_status mox_reader_result(const mox_reader *reader, const mox_read_request *request, moxie_error *error);
/* Thread-safe. */
void mox_reader_get_info(mox_reader *reader, mox_reader_info *out);

/* Body of moxie_read_engine_at; fills all but struct_size. */
bool mox_read_engine_at(int32_t i, moxie_read_engine *out);
/* Body of moxie_disk_measure; structs are the library's (read_measure.c). */
moxie_status mox_disk_measure(const char *const *paths, int32_t n, const moxie_disk_options *options,
                              moxie_disk_rate *out, moxie_error *error);

#endif
