/* SPDX-License-Identifier: Apache-2.0
 *
 * test_ranks_device.c - plans of the cuda back end with a comm, on the launch table without a GPU (test_cuda_table.h):
 * what they refuse, what fails, what they allocate. test_cuda_ranks.c compares their bytes.
 */
#include "test_layer.h"

#include <moxie/moxie_comm.h>
#include <moxie/moxie_cuda.h>

#include "base/memory.h"
#include "comm/operation.h"
#include "layer/config/tp_slice.h"
#include "layer/plan/plan_ranks.h"
#include "test_cuda_table.h"

static const test_layer_limits limits = {
    .tokens = 9, .largest = 100, .plain_acts = true, .plain_routing = true, .no_parallel = true
};

static void make(test_layer *layer, uint64_t seed)
{
    test_rng rng = { seed };
    test_layer_make(layer, &rng, &limits);
}

/* With a shared expert. */
static void make_shared(test_layer *layer, uint64_t seed)
{
    for (make(layer, seed); layer->config.shared.intermediate == 0 || layer->args.tokens == 0; make(layer, ++seed))
        test_layer_free(layer);
}

static moxie_comm *one_local(void)
{
    moxie_comm *comm = NULL;
    moxie_error error;
    assert_ok(moxie_comm_local_create(1, NULL, &comm, &error), &error);
    return comm;
}

/* `device`: of the comm; NULL: the first. */
static moxie_comm *one_nccl_on(const char *device)
{
    moxie_nccl_options nccl = MOXIE_NCCL_OPTIONS_INIT;
    char id[MOXIE_NCCL_ID_BYTES];
    moxie_comm *comm = NULL;
    moxie_error error;
    assert_ok(moxie_comm_nccl_id(id, &error), &error);
    nccl.ranks = 1;
    nccl.id = id;
    nccl.device = device;
    assert_ok(moxie_comm_nccl_create(&nccl, NULL, &comm, &error), &error);
    return comm;
}

static moxie_comm *one_nccl(void)
{
    return one_nccl_on(NULL);
}

static moxie_options options_with(moxie_comm *comm)
{
    moxie_options options = MOXIE_OPTIONS_INIT;
    options.backend = MOXIE_BACKEND_CUDA;
    options.max_tokens = limits.tokens;
    options.comm = comm;
    return options;
}

/* Layer, plan and one run; all of it destroyed again, and the comm. */
static moxie_status whole(test_layer *layer, moxie_comm *comm, int64_t capacity, int64_t streams, moxie_error *error)
{
    moxie_options options = options_with(comm);
    options.exchange_capacity = capacity;
    options.exchange_streams = streams;
    options.exchange_chunk = streams > 1 ? 2 : 0;
    moxie_status status = test_layer_try(layer, &options, error);
    if (status == MOXIE_OK)
        status = moxie_plan_run(layer->plan, &layer->args, error);
    test_layer_discard(layer);
    moxie_comm_destroy(comm);
    return status;
}

/* Every call of the table fails once: the error comes back, and nothing stays allocated (test_cuda_end). */
static void any_failure_comes_back_with(moxie_comm *(*make_comm)(void), int64_t capacity, int64_t streams)
{
    bool reached = true;
    for (int n = 1; reached; n++) {
        test_layer layer;
        moxie_error error = { 0 };
        make(&layer, test_seed(26500));
        moxie_comm *comm = make_comm();
        test_cuda_fail_at(n);
        const moxie_status status = whole(&layer, comm, capacity, streams, &error);
        reached = test_cuda_fail_at(0);
        assert_int_equal(status, reached ? MOXIE_ERR_IO : MOXIE_OK);
        assert_true(reached ? strstr(error.text, "told to fail") != NULL : n > 20);
        test_layer_free(&layer);
    }
}

static void any_failure_comes_back(void **state)
{
    (void)state;
    any_failure_comes_back_with(one_local, 0, 0);
    any_failure_comes_back_with(one_local, limits.tokens, 0);
    any_failure_comes_back_with(one_nccl, 0, 2);
}

/* moxie_cuda_plan_run with memory of its caller. */
static void a_run_allocates_nothing_with(int64_t capacity)
{
    test_layer layer;
    moxie_error error;
    make(&layer, test_seed(26501));
    moxie_comm *comm = one_local();
    moxie_options options = options_with(comm);
    options.exchange_capacity = capacity;
    test_layer_plan(&layer, &options);
    moxie_run_args args = layer.args;
    args.workspace = aligned_alloc(256, (args.workspace_bytes + 511) / 256 * 256);
    for (int i = 0; i < 3; i++) {
        const uint64_t host = mox_alloc_count();
        const int device = test_cuda_allocations();
        assert_ok(moxie_cuda_plan_run(layer.plan, &args, NULL, &error), &error);
        assert_int_equal(mox_alloc_count(), host);
        assert_int_equal(test_cuda_allocations(), device);
    }
    assert_null(layer.plan->replay); /* each call meets other ranks */
    free(args.workspace);
    test_layer_free(&layer);
    moxie_comm_destroy(comm);
}

