/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_fetch.c - allocates and frees the host memory of runs that fetch records (plan_fetch.h).
 */
#include "layer/plan/plan_fetch.h"

#include "base/carver.h"

mox_fetch_tables mox_fetch_tables_of(int64_t experts, int64_t slots)
{
    mox_carver c = mox_offset_carver(MOX_DEVICE_ALIGN);
    mox_fetch_tables t;
    t.slot_of = mox_carve_offset(&c, (uint64_t)experts, sizeof(int32_t));
    t.expert_of = mox_carve_offset(&c, (uint64_t)slots, sizeof(int64_t));
    t.place_of = mox_carve_offset(&c, (uint64_t)slots, sizeof(int32_t));
    t.scale[MOX_W13] = mox_carve_offset(&c, (uint64_t)slots, sizeof(float));
    t.scale[MOX_W2] = mox_carve_offset(&c, (uint64_t)slots, sizeof(float));
    t.bytes = mox_carve_offset(&c, 0, 1);
    return t;
}

static moxie_status allocate(mox_plan_fetch *f, const moxie_plan *plan, moxie_error *error)
{
    const mox_cuda_table *table = f->device->table;
    const uint64_t experts = (uint64_t)plan->config.experts;
    mox_carver c = mox_offset_carver(MOX_DEVICE_ALIGN);
    uint64_t at[MOX_FETCH_RING];
    f->tables = mox_fetch_tables_of(plan->config.experts, plan->layer->device_source->max_slots);
    const uint64_t ids = mox_carve_offset(&c, (uint64_t)(plan->max_tokens * plan->config.top_k), sizeof *f->ids);
    for (int i = 0; i < MOX_FETCH_RING; i++)
        at[i] = mox_carve_offset(&c, f->tables.bytes, 1);
    f->experts = mox_calloc(experts, sizeof *f->experts);
    f->order = mox_calloc(experts, sizeof *f->order);
    f->pairs = mox_calloc(experts, sizeof *f->pairs);
    MOX_FAIL_IF(f->experts == NULL || f->order == NULL || f->pairs == NULL, MOXIE_ERR_MEMORY, error,
                "no memory for the experts of a run");
    MOX_TRY(table->use(f->device->ordinal, error));
    MOX_TRY(table->allocate_pinned(c.used, &f->pinned, error));
    f->ids = (int32_t *)((char *)f->pinned + ids);
    for (int i = 0; i < MOX_FETCH_RING; i++) {
        f->ring[i] = (char *)f->pinned + at[i];
        MOX_TRY(table->event_create(&f->sent[i], error));
    }
    return MOXIE_OK;
}

moxie_status mox_plan_fetch_create(moxie_plan *plan, moxie_error *error)
{
    if (plan->layer == NULL || plan->layer->device_source == NULL)
        return MOXIE_OK;
    plan->fetch = mox_calloc(1, sizeof *plan->fetch);
    MOX_FAIL_IF(plan->fetch == NULL, MOXIE_ERR_MEMORY, error, "no memory for a plan");
    plan->fetch->device = &plan->device;
    MOX_TRY(allocate(plan->fetch, plan, error));
    return mox_plan_beside_create(plan, &plan->fetch->beside, error);
}

void mox_plan_fetch_destroy(mox_plan_fetch *f)
{
    if (f == NULL)
        return;
    const mox_cuda_table *table = f->device->table;
    mox_plan_beside_destroy(f->beside, table);
    for (int i = 0; i < MOX_FETCH_RING; i++)
        table->event_destroy(f->sent[i]);
    table->release_pinned(f->pinned);
    mox_free(f->experts);
    mox_free(f->order);
    mox_free(f->pairs);
    mox_free(f);
}
