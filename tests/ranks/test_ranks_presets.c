/* SPDX-License-Identifier: Apache-2.0
 *
 * test_ranks_presets.c - layers of real models on ranks: every preset, made small, in the formats of its releases. The
 * output bytes of 2, 3, 4, 7 and 8 ranks equal those of one.
 *
 * Ranks, token layout, placement and number of tokens take turns. A default run takes each family and each format once;
 * MOXIE_TEST_ALL=1 takes all formats, with every number of ranks.
 */
#include "test_ranks.h"

#include <moxie/moxie_ckpt.h>

typedef struct turn {
    int32_t ranks, tp;
    moxie_token_layout layout;
    bool map;
} turn;

static const turn turns[] = {
    { 2, 1, MOXIE_TOKENS_SHARDED, false },    { 3, 1, MOXIE_TOKENS_REPLICATED, true },
    { 4, 2, MOXIE_TOKENS_SHARDED, false },    { 7, 1, MOXIE_TOKENS_SCATTERED, false },
    { 8, 2, MOXIE_TOKENS_REPLICATED, false }, { 4, 1, MOXIE_TOKENS_SHARDED, true },
    { 2, 2, MOXIE_TOKENS_SHARDED, false },    { 8, 1, MOXIE_TOKENS_SHARDED, true },
};
enum { TURNS = sizeof turns / sizeof turns[0] };
static const int64_t tokens_of_turn[] = { 7, 64, 1, 20, 0 }, tokens_of_all[] = { 7, 64, 1, 300, 0 };

/* The model's layer as a test layer, whose arrays stay the model's. */
static void take(test_layer *out, const moxie_model_layer *from, test_rng *rng, int64_t tokens)
{
    *out = (test_layer) { .config = *moxie_model_layer_config(from), .weights = *moxie_model_layer_weights(from) };
    const moxie_layer_config *c = &out->config;
    moxie_run_args *a = &out->args;
    out->owners = calloc((size_t)c->experts + 1, sizeof *out->owners);
    *a = (moxie_run_args)MOXIE_RUN_ARGS_INIT;
    a->tokens = tokens;
    void *hidden = test_layer_own(out, (size_t)(tokens * c->hidden * moxie_dtype_bits(c->dtype) / 8));
    test_fill_activations(rng, c->dtype, hidden, tokens * c->hidden);
    a->hidden = hidden;
    if (c->router_width > 0 && c->router_width != c->hidden) {
        void *x = test_layer_own(out, (size_t)(tokens * c->router_width * moxie_dtype_bits(c->dtype) / 8));
        test_fill_activations(rng, c->dtype, x, tokens * c->router_width);
        a->router_hidden = x;
    }
    if (c->routing.select == MOXIE_SELECT_TABLE) {
        int32_t *ids = test_layer_own(out, (size_t)tokens * sizeof *ids);
        for (int64_t t = 0; t < tokens; t++)
            ids[t] = (int32_t)test_range(rng, 0, c->routing.table_rows - 1);
        a->token_ids = ids;
    }
    a->output = test_layer_own(out, test_layer_output_bytes(out));
}

static int64_t cut_shared; /* runs whose ranks each have some rows of a shared expert */

static void compare(test_layer *layer, test_rng *rng, const turn *t, const char *name)
{
    test_rank_result results[TEST_MAX_RANKS];
    test_ranks_spec spec = { .ranks = t->ranks, .tp = t->tp, .layout = t->layout, .options = MOXIE_OPTIONS_INIT };
    const moxie_slot_map map = test_ranks_map(layer, rng, t->ranks / t->tp);
    moxie_options options = MOXIE_OPTIONS_INIT;
    spec.map = t->map ? &map : NULL;
    spec.ep_map = t->ranks % 2;
    options.max_tokens = layer->args.tokens + 1;
    test_ranks_cut(&spec, rng, layer->args.tokens);
    test_layer_plan(layer, &options);
    cut_shared += t->tp > 1 && layer->config.shared.intermediate > 0 && layer->args.tokens > 0;
    char *one = test_layer_output(layer, layer->plan);
    char *all = calloc(test_layer_output_bytes(layer) + 1, 1);
    if (test_ranks_run(layer, &spec, all, results) != MOXIE_OK)
        for (int32_t r = 0; r < t->ranks; r++)
            print_error("rank %d: %s: %s\n", (int)r, moxie_status_name(results[r].status), results[r].error.text);
    if (memcmp(one, all, test_layer_output_bytes(layer)) != 0)
        fail_msg("%s differs on %d ranks, tp %d, token layout %d", name, (int)t->ranks, (int)t->tp, (int)t->layout);
    free(one);
    free(all);
}

static void check(const moxie_preset_info *preset, const char *format, int64_t number, bool all)
{
    moxie_error error = { 0 };
    moxie_synth_options options = MOXIE_SYNTH_OPTIONS_INIT;
    char *tmp = test_tmpdir(), dir[600], name[200];
    const moxie_model_options open_options = MOXIE_MODEL_OPTIONS_INIT;
    moxie_model *model = NULL;
    moxie_model_layer *from = NULL;
    moxie_model_layer_info info = MOXIE_MODEL_LAYER_INFO_INIT;
    moxie_layer_config config = MOXIE_LAYER_CONFIG_INIT;
    assert_ok(moxie_preset_config(preset->name, format, &config, &error), &error);
    const int64_t groups = config.routing.n_group > 1 ? config.routing.n_group : 1;
    options.format = format;
    options.layers = 1;
    options.experts = groups > 1 ? groups * 4 : preset->top_k + 1 < preset->experts ? preset->top_k + 1 : 0;
    options.hidden = 256;
    options.intermediate = 128;
    snprintf(dir, sizeof dir, "%s/model", tmp);
    snprintf(name, sizeof name, "%s %s", preset->name, format);
    assert_ok(moxie_synth_write(preset->name, dir, &options, &error), &error);
    assert_ok(moxie_model_open(dir, &open_options, &model, &error), &error);
    assert_ok(moxie_model_describe_layer(model, 0, &info, &error), &error);
    assert_ok(moxie_model_load_layer(model, info.layer, &from, &error), &error);
    for (int64_t i = number; i < number + (all ? TURNS : 1); i++) {
        test_rng rng = { 4500 + (uint64_t)i };
        test_layer layer;
        take(&layer, from, &rng, (all ? tokens_of_all : tokens_of_turn)[i % 5]);
        compare(&layer, &rng, &turns[i % TURNS], name);
        test_layer_free(&layer);
    }
    moxie_model_layer_free(from);
    moxie_model_close(model);
    test_rmdir(tmp);
}

static void presets_on_ranks(void **state)
{
    (void)state;
    const bool all = test_env("MOXIE_TEST_ALL", 0) != 0;
    test_names met = { .count = 0 };
    moxie_preset_info preset = MOXIE_PRESET_INFO_INIT;
    int64_t number = 0;
    for (int32_t p = 0; moxie_preset_at(p, &preset); p++)
        for (int f = 0; f < preset.n_native; f++) {
            const bool new_format = test_name_is_new(&met, preset.formats[f]);
            if (test_name_is_new(&met, preset.family) || new_format || all)
                check(&preset, preset.formats[f], number++, all);
        }
    print_message("%lld layers\n", (long long)number);
    assert_true(cut_shared > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(presets_on_ranks) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