static bool says(const moxie_plan *plan, const char *words)
{
    for (int32_t i = 0; i < moxie_plan_step_count(plan); i++)
        if (strstr(moxie_plan_step_at(plan, i)->reason, words) != NULL)
            return true;
    return false;
}

static void a_run_allocates_nothing(void **state)
{
    (void)state;
    a_run_allocates_nothing_with(0);
    a_run_allocates_nothing_with(limits.tokens);
}

static void a_plan_says_how_rows_travel(void **state)
{
    (void)state;
    test_layer layer;
    moxie_comm *comm = one_local(), *over = one_nccl();
    make(&layer, test_seed(26502));
    moxie_options options = options_with(comm);
    test_layer_plan(&layer, &options);
    assert_true(says(layer.plan, "through pinned memory"));
    assert_false(says(layer.plan, "the device places them"));
    options.comm = over;
    test_layer_plan(&layer, &options);
    assert_true(says(layer.plan, "from device to device"));
    assert_true(says(layer.plan, "the device places them"));
    assert_false(says(layer.plan, "through pinned memory"));
    assert_false(says(layer.plan, "a graph can hold the run"));
    options.exchange_capacity = limits.tokens;
    test_layer_plan(&layer, &options);
    assert_true(says(layer.plan, "a graph can hold the run"));
    test_layer_free(&layer);
    moxie_comm_destroy(over);
    moxie_comm_destroy(comm);
}

static void what_is_refused(void **state)
{
    (void)state;
    test_layer layer;
    moxie_error error;
    test_cuda_set_devices(2);
    make(&layer, test_seed(26503));
    moxie_comm *comm = one_nccl_on("1");
    moxie_options options = options_with(comm);
    assert_int_equal(test_layer_try(&layer, &options, &error), MOXIE_ERR_MISMATCH);
    assert_non_null(strstr(error.text, "options.comm is of device 1"));
    test_layer_discard(&layer);
    moxie_comm_destroy(comm);

    test_layer_free(&layer);
    test_cuda_set_devices(1);
}

/* A graph cannot hold a run in which the host takes part. Its capture is refused, and breaks nothing: the runs are
 * timed as calls then, and their phases known. */
static void a_graph_needs_no_host(void **state)
{
    (void)state;
    test_layer layer;
    const mox_cuda_table *table;
    moxie_error error;
    void *stream, *graph;
    double seconds[2] = { -1, -1 };
    make(&layer, test_seed(26505));
    moxie_comm *comm = one_local();
    moxie_options options = options_with(comm);
    options.exchange_capacity = limits.tokens;
    test_layer_plan(&layer, &options);
    moxie_run_args args = layer.args;
    args.workspace = aligned_alloc(256, (args.workspace_bytes + 511) / 256 * 256);
    assert_ok(mox_cuda_open(&table, &error), &error);
    assert_ok(table->stream_create(&stream, &error), &error);
    assert_ok(table->capture_begin(stream, &error), &error);
    assert_int_equal(moxie_cuda_plan_run(layer.plan, &args, stream, &error), MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "being captured"));
    assert_int_equal(moxie_cuda_plan_wait(layer.plan, stream, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "being captured"));
    args.output = NULL;
    assert_int_equal(moxie_cuda_plan_run(layer.plan, &args, stream, &error), MOXIE_ERR_ARGUMENT);
    assert_ok(table->capture_end(stream, &graph, &error), &error);
    table->graph_destroy(graph);
    table->stream_destroy(stream);

    const moxie_cuda_timed_run timed = { .plan = layer.plan, .args = &layer.args };
    assert_ok(moxie_cuda_time_runs(&timed, 1, 2, seconds, &error), &error);
    assert_true(seconds[0] > 0 && seconds[1] > 0);
    moxie_plan_phase phase = MOXIE_PLAN_PHASE_INIT;
    for (int32_t i = 0; moxie_plan_phase_at(layer.plan, 0, i, &phase); i++)
        if (strcmp(phase.name, "dispatch") == 0 || strcmp(phase.name, "return") == 0 || strcmp(phase.name, "w2") == 0)
            assert_true(phase.seconds > 0);
    free(args.workspace);
    test_layer_free(&layer);
    moxie_comm_destroy(comm);
}

