/* SPDX-License-Identifier: Apache-2.0
 *
 * test_ranks_errors.c - what ranks that do not fit together answer: every rank gets an error that names a rank and both
 * values, none waits for the deadline. And what a run on ranks costs: it allocates nothing.
 */
#include "test_adapter_set.h"
#include "test_ranks.h"

#include <pthread.h>

#include "base/memory.h"

enum { RANKS = 3, EXPERTS = 5 };

static test_layer layer;

static void begin(uint64_t seed)
{
    const test_layer_limits limits = {
        .tokens = 13, .experts = EXPERTS, .top_k = 2, .no_parallel = true, .plain_routing = true
    };
    test_rng rng = { seed };
    test_layer_make(&layer, &rng, &limits);
}

static test_ranks_spec spec_of(moxie_token_layout layout)
{
    test_ranks_spec spec = {
        .ranks = RANKS, .layout = layout, .first = { 0, 4, 9, 13 }, .options = MOXIE_OPTIONS_INIT
    };
    return spec;
}

/* Runs and returns what each rank answered. */
static void run(test_ranks_spec *spec, test_rank_result *results)
{
    char *output = calloc(test_layer_output_bytes(&layer) + 1, 1);
    test_ranks_run(&layer, spec, output, results);
    free(output);
}

static void assert_all(const test_rank_result *results, moxie_status status, const char *text)
{
    for (int r = 0; r < RANKS; r++) {
        if (results[r].status != status || strstr(results[r].error.text, text) == NULL)
            fail_msg("rank %d answers %s: %s; it should say \"%s\"", r, moxie_status_name(results[r].status),
                     results[r].error.text, text);
    }
}

typedef void (*change_fn)(int32_t rank, moxie_layer_config *config, moxie_options *options, moxie_run_args *args);

/* With this change of some rank, all ranks answer MISMATCH with `text`. */
static void mismatch(test_ranks_spec *spec, change_fn change, test_rank_result *results, const char *text)
{
    spec->change = change;
    run(spec, results);
    assert_all(results, MOXIE_ERR_MISMATCH, text);
}

/* ---- plans --------------------------------------------------------------------------------------------- */

static void change_max_tokens(int32_t rank, moxie_layer_config *config, moxie_options *options, moxie_run_args *args)
{
    (void)config, (void)args;
    options->max_tokens += rank == 1;
}

static void change_mode(int32_t rank, moxie_layer_config *config, moxie_options *options, moxie_run_args *args)
{
    (void)config, (void)args;
    options->token_layout = rank == 2 ? MOXIE_TOKENS_SCATTERED : MOXIE_TOKENS_SHARDED;
}

static void change_map(int32_t rank, moxie_layer_config *config, moxie_options *options, moxie_run_args *args)
{
    (void)options, (void)args;
    config->ep_map = rank == 0 ? MOXIE_MAP_ROUND_ROBIN : MOXIE_MAP_LINEAR;
}

static void change_limit(int32_t rank, moxie_layer_config *config, moxie_options *options, moxie_run_args *args)
{
    (void)options, (void)args;
    config->activation.gate_limit = rank == 1 ? 3.0f : config->activation.gate_limit;
}

static void change_scale(int32_t rank, moxie_layer_config *config, moxie_options *options, moxie_run_args *args)
{
    (void)options, (void)args;
    config->routing.scale = rank == 2 ? 1.25f : config->routing.scale;
}

static void change_size(int32_t rank, moxie_layer_config *config, moxie_options *options, moxie_run_args *args)
{
    (void)rank, (void)options, (void)args;
    config->ep_size = RANKS + 1;
}

static void change_both_sizes(int32_t rank, moxie_layer_config *config, moxie_options *options, moxie_run_args *args)
{
    (void)rank, (void)options, (void)args;
    config->ep_size = config->tp_size = 65536;
}

static void change_backend(int32_t rank, moxie_layer_config *config, moxie_options *options, moxie_run_args *args)
{
    (void)config, (void)args;
    options->comm = rank == 0 ? options->comm : NULL;
}

