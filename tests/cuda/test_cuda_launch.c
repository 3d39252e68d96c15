/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_launch.c - launch parameters: a run launches what its plan reports, and for a known model these are the
 * values that the documented rules give. Also the plan's remark on why a mode chose a kernel.
 */
#include <string.h>

#include <moxie/moxie_ckpt.h>
#include <moxie/moxie_cuda.h>

#include "cuda/expert_gemm/sm90/sm90_plan.h"
#include "layer/plan/plan.h"
#include "test_cuda_table.h"
#include "test_layer.h"

/* ---- what runs ----------------------------------------------------------------------------------------- */

static const moxie_plan *running;
static int compared;
static int64_t zeroed[2]; /* words between blocks that W13's kernels may zero, of routed and of shared experts */

/* The chosen step of a product, -1: none. */
static int32_t step_of(const moxie_plan *plan, const char *role)
{
    for (int32_t i = 0; i < moxie_plan_step_count(plan); i++) {
        const moxie_plan_step *step = moxie_plan_step_at(plan, i);
        if (step->chosen && !strcmp(step->family, "expert_gemm") && !strcmp(step->role, role))
            return i;
    }
    return -1;
}

/* Words between blocks that there are if all columns are zeroed. */
static int64_t words_of(const mox_sm90_clear *clear)
{
    return (int64_t)clear->places * clear->max_columns / 2 * 128;
}

/* Replaces every launcher: computes the launch from a run's arguments with the launchers' own functions, and compares
 * it with the plan's. */
static moxie_status compare(const mox_cuda_expert_gemm_args *args, mox_cuda_stream stream, moxie_error *error)
{
    static const char *const roles[2][2] = { { "w13", "w2" }, { "shared w13", "shared w2" } };
    const int32_t step = step_of(running, roles[args->ids == NULL][args->projection]);
    moxie_cuda_launch said = MOXIE_CUDA_LAUNCH_INIT;
    mox_sm90_product product;
    (void)stream, (void)error;
    assert_true(step >= 0);
    const bool hopper = strncmp(moxie_plan_step_at(running, step)->layout, "hopper", 6) == 0;
    assert_int_equal(moxie_cuda_plan_launch(running, step, running->max_tokens, &said), hopper && args->slots > 0);
    if (!hopper || args->slots == 0 || args->max_pairs == 0)
        return MOXIE_OK;
    mox_sm90_product_of(args, &product);
    mox_gemm_make_ring(product.element, &product.gemm);
    assert_int_equal(said.tile_tokens, product.max_columns);
    assert_int_equal(said.blocks * args->multiprocessors, product.blocks);
    assert_int_equal(said.stages, product.gemm.stages);
    assert_int_equal(said.chunks,
                     product.gemm.few_columns > 0 ? product.gemm.few_chunks : product.gemm.chunks_per_stage);
    assert_true(product.usual_columns <= product.max_columns);
    assert_int_equal(said.pairs, product.gemm.paired);
    assert_true(said.widths[said.n_widths - 1] >= said.tile_tokens);
    if (args->projection == MOX_W13)
        zeroed[args->ids == NULL] = words_of(&product.list.clear);
    assert_true(mox_sm90_state_words(product.blocks, product.max_columns) <= zeroed[args->ids == NULL]);
    compared++;
    return MOXIE_OK;
}

static void run_one(uint64_t seed, const test_layer_limits *limits)
{
    test_rng rng = { seed };
    test_layer layer;
    moxie_error error = { 0 };
    moxie_options options = MOXIE_OPTIONS_INIT;
    test_layer_make(&layer, &rng, limits);
    options.backend = MOXIE_BACKEND_CUDA;
    options.mode = MOXIE_MODE_FAST;
    options.max_tokens = layer.args.tokens;
    test_layer_plan(&layer, &options);
    running = layer.plan;
    assert_ok(moxie_plan_run(layer.plan, &layer.args, &error), &error);
    test_layer_free(&layer);
}

static void runs_launch_what_plans_say(void **state)
{
    (void)state;
    static const int64_t tokens[] = { 1, 7, 40, 200 };
    const mox_cuda_table *table;
    moxie_error error = { 0 };
    assert_ok(mox_cuda_open(&table, &error), &error);
    mox_cuda_table watched = *table;
    for (int i = 0; i < MOX_CUDA_ROWS_expert_gemm; i++)
        watched.expert_gemm[i] = compare;
    mox_cuda_replace(&watched);
    compared = 0;
    for (int i = 0; i < 36; i++) {
        const test_layer_limits limits = { .tokens = tokens[i % 4],
                                           .largest = 200,
                                           .plain_routing = true,
                                           .mma = i % 3 == 0,
                                           .decoded = i % 3 == 1,
                                           .decoded_acts = i % 3 == 2 };
        test_cuda_set_device(i / 3 % 2 == 0 ? "sm_90" : "sm_86");
        run_one(41000 + (uint64_t)i, &limits);
    }
    assert_true(compared > 36);
}

