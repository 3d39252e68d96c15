/* SPDX-License-Identifier: Apache-2.0
 *
 * test_late.c - copies that come late (test_late.h).
 */
#include "test_late.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/cuda_loader.h"
#include "test_support.h"

/* A stream whose copies wait until an event behind them, or the stream, is waited for. */
enum { LATE = 4096 };
typedef struct late_stream {
    struct {
        void *to;
        const void *from;
        uint64_t bytes;
    } copies[LATE];
    int begun, done;
} late_stream;

typedef struct late_event {
    void *real;
    late_stream *stream; /* NULL: nothing of a late stream was recorded */
    int mark;
} late_event;

static const mox_cuda_table *real;
static mox_cuda_table late;
static late_stream the_stream;
static bool makes_late;
static int came;

static void catch_up(late_stream *s, int mark)
{
    for (; s->done < mark; s->done++, came++)
        memcpy(s->copies[s->done % LATE].to, s->copies[s->done % LATE].from, s->copies[s->done % LATE].bytes);
}

static moxie_status late_stream_create(mox_cuda_stream *out, moxie_error *error)
{
    if (!makes_late)
        return real->stream_create(out, error);
    *out = &the_stream;
    return MOXIE_OK;
}

static void late_stream_destroy(mox_cuda_stream stream)
{
    if (stream != &the_stream)
        real->stream_destroy(stream);
}

static moxie_status late_stream_wait(mox_cuda_stream stream, moxie_error *error)
{
    if (stream == &the_stream)
        catch_up(&the_stream, the_stream.begun);
    return stream == &the_stream ? MOXIE_OK : real->stream_wait(stream, error);
}

static moxie_status late_copy(void *to, const void *from, uint64_t bytes, mox_cuda_stream stream, moxie_error *error)
{
    if (stream != &the_stream)
        return real->copy(to, from, bytes, stream, error);
    assert_true(the_stream.begun - the_stream.done < LATE);
    the_stream.copies[the_stream.begun % LATE].to = to;
    the_stream.copies[the_stream.begun % LATE].from = from;
    the_stream.copies[the_stream.begun++ % LATE].bytes = bytes;
    return MOXIE_OK;
}

static moxie_status late_event_create(mox_cuda_event *out, moxie_error *error)
{
    late_event *event = calloc(1, sizeof *event);
    *out = event;
    return real->event_create(&event->real, error);
}

static void late_event_destroy(mox_cuda_event event)
{
    if (event != NULL)
        real->event_destroy(((late_event *)event)->real);
    free(event);
}

static moxie_status late_event_record(mox_cuda_event event, mox_cuda_stream stream, moxie_error *error)
{
    late_event *e = event;
    e->stream = stream == &the_stream ? &the_stream : NULL;
    e->mark = the_stream.begun;
    return real->event_record(e->real, stream, error);
}

static moxie_status late_event_wait(mox_cuda_event event, moxie_error *error)
{
    late_event *e = event;
    if (e->stream != NULL)
        catch_up(e->stream, e->mark);
    return real->event_wait(e->real, error);
}

static moxie_status late_stream_follow(mox_cuda_stream stream, mox_cuda_event event, moxie_error *error)
{
    late_event *e = event;
    (void)error;
    if (e->stream != NULL && stream != &the_stream)
        catch_up(e->stream, e->mark);
    return MOXIE_OK;
}

int test_late_copies(void)
{
    return came;
}

bool test_late_set(bool on)
{
    const bool was = makes_late;
    makes_late = on && real != NULL;
    return was;
}

void test_late_begin(void)
{
    assert_int_equal(mox_cuda_open(&real, NULL), MOXIE_OK);
    late = *real;
    late.stream_create = late_stream_create;
    late.stream_destroy = late_stream_destroy;
    late.stream_wait = late_stream_wait;
    late.copy = late_copy;
    late.event_create = late_event_create;
    late.event_destroy = late_event_destroy;
    late.event_record = late_event_record;
    late.event_wait = late_event_wait;
    late.stream_follow = late_stream_follow;
    mox_cuda_replace(&late);
    makes_late = true;
}

void test_late_end(void)
{
    makes_late = false;
    real = NULL;
}
