/* SPDX-License-Identifier: Apache-2.0
 *
 * store_open.c - opens and closes a store (store.h):
 *
 *     paths -> files, by layer -> budget: shared experts | layers x slots | read buffers -> reader -> caches
 *
 * Files are mapped, but their routed records are read through the mapping by checks alone: pages of a mapping come and
 * go as the system likes, buffers stay.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <moxie/moxie_trace.h>

#include "base/checksum.h"
#include "base/sizes.h"
#include "layer/weights/layer.h"
#include "store/store.h"
#include "store/store_device.h"
#include "store/store_files.h"

enum { MIN_READ_BUFFERS = 2 };

/* ---- options ---------------------------------------------------------------------------------------- */

static moxie_status check_numbers(const moxie_store_options *o, moxie_error *error)
{
    MOX_FAIL_IF(o->max_inserts < -1 || o->warm_runs < 0 || o->n_pinned < 0 || o->read_buffers < 0 ||
                    o->read_depth < 0 || o->census_experts < 0,
                MOXIE_ERR_ARGUMENT, error,
                "max_inserts %d, warm_runs %lld, n_pinned %lld, read_buffers %d, read_depth %d, census_experts "
                "%lld: none is below 0, but max_inserts may be -1",
                (int)o->max_inserts, (long long)o->warm_runs, (long long)o->n_pinned, (int)o->read_buffers,
                (int)o->read_depth, (long long)o->census_experts);
    MOX_FAIL_IF(!isfinite(o->half_life) || o->half_life < 0, MOXIE_ERR_ARGUMENT, error,
                "a half-life of %g runs: it is above 0, or 0 for %g", o->half_life, MOXIE_CACHE_HALF_LIFE);
    MOX_FAIL_IF((o->n_pinned > 0 && o->pinned == NULL) || (o->census != NULL && o->census_experts == 0),
                MOXIE_ERR_ARGUMENT, error, "%s", o->census != NULL ? "census_experts is 0" : "pinned is NULL");
    return MOXIE_OK;
}

static moxie_status check_policy(moxie_store *store, const moxie_store_options *o, moxie_error *error)
{
    MOX_TRY(check_numbers(o, error));
    MOX_TRY(mox_cache_policy_find(o->policy, &store->policy, error));
    const mox_cache_admission admission = store->policy->admission;
    const bool census = admission == CENSUS && o->census != NULL;
    MOX_FAIL_IF(admission >= CENSUS && o->warm_runs == 0 && !census, MOXIE_ERR_ARGUMENT, error,
                "policy %s learns in the first runs, and warm_runs is 0: set it (--warm)%s", store->policy->name,
                admission == CENSUS ? ", or give a census" : "");
    return MOXIE_OK;
}

/* ---- budget ------------------------------------------------------------------------------------------ */

static int64_t max_experts(const moxie_store *store)
{
    int64_t most = 1;
    for (int32_t l = 0; l < store->n_layers; l++)
        most = mox_max_i64(most, store->layers[l].file->header.held);
    return most;
}

static int64_t max_top_k(const moxie_store *store)
{
    int64_t most = 1;
    for (int32_t l = 0; l < store->n_layers; l++)
        most = mox_max_i64(most, store->layers[l].file->config.top_k);
    return most;
}

/* With a tier on a GPU shared experts are there. */
static void measure(moxie_store *store, const moxie_store_options *o)
{
    for (int32_t l = 0; l < store->n_layers; l++) {
        const mox_expert_header *h = &store->layers[l].file->header;
        const uint64_t bytes = mox_expert_padded(h->record_bytes);
        store->record_bytes = bytes > store->record_bytes ? bytes : store->record_bytes;
        store->shared_bytes += o->device_bytes == 0 && !store->is_host ? mox_expert_padded(h->shared_bytes) : 0;
    }
}

