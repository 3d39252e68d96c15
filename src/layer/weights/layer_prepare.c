/* SPDX-License-Identifier: Apache-2.0
 *
 * layer_prepare.c - fills a layer's slots from checkpoint views, and replaces one expert.
 *
 * layer_prepare.c says what must be packed; pack_on_host.c and pack_on_device.c pack it (pack_job.h).
 */
#include "layer/weights/layer_prepare.h"

#include <stdio.h>
#include <string.h>

#include "base/executor.h"
#include "base/log.h"
#include "base/topology.h"
#include "layer/config/reserved.h"
#include "layer/config/struct_size.h"
#include "layer/config/tp_slice.h"
#include "layer/weights/dense_matrix.h"
#include "layer/weights/layer_arrays.h"
#include "layer/weights/layer_records.h"
#include "layer/weights/pack_job.h"
#include "layer/weights/static_scale.h"

static moxie_status pack_routed(moxie_layer *layer, const moxie_weights *weights, const moxie_options *options,
                                moxie_error *error)
{
    const mox_pack_job job = { .layout = layer->layouts[MOX_ROUTED],
                               .shape = &layer->routed_shape,
                               .whole = &layer->whole_shape,
                               .config = &layer->config,
                               .cut = layer->tp_cut,
                               .weights = weights,
                               .experts = layer->expert_of,
                               .records = layer->records,
                               .total = layer->slots,
                               .record_bytes = layer->record_bytes,
                               .device = &layer->device,
                               .options = options };
    return mox_pack_experts(&job, error);
}

static moxie_status pack_shared(moxie_layer *layer, const moxie_weights *weights, const moxie_options *options,
                                moxie_error *error)
{
    static const int64_t shared = -1;
    moxie_options silent = *options;
    silent.progress = NULL;
    const mox_pack_job job = { .layout = layer->layouts[MOX_SHARED_EXPERT],
                               .shape = &layer->shared_shape,
                               .whole = &layer->whole_shared_shape,
                               .config = &layer->config,
                               .cut = layer->shared_cut,
                               .weights = weights,
                               .experts = &shared,
                               .records = &layer->shared_record,
                               .total = 1,
                               .record_bytes = layer->shared_bytes,
                               .device = &layer->device,
                               .options = &silent };
    const moxie_status status = mox_pack_experts(&job, error);
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

/* Whatever changes experts or slots comes through here. */
moxie_status mox_layer_resolve_scales(moxie_layer *layer, moxie_error *error)
{
    layer->changes++;
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

/* Binds the memory of each record to a node, or interleaves it, before the packing threads touch it. Where the system
 * refuses, records are where they were first touched, and runs only read more from other nodes. */
static void place_records(moxie_layer *layer, const moxie_executor *executor)
{
    const int32_t memory = mox_executor_memory(executor);
    bool bound = true;
    layer->nodes = mox_device_is_host(&layer->device) ? mox_executor_nodes(executor) : 1;
    if (memory == MOX_MEMORY_ANYWHERE || !mox_device_is_host(&layer->device))
        return;
    for (int64_t s = 0; s < layer->slots; s++) {
        const int32_t node = memory == MOX_MEMORY_BY_EXPERT ? (int32_t)(s % layer->nodes) : memory;
        bound = mox_topology_bind(layer->records[s], layer->record_bytes, node) && bound;
    }
    if (!bound && mox_topology_here()->real)
        mox_log(MOXIE_LOG_WARN, "the system refused to place a layer's records on %d nodes of memory",
                (int)mox_topology_here()->nodes);
}

moxie_status mox_layer_prepare(moxie_layer *layer, const moxie_weights *weights, const moxie_options *options,
                               moxie_error *error)
{
    moxie_weights w;
    moxie_options read;
    MOX_TRY(mox_struct_read(weights, &w, MOX_STRUCT(moxie_weights), error));
    MOX_TRY(mox_options_read(options, &read, error));
    MOX_FAIL_IF(
        layer->source != NULL || layer->device_source != NULL, MOXIE_ERR_UNSUPPORTED, error,
        "weights were given to a layer of a store, which reads experts from their file: write that file anew and "
        "open the store again, or make a layer with moxie_layer_create");
    MOX_FAIL_IF(w.n_experts != layer->config.experts || w.experts == NULL, MOXIE_ERR_MISMATCH, error,
                "weights hold %lld experts, but the configuration has %lld: pass a view for each expert",
                (long long)w.n_experts, (long long)layer->config.experts);
    MOX_TRY(mox_reserved_weights(&w, error));
    layer->prepared = false;
    MOX_TRY(mox_layer_read_numbers(layer, &w, error));
    MOX_TRY(mox_layer_choose_layout(layer, &w, read.executor, error));
    place_records(layer, read.executor);
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
    MOX_TRY(mox_tp_slice_expert(&layer->config, MOX_ROUTED, layer->tp_cut, weights, &mine, error));
    return mox_record_pack(layout, &layer->routed_shape, expert, &mine, record, error);
}

moxie_status mox_layer_update_expert(moxie_layer *layer, int64_t expert, const moxie_expert *weights,
                                     moxie_error *error)
{
    MOX_TRY(mox_layer_need_prepared(layer, error));
    MOX_TRY(mox_layer_need_expert(layer, expert, "to be replaced", error));
    MOX_FAIL_IF(layer->source != NULL || layer->device_source != NULL, MOXIE_ERR_UNSUPPORTED, error,
                "expert %lld was to be replaced, but the layer is one of a store, which reads experts from their file: "
                "replace it there (moxie_expert_file_replace) and open the store anew",
                (long long)expert);
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
    if (status == MOXIE_OK && layer->own_records != NULL)
        copy = mox_layer_own_record(layer, slot, copy);
    else if (status == MOXIE_OK && mox_device_is_host(&layer->device))
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