static void plans_that_differ(void **state)
{
    (void)state;
    test_rank_result results[TEST_MAX_RANKS];
    test_ranks_spec spec = spec_of(MOXIE_TOKENS_SHARDED);
    begin(3);
    mismatch(&spec, change_max_tokens, results, "max_tokens");
    assert_non_null(strstr(results[0].error.text, "rank 1 has 15 for max_tokens, but rank 0 has 14"));
    mismatch(&spec, change_mode, results, "token_layout");
    mismatch(&spec, change_map, results, "placement");
    mismatch(&spec, change_limit, results, "activation (a hash of its fields)");
    mismatch(&spec, change_scale, results, "routing (a hash of its fields)");
    mismatch(&spec, change_size, results, "options.comm has 3 rank(s), but ep_size 4");
    mismatch(&spec, change_both_sizes, results, "times tp_size 65536 is 4294967296");
    test_layer_free(&layer);
}

/* A rank that makes no plan, or another one. */
static void a_rank_without_comm(void **state)
{
    (void)state;
    test_rank_result results[TEST_MAX_RANKS];
    test_ranks_spec spec = spec_of(MOXIE_TOKENS_SHARDED);
    begin(4);
    spec.change = change_backend;
    spec.deadline_ms = 300;
    run(&spec, results);
    assert_int_equal(results[0].status, MOXIE_ERR_TIMEOUT);
    if (!strstr(results[0].error.text, "rank 1 of 3") && !strstr(results[0].error.text, "rank 2 of 3"))
        fail_msg("%s; it should name rank 1 or 2", results[0].error.text);
    test_layer_free(&layer);
}

/* A layer with a static scale for the activations of each expert, but for those of W13 of expert `without`. */
static void begin_scaled(int64_t tokens, int without)
{
    const test_layer_limits limits = { .tokens = tokens,
                                       .experts = EXPERTS,
                                       .top_k = 2,
                                       .no_parallel = true,
                                       .plain_routing = true,
                                       .weight = test_weight_quant_named("fp8 per tensor"),
                                       .act = test_act_quant_named("fp8 tensor static") };
    test_rng rng = { 8 };
    test_layer_make(&layer, &rng, &limits);
    for (int e = 0; e < EXPERTS; e++)
        layer.experts[e].a13_scale = layer.experts[e].a2_scale = 0.25f + (float)e;
    layer.experts[without].a13_scale = 0;
}

/* An expert without a static scale takes that of another one, which its rank does not know. */
static void scales_of_other_ranks(void **state)
{
    (void)state;
    test_rank_result results[TEST_MAX_RANKS];
    test_ranks_spec spec = spec_of(MOXIE_TOKENS_SHARDED);
    begin_scaled(13, 0);
    run(&spec, results);
    for (int r = 0; r < RANKS; r++)
        assert_ok(results[r].status, &results[r].error);
    spec.hides_scales = true;
    run(&spec, results);
    assert_all(results, MOXIE_ERR_MISMATCH,
               "rank 0 uses 1.25 as the a13_scale of experts that have none, but with the "
               "experts of all ranks it is 4.25");
    test_layer_free(&layer);
}

typedef struct planner {
    moxie_comm *comm;
    moxie_status status;
    moxie_error error;
    pthread_t thread;
} planner;

/* Rank 1 has options that cannot be read. */
static void *plan_badly(void *user)
{
    planner *p = user;
    moxie_layer_config config = layer.config;
    moxie_options options = MOXIE_OPTIONS_INIT;
    moxie_layer *made = NULL;
    moxie_plan *plan = NULL;
    moxie_error error;
    config.ep_size = 2;
    config.ep_rank = moxie_comm_rank(p->comm);
    options.comm = p->comm;
    assert_ok(moxie_layer_create(&config, &options, &made, &error), &error);
    options.max_tokens = config.ep_rank == 1 ? -1 : 4;
    p->status = moxie_plan_create(made, &options, &plan, &p->error);
    moxie_layer_destroy(made);
    return NULL;
}

/* The others learn of it at once, not at their deadline. */
static void options_that_cannot_be_read(void **state)
{
    (void)state;
    planner ranks[2];
    moxie_comm *comms[2];
    moxie_error error;
    begin(12);
    assert_ok(moxie_comm_local_create(2, NULL, comms, &error), &error);
    for (int r = 0; r < 2; r++) {
        ranks[r] = (planner) { .comm = comms[r] };
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, plan_badly, &ranks[r]), 0);
    }
    for (int r = 0; r < 2; r++)
        pthread_join(ranks[r].thread, NULL);
    assert_int_equal(ranks[1].status, MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(ranks[1].error.text, "options.max_tokens is -1"));
    assert_int_equal(ranks[0].status, MOXIE_ERR_MISMATCH);
    assert_non_null(strstr(ranks[0].error.text, "rank 1 could not make its plan (argument)"));
    for (int r = 0; r < 2; r++)
        moxie_comm_destroy(comms[r]);
    test_layer_free(&layer);
}

