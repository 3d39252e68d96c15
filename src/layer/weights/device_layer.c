/* SPDX-License-Identifier: Apache-2.0
 *
 * device_layer.c - copies of a layer's arrays in device memory, and the pinned ring that records travel through.
 */
#include "layer/weights/device_layer.h"

#include "base/memory.h"
#include "layer/weights/layer.h"

/* ---- arrays ------------------------------------------------------------------------------------------ */

/* Device memory of the layer's, freed with it. */
static moxie_status own(mox_device_layer *on, uint64_t bytes, void **out, moxie_error *error)
{
    MOX_FAIL_IF(on->owns == MOX_DEVICE_ARRAYS, MOXIE_ERR_MEMORY, error, "a layer has %d arrays on the device at most",
                MOX_DEVICE_ARRAYS);
    MOX_TRY(mox_device_allocate(&on->device, bytes, "a layer's arrays", out, error));
    on->owned[on->owns++] = *out;
    return MOXIE_OK;
}

/* A copy of `bytes` at `from`; NULL for NULL. */
static moxie_status mirror(mox_device_layer *on, const void *from, uint64_t bytes, void **out, moxie_error *error)
{
    void *copy = NULL;
    if (from != NULL) {
        MOX_TRY(own(on, bytes, &copy, error));
        MOX_TRY(mox_device_copy(&on->device, copy, from, bytes, error));
    }
    *out = copy;
    return MOXIE_OK;
}

static moxie_status mirror_floats(mox_device_layer *on, const float *from, int64_t count, const float **out,
                                  moxie_error *error)
{
    void *copy;
    MOX_TRY(mirror(on, from, (uint64_t)count * sizeof *from, &copy, error));
    *out = copy;
    return MOXIE_OK;
}

static moxie_status own_floats(mox_device_layer *on, const float *host, int64_t count, float **out, moxie_error *error)
{
    void *memory = NULL;
    if (host != NULL)
        MOX_TRY(own(on, (uint64_t)count * sizeof(float), &memory, error));
    *out = memory;
    return MOXIE_OK;
}

static int32_t format_count(void)
{
    int32_t n = 0;
    while (mox_format_at(n) != NULL)
        n++;
    return n;
}

static moxie_status make_tables(mox_device_layer *on, moxie_error *error)
{
    void *tables;
    const uint64_t bytes = 256 * sizeof(float);
    MOX_TRY(own(on, (uint64_t)format_count() * bytes, &tables, error));
    on->tables = tables;
    for (int32_t i = 0; i < format_count(); i++) {
        const float *table = mox_format_table(mox_format_at(i)->dtype);
        if (table != NULL)
            MOX_TRY(mox_device_copy(&on->device, on->tables + 256 * i, table, bytes, error));
    }
    return MOXIE_OK;
}

const float *mox_device_layer_table(const mox_device_layer *on, moxie_dtype dtype)
{
    for (int32_t i = 0; mox_format_at(i) != NULL; i++)
        if (mox_format_at(i)->dtype == dtype)
            return mox_format_table(dtype) != NULL ? on->tables + 256 * i : NULL;
    return NULL;
}

static moxie_status make_routing(mox_device_layer *on, const moxie_layer_config *c, moxie_error *error)
{
    moxie_routing *r = &on->routing;
    *r = c->routing;
    MOX_TRY(mirror_floats(on, c->routing.bias, c->experts, &r->bias, error));
    MOX_TRY(mirror_floats(on, c->routing.per_expert_scale, c->experts, &r->per_expert_scale, error));
    void *table;
    MOX_TRY(
        mirror(on, c->routing.table, (uint64_t)(c->routing.table_rows * c->top_k) * sizeof(int32_t), &table, error));
    r->table = table;
    return MOXIE_OK;
}

static moxie_status make_activation(mox_device_layer *on, const moxie_layer_config *c, moxie_error *error)
{
    moxie_activation *a = &on->activation;
    *a = c->activation;
    MOX_TRY(mirror_floats(on, c->activation.expert_alpha, c->experts, &a->expert_alpha, error));
    MOX_TRY(mirror_floats(on, c->activation.expert_beta, c->experts, &a->expert_beta, error));
    return mirror_floats(on, c->activation.expert_limit, c->experts, &a->expert_limit, error);
}

moxie_status mox_device_layer_create(moxie_layer *layer, moxie_error *error)
{
    mox_device_layer *on = &layer->on;
    void *copy;
    MOX_TRY(mirror(on, layer->slot_of, (uint64_t)layer->config.experts * sizeof *on->slot_of, &copy, error));
    on->slot_of = copy;
    MOX_TRY(mirror(on, layer->expert_of, (uint64_t)layer->slots * sizeof *on->expert_of, &copy, error));
    on->expert_of = copy;
    MOX_TRY(own_floats(on, layer->given13.resolved, layer->slots, &on->given13, error));
    MOX_TRY(own_floats(on, layer->given2.resolved, layer->slots, &on->given2, error));
    MOX_TRY(own_floats(on, layer->router.weight, layer->router.rows * layer->router.cols, &on->router, error));
    MOX_TRY(own_floats(on, layer->router.bias, layer->router.rows, &on->router_bias, error));
    MOX_TRY(own_floats(on, layer->shared_gate.weight, layer->shared_gate.cols, &on->shared_gate, error));
    MOX_TRY(make_tables(on, error));
    MOX_TRY(make_routing(on, &layer->config, error));
    return make_activation(on, &layer->config, error);
}

void mox_device_layer_destroy(moxie_layer *layer)
{
    mox_device_layer *on = &layer->on;
    while (on->owns > 0)
        mox_device_release(&on->device, on->owned[--on->owns]);
}

static moxie_status refresh(const mox_device_layer *on, float *to, const float *from, int64_t count, moxie_error *error)
{
    if (to == NULL || count == 0)
        return MOXIE_OK;
    return mox_device_copy(&on->device, to, from, (uint64_t)count * sizeof *to, error);
}

moxie_status mox_device_layer_refresh(moxie_layer *layer, moxie_error *error)
{
    const mox_device_layer *on = &layer->on;
    const mox_dense_matrix *router = &layer->router, *gate = &layer->shared_gate;
    MOX_TRY(refresh(on, on->given13, layer->given13.resolved, layer->slots, error));
    MOX_TRY(refresh(on, on->given2, layer->given2.resolved, layer->slots, error));
    MOX_TRY(refresh(on, on->router, router->weight, router->rows * router->cols, error));
    MOX_TRY(refresh(on, on->router_bias, router->bias, router->rows, error));
    return refresh(on, on->shared_gate, gate->weight, gate->cols, error);
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
