/* SPDX-License-Identifier: Apache-2.0
 *
 * store_device_open.c - opens and closes the GPU's tier of a store, and cuts its budget (store_device.h).
 */
#include "base/sizes.h"
#include "store/store_device.h"

enum { MIN_BUFFERS = 2 }; /* one is filled while another is read */

/* ---- budget -------------------------------------------------------------------------------------------- */

static uint64_t padded(uint64_t bytes)
{
    return (bytes + MOX_DEVICE_ALIGN - 1) / MOX_DEVICE_ALIGN * MOX_DEVICE_ALIGN;
}

/* The largest number of experts of a layer, and of experts of a token. */
static void find_sizes(const moxie_store *store, int64_t *experts, int64_t *top_k, uint64_t *shared, uint64_t *record)
{
    *experts = *top_k = 1;
    *shared = *record = 0;
    for (int32_t l = 0; l < store->n_layers; l++) {
        const moxie_expert_file *file = store->layers[l].file;
        *experts = mox_max_i64(*experts, file->header.held);
        *top_k = mox_max_i64(*top_k, file->config.top_k);
        *shared += padded(file->header.shared_bytes);
        *record = padded(file->header.record_bytes) > *record ? padded(file->header.record_bytes) : *record;
    }
}

moxie_status mox_store_device_divide(moxie_store *store, const moxie_store_options *o, moxie_error *error)
{
    int64_t experts, top_k;
    uint64_t shared, record;
    MOX_FAIL_IF(o->device_buffers < 0, MOXIE_ERR_ARGUMENT, error, "device_buffers is %d: it is 0 or more",
                (int)o->device_buffers);
    MOX_FAIL_IF(o->device_bytes == 0 && (o->device != NULL || o->device_buffers > 0), MOXIE_ERR_ARGUMENT, error,
                "options.%s is set, but device_bytes is 0: set it, too, for a tier on a GPU",
                o->device != NULL ? "device" : "device_buffers");
    MOX_FAIL_IF(o->device_bytes == 0 && o->compute_where_it_lies != NULL, MOXIE_ERR_ARGUMENT, error,
                "options.compute_where_it_lies is set, but device_bytes is 0: without a tier on a GPU the CPU computes "
                "all experts; give the store the files for the CPU alone");
    if (o->device_bytes == 0)
        return MOXIE_OK;
    find_sizes(store, &experts, &top_k, &shared, &record);
    const uint64_t left = o->device_bytes > shared ? o->device_bytes - shared : 0;
    const int64_t records = (int64_t)(left / record), layers = store->n_layers;
    const int64_t usual = mox_min_i64(mox_min_i64(2 * top_k, records / 4), records - layers);
    const int64_t wanted = mox_min_i64(o->device_buffers > 0 ? o->device_buffers : usual, 2 * experts);
    const int64_t buffers = mox_max_i64(wanted, MIN_BUFFERS);
    MOX_FAIL_IF(
        records < layers + buffers, MOXIE_ERR_MEMORY, error,
        "a budget of %llu bytes on the GPU: %d layers need at least %llu, for their shared experts (%llu) and "
        "%lld records of %llu, a slot for each layer and buffers for copies; %llu hold all experts",
        (unsigned long long)o->device_bytes, (int)layers,
        (unsigned long long)(shared + (uint64_t)(layers + mox_max_i64(o->device_buffers, MIN_BUFFERS)) * record),
        (unsigned long long)shared, (long long)(layers + mox_max_i64(o->device_buffers, MIN_BUFFERS)),
        (unsigned long long)record, (unsigned long long)(shared + (uint64_t)(layers * experts + MIN_BUFFERS) * record));
    store->device_slots = (int32_t)mox_min_i64((records - buffers) / layers, experts);
    store->device_buffers = (int32_t)buffers;
    store->device_record_bytes = record;
    store->device_shared_bytes = shared;
    return MOXIE_OK;
}

/* ---- open ---------------------------------------------------------------------------------------------- */

moxie_status mox_store_device_open(moxie_store *store, const moxie_store_options *o, moxie_error *error)
{
    moxie_options options = MOXIE_OPTIONS_INIT;
    options.backend = MOXIE_BACKEND_CUDA;
    options.device = o->device;
    if (o->device_bytes == 0)
        return MOXIE_OK;
    store->device = mox_calloc(1, sizeof *store->device);
    MOX_FAIL_IF(store->device == NULL, MOXIE_ERR_MEMORY, error, "no memory for a store");
    mox_store_device *d = store->device;
    MOX_TRY(mox_device_find(&options, false, &d->device, error));
    MOX_TRY(d->device.table->use(d->device.ordinal, error));
    d->has_turn = pthread_mutex_init(&d->turn, NULL) == 0;
    MOX_FAIL_IF(!d->has_turn, MOXIE_ERR_MEMORY, error, "no memory for the locks of a store");
    return MOXIE_OK;
}

