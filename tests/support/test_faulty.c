/* SPDX-License-Identifier: Apache-2.0
 *
 * test_faulty.c - a transport with a fault (test_faulty.h).
 */
#include "test_faulty.h"

#include <time.h>

/* NULL: the rank has left. */
static const moxie_transport *pass(void *self)
{
    test_fault *f = self;
    if (!f->begun && f->first != NULL)
        f->first(f);
    f->begun = true;
    if (f->calls_left >= 0 && f->calls_left-- == 0)
        f->hook(f);
    return f->left ? NULL : &f->inner;
}

static moxie_status gone(moxie_error *error)
{
    *error = (moxie_error) { .code = MOXIE_ERR_TIMEOUT, .offset = -1, .text = "this rank has left" };
    return MOXIE_ERR_TIMEOUT;
}

static moxie_status counts(void *self, const int64_t *send, int64_t *recv, int64_t each, int64_t *request,
                           moxie_error *error)
{
    const moxie_transport *t = pass(self);
    return t == NULL ? gone(error) : t->counts(t->self, send, recv, each, request, error);
}

static moxie_status alltoallv(void *self, const moxie_comm_rows *rows, int64_t *request, moxie_error *error)
{
    const moxie_transport *t = pass(self);
    return t == NULL ? gone(error) : t->alltoallv(t->self, rows, request, error);
}

static moxie_status allgatherv(void *self, const moxie_comm_rows *rows, int64_t *request, moxie_error *error)
{
    const moxie_transport *t = pass(self);
    return t == NULL ? gone(error) : t->allgatherv(t->self, rows, request, error);
}

static moxie_status reduce_scatter(void *self, const moxie_comm_rows *rows, int64_t *request, moxie_error *error)
{
    const moxie_transport *t = pass(self);
    return t == NULL ? gone(error) : t->reduce_scatter(t->self, rows, request, error);
}

static moxie_status allreduce(void *self, void *values, int64_t n, moxie_comm_sum how, int64_t *request,
                              moxie_error *error)
{
    const moxie_transport *t = pass(self);
    return t == NULL ? gone(error) : t->allreduce(t->self, values, n, how, request, error);
}

static moxie_status barrier(void *self, int64_t *request, moxie_error *error)
{
    const moxie_transport *t = pass(self);
    return t == NULL ? gone(error) : t->barrier(t->self, request, error);
}

static moxie_status progress(void *self, int64_t request, int32_t *done, moxie_error *error)
{
    const moxie_transport *t = pass(self);
    const moxie_status status = t == NULL ? gone(error) : t->progress(t->self, request, done, error);
    if (status == MOXIE_OK && *done)
        ((test_fault *)self)->done_ms = test_now_ms();
    return status;
}

static const moxie_transport *inner(void *self)
{
    return &((test_fault *)self)->inner;
}

static int32_t late(void *self, int64_t request)
{
    return ((test_fault *)self)->left ? -1 : inner(self)->late(inner(self)->self, request);
}

static void cancel(void *self)
{
    if (!((test_fault *)self)->left)
        inner(self)->cancel(inner(self)->self);
}

static void destroy(void *self)
{
    inner(self)->destroy(inner(self)->self);
}

static void wait_for(void *self, int64_t request, int32_t ms)
{
    if (!((test_fault *)self)->left)
        inner(self)->wait(inner(self)->self, request, ms);
}

static moxie_status mask(void *self, int32_t rank, moxie_error *error)
{
    return inner(self)->mask(inner(self)->self, rank, error);
}

moxie_transport test_faulty(moxie_transport of, test_fault *fault)
{
    moxie_transport t = of;
    fault->inner = of;
    t.self = fault;
    t.counts = counts;
    t.alltoallv = alltoallv;
    t.allgatherv = allgatherv;
    t.reduce_scatter = reduce_scatter;
    t.allreduce = allreduce;
    t.barrier = barrier;
    t.progress = progress;
    t.late = late;
    t.cancel = cancel;
    t.destroy = destroy;
    t.wait = of.wait != NULL ? wait_for : NULL;
    t.mask = of.mask != NULL ? mask : NULL;
    return t;
}

void test_fault_leave(test_fault *fault)
{
    fault->left = true;
    fault->inner.cancel(fault->inner.self);
}

int64_t test_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void test_sleep_ms(int64_t ms)
{
    nanosleep(&(struct timespec) { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 }, NULL);
}