/* Captures a run whose n-th call fails. Returns whether it fails: it has so many. */
static bool capture_fails(moxie_plan *plan, const moxie_run_args *args, void *stream, int n, moxie_error *error)
{
    const mox_cuda_table *table;
    moxie_error ignored;
    void *graph;
    assert_ok(mox_cuda_open(&table, error), error);
    assert_ok(table->capture_begin(stream, error), error);
    test_cuda_fail_at(n);
    const moxie_status status = moxie_cuda_plan_run(plan, args, stream, error);
    (void)test_cuda_fail_at(0);
    assert_ok(table->capture_end(stream, &graph, &ignored), &ignored);
    table->graph_destroy(graph);
    return status != MOXIE_OK;
}

/* Any call of a captured run fails, more often than a comm has requests: the next run works, unless the call was NCCL's
 * own. */
static void captures_that_fail_break_nothing_with(int64_t streams)
{
    const mox_cuda_table *table;
    moxie_error error = { 0 };
    void *stream;
    bool reached = true;
    assert_ok(mox_cuda_open(&table, &error), &error);
    assert_ok(table->stream_create(&stream, &error), &error);
    for (int n = 1; reached; n++) {
        test_layer layer;
        moxie_comm *comm = one_nccl();
        moxie_options options = options_with(comm);
        make_shared(&layer, test_seed(26507));
        options.exchange_capacity = limits.tokens;
        options.exchange_streams = streams;
        test_layer_plan(&layer, &options);
        moxie_run_args args = layer.args;
        args.workspace = aligned_alloc(256, (args.workspace_bytes + 511) / 256 * 256);
        assert_ok(moxie_cuda_plan_run(layer.plan, &args, stream, &error), &error);
        for (int i = 0; i < 2 * MOX_COMM_OPEN && reached; i++)
            reached = capture_fails(layer.plan, &args, stream, n, &error);
        if (!reached || strstr(error.text, "NCCL") == NULL)
            assert_ok(moxie_plan_run(layer.plan, &layer.args, &error), &error);
        assert_true(reached || n > 20);
        free(args.workspace);
        test_layer_free(&layer);
        moxie_comm_destroy(comm);
    }
    table->stream_destroy(stream);
}

static void captures_that_fail_break_nothing(void **state)
{
    (void)state;
    captures_that_fail_break_nothing_with(1);
    captures_that_fail_break_nothing_with(2);
}

/* A rank whose arguments are wrong is told so, and the next run works. */
static void wrong_arguments_break_nothing(void **state)
{
    (void)state;
    test_layer layer;
    moxie_error error;
    make(&layer, test_seed(26504));
    moxie_comm *comm = one_local();
    const moxie_options options = options_with(comm);
    test_layer_plan(&layer, &options);
    moxie_run_args args = layer.args;
    args.tokens = limits.tokens + 1;
    assert_int_equal(moxie_plan_run(layer.plan, &args, &error), MOXIE_ERR_ARGUMENT);
    args = layer.args;
    args.output = NULL;
    assert_int_equal(moxie_plan_run(layer.plan, &args, &error), MOXIE_ERR_ARGUMENT);
    assert_ok(moxie_plan_run(layer.plan, &layer.args, &error), &error);
    args = layer.args;
    args.tokens = 0;
    assert_ok(moxie_plan_run(layer.plan, &args, &error), &error);
    test_layer_free(&layer);
    moxie_comm_destroy(comm);
}

/* Over NCCL, where the device places rows, the host waits once in each chunk, for the numbers of all ranks and its own;
 * and once for the last results. */
static void the_host_waits_once_a_chunk(void **state)
{
    (void)state;
    test_layer layer;
    moxie_error error;
    for (int64_t chunk = 1; chunk <= limits.tokens; chunk++) {
        make(&layer, test_seed(26508));
        test_layer_plan(&layer, &(moxie_options) { .struct_size = sizeof(moxie_options),
                                                   .backend = MOXIE_BACKEND_CUDA,
                                                   .max_tokens = limits.tokens });
        char *want = test_layer_output(&layer, layer.plan);
        moxie_comm *comm = one_nccl();
        const moxie_options options = options_with(comm);
        mox_plan_ranks_test_chunk = chunk;
        test_layer_plan(&layer, &options);
        mox_plan_ranks_test_chunk = 0;
        moxie_run_args args = layer.args;
        args.workspace = aligned_alloc(256, (args.workspace_bytes + 511) / 256 * 256);
        test_cuda_clear();
        assert_ok(moxie_cuda_plan_run(layer.plan, &args, NULL, &error), &error);
        assert_int_equal(test_cuda_events(), (args.tokens + chunk - 1) / chunk + 1);
        assert_null(strstr(test_cuda_log(), "wait"));
        assert_memory_equal(args.output, want, test_layer_output_bytes(&layer));
        free(want);
        free(args.workspace);
        test_layer_free(&layer);
        moxie_comm_destroy(comm);
    }
}