static bool make_window(mox_store_window *w, uint64_t experts)
{
    w->half = w->number = -1;
    w->experts = mox_calloc(experts, sizeof *w->experts);
    w->slot = mox_calloc(experts, sizeof *w->slot);
    return w->experts != NULL && w->slot != NULL;
}

static moxie_status allocate_lists(moxie_store *store, mox_store_device *d, moxie_error *error)
{
    uint64_t experts = 1, session = 0;
    for (int32_t l = 0; l < store->n_layers; l++) {
        const uint64_t own = (uint64_t)store->layers[l].file->header.experts;
        experts = own > experts ? own : experts;
        session = mox_store_session_bytes((int64_t)experts);
    }
    d->ram = mox_calloc(1, session);
    d->places = mox_calloc(experts, sizeof *d->places);
    d->slot_of = mox_calloc(experts, sizeof *d->slot_of);
    d->missing = mox_calloc(experts, sizeof *d->missing);
    d->records = mox_calloc(experts, sizeof *d->records);
    const bool windows = make_window(&d->held, experts) && make_window(&d->windows[0], experts) &&
                         make_window(&d->windows[1], experts) && make_window(&d->on_host, experts);
    d->on_host.view.on_host = true;
    MOX_FAIL_IF(d->ram == NULL || d->places == NULL || d->slot_of == NULL || d->missing == NULL || d->records == NULL ||
                    !windows,
                MOXIE_ERR_MEMORY, error, "no memory for the tables of a store");
    return MOXIE_OK;
}

moxie_status mox_store_device_allocate(moxie_store *store, moxie_error *error)
{
    mox_store_device *d = store->device;
    void *slab = NULL;
    if (d == NULL)
        return MOXIE_OK;
    const mox_cuda_table *table = d->device.table;
    const uint64_t records =
        (uint64_t)store->n_layers * (uint64_t)store->device_slots + (uint64_t)store->device_buffers;
    MOX_TRY(allocate_lists(store, d, error));
    MOX_TRY(
        mox_device_allocate(&d->device, records * store->device_record_bytes, "the slots of a store", &slab, error));
    d->slab = slab;
    MOX_TRY(table->stream_create(&d->copies, error));
    mox_cuda_event *const events[] = { &d->copied[0], &d->copied[1], &d->used[0], &d->used[1], &d->ended };
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++)
        MOX_TRY(table->event_create(events[i], error));
    return MOXIE_OK;
}

moxie_status mox_store_device_add(mox_store_layer *layer, moxie_error *error)
{
    const moxie_store *store = layer->store;
    if (store->device == NULL)
        return MOXIE_OK;
    layer->device_holds = mox_calloc((uint64_t)store->device_slots, sizeof *layer->device_holds);
    MOX_FAIL_IF(layer->device_holds == NULL, MOXIE_ERR_MEMORY, error, "no memory for the slots of a store");
    for (int32_t s = 0; s < store->device_slots; s++)
        layer->device_holds[s] = -1;
    mox_store_set_device_source(layer);
    return MOXIE_OK;
}

/* ---- close --------------------------------------------------------------------------------------------- */

static void free_window(mox_store_window *w)
{
    mox_free(w->experts);
    mox_free(w->slot);
}

void mox_store_device_close(moxie_store *store)
{
    mox_store_device *d = store->device;
    if (d == NULL)
        return;
    const mox_cuda_table *table = d->device.table;
    if (d->copies != NULL && table->use(d->device.ordinal, NULL) == MOXIE_OK) {
        (void)table->stream_wait(d->copies, NULL);
        (void)table->event_wait(d->ended, NULL); /* the last run may still read the slots */
    }
    if (table != NULL) {
        mox_cuda_event const events[] = { d->copied[0], d->copied[1], d->used[0], d->used[1], d->ended };
        for (size_t i = 0; i < sizeof events / sizeof events[0]; i++)
            table->event_destroy(events[i]);
        table->stream_destroy(d->copies);
        mox_device_release(&d->device, d->slab);
    }
    if (d->has_turn)
        pthread_mutex_destroy(&d->turn);
    free_window(&d->held);
    free_window(&d->windows[0]);
    free_window(&d->windows[1]);
    free_window(&d->on_host);
    mox_free(d->ram);
    mox_free(d->places);
    mox_free(d->slot_of);
    mox_free(d->missing);
    mox_free(d->records);
    mox_free(d);
    store->device = NULL;
}
