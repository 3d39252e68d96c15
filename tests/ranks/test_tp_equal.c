/* SPDX-License-Identifier: Apache-2.0
 *
 * test_tp_equal.c - tensor parallel ranks give the bytes of one rank: every format of weights, every rule of
 * activations, sizes that no number of ranks divides, ranks without rows.
 *
 *     one layer, one plan -> bytes        tp layers with a part of the rows each, one thread a rank -> the same bytes
 *
 * In fast mode ranks may have columns of W2. Then each has a smaller expert, which is checked as any layer is, and the
 * results are the sums of theirs in rank order, bit by bit.
 */
#include <moxie/moxie_comm.h>
#include <moxie/moxie_parallel.h>
#include <pthread.h>

#include "test_ranks.h"

#include <math.h>

#include "base/cpu_features.h"
#include "base/sizes.h"
#include "layer/config/tp_slice.h"
#include "layer/plan/plan.h"

#define MAX_RANKS 8

/* One rank: what it runs on, and what came out. */
typedef struct rank {
    const test_layer *layer;
    const moxie_options *options;
    moxie_layer_config config;
    moxie_comm *comm;
    moxie_layer *built;
    moxie_plan *plan;
    void *output;
    float *rows;     /* of `parts`: what moxie_plan_experts gave, [T,K,H] */
    int64_t replace; /* an expert that gets the views of `with` after preparation; -1: none */
    int64_t with;
    bool parts; /* runs by the modular calls */
    moxie_status status;
    moxie_error error;
} rank;

static moxie_status build_rank(rank *r)
{
    moxie_options options = *r->options;
    options.comm = r->comm;
    options.max_tokens = mox_max_i64(r->layer->args.tokens, 1);
    moxie_status status = test_ranks_layer(&r->config, &r->layer->weights, &options, &r->built, &r->error);
    if (status == MOXIE_OK && r->replace >= 0)
        status = moxie_layer_update_expert(r->built, r->replace, &r->layer->experts[r->with], &r->error);
    if (status == MOXIE_OK)
        status = moxie_layer_verify(r->built, &r->error);
    if (status == MOXIE_OK)
        status = moxie_plan_create(r->built, &options, &r->plan, &r->error);
    return status;
}

/* The modular calls. Every rank of a group passes all tokens to moxie_plan_experts, which is collective. */
static moxie_status run_parts(rank *r, moxie_run_args *args)
{
    const moxie_layer_config *c = &r->config;
    const size_t choices = (size_t)(args->tokens * c->top_k);
    int32_t *ids = calloc(choices + 1, sizeof *ids);
    float *weights = calloc(choices + 1, sizeof *weights);
    float *rows = r->rows = calloc(choices * (size_t)c->hidden + 1, sizeof *rows);
    moxie_status status = MOXIE_OK;
    if (args->ids == NULL) {
        args->ids_out = ids;
        args->weights_out = weights;
        status = moxie_plan_route(r->plan, args, &r->error);
        args->ids = ids;
        args->weights = weights;
        args->ids_out = NULL;
        args->weights_out = NULL;
        args->logits = NULL;
    }
    if (status == MOXIE_OK)
        status = moxie_plan_experts(r->plan, args, rows, &r->error);
    if (status == MOXIE_OK)
        status = moxie_plan_combine(r->plan, args, rows, &r->error);
    free(weights);
    free(ids);
    return status;
}

static void *run_rank(void *argument)
{
    rank *r = argument;
    r->status = build_rank(r);
    if (r->status != MOXIE_OK)
        return NULL;
    const size_t bytes = test_layer_output_bytes(r->layer);
    moxie_run_args args = r->layer->args;
    args.output = r->output = malloc(bytes + 1);
    test_ranks_workspace(r->plan, &args);
    memset(args.output, 0xee, bytes);
    r->status = r->parts ? run_parts(r, &args) : moxie_plan_run(r->plan, &args, &r->error);
    free(args.workspace);
    return NULL;
}

