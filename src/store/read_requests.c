/* SPDX-License-Identifier: Apache-2.0
 *
 * read_requests.c - requests of records are submitted, awaited and judged (record_reader.h).
 */
#include <errno.h>

#include "base/clock.h"
#include "store/read_engine.h"

/* ---- requests ----------------------------------------------------------------------------------------- */

static moxie_status check_request(const mox_reader *r, const mox_read_request *q, moxie_error *error)
{
    MOX_FAIL_IF(q->file < 0 || q->file >= r->n_files, MOXIE_ERR_ARGUMENT, error,
                "a record of file %d was asked for; the reader has %d", (int)q->file, (int)r->n_files);
    MOX_FAIL_IF(q->bytes == 0 || q->to == NULL || (q->offset | q->bytes | (uintptr_t)q->to) % MOX_READ_ALIGN != 0 ||
                    q->offset + q->bytes < q->bytes || q->offset + q->bytes > INT64_MAX,
                MOXIE_ERR_ARGUMENT, error,
                "%llu bytes at %llu were asked for, into %p: all three are multiples of %llu, and none is zero but the "
                "offset",
                (unsigned long long)q->bytes, (unsigned long long)q->offset, q->to, (unsigned long long)MOX_READ_ALIGN);
    return MOXIE_OK;
}

moxie_status mox_reader_submit(mox_reader *r, mox_read_request *q, moxie_error *error)
{
    MOX_TRY(check_request(r, q, error));
    q->failed = 0;
    q->failed_at = q->begun = 0;
    q->in_flight = 0;
    pthread_mutex_lock(&r->lock);
    q->state = MOX_READ_QUEUED;
    mox_read_list_add(mox_read_list_of(r, q), q);
    r->under_way++;
    r->counters.requests++;
    if (r->engine->wake != NULL)
        r->engine->wake(r);
    else
        pthread_cond_signal(&r->work);
    pthread_mutex_unlock(&r->lock);
    return MOXIE_OK;
}

void mox_reader_raise(mox_reader *r, mox_read_request *q)
{
    pthread_mutex_lock(&r->lock);
    if (q->state == MOX_READ_QUEUED && !q->urgent) {
        mox_read_list_remove(&r->queue, q);
        mox_read_list_add(&r->urgent, q);
        q->urgent = true;
    }
    pthread_mutex_unlock(&r->lock);
}

void mox_reader_cancel(mox_reader *r, mox_read_request *q)
{
    pthread_mutex_lock(&r->lock);
    mox_read_drop(r, q, ECANCELED);
    pthread_mutex_unlock(&r->lock);
}

/* ---- waiting; the lock is held ------------------------------------------------------------------------ */

static mox_read_request *hand_over(mox_reader *r, mox_read_request *q)
{
    if (q != NULL) {
        mox_read_list_remove(&r->finished, q);
        q->state = MOX_READ_IDLE;
    }
    return q;
}

/* Waits for a change, or reads a chunk where there is no thread. False at `until`. */
static bool wait_for_change(mox_reader *r, uint64_t until)
{
    if (mox_clock_now() >= until)
        return false;
    if (r->threads == 0 && mox_read_one_chunk(r)) {
        pthread_cond_broadcast(&r->done); /* others that wait may read now */
        return true;
    }
    if (until == MOX_READ_FOREVER) {
        pthread_cond_wait(&r->done, &r->lock);
        return true;
    }
    const struct timespec at = { .tv_sec = (time_t)(until / 1000000000), .tv_nsec = (long)(until % 1000000000) };
    return pthread_cond_timedwait(&r->done, &r->lock, &at) != ETIMEDOUT;
}

mox_read_request *mox_reader_poll(mox_reader *r)
{
    pthread_mutex_lock(&r->lock);
    mox_read_request *q = hand_over(r, r->finished.first);
    pthread_mutex_unlock(&r->lock);
    return q;
}

mox_read_request *mox_reader_wait(mox_reader *r, uint64_t until)
{
    pthread_mutex_lock(&r->lock);
    while (r->finished.first == NULL && r->under_way > 0 && wait_for_change(r, until))
        continue;
    mox_read_request *q = hand_over(r, r->finished.first);
    pthread_mutex_unlock(&r->lock);
    return q;
}

bool mox_reader_wait_for(mox_reader *r, mox_read_request *q, uint64_t until)
{
    pthread_mutex_lock(&r->lock);
    while (q->state != MOX_READ_DONE && q->state != MOX_READ_IDLE && wait_for_change(r, until))
        continue;
    const bool done = q->state == MOX_READ_DONE;
    if (done)
        hand_over(r, q);
    const bool idle = q->state == MOX_READ_IDLE;
    pthread_mutex_unlock(&r->lock);
    return idle;
}

/* ---- results ------------------------------------------------------------------------------------------ */

moxie_status mox_reader_result(const mox_reader *r, const mox_read_request *q, moxie_error *error)
{
    if (q->failed == 0)
        return MOXIE_OK;
    const char *path = r->files[q->file].copies[0].path;
    const bool both = r->files[q->file].n_copies > 1;
    if (q->failed == ECANCELED)
        return mox_fail_file(MOXIE_ERR_IO, error, path, (int64_t)q->failed_at, "a read was cancelled");
    if (q->failed == MOX_READ_ENDED)
        return mox_fail_file(
            MOXIE_ERR_FORMAT, error, path, (int64_t)q->failed_at,
            "the file%s here, but a record of %llu bytes from %llu on was asked for: it was cut short; "
            "prepare it anew",
            both ? " and its mirror end" : " ends", (unsigned long long)q->bytes, (unsigned long long)q->offset);
    errno = q->failed;
    return mox_fail_file(MOXIE_ERR_IO, error, path, (int64_t)q->failed_at, "cannot read it%s: %m",
                         both ? ", nor its mirror" : "");
}

void mox_reader_get_info(mox_reader *r, mox_reader_info *out)
{
    pthread_mutex_lock(&r->lock);
    *out = r->counters;
    out->engine = r->engine->name;
    out->why = r->why;
    out->depth = r->depth;
    out->threads = r->threads;
    out->drives = r->n_drives;
    out->chunk_bytes = r->chunk_bytes;
    out->registered = r->registered;
    for (int32_t i = 0; i < r->n_files; i++)
        for (int32_t c = 0; c < r->files[i].n_copies; c++) {
            out->copies++;
            out->direct_copies += r->files[i].copies[c].direct;
        }
    pthread_mutex_unlock(&r->lock);
}
