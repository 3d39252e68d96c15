/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_replay.c - equal calls of moxie_cuda_plan_run, which a plan launches as a graph (layer/run/replay.h),
 * without a GPU: when there is a graph and when not, and that outputs are those of a plan without graphs. Once more
 * with streams whose work is done later (MOXIE_TEST_LAZY).
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <moxie/moxie_adapters.h>
#include <moxie/moxie_cuda.h>

#include "base/memory.h"
#include "layer/plan/plan_replay.h"
#include "layer/weights/layer.h"
#include "test_cuda_graph.h"
#include "test_cuda_table.h"
#include "test_layer.h"

enum { TOKENS = 6 };

typedef struct replayed {
    const mox_cuda_table *table;
    test_layer layer;
    moxie_run_args args;
    moxie_plan *plan, *plain; /* of one layer; the second has no graphs */
    size_t row, bytes;        /* of hidden and of output, which have as many */
} replayed;

static void *memory_of(test_layer *layer, size_t bytes)
{
    char *memory = test_layer_own(layer, bytes + 255); /* a page ends behind it, so it is aligned at no more than 16 */
    return memory + (256 - (uintptr_t)memory % 256) % 256;
}

/* A layer with a router, whose calls need hidden states alone. */
static void make_layer(test_layer *layer, uint64_t seed)
{
    const test_layer_limits limits = { .tokens = TOKENS, .largest = 40, .plain_routing = true, .plain_acts = true };
    for (;; seed++) {
        test_rng rng = { seed };
        test_layer_make(layer, &rng, &limits);
        if (layer->config.router_width == layer->config.hidden && layer->args.ids == NULL &&
            layer->args.logits == NULL && layer->args.token_ids == NULL)
            return;
        test_layer_free(layer);
    }
}

static void make(replayed *c, moxie_options *options)
{
    moxie_error error = { 0 };
    *c = (replayed) { 0 };
    assert_ok(mox_cuda_open(&c->table, &error), &error);
    make_layer(&c->layer, 7000);
    *options = test_layer_cuda_options(&c->layer);
    test_layer_plan(&c->layer, options);
    c->plan = c->layer.plan;
    options->call_graphs = 2;
    assert_ok(moxie_plan_create(c->layer.built, options, &c->plain, &error), &error);
    options->call_graphs = 0;
    c->bytes = test_layer_output_bytes(&c->layer);
    c->row = c->bytes / TOKENS;
    c->args = c->layer.args;
    c->args.router_hidden = NULL;
    c->args.hidden = memory_of(&c->layer, c->bytes);
    memcpy((void *)(uintptr_t)c->args.hidden, c->layer.args.hidden, c->bytes);
    c->args.output = memory_of(&c->layer, c->bytes);
    c->args.workspace_bytes = moxie_plan_workspace_bytes(c->plan);
    c->args.workspace = memory_of(&c->layer, (size_t)c->args.workspace_bytes);
    assert_true(c->plan->replay != NULL && c->plain->replay == NULL);
}

static void close_case(replayed *c)
{
    moxie_plan_destroy(c->plain);
    test_layer_free(&c->layer);
}

/* Other hidden states in the same buffer, so that a token's experts are others, too. */
static void turn(const moxie_run_args *args, size_t row)
{
    char *hidden = (char *)(uintptr_t)args->hidden, *first = malloc(row);
    const size_t rest = (size_t)(args->tokens - 1) * row;
    memcpy(first, hidden, row);
    memmove(hidden, hidden + row, rest);
    memcpy(hidden + rest, first, row);
    free(first);
}

static void run_to_end(const replayed *c, moxie_plan *plan, const moxie_run_args *args, void *stream)
{
    moxie_error error = { 0 };
    memset(args->output, 0xee, (size_t)args->tokens * c->row);
    assert_ok(moxie_cuda_plan_run(plan, args, stream, &error), &error);
    assert_ok(c->table->stream_wait(stream, &error), &error);
}

