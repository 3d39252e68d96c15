/* SPDX-License-Identifier: Apache-2.0
 *
 * cli_ranks_run.c - layers, plans and runs of the ranks of this process (cli_ranks.h).
 */
#include "cli_adapters.h"
#include "cli_ranks.h"

#include <stdlib.h>
#include <string.h>

#include <moxie/moxie_topology.h>

/* ---- layers and plans ------------------------------------------------------------------------------ */

static moxie_options options_of(cli_rank *r, cli_progress *progress)
{
    const cli_layer_options *given = r->all->layer;
    moxie_options o = MOXIE_OPTIONS_INIT;
    o.backend = given->backend;
    o.mode = given->mode;
    o.isa = given->isa;
    if (given->backend == MOXIE_BACKEND_CUDA)
        o.device = r->device[0] ? r->device : given->device;
    o.max_tokens = r->all->max_tokens > 0 ? r->all->max_tokens : 1;
    o.executor = r->executor;
    o.comm = r->comm;
    o.token_layout = r->all->options.tokens_as;
    o.exchange_capacity = r->all->options.capacity;
    o.exchange_chunk = r->all->options.chunk;
    o.exchange_streams = r->all->options.streams;
    if (r->rank == 0 && progress) {
        o.progress = cli_progress_experts;
        o.progress_user = progress;
    }
    o.max_adapter_rank = r->all->layer->max_adapter_rank;
    return o;
}

static moxie_status make_layer(cli_rank *r, moxie_error *error)
{
    moxie_layer_config config = r->all->source->config;
    cli_progress progress;
    cli_progress_begin(&progress, "prepare");
    progress.terminal = progress.terminal && !r->all->layer->json;
    const moxie_options o = options_of(r, &progress);
    cli_placement_apply(&r->all->placement, r->rank, &config);
    const bool shares = r->all->layer->n_shares > 0;
    moxie_status status =
        shares ? cli_shares_layer(r, &config, &o, error) : moxie_layer_create(&config, &o, &r->layer, error);
    if (status == MOXIE_OK && !shares)
        status = moxie_layer_prepare(r->layer, r->all->source->weights, &o, error);
    if (r->rank == 0)
        cli_progress_end(&progress);
    return cli_rank_agree(r, status, error);
}

static moxie_status make_plan(cli_rank *r, moxie_error *error)
{
    const moxie_options o = options_of(r, NULL);
    moxie_plan_destroy(r->plan);
    free(r->workspace);
    r->plan = NULL;
    r->workspace = NULL;
    moxie_status status = moxie_plan_create(r->layer, &o, &r->plan, error);
    const uint64_t bytes = status == MOXIE_OK ? moxie_plan_workspace_bytes(r->plan) : 0;
    if (status == MOXIE_OK && !(r->workspace = aligned_alloc(64, (bytes + 127) / 64 * 64)))
        status = cli_error(MOXIE_ERR_MEMORY, error, "", "no memory for a workspace of %llu bytes",
                           (unsigned long long)bytes);
    return cli_rank_agree(r, status, error);
}

static moxie_status make_rank(cli_rank *r, moxie_error *error)
{
    moxie_status status = cli_rank_agree(r, cli_rank_begin_nccl(r, error), error);
    if (status == MOXIE_OK)
        status = make_layer(r, error);
    return status == MOXIE_OK ? make_plan(r, error) : status;
}

moxie_status cli_ranks_plan_anew(cli_ranks *ranks, int64_t max_tokens, int64_t capacity, moxie_error *error)
{
    ranks->max_tokens = max_tokens;
    ranks->options.capacity = capacity;
    return cli_ranks_each(ranks, make_plan, error);
}

/* One pool for all ranks, of the executor of the layer beside them if that has as many threads: those of a second one
 * would spin for a while after its last loop. */
static moxie_status share_executor(cli_ranks *all, int32_t threads, moxie_error *error)
{
    moxie_executor *own = all->source->executor;
    moxie_status status = MOXIE_OK;
    if (!own || own->workers != threads)
        status =
            cli_executor_create_on(all->layer->command, threads, cli_numa(all->layer), &all->shared_executor, error);
    if (status == MOXIE_OK)
        status = cli_ranks_pool_create(all->shared_executor ? all->shared_executor : own, &all->pool, error);
    for (int32_t i = 0; i < all->here && status == MOXIE_OK; i++)
        all->rank[i].executor = cli_ranks_pool_executor(all->pool);
    return status;
}

/* --numa auto leaves the threads of ranks where the system puts them. */
static moxie_status unpinned_executor(const cli_ranks *all, int32_t rank, int32_t threads, const char *why,
                                      moxie_executor **out, moxie_error *error)
{
    if (rank == 0)
        fprintf(stderr, "moxie %s: note: --numa auto leaves the threads of %d ranks where the system puts them: %s\n",
                all->layer->command, all->ranks, why);
    return cli_executor_create(all->layer->command, threads, out, error);
}

