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

moxie_status mox_store_lookahead(const moxie_plan *plan, const moxie_run_args *args, moxie_error *error)
{
    MOX_FAIL_IF(plan->fetch != NULL, MOXIE_ERR_UNSUPPORTED, error,
                "a layer of a store on a GPU does not look ahead yet: give the ids to moxie_store_prefetch(), which "
                "reads these experts into RAM");
    MOX_FAIL_IF(plan->layer == NULL || plan->layer->source == NULL, MOXIE_ERR_ARGUMENT, error,
                "the plan's layer is not one of a store: open it with moxie_store_layer()");
    mox_store_layer *layer = plan->layer->source->user;
    mox_run run;
    if (!layer->store->prefetches)
        return MOXIE_OK;
    MOX_TRY(mox_run_begin(plan, args, 0, &run, error));
    run.args.ids_out = MOX_RUN_AT(&run, int32_t, ids);
    run.args.weights_out = MOX_RUN_AT(&run, float, weights);
    run.args.logits_out = NULL;
    run.args.ids = NULL;
    run.args.output = NULL;
    MOX_TRY(mox_plan_run(plan, MOX_RUN_ROUTE, &run.args, NULL, NULL, error));
    prefetch(layer, run.args.ids_out, run.args.tokens * plan->config.top_k);
    return MOXIE_OK;
}