static void free_rank(rank *r)
{
    moxie_plan_destroy(r->plan);
    moxie_layer_destroy(r->built);
    free(r->output);
    free(r->rows);
}

static void one_rank(const test_layer *layer, const moxie_options *options, int64_t replace, int64_t with, bool parts,
                     rank *out)
{
    *out = (rank) {
        .layer = layer, .options = options, .config = layer->config, .parts = parts, .replace = replace, .with = with
    };
    run_rank(out);
    assert_ok(out->status, &out->error);
}

/* Runs the layer on `size` ranks, as `like` was run. */
static void run_group(const test_layer *layer, const moxie_options *options, int32_t size, const rank *like,
                      rank *ranks)
{
    moxie_comm *comms[MAX_RANKS];
    pthread_t threads[MAX_RANKS];
    moxie_error error;
    moxie_options replicated = *options;
    replicated.token_layout = MOXIE_TOKENS_REPLICATED;
    assert_ok(moxie_comm_local_create(size, NULL, comms, &error), &error);
    for (int32_t r = 0; r < size; r++) {
        ranks[r] = (rank) { .layer = layer,
                            .options = &replicated,
                            .config = layer->config,
                            .comm = comms[r],
                            .parts = like->parts,
                            .replace = like->replace,
                            .with = like->with };
        ranks[r].config.tp_size = size;
        ranks[r].config.tp_rank = r;
        assert_int_equal(pthread_create(&threads[r], NULL, run_rank, &ranks[r]), 0);
    }
    for (int32_t r = 0; r < size; r++)
        pthread_join(threads[r], NULL);
    for (int32_t r = 0; r < size; r++) {
        assert_ok(ranks[r].status, &ranks[r].error);
        moxie_comm_destroy(comms[r]);
    }
}

static int64_t fused_ranks, staged_ranks; /* that ran fused experts, or stage by stage */
static int64_t cut_shared[2];             /* ranks with a part of the shared expert, by whether it ran fused */
static int64_t whole_shared;              /* ranks of layers whose activations have one scale for the batch */

/* A shared expert is cut unless one scale covers the batch; then its record is no larger than the whole one. */
static void count_shared(const test_layer *layer, const moxie_plan *plan)
{
    const moxie_quant *acts[] = { &layer->config.shared.a13, &layer->config.shared.a2 };
    const mox_record_shape whole = mox_config_shared_shape(&layer->config);
    const mox_layout *layout = plan->layer->layouts[MOX_SHARED_EXPERT];
    const bool one_scale = mox_act_quant_needs_amax(acts[0]) || mox_act_quant_needs_amax(acts[1]);
    uint64_t bytes = 0;
    assert_int_equal(plan->shared_cut, one_scale ? MOX_TP_WHOLE : MOX_TP_ROWS);
    assert_true(layout->record_bytes(&whole, &bytes) && plan->layer->shared_bytes <= bytes);
    if (one_scale)
        whole_shared++;
    else
        cut_shared[plan->experts[MOX_SHARED_EXPERT].fused]++;
}

/* Runs the layer on `size` ranks and compares the bytes of each with `want`. */
static void compare(const test_layer *layer, const moxie_options *options, int32_t size, const rank *want)
{
    rank ranks[MAX_RANKS];
    run_group(layer, options, size, want, ranks);
    for (int32_t r = 0; r < size; r++) {
        if (memcmp(ranks[r].output, want->output, test_layer_output_bytes(layer)) != 0)
            fail_msg("rank %d of %d differs from one rank: %s", (int)r, (int)size, layer->text);
        *(ranks[r].plan->experts[MOX_ROUTED].fused ? &fused_ranks : &staged_ranks) += 1;
        if (layer->config.shared.intermediate > 0)
            count_shared(layer, ranks[r].plan);
        free_rank(&ranks[r]);
    }
}

static const int32_t sizes[] = { 2, 3, 4, 7, 8 };
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static const test_layer_limits any_limits = { .tokens = -1, .no_parallel = true, .plain_routing = true };

