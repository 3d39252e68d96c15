/* SPDX-License-Identifier: Apache-2.0
 *
 * test_lazy.c - the table of test_lazy.h: each entry of the table that it wraps, enqueued.
 */
#include "test_lazy.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "test_lazy_queue.h"
#include "test_support.h"

static const mox_cuda_table *inner;
static mox_cuda_table table;
static lazy_stream *defaults[LAZY_DEVICES];
static _Thread_local int32_t current; /* device */
static int events;                    /* atomic */

static lazy_stream *resolve(mox_cuda_stream stream)
{
    return stream != NULL ? (lazy_stream *)stream : defaults[current];
}

static moxie_status use(int32_t ordinal, moxie_error *error)
{
    assert_true(ordinal >= 0 && ordinal < LAZY_DEVICES);
    current = ordinal;
    return inner->use(ordinal, error);
}

/* ---- memory ---------------------------------------------------------------------------------------------- */

typedef struct block {
    char *memory;
    uint64_t bytes;
} block;

static pthread_mutex_t block_lock = PTHREAD_MUTEX_INITIALIZER;
static block *blocks;
static size_t n_blocks, block_room;

static void add_block(char *memory, uint64_t bytes)
{
    pthread_mutex_lock(&block_lock);
    if (n_blocks == block_room) {
        block_room = 2 * block_room + 64;
        blocks = realloc(blocks, block_room * sizeof *blocks);
        assert_non_null(blocks);
    }
    blocks[n_blocks++] = (block) { memory, bytes };
    pthread_mutex_unlock(&block_lock);
}

static void drop_block(const char *memory)
{
    pthread_mutex_lock(&block_lock);
    for (size_t i = 0; i < n_blocks; i++)
        if (blocks[i].memory == memory) {
            blocks[i] = blocks[--n_blocks];
            break;
        }
    pthread_mutex_unlock(&block_lock);
}

/* Neither of a device nor pinned. */
static bool is_pageable(const void *memory)
{
    const char *at = memory;
    bool known = false;
    pthread_mutex_lock(&block_lock);
    for (size_t i = 0; i < n_blocks && !known; i++)
        known = at >= blocks[i].memory && at < blocks[i].memory + blocks[i].bytes;
    pthread_mutex_unlock(&block_lock);
    return !known;
}

static moxie_status allocate(uint64_t bytes, void **out, moxie_error *error)
{
    assert_true(lazy_may_wait());
    MOX_TRY(inner->allocate(bytes, out, error));
    add_block(*out, bytes);
    return MOXIE_OK;
}

static moxie_status allocate_pinned(uint64_t bytes, void **out, moxie_error *error)
{
    assert_true(lazy_may_wait());
    MOX_TRY(inner->allocate_pinned(bytes, out, error));
    add_block(*out, bytes);
    return MOXIE_OK;
}

enum { RELEASE_WAIT = 5 }; /* s; ranks that were lost leave groups behind */

static void release(void *memory)
{
    if (memory == NULL)
        return;
    lazy_drain(current, RELEASE_WAIT);
    drop_block(memory);
    inner->release(memory);
}

/* A copy; or a fill where `from` is NULL and there are no bytes behind it. */
typedef struct transfer {
    void *to;
    const void *from;
    uint64_t bytes;
    int32_t byte;
    bool fills;
    char data[]; /* of pageable memory, in place of `from` */
} transfer;

static moxie_status transfer_work(const void *args, moxie_error *error)
{
    const transfer *t = args;
    if (t->fills)
        return inner->fill(t->to, t->byte, t->bytes, NULL, error);
    return inner->copy(t->to, t->from != NULL ? t->from : t->data, t->bytes, NULL, error);
}

static moxie_status wait_for(mox_cuda_stream stream, moxie_error *error)
{
    lazy_stream *s = resolve(stream);
    lazy_ticket *ticket = lazy_ticket_make();
    assert_true(lazy_may_wait());
    lazy_push(s, LAZY_RECORD, NULL, NULL, 0, ticket);
    const moxie_status status = lazy_wait(ticket, error);
    lazy_lock();
    lazy_ticket_drop(ticket);
    lazy_unlock();
    return status;
}

