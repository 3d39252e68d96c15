/* SPDX-License-Identifier: Apache-2.0
 *
 * api_cuda.c - the functions of moxie_cuda.h.
 *
 * Each checks its pointers and calls down: to src/cuda for what concerns a device alone, to src/layer for plans and
 * runs. Results are made in this library's struct and copied into the caller's, which may be shorter or longer.
 */
#include <moxie/moxie_cuda.h>

#include <stdio.h>

#include "api/api_need.h"
#include "cuda/cuda_kernels.h"
#include "cuda/limits/cuda_limits.h"
#include "layer/plan/launch.h"
#include "layer/run/ranks_device.h"
#include "layer/run/run.h"
#include "layer/config/reserved.h"
#include "layer/config/struct_size.h"
#include "layer/run/capture_cuda.h"
#include "layer/run/replay.h"
#include "layer/run/time_cuda.h"
#include "layer/weights/layer.h"

moxie_status moxie_cuda_get_info(moxie_cuda_info *out, moxie_error *error)
{
    NEED(out);
    MOX_TRY(mox_struct_check(out, MOX_STRUCT(moxie_cuda_info), error));
    moxie_cuda_info info = { 0 };
    moxie_error why = { 0 };
    const mox_cuda_table *table;
    moxie_status status = mox_cuda_open(&table, &why);
    if (status == MOXIE_OK) {
        snprintf(info.opened, sizeof info.opened, "%s", mox_cuda_library());
        snprintf(info.built, sizeof info.built, "%s", table->built);
        info.kernels = table->kernels();
        status = table->count(&info.devices, &why);
        if (status == MOXIE_OK && info.devices == 0)
            status = mox_fail(MOXIE_ERR_UNSUPPORTED, &why, "the driver knows no device");
    }
    if (status != MOXIE_OK)
        snprintf(info.missing, sizeof info.missing, "%.*s", (int)sizeof info.missing - 1, why.text);
    mox_struct_write(&info, out, MOX_STRUCT(moxie_cuda_info));
    return MOXIE_OK;
}

moxie_status moxie_cuda_device_at(int32_t index, moxie_cuda_device *out, moxie_error *error)
{
    const mox_cuda_table *table;
    mox_cuda_features f;
    NEED(out);
    MOX_TRY(mox_struct_check(out, MOX_STRUCT(moxie_cuda_device), error));
    MOX_TRY(mox_cuda_open(&table, error));
    MOX_TRY(mox_cuda_any_device(table, index, &f, error));
    moxie_cuda_device device = { .sm = f.sm,
                                 .multiprocessors = f.multiprocessors,
                                 .usable = (f.flags & MOX_CUDA_MMA_BF16) != 0,
                                 .shared_bytes = (uint64_t)f.shared_bytes,
                                 .l2_bytes = f.l2_bytes,
                                 .memory_bytes = f.memory_bytes };
    snprintf(device.name, sizeof device.name, "%s", f.name);
    mox_cuda_flag_names(f.flags, device.features, sizeof device.features);
    mox_struct_write(&device, out, MOX_STRUCT(moxie_cuda_device));
    return MOXIE_OK;
}

moxie_status moxie_cuda_plan_run(moxie_plan *plan, const moxie_run_args *args, void *stream, moxie_error *error)
{
    NEED(plan);
    NEED(args);
    MOX_FAIL_IF(!plan->backend->on_device, MOXIE_ERR_ARGUMENT, error,
                "this plan runs on the host, and was given a stream: make its layer with backend cuda, or call "
                "moxie_plan_run");
    return mox_replay_run(plan, args, stream, error);
}

moxie_status moxie_cuda_plan_wait(moxie_plan *plan, void *stream, moxie_error *error)
{
    NEED(plan);
    MOX_FAIL_IF(!plan->backend->on_device, MOXIE_ERR_ARGUMENT, error,
                "this plan runs on the host, where moxie_plan_run returns when it is done");
    MOX_TRY(plan->device.table->use(plan->device.ordinal, error));
    return mox_ranks_wait_for_stream(plan, stream, error);
}

moxie_status moxie_cuda_plan_capture(moxie_plan *const *plans, const moxie_run_args *const *args, int32_t count,
                                     void **graph, moxie_error *error)
{
    NEED(plans);
    NEED(args);
    NEED(graph);
    return mox_cuda_capture(plans, args, count, graph, error);
}

moxie_status moxie_cuda_graph_launch(void *graph, void *stream, moxie_error *error)
{
    const mox_cuda_table *table;
    NEED(graph);
    MOX_TRY(mox_cuda_open(&table, error));
    return table->graph_launch(graph, stream, error);
}

