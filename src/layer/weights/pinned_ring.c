/* SPDX-License-Identifier: Apache-2.0
 *
 * pinned_ring.c - pools of rings, one for each GPU that has layers (pinned_ring.h).
 */
#include "layer/weights/pinned_ring.h"

#include <pthread.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/sizes.h"

struct mox_ring_pool {
    mox_ring_pool *next;
    const mox_cuda_table *table;
    int32_t ordinal;
    int64_t holders;
    mox_pinned_ring *idle;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all pools, and of their lists */
static mox_ring_pool *pools;

/* ---- pools ----------------------------------------------------------------------------------------- */

static mox_ring_pool *find(const mox_device *device)
{
    mox_ring_pool *pool = pools;
    while (pool != NULL && (pool->table != device->table || pool->ordinal != device->ordinal))
        pool = pool->next;
    return pool;
}

static mox_ring_pool *make(const mox_device *device)
{
    mox_ring_pool *pool = mox_calloc(1, sizeof *pool);
    if (pool == NULL)
        return NULL;
    *pool = (mox_ring_pool) { .next = pools, .table = device->table, .ordinal = device->ordinal };
    pools = pool;
    return pool;
}

moxie_status mox_ring_pool_hold(const mox_device *device, mox_ring_pool **out, moxie_error *error)
{
    pthread_mutex_lock(&lock);
    mox_ring_pool *pool = find(device);
    if (pool == NULL)
        pool = make(device);
    if (pool != NULL)
        pool->holders++;
    pthread_mutex_unlock(&lock);
    MOX_FAIL_IF(pool == NULL, MOXIE_ERR_MEMORY, error, "no memory for a list of pinned memory");
    *out = pool;
    return MOXIE_OK;
}

static void destroy(const mox_ring_pool *pool, mox_pinned_ring *ring)
{
    for (int64_t i = 0; i < ring->chunks; i++)
        pool->table->event_destroy(ring->copied[i]);
    pool->table->stream_destroy(ring->stream);
    pool->table->release_pinned(ring->memory);
    mox_free(ring);
}

/* Whether that was the last holder. */
static bool leave(mox_ring_pool *pool)
{
    pthread_mutex_lock(&lock);
    const bool last = --pool->holders == 0;
    mox_ring_pool **at = &pools;
    while (last && *at != pool)
        at = &(*at)->next;
    if (last)
        *at = pool->next;
    pthread_mutex_unlock(&lock);
    return last;
}

void mox_ring_pool_drop(mox_ring_pool *pool)
{
    if (pool == NULL || !leave(pool))
        return;
    if (pool->idle != NULL)
        (void)pool->table->use(pool->ordinal, NULL);
    while (pool->idle != NULL) {
        mox_pinned_ring *ring = pool->idle;
        pool->idle = ring->next;
        destroy(pool, ring);
    }
    mox_free(pool);
}

/* ---- rings ----------------------------------------------------------------------------------------- */

static moxie_status fill_in(const mox_ring_pool *pool, mox_pinned_ring *ring, moxie_error *error)
{
    void *memory = NULL;
    MOX_TRY(pool->table->allocate_pinned(ring->bytes, &memory, error));
    ring->memory = memory;
    MOX_TRY(pool->table->stream_create(&ring->stream, error));
    for (int64_t i = 0; i < ring->chunks; i++)
        MOX_TRY(pool->table->event_create(&ring->copied[i], error));
    return MOXIE_OK;
}

static moxie_status create(const mox_ring_pool *pool, uint64_t bytes, mox_pinned_ring **out, moxie_error *error)
{
    mox_pinned_ring *ring = mox_calloc(1, sizeof *ring);
    MOX_FAIL_IF(ring == NULL, MOXIE_ERR_MEMORY, error, "no memory for a ring of pinned memory");
    ring->bytes = bytes;
    ring->chunks = mox_ceil_div((int64_t)bytes, MOX_RING_CHUNK);
    const moxie_status status = fill_in(pool, ring, error);
    if (status != MOXIE_OK)
        destroy(pool, ring);
    else
        *out = ring;
    return status;
}

static mox_pinned_ring *take_idle(mox_ring_pool *pool)
{
    pthread_mutex_lock(&lock);
    mox_pinned_ring *ring = pool->idle;
    if (ring != NULL)
        pool->idle = ring->next;
    pthread_mutex_unlock(&lock);
    return ring;
}

/* A ring that a smaller layer made is replaced, so that no pool has more of them than fills at a time. */
moxie_status mox_pinned_ring_take(mox_ring_pool *pool, uint64_t bytes, mox_pinned_ring **out, double *seconds,
                                  moxie_error *error)
{
    const uint64_t wanted = mox_min_u64(bytes, (uint64_t)MOX_RING_CHUNKS * MOX_RING_CHUNK);
    MOX_TRY(pool->table->use(pool->ordinal, error));
    mox_pinned_ring *ring = take_idle(pool);
    const uint64_t start = mox_clock_now();
    *seconds = 0;
    if (ring != NULL && ring->bytes >= wanted) {
        *out = ring;
        return MOXIE_OK;
    }
    if (ring != NULL)
        destroy(pool, ring);
    MOX_TRY(create(pool, wanted, out, error));
    *seconds = (double)(mox_clock_now() - start) * 1e-9;
    return MOXIE_OK;
}

moxie_status mox_pinned_ring_give_back(mox_ring_pool *pool, mox_pinned_ring *ring, moxie_status status,
                                       moxie_error *error)
{
    const moxie_status waited = pool->table->stream_wait(ring->stream, status == MOXIE_OK ? error : NULL);
    pthread_mutex_lock(&lock);
    ring->next = pool->idle;
    pool->idle = ring;
    pthread_mutex_unlock(&lock);
    return status == MOXIE_OK ? waited : status;
}