/* One of several processes, which may be on one machine: each would pin its threads to the same processors, unless the
 * launcher gave each its own. */
static moxie_status process_executor(const cli_ranks *all, int32_t threads, moxie_executor **out, moxie_error *error)
{
    const char *numa = cli_numa(all->layer);
    if (all->ranks == 1 || strcmp(numa, "auto") != 0 || moxie_topology_node(1) < 0)
        return cli_executor_create_on(all->layer->command, threads, numa, out, error);
    return unpinned_executor(all, all->rank[0].rank, threads,
                             "processes do not know of each other's; let the launcher bind each to a node "
                             "(mpirun --bind-to numa), or give each its --numa node=N",
                             out, error);
}

/* A rank's own threads. With --numa auto each rank has a node of memory, where there is one for each and its processors
 * are enough; otherwise the system places its threads. */
static moxie_status own_executor(const cli_ranks *all, int32_t rank, int32_t threads, moxie_executor **out,
                                 moxie_error *error)
{
    const char *numa = cli_numa(all->layer);
    char node[32];
    if (all->here == 1)
        return process_executor(all, threads, out, error);
    if (strcmp(numa, "off") == 0 || (strcmp(numa, "auto") == 0 && moxie_topology_node(1) < 0)) /* one node */
        return cli_executor_create(all->layer->command, threads, out, error);
    if (strcmp(numa, "auto") != 0)
        return cli_error(MOXIE_ERR_UNSUPPORTED, error, "",
                         "--numa %s pins all threads by one rule, and each of %d ranks has threads of its own: use "
                         "auto, which gives each rank a node, or off",
                         numa, all->here);
    if (moxie_topology_node(all->here - 1) < 0)
        return unpinned_executor(all, rank, threads, "there is no node of memory for each", out, error);
    snprintf(node, sizeof node, "node=%d", moxie_topology_node(rank));
    const moxie_status status = cli_executor_create_on(all->layer->command, threads, node, out, error);
    return status == MOXIE_ERR_ARGUMENT
               ? unpinned_executor(all, rank, threads, "a node has too few processors", out, error)
               : status;
}

/* The threads of local ranks: their share of all; one pool where there is not one for each. */
static moxie_status make_executors(cli_ranks *all, moxie_error *error)
{
    moxie_machine machine = MOXIE_MACHINE_INIT;
    moxie_status status = moxie_machine_info(&machine, error);
    const int32_t threads = all->layer->threads > 0 ? all->layer->threads : machine.processors;
    if (status == MOXIE_OK && threads < all->here)
        return share_executor(all, threads, error);
    for (int32_t i = 0; i < all->here && status == MOXIE_OK; i++) {
        const int32_t share = threads / all->here + (i < threads % all->here);
        status = own_executor(all, i, share, &all->rank[i].own_executor, error);
        all->rank[i].executor = all->rank[i].own_executor;
    }
    return status;
}

moxie_status cli_ranks_prepare(cli_ranks *ranks, const cli_layer_options *options, const cli_layer *source,
                               int64_t max_tokens, moxie_error *error)
{
    ranks->layer = options;
    ranks->source = source;
    ranks->max_tokens = max_tokens;
    const double start = cli_seconds();
    moxie_status status = cli_placement_make(&ranks->options, source, &ranks->placement, error);
    if (status == MOXIE_OK)
        status = make_executors(ranks, error);
    status = cli_ranks_agree(ranks, status, error);
    if (status == MOXIE_OK)
        status = cli_ranks_each(ranks, make_rank, error);
    ranks->prepare_seconds = cli_seconds() - start;
    return status;
}

/* ---- runs ------------------------------------------------------------------------------------------ */

/* Rows [first, end) of an array, or NULL. */
static void *rows_from(const void *array, int64_t first, size_t row)
{
    return array ? (char *)(uintptr_t)array + (size_t)first * row : NULL;
}

static size_t bytes_of(moxie_dtype dtype)
{
    return dtype == MOXIE_F32 || !dtype ? 4 : 2;
}

/* The inputs of a rank's own tokens. */
static void cut(const moxie_layer_config *c, int64_t first, int64_t end, moxie_run_args *a)
{
    const size_t width = bytes_of(c->dtype), k = (size_t)c->top_k;
    a->tokens = end - first;
    a->hidden = rows_from(a->hidden, first, (size_t)c->hidden * width);
    a->router_hidden = rows_from(a->router_hidden, first, (size_t)c->router_width * width);
    a->logits = rows_from(a->logits, first, (size_t)cli_candidates(c) * bytes_of(a->logits_dtype));
    a->token_ids = rows_from(a->token_ids, first, sizeof *a->token_ids);
    a->ids = rows_from(a->ids, first, k * sizeof *a->ids);
    a->weights = rows_from(a->weights, first, k * sizeof *a->weights);
    a->padding = rows_from(a->padding, first, 1);
    a->bias_choice = rows_from(a->bias_choice, first, 1);
    a->ids_out = rows_from(a->ids_out, first, k * sizeof *a->ids_out);
    a->weights_out = rows_from(a->weights_out, first, k * sizeof *a->weights_out);
    a->logits_out = rows_from(a->logits_out, first, (size_t)cli_candidates(c) * sizeof *a->logits_out);
}

