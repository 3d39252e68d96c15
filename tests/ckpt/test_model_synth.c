/* SPDX-License-Identifier: Apache-2.0
 *
 * The generator and the reader work from the same rows but not with the same code: every preset, made small, in every
 * format of its releases, is read back as the configuration that the planner expects without tensors. MOXIE_TEST_ALL=1
 * takes every preset in every format that it can be written in.
 */
#include "test_support.h"

#include "ckpt/families/family_config.h"
#include "ckpt/formats/hf_quant_config.h"
#include "ckpt/model/model.h"
#include "ckpt/synth/synth.h"
#include "ckpt/synth/synth_model.h"
#include "quant/quant.h"

static void same_quant(const moxie_quant *got, const moxie_quant *want, int64_t rows, int64_t cols)
{
    assert_int_equal(got->element, want->element);
    assert_int_equal(got->scale, want->scale);
    assert_int_equal(mox_group_rows(got, rows), mox_group_rows(want, rows));
    assert_int_equal(mox_group_cols(got, cols), mox_group_cols(want, cols));
    assert_int_equal(got->has_zero, want->has_zero);
    assert_int_equal(got->global, want->global);
    assert_int_equal(got->is_static, want->is_static);
}

static void same_config(const moxie_layer_config *got, const moxie_layer_config *want, bool interleaved)
{
    const int64_t h = want->hidden, i = want->intermediate, s = want->shared.intermediate;
    assert_int_equal(got->experts, want->experts);
    assert_int_equal(got->top_k, want->top_k);
    assert_int_equal(got->hidden, h);
    assert_int_equal(got->intermediate, i);
    assert_int_equal(got->router_width, want->router_width);
    assert_int_equal(got->router_has_bias, want->router_has_bias);
    assert_int_equal(got->bias13, want->bias13);
    assert_int_equal(got->shared.intermediate, s);
    assert_int_equal(got->shared.has_gate, want->shared.has_gate);
    assert_int_equal(got->activation.kind, want->activation.kind);
    assert_true(got->activation.alpha == want->activation.alpha);
    assert_true(got->activation.beta == want->activation.beta);
    assert_true(got->activation.gate_limit == want->activation.gate_limit);
    assert_true(got->activation.up_limit == want->activation.up_limit);
    assert_int_equal(got->routing.score, want->routing.score);
    assert_int_equal(got->routing.select, want->routing.select);
    assert_int_equal(got->routing.weight, want->routing.weight);
    assert_int_equal(got->routing.norm, want->routing.norm);
    assert_int_equal(got->routing.n_group, want->routing.n_group);
    assert_int_equal(got->routing.topk_group, want->routing.topk_group);
    assert_int_equal(got->routing.on_input, want->routing.on_input);
    assert_int_equal(got->routing.zero_experts, want->routing.zero_experts);
    assert_int_equal(got->routing.zero_kind, want->routing.zero_kind);
    assert_true(got->routing.softcap == want->routing.softcap);
    assert_true(got->routing.scale == (want->routing.scale != 0 ? want->routing.scale : 1));
    /* Gate and up of alternating rows: a block of 128 stored rows is 64 of each. */
    moxie_quant w13 = want->w13;
    if (interleaved && w13.group_rows > 1)
        w13.group_rows /= 2;
    same_quant(&got->w13, &w13, i, h);
    same_quant(&got->w2, &want->w2, h, i);
    same_quant(&got->a13, &want->a13, 1, h);
    same_quant(&got->a2, &want->a2, 1, i);
    if (s > 0) {
        same_quant(&got->shared.w13, &want->shared.w13, s, h);
        same_quant(&got->shared.a2, &want->shared.a2, 1, s);
    }
}

static void check(const mox_preset *preset, const char *format, bool must)
{
    moxie_synth_options options = MOXIE_SYNTH_OPTIONS_INIT;
    const int64_t groups = preset->dims.n_group > 1 ? preset->dims.n_group : 1;
    options.format = format;
    options.layers = 1;
    options.experts = groups > 1 ? groups * 4 : preset->dims.top_k;
    options.hidden = 256;
    options.intermediate = 128;
    char *tmp = test_tmpdir(), dir[600];
    snprintf(dir, sizeof dir, "%s/model", tmp);
    moxie_error error = { 0 };
    mox_synth_model synth;
    moxie_status status = mox_synth_resolve(preset->name, &options, &synth, &error);
    if (status == MOXIE_OK)
        status = mox_synth_write(preset->name, dir, &options, &mox_executor_serial, &error);
    if (status == MOXIE_ERR_UNSUPPORTED && !must) {
        test_rmdir(tmp);
        return;
    }
    assert_ok(status, &error);
    print_message("%s %s\n", preset->name, format);
    const moxie_model_options open_options = MOXIE_MODEL_OPTIONS_INIT;
    moxie_model *model = NULL;
    moxie_model_layer *layer = NULL;
    moxie_model_layer_info info = MOXIE_MODEL_LAYER_INFO_INIT;
    moxie_layer_config want;
    assert_ok(mox_model_open(dir, &open_options, &model, &error), &error);
    assert_ok(mox_model_describe_layer(model, 0, &info, &error), &error);
    assert_ok(mox_model_load_layer(model, info.layer, &layer, &error), &error);
    assert_ok(mox_family_layer_config(synth.family, &synth.dims, synth.routed, synth.shared, info.layer, &want, &error),
              &error);
    assert_string_equal(info.format, format);
    same_config(mox_model_layer_config(layer), &want, synth.family->interleaved);
    mox_model_layer_free(layer);
    mox_model_close(model);
    test_rmdir(tmp);
}

static void presets_are_read_back(void **state)
{
    (void)state;
    const bool all = test_env("MOXIE_TEST_ALL", 0) != 0;
    const bool each = all || test_one_in(3, "presets and formats: each format and family once") == 1;
    test_names met = { .count = 0 };
    for (int32_t p = 0; mox_preset_at(p); p++) {
        const mox_preset *preset = mox_preset_at(p);
        for (int32_t f = 0; all && mox_hf_quant_at(f); f++)
            check(preset, mox_hf_quant_at(f)->id, false);
        for (int f = 0; !all && f < preset->n_native; f++) {
            const bool new_format = test_name_is_new(&met, preset->formats[f]);
            if (test_name_is_new(&met, preset->family) || new_format || each)
                check(preset, preset->formats[f], true);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(presets_are_read_back) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