/* A chunk's buffers may take a 16th of the device's memory, at most 4 GiB. For each token of one rank: its row twice to
 * send and twice to receive, since there are two sides; 8 results of 7168 f32 to send, and as many to receive. */
static void chunks_by_the_memory_of_a_device(void **state)
{
    static const struct {
        const char *device, *says; /* 80 GiB; 24 GiB, of which 1.5 GiB hold 3119 tokens of 516224 bytes */
    } devices[] = { { "sm_80", "1 of at most 4096 tokens of each rank; buffers of 2016 MiB" },
                    { "sm_86", "2 of at most 2048 tokens of each rank; buffers of 1008 MiB; each reads the experts' "
                               "weights again, and all are on one stream" } };
    (void)state;
    moxie_error error;
    moxie_comm *comm = one_nccl();
    moxie_layer_config config = test_config();
    config.hidden = 7168;
    config.top_k = config.experts = 8;
    for (int i = 0; i < 2; i++) {
        moxie_options options = options_with(comm);
        const moxie_plan_step *step;
        moxie_plan *plan = NULL;
        bool said = false;
        options.max_tokens = 4096;
        test_cuda_set_device(devices[i].device);
        assert_ok(moxie_plan_explain(&config, &options, &plan, &error), &error);
        for (int32_t s = 0; (step = moxie_plan_step_at(plan, s)) != NULL; s++)
            said = said || strncmp(step->reason, devices[i].says, strlen(devices[i].says)) == 0;
        assert_true(said);
        moxie_plan_destroy(plan);
    }
    moxie_comm_destroy(comm);
}

/* Without a comm only the first expert parallel rank has the shared expert. The others' plans are explained, too. */
static void any_rank_is_explained(void **state)
{
    (void)state;
    test_layer layer;
    moxie_error error;
    moxie_options options = options_with(NULL);
    options.device = "sm_90";
    uint64_t seed = test_seed(26509);
    for (make(&layer, seed); layer.config.shared.intermediate < 2 * MOX_TP_UNIT || layer.config.experts < 2;
         make(&layer, ++seed))
        test_layer_free(&layer);
    layer.config.ep_size = layer.config.tp_size = 2;
    for (int32_t rank = 0; rank < 4; rank++) {
        moxie_plan *plan = NULL;
        layer.config.ep_rank = rank / 2;
        layer.config.tp_rank = rank % 2;
        assert_ok(moxie_plan_explain(&layer.config, &options, &plan, &error), &error);
        assert_int_equal(mox_plan_has_shared(plan), rank < 2);
        moxie_plan_destroy(plan);
    }
    test_layer_free(&layer);
}

/* A stream that does not end is waited for until the deadline; then the comm is broken. */
static void a_wait_has_a_deadline(void **state)
{
    (void)state;
    test_layer layer;
    moxie_comm *comm = NULL;
    moxie_comm_options short_one = MOXIE_COMM_OPTIONS_INIT;
    moxie_error error = { 0 };
    short_one.deadline_ms = 30;
    make(&layer, test_seed(26506));
    assert_ok(moxie_comm_local_create(1, &short_one, &comm, &error), &error);
    const moxie_options options = options_with(comm);
    test_layer_plan(&layer, &options);
    assert_ok(moxie_cuda_plan_wait(layer.plan, NULL, &error), &error);
    test_cuda_set_stuck(true);
    const moxie_status status = moxie_cuda_plan_wait(layer.plan, NULL, &error);
    test_cuda_set_stuck(false);
    assert_int_equal(status, MOXIE_ERR_TIMEOUT);
    assert_non_null(strstr(error.text, "has not ended within 30 ms"));
    assert_int_equal(moxie_plan_run(layer.plan, &layer.args, &error), MOXIE_ERR_TIMEOUT);
    test_layer_free(&layer);
    moxie_comm_destroy(comm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(any_failure_comes_back, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(a_run_allocates_nothing, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(a_plan_says_how_rows_travel, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(what_is_refused, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(a_graph_needs_no_host, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(captures_that_fail_break_nothing, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(wrong_arguments_break_nothing, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(the_host_waits_once_a_chunk, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(chunks_by_the_memory_of_a_device, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(any_rank_is_explained, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(a_wait_has_a_deadline, test_cuda_begin, test_cuda_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