/* Calibrated scales. Of two experts the one with them replaces the other: some expert of a layer must have them. */
static bool has_given(const moxie_expert *expert)
{
    return expert->a13_scale != 0 || expert->a2_scale != 0;
}

/* A random layer on `size` ranks. */
static void try_layer(uint64_t seed, const test_layer_limits *limits, int32_t size)
{
    static const moxie_options defaults = MOXIE_OPTIONS_INIT;
    test_rng rng = { seed };
    test_layer layer;
    rank want;
    test_layer_make(&layer, &rng, limits);
    const int64_t experts = layer.config.experts, replace = seed % 3 == 0 ? (int64_t)(seed % (uint64_t)experts) : -1;
    const int64_t next = (replace + 1) % experts;
    const bool loses = replace >= 0 && !has_given(&layer.experts[next]) && has_given(&layer.experts[replace]);
    one_rank(&layer, &defaults, loses ? next : replace, loses ? replace : next, seed % 4 == 1, &want);
    compare(&layer, &defaults, size, &want);
    free_rank(&want);
    test_layer_free(&layer);
}

static void test_random(void **state)
{
    (void)state;
    const uint64_t configs =
        (uint64_t)test_env("MOXIE_TEST_CONFIGS", 300 / (test_quick() ? 4 : test_one_in(10, "layers")));
    for (uint64_t seed = 0; seed < configs; seed++) {
        test_layer_limits limits = any_limits;
        limits.features = seed % 2 == 1;
        limits.rounds = true;
        try_layer(test_seed(26048000) + seed, &limits, sizes[seed % SIZES]);
    }
}

/* Every format of weights, with activations as they come. */
static void test_formats(void **state)
{
    (void)state;
    for (int i = 0; i < 3 * test_weight_quant_count; i++) {
        test_layer_limits limits = any_limits;
        limits.weight = &test_weight_quants[i % test_weight_quant_count];
        limits.tokens = 1 + i % 9;
        limits.experts = 3;
        limits.top_k = 2;
        try_layer(test_seed(26049000) + (uint64_t)i, &limits, sizes[i % SIZES]);
    }
}

/* Weights in blocks of GGUF files, whose rows are whole blocks. */
static void test_blocks(void **state)
{
    (void)state;
    for (int i = 0; i < test_block_quant_count; i++) {
        test_layer_limits limits = any_limits;
        limits.weight = &test_block_quants[i];
        limits.largest = 600;
        limits.tokens = 1 + i % 9;
        limits.experts = 3;
        limits.top_k = 2;
        try_layer(test_seed(26054000) + (uint64_t)i, &limits, sizes[i % SIZES]);
    }
}

/* Every rule of activations: act is gathered before it is quantized, also where one scale covers the batch. */
static void test_acts(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * test_act_quant_count; i++) {
        test_layer_limits limits = any_limits;
        limits.act = &test_act_quants[i % test_act_quant_count];
        limits.tokens = 5;
        limits.experts = 3;
        try_layer(test_seed(26050000) + (uint64_t)i, &limits, sizes[i % SIZES]);
    }
}

/* More tokens than a pass has, matrices of several units. */
static void test_large(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 10; seed++) {
        test_layer_limits limits = any_limits;
        limits.tokens = 300;
        limits.largest = 700;
        limits.experts = 2;
        limits.top_k = 1;
        try_layer(test_seed(26051000) + seed, &limits, sizes[seed % SIZES]);
    }
    const bool scalar = mox_cpu()->allowed == MOX_ISA_SCALAR;
    assert_true(staged_ranks > 0 && (fused_ranks > 0 || scalar));
    if (test_env("MOXIE_TEST_CONFIGS", 0) == 0)
        assert_true(cut_shared[0] > 0 && (cut_shared[1] > 0 || scalar) && whole_shared > 0);
}

/* ---- sums over ranks ------------------------------------------------------------------------------ */

