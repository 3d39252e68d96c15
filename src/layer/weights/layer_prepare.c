/* SPDX-License-Identifier: Apache-2.0
 *
 * layer_prepare.c - fills a layer's slots from checkpoint views, a few experts at a time, and replaces one expert.
 *
 * Experts are packed straight into their slots, so peak memory is the layer plus the scratch of packing. A batch of
 * experts is one parallel loop over the parts of their records (layout.h). Between batches the caller's thread collects
 * the results in expert order, releases the views that were read, and reports progress.
 *
 *     part     | 0  1  2  3  4  5  6  7 | 0  1  2  3  4  5  6  7 |     two experts of eight parts each; three workers
 *     its task | 0  3  6  9 12 15  1  4 | 7 10 13 16  2  5  8 11 |     with six consecutive parts each
 *
 * Workers take tasks in order, so tasks that run at the same time write megabytes apart. If they wrote neighbouring
 * parts, several workers would touch a new page of 2 MB at once. Then the system would clear a page for each worker,
 * and use only one of them.
 */
#include "layer/weights/layer_prepare.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/executor.h"
#include "base/log.h"
#include "base/sizes.h"
#include "layer/config/reserved.h"
#include "layer/config/struct_size.h"
#include "layer/config/tp_slice.h"
#include "layer/weights/dense_matrix.h"
#include "layer/weights/device_ring.h"
#include "layer/weights/layer_arrays.h"
#include "layer/weights/layer_records.h"
#include "layer/weights/static_scale.h"

/* A batch has about this many parts a worker, so that waiting for the last part costs little. It has no more experts
 * than workers, since progress is reported and views are released between batches. */
#define TARGET_PARTS_PER_WORKER 32

typedef struct pack_batch {
    const mox_layout *layout;
    const mox_record_shape *shape, *whole; /* of records; of experts in `weights` */
    const moxie_layer_config *config;
    mox_tp_cut cut;
    const moxie_weights *weights;
    const int64_t *experts; /* [count] global indices; -1 is the shared expert */
    void *const *records;   /* [count] */
    int64_t count, parts, workers;
    uint64_t *sums;        /* [count, parts] checksums */
    mox_device_ring *ring; /* NULL: `records` is host memory */
    _Atomic bool failed;
} pack_batch;

/* The checkpoint's view of the batch's expert i. */
static const moxie_expert *view_of(const pack_batch *batch, int64_t i)
{
    const int64_t expert = batch->experts[i];
    return expert < 0 ? batch->weights->shared : &batch->weights->experts[expert];
}

/* The same with the part of this rank alone. */
static moxie_status slice_of(const pack_batch *batch, int64_t i, moxie_expert *out, moxie_error *error)
{
    return mox_tp_slice_expert(batch->config, batch->cut, view_of(batch, i), out, error);
}

static int64_t parts_per_worker(const pack_batch *batch)
{
    return mox_ceil_div(batch->count * batch->parts, batch->workers);
}

static void pack_part(void *context, int64_t task, int32_t worker)
{
    pack_batch *batch = context;
    (void)worker;
    const int64_t at = task % batch->workers * parts_per_worker(batch) + task / batch->workers;
    if (at >= batch->count * batch->parts)
        return;
    const int64_t i = at / batch->parts;
    moxie_expert expert;
    if (slice_of(batch, i, &expert, NULL) != MOXIE_OK ||
        mox_record_pack_part(batch->layout, batch->shape, &expert, at % batch->parts, batch->records[i],
                             &batch->sums[at], NULL) != MOXIE_OK)
        atomic_store_explicit(&batch->failed, true, memory_order_relaxed);
}

/* Packs the batch again, one expert after the other, to get the error of the first that fails. */
static moxie_status pack_for_error(const pack_batch *batch, moxie_error *error)
{
    for (int64_t i = 0; i < batch->count; i++) {
        moxie_expert expert;
        MOX_TRY(mox_record_check(batch->layout, batch->whole, batch->experts[i], view_of(batch, i), error));
        MOX_TRY(slice_of(batch, i, &expert, error));
        MOX_TRY(mox_record_pack(batch->layout, batch->shape, batch->experts[i], &expert, batch->records[i], error));
    }
    return MOXIE_OK;
}

static moxie_status pack(pack_batch *batch, const moxie_executor *executor, moxie_error *error)
{
    bool valid = true;
    for (int64_t i = 0; i < batch->count; i++)
        valid = valid &&
                mox_record_check(batch->layout, batch->whole, batch->experts[i], view_of(batch, i), NULL) == MOXIE_OK;
    if (valid)
        mox_parallel(executor, batch->workers * parts_per_worker(batch), pack_part, batch);
    if (!valid || batch->failed)
        return pack_for_error(batch, error);
    for (int64_t i = 0; i < batch->count; i++)
        mox_record_seal(batch->layout, batch->shape, batch->experts[i], view_of(batch, i), batch->records[i],
                        batch->sums + i * batch->parts);
    return MOXIE_OK;
}