/* One product of records with codes; one slot has all tokens. */
static mox_sm90_product product_of(const mox_cuda_features *device, const moxie_dtype *elements, mox_projection which,
                                   int32_t columns)
{
    const bool blocks = device->sm == 90; /* of FP8, whose scales then multiply sums */
    static uint8_t memory[1];
    mox_cuda_expert_gemm_args args = { .projection = which,
                                       .slots = 1,
                                       .max_pairs = columns,
                                       .tokens = columns,
                                       .decoded = true,
                                       .mma_sync = device->sm != 90,
                                       .shared_bytes = device->shared_bytes,
                                       .multiprocessors = device->multiprocessors,
                                       .hidden = 1024,
                                       .intermediate = 1024,
                                       .n_out = 1024,
                                       .element_bits = 4,
                                       .scratch = memory };
    mox_sm90_product product;
    args.weight.element = elements[which];
    args.weight.scale = MOXIE_F8_E8M0;
    for (int p = 0; p < 2; p++) {
        args.elements[p] = elements[p];
        args.block_scales[p] = blocks && elements[p] == MOXIE_F8_E4M3;
    }
    args.tiles = (mox_cuda_tiles) { .count = 8, .chunks = 16, .last_rows = 128, .scale_bytes = 256 };
    mox_sm90_product_of(&args, &product);
    return product;
}

/* Where W2 has more blocks than W13, the words between its blocks are zeroed, too: else a block would take those of the
 * run before. */
static void words_between_blocks_are_zeroed(void **state)
{
    (void)state;
    static const struct {
        const char *device;
        int64_t shared_bytes; /* 0: what the device has */
        moxie_dtype elements[2];
        int32_t columns;
    } cases[] = { { "sm_90", 0, { MOXIE_F8_E4M3, MOXIE_F4_E2M1 }, 64 },
                  { "sm_86", 80 << 10, { MOXIE_F8_E4M3, MOXIE_F4_E2M1 }, 32 } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        mox_cuda_features device;
        assert_true(mox_cuda_preset(cases[i].device, &device));
        if (cases[i].shared_bytes > 0)
            device.shared_bytes = cases[i].shared_bytes;
        const mox_sm90_product w13 = product_of(&device, cases[i].elements, MOX_W13, cases[i].columns),
                               w2 = product_of(&device, cases[i].elements, MOX_W2, cases[i].columns);
        assert_int_equal(w13.max_columns, cases[i].columns);
        assert_int_equal(w2.blocks, 2 * w13.blocks);
        assert_true(mox_sm90_state_words(w2.blocks, w2.max_columns) <= words_of(&w13.list.clear));
        assert_true(words_of(&w13.list.clear) <=
                    mox_sm90_state_words(device.multiprocessors, MOX_SM90_MAX_COLUMNS)); /* what there is */
    }
}

/* When the other product's kernel has narrower tiles, stages are never those of tiles with more than 32 columns. */
static void stages_follow_both_products(void **state)
{
    (void)state;
    mox_sm90_args args = { .max_columns = 32, .usual_columns = 16, .scale_bytes = 256 };
    mox_sm90_fill_stage(MOX_SM90_MXFP4, &args);
    assert_int_equal(args.few_columns, 32);
    assert_int_equal(args.few_chunks, mox_sm90_chunks_per_stage(MOX_SM90_MXFP4, 32));
    args.max_columns = 64;
    mox_sm90_fill_stage(MOX_SM90_MXFP4, &args);
    assert_int_equal(args.few_columns, 16);
    assert_int_equal(args.few_chunks, mox_sm90_chunks_per_stage(MOX_SM90_MXFP4, 16));
    assert_int_equal(args.chunks_per_stage, mox_sm90_chunks_per_stage(MOX_SM90_MXFP4, 64));
}

/* ---- what is known ------------------------------------------------------------------------------------- */

static moxie_plan *explain(const char *preset, const char *format, int32_t mode, const char *device)
{
    moxie_layer_config config = MOXIE_LAYER_CONFIG_INIT;
    moxie_options options = MOXIE_OPTIONS_INIT;
    moxie_plan *plan = NULL;
    moxie_error error = { 0 };
    assert_ok(moxie_preset_config(preset, format, &config, &error), &error);
    options.backend = MOXIE_BACKEND_CUDA;
    options.device = device;
    options.mode = mode;
    assert_ok(moxie_plan_explain(&config, &options, &plan, &error), &error);
    return plan;
}