/* The layer of rank r alone: its rows of W13 and columns of W2 are a smaller expert. */
static void smaller_layer(const test_layer *whole, int32_t size, int32_t r, moxie_expert *experts, test_layer *out)
{
    moxie_error error;
    moxie_layer_config cut = whole->config;
    cut.tp_size = size;
    cut.tp_rank = r;
    *out = *whole;
    out->built = NULL;
    out->plan = NULL;
    out->config.intermediate = mox_tp_sums_part(&cut, r).count;
    out->config.bias2 = whole->config.bias2 && r == 0;
    for (int64_t e = 0; e < cut.experts; e++)
        assert_ok(mox_tp_slice_expert(&cut, MOX_ROUTED, MOX_TP_SUMS, &whole->experts[e], &experts[e], &error), &error);
    out->experts = experts;
    out->weights.experts = experts;
}

/* sums [T,K,H]: of the rows of all ranks' smaller layers, each checked by the oracle. Each addition rounds once: the
 * bound that the plan states. */
static void sum_smaller(const test_layer *whole, const moxie_options *options, int32_t size, float *sums)
{
    const size_t n = (size_t)(whole->args.tokens * whole->config.top_k * whole->config.hidden);
    moxie_expert *experts = calloc((size_t)whole->config.experts, sizeof *experts);
    double *exact = calloc(2 * n + 1, sizeof *exact), *magnitudes = exact + n;
    for (int32_t r = 0; r < size; r++) {
        test_layer small;
        rank alone;
        test_report report;
        moxie_error error;
        smaller_layer(whole, size, r, experts, &small);
        moxie_options checked = *options;
        checked.max_tokens = whole->args.tokens;
        assert_ok(test_layer_check(&small, &checked, &report, &error), &error);
        assert_true(report.worst_ratio <= 1);
        test_layer_discard(&small);
        one_rank(&small, options, -1, 0, true, &alone);
        for (size_t i = 0; i < n; i++) {
            sums[i] = r == 0 ? alone.rows[i] : sums[i] + alone.rows[i];
            exact[i] += (double)alone.rows[i];
            magnitudes[i] += fabs((double)alone.rows[i]);
        }
        free_rank(&alone);
    }
    for (size_t i = 0; i < n; i++) /* random codes may overflow */
        assert_true(magnitudes[i] > 0x1p127 || !isfinite(magnitudes[i]) ||
                    fabs((double)sums[i] - exact[i]) <= (size - 1) * 0x1p-24 * magnitudes[i] * (1 + 0x1p-20));
    free(exact);
    free(experts);
}

static const moxie_plan_step *cut_step(const moxie_plan *plan)
{
    const moxie_plan_step *step = NULL;
    for (int32_t i = 0; (step = moxie_plan_step_at(plan, i)) != NULL; i++)
        if (strcmp(step->family, "tensor_parallel") == 0)
            return step;
    fail_msg("the plan does not say how W2 is cut");
    return NULL;
}

/* The bits are those of the sums. A rank's own rounding is checked above; the additions round size - 1 times. */
static void try_sums(const test_layer *layer, const moxie_options *options, int32_t size)
{
    const size_t n = (size_t)(layer->args.tokens * layer->config.top_k * layer->config.hidden);
    float *sums = calloc(n + 1, sizeof *sums);
    rank like = { .parts = true, .replace = -1 }, ranks[MAX_RANKS];
    sum_smaller(layer, options, size, sums);
    run_group(layer, options, size, &like, ranks);
    for (int32_t r = 0; r < size; r++) {
        if (memcmp(ranks[r].rows, sums, n * sizeof *sums) != 0)
            fail_msg("rank %d of %d: results are not the sums of all ranks': %s", (int)r, (int)size, layer->text);
        assert_string_equal(cut_step(ranks[r].plan)->exactness, "TOL");
    }
    /* moxie_plan_run: the same sums, by columns. A shared expert is added there, but not by moxie_plan_combine. */
    rank runs[MAX_RANKS];
    like.parts = false;
    run_group(layer, options, size, &like, runs);
    for (int32_t r = 0; r < size; r++) {
        if (layer->config.shared.intermediate == 0 &&
            memcmp(runs[r].output, ranks[r].output, test_layer_output_bytes(layer)) != 0)
            fail_msg("rank %d of %d: moxie_plan_run gives other bytes: %s", (int)r, (int)size, layer->text);
        free_rank(&runs[r]);
    }
    for (int32_t r = 0; r < size; r++)
        free_rank(&ranks[r]);
    free(sums);
}

