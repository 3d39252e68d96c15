/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_on_cpu.c - times runs on the processor: one at a time, by wall-clock time.
 */
#include "bench.h"

#include <sys/resource.h>

static moxie_status limits_of(const cli_layer_options *options, const moxie_executor *executor, cli_limits_of *out,
                              moxie_error *error)
{
    return cli_limits_of_cpu(executor, options->isa, out, error);
}

static uint64_t available(const cli_layer_options *options, uint64_t workspace_bytes)
{
    (void)options, (void)workspace_bytes;
    return cli_available_memory();
}

/* How often so far the system took the processor away from one of this process' threads. */
static long preemptions(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_nivcsw;
}

static moxie_status time_batch(bench_batch *batch, int32_t launches, double *seconds, moxie_error *error)
{
    for (int32_t i = 0; i < launches; i++) {
        const long before = preemptions();
        const double start = cli_seconds();
        for (int32_t r = 0; r < batch->runs; r++) {
            const moxie_status status = moxie_plan_run(batch->plan[r], &batch->args[r], error);
            if (status != MOXIE_OK)
                return status;
        }
        seconds[i] = cli_seconds() - start;
        batch->preempted += preemptions() > before;
    }
    return MOXIE_OK;
}

const bench_backend bench_on_cpu = { .line_seconds = 1.5,
                                     .max_at_once = 1,
                                     .launches = 1,
                                     .on_host = true,
                                     .units = "threads",
                                     .limits_of = limits_of,
                                     .available = available,
                                     .time = time_batch };
