/* SPDX-License-Identifier: Apache-2.0
 *
 * store_counters.c - what the runs on a store did (store.h).
 */
#include "store/store.h"

void mox_store_add_counters(moxie_store_counters *to, const moxie_store_counters *from)
{
    to->runs += from->runs;
    to->uses += from->uses;
    to->hits += from->hits;
    to->inserts += from->inserts;
    to->reads += from->reads;
    to->read_bytes += from->read_bytes;
    to->ram_bytes += from->ram_bytes;
    to->waits += from->waits;
    to->wait_seconds += from->wait_seconds;
    to->prefetches += from->prefetches;
    to->prefetches_used += from->prefetches_used;
    to->prefetches_wasted += from->prefetches_wasted;
    to->failed_reads += from->failed_reads;
    to->device_uses += from->device_uses;
    to->device_hits += from->device_hits;
    to->device_inserts += from->device_inserts;
    to->copies += from->copies;
    to->copied_bytes += from->copied_bytes;
    to->id_waits += from->id_waits;
    to->id_wait_seconds += from->id_wait_seconds;
    to->copy_waits += from->copy_waits;
    to->copy_wait_seconds += from->copy_wait_seconds;
    to->host_uses += from->host_uses;
    to->host_seconds += from->host_seconds;
}

moxie_status mox_store_get_counters(moxie_store *store, int64_t number, bool last_run, moxie_store_counters *out,
                                    moxie_error *error)
{
    mox_store_layer *one = NULL;
    moxie_store_counters sum = MOXIE_STORE_COUNTERS_INIT;
    if (number != -1)
        MOX_TRY(mox_store_find(store, number, &one, error));
    pthread_mutex_lock(&store->mutex);
    for (int32_t l = 0; l < store->n_layers; l++) {
        const mox_store_layer *layer = &store->layers[l];
        if (one == NULL || one == layer)
            mox_store_add_counters(&sum, last_run ? &layer->last : &layer->total);
    }
    pthread_mutex_unlock(&store->mutex);
    *out = sum;
    return MOXIE_OK;
}