static void test_sums(void **state)
{
    (void)state;
    static const int32_t some[] = { 2, 3, 4 };
    const int64_t wanted = test_quick() ? 8 : 40;
    int64_t found = 0, biased = 0;
    moxie_options options = MOXIE_OPTIONS_INIT;
    options.mode = MOXIE_MODE_FAST;
    for (uint64_t seed = 0; found < wanted && seed < 400; seed++) {
        test_layer_limits limits = any_limits;
        limits.wide = true;
        limits.tokens = 1 + (int64_t)(seed % 11);
        test_rng rng = { test_seed(26053000) + seed };
        test_layer layer;
        const int32_t size = some[seed % 3];
        test_layer_make(&layer, &rng, &limits);
        moxie_layer_config cut = layer.config;
        cut.tp_size = size;
        if (mox_tp_cut_of(&cut, MOXIE_MODE_FAST, NULL) == MOX_TP_SUMS) {
            try_sums(&layer, &options, size);
            biased += layer.config.bias2 != 0;
            found++;
        }
        test_layer_free(&layer);
    }
    assert_int_equal(found, wanted);
    assert_true(biased > 0);
}

/* The same of GGUF blocks: columns of W2 are whole blocks. */
static void test_sums_of_blocks(void **state)
{
    (void)state;
    int64_t found = 0;
    moxie_options options = MOXIE_OPTIONS_INIT;
    options.mode = MOXIE_MODE_FAST;
    for (int i = 0; i < test_block_quant_count; i++) {
        test_layer_limits limits = any_limits;
        limits.wide = true;
        limits.plain_acts = true;
        limits.weight = &test_block_quants[i];
        limits.tokens = 1 + i % 5;
        limits.experts = 2;
        test_rng rng = { test_seed(26055000) + (uint64_t)i };
        test_layer layer;
        test_layer_make(&layer, &rng, &limits);
        moxie_layer_config cut = layer.config;
        cut.tp_size = 2 + i % 2;
        if (mox_tp_cut_of(&cut, MOXIE_MODE_FAST, NULL) == MOX_TP_SUMS) {
            try_sums(&layer, &options, cut.tp_size);
            found++;
        }
        test_layer_free(&layer);
    }
    assert_true(found > 0);
}

