/* SPDX-License-Identifier: Apache-2.0
 *
 * prepare.c - fills a layer's slots from checkpoint views, one expert at a time, and replaces one expert.
 *
 * Each expert is packed straight into its slot, so the peak is the layer plus what one expert's packing needs.
 * With an executor, as many experts as it has workers are packed at once; between such batches the caller's
 * thread looks at the results, in expert order, and reports progress.
 */
#include <stdio.h>

#include "base/executor.h"
#include "base/sizes.h"
#include "layer/layer.h"
#include "layer/struct_size.h"

typedef struct pack_result {
    moxie_status status;
    moxie_error error;
} pack_result;

typedef struct pack_batch {
    moxie_layer *layer;
    const moxie_expert *experts;
    int64_t first;        /* slot of task 0 */
    pack_result *results; /* one a task */
} pack_batch;

static void pack_slot(void *context, int64_t task, int32_t worker)
{
    const pack_batch *batch = context;
    const moxie_layer *layer = batch->layer;
    (void)worker;
    const int64_t slot = batch->first + task, expert = layer->expert_of[slot];
    pack_result *result = &batch->results[task];
    result->status = mox_record_pack(layer->routed_layout, &layer->routed_shape, expert, &batch->experts[expert],
                                     layer->records[slot], &result->error);
}

static moxie_status report_progress(const moxie_options *options, int64_t done, int64_t total, moxie_error *error)
{
    MOX_FAIL_IF(options->progress != NULL && options->progress(options->progress_user, done, total) != 0,
                MOXIE_ERR_TIMEOUT, error, "the progress callback cancelled after %lld of %lld experts", (long long)done,
                (long long)total);
    return MOXIE_OK;
}

static moxie_status first_failure(const pack_batch *batch, int64_t tasks, moxie_error *error)
{
    for (int64_t i = 0; i < tasks; i++)
        if (batch->results[i].status != MOXIE_OK) {
            if (error != NULL)
                *error = batch->results[i].error;
            return batch->results[i].status;
        }
    return MOXIE_OK;
}

static moxie_status pack_all(moxie_layer *layer, const moxie_weights *weights, const moxie_options *options,
                             moxie_error *error)
{
    const int64_t workers = options->executor->workers;
    pack_batch batch = { .layer = layer, .experts = weights->experts };
    batch.results = mox_calloc((uint64_t)workers, sizeof *batch.results);
    MOX_FAIL_IF(batch.results == NULL, MOXIE_ERR_MEMORY, error, "no memory to prepare with %lld workers",
                (long long)workers);
    moxie_status status = MOXIE_OK;
    for (; status == MOXIE_OK && batch.first < layer->slots; batch.first += workers) {
        const int64_t tasks = mox_min_i64(workers, layer->slots - batch.first);
        mox_parallel(options->executor, tasks, pack_slot, &batch);
        status = first_failure(&batch, tasks, error);
        if (status == MOXIE_OK)
            status = report_progress(options, batch.first + tasks, layer->slots, error);
    }
    mox_free(batch.results);
    return status;
}

static moxie_status set_given(moxie_layer *layer, int64_t e, const moxie_expert *expert, moxie_error *error)
{
    char what[64];
    snprintf(what, sizeof what, "expert %lld a13_scale", (long long)e);
    MOX_TRY(mox_given_set(&layer->given13, &layer->config.a13, e, expert->a13_scale, what, error));
    snprintf(what, sizeof what, "expert %lld a2_scale", (long long)e);
    return mox_given_set(&layer->given2, &layer->config.a2, e, expert->a2_scale, what, error);
}

static moxie_status resolve_given(moxie_layer *layer, moxie_error *error)
{
    MOX_TRY(mox_given_resolve(&layer->given13, &layer->config.a13, layer, "a13_scale", error));
    return mox_given_resolve(&layer->given2, &layer->config.a2, layer, "a2_scale", error);
}

