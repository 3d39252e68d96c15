/* SPDX-License-Identifier: Apache-2.0
 *
 * cli_ranks_time.c - steps of all ranks on GPUs, timed without copies to and from the host (cli_ranks.h).
 */
#include "cli_ranks.h"

#include <stdlib.h>

#include <moxie/moxie_cuda.h>

/* What the ranks share during cli_ranks_time(). */
typedef struct timed_steps {
    const cli_batch *batches;
    int32_t runs, launches;
    double *seconds;
    cli_parts *parts;
} timed_steps;

/* Of this rank's own steps: the runs and their arguments. */
typedef struct own_runs {
    moxie_run_args *args;
    moxie_cuda_timed_run *runs;
    double *seconds;
    int64_t *ns; /* [launches] */
} own_runs;

static moxie_status fill(cli_rank *r, const timed_steps *steps, own_runs *own, moxie_error *error)
{
    for (int32_t i = 0; i < steps->runs; i++) {
        own->args[i] = (moxie_run_args)MOXIE_RUN_ARGS_INIT;
        own->runs[i] = (moxie_cuda_timed_run) { .plan = r->plan, .args = &own->args[i] };
        const moxie_status status = cli_rank_args(r, &steps->batches[i], &own->args[i], error);
        if (status != MOXIE_OK)
            return status;
    }
    return MOXIE_OK;
}

/* A step has ended when its last rank has. */
static moxie_status slowest(const cli_rank *r, const timed_steps *steps, own_runs *own, moxie_error *error)
{
    for (int32_t i = 0; i < steps->launches; i++)
        own->ns[i] = (int64_t)(own->seconds[i] * 1e9);
    const moxie_status status = moxie_comm_allreduce(r->comm, own->ns, steps->launches, MOXIE_COMM_MAX_I64, error);
    for (int32_t i = 0; status == MOXIE_OK && r == r->all->rank && i < steps->launches; i++)
        steps->seconds[i] = 1e-9 * (double)own->ns[i];
    return status;
}

static moxie_status time_rank(cli_rank *r, moxie_error *error)
{
    static const int64_t none[CLI_MAX_PHASES + 1];
    const timed_steps *steps = r->all->steps;
    own_runs own = { .args = cli_alloc((size_t)steps->runs * sizeof *own.args),
                     .runs = cli_alloc((size_t)steps->runs * sizeof *own.runs),
                     .seconds = cli_alloc((size_t)steps->launches * sizeof *own.seconds),
                     .ns = cli_alloc((size_t)steps->launches * sizeof *own.ns) };
    moxie_status status = cli_rank_agree(r, fill(r, steps, &own, error), error);
    if (status == MOXIE_OK)
        status = moxie_cuda_time_runs(own.runs, steps->runs, steps->launches, own.seconds, error);
    status = cli_rank_agree(r, status, error);
    if (status == MOXIE_OK)
        status = slowest(r, steps, &own, error);
    if (status == MOXIE_OK)
        status = cli_rank_parts(r, none, steps->parts, error);
    free(own.args);
    free(own.runs);
    free(own.seconds);
    free(own.ns);
    return status;
}

moxie_status cli_ranks_time(cli_ranks *ranks, const cli_batch *batches, int32_t runs, int32_t launches, double *seconds,
                            cli_parts *parts, moxie_error *error)
{
    const timed_steps steps = { batches, runs, launches, seconds, parts };
    ranks->steps = &steps;
    const moxie_status status = cli_ranks_each(ranks, time_rank, error);
    ranks->steps = NULL;
    return status;
}
