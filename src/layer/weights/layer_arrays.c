/* SPDX-License-Identifier: Apache-2.0
 *
 * layer_arrays.c - a layer's arrays where kernels read them, and the pinned ring that records travel through.
 */
#include "layer/weights/layer_arrays.h"

#include "base/memory.h"
#include "layer/weights/layer.h"

/* ---- arrays ------------------------------------------------------------------------------------------ */

/* Device memory of the layer's, freed with it. */
static moxie_status own(moxie_layer *layer, uint64_t bytes, void **out, moxie_error *error)
{
    mox_layer_arrays *arrays = &layer->arrays;
    MOX_FAIL_IF(arrays->owns == MOX_DEVICE_ARRAYS, MOXIE_ERR_MEMORY, error,
                "a layer has %d arrays on the device at most", MOX_DEVICE_ARRAYS);
    MOX_TRY(mox_device_allocate(&layer->device, bytes, "a layer's arrays", out, error));
    arrays->owned[arrays->owns++] = *out;
    return MOXIE_OK;
}

/* A copy of `bytes` at `from`; NULL for NULL. */
static moxie_status mirror(moxie_layer *layer, const void *from, uint64_t bytes, void **out, moxie_error *error)
{
    void *copy = NULL;
    if (from != NULL) {
        MOX_TRY(own(layer, bytes, &copy, error));
        MOX_TRY(mox_device_copy(&layer->device, copy, from, bytes, error));
    }
    *out = copy;
    return MOXIE_OK;
}

static moxie_status mirror_floats(moxie_layer *layer, const float **array, int64_t count, moxie_error *error)
{
    void *copy;
    MOX_TRY(mirror(layer, *array, (uint64_t)count * sizeof(float), &copy, error));
    *array = copy;
    return MOXIE_OK;
}