static moxie_status too_small(const moxie_store *store, uint64_t budget, int64_t needed, moxie_error *error)
{
    const uint64_t all =
        store->shared_bytes +
        ((uint64_t)store->n_layers * (uint64_t)max_experts(store) + MIN_READ_BUFFERS) * store->record_bytes;
    return mox_fail(MOXIE_ERR_MEMORY, error,
                    "a budget of %llu bytes: %d layers need at least %llu, for their shared experts (%llu) and %lld "
                    "records of %llu, a slot for each layer and buffers for reads; %llu hold all experts",
                    (unsigned long long)budget, (int)store->n_layers,
                    (unsigned long long)(store->shared_bytes + (uint64_t)needed * store->record_bytes),
                    (unsigned long long)store->shared_bytes, (long long)needed, (unsigned long long)store->record_bytes,
                    (unsigned long long)all);
}

/* Pinned memory is what a GPU copies from while others run. */
static moxie_status allocate_buffers(moxie_store *store, uint64_t bytes, moxie_error *error)
{
    if (store->device != NULL)
        return store->device->device.table->allocate_pinned(bytes, &store->memory, error);
    store->memory = mox_alloc_pages(bytes);
    return MOXIE_OK;
}

static void free_buffers(moxie_store *store)
{
    if (store->device != NULL && store->memory != NULL)
        store->device->device.table->release_pinned(store->memory);
    else
        mox_free_pages(store->memory);
}

/* Cuts the budget into slots and read buffers. Where the CPU computes what is not on the GPU, none is kept here. */
static moxie_status divide(moxie_store *store, const moxie_store_options *o, moxie_error *error)
{
    const uint64_t left = o->ram_bytes > store->shared_bytes ? o->ram_bytes - store->shared_bytes : 0;
    const int64_t records = (int64_t)(left / store->record_bytes), layers = store->n_layers;
    const bool gpu_only = o->compute_where_it_lies != NULL;
    const int64_t least = gpu_only ? 0 : layers;
    const int64_t usual = mox_min_i64(mox_min_i64(2 * max_top_k(store), records / 4), records - least);
    const int64_t reads = mox_max_i64(o->read_buffers > 0 ? o->read_buffers : usual, MIN_READ_BUFFERS);
    if (records < least + reads)
        return too_small(store, o->ram_bytes, least + mox_max_i64(o->read_buffers, MIN_READ_BUFFERS), error);
    const int64_t slots = gpu_only ? 0 : mox_min_i64((records - reads) / layers, max_experts(store));
    const int64_t buffers = slots * layers + reads;
    MOX_FAIL_IF(buffers > INT32_MAX, MOXIE_ERR_ARGUMENT, error, "a budget of %lld records: lower it",
                (long long)buffers);
    store->slots = (int32_t)slots;
    store->read_buffers = (int32_t)reads;
    store->n_buffers = (int32_t)buffers;
    return MOXIE_OK;
}

static moxie_status allocate(moxie_store *store, moxie_error *error)
{
    const uint64_t n = (uint64_t)store->n_buffers;
    MOX_TRY(allocate_buffers(store, n * store->record_bytes + MOX_READ_ALIGN, error));
    store->buffers = mox_calloc(n, sizeof *store->buffers);
    store->free = mox_calloc(n, sizeof *store->free);
    MOX_FAIL_IF(store->memory == NULL || store->buffers == NULL || store->free == NULL, MOXIE_ERR_MEMORY, error,
                "no memory for %d records of %llu bytes: lower the budget", (int)store->n_buffers,
                (unsigned long long)store->record_bytes);
    uint8_t *first = (uint8_t *)(((uintptr_t)store->memory + MOX_READ_ALIGN - 1) / MOX_READ_ALIGN * MOX_READ_ALIGN);
    for (int32_t i = 0; i < store->n_buffers; i++) {
        store->buffers[i].data = first + (uint64_t)i * store->record_bytes;
        store->free[i] = store->n_buffers - 1 - i; /* the first ones are taken first */
    }
    store->n_free = store->n_buffers;
    return MOXIE_OK;
}

/* ---- layers ------------------------------------------------------------------------------------------ */