/* An update of an expert on one rank may not change what other ranks' experts use. */
static void scales_that_change_later(void **state)
{
    (void)state;
    moxie_comm *comms[2];
    moxie_layer *made = NULL;
    moxie_options options = MOXIE_OPTIONS_INIT;
    moxie_error error;
    begin_scaled(3, EXPERTS - 1);
    assert_ok(moxie_comm_local_create(2, NULL, comms, &error), &error);
    moxie_layer_config config = layer.config;
    config.ep_size = 2;
    options.comm = comms[0];
    assert_ok(moxie_layer_create(&config, &options, &made, &error), &error);
    assert_ok(moxie_layer_prepare(made, &layer.weights, &options, &error), &error);
    moxie_expert other = layer.experts[1];
    other.a13_scale = 3; /* experts without a scale use 3.25, expert 3's */
    assert_ok(moxie_layer_update_expert(made, 1, &other, &error), &error);
    other.a13_scale = 4;
    assert_int_equal(moxie_layer_update_expert(made, 1, &other, &error), MOXIE_ERR_MISMATCH);
    assert_non_null(strstr(error.text, "would use 4 instead of 3.25"));
    moxie_layer_destroy(made);
    for (int r = 0; r < 2; r++)
        moxie_comm_destroy(comms[r]);
    test_layer_free(&layer);
}

/* ---- runs ---------------------------------------------------------------------------------------------- */

static void fewer_tokens(int32_t rank, moxie_layer_config *config, moxie_options *options, moxie_run_args *args)
{
    (void)config, (void)options;
    args->tokens -= rank == 2 ? 2 : 0;
}

/* As many choices for each rank, but of other experts. */
static void other_choices(int32_t rank, moxie_layer_config *config, moxie_options *options, moxie_run_args *args)
{
    static const int32_t ids[2][4] = { { 0, 1, 1, 0 }, { 0, 1, 0, 1 } };
    static const float weights[4] = { 1, 2, 3, 4 };
    (void)config, (void)options;
    args->tokens = 2;
    args->ids = ids[rank == 2];
    args->weights = weights;
    args->logits = NULL;
    args->padding = args->bias_choice = NULL;
}

static void no_output(int32_t rank, moxie_layer_config *config, moxie_options *options, moxie_run_args *args)
{
    (void)config, (void)options;
    args->output = rank == 1 ? NULL : args->output;
}

static void change_adapter_rank(int32_t rank, moxie_layer_config *config, moxie_options *options, moxie_run_args *args)
{
    (void)config, (void)args;
    options->max_adapter_rank += rank == 1;
}

/* A rank that lacks an adapter of another's token, and plans for adapters of unequal ranks. */
static void adapters_that_differ(void **state)
{
    (void)state;
    test_rank_result results[TEST_MAX_RANKS];
    test_ranks_spec spec = spec_of(MOXIE_TOKENS_SHARDED);
    test_rng rng = { 29901 };
    test_adapter_set adapters;
    begin(5);
    layer.args.adapter_ids = calloc((size_t)layer.args.tokens + 1, sizeof(int32_t)); /* all have adapter 0 */
    test_adapter_set_make(&adapters, &rng, &layer.config, 4);
    spec.adapters = &adapters;
    spec.options.max_adapter_rank = 4;
    spec.lacks_adapters = 2;
    run(&spec, results);
    assert_int_equal(results[1].status, MOXIE_ERR_MISMATCH);
    assert_non_null(strstr(results[1].error.text, "sent a token with adapter 0, which rank 1 does not have"));
    for (int r = 0; r < RANKS; r++)
        assert_int_not_equal(results[r].status, MOXIE_OK);
    spec.lacks_adapters = 0;
    mismatch(&spec, change_adapter_rank, results, "options.max_adapter_rank");
    test_adapter_set_free(&adapters);
    free((void *)(uintptr_t)layer.args.adapter_ids);
    test_layer_free(&layer);
}