/* A call with other hidden states than the last has the output of a plan without graphs. Returns whether it was
 * launched as a graph. */
static bool call(const replayed *c, const moxie_run_args *args, void *stream)
{
    const size_t bytes = (size_t)args->tokens * c->row;
    char *want = malloc(bytes + 1);
    if (args->tokens > 0)
        turn(args, c->row);
    run_to_end(c, c->plain, args, stream);
    memcpy(want, args->output, bytes);
    run_to_end(c, c->plan, args, stream);
    assert_memory_equal(want, args->output, bytes);
    free(want);
    return c->plan->replay->graph != NULL;
}

static void calls_until_graph(const replayed *c)
{
    (void)call(c, &c->args, NULL);
    assert_true(call(c, &c->args, NULL));
}

/* ---- when ------------------------------------------------------------------------------------------------ */

static void equal_calls_are_a_graph(void **state)
{
    (void)state;
    replayed c;
    moxie_options options;
    make(&c, &options);
    assert_false(call(&c, &c.args, NULL));
    assert_true(call(&c, &c.args, NULL));
    const void *graph = c.plan->replay->graph;
    const uint64_t allocated = mox_alloc_count();
    for (int i = 0; i < 5; i++) {
        assert_true(call(&c, &c.args, NULL));
        assert_ptr_equal(c.plan->replay->graph, graph);
    }
    assert_int_equal(c.plan->replay->launches, 6);
    assert_int_equal(mox_alloc_count(), allocated);
    close_case(&c);
}

/* A program that fills its arguments anew for each call leaves anything between the fields. */
static void bytes_between_fields_are_no_arguments(void **state)
{
    (void)state;
    static const size_t gaps[][2] = {
        { sizeof(uint32_t), offsetof(moxie_run_args, tokens) },
        { offsetof(moxie_run_args, logits_dtype) + sizeof(moxie_dtype), offsetof(moxie_run_args, token_ids) },
    };
    replayed c;
    moxie_options options;
    make(&c, &options);
    for (int byte = 0; byte < 4; byte++) {
        for (size_t i = 0; i < sizeof gaps / sizeof gaps[0]; i++)
            memset((char *)&c.args + gaps[i][0], byte, gaps[i][1] - gaps[i][0]);
        assert_true(call(&c, &c.args, NULL) == (byte > 0));
    }
    close_case(&c);
}

/* What the table sees: the third call is one launch, by which the kernels of the first are done again. */
static void a_graph_is_one_launch(void **state)
{
    (void)state;
    replayed c;
    moxie_error error = { 0 };
    moxie_options options;
    char kernels[512], want[600];
    if (test_cuda_is_lazy())
        skip();
    make(&c, &options);
    test_cuda_clear();
    assert_ok(moxie_cuda_plan_run(c.plan, &c.args, NULL, &error), &error);
    snprintf(kernels, sizeof kernels, "%s", test_cuda_log());
    assert_int_equal(test_cuda_graphs_alive(), 0);
    assert_ok(moxie_cuda_plan_run(c.plan, &c.args, NULL, &error), &error);
    assert_int_equal(test_cuda_graphs_alive(), 1);
    test_cuda_clear();
    assert_ok(moxie_cuda_plan_run(c.plan, &c.args, NULL, &error), &error);
    snprintf(want, sizeof want, "graph %s", kernels);
    assert_string_equal(test_cuda_log(), want);
    close_case(&c);
    assert_int_equal(test_cuda_graphs_alive(), 0);
}

