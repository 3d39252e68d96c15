/* SPDX-License-Identifier: Apache-2.0
 *
 * layer_arrays.c - makes a layer's arrays readable where its kernels run (layer_arrays.h).
 *
 * On the host that is no work: the arrays are the layer's own. For a device, arrays that never change are copied at
 * once. Arrays that depend on weights only get memory here; a refresh fills them after each preparation.
 */
#include "layer/weights/layer_arrays.h"

#include "base/memory.h"

/* Device memory that is freed with the layer. */
static moxie_status allocate(moxie_layer *layer, uint64_t bytes, void **out, moxie_error *error)
{
    mox_layer_arrays *arrays = &layer->arrays;
    MOX_FAIL_IF(arrays->n_owned == MOX_DEVICE_ARRAYS, MOXIE_ERR_MEMORY, error,
                "a layer has %d arrays on the device at most", MOX_DEVICE_ARRAYS);
    MOX_TRY(mox_device_allocate(&layer->device, bytes, "a layer's arrays", out, error));
    arrays->owned[arrays->n_owned++] = *out;
    return MOXIE_OK;
}

/* A device copy of `bytes` at `from`; NULL for NULL. */
static moxie_status copy_to_device(moxie_layer *layer, const void *from, uint64_t bytes, void **out, moxie_error *error)
{
    void *copy = NULL;
    if (from != NULL) {
        MOX_TRY(allocate(layer, bytes, &copy, error));
        MOX_TRY(mox_device_copy(&layer->device, copy, from, bytes, error));
    }
    *out = copy;
    return MOXIE_OK;
}

static moxie_status copy_floats(moxie_layer *layer, const float **array, int64_t count, moxie_error *error)
{
    void *copy;
    MOX_TRY(copy_to_device(layer, *array, (uint64_t)count * sizeof(float), &copy, error));
    *array = copy;
    return MOXIE_OK;
}

/* Replaces the host's array by device memory of its size, which a refresh fills; NULL stays NULL. */
static moxie_status allocate_floats(moxie_layer *layer, float **array, int64_t count, moxie_error *error)
{
    void *memory = NULL;
    if (*array != NULL)
        MOX_TRY(allocate(layer, (uint64_t)count * sizeof(float), &memory, error));
    *array = memory;
    return MOXIE_OK;
}

static int32_t format_count(void)
{
    int32_t n = 0;
    while (mox_format_at(n) != NULL)
        n++;
    return n;
}

static moxie_status make_tables(moxie_layer *layer, moxie_error *error)
{
    void *tables;
    const uint64_t bytes = 256 * sizeof(float);
    MOX_TRY(allocate(layer, (uint64_t)format_count() * bytes, &tables, error));
    layer->arrays.tables = tables;
    for (int32_t i = 0; i < format_count(); i++) {
        const float *table = mox_format_table(mox_format_at(i)->dtype);
        if (table != NULL)
            MOX_TRY(mox_device_copy(&layer->device, layer->arrays.tables + 256 * i, table, bytes, error));
    }
    return MOXIE_OK;
}

const float *mox_layer_table(const moxie_layer *layer, moxie_dtype dtype)
{
    if (dtype == MOXIE_DTYPE_NONE || layer->arrays.tables == NULL)
        return dtype == MOXIE_DTYPE_NONE ? NULL : mox_format_table(dtype);
    for (int32_t i = 0; mox_format_at(i) != NULL; i++)
        if (mox_format_at(i)->dtype == dtype)
            return mox_format_table(dtype) != NULL ? layer->arrays.tables + 256 * i : NULL;
    return NULL;
}

static void use_host_arrays(moxie_layer *layer)
{
    layer->arrays = (mox_layer_arrays) {
        .slot_of = layer->slot_of,
        .expert_of = layer->expert_of,
        .static_scale = { layer->static_scale[MOX_W13].resolved, layer->static_scale[MOX_W2].resolved },
        .router = layer->router.weight,
        .router_bias = layer->router.bias,
        .shared_gate = layer->shared_gate.weight,
        .router_norm = layer->router_norm.weight,
        .expert_norm = layer->expert_norm.weight,
        .routing = layer->config.routing,
        .activation = layer->config.activation,
    };
}

