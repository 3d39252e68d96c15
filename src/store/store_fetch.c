/* SPDX-License-Identifier: Apache-2.0
 *
 * store_fetch.c - the record source of a layer of a store (record_source.h): a session for each run.
 *
 *     experts of a pass, in order   | given back | held: computed now | claimed: read, or being read | not begun |
 *                                   0            first                end                            claimed     count
 *
 * A session claims buffers in the order of its experts, as far as there are free ones. It waits only for experts that
 * it has claimed, or, holding no claim, for a free buffer; what it holds it computes without waiting. So sessions of
 * several runs never wait for each other in a ring.
 *
 * One call of next() hands out at most half of the read buffers, so that the others are read meanwhile.
 */
#include <string.h>

#include "base/clock.h"
#include "base/sizes.h"
#include "store/store.h"

typedef struct session {
    mox_store_layer *layer;
    moxie_store_counters counters; /* of this run */
    const int32_t *experts;        /* [count] of the pass, the caller's */
    int64_t count, first, end, claimed;
    int32_t *buffers; /* [count] of the claimed ones */
    int32_t *scratch; /* [E] */
} session;

uint64_t mox_store_session_bytes(int64_t experts)
{
    return sizeof(session) + 2 * (uint64_t)experts * sizeof(int32_t);
}

/* ---- a step of the cache ---------------------------------------------------------------------------- */

/* Guesses for this run that it does not use. */
static void drop_guesses(mox_store_layer *layer)
{
    moxie_store *store = layer->store;
    for (int32_t i = 0; layer->guesses > 0 && i < store->n_buffers; i++) {
        mox_buffer *b = &store->buffers[i];
        if (!b->guess || b->layer != layer->number || layer->used[b->expert])
            continue;
        mox_store_end_guess(store, b);
        layer->total.prefetches_wasted++;
        mox_store_settle(store, i);
    }
}

static void count_use(session *s, int32_t expert, const mox_cache_place *place)
{
    mox_store_layer *layer = s->layer;
    const int32_t buffer = layer->buffer_of[expert];
    const bool guessed = buffer >= 0 && layer->store->buffers[buffer].guess;
    const bool hit = place->hit && buffer >= 0 && !guessed;
    s->counters.hits += hit;
    s->counters.ram_bytes += hit ? layer->file->header.record_bytes : 0;
    s->counters.inserts += !place->hit && place->slot >= 0;
    s->counters.prefetches_used += guessed;
    layer->used[expert] = true;
}

void mox_store_read_kept(mox_store_layer *layer)
{
    for (int32_t e = 0; e < layer->file->header.experts; e++)
        if (mox_cache_slot_of(layer->cache, e) >= 0 && layer->buffer_of[e] < 0 &&
            mox_store_entry(layer, e)->range.bytes > 0 && mox_store_read(layer, e, MOX_STORE_NEEDED) >= 0) {
            layer->total.reads++;
            layer->total.read_bytes += mox_expert_padded(layer->file->header.record_bytes);
        }
}

/* The runs that a cache learns from are over. A fixed set of experts is read at once. */
static void end_warm(mox_store_layer *layer)
{
    mox_cache_end_warm(layer->cache);
    mox_store_read_kept(layer);
}

static void step(session *s, const int32_t *experts, int64_t count)
{
    mox_store_layer *layer = s->layer;
    if (layer->warm_left == 0)
        end_warm(layer);
    if (layer->warm_left >= 0)
        layer->warm_left--;
    memset(layer->used, 0, (size_t)layer->file->header.experts * sizeof *layer->used);
    mox_cache_step(layer->cache, experts, (int32_t)count, layer->places);
    for (int64_t i = 0; i < count; i++)
        count_use(s, experts[i], &layer->places[i]);
    for (int64_t i = 0; i < count; i++)
        if (layer->places[i].evicted >= 0 && layer->buffer_of[layer->places[i].evicted] >= 0)
            mox_store_settle(layer->store, layer->buffer_of[layer->places[i].evicted]);
    drop_guesses(layer);
    s->counters.runs = 1;
    s->counters.uses = count;
}

static void open_session(session *s, mox_store_layer *layer)
{
    *s = (session) { .layer = layer, .counters = MOXIE_STORE_COUNTERS_INIT };
    s->buffers = (int32_t *)(s + 1);
    s->scratch = s->buffers + layer->file->header.experts;
}

static moxie_status begin(void *user, void *memory, const int32_t *experts, int64_t count, moxie_error *error)
{
    mox_store_layer *layer = user;
    session *s = memory;
    (void)error;
    open_session(s, layer);
    pthread_mutex_lock(&layer->store->mutex);
    mox_store_poll(layer->store);
    step(s, experts, count);
    pthread_mutex_unlock(&layer->store->mutex);
    return MOXIE_OK;
}

/* ---- a pass ----------------------------------------------------------------------------------------- */