static void release_views(const pack_batch *batch)
{
    for (int64_t i = 0; i < batch->count && batch->weights->done != NULL; i++)
        batch->weights->done(batch->weights->done_user, view_of(batch, i));
}

static moxie_status report_progress(const moxie_options *options, int64_t done, int64_t total, moxie_error *error)
{
    MOX_FAIL_IF(options->progress != NULL && options->progress(options->progress_user, done, total) != 0,
                MOXIE_ERR_TIMEOUT, error, "the progress callback cancelled after %lld of %lld experts", (long long)done,
                (long long)total);
    return MOXIE_OK;
}

/* Packs one batch into its records, or through the ring to the device. */
static moxie_status fill(pack_batch *batch, void **buffers, const moxie_options *options, moxie_error *error)
{
    void *const *to = batch->records;
    if (batch->ring == NULL)
        return pack(batch, options->executor, error);
    MOX_TRY(mox_device_ring_begin(batch->ring, buffers, error));
    batch->records = buffers;
    const moxie_status status = pack(batch, options->executor, error);
    batch->records = to;
    MOX_TRY(status);
    return mox_device_ring_send(batch->ring, to, batch->count, error);
}

static moxie_status fill_all(pack_batch *batch, void **buffers, int64_t batch_experts, int64_t total,
                             const moxie_options *options, moxie_error *error)
{
    for (int64_t done = 0; done < total; done += batch->count) {
        batch->count = mox_min_i64(batch_experts, total - done);
        MOX_TRY(fill(batch, buffers, options, error));
        release_views(batch);
        batch->experts += batch->count;
        batch->records += batch->count;
        MOX_TRY(report_progress(options, done + batch->count, total, error));
    }
    return MOXIE_OK;
}

/* Packs `total` experts, whose records have `bytes` each. `batch.experts` and `batch.records` point to the first. */
static moxie_status pack_in_batches(pack_batch batch, const mox_device *device, uint64_t bytes, int64_t total,
                                    const moxie_options *options, moxie_error *error)
{
    mox_device_ring ring;
    batch.workers = options->executor->workers;
    batch.parts = mox_record_parts(batch.layout, batch.shape);
    const int64_t batch_experts =
        mox_min_i64(batch.workers, mox_ceil_div(TARGET_PARTS_PER_WORKER * batch.workers, batch.parts));
    batch.sums = mox_calloc((uint64_t)(batch_experts * batch.parts), sizeof *batch.sums);
    void **buffers = mox_calloc((uint64_t)batch_experts, sizeof *buffers);
    moxie_status status = MOXIE_OK;
    if (batch.sums == NULL || buffers == NULL)
        status = mox_fail(MOXIE_ERR_MEMORY, error, "no memory to prepare with %lld workers", (long long)batch.workers);
    if (status == MOXIE_OK && !mox_device_is_host(device)) {
        status = mox_device_ring_open(&ring, device, bytes, batch_experts, error);
        if (status == MOXIE_OK) {
            mox_log(MOXIE_LOG_INFO, "%lld experts go to the device through %llu bytes of pinned memory",
                    (long long)total, (unsigned long long)(2 * (uint64_t)batch_experts * bytes));
            batch.ring = &ring;
        }
    }
    if (status == MOXIE_OK)
        status = fill_all(&batch, buffers, batch_experts, total, options, error);
    if (batch.ring != NULL)
        status = mox_device_ring_close(&ring, status, error);
    mox_free(batch.sums);
    mox_free(buffers);
    return status;
}

static moxie_status pack_routed(moxie_layer *layer, const moxie_weights *weights, const moxie_options *options,
                                moxie_error *error)
{
    const pack_batch batch = { .layout = layer->layouts[MOX_ROUTED],
                               .shape = &layer->routed_shape,
                               .whole = &layer->whole_shape,
                               .config = &layer->config,
                               .cut = layer->tp_cut,
                               .weights = weights,
                               .experts = layer->expert_of,
                               .records = layer->records };
    return pack_in_batches(batch, &layer->device, layer->record_bytes, layer->slots, options, error);
}

static moxie_status pack_shared(moxie_layer *layer, const moxie_weights *weights, const moxie_options *options,
                                moxie_error *error)
{
    static const int64_t shared = -1;
    const pack_batch batch = { .layout = layer->layouts[MOX_SHARED_EXPERT],
                               .shape = &layer->shared_shape,
                               .whole = &layer->shared_shape,
                               .config = &layer->config,
                               .weights = weights,
                               .experts = &shared,
                               .records = &layer->shared_record };
    moxie_options silent = *options;
    silent.progress = NULL;
    const moxie_status status = pack_in_batches(batch, &layer->device, layer->shared_bytes, 1, &silent, error);
    return status == MOXIE_OK ? status : mox_fail_context(status, error, "expert -1 is the shared expert");
}

