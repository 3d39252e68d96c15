/* SPDX-License-Identifier: Apache-2.0
 *
 * store_buffers.c - the buffers of a store, and the reads into them (store.h). The caller holds the store's mutex.
 */
#include "base/checksum.h"
#include "store/store.h"

static mox_store_layer *layer_of(const moxie_store *store, const mox_buffer *buffer)
{
    return &store->layers[buffer->layer];
}

bool mox_store_is_kept(const moxie_store *store, const mox_buffer *buffer)
{
    return mox_cache_slot_of(layer_of(store, buffer)->cache, buffer->expert) >= 0;
}

void mox_store_end_guess(moxie_store *store, mox_buffer *buffer)
{
    layer_of(store, buffer)->guesses -= buffer->guess;
    buffer->guess = false;
}

static void make_free(moxie_store *store, int32_t number)
{
    mox_buffer *buffer = &store->buffers[number];
    layer_of(store, buffer)->buffer_of[buffer->expert] = -1;
    if (buffer->guess)
        layer_of(store, buffer)->total.prefetches_wasted++;
    mox_store_end_guess(store, buffer);
    buffer->state = MOX_BUFFER_FREE;
    store->free[store->n_free++] = number;
    pthread_cond_broadcast(&store->news);
}

void mox_store_settle(moxie_store *store, int32_t number)
{
    const mox_buffer *buffer = &store->buffers[number];
    if (buffer->claims > 0 || buffer->state == MOX_BUFFER_READING || buffer->state == MOX_BUFFER_FREE)
        return;
    if (buffer->state == MOX_BUFFER_FAILED || (!buffer->guess && !mox_store_is_kept(store, buffer)))
        make_free(store, number);
}

void mox_store_release(moxie_store *store, int32_t number)
{
    store->buffers[number].claims--;
    mox_store_settle(store, number);
}

/* ---- reads ------------------------------------------------------------------------------------------ */

static bool is_whole(const moxie_store *store, const mox_buffer *buffer)
{
    const mox_expert_entry *entry = mox_store_entry(layer_of(store, buffer), buffer->expert);
    return !store->verifies ||
           mox_checksum(buffer->data, mox_expert_padded(entry->range.bytes)) == entry->range.checksum;
}

static void finish(moxie_store *store, const mox_read_request *request)
{
    const int32_t number = (int32_t)((mox_buffer *)request->user - store->buffers);
    mox_buffer *buffer = &store->buffers[number];
    store->reading--;
    buffer->damaged = request->failed == 0 && !is_whole(store, buffer);
    buffer->state = request->failed == 0 && !buffer->damaged ? MOX_BUFFER_READY : MOX_BUFFER_FAILED;
    layer_of(store, buffer)->total.failed_reads += buffer->state == MOX_BUFFER_FAILED;
    mox_store_settle(store, number);
    pthread_cond_broadcast(&store->news);
}

void mox_store_poll(moxie_store *store)
{
    const mox_read_request *done;
    while (!store->waits && (done = mox_reader_poll(store->reader)) != NULL)
        finish(store, done);
}

void mox_store_wait(moxie_store *store)
{
    /* With no read under way another session has the buffers; it computes, and will give them back. */
    if (store->waits || store->reading == 0) {
        pthread_cond_wait(&store->news, &store->mutex);
        return;
    }
    store->waits = true;
    pthread_mutex_unlock(&store->mutex);
    const mox_read_request *done = mox_reader_wait(store->reader, MOX_READ_FOREVER);
    pthread_mutex_lock(&store->mutex);
    store->waits = false;
    if (done != NULL)
        finish(store, done);
}

/* The oldest guess that was read and that no run asked for. */
static int32_t oldest_guess(const moxie_store *store)
{
    int32_t oldest = -1;
    for (int32_t i = 0; i < store->n_buffers; i++) {
        const mox_buffer *b = &store->buffers[i];
        if (b->guess && b->claims == 0 && b->state == MOX_BUFFER_READY &&
            (oldest < 0 || b->order < store->buffers[oldest].order))
            oldest = i;
    }
    return oldest;
}

/* A layer's guesses take half of the read buffers, or more while slots are empty: the other half is for the layer
 * that runs meanwhile, whose own guesses may be there still. */
static bool may_guess(const mox_store_layer *layer)
{
    const int32_t half = layer->store->read_buffers / 2;
    return layer->guesses < half || layer->store->n_free > layer->store->read_buffers;
}

int32_t mox_store_read(mox_store_layer *layer, int32_t expert, mox_store_why why)
{
    moxie_store *store = layer->store;
    const mox_expert_range *range = &mox_store_entry(layer, expert)->range;
    const int32_t old = store->n_free == 0 && why == MOX_STORE_STUCK ? oldest_guess(store) : -1;
    if (old >= 0)
        make_free(store, old);
    if (store->n_free == 0 || (why == MOX_STORE_GUESS && !may_guess(layer)))
        return -1;
    const int32_t number = store->free[--store->n_free];
    mox_buffer *b = &store->buffers[number];
    const bool guess = why == MOX_STORE_GUESS;
    *b = (mox_buffer) { .data = b->data,
                        .state = MOX_BUFFER_READING,
                        .layer = layer->number,
                        .expert = expert,
                        .guess = guess,
                        .order = store->n_reads++,
                        .request = { .file = layer->number,
                                     .offset = range->offset,
                                     .bytes = mox_expert_padded(range->bytes),
                                     .to = b->data,
                                     .user = b,
                                     .urgent = !guess } };
    layer->buffer_of[expert] = number;
    layer->guesses += guess;
    store->reading++;
    (void)mox_reader_submit(store->reader, &b->request, NULL); /* ranges were checked when the file was opened */
    return number;
}

moxie_status mox_store_failure(const moxie_store *store, const mox_buffer *buffer, moxie_error *error)
{
    const mox_store_layer *layer = layer_of(store, buffer);
    const long long number = layer->file->header.layer, expert = buffer->expert;
    if (buffer->damaged)
        return mox_fail_file(MOXIE_ERR_MISMATCH, error, layer->file->path, (int64_t)buffer->request.offset,
                             "the record of layer %lld, expert %lld is damaged: the checksum differs; prepare the file "
                             "anew",
                             number, expert);
    const moxie_status status = mox_reader_result(store->reader, &buffer->request, error);
    return mox_fail_context(status, error, "reading the record of layer %lld, expert %lld", number, expert);
}