/* 0: in memory, 1: being read, 2: on disk. */
static int rank_of(const mox_store_layer *layer, int32_t expert)
{
    const int32_t buffer = layer->buffer_of[expert];
    return buffer < 0 ? 2 : layer->store->buffers[buffer].state == MOX_BUFFER_READY ? 0 : 1;
}

static void sort_experts(session *s, int32_t *experts, int64_t count)
{
    int64_t n = 0;
    for (int rank = 0; rank < 3; rank++)
        for (int64_t i = 0; i < count; i++)
            if (rank_of(s->layer, experts[i]) == rank)
                s->scratch[n++] = experts[i];
    memcpy(experts, s->scratch, (size_t)count * sizeof *experts);
}

/* Claims the experts that come next, and begins to read them. */
static void claim(session *s)
{
    mox_store_layer *layer = s->layer;
    moxie_store *store = layer->store;
    for (; s->claimed < s->count; s->claimed++) {
        const int32_t expert = s->experts[s->claimed];
        int32_t number = layer->buffer_of[expert];
        if (number < 0) {
            number = mox_store_read(layer, expert, s->claimed == s->first ? MOX_STORE_STUCK : MOX_STORE_NEEDED);
            if (number < 0)
                return;
            s->counters.reads++;
            s->counters.read_bytes += store->buffers[number].request.bytes;
        } else if (store->buffers[number].state == MOX_BUFFER_READING) {
            mox_reader_raise(store->reader, &store->buffers[number].request);
        }
        mox_store_end_guess(store, &store->buffers[number]);
        store->buffers[number].claims++;
        s->buffers[s->claimed] = number;
    }
}

static void give_back(session *s, int64_t end)
{
    for (; s->first < end; s->first++)
        mox_store_release(s->layer->store, s->buffers[s->first]);
}

static void want(void *memory, int32_t *experts, int64_t count, bool sorted)
{
    session *s = memory;
    pthread_mutex_lock(&s->layer->store->mutex);
    give_back(s, s->claimed);
    mox_store_poll(s->layer->store);
    if (!sorted)
        sort_experts(s, experts, count);
    s->experts = experts;
    s->count = count;
    s->first = s->end = s->claimed = 0;
    claim(s);
    pthread_mutex_unlock(&s->layer->store->mutex);
}

/* ---- windows ---------------------------------------------------------------------------------------- */

/* Moves `end` behind the experts that are ready. */
static void extend(session *s)
{
    moxie_store *store = s->layer->store;
    const int64_t limit = mox_max_i64(store->read_buffers / 2, 1);
    for (int64_t staged = 0; s->end < s->claimed; s->end++) {
        const mox_buffer *b = &store->buffers[s->buffers[s->end]];
        if (b->state != MOX_BUFFER_READY)
            return;
        staged += !mox_store_is_kept(store, b);
        if (staged > limit && s->claimed < s->count)
            return;
    }
}

static bool head_failed(const session *s)
{
    return s->end < s->claimed && s->layer->store->buffers[s->buffers[s->end]].state == MOX_BUFFER_FAILED;
}

static void wait_for_head(session *s)
{
    const uint64_t since = mox_clock_now();
    while (s->first == s->end && s->end < s->count && !head_failed(s)) {
        mox_store_wait(s->layer->store);
        claim(s);
        extend(s);
    }
    s->counters.waits++;
    s->counters.wait_seconds += 1e-9 * (double)(mox_clock_now() - since);
}

static moxie_status next(void *memory, bool wait, const void **records, int64_t *ready, moxie_error *error)
{
    session *s = memory;
    moxie_store *store = s->layer->store;
    moxie_status status = MOXIE_OK;
    pthread_mutex_lock(&store->mutex);
    give_back(s, s->end);
    mox_store_poll(store);
    claim(s);
    extend(s);
    if (wait && s->first == s->end && s->end < s->count && !head_failed(s))
        wait_for_head(s);
    if (s->first == s->end && head_failed(s))
        status = mox_store_failure(store, &store->buffers[s->buffers[s->end]], error);
    *ready = s->end - s->first;
    for (int64_t i = 0; i < *ready; i++)
        records[i] = store->buffers[s->buffers[s->first + i]].data;
    pthread_mutex_unlock(&store->mutex);
    return status;
}

static void end(void *memory)
{
    session *s = memory;
    mox_store_layer *layer = s->layer;
    pthread_mutex_lock(&layer->store->mutex);
    give_back(s, s->claimed);
    mox_store_add_counters(&layer->total, &s->counters);
    layer->last = s->counters;
    pthread_mutex_unlock(&layer->store->mutex);
}

void mox_store_set_source(mox_store_layer *layer)
{
    layer->source = (mox_record_source) { .user = layer,
                                          .session_bytes = mox_store_session_bytes(layer->file->header.experts),
                                          .begin = begin,
                                          .want = want,
                                          .next = next,
                                          .end = end };
}
