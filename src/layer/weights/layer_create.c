/* SPDX-License-Identifier: Apache-2.0
 *
 * layer_create.c - allocates a layer for a configuration: chooses kernels, hence layouts; maps experts to slots; makes
 * room for records, static scales and plain matrices. layer_prepare.c fills them.
 *
 *     config -> copy its arrays -> find the device -> choose layouts -> slot map -> records -> scales, matrices, arrays
 */
#include "layer/weights/layer_create.h"

#include "layer/config/tp_slice.h"
#include "layer/plan/select.h"
#include "layer/weights/layer_arrays.h"
#include "layer/weights/layer_records.h"
#include "layer/weights/mover.h"
#include "layer/weights/pinned_ring.h"

static bool allocate_scale(mox_static_scale *scale, const moxie_quant *quant, const moxie_layer *layer)
{
    scale->needed = !mox_quant_is_none(quant) && mox_act_quant_needs_static_scale(quant);
    scale->uniform = true;
    scale->raw = mox_calloc((uint64_t)layer->config.experts, sizeof *scale->raw);
    scale->resolved = mox_calloc((uint64_t)MOX_LAYER_ROOM(layer), sizeof *scale->resolved);
    return scale->raw != NULL && scale->resolved != NULL;
}

static bool allocate_dense(mox_dense_matrix *dense, int64_t rows, int64_t cols, bool has_bias)
{
    dense->rows = rows;
    dense->cols = cols;
    dense->weight = mox_calloc((uint64_t)rows * (uint64_t)cols, sizeof *dense->weight);
    if (has_bias)
        dense->bias = mox_calloc((uint64_t)rows, sizeof *dense->bias);
    return dense->weight != NULL && (dense->bias != NULL || !has_bias);
}

static moxie_status map_slots(moxie_layer *layer, int32_t spare, moxie_error *error)
{
    const moxie_layer_config *c = &layer->config;
    if (spare > 0)
        MOX_TRY(mox_layer_add_spare_slots(layer, spare, error));
    layer->slot_of = mox_calloc((uint64_t)c->experts, sizeof *layer->slot_of);
    if (layer->slot_of == NULL)
        return mox_layer_no_memory(c, error);
    MOX_TRY(mox_config_map_experts(c, layer->slot_of, &layer->slots, error));
    if (spare > 0)
        layer->max_slots = c->slot_map->first_slot[c->ep_rank + 1] - c->slot_map->first_slot[c->ep_rank];
    layer->expert_of = mox_calloc((uint64_t)MOX_LAYER_ROOM(layer), sizeof *layer->expert_of);
    if (layer->expert_of == NULL)
        return mox_layer_no_memory(c, error);
    for (int64_t e = 0; e < c->experts; e++)
        if (layer->slot_of[e] >= 0)
            layer->expert_of[layer->slot_of[e]] = e;
    return MOXIE_OK;
}

static moxie_status allocate(moxie_layer *layer, int32_t spare, const mox_given_records *given, moxie_error *error)
{
    const moxie_layer_config *c = &layer->config;
    MOX_TRY(map_slots(layer, spare, error));
    if (given != NULL)
        MOX_TRY(mox_layer_check_given(layer, given, error));
    if (given != NULL && mox_device_is_host(&layer->device))
        MOX_TRY(mox_layer_use_records(layer, given->routed, given->shared, error));
    else
        MOX_TRY(mox_layer_allocate_records(layer, error));
    bool ok = allocate_scale(&layer->static_scale[MOX_W13], &c->a13, layer) &&
              allocate_scale(&layer->static_scale[MOX_W2], &c->a2, layer);
    if (c->router_width > 0)
        ok = ok && allocate_dense(&layer->router, mox_config_candidates(c), c->router_width, c->router_has_bias != 0);
    if (layer->layouts[MOX_SHARED_EXPERT] != NULL && c->shared.has_gate)
        ok = ok && allocate_dense(&layer->shared_gate, 1, c->hidden, false);
    if (c->router_norm.has_weight)
        ok = ok && allocate_dense(&layer->router_norm, 1, c->router_width, false);
    if (c->expert_norm.has_weight)
        ok = ok && allocate_dense(&layer->expert_norm, 1, c->hidden, false);
    if (!ok)
        return mox_layer_no_memory(c, error);
    return mox_layer_arrays_create(layer, error);
}

