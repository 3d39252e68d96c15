/* SPDX-License-Identifier: Apache-2.0
 *
 * read_pread.c - chunks by pread(), on threads of its own: works everywhere.
 *
 *     thread: take a chunk -> pread -> put -> ...; sleeps while there is none
 *
 * As many chunks are in flight as there are threads. Where the system starts fewer threads than were asked for, these
 * do; where it starts none, the calls that wait for requests read in their place.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "store/read_engine.h"

enum { MAX_THREADS = 16 }; /* by default */

typedef struct pread_threads {
    int32_t started;
    pthread_t threads[];
} pread_threads;

static void read_whole(mox_reader *r, mox_read_chunk *chunk)
{
    bool again = true;
    while (again) {
        pthread_mutex_unlock(&r->lock);
        const int64_t done = pread(chunk->fd, chunk->to, chunk->bytes, (off_t)chunk->offset);
        const int64_t result = mox_read_faulted(r, chunk, done < 0 ? -errno : done);
        pthread_mutex_lock(&r->lock);
        again = mox_read_put(r, chunk, result);
    }
}

bool mox_read_one_chunk(mox_reader *r)
{
    mox_read_chunk chunk;
    if (!mox_read_take(r, &chunk))
        return false;
    if (r->queue.first != NULL || r->urgent.first != NULL)
        pthread_cond_signal(&r->work); /* one thread wakes the next */
    read_whole(r, &chunk);
    return true;
}

static void *work(void *context)
{
    mox_reader *r = context;
    pthread_mutex_lock(&r->lock);
    while (!r->closing)
        if (!mox_read_one_chunk(r))
            pthread_cond_wait(&r->work, &r->lock);
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

int mox_read_start_thread(pthread_t *out, void *(*fn)(void *), mox_reader *r)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(out, NULL, fn, r);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

static int32_t count_wanted(const mox_reader *r)
{
    const int32_t on_a_drive = r->depth < MAX_THREADS ? r->depth : MAX_THREADS;
    return r->threads > 0 ? r->threads : on_a_drive * r->n_drives;
}

static moxie_status start(mox_reader *r, moxie_error *error)
{
    const int32_t wanted = count_wanted(r);
    int failed = 0;
    pread_threads *p = mox_alloc(sizeof *p + (uint64_t)wanted * sizeof p->threads[0]);
    MOX_FAIL_IF(p == NULL, MOXIE_ERR_MEMORY, error, "no memory for the list of %d threads that read", (int)wanted);
    r->state = p;
    while (p->started < wanted && (failed = mox_read_start_thread(&p->threads[p->started], work, r)) == 0)
        p->started++;
    if (failed != 0)
        mox_read_add_reason(r, "of %d threads that read, the system started %d (%s)%s", (int)wanted, (int)p->started,
                            strerror(failed), p->started == 0 ? ": who waits for a record reads it" : "");
    r->threads = p->started;
    return MOXIE_OK;
}

static void stop(mox_reader *r)
{
    pread_threads *p = r->state;
    for (int32_t t = 0; t < p->started; t++)
        pthread_join(p->threads[t], NULL);
    mox_free(p);
}

static moxie_status find(moxie_error *error)
{
    (void)error;
    return MOXIE_OK;
}

const mox_read_engine mox_read_engine_pread = { .name = "pread", .find = find, .start = start, .stop = stop };
