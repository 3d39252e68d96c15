/* SPDX-License-Identifier: Apache-2.0
 *
 * test_ranks_streams.c - runs over NCCL whose exchanges have a stream of their own, on the lazy launch table
 * (test_lazy.h) and NCCL's stub: the bytes of one rank alone, in every order that events allow. Random ranks, chunks,
 * placements, layouts, capacities, adapters, and ranks without tokens.
 *
 * MOXIE_TEST_CONFIGS: how many. Each event of ranks.h was taken out once, and the test failed.
 */
#include "test_ranks.h"

#include <moxie/moxie_cuda.h>

#include "layer/plan/plan_ranks.h"
#include "test_cuda_table.h"
#include "test_lazy.h"

enum { DEVICES = 4 };

static const char *const names[DEVICES] = { "0", "1", "2", "3" };

static const test_layer_limits kinds[] = {
    { .tokens = 40, .largest = 40, .plain_acts = true, .plain_routing = true, .no_parallel = true },
    { .tokens = 60, .largest = 64, .plain_acts = true, .plain_routing = true, .no_parallel = true, .rounds = true },
};

static int begin(void **state)
{
    const mox_cuda_table *plain = NULL;
    (void)test_cuda_begin(state);
    test_cuda_set_devices(DEVICES);
    assert_int_equal(mox_cuda_open(&plain, NULL), MOXIE_OK);
    mox_cuda_replace(test_lazy_wrap(plain, 0));
    return 0;
}

static int end(void **state)
{
    mox_cuda_replace(NULL);
    assert_int_equal(test_lazy_end(), 0);
    test_cuda_set_devices(1);
    return test_cuda_end(state);
}

static void on_devices(int32_t rank, moxie_layer_config *config, moxie_options *options, moxie_run_args *args)
{
    (void)config, (void)args;
    options->backend = MOXIE_BACKEND_CUDA;
    options->device = names[rank];
}

static moxie_comm *over_nccl(moxie_comm *local, moxie_error *error)
{
    moxie_nccl_options nccl = MOXIE_NCCL_OPTIONS_INIT;
    moxie_comm_options options = MOXIE_COMM_OPTIONS_INIT;
    moxie_comm *comm = NULL;
    nccl.over = local;
    nccl.device = names[moxie_comm_rank(local)];
    options.deadline_ms = 60000;
    return moxie_comm_nccl_create(&nccl, &options, &comm, error) == MOXIE_OK ? comm : NULL;
}

/* A layer that two streams can have. Every second one has a shared expert. */
static void make(test_layer *layer, uint64_t seed)
{
    for (uint64_t at = seed;; at += 1000003) {
        test_rng rng = { at };
        test_layer_make(layer, &rng, &kinds[seed % 2]);
        const moxie_layer_config *c = &layer->config;
        const bool shared = c->shared.intermediate > 0;
        if (shared == (seed / 2 % 2 == 0) && c->routing.select != MOXIE_SELECT_CUSTOM &&
            !mox_act_quant_needs_amax(&c->a13) && !mox_act_quant_needs_amax(&c->a2) &&
            !(shared && (mox_act_quant_needs_amax(&c->shared.a13) || mox_act_quant_needs_amax(&c->shared.a2))))
            return;
        test_layer_free(layer);
    }
}

static char *alone(test_layer *layer)
{
    moxie_options options = MOXIE_OPTIONS_INIT;
    options.backend = MOXIE_BACKEND_CUDA;
    options.max_tokens = layer->args.tokens + 1;
    test_layer_plan(layer, &options);
    return test_layer_output(layer, layer->plan);
}

/* Two runs in a graph, of which the second is seen; launched more than once. */
static moxie_status run_as_graph(moxie_plan *plan, const moxie_run_args *args, moxie_error *error)
{
    const size_t bytes = (size_t)((args->tokens + 1) * plan->config.hidden) * sizeof(float);
    moxie_run_args first = *args;
    double seconds[2] = { -1, -1 };
    first.output = calloc(1, bytes);
    const moxie_cuda_timed_run runs[] = { { .plan = plan, .args = &first }, { .plan = plan, .args = args } };
    const moxie_status status = moxie_cuda_time_runs(runs, 2, 2, seconds, error);
    free(first.output);
    return status;
}

/* Chunks of any number from 1 to 5; host or device decides where rows go. */
static test_ranks_spec any_spec(test_layer *layer, uint64_t seed, moxie_slot_map *map)
{
    test_rng rng = { seed * 7 + 1 };
    test_ranks_spec spec = { .ranks = 2 + (int32_t)(seed % 3),
                             .ep_map = (int32_t)(seed % 2),
                             .layout = seed % 4 < 2 ? MOXIE_TOKENS_SHARDED : (moxie_token_layout)(seed / 4 % 3),
                             .runs = 2,
                             .change = on_devices,
                             .over = over_nccl,
                             .deadline_ms = 60000,
                             .options = MOXIE_OPTIONS_INIT };
    test_ranks_cut(&spec, &rng, layer->args.tokens);
    const int64_t own = test_ranks_own(&spec, layer->args.tokens), chunks = test_range(&rng, 1, 5);
    spec.chunk = (own + chunks - 1) / chunks;
    spec.options.exchange_streams = 2;
    if (seed % 5 == 4)
        spec.options.exchange_capacity = own;
    if (seed % 10 == 9)
        spec.run = run_as_graph;
    else if (seed % 7 == 6)
        spec.options.degraded = seed % 2 == 0 ? MOXIE_DEGRADED_KEEP : MOXIE_DEGRADED_RENORMALIZE;
    if (spec.options.degraded == MOXIE_DEGRADED_RENORMALIZE && layer->config.routing.on_input)
        spec.options.degraded = MOXIE_DEGRADED_KEEP;
    *map = test_ranks_map(layer, &rng, spec.ranks);
    if (seed / 3 % 2 == 0)
        spec.map = map;
    return spec;
}

