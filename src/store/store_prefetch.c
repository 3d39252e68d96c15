/* SPDX-License-Identifier: Apache-2.0
 *
 * store_prefetch.c - guesses: reads of experts that the next run of a layer may use (store.h).
 *
 *     ids of a caller ---------------------------------\
 *     plan of the layer + hidden states -> its router --+--> a free buffer each, while there are some
 *
 * One that no run asks for stays until the next run of its layer, or until a run finds no other buffer.
 */
#include "layer/plan/plan.h"
#include "layer/run/plan_run.h"
#include "layer/run/run_args.h"
#include "layer/weights/device_source.h"
#include "store/store.h"

static void prefetch(mox_store_layer *layer, const int32_t *ids, int64_t count)
{
    moxie_store *store = layer->store;
    const int64_t experts = layer->file->header.experts;
    pthread_mutex_lock(&store->mutex);
    mox_store_poll(store);
    for (int64_t i = 0; i < count; i++) {
        const int32_t e = ids[i];
        if (e < 0 || e >= experts || layer->buffer_of[e] >= 0 || mox_store_entry(layer, e)->range.bytes == 0)
            continue;
        const int32_t number = mox_store_read(layer, e, MOX_STORE_GUESS);
        if (number < 0)
            break;
        layer->total.prefetches++;
        layer->total.reads++;
        layer->total.read_bytes += store->buffers[number].request.bytes;
    }
    pthread_mutex_unlock(&store->mutex);
}

moxie_status mox_store_prefetch(moxie_store *store, int64_t number, const int32_t *ids, int64_t count,
                                moxie_error *error)
{
    mox_store_layer *layer = NULL;
    if (store->host != NULL) /* what comes to a slot on the GPU is not guessed */
        return mox_store_prefetch(store->host, number, ids, count, error);
    MOX_TRY(mox_store_find(store, number, &layer, error));
    if (store->prefetches)
        prefetch(layer, ids, count);
    return MOXIE_OK;
}

/* The layer of a plan in a store. */
static moxie_status layer_of(const moxie_plan *plan, mox_store_layer **out, moxie_error *error)
{
    const moxie_layer *layer = plan->layer;
    MOX_FAIL_IF(layer == NULL || (layer->source == NULL && layer->device_source == NULL), MOXIE_ERR_ARGUMENT, error,
                "the plan's layer is not one of a store: open it with moxie_store_layer()");
    *out = layer->source != NULL ? layer->source->user : layer->device_source->user;
    return MOXIE_OK;
}

moxie_status mox_store_lookahead(const moxie_plan *plan, const moxie_run_args *args, moxie_error *error)
{
    mox_store_layer *layer = NULL;
    mox_run run;
    MOX_TRY(layer_of(plan, &layer, error));
    if (!layer->store->prefetches)
        return MOXIE_OK;
    MOX_TRY(mox_run_begin(plan, args, 0, &run, error));
    run.args.ids_out = MOX_RUN_AT(&run, int32_t, ids);
    run.args.weights_out = MOX_RUN_AT(&run, float, weights);
    run.args.logits_out = NULL;
    run.args.ids = NULL;
    run.args.output = NULL;
    MOX_TRY(mox_plan_run(plan, MOX_RUN_ROUTE, &run.args, NULL, NULL, error));
    return mox_store_prefetch(layer->store, layer->file->header.layer, run.args.ids_out,
                              run.args.tokens * plan->config.top_k, error);
}