static void runs_that_differ(void **state)
{
    (void)state;
    test_rank_result results[TEST_MAX_RANKS];
    test_ranks_spec spec = spec_of(MOXIE_TOKENS_REPLICATED);
    begin(5);
    mismatch(&spec, fewer_tokens, results, "the number of tokens is");
    assert_non_null(strstr(results[0].error.text, "is 11 on rank 2, but 13 on rank 0"));
    mismatch(&spec, other_choices, results, "the tokens' choices of experts");
    spec = spec_of(MOXIE_TOKENS_SHARDED);
    spec.change = no_output;
    run(&spec, results);
    assert_int_equal(results[1].status, MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(results[1].error.text, "output is NULL"));
    assert_int_equal(results[0].status, MOXIE_ERR_MISMATCH);
    assert_non_null(strstr(results[0].error.text, "rank 1 refused its run"));
    assert_int_equal(results[2].status, MOXIE_ERR_MISMATCH);
    test_layer_free(&layer);
}

/* Ranks of which tokens are scattered, but fewer than there are ranks: rank 0 owns none, and needs no output. */
static void no_output_of_rank_0(int32_t rank, moxie_layer_config *config, moxie_options *options, moxie_run_args *args)
{
    (void)config, (void)options;
    args->tokens = 2;
    args->output = rank == 0 ? NULL : args->output;
}

static void a_rank_without_tokens(void **state)
{
    (void)state;
    test_rank_result results[TEST_MAX_RANKS];
    test_ranks_spec spec = spec_of(MOXIE_TOKENS_SCATTERED);
    begin(9);
    spec.change = no_output_of_rank_0;
    run(&spec, results);
    for (int r = 0; r < RANKS; r++)
        assert_ok(results[r].status, &results[r].error);
    test_layer_free(&layer);
}

/* ---- two plans of one comm ----------------------------------------------------------------------------- */

typedef struct two_plans {
    moxie_comm *comm;
    int first; /* which of its two plans this rank runs */
    test_rank_result result;
    moxie_status combine; /* without an output */
    pthread_t thread;
} two_plans;

/* A modular call computes all tokens that it is given, also those of other ranks. */
static moxie_status combine_without_output(moxie_plan *plan, moxie_run_args args)
{
    static const int32_t ids[] = { -1, -1 };
    static const float weights[] = { 0, 0 };
    args.tokens = 1;
    args.ids = ids;
    args.weights = weights;
    args.output = NULL;
    return moxie_plan_combine(plan, &args, args.workspace, NULL);
}

static void *run_one_of_two(void *user)
{
    two_plans *t = user;
    const int32_t rank = moxie_comm_rank(t->comm);
    moxie_layer_config config = layer.config;
    moxie_options options = MOXIE_OPTIONS_INIT;
    moxie_layer *made = NULL;
    moxie_plan *plans[2] = { NULL, NULL };
    moxie_run_args args = test_ranks_args(&layer, 4 * rank, 4);
    moxie_error *error = &t->result.error;
    config.ep_size = RANKS;
    config.ep_rank = rank;
    options.comm = t->comm;
    options.max_tokens = 4;
    options.token_layout = MOXIE_TOKENS_SCATTERED;
    assert_ok(moxie_layer_create(&config, &options, &made, error), error);
    assert_ok(moxie_layer_prepare(made, &layer.weights, &options, error), error);
    for (int i = 0; i < 2; i++)
        assert_ok(moxie_plan_create(made, &options, &plans[i], error), error);
    args.workspace_bytes = moxie_plan_workspace_bytes(plans[0]);
    args.workspace = aligned_alloc(64, args.workspace_bytes);
    t->result.status = moxie_plan_run(plans[t->first], &args, error);
    t->combine = combine_without_output(plans[0], args);
    free(args.workspace);
    for (int i = 0; i < 2; i++)
        moxie_plan_destroy(plans[i]);
    moxie_layer_destroy(made);
    moxie_comm_destroy(t->comm);
    return NULL;
}