static moxie_status copy(void *to, const void *from, uint64_t bytes, mox_cuda_stream stream, moxie_error *error)
{
    const bool reads = bytes > 0 && is_pageable(from);
    const size_t size = sizeof(transfer) + (reads ? (size_t)bytes : 0);
    if (bytes == 0)
        return MOXIE_OK;
    transfer *t = malloc(size);
    assert_non_null(t);
    *t = (transfer) { .to = to, .from = reads ? NULL : from, .bytes = bytes };
    if (reads)
        memcpy(t->data, from, (size_t)bytes);
    lazy_push(resolve(stream), LAZY_WORK, transfer_work, t, size, NULL);
    free(t);
    return is_pageable(to) ? wait_for(stream, error) : MOXIE_OK;
}

static moxie_status fill(void *to, int32_t byte, uint64_t bytes, mox_cuda_stream stream, moxie_error *error)
{
    const transfer t = { .to = to, .bytes = bytes, .byte = byte, .fills = true };
    (void)error;
    if (bytes > 0)
        lazy_push(resolve(stream), LAZY_WORK, transfer_work, &t, sizeof t, NULL);
    return MOXIE_OK;
}

/* ---- order ----------------------------------------------------------------------------------------------- */

static moxie_status stream_create(mox_cuda_stream *out, moxie_error *error)
{
    (void)error;
    *out = lazy_stream_make(current);
    return MOXIE_OK;
}

static void stream_destroy(mox_cuda_stream stream)
{
    if (stream != NULL)
        lazy_stream_drop(stream);
}

typedef struct event {
    lazy_ticket *last; /* NULL: never recorded */
} event;

static moxie_status event_create(mox_cuda_event *out, moxie_error *error)
{
    (void)error;
    *out = calloc(1, sizeof(event));
    assert_non_null(*out);
    __atomic_add_fetch(&events, 1, __ATOMIC_RELAXED);
    return MOXIE_OK;
}

static void set_last(event *e, lazy_ticket *ticket)
{
    lazy_lock();
    lazy_ticket_drop(e->last);
    e->last = ticket;
    lazy_unlock();
}

static void event_destroy(mox_cuda_event object)
{
    if (object == NULL)
        return;
    set_last(object, NULL);
    free(object);
    __atomic_sub_fetch(&events, 1, __ATOMIC_RELAXED);
}

static moxie_status event_record(mox_cuda_event object, mox_cuda_stream stream, moxie_error *error)
{
    lazy_ticket *ticket = lazy_ticket_make();
    MOX_TRY(inner->event_record(NULL, NULL, error)); /* which counts them */
    lazy_push(resolve(stream), LAZY_RECORD, NULL, NULL, 0, ticket);
    set_last(object, ticket);
    return MOXIE_OK;
}

static moxie_status event_wait(mox_cuda_event object, moxie_error *error)
{
    const event *e = object;
    assert_true(lazy_may_wait());
    return e->last != NULL ? lazy_wait(e->last, error) : MOXIE_OK;
}

static moxie_status event_done(mox_cuda_event object, int32_t *done, moxie_error *error)
{
    const event *e = object;
    (void)error;
    *done = e->last == NULL || lazy_look(e->last);
    return MOXIE_OK;
}

static moxie_status stream_follow(mox_cuda_stream stream, mox_cuda_event object, moxie_error *error)
{
    const event *e = object;
    (void)error;
    if (e->last != NULL)
        lazy_push(resolve(stream), LAZY_WAIT, NULL, NULL, 0, e->last);
    return MOXIE_OK;
}

static moxie_status timer_stop(void *timer, mox_cuda_stream stream, float *milliseconds, moxie_error *error)
{
    MOX_TRY(wait_for(stream, error));
    return inner->timer_stop(timer, NULL, milliseconds, error);
}