static moxie_status set_static_scales(moxie_layer *layer, int64_t e, const moxie_expert *expert, moxie_error *error)
{
    char what[64];
    snprintf(what, sizeof what, "expert %lld a13_scale", (long long)e);
    MOX_TRY(mox_static_scale_set(&layer->static_scale[MOX_W13], &layer->config.a13, e, expert->a13_scale, what, error));
    snprintf(what, sizeof what, "expert %lld a2_scale", (long long)e);
    return mox_static_scale_set(&layer->static_scale[MOX_W2], &layer->config.a2, e, expert->a2_scale, what, error);
}

moxie_status mox_layer_resolve_scales(moxie_layer *layer, moxie_error *error)
{
    MOX_TRY(mox_static_scale_resolve(&layer->static_scale[MOX_W13], &layer->config.a13, layer, "a13_scale", error));
    return mox_static_scale_resolve(&layer->static_scale[MOX_W2], &layer->config.a2, layer, "a2_scale", error);
}

moxie_status mox_layer_read_shared_numbers(moxie_layer *layer, const moxie_weights *weights, moxie_error *error)
{
    const moxie_shared_config *config = &layer->config.shared;
    if (!mox_quant_is_none(&config->a13))
        MOX_TRY(mox_act_quant_check_static_scale(&config->a13, weights->shared->a13_scale, "shared a13_scale", error));
    if (!mox_quant_is_none(&config->a2))
        MOX_TRY(mox_act_quant_check_static_scale(&config->a2, weights->shared->a2_scale, "shared a2_scale", error));
    layer->shared_static_scale[MOX_W13] = weights->shared->a13_scale;
    layer->shared_static_scale[MOX_W2] = weights->shared->a2_scale;
    if (layer->shared_gate.weight == NULL)
        return MOXIE_OK;
    return mox_dense_matrix_read(&layer->shared_gate, &weights->shared_gate, "shared gate", error);
}

static moxie_status prepare_shared(moxie_layer *layer, const moxie_weights *weights, const moxie_options *options,
                                   moxie_error *error)
{
    const moxie_shared_config *config = &layer->config.shared;
    if (layer->layouts[MOX_SHARED_EXPERT] == NULL)
        return MOXIE_OK;
    MOX_FAIL_IF(weights->shared == NULL, MOXIE_ERR_MISMATCH, error,
                "the configuration has a shared expert of intermediate size %lld, but weights.shared is NULL",
                (long long)config->intermediate);
    MOX_TRY(pack_shared(layer, weights, options, error));
    return mox_layer_read_shared_numbers(layer, weights, error);
}

moxie_status mox_layer_read_numbers(moxie_layer *layer, const moxie_weights *weights, moxie_error *error)
{
    const moxie_layer_config *c = &layer->config;
    for (int64_t e = 0; e < weights->n_experts; e++)
        MOX_TRY(set_static_scales(layer, e, &weights->experts[e], error));
    MOX_TRY(mox_layer_resolve_scales(layer, error));
    if (layer->router.weight != NULL)
        MOX_TRY(mox_dense_matrix_read(&layer->router, &weights->router, "router", error));
    MOX_TRY(mox_norm_weight_read(&layer->router_norm, &c->router_norm, &weights->router_norm, "router norm", error));
    MOX_TRY(mox_norm_weight_read(&layer->expert_norm, &c->expert_norm, &weights->expert_norm, "expert norm", error));
    return MOXIE_OK;
}

moxie_status mox_layer_prepare(moxie_layer *layer, const moxie_weights *weights, const moxie_options *options,
                               moxie_error *error)
{
    moxie_weights w;
    moxie_options read;
    MOX_TRY(mox_struct_read(weights, &w, MOX_STRUCT(moxie_weights), error));
    MOX_TRY(mox_options_read(options, &read, error));
    MOX_FAIL_IF(w.n_experts != layer->config.experts || w.experts == NULL, MOXIE_ERR_MISMATCH, error,
                "weights hold %lld experts, but the configuration has %lld: pass a view for each expert",
                (long long)w.n_experts, (long long)layer->config.experts);
    MOX_TRY(mox_reserved_weights(&w, error));
    layer->prepared = false;
    MOX_TRY(mox_layer_read_numbers(layer, &w, error));
    MOX_TRY(mox_layer_choose_layout(layer, &w, error));
    MOX_TRY(prepare_shared(layer, &w, &read, error));
    MOX_TRY(pack_routed(layer, &w, &read, error));
    MOX_TRY(mox_layer_arrays_refresh(layer, error));
    layer->prepared = true;
    return MOXIE_OK;
}

