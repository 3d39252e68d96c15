/* SPDX-License-Identifier: Apache-2.0
 *
 * layer_records.c - allocates the slab for a pair of layouts, falls back to other layouts where weights do not fit, and
 * verifies records (layer_records.h).
 */
#include "layer/weights/layer_records.h"

#include <stdatomic.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/sizes.h"

moxie_status mox_layer_no_memory(const moxie_layer_config *c, moxie_error *error)
{
    return mox_fail(MOXIE_ERR_MEMORY, error,
                    "no memory for a layer of %lld experts, hidden size %lld, intermediate size %lld",
                    (long long)c->experts, (long long)c->hidden, (long long)c->intermediate);
}

/* ---- the slab -------------------------------------------------------------------------------------- */

enum { SLAB_ALIGN = 256 }; /* the strictest alignment that any layout wants for its records */

/* Sizes that follow from a pair of layouts. */
typedef struct slab_size {
    const mox_layout *routed, *shared;
    uint64_t record_bytes, shared_bytes, shared_at, total;
} slab_size;

/* Records of one layout lie end to end: a record's size is a multiple of its alignment. */
static bool measure_slab(const moxie_layer *layer, slab_size *size)
{
    if (size->shared != NULL && !size->shared->record_bytes(&layer->shared_shape, &size->shared_bytes))
        return false;
    return size->routed->record_bytes(&layer->routed_shape, &size->record_bytes) &&
           mox_mul_u64(layer->fetched ? 0 : (uint64_t)MOX_LAYER_ROOM(layer), size->record_bytes, &size->shared_at) &&
           mox_align_u64(size->shared_at, SLAB_ALIGN, &size->shared_at) &&
           mox_add_u64(size->shared_at, size->shared_bytes, &size->total);
}

static void free_slab(moxie_layer *layer)
{
    for (int32_t s = 0; layer->own_records != NULL && s < layer->slots; s++)
        mox_free_pages(layer->own_records[s]);
    mox_free(layer->own_records);
    layer->own_records = NULL;
    if (mox_device_is_host(&layer->device))
        mox_free_pages(layer->slab);
    else
        mox_device_release(&layer->device, layer->slab);
    layer->slab = NULL;
}

static void place_records(moxie_layer *layer, const slab_size *size)
{
    layer->layouts[MOX_ROUTED] = size->routed;
    layer->layouts[MOX_SHARED_EXPERT] = size->shared;
    layer->record_bytes = size->record_bytes;
    layer->shared_bytes = size->shared_bytes;
    for (int32_t s = 0; !layer->fetched && s < MOX_LAYER_ROOM(layer); s++)
        layer->records[s] = (uint8_t *)layer->slab + (uint64_t)s * size->record_bytes;
    layer->shared_record = size->shared != NULL ? (uint8_t *)layer->slab + size->shared_at : NULL;
}

static moxie_status allocate_on_device(moxie_layer *layer, uint64_t bytes, moxie_error *error)
{
    const uint64_t start = mox_clock_now();
    MOX_TRY(mox_device_allocate(&layer->device, bytes, "a layer's records", &layer->slab, error));
    layer->fill_times.slab_seconds = (double)(mox_clock_now() - start) * 1e-9;
    return MOXIE_OK;
}

/* Gives the layer these layouts and a slab for them. The old slab is freed first, since a machine may not have room for
 * both. On failure the layouts stay as they were and there is no slab; the next call makes one. */
static moxie_status change_layouts(moxie_layer *layer, const mox_layout *routed, const mox_layout *shared,
                                   moxie_error *error)
{
    slab_size size = { .routed = routed, .shared = shared };
    if (!measure_slab(layer, &size))
        return mox_layer_no_memory(&layer->config, error);
    free_slab(layer);
    if (!mox_device_is_host(&layer->device))
        MOX_TRY(allocate_on_device(layer, size.total, error));
    else
        layer->slab = mox_alloc_pages(size.total);
    if (layer->slab == NULL)
        return mox_layer_no_memory(&layer->config, error);
    place_records(layer, &size);
    return MOXIE_OK;
}

moxie_status mox_layer_allocate_records(moxie_layer *layer, moxie_error *error)
{
    layer->records = mox_calloc((uint64_t)MOX_LAYER_ROOM(layer), sizeof *layer->records);
    if (layer->records == NULL)
        return mox_layer_no_memory(&layer->config, error);
    return change_layouts(layer, layer->layouts[MOX_ROUTED], layer->layouts[MOX_SHARED_EXPERT], error);
}

void mox_layer_free_records(moxie_layer *layer)
{
    free_slab(layer);
    mox_free(layer->records);
}