static moxie_status copy_routing(moxie_layer *layer, moxie_error *error)
{
    moxie_routing *r = &layer->arrays.routing;
    const int64_t candidates = mox_config_candidates(&layer->config);
    const int64_t entries = r->table_rows * layer->config.top_k;
    void *table;
    MOX_TRY(copy_floats(layer, &r->bias, candidates, error));
    MOX_TRY(copy_floats(layer, &r->bias_alt, candidates, error));
    MOX_TRY(copy_floats(layer, &r->per_expert_scale, candidates, error));
    MOX_TRY(copy_to_device(layer, r->table, (uint64_t)entries * sizeof(int32_t), &table, error));
    r->table = table;
    return MOXIE_OK;
}

static moxie_status copy_activation(moxie_layer *layer, moxie_error *error)
{
    moxie_activation *a = &layer->arrays.activation;
    const int64_t experts = layer->config.experts;
    MOX_TRY(copy_floats(layer, &a->expert_alpha, experts, error));
    MOX_TRY(copy_floats(layer, &a->expert_beta, experts, error));
    return copy_floats(layer, &a->expert_limit, experts, error);
}

static moxie_status copy_map(moxie_layer *layer, moxie_error *error)
{
    mox_layer_arrays *arrays = &layer->arrays;
    void *copy;
    MOX_TRY(
        copy_to_device(layer, layer->slot_of, (uint64_t)layer->config.experts * sizeof *layer->slot_of, &copy, error));
    arrays->slot_of = copy;
    MOX_TRY(copy_to_device(layer, layer->expert_of, (uint64_t)layer->slots * sizeof *layer->expert_of, &copy, error));
    arrays->expert_of = copy;
    return MOXIE_OK;
}

moxie_status mox_layer_arrays_create(moxie_layer *layer, moxie_error *error)
{
    mox_layer_arrays *arrays = &layer->arrays;
    use_host_arrays(layer);
    if (mox_device_is_host(&layer->device))
        return MOXIE_OK;
    MOX_TRY(copy_map(layer, error));
    MOX_TRY(allocate_floats(layer, &arrays->static_scale[MOX_W13], layer->slots, error));
    MOX_TRY(allocate_floats(layer, &arrays->static_scale[MOX_W2], layer->slots, error));
    MOX_TRY(allocate_floats(layer, &arrays->router, layer->router.rows * layer->router.cols, error));
    MOX_TRY(allocate_floats(layer, &arrays->router_bias, layer->router.rows, error));
    MOX_TRY(allocate_floats(layer, &arrays->shared_gate, layer->shared_gate.cols, error));
    MOX_TRY(allocate_floats(layer, &arrays->router_norm, layer->router_norm.cols, error));
    MOX_TRY(allocate_floats(layer, &arrays->expert_norm, layer->expert_norm.cols, error));
    MOX_TRY(make_tables(layer, error));
    MOX_TRY(copy_routing(layer, error));
    return copy_activation(layer, error);
}

void mox_layer_arrays_destroy(moxie_layer *layer)
{
    mox_layer_arrays *arrays = &layer->arrays;
    while (arrays->n_owned > 0)
        mox_device_release(&layer->device, arrays->owned[--arrays->n_owned]);
}

static moxie_status refresh(const moxie_layer *layer, float *to, const float *from, int64_t count, moxie_error *error)
{
    if (to == NULL || count == 0)
        return MOXIE_OK;
    return mox_device_copy(&layer->device, to, from, (uint64_t)count * sizeof *to, error);
}

moxie_status mox_layer_arrays_refresh(moxie_layer *layer, moxie_error *error)
{
    const mox_layer_arrays *arrays = &layer->arrays;
    const mox_dense_matrix *router = &layer->router, *gate = &layer->shared_gate;
    if (mox_device_is_host(&layer->device))
        return MOXIE_OK;
    for (int p = MOX_W13; p <= MOX_W2; p++)
        MOX_TRY(refresh(layer, arrays->static_scale[p], layer->static_scale[p].resolved, layer->slots, error));
    MOX_TRY(refresh(layer, arrays->router, router->weight, router->rows * router->cols, error));
    MOX_TRY(refresh(layer, arrays->router_bias, router->bias, router->rows, error));
    MOX_TRY(refresh(layer, arrays->router_norm, layer->router_norm.weight, layer->router_norm.cols, error));
    MOX_TRY(refresh(layer, arrays->expert_norm, layer->expert_norm.weight, layer->expert_norm.cols, error));
    return refresh(layer, arrays->shared_gate, gate->weight, gate->cols, error);
}