/* What experts without a scale use; 0 where all have one or none is needed. */
static float fallback_of(const moxie_layer *layer, mox_projection p)
{
    const moxie_quant *quant = p == MOX_W13 ? &layer->config.a13 : &layer->config.a2;
    float best = 0;
    bool lacks = false;
    for (int64_t e = 0; e < layer->config.experts; e++) {
        lacks = lacks || layer->static_scale[p].raw[e] == 0;
        best = mox_static_scale_cautious(quant, best, layer->static_scale[p].raw[e]);
    }
    return lacks && layer->static_scale[p].needed ? best : 0;
}

/* Stores one expert's static scales, and resolves those of all slots. Ranks with other experts do not learn of it, so
 * what they use for experts without a scale may not change. (Tensor parallel ranks each update their part of it.) */
static moxie_status put_static_scales(moxie_layer *layer, int64_t expert, const moxie_expert *scales,
                                      moxie_error *error)
{
    const bool alone = layer->has_comm && layer->config.ep_size > 1;
    const float before[] = { fallback_of(layer, MOX_W13), fallback_of(layer, MOX_W2) };
    MOX_TRY(set_static_scales(layer, expert, scales, error));
    for (int p = MOX_W13; p <= MOX_W2; p++) {
        const float after = fallback_of(layer, (mox_projection)p);
        MOX_FAIL_IF(alone && after != before[p], MOXIE_ERR_MISMATCH, error,
                    "with the new %s of expert %lld, experts that have none would use %g instead of %g, on this rank "
                    "alone: prepare the layers of all ranks anew",
                    p == MOX_W13 ? "a13_scale" : "a2_scale", (long long)expert, (double)after, (double)before[p]);
    }
    return mox_layer_resolve_scales(layer, error);
}

static moxie_status send_update(moxie_layer *layer, int32_t slot, const void *record, moxie_error *error)
{
    MOX_TRY(mox_device_copy(&layer->device, layer->records[slot], record, layer->record_bytes, error));
    return mox_layer_arrays_refresh(layer, error);
}

/* Packs one expert, of which this rank holds all rows or some. */
moxie_status mox_layer_pack_alone(const moxie_layer *layer, int64_t expert, const moxie_expert *weights, void *record,
                                  moxie_error *error)
{
    const mox_layout *layout = layer->layouts[MOX_ROUTED];
    moxie_expert mine;
    MOX_TRY(mox_record_check(layout, &layer->whole_shape, expert, weights, error));
    MOX_TRY(mox_tp_slice_expert(&layer->config, layer->tp_cut, weights, &mine, error));
    return mox_record_pack(layout, &layer->routed_shape, expert, &mine, record, error);
}

moxie_status mox_layer_update_expert(moxie_layer *layer, int64_t expert, const moxie_expert *weights,
                                     moxie_error *error)
{
    MOX_TRY(mox_layer_need_prepared(layer, error));
    MOX_TRY(mox_layer_need_expert(layer, expert, "to be replaced", error));
    const int32_t slot = layer->slot_of[expert];
    MOX_FAIL_IF(slot < 0, MOXIE_ERR_ARGUMENT, error, "expert %lld was to be replaced, but it is not on rank %d of %d",
                (long long)expert, (int)layer->config.ep_rank, (int)layer->config.ep_size);
    MOX_TRY(mox_reserved_expert(weights, "the new expert", error));
    const moxie_expert old = { .a13_scale = layer->static_scale[MOX_W13].raw[expert],
                               .a2_scale = layer->static_scale[MOX_W2].raw[expert] };
    void *copy = mox_alloc_pages(layer->record_bytes);
    MOX_FAIL_IF(copy == NULL, MOXIE_ERR_MEMORY, error,
                "no memory for a second record of %llu bytes while the old one is in use",
                (unsigned long long)layer->record_bytes);
    moxie_status status = mox_layer_pack_alone(layer, expert, weights, copy, error);
    if (status == MOXIE_OK)
        status = put_static_scales(layer, expert, weights, error);
    if (status == MOXIE_OK && layer->in_file)
        status = mox_layer_unlock_record(layer, slot, error);
    if (status == MOXIE_OK && mox_device_is_host(&layer->device))
        memcpy(layer->records[slot], copy, layer->record_bytes);
    else if (status == MOXIE_OK)
        status = send_update(layer, slot, copy, error);
    if (status != MOXIE_OK) {
        set_static_scales(layer, expert, &old, NULL);
        mox_layer_resolve_scales(layer, NULL);
    }
    mox_free_pages(copy);
    return status;
}