/* Memory for floats that a refresh copies; *array is the host's. */
static moxie_status own_floats(moxie_layer *layer, float **array, int64_t count, moxie_error *error)
{
    void *memory = NULL;
    if (*array != NULL)
        MOX_TRY(own(layer, (uint64_t)count * sizeof(float), &memory, error));
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
    MOX_TRY(own(layer, (uint64_t)format_count() * bytes, &tables, error));
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

/* The layer's own arrays, which is all that the host's kernels need. */
static void set_host(moxie_layer *layer)
{
    layer->arrays = (mox_layer_arrays) {
        .slot_of = layer->slot_of,
        .expert_of = layer->expert_of,
        .static_scale = { layer->static_scale[MOX_W13].resolved, layer->static_scale[MOX_W2].resolved },
        .router = layer->router.weight,
        .router_bias = layer->router.bias,
        .shared_gate = layer->shared_gate.weight,
        .routing = layer->config.routing,
        .activation = layer->config.activation,
    };
}

static moxie_status copy_routing(moxie_layer *layer, moxie_error *error)
{
    moxie_routing *r = &layer->arrays.routing;
    const int64_t experts = layer->config.experts, entries = r->table_rows * layer->config.top_k;
    void *table;
    MOX_TRY(mirror_floats(layer, &r->bias, experts, error));
    MOX_TRY(mirror_floats(layer, &r->per_expert_scale, experts, error));
    MOX_TRY(mirror(layer, r->table, (uint64_t)entries * sizeof(int32_t), &table, error));
    r->table = table;
    return MOXIE_OK;
}

static moxie_status copy_activation(moxie_layer *layer, moxie_error *error)
{
    moxie_activation *a = &layer->arrays.activation;
    const int64_t experts = layer->config.experts;
    MOX_TRY(mirror_floats(layer, &a->expert_alpha, experts, error));
    MOX_TRY(mirror_floats(layer, &a->expert_beta, experts, error));
    return mirror_floats(layer, &a->expert_limit, experts, error);
}

static moxie_status copy_map(moxie_layer *layer, moxie_error *error)
{
    mox_layer_arrays *arrays = &layer->arrays;
    void *copy;
    MOX_TRY(mirror(layer, layer->slot_of, (uint64_t)layer->config.experts * sizeof *layer->slot_of, &copy, error));
    arrays->slot_of = copy;
    MOX_TRY(mirror(layer, layer->expert_of, (uint64_t)layer->slots * sizeof *layer->expert_of, &copy, error));
    arrays->expert_of = copy;
    return MOXIE_OK;
}

moxie_status mox_layer_arrays_create(moxie_layer *layer, moxie_error *error)
{
    mox_layer_arrays *arrays = &layer->arrays;
    set_host(layer);
    if (mox_device_is_host(&layer->device))
        return MOXIE_OK;
    MOX_TRY(copy_map(layer, error));
    MOX_TRY(own_floats(layer, &arrays->static_scale[MOX_W13], layer->slots, error));
    MOX_TRY(own_floats(layer, &arrays->static_scale[MOX_W2], layer->slots, error));
    MOX_TRY(own_floats(layer, &arrays->router, layer->router.rows * layer->router.cols, error));
    MOX_TRY(own_floats(layer, &arrays->router_bias, layer->router.rows, error));
    MOX_TRY(own_floats(layer, &arrays->shared_gate, layer->shared_gate.cols, error));
    MOX_TRY(make_tables(layer, error));
    MOX_TRY(copy_routing(layer, error));
    return copy_activation(layer, error);
}

void mox_layer_arrays_destroy(moxie_layer *layer)
{
    mox_layer_arrays *arrays = &layer->arrays;
    while (arrays->owns > 0)
        mox_device_release(&layer->device, arrays->owned[--arrays->owns]);
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
    return refresh(layer, arrays->shared_gate, gate->weight, gate->cols, error);
}

/* ---- the ring ---------------------------------------------------------------------------------------- */

moxie_status mox_device_ring_open(mox_device_ring *ring, const mox_device *device, uint64_t record_bytes,
                                  int64_t at_once, moxie_error *error)
{
    const mox_cuda_table *table = device->table;
    void *memory = NULL;
    *ring = (mox_device_ring) { .device = device, .record_bytes = record_bytes, .at_once = at_once };
    MOX_TRY(table->use(device->ordinal, error));
    moxie_status status = table->allocate_pinned(2 * (uint64_t)at_once * record_bytes, &memory, error);
    ring->memory = memory;
    if (status == MOXIE_OK)
        status = table->stream_create(&ring->stream, error);
    for (int i = 0; i < 2 && status == MOXIE_OK; i++)
        status = table->event_create(&ring->event[i], error);
    return status == MOXIE_OK ? status : mox_device_ring_close(ring, status, error);
}

moxie_status mox_device_ring_begin(mox_device_ring *ring, void **records, moxie_error *error)
{
    ring->half = 1 - ring->half;
    MOX_TRY(ring->device->table->event_wait(ring->event[ring->half], error)); /* at once when nothing was sent yet */
    for (int64_t i = 0; i < ring->at_once; i++)
        records[i] = ring->memory + (uint64_t)(ring->half * ring->at_once + i) * ring->record_bytes;
    return MOXIE_OK;
}

moxie_status mox_device_ring_send(mox_device_ring *ring, void *const *to, int64_t count, moxie_error *error)
{
    const mox_cuda_table *table = ring->device->table;
    const uint8_t *from = ring->memory + (uint64_t)(ring->half * ring->at_once) * ring->record_bytes;
    for (int64_t i = 0; i < count; i++)
        MOX_TRY(table->copy(to[i], from + (uint64_t)i * ring->record_bytes, ring->record_bytes, ring->stream, error));
    return table->event_record(ring->event[ring->half], ring->stream, error);
}

moxie_status mox_device_ring_close(mox_device_ring *ring, moxie_status status, moxie_error *error)
{
    const mox_cuda_table *table = ring->device->table;
    if (ring->stream != NULL) {
        const moxie_status waited = table->stream_wait(ring->stream, status == MOXIE_OK ? error : NULL);
        status = status == MOXIE_OK ? waited : status;
    }
    for (int i = 0; i < 2; i++)
        table->event_destroy(ring->event[i]);
    table->stream_destroy(ring->stream);
    table->release_pinned(ring->memory);
    *ring = (mox_device_ring) { 0 };
    return status;
}