/* Where all ranks have all tokens, the first one of the process gives the routing, and the outputs if it has them. */
moxie_status cli_rank_args(cli_rank *r, const cli_batch *batch, moxie_run_args *a, moxie_error *error)
{
    const cli_ranks *all = r->all;
    const moxie_layer_config *c = &all->source->config;
    const int64_t tokens = batch->input->tokens, first = r->rank * tokens / all->ranks;
    const size_t row = (size_t)c->hidden * bytes_of(c->dtype);
    const bool replicated = all->options.tokens_as == MOXIE_TOKENS_REPLICATED;
    const bool sharded = all->options.tokens_as == MOXIE_TOKENS_SHARDED;
    a->workspace = r->workspace;
    a->workspace_bytes = moxie_plan_workspace_bytes(r->plan);
    cli_input_args(batch->input, a);
    a->adapter_ids = batch->adapter_ids && sharded ? batch->adapter_ids + first : batch->adapter_ids;
    a->output = replicated ? batch->output : rows_from(batch->output, first, row);
    if (sharded || r == all->rank) {
        a->ids_out = batch->ids;
        a->weights_out = batch->weights;
        a->logits_out = batch->logits;
    }
    if (sharded)
        cut(c, first, (r->rank + 1) * tokens / all->ranks, a);
    if (replicated && r != all->rank) {
        if (!r->output && !(r->output = malloc((size_t)tokens * row + 1)))
            return cli_error(MOXIE_ERR_MEMORY, error, "", "no memory for the outputs of %lld %s",
                             CLI_COUNT(tokens, "token"));
        a->output = r->output;
    }
    moxie_status status = MOXIE_OK;
    if (batch->given && !r->adapters)
        status = cli_adapters_create(batch->given, r->layer, &r->adapters, error);
    a->adapters = r->adapters;
    return status;
}

/* Rows of every process to all; each has its own already in its place. */
static moxie_status gather_rows(const cli_rank *r, void *array, size_t row, moxie_error *error)
{
    const int64_t tokens = r->all->batch->input->tokens, ranks = r->all->ranks;
    int64_t *numbers = cli_alloc(4 * (size_t)ranks * sizeof *numbers);
    memset(numbers, 0, 4 * (size_t)ranks * sizeof *numbers);
    for (int64_t i = 0; i < ranks; i++) {
        numbers[3 * ranks + i] = i * tokens / ranks;
        numbers[2 * ranks + i] = (i + 1) * tokens / ranks - i * tokens / ranks;
    }
    numbers[0] = numbers[2 * ranks + r->rank];
    void *own = cli_alloc((size_t)numbers[0] * row + 1);
    memcpy(own, rows_from(array, numbers[3 * ranks + r->rank], row), (size_t)numbers[0] * row);
    const moxie_comm_rows rows = { .send = own,
                                   .recv = array,
                                   .row_bytes = row,
                                   .send_rows = numbers,
                                   .send_at = numbers + ranks,
                                   .recv_rows = numbers + 2 * ranks,
                                   .recv_at = numbers + 3 * ranks };
    const moxie_status status = moxie_comm_allgatherv(r->comm, &rows, error);
    free(own);
    free(numbers);
    return status;
}

/* With MPI: what other processes have of the results. */
static moxie_status gather(const cli_rank *r, moxie_error *error)
{
    const cli_batch *b = r->all->batch;
    const moxie_layer_config *c = &r->all->source->config;
    const int32_t layout = r->all->options.tokens_as;
    moxie_status status = MOXIE_OK;
    const struct {
        void *array;
        size_t row;
        bool apart;
    } arrays[] = {
        { b->output, (size_t)c->hidden * bytes_of(c->dtype), layout != MOXIE_TOKENS_REPLICATED },
        { b->ids, (size_t)c->top_k * sizeof *b->ids, layout == MOXIE_TOKENS_SHARDED },
        { b->weights, (size_t)c->top_k * sizeof *b->weights, layout == MOXIE_TOKENS_SHARDED },
        { b->logits, (size_t)cli_candidates(c) * sizeof *b->logits, layout == MOXIE_TOKENS_SHARDED },
    };
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0] && status == MOXIE_OK; i++)
        if (arrays[i].array && arrays[i].apart)
            status = gather_rows(r, arrays[i].array, arrays[i].row, error);
    return status;
}

