/* SPDX-License-Identifier: Apache-2.0
 *
 * test_lazy_graph.c - captures of lazy streams, and graphs (test_lazy_queue.h). A launch enqueues what was captured
 * again: on the stream of the launch, and for each stream that had joined on one that lives until it is empty.
 */
#include "test_lazy_queue.h"

#include <stdlib.h>
#include <string.h>

#include "test_support.h"

static _Thread_local int captures; /* of this thread */
static int alive;                  /* atomic */
static lazy_stream *(*resolve)(mox_cuda_stream stream);

bool lazy_may_wait(void)
{
    return captures == 0;
}

int lazy_graphs(void)
{
    return alive;
}

/* ---- capture --------------------------------------------------------------------------------------------- */

static int larger(int a, int b)
{
    return a > b ? a : b;
}

void lazy_capture_push(lazy_stream *stream, lazy_op *op)
{
    lazy_capture *c = stream->capture;
    int *knows = c->knows[stream->place];
    op->place = stream->place;
    if (op->kind == LAZY_WORK)
        knows[op->place] = ++c->count[op->place];
    if (op->kind == LAZY_RECORD) {
        op->ticket->capture = c;
        op->ticket->number = c->tickets++;
        memcpy(op->ticket->knows, knows, sizeof op->ticket->knows);
    }
    if (op->kind == LAZY_WAIT) {
        assert_ptr_equal(op->ticket->capture, c); /* CUDA: cudaErrorStreamCaptureIsolation */
        for (int i = 0; i < LAZY_CAPTURED; i++)
            knows[i] = larger(knows[i], op->ticket->knows[i]);
    }
    *c->tail = op;
    c->tail = &op->next;
}

void lazy_capture_join(lazy_stream *stream, const lazy_ticket *ticket)
{
    lazy_capture *c = ticket->capture;
    if (stream->capture == c)
        return;
    assert_false(c->ended); /* the event has to be recorded anew */
    assert_null(stream->capture);
    assert_true(c->streams < LAZY_CAPTURED);
    stream->capture = c;
    stream->place = c->streams;
    c->of[c->streams++] = stream;
}

static moxie_status capture_begin(mox_cuda_stream stream, moxie_error *error)
{
    lazy_stream *s = resolve(stream);
    lazy_capture *c = calloc(1, sizeof *c);
    (void)error;
    assert_non_null(c);
    assert_null(s->capture);
    c->tail = &c->ops;
    c->of[0] = s;
    c->streams = 1;
    s->place = 0;
    s->capture = c;
    captures++;
    return MOXIE_OK;
}

static void free_ops(lazy_op *op)
{
    while (op != NULL) {
        lazy_op *next = op->next;
        lazy_ticket_drop(op->ticket);
        free(op);
        op = next;
    }
}

/* A capture lives as long as its graph: tickets point to it. */
static void graph_destroy(void *graph)
{
    lazy_capture *c = graph;
    if (c == NULL)
        return;
    lazy_lock();
    free_ops(c->ops);
    c->ops = NULL;
    lazy_unlock();
    __atomic_sub_fetch(&alive, 1, __ATOMIC_RELAXED);
}

/* The captures of a process, which events may remember when their graphs are gone. */
static lazy_capture *kept[1 << 16];
static int n_kept; /* atomic */

static moxie_status capture_end(mox_cuda_stream stream, void **graph, moxie_error *error)
{
    lazy_stream *s = resolve(stream);
    lazy_capture *c = s->capture;
    bool joined = true;
    assert_non_null(c);
    assert_int_equal(s->place, 0);
    captures--;
    lazy_lock();
    for (int i = 0; i < c->streams; i++) {
        joined = joined && c->knows[0][i] == c->count[i];
        c->of[i]->capture = NULL;
    }
    c->ended = true;
    lazy_unlock();
    kept[__atomic_fetch_add(&n_kept, 1, __ATOMIC_RELAXED)] = c;
    __atomic_add_fetch(&alive, 1, __ATOMIC_RELAXED);
    if (!joined)
        graph_destroy(c);
    MOX_FAIL_IF(!joined, MOXIE_ERR_IO, error, "a stream that was captured, too, has not been joined");
    *graph = c;
    return MOXIE_OK;
}

static moxie_status capture_apart_begin(mox_cuda_stream like, mox_cuda_stream *apart, moxie_error *error)
{
    *apart = lazy_stream_make(resolve(like)->device);
    return capture_begin(*apart, error);
}

static moxie_status capture_apart_end(mox_cuda_stream apart, void **graph, moxie_error *error)
{
    const moxie_status status = capture_end(apart, graph, error);
    lazy_stream_drop(apart);
    return status;
}

static moxie_status capturing(mox_cuda_stream stream, int32_t *out, moxie_error *error)
{
    (void)error;
    *out = resolve(stream)->capture != NULL;
    return MOXIE_OK;
}

/* ---- launch ---------------------------------------------------------------------------------------------- */

static moxie_status graph_launch(void *graph, mox_cuda_stream stream, moxie_error *error)
{
    const lazy_capture *c = graph;
    lazy_stream *on[LAZY_CAPTURED] = { resolve(stream) };
    lazy_ticket **tickets = calloc((size_t)c->tickets + 1, sizeof *tickets);
    (void)error;
    assert_non_null(tickets);
    for (int i = 1; i < c->streams; i++)
        on[i] = lazy_stream_make(on[0]->device);
    for (int i = 0; i < c->tickets; i++)
        tickets[i] = lazy_ticket_make();
    for (const lazy_op *op = c->ops; op != NULL; op = op->next)
        lazy_push(on[op->place], op->kind, op->work, op->args, op->bytes,
                  op->ticket != NULL ? tickets[op->ticket->number] : NULL);
    lazy_lock();
    for (int i = 0; i < c->tickets; i++)
        lazy_ticket_drop(tickets[i]);
    lazy_unlock();
    for (int i = 1; i < c->streams; i++)
        lazy_stream_drop(on[i]);
    free(tickets);
    return MOXIE_OK;
}

void lazy_graph_fill(mox_cuda_table *table, lazy_stream *(*of)(mox_cuda_stream stream))
{
    resolve = of;
    table->capture_begin = capture_begin;
    table->capture_end = capture_end;
    table->capture_apart_begin = capture_apart_begin;
    table->capture_apart_end = capture_apart_end;
    table->graph_launch = graph_launch;
    table->graph_destroy = graph_destroy;
    table->capturing = capturing;
}
