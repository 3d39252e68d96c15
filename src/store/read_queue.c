/* SPDX-License-Identifier: Apache-2.0
 *
 * read_queue.c - which chunk is read next, and what follows from a read (read_engine.h).
 *
 *     urgent, then queue  --take-->  a chunk of the first request whose drive has room
 *     result  --put-->  short or interrupted: the rest once more | failed: the other copy | both failed: the request
 *
 * The lock is held in every function.
 */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "store/read_engine.h"

/* ---- lists -------------------------------------------------------------------------------------------- */

void mox_read_list_add(mox_read_list *list, mox_read_request *request)
{
    request->next = NULL;
    request->previous = list->last;
    if (list->last != NULL)
        list->last->next = request;
    else
        list->first = request;
    list->last = request;
}

void mox_read_list_remove(mox_read_list *list, mox_read_request *request)
{
    if (request->previous != NULL)
        request->previous->next = request->next;
    else
        list->first = request->next;
    if (request->next != NULL)
        request->next->previous = request->previous;
    else
        list->last = request->previous;
    request->next = request->previous = NULL;
}

mox_read_list *mox_read_list_of(mox_reader *reader, const mox_read_request *request)
{
    return request->urgent ? &reader->urgent : &reader->queue;
}

/* ---- take --------------------------------------------------------------------------------------------- */

/* The copy whose drive is least busy, or -1 when none has room. */
static int32_t choose_copy(const mox_reader *r, const mox_reader_file *file)
{
    int32_t best = -1;
    for (int32_t c = 0; c < file->n_copies; c++) {
        const int32_t busy = r->drive_in_flight[file->copies[c].drive];
        if (busy >= r->depth)
            continue;
        const int32_t least = best < 0 ? r->depth : r->drive_in_flight[file->copies[best].drive];
        if (busy < least || (busy == least && file->copies[c].reads < file->copies[best].reads))
            best = c;
    }
    return best;
}

static mox_read_request *find(const mox_reader *r, const mox_read_list *list, int32_t *copy)
{
    for (mox_read_request *q = list->first; q != NULL; q = q->next)
        if ((*copy = choose_copy(r, &r->files[q->file])) >= 0)
            return q;
    return NULL;
}

/* Points a chunk at a copy, and counts the read. */
static void assign(mox_reader *r, mox_read_chunk *chunk, int32_t copy)
{
    mox_read_copy *from = &r->files[chunk->request->file].copies[copy];
    chunk->copy = copy;
    chunk->drive = from->drive;
    chunk->fd = from->fd;
    chunk->direct = from->direct;
    from->reads++;
    r->drive_in_flight[from->drive]++;
}

bool mox_read_take(mox_reader *r, mox_read_chunk *out)
{
    int32_t copy = -1;
    if (r->in_flight >= r->depth * r->n_drives)
        return false;
    mox_read_request *q = find(r, &r->urgent, &copy);
    if (q == NULL)
        q = find(r, &r->queue, &copy);
    if (q == NULL)
        return false;
    const uint64_t left = q->bytes - q->begun;
    *out = (mox_read_chunk) { .request = q,
                              .offset = q->offset + q->begun,
                              .to = (uint8_t *)q->to + q->begun,
                              .bytes = (uint32_t)(left < r->chunk_bytes ? left : r->chunk_bytes) };
    assign(r, out, copy);
    q->begun += out->bytes;
    q->in_flight++;
    r->in_flight++;
    if (q->begun == q->bytes) {
        mox_read_list_remove(mox_read_list_of(r, q), q);
        q->state = MOX_READ_BEGUN;
    }
    return true;
}

/* ---- put ---------------------------------------------------------------------------------------------- */

static void finish(mox_reader *r, mox_read_request *q)
{
    q->state = MOX_READ_DONE;
    r->under_way--;
    mox_read_list_add(&r->finished, q);
    pthread_cond_broadcast(&r->done);
}

void mox_read_drop(mox_reader *r, mox_read_request *q, int failed)
{
    if (q->state != MOX_READ_QUEUED)
        return;
    mox_read_list_remove(mox_read_list_of(r, q), q);
    q->state = MOX_READ_BEGUN;
    if (q->failed == 0) {
        q->failed = failed;
        q->failed_at = q->offset + q->begun;
    }
    if (q->in_flight == 0)
        finish(r, q);
}

/* Reads through the page cache from now on: this file system, or this drive, does not read past it. The descriptor
 * keeps its number; reads that are in flight go on with what it was. */
static bool leave_direct(mox_reader *r, mox_read_chunk *chunk)
{
    mox_read_copy *copy = &r->files[chunk->request->file].copies[chunk->copy];
    if (!chunk->direct)
        return false;
    if (copy->direct) {
        const int plain = open(copy->path, O_RDONLY | O_CLOEXEC);
        copy->direct = plain < 0 || dup3(plain, copy->fd, O_CLOEXEC) < 0;
        if (plain >= 0)
            close(plain);
    }
    chunk->direct = copy->direct;
    return !chunk->direct;
}

/* Whether a result leaves something to read from the same copy. */
static bool goes_on(mox_reader *r, mox_read_chunk *chunk, int64_t result)
{
    if (result == -EINTR || result == -EAGAIN)
        return true;
    if (result == -EINVAL)
        return leave_direct(r, chunk);
    if (result <= 0)
        return false;
    /* A direct read goes on at a page only. */
    const uint32_t pages = (uint32_t)result & ~(uint32_t)(MOX_READ_ALIGN - 1);
    const uint32_t read = chunk->direct ? pages : (uint32_t)result;
    chunk->offset += read;
    chunk->to += read;
    chunk->bytes -= read;
    return read > 0 || leave_direct(r, chunk);
}

static bool try_other(mox_reader *r, mox_read_chunk *chunk)
{
    if (chunk->tried_other || r->files[chunk->request->file].n_copies < 2)
        return false;
    chunk->tried_other = true;
    r->drive_in_flight[chunk->drive]--;
    assign(r, chunk, 1 - chunk->copy);
    r->counters.mirrored++;
    return true;
}

bool mox_read_put(mox_reader *r, mox_read_chunk *chunk, int64_t result)
{
    mox_read_request *q = chunk->request;
    const uint64_t got = result > 0 ? (uint64_t)result : 0;
    r->counters.reads++;
    r->counters.bytes += got;
    r->counters.drive_bytes[chunk->drive] += got;
    const bool whole = got == chunk->bytes;
    if (!whole && q->failed == 0) {
        const bool again = goes_on(r, chunk, result);
        r->counters.resumed += again;
        if (again || try_other(r, chunk))
            return true;
        q->failed = result < 0 ? (int)-result : MOX_READ_ENDED;
        q->failed_at = chunk->offset;
        mox_read_drop(r, q, q->failed);
    }
    q->in_flight--;
    r->in_flight--;
    r->drive_in_flight[chunk->drive]--;
    if (q->in_flight == 0 && q->state == MOX_READ_BEGUN)
        finish(r, q);
    return false;
}