moxie_status mox_layer_use_records(moxie_layer *layer, const void *const *routed, const void *shared,
                                   moxie_error *error)
{
    slab_size size = { .routed = layer->layouts[MOX_ROUTED], .shared = layer->layouts[MOX_SHARED_EXPERT] };
    layer->records = mox_calloc((uint64_t)layer->slots, sizeof *layer->records);
    layer->own_records = mox_calloc((uint64_t)layer->slots, sizeof *layer->own_records);
    if (layer->records == NULL || layer->own_records == NULL || !measure_slab(layer, &size))
        return mox_layer_no_memory(&layer->config, error);
    layer->record_bytes = size.record_bytes;
    layer->shared_bytes = size.shared_bytes;
    for (int32_t s = 0; s < layer->slots; s++)
        layer->records[s] = (void *)(uintptr_t)routed[layer->expert_of[s]];
    layer->shared_record = size.shared != NULL ? (void *)(uintptr_t)shared : NULL;
    return MOXIE_OK;
}

void *mox_layer_own_record(moxie_layer *layer, int32_t slot, void *record)
{
    void *old = layer->own_records[slot];
    layer->own_records[slot] = layer->records[slot] = record;
    return old;
}

/* ---- weights that a layout cannot hold ------------------------------------------------------------- */

/* Groups of activations lie in the checkpoint's order of columns. GPUs permute activations of 16 bits alone. */
static bool permutes(const mox_layout *layout, const moxie_quant *act)
{
    if (mox_quant_is_none(act))
        return true;
    return layout == &mox_layout_panel16_order && act->group_cols < 0;
}

static bool permutes_both(const mox_layout *layout, const moxie_layer_config *c, mox_expert_kind kind)
{
    if (kind == MOX_ROUTED)
        return permutes(layout, &c->a13) && permutes(layout, &c->a2);
    return permutes(layout, &c->shared.a13) && permutes(layout, &c->shared.a2);
}

const mox_layout *mox_layer_fallback(const moxie_layer_config *config, mox_expert_kind kind, const mox_layout *layout)
{
    const mox_layout *next = layout->fallback;
    while (next != NULL && next->base != NULL && !permutes_both(next, config, kind))
        next = next->fallback;
    next = next != NULL ? next : &mox_layout_rowmajor;
    mox_log(MOXIE_LOG_WARN, "layout %s is next: it is used if it holds all experts", next->name);
    return next;
}

/* Malformed views are accepted here: the packer rejects them with a better message. */
static bool accepts(const mox_layout *layout, const mox_record_shape *shape, int64_t expert,
                    const moxie_expert *weights, char *reason, size_t size)
{
    return layout->accepts == NULL ||
           mox_record_check(&mox_layout_rowmajor, shape, expert, weights, NULL) != MOXIE_OK ||
           layout->accepts(shape, weights, reason, size);
}

/* What is used instead, mox_layer_fallback() says: it knows how activations are quantized. */
static void report_refusal(const mox_layout *layout, int64_t expert, const char *reason)
{
    mox_log(MOXIE_LOG_WARN, "layout %s cannot hold expert %lld: %s", layout->name, (long long)expert, reason);
}

bool mox_layer_accepts(const mox_layout *layout, const mox_record_shape *shape, int64_t expert,
                       const moxie_expert *weights)
{
    char reason[192];
    if (accepts(layout, shape, expert, weights, reason, sizeof reason))
        return true;
    report_refusal(layout, expert, reason);
    return false;
}

/* A layout that is asked about all experts at once: some layouts read every code. */
typedef struct question {
    const moxie_layer *layer;
    const mox_layout *layout;
    const moxie_weights *weights;
    _Atomic int64_t refused; /* the first expert that the layout cannot hold; E: none */
} question;

static void ask(void *context, int64_t e, int32_t worker)
{
    question *q = context;
    char reason[192];
    int64_t first = atomic_load_explicit(&q->refused, memory_order_relaxed);
    (void)worker;
    if (e > first || (!q->layer->has_comm && q->layer->slot_of[e] < 0) ||
        accepts(q->layout, &q->layer->whole_shape, e, &q->weights->experts[e], reason, sizeof reason))
        return;
    while (e < first && !atomic_compare_exchange_weak(&q->refused, &first, e))
        ;
}

/* Whole experts are asked about, not the rows of this rank: all tensor parallel ranks must use one layout, since
 * another one is read by kernels that may sum in another order. For the same reason ranks that compute a batch together
 * ask about all experts. Those whose views are missing are accepted. */
static bool accepts_all(const moxie_layer *layer, const mox_layout *layout, const moxie_weights *weights,
                        const moxie_executor *executor)
{
    const int64_t experts = layer->config.experts;
    question q = { layer, layout, weights, experts };
    char reason[192];
    if (layout->accepts == NULL)
        return true;
    mox_parallel(executor, experts, ask, &q);
    if (q.refused == experts)
        return true;
    (void)accepts(layout, &layer->whole_shape, q.refused, &weights->experts[q.refused], reason, sizeof reason);
    report_refusal(layout, q.refused, reason);
    return false;
}

