/* SPDX-License-Identifier: Apache-2.0
 *
 * cli_ranks_comm.c - the comms of the ranks of this process, a thread for each, and what failed (cli_ranks.h).
 *
 * After each step the ranks agree whether all came through, so that none waits for one that has failed. The error that
 * is told is the cause, not what others make of it.
 */
#include "cli_adapters.h"
#include "cli_ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what failed ----------------------------------------------------------------------------------- */

/* One number tells all ranks the first failed one: whether its error is the cause, then the rank, then the status. */
enum { STATUS_BITS = 8, RANK_BITS = 12 };

static bool is_cause(moxie_status status)
{
    return status != MOXIE_ERR_MISMATCH && status != MOXIE_ERR_TIMEOUT;
}

moxie_status cli_rank_agree(cli_rank *r, moxie_status status, moxie_error *error)
{
    const int32_t ranks = r->all->ranks;
    int64_t worst = 0;
    moxie_error why;
    if (!r->comm)
        return status;
    if (status != MOXIE_OK)
        worst = (int64_t)is_cause(status) << (STATUS_BITS + RANK_BITS) | (int64_t)(ranks - r->rank) << STATUS_BITS |
                (int64_t)status;
    const moxie_status agreed = moxie_comm_allreduce(r->comm, &worst, 1, MOXIE_COMM_MAX_I64, &why);
    if (agreed != MOXIE_OK) { /* the comm is broken */
        if (status == MOXIE_OK)
            *error = why;
        return status == MOXIE_OK ? agreed : status;
    }
    if (worst == 0)
        return MOXIE_OK;
    const int32_t first = ranks - (int32_t)(worst >> STATUS_BITS & ((1 << RANK_BITS) - 1));
    r->echo = first != r->rank;
    if (status != MOXIE_OK)
        return status;
    return cli_error((moxie_status)(worst & ((1 << STATUS_BITS) - 1)), error, "", "rank %d failed", first);
}

/* The error of the rank that failed first. */
static moxie_status collect(cli_ranks *all, moxie_error *error)
{
    const cli_rank *cause = NULL;
    for (int32_t i = 0; i < all->here; i++) {
        const cli_rank *r = &all->rank[i];
        if (r->status == MOXIE_OK)
            continue;
        all->broken = all->broken || r->status == MOXIE_ERR_TIMEOUT;
        if (!cause || (cause->echo && !r->echo) ||
            (cause->echo == r->echo && !is_cause(cause->status) && is_cause(r->status)))
            cause = r;
    }
    if (!cause)
        return MOXIE_OK;
    all->echo = cause->echo;
    cli_error(cause->status, error, cause->error.file, "rank %d: %.1000s", cause->rank, cause->error.text);
    error->offset = cause->error.offset;
    return cause->status;
}

static void *rank_main(void *user)
{
    cli_rank *r = user;
    r->status = r->work(r, &r->error);
    return NULL;
}

/* Does `work` on every rank. A rank without a thread leaves, so that the others do not wait for it. */
moxie_status cli_ranks_each(cli_ranks *all, moxie_status (*work)(cli_rank *rank, moxie_error *error),
                            moxie_error *error)
{
    for (int32_t i = 0; i < all->here; i++) {
        cli_rank *r = &all->rank[i];
        r->work = work;
        r->started = all->here > 1 && pthread_create(&r->thread, NULL, rank_main, r) == 0;
        if (r->started)
            continue;
        if (all->here == 1) {
            rank_main(r);
            continue;
        }
        moxie_comm_destroy(r->comm);
        r->comm = NULL;
        r->status =
            cli_error(MOXIE_ERR_MEMORY, &r->error, "", "the system starts no thread for it: give fewer --ranks");
    }
    for (int32_t i = 0; i < all->here; i++)
        if (all->rank[i].started)
            pthread_join(all->rank[i].thread, NULL);
    return collect(all, error);
}

/* ---- comms ----------------------------------------------------------------------------------------- */

static moxie_status begin_local(cli_ranks *all, moxie_error *error)
{
    moxie_comm **comms = cli_alloc((size_t)all->ranks * sizeof *comms);
    const moxie_status status = moxie_comm_local_create(all->ranks, NULL, comms, error);
    for (int32_t r = 0; status == MOXIE_OK && r < all->ranks; r++)
        all->rank[r].comm = comms[r];
    free(comms);
    return status;
}

static moxie_status begin_mpi(cli_ranks *all, moxie_error *error)
{
    moxie_comm *comm = NULL;
    moxie_status status = moxie_comm_mpi_launch(error);
    all->mpi = status == MOXIE_OK;
    if (status == MOXIE_OK)
        status = moxie_comm_mpi_create(NULL, NULL, &comm, error);
    all->broken = status == MOXIE_ERR_TIMEOUT;
    if (status != MOXIE_OK)
        return status;
    all->rank[0].comm = comm;
    all->rank[0].rank = moxie_comm_rank(comm);
    all->ranks = moxie_comm_ranks(comm);
    all->leader = all->rank[0].rank == 0;
    if (all->options.ranks > 0 && all->options.ranks != all->ranks) {
        all->echo = !all->leader;
        return cli_error(MOXIE_ERR_ARGUMENT, error, "",
                         "mpirun started %d processes, and --ranks %d is given: leave --ranks out", all->ranks,
                         all->options.ranks);
    }
    all->options.ranks = all->ranks;
    return MOXIE_OK;
}

