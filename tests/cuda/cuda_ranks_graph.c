/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_ranks_graph.c - runs over NCCL with a fixed capacity in a captured graph: its bytes, a capture that fails on one
 * rank, and a graph that one rank alone launches. A part of test_cuda_ranks.
 */
#include "cuda_ranks.h"
#include "layer/run/run_mirror.h"

#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

/* Two runs in one graph. Only the graph makes the second one, whose output the test sees. */
static moxie_status run_as_graph(moxie_plan *plan, const moxie_run_args *args, moxie_error *error)
{
    const size_t bytes = (size_t)((args->tokens + 1) * plan->config.hidden) * sizeof(float);
    moxie_run_args first = *args;
    double seconds[3] = { -1, -1, -1 };
    first.output = calloc(1, bytes);
    const moxie_cuda_timed_run runs[] = { { .plan = plan, .args = &first }, { .plan = plan, .args = args } };
    const moxie_status status = moxie_cuda_time_runs(runs, 2, 3, seconds, error);
    free(first.output);
    return status != MOXIE_OK || seconds[2] >= 0 ? status : MOXIE_ERR_IO;
}

void graphs_of_fixed_capacity(void **state)
{
    (void)state;
    if (!has_nccl())
        skip();
    for (uint64_t i = 0; i < 6; i++)
        for (int32_t ranks = 1; ranks <= devices; ranks *= 2) {
            test_layer layer;
            moxie_slot_map map;
            make_layer(&layer, test_seed(26600) + i, (int)(i % KINDS));
            char *want = alone(&layer, NULL), *got = malloc(test_layer_output_bytes(&layer) + 1);
            test_ranks_spec spec = any_spec(&layer, 26600 + i, ranks, &map);
            spec.over = over_nccl;
            spec.run = run_as_graph;
            spec.runs = 1;
            spec.options.exchange_capacity = test_ranks_own(&spec, layer.args.tokens);
            run_ranks(&layer, &spec, got);
            if (memcmp(want, got, test_layer_output_bytes(&layer)) != 0)
                fail_msg("%s: a graph on %d ranks gives other bytes than one GPU", layer.text, (int)ranks);
            free(want);
            free(got);
            test_layer_free(&layer);
        }
}

/* What rank 1 is to capture behind a run that fits: one token too many. Its output is nobody's. */
static moxie_run_args too_many;

static moxie_status capture_what_fails(moxie_plan *plan, const moxie_run_args *args, moxie_error *error)
{
    moxie_run_args second = plan->ranks->rank == 1 ? too_many : *args;
    second.workspace = args->workspace;
    second.workspace_bytes = args->workspace_bytes;
    double seconds[1];
    const moxie_cuda_timed_run runs[] = { { .plan = plan, .args = args }, { .plan = plan, .args = &second } };
    const moxie_status status = moxie_cuda_time_runs(runs, 2, 1, seconds, error);
    const bool named = plan->ranks->rank == 1 ? status == MOXIE_ERR_ARGUMENT
                                              : status == MOXIE_ERR_MISMATCH && strstr(error->text, "rank 1") != NULL;
    return !named ? MOXIE_ERR_FORMAT : run_as_graph(plan, args, error);
}

/* The capture fails on one rank, behind exchanges that all have captured: it is named, and the comm works on. */
void a_capture_that_fails(void **state)
{
    (void)state;
    test_layer layer;
    moxie_slot_map map;
    if (devices < 2 || !has_nccl())
        skip();
    make_layer(&layer, 26410, 0);
    char *want = alone(&layer, NULL), *got = malloc(test_layer_output_bytes(&layer) + 1);
    char *nobodys = malloc(test_layer_output_bytes(&layer) + 1);
    test_ranks_spec spec = any_spec(&layer, 26610, 2, &map);
    spec.over = over_nccl;
    spec.run = capture_what_fails;
    spec.runs = 1;
    spec.layout = MOXIE_TOKENS_SHARDED;
    spec.map = NULL;
    spec.tp = 0;
    spec.first[1] = layer.args.tokens / 2;
    spec.options.exchange_capacity = test_ranks_own(&spec, layer.args.tokens);
    assert_true(layer.args.tokens > 2);
    too_many = test_ranks_args(&layer, 0, spec.options.exchange_capacity + 1);
    too_many.output = nobodys;
    run_ranks(&layer, &spec, got);
    assert_memory_equal(want, got, test_layer_output_bytes(&layer));
    free(nobodys);
    free(want);
    free(got);
    test_layer_free(&layer);
}