moxie_status mox_layer_choose_layout(moxie_layer *layer, const moxie_weights *weights, const moxie_executor *executor,
                                     moxie_error *error)
{
    const mox_layout *routed = layer->layouts[MOX_ROUTED], *shared = layer->layouts[MOX_SHARED_EXPERT];
    while (!accepts_all(layer, routed, weights, executor))
        routed = mox_layer_fallback(&layer->config, MOX_ROUTED, routed);
    while (shared != NULL && weights->shared != NULL &&
           !mox_layer_accepts(shared, &layer->whole_shared_shape, -1, weights->shared))
        shared = mox_layer_fallback(&layer->config, MOX_SHARED_EXPERT, shared);
    if (layer->slab != NULL && routed == layer->layouts[MOX_ROUTED] && shared == layer->layouts[MOX_SHARED_EXPERT])
        return MOXIE_OK;
    return change_layouts(layer, routed, shared, error);
}

/* ---- access ---------------------------------------------------------------------------------------- */

moxie_status mox_layer_need_prepared(const moxie_layer *layer, moxie_error *error)
{
    MOX_FAIL_IF(!layer->prepared, MOXIE_ERR_ARGUMENT, error,
                "the layer holds no experts yet: call moxie_layer_prepare first");
    return MOXIE_OK;
}

moxie_status mox_layer_need_expert(const moxie_layer *layer, int64_t expert, const char *what, moxie_error *error)
{
    MOX_FAIL_IF(expert < 0 || expert >= layer->config.experts, MOXIE_ERR_ARGUMENT, error,
                "expert %lld was %s; the layer has experts 0 to %lld", (long long)expert, what,
                (long long)layer->config.experts - 1);
    return MOXIE_OK;
}

/* `buffer` holds a record that is fetched from the device; NULL when records can be read where they are. */
static moxie_status verify_record(const moxie_layer *layer, const mox_layout *layout, const mox_record_shape *shape,
                                  int64_t expert, const void *record, uint64_t bytes, void *buffer, moxie_error *error)
{
    if (buffer != NULL) {
        MOX_TRY(mox_device_copy(&layer->device, buffer, record, bytes, error));
        record = buffer;
    }
    return mox_record_verify(layout, shape, expert, record, error);
}

static moxie_status verify_all(const moxie_layer *layer, void *buffer, moxie_error *error)
{
    for (int32_t s = 0; s < layer->slots; s++)
        MOX_TRY(verify_record(layer, layer->layouts[MOX_ROUTED], &layer->routed_shape, layer->expert_of[s],
                              layer->records[s], layer->record_bytes, buffer, error));
    if (layer->layouts[MOX_SHARED_EXPERT] == NULL)
        return MOXIE_OK;
    const moxie_status status = verify_record(layer, layer->layouts[MOX_SHARED_EXPERT], &layer->shared_shape, -1,
                                              layer->shared_record, layer->shared_bytes, buffer, error);
    return status == MOXIE_OK ? status : mox_fail_context(status, error, "expert -1 is the shared expert");
}

static moxie_status need_records(const moxie_layer *layer, moxie_error *error)
{
    MOX_FAIL_IF(layer->fetched, MOXIE_ERR_UNSUPPORTED, error,
                "the records of this layer are in a store, which brings them to the GPU when a run needs them: look at "
                "those of its file (moxie_expert_file_record, moxie_expert_file_verify)");
    return MOXIE_OK;
}

moxie_status mox_layer_verify(const moxie_layer *layer, moxie_error *error)
{
    MOX_TRY(mox_layer_need_prepared(layer, error));
    MOX_TRY(need_records(layer, error));
    if (mox_device_is_host(&layer->device))
        return verify_all(layer, NULL, error);
    const uint64_t bytes = layer->record_bytes > layer->shared_bytes ? layer->record_bytes : layer->shared_bytes;
    void *buffer = mox_alloc_pages(bytes);
    MOX_FAIL_IF(buffer == NULL, MOXIE_ERR_MEMORY, error, "no memory to fetch a record of %llu bytes from the device",
                (unsigned long long)bytes);
    const moxie_status status = verify_all(layer, buffer, error);
    mox_free_pages(buffer);
    return status;
}

moxie_status mox_layer_record(const moxie_layer *layer, int64_t expert, const void **data, uint64_t *bytes,
                              moxie_error *error)
{
    MOX_TRY(mox_layer_need_prepared(layer, error));
    MOX_TRY(mox_layer_need_expert(layer, expert, "asked for", error));
    MOX_TRY(need_records(layer, error));
    const int32_t slot = layer->slot_of[expert];
    *data = slot >= 0 ? layer->records[slot] : NULL;
    *bytes = slot >= 0 ? layer->record_bytes : 0;
    return MOXIE_OK;
}