static void other_arguments_are_another_call(void **state)
{
    (void)state;
    replayed c;
    moxie_options options;
    void *stream;
    make(&c, &options);
    const size_t choices = TOKENS * (size_t)c.layer.config.top_k;
    moxie_run_args others[8];
    for (int i = 0; i < 8; i++)
        others[i] = c.args;
    others[0].hidden = memory_of(&c.layer, c.bytes);
    memcpy((void *)(uintptr_t)others[0].hidden, c.args.hidden, c.bytes);
    others[1].output = memory_of(&c.layer, c.bytes);
    others[2].workspace = memory_of(&c.layer, (size_t)c.args.workspace_bytes);
    others[3].tokens = TOKENS - 1;
    others[4].ids_out = memory_of(&c.layer, choices * sizeof(int32_t));
    others[5].weights_out = memory_of(&c.layer, choices * sizeof(float));
    others[6].padding = memory_of(&c.layer, TOKENS);
    memset((void *)(uintptr_t)others[6].padding, 0, TOKENS);
    others[7].router_hidden = others[0].hidden;
    for (int i = 0; i < 8; i++) {
        mox_plan_replay_forget(c.plan->replay);
        calls_until_graph(&c);
        assert_false(call(&c, &others[i], NULL));
        assert_false(call(&c, &others[i], NULL)); /* the first graph did not pay */
        assert_true(call(&c, &others[i], NULL));
    }
    mox_plan_replay_forget(c.plan->replay);
    assert_int_equal(c.table->stream_create(&stream, NULL), MOXIE_OK);
    calls_until_graph(&c);
    assert_false(call(&c, &c.args, stream));
    c.table->stream_destroy(stream);
    close_case(&c);
}

/* A graph that was launched only a few times has not paid for itself. */
static void graphs_that_do_not_pay_become_rare(void **state)
{
    (void)state;
    replayed c;
    moxie_options options;
    make(&c, &options);
    moxie_run_args other = c.args;
    other.tokens = TOKENS - 1;
    int graphs = 0;
    for (int i = 0; i < 64; i++)
        graphs += call(&c, i / 2 % 2 ? &other : &c.args, NULL);
    assert_int_equal(graphs, 1); /* the first time that two calls were equal */
    for (int i = 0; i < 40; i++)
        (void)call(&c, &c.args, NULL);
    assert_true(call(&c, &other, NULL) == false && c.plan->replay->wanted == 1); /* this one did */
    close_case(&c);
}

static void a_changed_layer_is_another(void **state)
{
    (void)state;
    replayed c;
    moxie_error error = { 0 };
    moxie_options options;
    make(&c, &options);
    calls_until_graph(&c);
    int64_t expert = 0;
    while (c.layer.built->slot_of[expert] < 0)
        expert++;
    moxie_expert changed = c.layer.experts[(expert + 1) % c.layer.config.experts];
    assert_ok(moxie_layer_update_expert(c.layer.built, expert, &changed, &error), &error);
    assert_false(call(&c, &c.args, NULL));
    assert_ok(moxie_layer_prepare(c.layer.built, &c.layer.weights, &options, &error), &error);
    assert_false(call(&c, &c.args, NULL));

    /* A layer that lost its experts is refused, whatever the calls before were. */
    mox_plan_replay_forget(c.plan->replay);
    calls_until_graph(&c);
    c.layer.built->prepared = false;
    assert_int_equal(moxie_cuda_plan_run(c.plan, &c.args, NULL, &error), MOXIE_ERR_ARGUMENT);
    close_case(&c);
}

static void no_tokens_are_no_call(void **state)
{
    (void)state;
    replayed c;
    moxie_options options;
    make(&c, &options);
    moxie_run_args none = c.args;
    none.tokens = 0;
    calls_until_graph(&c);
    for (int i = 0; i < 3; i++)
        assert_true(call(&c, &none, NULL)); /* it leaves the graph alone */
    assert_true(call(&c, &c.args, NULL));
    close_case(&c);
}

