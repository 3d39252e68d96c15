/* SPDX-License-Identifier: Apache-2.0
 *
 * test_exchange_forms.c - the forms of an exchange give the bytes of one rank: rows of codes in place of hidden states,
 * a fixed capacity in place of counts, results of 16 bits in place of f32.
 *
 *     every quantizer of activations, sharded tokens; T = 0, 1, 7, 64, 300 with each form and layout of tokens;
 *     chunks as small as options.exchange_chunk asks
 */
#include "test_ranks.h"

#include <pthread.h>

#include "layer/plan/plan_ranks.h"

enum { EXPERTS = 5 };

static const moxie_token_layout layouts[] = { MOXIE_TOKENS_SHARDED, MOXIE_TOKENS_REPLICATED, MOXIE_TOKENS_SCATTERED };

static void fail_ranks(const test_layer *layer, const test_ranks_spec *spec, const test_rank_result *results,
                       const char *what)
{
    for (int32_t r = 0; r < spec->ranks; r++)
        if (results[r].status != MOXIE_OK)
            print_error("  rank %d: %s: %s\n", (int)r, moxie_status_name(results[r].status), results[r].error.text);
    fail_msg("%s, %d ranks, tp %d, layout %d, capacity %lld: %s", layer->text, (int)spec->ranks, (int)spec->tp,
             (int)spec->layout, (long long)spec->options.exchange_capacity, what);
}

/* The ranks' bytes equal those of one. */
static void assert_same(test_layer *layer, test_ranks_spec *spec)
{
    test_rank_result results[TEST_MAX_RANKS];
    moxie_options options = spec->options;
    options.max_tokens = layer->args.tokens + 1;
    options.exchange_capacity = 0;
    test_layer_plan(layer, &options);
    const size_t bytes = test_layer_output_bytes(layer);
    char *one = test_layer_output(layer, layer->plan), *all = malloc(bytes + 1);
    memset(all, 0x5a, bytes + 1);
    if (test_ranks_run(layer, spec, all, results) != MOXIE_OK)
        fail_ranks(layer, spec, results, "a rank failed");
    if (memcmp(one, all, bytes) != 0)
        fail_ranks(layer, spec, results, "bytes differ from one rank's");
    assert_int_equal(all[bytes], 0x5a);
    free(one);
    free(all);
}

static test_ranks_spec spec_of(test_layer *layer, test_rng *rng, moxie_token_layout layout, moxie_slot_map *map)
{
    test_ranks_spec spec = { .ranks = 4, .layout = layout, .options = MOXIE_OPTIONS_INIT };
    if (test_below(rng, 3) == 0)
        spec.tp = 2;
    *map = test_ranks_map(layer, rng, spec.tp > 1 ? 2 : 4);
    if (test_below(rng, 2) == 0)
        spec.map = map;
    test_ranks_cut(&spec, rng, layer->args.tokens);
    return spec;
}

static void every_quantizer(void **state)
{
    (void)state;
    test_rng rng = { test_seed(4400) };
    for (int i = 0; i < test_act_quant_count; i++) {
        const test_layer_limits limits = { .tokens = 9,
                                           .experts = EXPERTS,
                                           .no_parallel = true,
                                           .plain_routing = true,
                                           .weight = test_weight_quant_named(i % 2 ? "fp8 per channel" : "int8 g32"),
                                           .act = &test_act_quants[i] };
        test_layer layer;
        moxie_slot_map map;
        test_layer_make(&layer, &rng, &limits);
        for (int uniform = 0; uniform < 2; uniform++) {
            test_ranks_spec spec = spec_of(&layer, &rng, MOXIE_TOKENS_SHARDED, &map);
            for (int e = 0; e < EXPERTS && uniform; e++)
                layer.experts[e].a13_scale = layer.experts[0].a13_scale;
            spec.chunk = uniform ? 0 : 2;
            assert_same(&layer, &spec);
        }
        test_layer_free(&layer);
    }
}

static void sizes_and_forms(void **state)
{
    static const int64_t sizes[] = { 0, 1, 7, 64, 300 };
    (void)state;
    test_rng rng = { test_seed(4500) };
    for (int s = 0; s < 5; s++)
        for (int n = 0; n < 12; n++) {
            const test_layer_limits limits = { .tokens = sizes[s],
                                               .experts = EXPERTS,
                                               .largest = 64,
                                               .no_parallel = true,
                                               .plain_routing = true,
                                               .act = test_act_quant_named(n % 2 ? "fp8 token" : "none"),
                                               .weight = test_weight_quant_named("fp8 per channel"),
                                               .rounds = true };
            test_layer layer;
            moxie_slot_map map;
            test_layer_make(&layer, &rng, &limits);
            test_ranks_spec spec = spec_of(&layer, &rng, layouts[n % 3], &map);
            if (n / 3 % 2 == 0)
                spec.options.exchange_capacity = test_ranks_own(&spec, sizes[s]);
            if (layer.config.dtype != MOXIE_F32)
                layer.config.round_results = n / 6;
            assert_same(&layer, &spec);
            test_layer_free(&layer);
        }
}