/* gpt-oss-120b: 4 of 128 experts, 22.5 row tiles of 128 rows, 132 multiprocessors. Slots with many tokens have tiles of
 * 64 from the first batch on that has a list; the ring has as many stages as it has for the usual tiles. */
static void tiles_follow_tokens(void **state)
{
    (void)state;
    static const struct {
        int64_t tokens;
        int32_t tile, widths, stages, chunks, blocks, pairs;
    } known[] = {
        { 1, 8, 1, 6, 4, 1, 0 },     /* 4 pairs: W2 has 92 work units, so its blocks run at the same time as W13's */
        { 16, 16, 2, 4, 4, 2, 0 },   /* 64 pairs: no list */
        { 64, 64, 8, 4, 4, 2, 0 },   /* 2 tokens per expert */
        { 512, 64, 8, 3, 4, 2, 0 },  /* 16 */
        { 1024, 64, 8, 4, 2, 2, 0 }, /* 32 */
        { 1792, 64, 8, 4, 2, 2, 1 }, /* 56: from 48 on, blocks work in pairs */
        { 2048, 128, 16, 5, 2, 1, 1 }, { 4096, 176, 19, 4, 2, 1, 1 } /* 128 */
    };
    moxie_plan *plan = explain("gpt-oss-120b", NULL, MOXIE_MODE_EXACT, "sm_90");
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        moxie_cuda_launch launch = MOXIE_CUDA_LAUNCH_INIT;
        assert_int_equal(moxie_cuda_plan_launch(plan, step_of(plan, "w13"), known[i].tokens, &launch), 1);
        assert_int_equal(launch.tile_tokens, known[i].tile);
        assert_int_equal(launch.n_widths, known[i].widths);
        assert_int_equal(launch.warp_tokens, 16);
        assert_int_equal(launch.blocks, known[i].blocks);
        assert_int_equal(launch.pairs, known[i].pairs);
        assert_int_equal(launch.stages, known[i].stages);
        assert_int_equal(launch.chunks, known[i].chunks);
    }
    moxie_plan_destroy(plan);
}

/* The widest tile that a slot may have, for each kind of kernel. */
static void tiles_follow_kernels(void **state)
{
    (void)state;
    static const struct {
        const char *preset, *format;
        int64_t tokens;
        int32_t tile;
    } known[] = {
        { "kimi-k2-thinking", "int4-ct-g32", 2048, 64 },
        { "kimi-k2-thinking", "int4-ct-g32", 4096, 128 },
        { "qwen3-235b-a22b", "awq", 64, 32 },
        { "qwen3-235b-a22b", "awq", 512, 128 },
        { "qwen3-235b-a22b", "awq", 2048, 144 },
        { "deepseek-v3", "fp8-block", 8, 8 },
        { "deepseek-v3", "fp8-block", 64, 64 },
        { "deepseek-v3", "fp8-block", 1536, 64 },
        { "deepseek-v3", "fp8-block", 2048, 128 },
        { "deepseek-v3", "fp8-block", 8192, 144 },
        { "qwen3-235b-a22b", "bf16", 64, 32 },
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        moxie_cuda_launch launch = MOXIE_CUDA_LAUNCH_INIT;
        moxie_plan *plan = explain(known[i].preset, known[i].format, MOXIE_MODE_EXACT, "sm_90");
        assert_int_equal(moxie_cuda_plan_launch(plan, step_of(plan, "w13"), known[i].tokens, &launch), 1);
        assert_int_equal(launch.tile_tokens, known[i].tile);
        moxie_plan_destroy(plan);
    }
}

/* A card of 141 GB, as sm_90 stands for, runs 16,384 tokens in one pass; where passes are needed they are alike. */
static void passes_are_few_and_alike(void **state)
{
    (void)state;
    static const char *const presets[] = { "deepseek-v3", "kimi-k2-thinking", "gpt-oss-120b", "qwen3-235b-a22b" };
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
        moxie_layer_config config = MOXIE_LAYER_CONFIG_INIT;
        moxie_options options = MOXIE_OPTIONS_INIT;
        moxie_plan *plan = NULL;
        moxie_error error = { 0 };
        assert_ok(moxie_preset_config(presets[i], NULL, &config, &error), &error);
        options.backend = MOXIE_BACKEND_CUDA;
        options.device = "sm_90";
        options.max_tokens = 1000000;
        assert_ok(moxie_plan_explain(&config, &options, &plan, &error), &error);
        const int64_t most = plan->pass_tokens;
        assert_true(most >= 16384 && most < 1000000);
        assert_int_equal(mox_plan_pass(plan, 0), 0);
        assert_int_equal(mox_plan_pass(plan, 1), 1);
        assert_int_equal(mox_plan_pass(plan, most), most);
        assert_int_equal(mox_plan_pass(plan, most + 1), (most + 2) / 2);
        assert_int_equal(mox_plan_pass(plan, 3 * most - 1), most);
        moxie_plan_destroy(plan);
        options.device = "sm_86"; /* 24 GB: memory asks for passes */
        assert_ok(moxie_plan_explain(&config, &options, &plan, &error), &error);
        assert_true(plan->pass_tokens < most);
        moxie_plan_destroy(plan);
    }
}

