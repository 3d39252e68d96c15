/* SPDX-License-Identifier: Apache-2.0
 *
 * run_adapters.c - LoRA adapters in a run (run_adapters.h). A pass whose tokens have no adapter runs as a plan without
 * adapters does: no step reads a factor.
 */
#include "layer/run/run_adapters.h"

#include "base/sizes.h"
#include "layer/adapters/adapters.h"

/* `number` is an adapter that is there. */
static moxie_status check_adapter(const moxie_plan *plan, const moxie_adapters *adapters, int32_t number,
                                  moxie_error *error)
{
    const moxie_slot_map *map = plan->layer->config.slot_map;
    const uint64_t generation = map != NULL ? map->generation : 0;
    const mox_adapter *adapter = mox_adapters_at(adapters, number);
    MOX_FAIL_IF(adapter->rank > plan->max_adapter_rank, MOXIE_ERR_ARGUMENT, error,
                "adapter %d has rank %d, and the plan runs adapters up to rank %d: make it with "
                "options.max_adapter_rank %d",
                (int)number, (int)adapter->rank, (int)plan->max_adapter_rank, (int)adapter->rank);
    MOX_FAIL_IF(adapter->generation != generation, MOXIE_ERR_MISMATCH, error,
                "adapter %d was set when the slot map had generation %llu, and it has %llu: experts have moved, so set "
                "the adapter anew",
                (int)number, (unsigned long long)adapter->generation, (unsigned long long)generation);
    return MOXIE_OK;
}

moxie_status mox_run_check_adapter_ids(const moxie_plan *plan, const moxie_run_args *args, moxie_error *error)
{
    for (int64_t t = 0; args->adapters != NULL && t < args->tokens; t++) {
        const int32_t id = args->adapter_ids[t];
        if (id == -1)
            continue;
        MOX_FAIL_IF(mox_adapters_at(args->adapters, id) == NULL, MOXIE_ERR_ARGUMENT, error,
                    "adapter_ids[%lld] is %d, and there is no such adapter: set it with moxie_adapters_set, or use -1 "
                    "for none",
                    (long long)t, (int)id);
        MOX_TRY(check_adapter(plan, args->adapters, id, error));
    }
    return MOXIE_OK;
}

static moxie_status check_all(const moxie_plan *plan, const moxie_adapters *adapters, moxie_error *error)
{
    for (int32_t i = 0; i < adapters->count; i++)
        if (mox_adapters_at(adapters, i) != NULL)
            MOX_TRY(check_adapter(plan, adapters, i, error));
    return MOXIE_OK;
}

moxie_status mox_run_check_adapters(const moxie_plan *plan, const moxie_run_args *args, moxie_error *error)
{
    if (args->adapters == NULL && args->adapter_ids == NULL)
        return MOXIE_OK;
    MOX_FAIL_IF(args->adapters == NULL || (args->adapter_ids == NULL && args->tokens > 0), MOXIE_ERR_ARGUMENT, error,
                "%s is NULL, but %s is set: set both, or neither for a run without adapters",
                args->adapters == NULL ? "adapters" : "adapter_ids",
                args->adapters == NULL ? "adapter_ids" : "adapters");
    MOX_FAIL_IF(plan->max_adapter_rank == 0, MOXIE_ERR_ARGUMENT, error,
                "the run has adapters, but the plan was made without: set options.max_adapter_rank");
    MOX_FAIL_IF(args->adapters->layer != plan->layer, MOXIE_ERR_MISMATCH, error,
                "the adapters were created for another layer than the plan's");
    return plan->backend->on_device ? check_all(plan, args->adapters, error)
                                    : mox_run_check_adapter_ids(plan, args, error);
}

int32_t mox_run_adapter_of_token(const mox_run *run, int64_t t)
{
    const moxie_run_args *args = &run->args;
    const mox_adapter *adapter = args->adapters != NULL ? mox_adapters_at(args->adapters, args->adapter_ids[t]) : NULL;
    return adapter != NULL && adapter->enabled ? args->adapter_ids[t] : -1;
}

bool mox_run_has_adapter(const mox_run *run, int32_t number)
{
    const moxie_adapters *adapters = run->args.adapters;
    const mox_adapter *adapter = adapters != NULL ? mox_adapters_at(adapters, number) : NULL;
    return adapter != NULL && adapter->enabled && check_adapter(run->plan, adapters, number, NULL) == MOXIE_OK;
}

void mox_run_assign_adapters(mox_run *run)
{
    const moxie_plan *plan = run->plan;
    run->adapted = true;
    if (plan->backend->on_device) /* which alone knows the ids */
        return;
    const int64_t pairs = run->permutation.offsets[run->slots.count];
    const int64_t *token_of = MOX_RUN_AT(run, int64_t, token_of);
    int32_t *adapter_of = MOX_RUN_AT(run, int32_t, adapter_of);
    run->adapted = false;
    for (int64_t p = 0; p < pairs; p++) {
        adapter_of[p] = mox_run_adapter_of_token(run, run->first + token_of[p]);
        run->adapted = run->adapted || adapter_of[p] >= 0;
    }
}

mox_lora_args mox_run_lora_args(const mox_run *run, mox_projection p, const void *x, float *out)
{
    const moxie_plan *plan = run->plan;
    const mox_expert_plan *routed = &plan->experts[MOX_ROUTED];
    const bool first = p == MOX_W13;
    return (mox_lora_args) {
        .adapters = mox_adapters_for_kernels(run->args.adapters),
        .count = run->args.adapters->count,
        .second = !first,
        .gated = routed->shape.gated,
        .slots = run->slots.end - run->slots.first,
        .offsets = run->permutation.offsets + run->slots.first,
        .place_of = run->slots.place_of != NULL ? run->slots.place_of + run->slots.first : NULL,
        .adapter_of = plan->backend->on_device ? NULL : MOX_RUN_AT(run, int32_t, adapter_of),
        .adapter_ids = run->args.adapter_ids + run->first,
        .token_of = MOX_RUN_AT(run, int64_t, token_of),
        .max_pairs = run->tokens * plan->config.top_k,
        .x = x,
        .x_dtype = first ? plan->config.dtype : MOXIE_F32,
        .cols = first ? plan->config.hidden : plan->config.intermediate,
        .row_of = first ? MOX_RUN_AT(run, int64_t, token_of) : NULL,
        .row_weight = first && plan->config.routing.on_input ? MOX_RUN_AT(run, float, row_weight) : NULL,
        .max_rank = plan->max_adapter_rank,
        .u = first ? MOX_RUN_AT(run, float, lora_u13) : MOX_RUN_AT(run, float, lora_u2),
        .out = out,
        .n_out = first ? routed->n13 : mox_shape_rows2(&routed->shape),
        .scratch = MOX_RUN_AT(run, void, lora_scratch),
        .scratch_floats = mox_lora_scratch(mox_max_i64(plan->config.hidden, plan->config.intermediate)),
    };
}