/* ---- a rank with too many tokens ------------------------------------------------------------------------ */

typedef struct rank_thread {
    const test_layer *layer;
    moxie_comm *comm;
    moxie_status status[2]; /* of a run with too many tokens of rank 1, and of the next */
    moxie_error error[2];
    pthread_t thread;
} rank_thread;

static void *run_twice(void *user)
{
    rank_thread *t = user;
    const int32_t rank = moxie_comm_rank(t->comm);
    moxie_layer_config config = t->layer->config;
    moxie_options options = MOXIE_OPTIONS_INIT;
    moxie_layer *made = NULL;
    moxie_plan *plan = NULL;
    moxie_error error;
    config.ep_size = 3;
    config.ep_rank = rank;
    options.comm = t->comm;
    options.max_tokens = 13;
    options.exchange_capacity = 4;
    assert_ok(moxie_layer_create(&config, &options, &made, &error), &error);
    assert_ok(moxie_layer_prepare(made, &t->layer->weights, &options, &error), &error);
    assert_ok(moxie_plan_create(made, &options, &plan, &error), &error);
    void *workspace = aligned_alloc(64, moxie_plan_workspace_bytes(plan));
    for (int i = 0; i < 2; i++) {
        moxie_run_args args = test_ranks_args(t->layer, 4 * rank, i == 0 && rank == 1 ? 5 : 4);
        args.workspace = workspace;
        args.workspace_bytes = moxie_plan_workspace_bytes(plan);
        t->status[i] = moxie_plan_run(plan, &args, &t->error[i]);
    }
    free(workspace);
    moxie_plan_destroy(plan);
    moxie_layer_destroy(made);
    moxie_comm_destroy(t->comm);
    return NULL;
}

/* A rank that refuses its run takes part in the exchange, so the next run finds the comm as it was. */
static void the_next_run_succeeds(void **state)
{
    (void)state;
    const test_layer_limits limits = { .tokens = 13, .experts = EXPERTS, .no_parallel = true, .plain_routing = true };
    for (uint64_t seed = 4700; seed < 4706; seed++) {
        test_rng rng = { seed };
        test_layer layer;
        rank_thread ranks[3];
        moxie_comm *comms[3];
        moxie_error error;
        test_layer_make(&layer, &rng, &limits);
        layer.args.output = test_layer_own(&layer, test_layer_output_bytes(&layer));
        assert_ok(moxie_comm_local_create(3, NULL, comms, &error), &error);
        for (int r = 0; r < 3; r++) {
            ranks[r] = (rank_thread) { .layer = &layer, .comm = comms[r] };
            assert_int_equal(pthread_create(&ranks[r].thread, NULL, run_twice, &ranks[r]), 0);
        }
        for (int r = 0; r < 3; r++)
            pthread_join(ranks[r].thread, NULL);
        for (int r = 0; r < 3; r++) {
            assert_int_equal(ranks[r].status[0], r == 1 ? MOXIE_ERR_ARGUMENT : MOXIE_ERR_MISMATCH);
            assert_non_null(strstr(ranks[r].error[0].text, r == 1 ? "has 5 tokens, but the exchange has room for 4 of"
                                                                  : "rank 1 refused its run"));
            assert_ok(ranks[r].status[1], &ranks[r].error[1]);
        }
        test_layer_free(&layer);
    }
}

static void too_many_tokens(void **state)
{
    (void)state;
    const test_layer_limits limits = {
        .tokens = 13, .experts = EXPERTS, .top_k = 2, .no_parallel = true, .plain_routing = true
    };
    test_rng rng = { test_seed(4600) };
    test_layer layer;
    test_layer_make(&layer, &rng, &limits);
    char *output = calloc(test_layer_output_bytes(&layer) + 1, 1);
    for (int i = 0; i < 3; i++) {
        test_rank_result results[TEST_MAX_RANKS];
        test_ranks_spec spec = { .ranks = 3, .layout = layouts[i], .first = { 0, 4, 9, 13 } };
        spec.options = (moxie_options)MOXIE_OPTIONS_INIT;
        spec.options.exchange_capacity = 4;
        spec.deadline_ms = 20000;
        test_ranks_run(&layer, &spec, output, results);
        const int32_t full = i == 0 ? 1 : 2; /* of 13 tokens that all have, ranks own 4, 4 and 5 */
        for (int32_t r = 0; r < 3; r++) {
            assert_int_equal(results[r].status, r == full ? MOXIE_ERR_ARGUMENT : MOXIE_ERR_MISMATCH);
            assert_non_null(strstr(results[r].error.text, r == full   ? "has 5 tokens, but the exchange has room for 4"
                                                          : full == 1 ? "rank 1 refused its run"
                                                                      : "rank 2 refused its run"));
        }
    }
    free(output);
    test_layer_free(&layer);
}