static void wrong_calls_stay_wrong(void **state)
{
    (void)state;
    replayed c;
    moxie_error error = { 0 };
    moxie_options options;
    make(&c, &options);
    moxie_run_args wrong = c.args;
    wrong.output = NULL;
    for (int i = 0; i < 3; i++)
        assert_int_equal(moxie_cuda_plan_run(c.plan, &wrong, NULL, &error), MOXIE_ERR_ARGUMENT);
    assert_null(c.plan->replay->graph);
    wrong = c.args;
    wrong.struct_size = 1;
    assert_int_equal(moxie_cuda_plan_run(c.plan, &wrong, NULL, &error), MOXIE_ERR_ARGUMENT);
    options.call_graphs = 3;
    moxie_plan *plan = NULL;
    assert_int_equal(moxie_plan_create(c.layer.built, &options, &plan, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "call_graphs is 3"));
    close_case(&c);
}

/* Adapters may be changed between two calls. */
static void calls_with_adapters_are_no_graph(void **state)
{
    (void)state;
    replayed c;
    moxie_error error = { 0 };
    moxie_options options;
    moxie_adapters *adapters = NULL;
    make(&c, &options);
    options.max_adapter_rank = 4;
    moxie_plan *plan = NULL;
    assert_ok(moxie_plan_create(c.layer.built, &options, &plan, &error), &error);
    assert_ok(moxie_adapters_create(c.layer.built, 1, &adapters, &error), &error);
    moxie_run_args args = c.args;
    int32_t *ids = memory_of(&c.layer, TOKENS * sizeof *ids);
    memset(ids, 0xff, TOKENS * sizeof *ids);
    args.adapters = adapters;
    args.adapter_ids = ids;
    args.workspace_bytes = moxie_plan_workspace_bytes(plan);
    args.workspace = memory_of(&c.layer, (size_t)args.workspace_bytes);
    for (int i = 0; i < 4; i++)
        run_to_end(&c, plan, &args, NULL);
    assert_true(plan->replay != NULL && plan->replay->graph == NULL);
    moxie_plan_destroy(plan);
    moxie_adapters_destroy(adapters);
    close_case(&c);
}

/* ---- captures and failures -------------------------------------------------------------------------------- */

/* The graph of a caller who captures a call has its kernels, not the plan's graph. */
static void captures_have_kernels(void **state)
{
    (void)state;
    replayed c;
    moxie_error error = { 0 };
    moxie_options options;
    void *stream, *graph = NULL;
    make(&c, &options);
    assert_int_equal(c.table->stream_create(&stream, NULL), MOXIE_OK);
    (void)call(&c, &c.args, stream);
    (void)call(&c, &c.args, stream);
    const int64_t launches = c.plan->replay->launches;
    assert_int_equal(c.table->capture_begin(stream, &error), MOXIE_OK);
    for (int i = 0; i < 3; i++)
        assert_ok(moxie_cuda_plan_run(c.plan, &c.args, stream, &error), &error);
    assert_int_equal(c.table->capture_end(stream, &graph, &error), MOXIE_OK);
    assert_int_equal(c.plan->replay->launches, launches);
    assert_true(call(&c, &c.args, stream));
    mox_plan_replay_refuse(c.plan->replay); /* the caller's graph does not need the plan's */
    char *want = malloc(c.bytes);
    turn(&c.args, c.row);
    run_to_end(&c, c.plain, &c.args, stream);
    memcpy(want, c.args.output, c.bytes);
    memset(c.args.output, 0xee, c.bytes);
    assert_ok(moxie_cuda_graph_launch(graph, stream, &error), &error);
    assert_int_equal(c.table->stream_wait(stream, &error), MOXIE_OK);
    assert_memory_equal(want, c.args.output, c.bytes);
    free(want);
    moxie_cuda_graph_destroy(graph);
    c.table->stream_destroy(stream);
    close_case(&c);
}

/* Whichever call of the table fails while a graph is made or launched, the kernels are launched one by one, and no
 * graph is tried again for such calls. */