/* What a launcher calls this process's number among those of its host; NULL: none started it. */
static const char *launched_number(void)
{
    static const char *const names[] = { "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_LOCAL_RANK",
                                         "PMI_RANK" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (getenv(names[i]))
            return getenv(names[i]);
    return NULL;
}

/* The device of this rank's own number, with the kernels of --device-kernels. */
static void name_own_device(cli_rank *r, const char *number)
{
    const char *kernels = r->all->layer->device_kernels;
    if (number)
        snprintf(r->device, sizeof r->device, "%.8s", number);
    else
        snprintf(r->device, sizeof r->device, "%d", r->rank);
    if (kernels)
        snprintf(r->device + strlen(r->device), sizeof r->device - strlen(r->device), ":%.8s", kernels);
}

moxie_status cli_rank_begin_nccl(cli_rank *r, moxie_error *error)
{
    moxie_nccl_options nccl = MOXIE_NCCL_OPTIONS_INIT;
    const char *given = r->all->layer->any_device ? NULL : r->all->layer->device;
    moxie_comm *comm = NULL;
    if (r->all->options.comm != CLI_COMM_NCCL || r->below) /* or it has one */
        return MOXIE_OK;
    if (!given)
        name_own_device(r, launched_number());
    nccl.over = r->comm;
    nccl.device = given ? given : r->device;
    const moxie_status status = moxie_comm_nccl_create(&nccl, NULL, &comm, error);
    if (status == MOXIE_OK) {
        r->below = r->comm;
        r->comm = comm;
    }
    return status;
}

moxie_status cli_ranks_begin(const cli_ranks_options *options, cli_ranks *out, moxie_error *error)
{
    const bool mpi = options->comm == CLI_COMM_MPI || (options->comm == CLI_COMM_NCCL && launched_number());
    *out = (cli_ranks) { .options = *options, .ranks = options->ranks, .here = mpi ? 1 : options->ranks };
    out->leader = true;
    if (out->here < 1)
        return cli_error(MOXIE_ERR_ARGUMENT, error, "",
                         "--comm nccl goes with --ranks N, or under mpirun; neither is here");
    out->rank = cli_alloc((size_t)out->here * sizeof *out->rank);
    for (int32_t i = 0; i < out->here; i++)
        out->rank[i] = (cli_rank) { .all = out, .rank = i };
    return mpi ? begin_mpi(out, error) : begin_local(out, error);
}

moxie_status cli_ranks_agree(cli_ranks *ranks, moxie_status status, moxie_error *error)
{
    cli_rank *r = ranks->rank;
    if (!ranks->mpi || ranks->broken)
        return status;
    const moxie_status agreed = cli_rank_agree(r, status, error);
    ranks->echo = r->echo;
    ranks->broken = agreed == MOXIE_ERR_TIMEOUT;
    return agreed;
}

moxie_status cli_ranks_largest(cli_ranks *ranks, int64_t *value, moxie_error *error)
{
    return ranks->mpi ? moxie_comm_allreduce(ranks->rank[0].comm, value, 1, MOXIE_COMM_MAX_I64, error) : MOXIE_OK;
}

/* ---- the end --------------------------------------------------------------------------------------- */

void cli_ranks_release(cli_ranks *ranks)
{
    for (int32_t i = 0; i < ranks->here; i++) {
        cli_rank *r = &ranks->rank[i];
        moxie_adapters_destroy(r->adapters);
        moxie_plan_destroy(r->plan);
        moxie_layer_destroy(r->layer);
        moxie_expert_file_close(r->file);
        moxie_executor_destroy(r->own_executor);
        free(r->workspace);
        free(r->output);
        r->adapters = NULL;
        r->plan = NULL;
        r->layer = NULL;
        r->file = NULL;
        r->executor = r->own_executor = NULL;
        r->workspace = r->output = NULL;
    }
    cli_ranks_pool_destroy(ranks->pool);
    moxie_executor_destroy(ranks->shared_executor);
    ranks->pool = NULL;
    ranks->shared_executor = NULL;
    cli_placement_free(&ranks->placement);
    ranks->placement = (cli_placement) { .ranks = 0 };
}

void cli_ranks_end(cli_ranks *ranks)
{
    cli_ranks_release(ranks);
    for (int32_t i = 0; i < ranks->here; i++) {
        moxie_comm_destroy(ranks->rank[i].comm);
        moxie_comm_destroy(ranks->rank[i].below);
    }
    free(ranks->rank);
    if (ranks->mpi && !ranks->broken)
        moxie_comm_mpi_finish();
    *ranks = (cli_ranks) { .ranks = 0 };
}
