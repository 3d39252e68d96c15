/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_beside.c - makes the plan of experts that the host computes beside a GPU, and its memory (plan_beside.h).
 */
#include "layer/plan/plan_beside.h"

#include <stdio.h>
#include <string.h>

#include "base/carver.h"

/* ---- steps ---------------------------------------------------------------------------------------------- */

/* Whether the host's plan takes this step for the GPU's plan: routing, combine and the shared expert are the GPU's. */
static bool runs_beside(const moxie_plan_step *step)
{
    const bool expert = strcmp(step->role, "w13") == 0 || strcmp(step->role, "w2") == 0;
    return expert || (strcmp(step->family, "glu") == 0 && step->role[0] == '\0');
}

static moxie_status add_step(mox_steps *steps, const moxie_plan_step *from, moxie_error *error)
{
    moxie_plan_step step = *from;
    char text[160];
    snprintf(text, sizeof text, "host%s%s", from->role[0] != '\0' ? " " : "", from->role);
    step.role = mox_steps_copy_text(steps, text);
    if (step.chosen && strcmp(step.family, "expert_gemm") == 0) {
        snprintf(text, sizeof text,
                 "%s%sexperts without a slot on the GPU: bits depend on which these are, within bounds", from->reason,
                 from->reason[0] != '\0' ? "; " : "");
        step.reason = mox_steps_copy_text(steps, text);
    }
    MOX_FAIL_IF(step.role == NULL || step.reason == NULL, MOXIE_ERR_MEMORY, error, "no memory for the steps of a plan");
    return mox_steps_add(steps, &step, error);
}

static moxie_status add_steps(mox_steps *steps, const mox_steps *host, moxie_error *error)
{
    for (int32_t i = 0; i < host->count; i++)
        if (runs_beside(&host->items[i]))
            MOX_TRY(add_step(steps, &host->items[i], error));
    return MOXIE_OK;
}

/* ---- memory --------------------------------------------------------------------------------------------- */

static moxie_status make_plan(const moxie_plan *plan, mox_plan_beside *b, moxie_error *error)
{
    const moxie_layer_config *c = &plan->config;
    const int64_t token_bytes = c->top_k * c->hidden * (int64_t)sizeof(float);
    moxie_options options = MOXIE_OPTIONS_INIT;
    b->tokens = mox_min_i64(plan->max_tokens, mox_max_i64(MOX_BESIDE_ROW_BYTES / token_bytes, 1));
    options.backend = MOXIE_BACKEND_CPU;
    options.mode = plan->mode;
    options.executor = &plan->executor;
    options.max_tokens = b->tokens;
    return b->source->host_plan(plan->layer->beside, &options, &b->plan, error);
}

static moxie_status allocate(const moxie_plan *plan, mox_plan_beside *b, moxie_error *error)
{
    const moxie_layer_config *c = &plan->config;
    const mox_cuda_table *table = plan->device.table;
    const uint64_t tokens = (uint64_t)plan->max_tokens, choices = (uint64_t)(b->tokens * c->top_k);
    mox_carver carver = mox_offset_carver(MOX_DEVICE_ALIGN);
    const uint64_t hidden = mox_carve_offset(&carver, tokens, (uint64_t)(c->hidden * mox_dtype_bytes(c->dtype)));
    const uint64_t weights =
        mox_carve_offset(&carver, c->routing.on_input ? tokens * (uint64_t)c->top_k : 0, sizeof(float));
    const uint64_t rows = mox_carve_offset(&carver, choices, (uint64_t)c->hidden * sizeof(float));
    b->ids = mox_calloc(choices, sizeof *b->ids);
    b->here = mox_calloc((uint64_t)c->experts, sizeof *b->here);
    b->workspace = mox_alloc_aligned(b->plan->space.bytes, 64);
    MOX_FAIL_IF(b->ids == NULL || b->here == NULL || b->workspace == NULL, MOXIE_ERR_MEMORY, error,
                "no memory for experts that the CPU computes");
    MOX_TRY(table->allocate_pinned(carver.used, &b->pinned, error));
    b->hidden = (char *)b->pinned + hidden;
    b->weights = c->routing.on_input ? (float *)((char *)b->pinned + weights) : NULL;
    b->rows = (float *)((char *)b->pinned + rows);
    return table->event_create(&b->sent, error);
}

moxie_status mox_plan_beside_create(moxie_plan *plan, mox_plan_beside **out, moxie_error *error)
{
    if (plan->layer->beside == NULL)
        return MOXIE_OK;
    mox_plan_beside *b = *out = mox_calloc(1, sizeof *b);
    MOX_FAIL_IF(b == NULL, MOXIE_ERR_MEMORY, error, "no memory for a plan");
    b->source = plan->layer->device_source;
    MOX_TRY(make_plan(plan, b, error));
    MOX_TRY(allocate(plan, b, error));
    return add_steps(&plan->steps, &b->plan->steps, error);
}

void mox_plan_beside_destroy(mox_plan_beside *b, const mox_cuda_table *table)
{
    if (b == NULL)
        return;
    table->event_destroy(b->sent);
    table->release_pinned(b->pinned);
    b->source->host_plan_destroy(b->plan);
    mox_free(b->ids);
    mox_free(b->here);
    mox_free(b->workspace);
    mox_free(b);
}