static moxie_status make_cache(const mox_store_layer *layer, const moxie_store_options *o,
                               const mox_cache_policy *policy, int32_t slots, mox_expert_cache **out,
                               moxie_error *error)
{
    const int64_t experts = layer->file->header.experts, top_k = layer->file->config.top_k;
    const mox_cache_options options = {
        .policy = policy,
        .experts = (int32_t)experts,
        .slots = (int32_t)mox_min_i64(slots, experts),
        .max_inserts = o->max_inserts == 0  ? (int32_t)top_k
                       : o->max_inserts < 0 ? 0
                                            : o->max_inserts,
        .half_life = o->half_life > 0 ? o->half_life : MOXIE_CACHE_HALF_LIFE,
    };
    MOX_TRY(mox_cache_create(&options, out, error));
    for (int64_t e = 0; e < experts; e++)
        if (mox_store_entry(layer, e)->range.bytes == 0) /* of another rank: a fixed set has no place for it */
            mox_cache_add_census(*out, (int32_t)e, -INFINITY);
    return MOXIE_OK;
}

/* What the policy learned before the first run. */
static moxie_status add_census(const mox_store_layer *layer, const moxie_store_options *o, mox_expert_cache *cache,
                               int64_t *warm_left, moxie_error *error)
{
    const int64_t experts = layer->file->header.experts;
    *warm_left = o->warm_runs;
    if (o->census == NULL || layer->store->policy->admission != CENSUS)
        return MOXIE_OK;
    for (int64_t e = 0; e < mox_min_i64(experts, o->census_experts); e++) {
        const double uses = o->census[layer->number * o->census_experts + e];
        MOX_FAIL_IF(!isfinite(uses) || uses < 0, MOXIE_ERR_ARGUMENT, error,
                    "the census of layer %lld, expert %lld is %g: uses are numbers from 0 on",
                    (long long)layer->file->header.layer, (long long)e, uses);
        mox_cache_add_census(cache, (int32_t)e, uses);
    }
    *warm_left = 0;
    return MOXIE_OK;
}

/* With a tier on a GPU the policy is that tier's. RAM, which is asked for what is not there, has the first policy. */
static moxie_status make_caches(mox_store_layer *layer, const moxie_store_options *o, moxie_error *error)
{
    const moxie_store *store = layer->store;
    if (store->device == NULL) {
        MOX_TRY(make_cache(layer, o, store->policy, store->slots, &layer->cache, error));
        return add_census(layer, o, layer->cache, &layer->warm_left, error);
    }
    layer->warm_left = -1;
    MOX_TRY(make_cache(layer, o, mox_cache_policy_at(0), store->slots, &layer->cache, error));
    MOX_TRY(make_cache(layer, o, store->policy, store->device_slots, &layer->device_cache, error));
    return add_census(layer, o, layer->device_cache, &layer->device_warm_left, error);
}

static moxie_status make_layer(mox_store_layer *layer, const moxie_store_options *o, moxie_error *error)
{
    const uint64_t experts = (uint64_t)layer->file->header.experts, shared = layer->file->header.shared_bytes;
    layer->total = layer->last = (moxie_store_counters)MOXIE_STORE_COUNTERS_INIT;
    layer->entries = mox_calloc(experts + 1, sizeof *layer->entries);
    layer->buffer_of = mox_calloc(experts, sizeof *layer->buffer_of);
    layer->places = mox_calloc(experts, sizeof *layer->places);
    layer->used = mox_calloc(experts, sizeof *layer->used);
    const bool has_shared = shared > 0 && layer->store->device == NULL && !layer->store->is_host;
    layer->shared_record = has_shared ? mox_alloc_pages(mox_expert_padded(shared)) : NULL;
    MOX_FAIL_IF(layer->entries == NULL || layer->buffer_of == NULL || layer->places == NULL || layer->used == NULL ||
                    (has_shared && layer->shared_record == NULL),
                MOXIE_ERR_MEMORY, error, "no memory for layer %lld of a store", (long long)layer->file->header.layer);
    memcpy(layer->entries, layer->file->index, (experts + 1) * sizeof *layer->entries);
    for (uint64_t e = 0; e < experts; e++)
        layer->buffer_of[e] = -1;
    mox_store_set_source(layer);
    MOX_TRY(mox_store_device_add(layer, error));
    return make_caches(layer, o, error);
}

