/* SPDX-License-Identifier: Apache-2.0
 *
 * check_resident.c - opens and closes the plan whose stages a check follows (check_resident.h).
 */
#include "layer/check/check_resident.h"

#include "layer/config/struct_size.h"
#include "layer/plan/plan_create.h"
#include "layer/weights/device_source.h"
#include "layer/weights/layer_create.h"

static moxie_status open_layer(const moxie_plan *plan, mox_check_resident *out, moxie_error *error)
{
    const mox_device_source *source = plan->layer->device_source;
    char device[MOX_DEVICE_NAME_BYTES];
    moxie_options options = MOXIE_OPTIONS_INIT;
    mox_device_name(&plan->device, device);
    options.backend = MOXIE_BACKEND_CUDA;
    options.mode = plan->mode;
    options.executor = &plan->executor;
    options.max_tokens = plan->max_tokens;
    options.max_adapter_rank = plan->max_adapter_rank;
    options.device = device;
    options.device_memory = plan->device.memory.allocate != NULL ? &plan->device.memory : NULL;
    MOX_TRY(source->resident(source->user, &plan->config, &options, &out->layer, error));
    return mox_plan_create(out->layer, &options, &out->own, error);
}

/* The factors lie by the slots of the plan's layer, and those of `out->layer` hold the same experts. */
static moxie_status take_adapters(const moxie_plan *plan, mox_check_resident *out, moxie_error *error)
{
    const moxie_adapters *given = out->args.adapters;
    if (given == NULL)
        return MOXIE_OK;
    MOX_FAIL_IF(given->layer != plan->layer, MOXIE_ERR_MISMATCH, error,
                "the adapters were created for another layer than the plan's");
    out->adapters = *given;
    out->adapters.layer = out->layer;
    out->args.adapters = &out->adapters;
    return MOXIE_OK;
}

moxie_status mox_check_resident_open(const moxie_plan *plan, const moxie_run_args *args, mox_check_resident *out,
                                     moxie_error *error)
{
    out->plan = plan;
    MOX_TRY(mox_struct_read(args, &out->args, MOX_STRUCT(moxie_run_args), error));
    if (plan->layer->device_source == NULL)
        return MOXIE_OK;
    MOX_FAIL_IF(plan->layer->beside != NULL, MOXIE_ERR_UNSUPPORTED, error,
                "a check compares the bytes of a run through the store, which depend on placement where the CPU "
                "computes experts: check a plan of a store without compute_where_it_lies, and one of the CPU's files");
    const moxie_status status = open_layer(plan, out, error);
    if (status != MOXIE_OK)
        return mox_fail_context(status, error,
                                "a check of a store's layer needs all its experts on the GPU, beside the store's");
    out->plan = out->own;
    return take_adapters(plan, out, error);
}

void mox_check_resident_close(mox_check_resident *resident)
{
    mox_plan_destroy(resident->own);
    mox_layer_destroy(resident->layer);
}