/* Cards with less shared memory have narrower tiles; two blocks still fit. */
static void tiles_follow_shared_memory(void **state)
{
    (void)state;
    static const struct {
        const char *device, *preset;
        int64_t tokens;
        int32_t tile, widths, blocks;
    } known[] = {
        { "sm_80", "gpt-oss-120b", 1, 8, 1, 2 },       { "sm_80", "gpt-oss-120b", 512, 32, 3, 2 },
        { "sm_80", "gpt-oss-120b", 4096, 112, 14, 2 }, { "sm_86", "gpt-oss-120b", 1, 8, 1, 2 },
        { "sm_86", "gpt-oss-120b", 4096, 64, 8, 2 },   { "sm_80", "deepseek-v3", 8192, 80, 10, 2 },
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        moxie_cuda_launch launch = MOXIE_CUDA_LAUNCH_INIT;
        moxie_plan *plan = explain(known[i].preset, NULL, MOXIE_MODE_EXACT, known[i].device);
        assert_int_equal(moxie_cuda_plan_launch(plan, step_of(plan, "w13"), known[i].tokens, &launch), 1);
        assert_int_equal(launch.tile_tokens, known[i].tile);
        assert_int_equal(launch.n_widths, known[i].widths);
        assert_int_equal(launch.warp_tokens, known[i].tile);
        assert_int_equal(launch.blocks, known[i].blocks);
        assert_int_equal(launch.pairs, 0);
        assert_true(launch.stages >= 2);
        moxie_plan_destroy(plan);
    }
}

static void other_steps_have_none(void **state)
{
    (void)state;
    moxie_cuda_launch launch = MOXIE_CUDA_LAUNCH_INIT;
    moxie_plan *plan = explain("gpt-oss-120b", NULL, MOXIE_MODE_EXACT, "sm_90");
    int launched = 0;
    for (int32_t i = -1; i <= moxie_plan_step_count(plan); i++)
        launched += moxie_cuda_plan_launch(plan, i, 8, &launch);
    assert_int_equal(launched, 2);
    assert_int_equal(moxie_cuda_plan_launch(plan, step_of(plan, "w2"), 0, &launch), 0);
    assert_int_equal(moxie_cuda_plan_launch(NULL, 0, 8, &launch), 0);
    assert_int_equal(moxie_cuda_plan_launch(plan, step_of(plan, "w2"), 8, NULL), 0);
    moxie_plan_destroy(plan);
    plan = explain("qwen3-30b-a3b", "f32", MOXIE_MODE_EXACT, "sm_90"); /* simple kernels read no layout of tiles */
    assert_int_equal(moxie_cuda_plan_launch(plan, step_of(plan, "w13"), 8, &launch), 0);
    moxie_plan_destroy(plan);
}

static void says_why_a_mode_chose(void **state)
{
    (void)state;
    static const struct {
        const char *preset;
        int32_t mode;
        const char *class, *reason;
    } known[] = { { "deepseek-v3", MOXIE_MODE_FAST, "TOL", "best pair of kernels in list order" },
                  { "gpt-oss-120b", MOXIE_MODE_FAST, "EXACT", "as in exact mode" },
                  { "gpt-oss-120b", MOXIE_MODE_EXACT, "EXACT", "" } };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        moxie_plan *plan = explain(known[i].preset, NULL, known[i].mode, "sm_90");
        const moxie_plan_step *step = moxie_plan_step_at(plan, step_of(plan, "w13"));
        assert_string_equal(step->exactness, known[i].class);
        assert_non_null(strstr(step->reason, known[i].reason));
        moxie_plan_destroy(plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_are_few_and_alike),
        cmocka_unit_test_setup_teardown(runs_launch_what_plans_say, test_cuda_begin, test_cuda_end),
        cmocka_unit_test(words_between_blocks_are_zeroed),
        cmocka_unit_test(stages_follow_both_products),
        cmocka_unit_test(tiles_follow_tokens),
        cmocka_unit_test(tiles_follow_kernels),
        cmocka_unit_test(tiles_follow_shared_memory),
        cmocka_unit_test(other_steps_have_none),
        cmocka_unit_test(says_why_a_mode_chose),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