/* The layer keeps only the layouts of the chosen kernels; each plan chooses its kernels again. */
static moxie_status choose_layouts(moxie_layer *layer, const moxie_options *options, const mox_given_records *given,
                                   moxie_error *error)
{
    mox_kernels kernels;
    mox_steps steps = { 0 };
    const moxie_status status = mox_select(&layer->config, options, &layer->device, layer->tp_cut, layer->shared_cut,
                                           given != NULL ? given->layouts : NULL, &kernels, &steps, error);
    mox_steps_free(&steps);
    MOX_TRY(status);
    for (int k = 0; k < MOX_EXPERT_KINDS; k++)
        layer->layouts[k] = kernels.experts[k].layout;
    return MOXIE_OK;
}

moxie_status mox_layer_create(const moxie_layer_config *config, const moxie_options *options,
                              const mox_given_records *given, moxie_layer **out, moxie_error *error)
{
    moxie_layer_config checked;
    moxie_options read;
    MOX_TRY(mox_config_read(config, &checked, error));
    MOX_TRY(mox_options_read(options, &read, error));
    MOX_TRY(mox_config_check_comm(&checked, &read, error));
    moxie_layer *layer = mox_calloc(1, sizeof *layer);
    if (layer == NULL)
        return mox_layer_no_memory(&checked, error);
    layer->config = checked;
    layer->has_comm = read.comm != NULL;
    layer->fetched = given != NULL && given->fetched;
    moxie_status status = mox_config_own_arrays(&layer->config, &layer->config_arrays, error);
    layer->whole_shape = mox_config_routed_shape(&checked);
    layer->whole_shared_shape = mox_config_shared_shape(&checked);
    if (status == MOXIE_OK)
        status = mox_device_find(&read, false, &layer->device, error);
    /* On a device, and in an expert file, experts are cut by rows in both modes. */
    const bool by_mode = mox_device_is_host(&layer->device) && given == NULL;
    layer->tp_cut = mox_tp_cut_of(&checked, by_mode ? (moxie_mode)read.mode : MOXIE_MODE_EXACT, NULL);
    layer->routed_shape = mox_tp_shape(&checked, layer->tp_cut);
    layer->shared_cut = mox_tp_shared_cut(&checked, layer->has_comm, !mox_device_is_host(&layer->device), NULL);
    layer->shared_shape = mox_tp_shared_shape(&checked, layer->shared_cut);
    if (status == MOXIE_OK)
        status = choose_layouts(layer, &read, given, error);
    if (status == MOXIE_OK)
        status = allocate(layer, read.spare_slots, given, error);
    if (status != MOXIE_OK) {
        mox_layer_destroy(layer);
        return status;
    }
    *out = layer;
    return MOXIE_OK;
}

static void free_dense(mox_dense_matrix *dense)
{
    mox_free(dense->weight);
    mox_free(dense->bias);
}

static void free_scale(mox_static_scale *scale)
{
    mox_free(scale->raw);
    mox_free(scale->resolved);
}

void mox_layer_destroy(moxie_layer *layer)
{
    if (layer == NULL)
        return;
    mox_layer_destroy(layer->beside);
    mox_layer_free_records(layer);
    mox_layer_arrays_destroy(layer);
    mox_ring_pool_drop(layer->rings);
    mox_free(layer->slot_of);
    mox_free(layer->expert_of);
    free_scale(&layer->static_scale[MOX_W13]);
    free_scale(&layer->static_scale[MOX_W2]);
    free_dense(&layer->router);
    free_dense(&layer->shared_gate);
    free_dense(&layer->router_norm);
    free_dense(&layer->expert_norm);
    mox_arena_free(&layer->config_arrays);
    mox_free(layer);
}

static uint64_t dense_bytes(const mox_dense_matrix *dense)
{
    const uint64_t rows = (uint64_t)dense->rows, cols = (uint64_t)dense->cols;
    return (rows * cols + (dense->bias != NULL ? rows : 0)) * sizeof(float);
}

uint64_t mox_layer_bytes(const moxie_layer *layer)
{
    const uint64_t records = layer->fetched ? 0 : (uint64_t)MOX_LAYER_ROOM(layer);
    return records * layer->record_bytes + layer->shared_bytes + dense_bytes(&layer->router) +
           dense_bytes(&layer->shared_gate) + dense_bytes(&layer->router_norm) + dense_bytes(&layer->expert_norm);
}