void moxie_cuda_graph_destroy(void *graph)
{
    const mox_cuda_table *table;
    if (graph != NULL && mox_cuda_open(&table, NULL) == MOXIE_OK)
        table->graph_destroy(graph);
}

int moxie_cuda_plan_launch(const moxie_plan *plan, int32_t step, int64_t tokens, moxie_cuda_launch *out)
{
    moxie_cuda_launch launch;
    if (plan == NULL || out == NULL || mox_struct_check(out, MOX_STRUCT(moxie_cuda_launch), NULL) != MOXIE_OK ||
        !mox_plan_launch(plan, step, tokens, &launch))
        return 0;
    mox_struct_write(&launch, out, MOX_STRUCT(moxie_cuda_launch));
    return 1;
}

/* Finds a device by its name, and makes it the thread's. */
static moxie_status use_device(const char *name, mox_device *out, moxie_error *error)
{
    moxie_options asked = MOXIE_OPTIONS_INIT;
    asked.backend = MOXIE_BACKEND_CUDA;
    asked.device = name;
    MOX_TRY(mox_device_find(&asked, false, out, error));
    return out->table->use(out->ordinal, error);
}

moxie_status moxie_cuda_measure_copy(const char *device, double *gb_s, moxie_error *error)
{
    mox_device found;
    NEED(gb_s);
    MOX_TRY(use_device(device, &found, error));
    return mox_cuda_copy_rate(found.table, gb_s, error);
}

int moxie_cuda_layer_fill(const moxie_layer *layer, moxie_cuda_fill *out)
{
    if (layer == NULL || out == NULL || layer->fill_times.bytes == 0 ||
        mox_struct_check(out, MOX_STRUCT(moxie_cuda_fill), NULL) != MOXIE_OK)
        return 0;
    const mox_fill_times *t = &layer->fill_times;
    const moxie_cuda_fill fill = { .workers = t->workers,
                                   .bytes = t->bytes,
                                   .pinned_bytes = t->pinned_bytes,
                                   .allocate_seconds = t->slab_seconds,
                                   .pin_seconds = t->pin_seconds,
                                   .fill_seconds = t->fill_seconds };
    mox_struct_write(&fill, out, MOX_STRUCT(moxie_cuda_fill));
    return 1;
}

moxie_status moxie_cuda_measure_limits(const char *device, moxie_limits *out, moxie_error *error)
{
    mox_device found;
    moxie_limits limits;
    NEED(out);
    MOX_TRY(mox_struct_check(out, MOX_STRUCT(moxie_limits), error));
    MOX_TRY(use_device(device, &found, error));
    MOX_TRY(mox_cuda_limits_measure(found.table, &found.features, &limits, error));
    mox_struct_write(&limits, out, MOX_STRUCT(moxie_limits));
    return MOXIE_OK;
}

moxie_status moxie_cuda_time_runs(const moxie_cuda_timed_run *runs, int32_t count, int32_t repeats, double *seconds,
                                  moxie_error *error)
{
    NEED(runs);
    NEED(seconds);
    for (int32_t i = 0; i < count; i++)
        MOX_RESERVED(moxie_cuda_timed_run, &runs[i], "runs", error);
    return mox_cuda_time_runs(runs, count, repeats, seconds, error);
}

moxie_status moxie_cuda_time_host(const moxie_cuda_timed_run *run, int32_t repeats, double *equal, double *kernels,
                                  moxie_error *error)
{
    NEED(run);
    NEED(equal);
    NEED(kernels);
    MOX_RESERVED(moxie_cuda_timed_run, run, "run", error);
    return mox_cuda_time_host(run, repeats, equal, kernels, error);
}

int moxie_cuda_kernel_at(int32_t index, moxie_kernel_info *out)
{
    const mox_cuda_kernel *kernel = mox_cuda_kernel_at(index);
    const mox_cuda_table *table;
    mox_cuda_features device;
    mox_rejection why;
    if (kernel == NULL)
        return 0;
    if (out == NULL)
        return 1;
    if (mox_struct_check(out, MOX_STRUCT(moxie_kernel_info), NULL) != MOXIE_OK)
        return 0;
    const bool here = mox_cuda_open(&table, NULL) == MOXIE_OK && mox_cuda_device(table, 0, &device, NULL) == MOXIE_OK;
    const moxie_kernel_info info = { .family = kernel->base.family,
                                     .name = kernel->base.name,
                                     .isa = mox_cuda_kernel_needs(kernel),
                                     .layout = kernel->base.layout,
                                     .exactness = mox_exactness_name(kernel->base.exactness),
                                     .runnable =
                                         here && mox_cuda_kernel_admit(kernel, &device, MOXIE_MODE_FAST, &why) };
    mox_struct_write(&info, out, MOX_STRUCT(moxie_kernel_info));
    return 1;
}