/* Reads the shared expert, which every run needs, into memory. */
static moxie_status read_shared(mox_store_layer *layer, moxie_error *error)
{
    moxie_store *store = layer->store;
    const mox_expert_range *range = &mox_store_entry(layer, -1)->range;
    if (layer->shared_record == NULL)
        return MOXIE_OK;
    mox_read_request request = { .file = layer->number,
                                 .offset = range->offset,
                                 .bytes = mox_expert_padded(range->bytes),
                                 .to = layer->shared_record };
    MOX_TRY(mox_reader_submit(store->reader, &request, error));
    (void)mox_reader_wait_for(store->reader, &request, MOX_READ_FOREVER);
    const moxie_status status = mox_reader_result(store->reader, &request, error);
    if (status != MOXIE_OK)
        return mox_fail_context(status, error, "reading the shared expert of layer %lld",
                                (long long)layer->file->header.layer);
    if (store->verifies && mox_checksum(layer->shared_record, request.bytes) != range->checksum)
        return mox_fail_file(MOXIE_ERR_MISMATCH, error, layer->file->path, (int64_t)range->offset,
                             "the shared expert of layer %lld is damaged: the checksum differs; prepare the file anew",
                             (long long)layer->file->header.layer);
    return MOXIE_OK;
}

static moxie_status pin(moxie_store *store, const moxie_store_options *o, moxie_error *error)
{
    for (int64_t i = 0; i < o->n_pinned; i++) {
        const int64_t number = o->pinned[2 * i], expert = o->pinned[2 * i + 1];
        mox_store_layer *layer = NULL;
        MOX_TRY(mox_store_find(store, number, &layer, error));
        MOX_FAIL_IF(
            expert < 0 || expert >= layer->file->header.experts || mox_store_entry(layer, expert)->range.bytes == 0,
            MOXIE_ERR_ARGUMENT, error, "expert %lld of layer %lld was to be pinned, but its file does not have it",
            (long long)expert, (long long)number);
        mox_expert_cache *cache = store->device != NULL ? layer->device_cache : layer->cache;
        MOX_FAIL_IF(
            !mox_cache_pin(cache, (int32_t)expert), MOXIE_ERR_ARGUMENT, error,
            "expert %lld of layer %lld was to be pinned, but all %d slots of the layer are: raise the budget or "
            "pin fewer",
            (long long)expert, (long long)number, (int)(store->device != NULL ? store->device_slots : store->slots));
    }
    return MOXIE_OK;
}

/* ---- open and close ---------------------------------------------------------------------------------- */

static moxie_status make_locks(moxie_store *store, moxie_error *error)
{
    const bool mutex = pthread_mutex_init(&store->mutex, NULL) == 0;
    store->locks = mutex && pthread_cond_init(&store->news, NULL) == 0;
    if (mutex && !store->locks)
        pthread_mutex_destroy(&store->mutex);
    MOX_FAIL_IF(!store->locks, MOXIE_ERR_MEMORY, error, "no memory for the locks of a store");
    return MOXIE_OK;
}

static moxie_status make(moxie_store *store, const char *const *paths, int64_t n_paths, const moxie_store_options *o,
                         const mox_reader_options *reader, moxie_error *error);
static moxie_status describe(moxie_store *store, const char *const *paths, int64_t n_paths,
                             const moxie_store_options *o, moxie_error *error);

static moxie_status begin_host(moxie_store *store, moxie_error *error)
{
    store->host = mox_calloc(1, sizeof *store->host);
    MOX_FAIL_IF(store->host == NULL, MOXIE_ERR_MEMORY, error, "no memory for a store");
    store->host->is_host = true;
    return MOXIE_OK;
}

static moxie_status end_host(moxie_store *store, moxie_status status, moxie_error *error)
{
    if (status != MOXIE_OK)
        return mox_fail_context(status, error,
                                "opening the files of experts that the CPU computes, with the RAM that %d buffers of "
                                "%llu bytes for those of the GPU leave",
                                (int)store->n_buffers, (unsigned long long)store->record_bytes);
    return mox_store_host_link(store, error);
}

/* The store of experts that the CPU computes where they lie. */
static moxie_status open_host(moxie_store *store, const moxie_store_options *o, const mox_reader_options *reader,
                              moxie_error *error)
{
    const moxie_store_options own = mox_store_host_options(store, o);
    if (o->compute_where_it_lies == NULL)
        return MOXIE_OK;
    MOX_TRY(begin_host(store, error));
    return end_host(store, make(store->host, &o->compute_where_it_lies, 1, &own, reader, error), error);
}