/* ---- chunks --------------------------------------------------------------------------------------------- */

/* What the plan of rank 0 of 3 says about its chunks. Returns its workspace. */
static uint64_t explain_chunks(const test_layer *layer, const moxie_options *options, char *text, size_t size)
{
    moxie_layer_config config = layer->config;
    moxie_options o = *options;
    moxie_comm *comms[3];
    moxie_plan *plan = NULL;
    const moxie_plan_step *step;
    moxie_error error;
    config.ep_size = 3;
    assert_ok(moxie_comm_local_create(3, NULL, comms, &error), &error);
    o.comm = comms[0];
    assert_ok(moxie_plan_explain(&config, &o, &plan, &error), &error);
    text[0] = '\0';
    for (int32_t i = 0; (step = moxie_plan_step_at(plan, i)) != NULL; i++)
        if (strcmp(step->role, "chunks") == 0)
            snprintf(text, size, "%s", step->reason);
    const uint64_t bytes = moxie_plan_workspace_bytes(plan);
    moxie_plan_destroy(plan);
    for (int r = 0; r < 3; r++)
        moxie_comm_destroy(comms[r]);
    return bytes;
}

static const struct asked_chunk {
    int64_t asked, tokens;
    const char *says;
} asked_chunks[] = {
    { 0, 300, "1 of at most 300 tokens of each rank; buffers of " },
    { 1000, 300, "1 of at most 300 tokens of each rank, as options.exchange_chunk asks; buffers of " },
    { 299, 300, "2 of at most 150 tokens of each rank, as options.exchange_chunk asks; buffers of " },
    { 7, 300, "43 of at most 7 tokens of each rank, as options.exchange_chunk asks; buffers of " },
};

static void any_chunk_gives_the_same_bytes(void **state)
{
    static const int64_t chunks[] = { 1, 4, 7, 20, 21, 60, 1000 };
    (void)state;
    test_rng rng = { test_seed(4900) };
    for (int i = 0; i < 21; i++) {
        const test_layer_limits limits = {
            .tokens = 61, .experts = EXPERTS, .largest = 64, .no_parallel = true, .plain_routing = true
        };
        test_layer layer;
        test_layer_make(&layer, &rng, &limits);
        test_ranks_spec spec = { .ranks = 3, .layout = layouts[i % 3], .options = MOXIE_OPTIONS_INIT };
        test_ranks_cut(&spec, &rng, layer.args.tokens);
        spec.options.exchange_chunk = chunks[i / 3];
        assert_same(&layer, &spec);
        test_layer_free(&layer);
    }
}

/* As few as may be, all alike; smaller ones need a smaller workspace. */
static void chunks_as_asked(void **state)
{
    (void)state;
    test_rng rng = { test_seed(4950) };
    const test_layer_limits limits = {
        .experts = EXPERTS, .no_parallel = true, .plain_routing = true, .act = test_act_quant_named("none")
    };
    uint64_t before = UINT64_MAX;
    test_layer layer;
    test_layer_make(&layer, &rng, &limits);
    for (size_t i = 0; i < sizeof asked_chunks / sizeof *asked_chunks; i++) {
        moxie_options options = MOXIE_OPTIONS_INIT;
        char text[320];
        options.max_tokens = asked_chunks[i].tokens;
        options.exchange_chunk = asked_chunks[i].asked;
        const uint64_t bytes = explain_chunks(&layer, &options, text, sizeof text);
        if (strncmp(text, asked_chunks[i].says, strlen(asked_chunks[i].says)) != 0)
            fail_msg("asked for %lld: %s", (long long)asked_chunks[i].asked, text);
        assert_true(bytes <= before);
        before = bytes;
    }
    test_layer_free(&layer);
}

