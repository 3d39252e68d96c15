/* SPDX-License-Identifier: Apache-2.0
 *
 * store_host.c - experts that the CPU computes where they lie, beside a GPU that has the others: a store in a store.
 *
 *     store         files for the GPU --> pinned buffers --> slots on the GPU
 *     store->host   files of the same layers for the CPU --> slots and read buffers in RAM
 *
 * The store's cache says which experts have a slot on the GPU. All others are runs of the layer in store->host, whose
 * policy, reads and waves are those of any store on the CPU. The GPU computes the shared experts.
 */
#include <string.h>

#include "layer/plan/plan_create.h"
#include "layer/run/run.h"
#include "store/store.h"

moxie_store_options mox_store_host_options(const moxie_store *store, const moxie_store_options *o)
{
    moxie_store_options own = MOXIE_STORE_OPTIONS_INIT;
    own.ram_bytes = o->ram_bytes - (uint64_t)store->n_buffers * store->record_bytes;
    own.no_prefetch = o->no_prefetch;
    own.verify = o->verify;
    own.reader = o->reader;
    own.read_depth = o->read_depth;
    own.buffered = o->buffered;
    own.read_chunk_bytes = o->read_chunk_bytes;
    return own;
}

/* ---- the same layers ------------------------------------------------------------------------------------ */

static moxie_status check_expert(const moxie_expert_file *file, const moxie_expert_file *other, int64_t e,
                                 moxie_error *error)
{
    const mox_expert_entry *a = &file->index[e], *b = &other->index[e];
    if (a->range.bytes != 0 && b->range.bytes == 0)
        return mox_fail_file(MOXIE_ERR_MISMATCH, error, other->path, -1,
                             "it lacks expert %lld of layer %lld, which %s has: prepare both with one share of experts",
                             (long long)e, (long long)file->header.layer, file->path);
    if (a->range.bytes != 0 && a->source_hash != b->source_hash)
        return mox_fail_file(MOXIE_ERR_MISMATCH, error, other->path, -1,
                             "its expert %lld of layer %lld has another source hash than that of %s, so they may be of "
                             "different weights: prepare both of one checkpoint, by the same means",
                             (long long)e, (long long)file->header.layer, file->path);
    return MOXIE_OK;
}

static moxie_status link_layer(mox_store_layer *layer, const moxie_store *host, moxie_error *error)
{
    const moxie_expert_file *file = layer->file;
    MOX_TRY(mox_store_find(host, file->header.layer, &layer->beside, error));
    const moxie_expert_file *other = layer->beside->file;
    if (other->header.experts != file->header.experts)
        return mox_fail_file(MOXIE_ERR_MISMATCH, error, other->path, -1,
                             "it has a layer of %lld experts, that of %s has %lld: prepare both of one checkpoint",
                             (long long)other->header.experts, file->path, (long long)file->header.experts);
    for (int64_t e = 0; e < file->header.experts; e++)
        MOX_TRY(check_expert(file, other, e, error));
    return MOXIE_OK;
}

moxie_status mox_store_host_link(moxie_store *store, moxie_error *error)
{
    for (int32_t l = 0; l < store->n_layers; l++)
        MOX_TRY(link_layer(&store->layers[l], store->host, error));
    return MOXIE_OK;
}

/* The configuration of the layer on the GPU, without what the GPU does with the rows. */
moxie_status mox_store_host_layer(const mox_store_layer *from, const moxie_options *options, moxie_layer *layer,
                                  moxie_error *error)
{
    moxie_layer_config config = layer->config;
    moxie_options given, own = MOXIE_OPTIONS_INIT;
    if (from->beside == NULL)
        return MOXIE_OK;
    MOX_TRY(mox_options_read(options, &given, error));
    config.expert_norm = (moxie_row_norm) { 0 };
    config.round_results = 0; /* the norm reads what is not yet rounded */
    own.backend = MOXIE_BACKEND_CPU;
    own.mode = given.mode;
    own.executor = given.executor;
    const moxie_status status = mox_store_layer_open(from->beside->store, from->beside->file->header.layer, &config,
                                                     &own, &layer->beside, error);
    return status == MOXIE_OK ? status
                              : mox_fail_context(status, error, "opening the layer for experts that the CPU computes");
}

static moxie_status rows(const moxie_plan *plan, const moxie_run_args *args, float *out, moxie_error *error)
{
    return mox_run_enqueue(plan, MOX_RUN_EXPERTS, args, out, NULL, NULL, error);
}

void mox_store_host_set_source(mox_device_source *source)
{
    source->host_plan = mox_plan_create;
    source->host_rows = rows;
    source->host_plan_destroy = mox_plan_destroy;
}

/* ---- counters ------------------------------------------------------------------------------------------- */

void mox_store_host_count(mox_store_layer *beside, moxie_store_counters *to)
{
    moxie_store *host = beside->store;
    pthread_mutex_lock(&host->mutex);
    beside->total.runs = 0; /* those of the layer on the GPU count */
    mox_store_add_counters(to, &beside->total);
    beside->total = (moxie_store_counters)MOXIE_STORE_COUNTERS_INIT;
    pthread_mutex_unlock(&host->mutex);
}
