/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_on_cuda.c - times runs on a GPU: several in one graph, by the GPU's clock.
 */
#include "bench.h"

#include <stdlib.h>

static moxie_status limits_of(const cli_layer_options *options, const moxie_executor *executor, cli_limits_of *out,
                              moxie_error *error)
{
    (void)executor;
    return cli_limits_of_gpu(options->device, out, error);
}

/* Nine tenths of the device's memory, less the workspace and the buffer that measures limits between lines. */
static uint64_t available(const cli_layer_options *options, uint64_t workspace_bytes)
{
    moxie_cuda_device device = MOXIE_CUDA_DEVICE_INIT;
    const int32_t index = options->device ? (int32_t)strtol(options->device, NULL, 10) : 0;
    if (moxie_cuda_device_at(index, &device, NULL) != MOXIE_OK)
        return 0;
    const uint64_t all = device.memory_bytes / 10 * 9, other = workspace_bytes + 8 * device.l2_bytes;
    return all > other ? all - other : 1;
}

static moxie_status time_batch(bench_batch *batch, int32_t launches, double *seconds, moxie_error *error)
{
    moxie_cuda_timed_run runs[BENCH_MAX_RUNS];
    for (int32_t r = 0; r < batch->runs; r++)
        runs[r] = (moxie_cuda_timed_run) { batch->plan[r], &batch->args[r] };
    return moxie_cuda_time_runs(runs, batch->runs, launches, seconds, error);
}

static moxie_status time_host(const bench_batch *batch, int32_t calls, double *equal, double *kernels,
                              moxie_error *error)
{
    const moxie_cuda_timed_run run = { batch->plan[0], &batch->args[0] };
    return moxie_cuda_time_host(&run, calls, equal, kernels, error);
}

const bench_backend bench_on_cuda = { .line_seconds = 0.3,
                                      .max_at_once = BENCH_MAX_RUNS,
                                      .launches = 10,
                                      .on_host = false,
                                      .units = "multiprocessors",
                                      .limits_of = limits_of,
                                      .available = available,
                                      .time = time_batch,
                                      .time_host = time_host };