static moxie_status make(moxie_store *store, const char *const *paths, int64_t n_paths, const moxie_store_options *o,
                         const mox_reader_options *reader, moxie_error *error)
{
    store->prefetches = !o->no_prefetch;
    store->verifies = o->verify != 0;
    MOX_TRY(make_locks(store, error));
    MOX_TRY(check_policy(store, o, error));
    MOX_TRY(mox_store_open_files(store, paths, n_paths, error));
    measure(store, o);
    MOX_TRY(divide(store, o, error));
    MOX_TRY(mox_store_device_divide(store, o, error));
    MOX_TRY(mox_store_device_open(store, o, error));
    MOX_TRY(allocate(store, error));
    MOX_TRY(mox_store_device_allocate(store, error));
    MOX_TRY(mox_store_open_reader(store, o, reader, error));
    for (int32_t l = 0; l < store->n_layers; l++) {
        MOX_TRY(make_layer(&store->layers[l], o, error));
        MOX_TRY(read_shared(&store->layers[l], error));
    }
    MOX_TRY(pin(store, o, error));
    return open_host(store, o, reader, error);
}

moxie_status mox_store_open(const char *const *paths, int64_t n_paths, const moxie_store_options *options,
                            const mox_reader_options *reader, moxie_store **out, moxie_error *error)
{
    moxie_store *store = mox_calloc(1, sizeof *store);
    MOX_FAIL_IF(store == NULL, MOXIE_ERR_MEMORY, error, "no memory for a store");
    const moxie_status status = make(store, paths, n_paths, options, reader, error);
    if (status != MOXIE_OK) {
        mox_store_close(store);
        return status;
    }
    *out = store;
    return MOXIE_OK;
}

static moxie_status describe_host(moxie_store *store, const moxie_store_options *o, moxie_error *error)
{
    const moxie_store_options own = mox_store_host_options(store, o);
    if (o->compute_where_it_lies == NULL)
        return MOXIE_OK;
    MOX_TRY(begin_host(store, error));
    return end_host(store, describe(store->host, &o->compute_where_it_lies, 1, &own, error), error);
}

static moxie_status describe(moxie_store *store, const char *const *paths, int64_t n_paths,
                             const moxie_store_options *o, moxie_error *error)
{
    MOX_TRY(check_policy(store, o, error));
    MOX_TRY(mox_store_open_files(store, paths, n_paths, error));
    measure(store, o);
    MOX_TRY(divide(store, o, error));
    MOX_TRY(mox_store_device_divide(store, o, error));
    return describe_host(store, o, error);
}

moxie_status mox_store_describe(const char *const *paths, int64_t n_paths, const moxie_store_options *options,
                                moxie_store_info *out, moxie_error *error)
{
    moxie_store *store = mox_calloc(1, sizeof *store);
    MOX_FAIL_IF(store == NULL, MOXIE_ERR_MEMORY, error, "no memory for a store");
    const moxie_status status = describe(store, paths, n_paths, options, error);
    if (status == MOXIE_OK)
        mox_store_get_info(store, out);
    mox_store_close(store);
    return status;
}

void mox_store_close(moxie_store *store)
{
    if (store == NULL)
        return;
    mox_store_close(store->host);
    mox_reader_close(store->reader); /* nothing is read into the buffers after this */
    for (int32_t l = 0; l < store->n_layers; l++) {
        mox_store_layer *layer = &store->layers[l];
        mox_cache_destroy(layer->cache);
        mox_cache_destroy(layer->device_cache);
        mox_free(layer->device_holds);
        mox_free(layer->entries);
        mox_free(layer->buffer_of);
        mox_free(layer->places);
        mox_free(layer->used);
        mox_free_pages(layer->shared_record);
        mox_expert_file_close(layer->file);
    }
    if (store->locks) {
        pthread_cond_destroy(&store->news);
        pthread_mutex_destroy(&store->mutex);
    }
    mox_free(store->layers);
    mox_free(store->free);
    mox_free(store->buffers);
    free_buffers(store);
    mox_store_device_close(store);
    mox_free(store);
}