/* ---- launches -------------------------------------------------------------------------------------------- */

#define LAUNCH(name, entry, args_type)                                                                                 \
    static moxie_status name##_work(const void *args, moxie_error *error)                                              \
    {                                                                                                                  \
        return inner->entry(args, NULL, error);                                                                        \
    }                                                                                                                  \
    static moxie_status name##_push(const args_type *args, mox_cuda_stream stream, moxie_error *error)                 \
    {                                                                                                                  \
        (void)error;                                                                                                   \
        lazy_push(resolve(stream), LAZY_WORK, name##_work, args, sizeof *args, NULL);                                  \
        return MOXIE_OK;                                                                                               \
    }
LAUNCH(copy_rows, copy_rows, mox_cuda_copy_rows_args)
LAUNCH(place_rows, place_rows, mox_cuda_place_rows_args)
LAUNCH(order_rows, order_rows, mox_cuda_order_rows_args)

#define MOX_CUDA_LAUNCHER(family, args_type) typedef args_type family##_args;
#include "cuda/cuda_families.def"
MOX_CUDA_LAUNCHER(limits, mox_cuda_limits_args)
MOX_CUDA_LAUNCHER(pack, mox_cuda_pack_args)
#undef MOX_CUDA_LAUNCHER
#define MOX_CUDA_ROW(family, id, ...) LAUNCH(family##_##id, family[MOX_CUDA_AT_##family##_##id], family##_args)
#include "test_lazy_rows.h"
#undef MOX_CUDA_ROW

/* ---- the table ------------------------------------------------------------------------------------------- */

/* NCCL's stub has no other way to the default stream. */
static moxie_status push_to_default(const test_stream *face, test_cuda_work work, const void *args, size_t bytes)
{
    (void)face;
    lazy_push(resolve(NULL), LAZY_WORK, work, args, bytes, NULL);
    return MOXIE_OK;
}

static void tell_nccl(void)
{
    static const test_stream face = { .may_wait = lazy_may_wait, .later = push_to_default };
    const char *path = getenv("MOXIE_NCCL_LIBRARY");
    void *library = path != NULL ? dlopen(path, RTLD_NOW) : NULL;
    void *symbol = library != NULL ? dlsym(library, "nccl_stub_set_default") : NULL;
    void (*set)(const test_stream *stream);
    memcpy(&set, &symbol, sizeof set);
    if (set != NULL)
        set(&face);
}

const mox_cuda_table *test_lazy_wrap(const mox_cuda_table *wrapped, uint64_t seed)
{
    inner = wrapped;
    table = *wrapped;
    table.use = use;
    table.allocate = allocate;
    table.release = release;
    table.allocate_pinned = allocate_pinned;
    table.release_pinned = release;
    table.copy = copy;
    table.fill = fill;
    table.stream_create = stream_create;
    table.stream_destroy = stream_destroy;
    table.stream_wait = wait_for;
    table.event_create = event_create;
    table.event_destroy = event_destroy;
    table.event_record = event_record;
    table.event_wait = event_wait;
    table.event_done = event_done;
    table.stream_follow = stream_follow;
    table.timer_stop = timer_stop;
    table.copy_rows = copy_rows_push;
    table.place_rows = place_rows_push;
    table.order_rows = order_rows_push;
#define MOX_CUDA_ROW(family, id, ...) table.family[MOX_CUDA_AT_##family##_##id] = family##_##id##_push;
#include "test_lazy_rows.h"
#undef MOX_CUDA_ROW
    lazy_graph_fill(&table, resolve);
    for (int i = 0; i < LAZY_DEVICES && defaults[i] == NULL; i++)
        defaults[i] = lazy_stream_make(i);
    test_lazy_seed(seed);
    tell_nccl();
    return &table;
}

void test_lazy_seed(uint64_t seed)
{
    lazy_queue_seed(seed);
}

int test_lazy_end(void)
{
    lazy_drain(-1, RELEASE_WAIT);
    return events + lazy_streams() - LAZY_DEVICES + lazy_graphs();
}
