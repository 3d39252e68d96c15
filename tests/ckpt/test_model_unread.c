/* SPDX-License-Identifier: Apache-2.0
 *
 * What moxie does not know in a checkpoint is refused or reported, in every family and format that presets have: a
 * tensor of an unknown name beside a matrix, a router or a shared expert, and an unknown key of config.json. A
 * checkpoint as it is released has neither.
 */
#include "altered_checkpoint.h"

#include "ckpt/name_pattern.h"

/* Name of a tensor that the checkpoint does not have: a template of the family with another ending. */
static bool unknown_name(const altered *a, const char *name_template, const char *ending, char *out, size_t size)
{
    char stem[200], with_ending[300];
    if (!name_template)
        return false;
    snprintf(stem, sizeof stem, "%s", name_template);
    char *weight = strstr(stem, ".weight");
    if (weight)
        *weight = 0;
    snprintf(with_ending, sizeof with_ending, "%s%s", stem, ending);
    return mox_expand_name(out, size, a->synth.family->prefixes[0], with_ending, a->layer, 0);
}

/* Adds the tensor: refused, and the text names it; reported when the caller goes on. */
static void check_tensor(altered *a, const char *name)
{
    moxie_model *model;
    moxie_model_layer *layer;
    moxie_error error = { 0 };
    altered_add(a, name);
    assert_int_equal(altered_load(a, a->model, false, &model, &layer, &error), MOXIE_ERR_UNSUPPORTED);
    altered_unload(model, layer);
    if (!strstr(error.text, name) || !strstr(error.text, "--allow-unread"))
        fail_msg("the error does not name %s: %s", name, error.text);
    assert_ok(altered_load(a, a->model, true, &model, &layer, &error), &error);
    assert_string_equal(mox_model_layer_unread(layer, 0), name);
    assert_null(mox_model_layer_unread(layer, 1));
    altered_unload(model, layer);
    altered_remove_last(a);
}

static void check_tensors(altered *a)
{
    char name[400];
    const mox_names *names = &a->synth.family->names;
    const char *const matrices[] = { names->gate,          names->up,          names->down,
                                     names->fused_gate_up, names->fused_down,  names->router,
                                     names->shared_up,     names->shared_down, names->shared_expert_gate };
    static const char *const endings[] = { ".mystery_scale", ".mystery_bias", "_mystery" };
    const bool latent = a->synth.dims.expert_width != a->synth.dims.hidden;
    for (size_t i = 0; i < sizeof matrices / sizeof matrices[0]; i++)
        for (size_t e = 0; e < sizeof endings / sizeof endings[0]; e++)
            if ((!latent || i < 6) && unknown_name(a, matrices[i], endings[e], name, sizeof name))
                check_tensor(a, name);
}

static void check_key(altered *a, const char *section, const char *key, const char *reported)
{
    moxie_model *model;
    moxie_model_layer *layer;
    moxie_error error = { 0 };
    json_t *config = json_deep_copy(a->config);
    json_t *object = altered_section(config);
    if (section[0] && !json_object_get(object, section))
        json_object_set_new(object, section, json_object());
    json_object_set_new(section[0] ? json_object_get(object, section) : object, key, json_real(2.5));
    altered_write_config(a, config);
    json_decref(config);
    assert_ok(altered_load(a, a->config_dir, false, &model, &layer, &error), &error);
    if (!mox_model_unread_key(model, 0))
        fail_msg("%s is not reported", reported);
    assert_string_equal(mox_model_unread_key(model, 0), reported);
    assert_null(mox_model_unread_key(model, 1));
    altered_unload(model, layer);
}

static void check(const mox_preset *preset, const char *format)
{
    altered a;
    moxie_model *model;
    moxie_model_layer *layer;
    moxie_error error = { 0 };
    if (!altered_open(&a, preset, format))
        return;
    print_message("%s %s\n", preset->name, format);
    assert_ok(altered_load(&a, a.model, false, &model, &layer, &error), &error);
    assert_null(mox_model_layer_unread(layer, 0));
    if (mox_model_unread_key(model, 0))
        fail_msg("key %s is not read", mox_model_unread_key(model, 0));
    altered_unload(model, layer);
    check_tensors(&a);
    check_key(&a, "", "moe_mystery_factor", "moe_mystery_factor");
    check_key(&a, "ffn_config", "router_mystery", "ffn_config.router_mystery");
    altered_close(&a);
}

static void unknown_parts_are_refused(void **state)
{
    (void)state;
    altered_each(check);
}

static void presets_have_no_unknown_key(void **state)
{
    (void)state;
    for (int32_t p = 0; mox_preset_at(p); p++) {
        altered a;
        moxie_model *model;
        moxie_model_layer *layer;
        moxie_error error = { 0 };
        assert_true(altered_open(&a, mox_preset_at(p), NULL));
        assert_ok(altered_load(&a, a.model, false, &model, &layer, &error), &error);
        if (mox_model_unread_key(model, 0))
            fail_msg("%s: key %s is not read", mox_preset_at(p)->name, mox_model_unread_key(model, 0));
        altered_unload(model, layer);
        altered_close(&a);
    }
}

static void patterns(void **state)
{
    (void)state;
    assert_true(mox_name_fits("mlp.**", "mlp.gate_proj.weight"));
    assert_false(mox_name_fits("mlp.*", "mlp.gate_proj.weight"));
    assert_true(mox_name_fits("*norm*.*", "ffn_norm.weight"));
    assert_false(mox_name_fits("*norm*.*", "mlp.norm.weight"));
    assert_true(mox_name_fits("**.inv_freq", "a.b.inv_freq"));
    assert_false(mox_name_fits("**.inv_freq", "a.b.inv_freq2"));
    assert_true(mox_name_fits("*", ""));
    assert_false(mox_name_fits("", "a"));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(unknown_parts_are_refused),
                                        cmocka_unit_test(presets_have_no_unknown_key), cmocka_unit_test(patterns) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