/* When sums are chosen, and the reason why not. */
static void test_cut_of(void **state)
{
    (void)state;
    const moxie_quant plain = { .element = MOXIE_BF16 };
    moxie_layer_config c = test_config_of(64, 512, plain);
    const char *why = NULL;
    assert_int_equal(mox_tp_cut_of(&c, MOXIE_MODE_FAST, &why), MOX_TP_WHOLE);
    c.tp_size = 4;
    assert_int_equal(mox_tp_cut_of(&c, MOXIE_MODE_EXACT, &why), MOX_TP_ROWS);
    assert_string_equal(why, "");
    assert_int_equal(mox_tp_cut_of(&c, MOXIE_MODE_FAST, &why), MOX_TP_SUMS);
    c.intermediate = 96; /* three units of 32 columns */
    assert_int_equal(mox_tp_cut_of(&c, MOXIE_MODE_FAST, &why), MOX_TP_ROWS);
    assert_non_null(strstr(why, "fewer groups"));
    c.intermediate = 500;
    assert_int_equal(mox_tp_cut_of(&c, MOXIE_MODE_FAST, &why), MOX_TP_ROWS);
    assert_non_null(strstr(why, "no whole number"));
    c.intermediate = 128; /* 64 x 4 bytes of sums, 128 x 2 of activations */
    assert_int_equal(mox_tp_cut_of(&c, MOXIE_MODE_FAST, &why), MOX_TP_ROWS);
    assert_non_null(strstr(why, "more bytes"));
    c.intermediate = 512;
    c.a2 = (moxie_quant) { .element = MOXIE_F8_E4M3, .scale = MOXIE_F32, .group_cols = -1 };
    assert_int_equal(mox_tp_cut_of(&c, MOXIE_MODE_FAST, &why), MOX_TP_ROWS);
    assert_non_null(strstr(why, "scale over columns"));
    c.a2.group_cols = 128;
    assert_int_equal(mox_tp_cut_of(&c, MOXIE_MODE_FAST, &why), MOX_TP_SUMS);
    c.tp_rank = 1;
    int64_t w13[2], w2[2];
    int32_t columns = 7;
    moxie_error error;
    assert_ok(moxie_tp_slice_in_mode(&c, MOXIE_MODE_FAST, 4, 1, w13, w2, &columns, &error), &error);
    assert_true(columns == 1 && w13[0] == 128 && w13[1] == 256 && w2[0] == 128 && w2[1] == 256);
    assert_ok(moxie_tp_slice_in_mode(&c, MOXIE_MODE_EXACT, 4, 1, w13, w2, &columns, &error), &error);
    assert_true(columns == 0 && w13[0] == 128 && w2[0] == 16 && w2[1] == 32);
    assert_int_equal(moxie_tp_slice_in_mode(&c, (moxie_mode)9, 4, 1, w13, w2, &columns, &error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_tp_slice_in_mode(&c, MOXIE_MODE_FAST, 4, 1, w13, w2, NULL, &error), MOXIE_ERR_ARGUMENT);
    c.w2 = (moxie_quant) { .element = MOXIE_I4, .scale = MOXIE_BF16, .group_cols = 32 };
    assert_int_equal(mox_tp_cut_of(&c, MOXIE_MODE_FAST, &why), MOX_TP_ROWS);
    assert_non_null(strstr(why, "act order"));
    c.w2 = (moxie_quant) { .element = (moxie_dtype)(MOX_BLOCK_DTYPE + 12) }; /* q4_k */
    c.intermediate = 6 * 256;
    assert_int_equal(mox_tp_cut_of(&c, MOXIE_MODE_FAST, &why), MOX_TP_SUMS);
    for (int32_t r = 0; r < 4; r++)
        assert_int_equal(mox_tp_sums_part(&c, r).count, r % 2 == 0 ? 256 : 512);
}

/* ---- what is refused ----------------------------------------------------------------------------- */

static void test_refuses(void **state)
{
    (void)state;
    test_rng rng = { test_seed(26052000) };
    test_layer layer;
    rank r = { .replace = -1 };
    const moxie_options defaults = MOXIE_OPTIONS_INIT;
    moxie_comm *comms[3];
    moxie_error error;
    test_layer_make(&layer, &rng, &any_limits);
    r.layer = &layer;
    r.options = &defaults;
    r.config = layer.config;
    r.config.tp_size = 2;
    r.config.tp_rank = 2;
    assert_int_equal(build_rank(&r), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(r.error.text, "tp_rank is 2"));
    r.config.tp_rank = 1;
    assert_int_equal(build_rank(&r), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(r.error.text, "options.comm is NULL"));
    moxie_layer_destroy(r.built);
    r.built = NULL;
    assert_ok(moxie_comm_local_create(3, NULL, comms, &error), &error);
    r.comm = comms[0];
    assert_int_equal(build_rank(&r), MOXIE_ERR_MISMATCH);
    moxie_layer_destroy(r.built);
    r.built = NULL;
    for (int i = 0; i < 3; i++)
        moxie_comm_destroy(comms[i]);
    test_layer_free(&layer);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_refuses), cmocka_unit_test(test_random),
                                        cmocka_unit_test(test_formats), cmocka_unit_test(test_blocks),
                                        cmocka_unit_test(test_acts),    cmocka_unit_test(test_large),
                                        cmocka_unit_test(test_sums),    cmocka_unit_test(test_sums_of_blocks),
                                        cmocka_unit_test(test_cut_of) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