/* Unasked, chunks on the host are as large as their buffers: a run of so many tokens is not cut. */
static void chunks_on_the_host(void **state)
{
    (void)state;
    test_rng rng = { test_seed(4960) };
    const test_layer_limits limits = {
        .experts = EXPERTS, .no_parallel = true, .plain_routing = true, .act = test_act_quant_named("none")
    };
    moxie_options options = MOXIE_OPTIONS_INIT;
    test_layer layer;
    char text[320];
    test_layer_make(&layer, &rng, &limits);
    options.max_tokens = 300;
    mox_plan_ranks_test_chunk = 200;
    explain_chunks(&layer, &options, text, sizeof text);
    mox_plan_ranks_test_chunk = 0;
    if (strncmp(text, "2 of at most 200 tokens", 23) != 0)
        fail_msg("%s", text);
    test_layer_free(&layer);
}

/* ---- bytes ---------------------------------------------------------------------------------------------- */

static void assert_bytes(const moxie_layer_config *c, uint64_t dispatch, uint64_t result)
{
    moxie_error error;
    uint64_t got[2] = { 0, 0 };
    assert_ok(moxie_exchange_row_bytes(c, &got[0], &got[1], &error), &error);
    assert_int_equal(got[0], dispatch);
    assert_int_equal(got[1], result);
}

static void bytes_of_rows(void **state)
{
    (void)state;
    static const struct {
        const char *act;
        uint64_t x; /* bytes of 256 columns */
    } rows[] = { { "none", 512 },      { "fp8 tensor", 512 }, { "fp8 tensor static", 260 },
                 { "fp8 token", 260 }, { "fp8 1x128", 264 },  { "int8 1x64", 272 },
                 { "mxfp8", 264 },     { "mxfp6 e3m2", 200 }, { "nvfp4 multiply", 144 },
                 { "mxfp4", 136 } };
    moxie_layer_config c = test_config();
    c.dtype = MOXIE_BF16;
    c.hidden = 256;
    c.top_k = 2;
    c.w13 = test_weight_quant_named("fp8 per channel")->quant;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        c.a13 = test_act_quant_named(rows[i].act)->quant;
        c.routing.on_input = 0;
        c.round_results = 0;
        assert_bytes(&c, rows[i].x + 8, 1024);
        c.round_results = 1;
        assert_bytes(&c, rows[i].x + 8, 512);
        c.routing.on_input = 1; /* codes depend on the choice */
        assert_bytes(&c, 512 + 16, 512);
    }
    c.dtype = MOXIE_F32;
    assert_int_equal(moxie_layer_config_check(&c, NULL), MOXIE_ERR_ARGUMENT);
}

static uint64_t dispatched_with(const moxie_layer_config *c, const moxie_options *options)
{
    moxie_error error;
    uint64_t dispatch = 1, result = 0;
    assert_ok(moxie_exchange_row_bytes_with(c, options, &dispatch, &result, &error), &error);
    assert_int_equal(result, 1024);
    return dispatch;
}

static void bytes_of_rows_by_options(void **state)
{
    (void)state;
    moxie_layer_config c = test_config();
    moxie_options options = MOXIE_OPTIONS_INIT;
    uint64_t bytes[2] = { 3, 4 };
    c.dtype = MOXIE_BF16;
    c.hidden = 256;
    c.top_k = 2;
    c.w13 = test_weight_quant_named("fp8 per channel")->quant;
    c.a13 = test_act_quant_named("fp8 token")->quant;
    assert_int_equal(dispatched_with(&c, NULL), 260 + 8);
    assert_int_equal(dispatched_with(&c, &options), 260 + 8);
    options.max_adapter_rank = 8; /* hidden states and the adapter's number */
    assert_int_equal(dispatched_with(&c, &options), 512 + 8 + 4);
    options.max_adapter_rank = 0;
    for (int32_t b = MOXIE_BACKEND_REF; b <= MOXIE_BACKEND_CUDA; b++) {
        options.backend = b;
        assert_int_equal(dispatched_with(&c, &options), b == MOXIE_BACKEND_CPU ? 260 + 8 : 512 + 8);
    }
    options.token_layout = MOXIE_TOKENS_REPLICATED;
    assert_int_equal(dispatched_with(&c, &options), 0);
    options.token_layout = MOXIE_TOKENS_SCATTERED + 1;
    assert_int_equal(moxie_exchange_row_bytes_with(&c, &options, &bytes[0], &bytes[1], NULL), MOXIE_ERR_ARGUMENT);
    assert_true(bytes[0] == 3 && bytes[1] == 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_quantizer),
                                        cmocka_unit_test(sizes_and_forms),
                                        cmocka_unit_test(too_many_tokens),
                                        cmocka_unit_test(the_next_run_succeeds),
                                        cmocka_unit_test(bytes_of_rows),
                                        cmocka_unit_test(bytes_of_rows_by_options),
                                        cmocka_unit_test(any_chunk_gives_the_same_bytes),
                                        cmocka_unit_test(chunks_as_asked),
                                        cmocka_unit_test(chunks_on_the_host) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