/* ---- launched by one rank alone ------------------------------------------------------------------------ */

enum { LONELY_DEADLINE = 3000, LONELY_LIMIT = 60 }; /* ms; s */

static atomic_int has_waited;

static moxie_status capture_one(const mox_mirror *m, const mox_mirrored_run *run, void **graph, moxie_error *error)
{
    const mox_cuda_table *table = m->device->table;
    MOX_TRY(mox_mirror_copy(m, true, error));
    MOX_TRY(mox_mirror_enqueue(m, run, NULL, error));
    MOX_TRY(moxie_cuda_plan_wait((moxie_plan *)(uintptr_t)run->plan, m->stream, error));
    MOX_TRY(table->capture_begin(m->stream, error));
    const moxie_status status = mox_mirror_enqueue(m, run, NULL, error);
    const moxie_status ended = table->capture_end(m->stream, graph, NULL);
    return moxie_comm_agree(run->plan->ranks->comm, status == MOXIE_OK ? ended : status, error);
}

/* Rank 0 launches, and must hear of it by the deadline. */
static moxie_status launch_and_wait(const mox_mirror *m, moxie_plan *plan, void *graph, moxie_error *error)
{
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    MOX_TRY(m->device->table->graph_launch(graph, m->stream, error));
    const moxie_status status = moxie_cuda_plan_wait(plan, m->stream, error);
    clock_gettime(CLOCK_MONOTONIC, &end);
    const bool soon = end.tv_sec - begin.tv_sec <= LONELY_DEADLINE / 1000 + 2;
    return status == MOXIE_ERR_TIMEOUT && soon ? MOXIE_OK : MOXIE_ERR_IO;
}

static moxie_status launch_alone(moxie_plan *plan, const moxie_run_args *args, moxie_error *error)
{
    mox_mirror m = { 0 };
    mox_mirrored_run run = { .plan = plan, .call = MOX_RUN_WHOLE };
    void *graph = NULL;
    moxie_status status = mox_mirrored_run_begin(&run, args, error);
    if (status == MOXIE_OK)
        status = mox_mirror_open(&m, &run, 1, false, error);
    if (status == MOXIE_OK)
        status = capture_one(&m, &run, &graph, error);
    if (status == MOXIE_OK && plan->ranks->rank == 0)
        status = launch_and_wait(&m, plan, graph, error);
    if (plan->ranks->rank == 0)
        atomic_store(&has_waited, 1);
    while (atomic_load(&has_waited) == 0)
        nanosleep(&(struct timespec) { .tv_nsec = 1000000 }, NULL);
    if (graph != NULL)
        m.device->table->graph_destroy(graph);
    mox_mirror_close(&m);
    return status;
}

/* On a GPU, where a launch returns at once. A wait that does not end is ended by the alarm, with the whole test. */
void a_graph_that_one_rank_launches(void **state)
{
    (void)state;
    test_layer layer;
    moxie_slot_map map;
    if (devices < 2 || getenv("MOXIE_PLAIN_DEVICES") != NULL || !has_nccl())
        skip();
    make_layer(&layer, 26411, 0);
    char *output = malloc(test_layer_output_bytes(&layer) + 1);
    test_ranks_spec spec = any_spec(&layer, 26610, 2, &map);
    spec.over = over_nccl;
    spec.run = launch_alone;
    spec.runs = 1;
    spec.map = NULL;
    spec.tp = 0;
    spec.layout = MOXIE_TOKENS_SHARDED;
    spec.options.exchange_capacity = test_ranks_own(&spec, layer.args.tokens);
    nccl_deadline_ms = LONELY_DEADLINE;
    (void)alarm(LONELY_LIMIT);
    run_ranks(&layer, &spec, output);
    (void)alarm(0);
    nccl_deadline_ms = 20000;
    free(output);
    test_layer_free(&layer);
}