static moxie_status prepare_shared(moxie_layer *layer, const moxie_weights *weights, moxie_error *error)
{
    const moxie_shared_config *config = &layer->config.shared;
    if (layer->shared_layout == NULL)
        return MOXIE_OK;
    MOX_FAIL_IF(weights->shared == NULL, MOXIE_ERR_MISMATCH, error,
                "the configuration has a shared expert of intermediate size %lld, but weights.shared is NULL",
                (long long)config->intermediate);
    moxie_status status =
        mox_record_pack(layer->shared_layout, &layer->shared_shape, -1, weights->shared, layer->shared_record, error);
    if (status != MOXIE_OK)
        return mox_fail_context(status, error, "expert -1 is the shared expert");
    if (!mox_quant_is_none(&config->a13))
        MOX_TRY(mox_act_quant_check_given(&config->a13, weights->shared->a13_scale, "shared a13_scale", error));
    if (!mox_quant_is_none(&config->a2))
        MOX_TRY(mox_act_quant_check_given(&config->a2, weights->shared->a2_scale, "shared a2_scale", error));
    layer->shared_given13 = weights->shared->a13_scale;
    layer->shared_given2 = weights->shared->a2_scale;
    if (layer->shared_gate.weight == NULL)
        return MOXIE_OK;
    return mox_dense_matrix_read(&layer->shared_gate, &weights->shared_gate, "shared gate", error);
}

moxie_status mox_layer_prepare(moxie_layer *layer, const moxie_weights *weights, const moxie_options *options,
                               moxie_error *error)
{
    moxie_weights w;
    moxie_options read;
    MOX_TRY(mox_struct_read(weights, &w, sizeof w, "moxie_weights", error));
    MOX_TRY(mox_options_read(options, &read, error));
    MOX_FAIL_IF(w.n_experts != layer->config.experts || w.experts == NULL, MOXIE_ERR_MISMATCH, error,
                "weights hold %lld experts, the configuration has %lld", (long long)w.n_experts,
                (long long)layer->config.experts);
    layer->prepared = false;
    for (int64_t e = 0; e < w.n_experts; e++)
        MOX_TRY(set_given(layer, e, &w.experts[e], error));
    MOX_TRY(resolve_given(layer, error));
    if (layer->router.weight != NULL)
        MOX_TRY(mox_dense_matrix_read(&layer->router, &w.router, "router", error));
    MOX_TRY(prepare_shared(layer, &w, error));
    MOX_TRY(pack_all(layer, &w, &read, error));
    layer->prepared = true;
    return MOXIE_OK;
}

/* Puts the expert's new static scales in place, or leaves the old ones when the layer would not stand on them. */
static moxie_status swap_given(moxie_layer *layer, int64_t expert, const moxie_expert *weights, moxie_error *error)
{
    const moxie_expert old = { .a13_scale = layer->given13.raw[expert], .a2_scale = layer->given2.raw[expert] };
    moxie_status status = set_given(layer, expert, weights, error);
    if (status == MOXIE_OK)
        status = resolve_given(layer, error);
    if (status != MOXIE_OK) {
        set_given(layer, expert, &old, NULL);
        resolve_given(layer, NULL);
    }
    return status;
}

moxie_status mox_layer_update_expert(moxie_layer *layer, int64_t expert, const moxie_expert *weights,
                                     moxie_error *error)
{
    MOX_FAIL_IF(!layer->prepared, MOXIE_ERR_ARGUMENT, error,
                "the layer holds no experts yet: call moxie_layer_prepare first");
    MOX_FAIL_IF(expert < 0 || expert >= layer->config.experts, MOXIE_ERR_ARGUMENT, error,
                "expert %lld was to be replaced; the layer has experts 0 to %lld", (long long)expert,
                (long long)layer->config.experts - 1);
    const int32_t slot = layer->slot_of[expert];
    MOX_FAIL_IF(slot < 0, MOXIE_ERR_ARGUMENT, error, "expert %lld was to be replaced, but it is not on rank %d of %d",
                (long long)expert, (int)layer->config.ep_rank, (int)layer->config.ep_size);
    void *spare = mox_alloc_aligned(layer->record_bytes, MOX_RECORD_ALIGN);
    MOX_FAIL_IF(spare == NULL, MOXIE_ERR_MEMORY, error, "no memory for a record of %llu bytes beside the old one",
                (unsigned long long)layer->record_bytes);
    moxie_status status = mox_record_pack(layer->routed_layout, &layer->routed_shape, expert, weights, spare, error);
    if (status == MOXIE_OK)
        status = swap_given(layer, expert, weights, error);
    if (status != MOXIE_OK) {
        mox_free(spare);
        return status;
    }
    mox_free(layer->records[slot]);
    layer->records[slot] = spare;
    return MOXIE_OK;
}