static void compare(uint64_t seed)
{
    test_layer layer;
    moxie_slot_map map;
    test_rank_result results[TEST_MAX_RANKS];
    make(&layer, seed);
    const size_t bytes = test_layer_output_bytes(&layer);
    test_lazy_seed(seed);
    char *want = alone(&layer), *got = malloc(bytes + 1);
    test_ranks_spec spec = any_spec(&layer, seed, &map);
    memset(got, 0xee, bytes);
    if (test_ranks_run(&layer, &spec, got, results) != MOXIE_OK) {
        for (int32_t r = 0; r < spec.ranks; r++)
            print_error("  rank %d: %s: %s\n", (int)r, moxie_status_name(results[r].status), results[r].error.text);
        fail_msg("seed %llu: %s", (unsigned long long)seed, layer.text);
    }
    if (memcmp(want, got, bytes) != 0)
        fail_msg(
            "seed %llu: %s: %d ranks, layout %d, chunks of %lld, capacity %lld, degraded %d: other bytes than alone",
            (unsigned long long)seed, layer.text, (int)spec.ranks, (int)spec.layout, (long long)spec.chunk,
            (long long)spec.options.exchange_capacity, (int)spec.options.degraded);
    free(want);
    free(got);
    test_layer_free(&layer);
}

static void random_ranks(void **state)
{
    const int64_t configs = test_env("MOXIE_TEST_CONFIGS", test_sanitized() || test_quick() ? 20 : 40);
    (void)state;
    for (int64_t i = 0; i < configs; i++)
        compare(test_seed(33000) + (uint64_t)i);
}

/* ---- plans ----------------------------------------------------------------------------------------------- */

static moxie_status explain(moxie_comm *comm, int64_t streams, int64_t tokens, char *says, size_t size,
                            moxie_error *error)
{
    moxie_options options = MOXIE_OPTIONS_INIT;
    moxie_layer_config config = test_config();
    moxie_plan *plan = NULL;
    const moxie_plan_step *step;
    options.backend = MOXIE_BACKEND_CUDA;
    options.comm = comm;
    options.max_tokens = tokens;
    options.exchange_streams = streams;
    const moxie_status status = moxie_plan_explain(&config, &options, &plan, error);
    says[0] = 0;
    for (int32_t i = 0; status == MOXIE_OK && (step = moxie_plan_step_at(plan, i)) != NULL; i++)
        if (strcmp(step->role, "chunks") == 0 || strcmp(step->role, "streams") == 0)
            snprintf(says + strlen(says), size - strlen(says), "%s: %s\n", step->role, step->reason);
    moxie_plan_destroy(plan);
    return status;
}

static void expect(moxie_comm *comm, int64_t streams, int64_t tokens, const char *first, const char *second)
{
    char says[1000];
    moxie_error error = { 0 };
    assert_ok(explain(comm, streams, tokens, says, sizeof says, &error), &error);
    if (strstr(says, first) == NULL || strstr(says, second) == NULL)
        fail_msg("not \"%s\" and \"%s\", but: %s", first, second, says);
}

static void what_a_plan_says(void **state)
{
    moxie_nccl_options nccl = MOXIE_NCCL_OPTIONS_INIT;
    char id[MOXIE_NCCL_ID_BYTES], says[1000];
    moxie_comm *comm = NULL, *local = NULL;
    moxie_error error = { 0 };
    (void)state;
    assert_ok(moxie_comm_nccl_id(id, &error), &error);
    nccl.ranks = 1;
    nccl.id = id;
    assert_ok(moxie_comm_nccl_create(&nccl, NULL, &comm, &error), &error);
    expect(comm, 0, 4096, "chunks: 1 of at most 4096", "streams: 1: exchanges and products take turns");
    expect(comm, 1, 4096, "chunks: 1 of at most 4096", "streams: 1, as options.exchange_streams asks");
    expect(comm, 2, 4096, "chunks: 2 of at most 2048", "streams: 2, as options.exchange_streams asks");
    expect(comm, 2, 511, "chunks: 1 of at most 511", "streams: 2, as options.exchange_streams asks");
    assert_int_equal(explain(comm, 3, 8, says, sizeof says, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "exchange_streams is 3"));
    assert_ok(moxie_comm_local_create(1, NULL, &local, &error), &error);
    assert_int_equal(explain(local, 2, 8, says, sizeof says, &error), MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "through the host's memory"));
    moxie_comm_destroy(local);
    moxie_comm_destroy(comm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(random_ranks, begin, end),
        cmocka_unit_test_setup_teardown(what_a_plan_says, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