/* Two layers of a model have the same sizes: only the plan's number shows that a rank runs another one. */
static void a_rank_runs_another_plan(void **state)
{
    (void)state;
    moxie_comm *comms[RANKS];
    two_plans ranks[RANKS];
    test_rank_result results[RANKS];
    moxie_error error;
    begin(10);
    char *output = calloc(test_layer_output_bytes(&layer), 1);
    layer.args.output = output;
    assert_ok(moxie_comm_local_create(RANKS, NULL, comms, &error), &error);
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = (two_plans) { .comm = comms[r], .first = r == 1 };
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, run_one_of_two, &ranks[r]), 0);
    }
    for (int r = 0; r < RANKS; r++) {
        pthread_join(ranks[r].thread, NULL);
        results[r] = ranks[r].result;
        assert_int_equal(ranks[r].combine, MOXIE_ERR_ARGUMENT);
    }
    assert_all(results, MOXIE_ERR_MISMATCH, "the number of the plan");
    free(output);
    test_layer_free(&layer);
}

/* ---- slot maps ----------------------------------------------------------------------------------------- */

static void check_map(const moxie_slot_map *map, const char *text)
{
    moxie_error error = { 0 };
    moxie_layer_config config = layer.config;
    config.ep_size = 2;
    config.slot_map = map;
    const moxie_status status = moxie_layer_config_check(&config, &error);
    if (text == NULL)
        assert_ok(status, &error);
    else if (status == MOXIE_OK || strstr(error.text, text) == NULL)
        fail_msg("the map gives %s: %s; it should say \"%s\"", moxie_status_name(status), error.text, text);
}

static void slot_maps_are_checked(void **state)
{
    (void)state;
    int32_t expert_of[] = { 0, 1, 2, -1, 3, 4, 0 }, first[] = { 0, 4, 7 };
    moxie_slot_map map = MOXIE_SLOT_MAP_INIT;
    begin(6);
    map.ranks = 2;
    map.experts = EXPERTS;
    map.slots = 7;
    map.expert_of = expert_of;
    map.first_slot = first;
    check_map(&map, NULL);
    map.ranks = 3;
    check_map(&map, "slot_map is for 3 rank(s), but ep_size is 2");
    map.ranks = 2;
    map.experts = 4;
    check_map(&map, "slot_map is for 4 experts");
    map.experts = EXPERTS;
    expert_of[6] = 4;
    check_map(&map, NULL); /* twice on rank 1: the lower slot counts */
    expert_of[6] = 5;
    check_map(&map, "expert_of[6] is 5");
    expert_of[6] = 0;
    expert_of[2] = -1;
    check_map(&map, "no slot for expert 2");
    expert_of[2] = 2;
    first[1] = 8;
    check_map(&map, "first_slot[1] is 8");
    first[1] = 4;
    first[2] = 6;
    check_map(&map, "first_slot goes from 0 to 6");
    first[2] = 7;
    map.expert_of = NULL;
    check_map(&map, "lacks an array");
    test_layer_free(&layer);
}

/* ---- costs --------------------------------------------------------------------------------------------- */

static void runs_allocate_nothing(void **state)
{
    (void)state;
    for (int layout = MOXIE_TOKENS_SHARDED; layout <= MOXIE_TOKENS_SCATTERED; layout++)
        for (uint64_t seed = 0; seed < 12; seed++) { /* some with codes, a capacity, results of 16 bits */
            test_rank_result results[TEST_MAX_RANKS];
            test_ranks_spec spec = spec_of((moxie_token_layout)layout);
            begin(30 + seed);
            spec.ranks = 2;
            spec.first[2] = 13;
            spec.runs = 3;
            spec.chunk = seed % 2 == 0 ? 0 : 3;
            spec.options.exchange_capacity = seed % 3 == 0 ? 13 : 0;
            layer.config.round_results = seed % 3 == 1 && layer.config.dtype != MOXIE_F32;
            spec.allocations = 1;
            run(&spec, results);
            for (int r = 0; r < 2; r++)
                assert_ok(results[r].status, &results[r].error);
            assert_int_equal(spec.allocations, 0);
            test_layer_free(&layer);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_that_differ),        cmocka_unit_test(a_rank_without_comm),
        cmocka_unit_test(adapters_that_differ),     cmocka_unit_test(scales_of_other_ranks),
        cmocka_unit_test(runs_that_differ),         cmocka_unit_test(slot_maps_are_checked),
        cmocka_unit_test(runs_allocate_nothing),    cmocka_unit_test(a_rank_without_tokens),
        cmocka_unit_test(a_rank_runs_another_plan), cmocka_unit_test(options_that_cannot_be_read),
        cmocka_unit_test(scales_that_change_later)
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
