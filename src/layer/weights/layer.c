/* SPDX-License-Identifier: Apache-2.0
 *
 * layer.c - a layer's life: slots allocated for a configuration, looked up, verified, freed. Filling them is
 * prepare.c.
 */
#include "layer/weights/layer.h"

#include "base/log.h"
#include "base/sizes.h"

static moxie_status no_memory(const moxie_layer_config *c, moxie_error *error)
{
    return mox_fail(MOXIE_ERR_MEMORY, error,
                    "no memory for a layer of %lld experts, hidden size %lld, intermediate size %lld",
                    (long long)c->experts, (long long)c->hidden, (long long)c->intermediate);
}

static bool allocate_scale(mox_static_scale *scale, const moxie_quant *quant, const moxie_layer *layer)
{
    scale->needed = !mox_quant_is_none(quant) && mox_act_quant_needs_static_scale(quant);
    scale->uniform = true;
    scale->raw = mox_calloc((uint64_t)layer->config.experts, sizeof *scale->raw);
    scale->resolved = mox_calloc((uint64_t)layer->slots, sizeof *scale->resolved);
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

static moxie_status map_slots(moxie_layer *layer, moxie_error *error)
{
    const moxie_layer_config *c = &layer->config;
    layer->slot_of = mox_calloc((uint64_t)c->experts, sizeof *layer->slot_of);
    if (layer->slot_of == NULL)
        return no_memory(c, error);
    MOX_TRY(mox_expert_map((moxie_expert_map_kind)c->ep_map, (int32_t)c->experts, c->ep_size > 1 ? c->ep_size : 1,
                           c->ep_rank, layer->slot_of, &layer->slots, error));
    layer->expert_of = mox_calloc((uint64_t)layer->slots, sizeof *layer->expert_of);
    if (layer->expert_of == NULL)
        return no_memory(c, error);
    for (int64_t e = 0; e < c->experts; e++)
        if (layer->slot_of[e] >= 0)
            layer->expert_of[layer->slot_of[e]] = e;
    return MOXIE_OK;
}

enum { SLAB_ALIGN = 256 }; /* as strict as any layout is about where its records begin */

/* What follows from the layouts: sizes, and where the shared expert's record begins. */
typedef struct slab_form {
    const mox_layout *routed, *shared;
    uint64_t record_bytes, shared_bytes, shared_at, all;
} slab_form;

/* The size of a record is a multiple of its alignment, so records of one layout can lie end to end. */
static bool form_slab(const moxie_layer *layer, slab_form *form)
{
    if (form->shared != NULL && !form->shared->record_bytes(&layer->shared_shape, &form->shared_bytes))
        return false;
    return form->routed->record_bytes(&layer->routed_shape, &form->record_bytes) &&
           mox_mul_u64((uint64_t)layer->slots, form->record_bytes, &form->shared_at) &&
           mox_align_u64(form->shared_at, SLAB_ALIGN, &form->shared_at) &&
           mox_add_u64(form->shared_at, form->shared_bytes, &form->all);
}

static void free_slab(moxie_layer *layer)
{
    if (mox_device_is_host(&layer->device))
        mox_free_pages(layer->slab);
    else
        mox_device_release(&layer->device, layer->slab);
    layer->slab = NULL;
}

static void place_records(moxie_layer *layer, const slab_form *form)
{
    layer->layouts[MOX_ROUTED] = form->routed;
    layer->layouts[MOX_SHARED_EXPERT] = form->shared;
    layer->record_bytes = form->record_bytes;
    layer->shared_bytes = form->shared_bytes;
    for (int32_t s = 0; s < layer->slots; s++)
        layer->records[s] = (uint8_t *)layer->slab + (uint64_t)s * form->record_bytes;
    layer->shared_record = form->shared != NULL ? (uint8_t *)layer->slab + form->shared_at : NULL;
}

/* Gives the layer these layouts and one block for their records. The previous block goes first, since a machine may
 * not have room for both. On failure the layouts stay as they were and there is no block: the next call makes one. */
static moxie_status change_layouts(moxie_layer *layer, const mox_layout *routed, const mox_layout *shared,
                                   moxie_error *error)
{
    slab_form form = { .routed = routed, .shared = shared };
    if (!form_slab(layer, &form))
        return no_memory(&layer->config, error);
    free_slab(layer);
    if (!mox_device_is_host(&layer->device))
        MOX_TRY(mox_device_allocate(&layer->device, form.all, "a layer's records", &layer->slab, error));
    else
        layer->slab = mox_alloc_pages(form.all);
    if (layer->slab == NULL)
        return no_memory(&layer->config, error);
    place_records(layer, &form);
    return MOXIE_OK;
}

static moxie_status allocate_records(moxie_layer *layer, moxie_error *error)
{
    layer->records = mox_calloc((uint64_t)layer->slots, sizeof *layer->records);
    return layer->records != NULL
               ? change_layouts(layer, layer->layouts[MOX_ROUTED], layer->layouts[MOX_SHARED_EXPERT], error)
               : no_memory(&layer->config, error);
}

/* ---- weights that a layout cannot hold ------------------------------------------------------------- */

static const mox_layout *instead_of(const mox_layout *layout)
{
    return layout->fallback != NULL ? layout->fallback : &mox_layout_rowmajor;
}

/* Views that are wrong are left to the packer, which says so. */
static bool takes(const mox_layout *layout, const mox_record_shape *shape, int64_t expert, const moxie_expert *weights)
{
    char reason[192];
    if (layout->accepts == NULL || mox_record_check(&mox_layout_rowmajor, shape, expert, weights, NULL) != MOXIE_OK ||
        layout->accepts(shape, weights, reason, sizeof reason))
        return true;
    mox_log(MOXIE_LOG_WARN, "layout %s cannot hold expert %lld: %s; the layer uses layout %s and %s", layout->name,
            (long long)expert, reason, instead_of(layout)->name,
            layout->fallback != NULL ? "the kernels that read it" : "portable kernels");
    return false;
}

static bool takes_all(const moxie_layer *layer, const mox_layout *layout, const moxie_weights *weights)
{
    for (int32_t s = 0; s < layer->slots; s++) {
        const int64_t expert = layer->expert_of[s];
        if (!takes(layout, &layer->routed_shape, expert, &weights->experts[expert]))
            return false;
    }
    return true;
}

moxie_status mox_layer_choose_layout(moxie_layer *layer, const moxie_weights *weights, moxie_error *error)
{
    const mox_layout *routed = layer->layouts[MOX_ROUTED], *shared = layer->layouts[MOX_SHARED_EXPERT];
    while (!takes_all(layer, routed, weights))
        routed = instead_of(routed);
    while (shared != NULL && weights->shared != NULL && !takes(shared, &layer->shared_shape, -1, weights->shared))
        shared = instead_of(shared);
    if (layer->slab != NULL && routed == layer->layouts[MOX_ROUTED] && shared == layer->layouts[MOX_SHARED_EXPERT])
        return MOXIE_OK;
    return change_layouts(layer, routed, shared, error);
}

/* ---- the rest -------------------------------------------------------------------------------------- */

static moxie_status allocate(moxie_layer *layer, moxie_error *error)
{
    const moxie_layer_config *c = &layer->config;
    MOX_TRY(map_slots(layer, error));
    MOX_TRY(allocate_records(layer, error));
    bool ok = allocate_scale(&layer->static_scale[MOX_W13], &c->a13, layer) &&
              allocate_scale(&layer->static_scale[MOX_W2], &c->a2, layer);
    if (c->router_width > 0)
        ok = ok && allocate_dense(&layer->router, c->experts, c->router_width, c->router_has_bias != 0);
    if (layer->layouts[MOX_SHARED_EXPERT] != NULL && c->shared.has_gate)
        ok = ok && allocate_dense(&layer->shared_gate, 1, c->hidden, false);
    if (!ok)
        return no_memory(c, error);
    return mox_layer_arrays_create(layer, error);
}

/* Which layouts the chosen kernels read; the choice itself is made again by each plan. */
static moxie_status choose_layouts(moxie_layer *layer, const moxie_options *options, moxie_error *error)
{
    mox_kernels kernels;
    mox_steps steps = { 0 };
    const moxie_status status = mox_select(&layer->config, options, &layer->device, NULL, &kernels, &steps, error);
    mox_steps_free(&steps);
    MOX_TRY(status);
    for (int k = 0; k < MOX_EXPERT_KINDS; k++)
        layer->layouts[k] = kernels.experts[k].layout;
    return MOXIE_OK;
}

moxie_status mox_layer_create(const moxie_layer_config *config, const moxie_options *options, moxie_layer **out,
                              moxie_error *error)
{
    moxie_layer_config checked;
    moxie_options read;
    MOX_TRY(mox_config_read(config, &checked, error));
    MOX_TRY(mox_options_read(options, &read, error));
    moxie_layer *layer = mox_calloc(1, sizeof *layer);
    if (layer == NULL)
        return no_memory(&checked, error);
    layer->config = checked;
    moxie_status status = mox_config_own_arrays(&layer->config, &layer->config_arrays, error);
    layer->routed_shape = mox_config_routed_shape(&checked);
    layer->shared_shape = mox_config_shared_shape(&checked);
    if (status == MOXIE_OK)
        status = mox_device_find(&read, false, &layer->device, error);
    if (status == MOXIE_OK)
        status = choose_layouts(layer, &read, error);
    if (status == MOXIE_OK)
        status = allocate(layer, error);
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
    free_slab(layer);
    mox_layer_arrays_destroy(layer);
    mox_free(layer->records);
    mox_free(layer->slot_of);
    mox_free(layer->expert_of);
    free_scale(&layer->static_scale[MOX_W13]);
    free_scale(&layer->static_scale[MOX_W2]);
    free_dense(&layer->router);
    free_dense(&layer->shared_gate);
    mox_arena_free(&layer->config_arrays);
    mox_free(layer);
}

static moxie_status need_prepared(const moxie_layer *layer, moxie_error *error)
{
    MOX_FAIL_IF(!layer->prepared, MOXIE_ERR_ARGUMENT, error,
                "the layer holds no experts yet: call moxie_layer_prepare first");
    return MOXIE_OK;
}

/* `spare` holds a record that is fetched from the device; NULL when records can be read where they are. */
static moxie_status verify_record(const moxie_layer *layer, const mox_layout *layout, const mox_record_shape *shape,
                                  int64_t expert, const void *record, uint64_t bytes, void *spare, moxie_error *error)
{
    if (spare != NULL) {
        MOX_TRY(mox_device_copy(&layer->device, spare, record, bytes, error));
        record = spare;
    }
    return mox_record_verify(layout, shape, expert, record, error);
}

static moxie_status verify_all(const moxie_layer *layer, void *spare, moxie_error *error)
{
    for (int32_t s = 0; s < layer->slots; s++)
        MOX_TRY(verify_record(layer, layer->layouts[MOX_ROUTED], &layer->routed_shape, layer->expert_of[s],
                              layer->records[s], layer->record_bytes, spare, error));
    if (layer->layouts[MOX_SHARED_EXPERT] == NULL)
        return MOXIE_OK;
    const moxie_status status = verify_record(layer, layer->layouts[MOX_SHARED_EXPERT], &layer->shared_shape, -1,
                                              layer->shared_record, layer->shared_bytes, spare, error);
    return status == MOXIE_OK ? status : mox_fail_context(status, error, "expert -1 is the shared expert");
}

moxie_status mox_layer_verify(const moxie_layer *layer, moxie_error *error)
{
    MOX_TRY(need_prepared(layer, error));
    if (mox_device_is_host(&layer->device))
        return verify_all(layer, NULL, error);
    const uint64_t bytes = layer->record_bytes > layer->shared_bytes ? layer->record_bytes : layer->shared_bytes;
    void *spare = mox_alloc_pages(bytes);
    MOX_FAIL_IF(spare == NULL, MOXIE_ERR_MEMORY, error, "no memory to fetch a record of %llu bytes from the device",
                (unsigned long long)bytes);
    const moxie_status status = verify_all(layer, spare, error);
    mox_free_pages(spare);
    return status;
}

moxie_status mox_layer_record(const moxie_layer *layer, int64_t expert, const void **data, uint64_t *bytes,
                              moxie_error *error)
{
    MOX_TRY(need_prepared(layer, error));
    MOX_FAIL_IF(expert < 0 || expert >= layer->config.experts, MOXIE_ERR_ARGUMENT, error,
                "expert %lld was asked for; the layer has experts 0 to %lld", (long long)expert,
                (long long)layer->config.experts - 1);
    const int32_t slot = layer->slot_of[expert];
    *data = slot >= 0 ? layer->records[slot] : NULL;
    *bytes = slot >= 0 ? layer->record_bytes : 0;
    return MOXIE_OK;
}

static uint64_t dense_bytes(const mox_dense_matrix *dense)
{
    const uint64_t rows = (uint64_t)dense->rows, cols = (uint64_t)dense->cols;
    return (rows * cols + (dense->bias != NULL ? rows : 0)) * sizeof(float);
}

uint64_t mox_layer_bytes(const moxie_layer *layer)
{
    return (uint64_t)layer->slots * layer->record_bytes + layer->shared_bytes + dense_bytes(&layer->router) +
           dense_bytes(&layer->shared_gate);
}
