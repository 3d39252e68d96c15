/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_resident.c - opens a layer with all experts on the GPU, and times runs of it (bench_resident.h).
 */
#include "bench_resident.h"

#include <stdlib.h>

enum { REPEATS = 9, RUNS = 128 };

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static moxie_status time_runs(moxie_plan *plan, const moxie_cuda_timed_run *runs, int32_t n, double *seconds,
                              moxie_error *error)
{
    moxie_cuda_timed_run own[RUNS];
    double times[REPEATS];
    n = n < RUNS ? n : RUNS;
    for (int32_t i = 0; i < n; i++) {
        own[i] = runs[i];
        own[i].plan = plan;
    }
    const moxie_status status = moxie_cuda_time_runs(own, n, REPEATS, times, error);
    if (status != MOXIE_OK)
        return status;
    qsort(times, REPEATS, sizeof times[0], by_value);
    *seconds = times[REPEATS / 2] / n;
    return MOXIE_OK;
}

moxie_status bench_resident(const moxie_expert_file *file, const moxie_layer_config *config,
                            const moxie_options *options, const moxie_cuda_timed_run *runs, int32_t n, double *seconds,
                            moxie_error *error)
{
    moxie_layer *layer = NULL;
    moxie_plan *plan = NULL;
    moxie_status status = moxie_layer_open_file(file, config, options, &layer, error);
    if (status == MOXIE_OK)
        status = moxie_plan_create(layer, options, &plan, error);
    if (status == MOXIE_OK)
        status = time_runs(plan, runs, n, seconds, error);
    moxie_plan_destroy(plan);
    moxie_layer_destroy(layer);
    return status;
}