int32_t cli_rank_phases(const cli_rank *r, int64_t values[CLI_MAX_PHASES + 1])
{
    moxie_plan_phase phase = MOXIE_PLAN_PHASE_INIT;
    int32_t n = 0;
    int64_t sent = 0;
    while (n < CLI_MAX_PHASES && moxie_plan_phase_at(r->plan, 0, n, &phase)) {
        values[n++] = (int64_t)(1e9 * phase.seconds);
        sent += (int64_t)phase.sent_bytes;
    }
    values[n] = sent;
    return n;
}

moxie_status cli_rank_parts(const cli_rank *r, const int64_t *before, cli_parts *out, moxie_error *error)
{
    int64_t values[CLI_MAX_PHASES + 1];
    const int32_t n = cli_rank_phases(r, values);
    for (int32_t i = 0; i <= n; i++)
        values[i] -= before[i];
    const moxie_status status = moxie_comm_allreduce(r->comm, values, n + 1, MOXIE_COMM_SUM_I64, error);
    if (status != MOXIE_OK || r != r->all->rank)
        return status;
    out->count = n;
    moxie_plan_phase phase = MOXIE_PLAN_PHASE_INIT;
    for (int32_t i = 0; i < n && moxie_plan_phase_at(r->plan, 0, i, &phase); i++) {
        out->name[i] = phase.name;
        out->seconds[i] = 1e-9 * (double)values[i] / r->all->ranks;
    }
    out->sent_bytes = (double)values[n] / r->all->ranks;
    return MOXIE_OK;
}

static moxie_status run_rank(cli_rank *r, moxie_error *error)
{
    const cli_batch *batch = r->all->batch;
    moxie_run_args args = MOXIE_RUN_ARGS_INIT;
    int64_t before[CLI_MAX_PHASES + 1];
    moxie_status status = cli_rank_agree(r, cli_rank_args(r, batch, &args, error), error);
    for (int32_t i = 0; i < batch->runs && status == MOXIE_OK; i++) {
        cli_rank_phases(r, before);
        status = moxie_comm_barrier(r->comm, error);
        const double start = cli_seconds();
        if (status == MOXIE_OK)
            status = moxie_plan_run(r->plan, &args, error);
        status = cli_rank_agree(r, status, error);
        if (batch->seconds && r == r->all->rank)
            batch->seconds[i] = cli_seconds() - start;
        if (batch->parts && status == MOXIE_OK)
            status = cli_rank_parts(r, before, &batch->parts[i], error);
    }
    return status == MOXIE_OK && r->all->mpi ? gather(r, error) : status;
}

moxie_status cli_ranks_run(cli_ranks *ranks, const cli_batch *batch, moxie_error *error)
{
    ranks->batch = batch;
    return cli_ranks_each(ranks, run_rank, error);
}

moxie_status cli_layer_run(const cli_layer *layer, const cli_batch *batch, moxie_error *error)
{
    moxie_run_args args = MOXIE_RUN_ARGS_INIT;
    args.workspace_bytes = moxie_plan_workspace_bytes(layer->plan);
    args.workspace = aligned_alloc(64, (args.workspace_bytes + 127) / 64 * 64);
    if (!args.workspace)
        return cli_error(MOXIE_ERR_MEMORY, error, "", "no memory for a workspace of %llu bytes",
                         (unsigned long long)args.workspace_bytes);
    cli_input_args(batch->input, &args);
    args.adapters = batch->adapters;
    args.adapter_ids = batch->adapter_ids;
    args.output = batch->output;
    args.ids_out = batch->ids;
    args.weights_out = batch->weights;
    args.logits_out = batch->logits;
    moxie_status status = MOXIE_OK;
    for (int32_t i = 0; i < batch->runs && status == MOXIE_OK; i++) {
        const double start = cli_seconds();
        status = moxie_plan_run(layer->plan, &args, error);
        if (batch->seconds)
            batch->seconds[i] = cli_seconds() - start;
    }
    free(args.workspace);
    return status;
}

/* ---- what ran -------------------------------------------------------------------------------------- */

bool cli_plan_sums(const moxie_plan *plan)
{
    const moxie_plan_step *step;
    for (int32_t i = 0; (step = moxie_plan_step_at(plan, i)) != NULL; i++)
        if (!strcmp(step->family, "tensor_parallel"))
            return !strcmp(step->kernel, "columns");
    return false;
}

const moxie_plan *cli_ranks_plan(const cli_ranks *ranks)
{
    return ranks->rank[0].plan;
}

uint64_t cli_ranks_bytes(const cli_ranks *ranks)
{
    uint64_t bytes = 0;
    for (int32_t i = 0; i < ranks->here; i++)
        bytes += moxie_layer_bytes(ranks->rank[i].layer);
    return bytes;
}
