/* SPDX-License-Identifier: Apache-2.0
 *
 * test_lazy_queue.c - streams, tickets and steps (test_lazy_queue.h).
 */
#include "test_lazy_queue.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "test_support.h"

enum { WAIT = 120 }; /* s, after which a wait is taken for a deadlock */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static lazy_stream *streams;
static uint64_t state;                            /* of the seed */
static enum { ANY, OLDEST, NEWEST, SAME } choice; /* which stream is preferred */
static const lazy_stream *latest;

void lazy_lock(void)
{
    pthread_mutex_lock(&lock);
}

void lazy_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

void lazy_queue_seed(uint64_t seed)
{
    lazy_lock();
    state = seed;
    choice = seed % 4;
    lazy_unlock();
}

/* ---- streams and tickets ----------------------------------------------------------------------------------- */

static moxie_status push_later(const test_stream *face, test_cuda_work work, const void *args, size_t bytes)
{
    lazy_push((lazy_stream *)(uintptr_t)face, LAZY_WORK, work, args, bytes, NULL);
    return MOXIE_OK;
}

lazy_stream *lazy_stream_make(int32_t device)
{
    lazy_stream *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->face = (test_stream) { .may_wait = lazy_may_wait, .later = push_later };
    s->tail = &s->head;
    s->device = device;
    lazy_lock();
    lazy_stream **end = &streams;
    while (*end != NULL)
        end = &(*end)->next;
    *end = s;
    lazy_unlock();
    return s;
}

/* The caller has the lock. */
static void free_if_unused(lazy_stream *s)
{
    if (!s->destroyed || s->head != NULL)
        return;
    for (lazy_stream **at = &streams; *at != NULL; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            free(s);
            return;
        }
}

void lazy_stream_drop(lazy_stream *stream)
{
    lazy_lock();
    stream->destroyed = true;
    free_if_unused(stream);
    lazy_unlock();
}

int lazy_streams(void)
{
    int count = 0;
    lazy_lock();
    for (const lazy_stream *s = streams; s != NULL; s = s->next)
        count += !s->destroyed;
    lazy_unlock();
    return count;
}

lazy_ticket *lazy_ticket_make(void)
{
    lazy_ticket *t = calloc(1, sizeof *t);
    assert_non_null(t);
    t->references = 1;
    return t;
}

void lazy_ticket_drop(lazy_ticket *ticket)
{
    if (ticket != NULL && --ticket->references == 0)
        free(ticket);
}

void lazy_push(lazy_stream *stream, lazy_kind kind, test_cuda_work work, const void *args, size_t bytes,
               lazy_ticket *ticket)
{
    lazy_op *op = malloc(sizeof *op + bytes);
    assert_non_null(op);
    *op = (lazy_op) { .kind = kind, .work = work, .ticket = ticket, .bytes = bytes };
    if (bytes > 0)
        memcpy(op->args, args, bytes);
    lazy_lock();
    if (ticket != NULL)
        ticket->references++;
    if (kind == LAZY_WAIT && ticket->capture != NULL)
        lazy_capture_join(stream, ticket);
    if (stream->capture != NULL) {
        lazy_capture_push(stream, op);
    } else {
        *stream->tail = op;
        stream->tail = &op->next;
    }
    lazy_unlock();
}

/* Not test_below(), which the library of this table (plain/plain_table.c) does not have. */
static uint64_t below(uint64_t bound)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (state >> 33) % bound;
}

/* ---- steps --------------------------------------------------------------------------------------------------- */

/* Does the first of a stream. False: it cannot be done yet. The caller has the lock. */
static bool step_of(lazy_stream *s)
{
    lazy_op *op = s->head;
    moxie_error error = { 0 };
    if (op == NULL || (op->kind == LAZY_WAIT && !op->ticket->done))
        return false;
    const moxie_status status = op->kind == LAZY_WORK ? op->work(op->args, &error) : MOXIE_OK;
    if (status == MOXIE_ERR_TIMEOUT)
        return false;
    if (status != MOXIE_OK) {
        fprintf(stderr, "what a lazy stream has to do fails: %s\n", error.text);
        abort();
    }
    if (op->kind == LAZY_RECORD)
        op->ticket->done = true;
    s->head = op->next;
    if (s->head == NULL)
        s->tail = &s->head;
    lazy_ticket_drop(op->ticket);
    free(op);
    latest = s;
    free_if_unused(s);
    return true;
}

/* One step of any stream; false: none is possible. The caller has the lock. */
static bool step(void)
{
    lazy_stream *all[1024];
    int count = 0, at = 0;
    for (lazy_stream *s = streams; s != NULL && count < 1024; s = s->next) {
        if (s->head == NULL)
            continue;
        if (s == latest)
            at = count;
        all[count++] = s;
    }
    if (count == 0)
        return false;
    if (choice == ANY || (choice == SAME && below(8) == 0))
        at = (int)below((uint64_t)count);
    else if (choice != SAME)
        at = choice == OLDEST ? 0 : count - 1;
    for (int i = 0; i < count; i++)
        if (step_of(all[(choice == NEWEST ? at - i + count : at + i) % count]))
            return true;
    return false;
}

bool lazy_look(const lazy_ticket *ticket)
{
    lazy_lock();
    while (!ticket->done && step())
        ;
    const bool done = ticket->done;
    lazy_unlock();
    return done;
}

/* Other threads have to enqueue what comes next. */
static void give_way(void)
{
    nanosleep(&(struct timespec) { .tv_nsec = 20000 }, NULL);
}

moxie_status lazy_wait(lazy_ticket *ticket, moxie_error *error)
{
    const time_t begin = time(NULL);
    while (!lazy_look(ticket)) {
        MOX_FAIL_IF(time(NULL) - begin > WAIT, MOXIE_ERR_IO, error, "a stream has not ended within %d s", WAIT);
        give_way();
    }
    return MOXIE_OK;
}

void lazy_drain(int32_t device, int seconds)
{
    const time_t begin = time(NULL);
    for (bool empty = false; !empty && time(NULL) - begin <= seconds;) {
        lazy_lock();
        while (step())
            ;
        empty = true;
        for (const lazy_stream *s = streams; s != NULL; s = s->next)
            empty = empty && (s->head == NULL || (device >= 0 && s->device != device));
        lazy_unlock();
        if (!empty)
            give_way();
    }
}