static void failures_leave_the_kernels(void **state)
{
    (void)state;
    replayed c;
    moxie_options options;
    if (test_cuda_is_lazy())
        skip();
    make(&c, &options);
    bool reached = true;
    for (int n = 1; reached; n++) {
        assert_true(n < 200);
        for (int at = 0; at < 2; at++) { /* while the graph is made and launched first; at a later launch */
            mox_plan_replay_forget(c.plan->replay);
            run_to_end(&c, c.plan, &c.args, NULL);
            if (at > 0)
                run_to_end(&c, c.plan, &c.args, NULL);
            memset(c.args.output, 0xee, c.bytes);
            test_cuda_fail_at(n);
            assert_int_equal(moxie_cuda_plan_run(c.plan, &c.args, NULL, NULL), MOXIE_OK);
            const bool failed = test_cuda_fail_at(0);
            reached = at > 0 ? reached || failed : failed;
            assert_true(c.plan->replay->refused == failed);
            assert_true(call(&c, &c.args, NULL) == !failed);
        }
    }
    close_case(&c);
}

/* A call that fails is no reason to make a graph of the next. */
static void a_failed_call_is_forgotten(void **state)
{
    (void)state;
    replayed c;
    moxie_error error = { 0 };
    moxie_options options;
    if (test_cuda_is_lazy())
        skip();
    make(&c, &options);
    test_cuda_fail_at(2);
    assert_int_equal(moxie_cuda_plan_run(c.plan, &c.args, NULL, &error), MOXIE_ERR_IO);
    assert_true(test_cuda_fail_at(0));
    assert_false(call(&c, &c.args, NULL));
    assert_true(call(&c, &c.args, NULL));
    close_case(&c);
}

/* ---- threads ---------------------------------------------------------------------------------------------- */

typedef struct worker {
    replayed *c;
    moxie_plan *plan;
    moxie_run_args args;
    bool graph;
} worker;

static void *many_calls(void *arg)
{
    worker *w = arg;
    void *stream;
    assert_int_equal(w->c->table->stream_create(&stream, NULL), MOXIE_OK);
    for (int i = 0; i < 50; i++)
        run_to_end(w->c, w->plan, &w->args, stream);
    w->graph = w->plan->replay->graph != NULL;
    w->c->table->stream_destroy(stream);
    return NULL;
}

/* Two threads, each with a plan of one layer; then one with the other's plan. */
static void threads_have_graphs_of_their_own(void **state)
{
    (void)state;
    replayed c;
    moxie_error error = { 0 };
    moxie_options options;
    pthread_t thread[2];
    make(&c, &options);
    worker w[2] = { { &c, c.plan, c.args, false }, { &c, NULL, c.args, false } };
    assert_ok(moxie_plan_create(c.layer.built, &options, &w[1].plan, &error), &error);
    w[1].args.output = memory_of(&c.layer, c.bytes);
    w[1].args.workspace = memory_of(&c.layer, (size_t)c.args.workspace_bytes);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, many_calls, &w[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    assert_true(w[0].graph && w[1].graph);
    assert_memory_equal(w[0].args.output, w[1].args.output, c.bytes);
    w[0].plan = w[1].plan;
    assert_int_equal(pthread_create(&thread[0], NULL, many_calls, &w[0]), 0);
    pthread_join(thread[0], NULL);
    assert_memory_equal(w[0].args.output, w[1].args.output, c.bytes);
    moxie_plan_destroy(w[1].plan);
    close_case(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(equal_calls_are_a_graph, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(bytes_between_fields_are_no_arguments, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(a_graph_is_one_launch, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(other_arguments_are_another_call, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(graphs_that_do_not_pay_become_rare, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(a_changed_layer_is_another, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(no_tokens_are_no_call, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(wrong_calls_stay_wrong, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(calls_with_adapters_are_no_graph, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(captures_have_kernels, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(failures_leave_the_kernels, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(a_failed_call_is_forgotten, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(threads_have_graphs_of_their_own, test_cuda_begin, test_cuda_end),
    };
    cmocka_set_test_filter(getenv("MOXIE_TEST_FILTER"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
