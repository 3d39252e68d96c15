/* SPDX-License-Identifier: Apache-2.0
 *
 * One tensor or one key of a checkpoint is left out, in every family and format that presets have: the layer is
 * refused, or it is what the model's own code makes of such a checkpoint, never another one.
 *
 *     a tensor     refused, unless the table says what its absence means
 *     a key        refused, or the layer of the key's default value, or the same layer
 *     shared expert's key    the tensors say its width; a key that says another one is refused
 */
#include "altered_checkpoint.h"

#include "ckpt/name_pattern.h"

/* ---- tensors ------------------------------------------------------------------------------------ */

/* Tensors that may be absent, by the end of their names, in one family or (NULL) in all, and what that means. */
static const struct {
    const char *family, *pattern;
} optional_tensors[] = {
    { NULL,
      "**.e_score_correction_bias" },  /* transformers: a buffer of zeros; refused where config.json promises one */
    { "afmoe", "**.expert_bias" },     /* transformers: a parameter of zeros */
    { NULL, "**.input_scale" },        /* moxie_expert.a13_scale: the widest of the other experts' */
    { NULL, "**.input_global_scale" }, /* the same */
    { NULL, "**.weight_shape" },       /* a record of what the other tensors say */
};

/* In latent layers these are not part of a layer. */
static const char *const outside_tensors[] = { "**.routed_expert_*.weight", "**.fc*_latent_proj.weight",
                                               "**.shared_experts.**", "**.mlp.*_expert_proj.weight",
                                               "**.mlp.pre_expert_norm.weight" };

static bool may_be_absent(const altered *a, const char *name)
{
    for (size_t i = 0; i < sizeof optional_tensors / sizeof optional_tensors[0]; i++) {
        const char *family = optional_tensors[i].family;
        if ((!family || strcmp(family, a->synth.family->id) == 0) && mox_name_fits(optional_tensors[i].pattern, name))
            return true;
    }
    const bool outside = a->synth.dims.expert_width != a->synth.dims.hidden;
    for (size_t i = 0; outside && i < sizeof outside_tensors / sizeof outside_tensors[0]; i++)
        if (mox_name_fits(outside_tensors[i], name))
            return true;
    return false;
}

static void drop_tensors(altered *a)
{
    for (a->dropped = 0; a->dropped < a->count; a->dropped++) {
        moxie_model *model;
        moxie_model_layer *layer;
        moxie_error error = { 0 };
        const char *name = a->tensors[a->dropped].name;
        if (altered_load(a, a->model, false, &model, &layer, &error) == MOXIE_OK && !may_be_absent(a, name))
            fail_msg("the layer loads without %s", name);
        altered_unload(model, layer);
    }
    a->dropped = -1;
}

/* ---- keys --------------------------------------------------------------------------------------- */

/* What a layer is besides its arrays. */
static void same_layer(const moxie_layer_config *got, const moxie_layer_config *want, const char *key)
{
    const moxie_routing *r = &got->routing, *s = &want->routing;
    const moxie_activation *a = &got->activation, *b = &want->activation;
    const bool routing = r->score == s->score && r->select == s->select && r->weight == s->weight &&
                         r->norm == s->norm && r->norm_eps == s->norm_eps && r->scale == s->scale &&
                         r->n_group == s->n_group && r->topk_group == s->topk_group && !r->bias == !s->bias &&
                         !r->table == !s->table && r->on_input == s->on_input && r->jitter == s->jitter;
    const bool activation = a->kind == b->kind && a->alpha == b->alpha && a->beta == b->beta &&
                            a->gate_limit == b->gate_limit && a->up_limit == b->up_limit;
    const bool sizes = got->experts == want->experts && got->top_k == want->top_k && got->hidden == want->hidden &&
                       got->intermediate == want->intermediate && got->dtype == want->dtype &&
                       got->shared.intermediate == want->shared.intermediate &&
                       got->shared.has_gate == want->shared.has_gate;
    if (!routing || !activation || !sizes)
        fail_msg("without %s the %s is another one", key, !routing ? "routing" : !activation ? "activation" : "size");
}

/* Loads the layer with this config.json; false when it is refused. */
static bool config_of(const altered *a, const json_t *config, moxie_layer_config *out, moxie_error *error)
{
    moxie_model *model;
    moxie_model_layer *layer;
    altered_write_config(a, config);
    const bool fine = altered_load(a, a->config_dir, false, &model, &layer, error) == MOXIE_OK;
    if (fine)
        *out = *mox_model_layer_config(layer);
    altered_unload(model, layer);
    return fine;
}

/* Defaults of configuration classes in transformers 5.23 that differ from what a preset of the family says. */
static const struct {
    const char *family, *key, *value;
} class_defaults[] = {
    { "deepseek-v3", "routed_scaling_factor", "2.5" },
    { "kimi-k2", "routed_scaling_factor", "2.5" },
    { "kimi-k2.5", "routed_scaling_factor", "2.5" },
    { "qwen3-moe", "norm_topk_prob", "false" },
    { "nemotron-h", "routed_scaling_factor", "1.0" },
    { "dots1", "norm_topk_prob", "false" },
    { "dots1", "routed_scaling_factor", "1.0" },
    { "solar-open", "routed_scaling_factor", "1.0" },
    { "afmoe", "route_scale", "1.0" },
    { "glm4-moe", "routed_scaling_factor", "1.0" },
    { "laguna", "moe_routed_scaling_factor", "1.0" },
    { "bailing-moe", "routed_scaling_factor", "1.0" },
    { "bailing-moe", "score_function", "\"softmax\"" },
    { "bailing-moe", "n_group", "1" },
    { "glm4-moe-lite", "routed_scaling_factor", "1.8" },
    { "step", "moe_router_scaling_factor", "1.0" },
};

/* Sets the key to its class's default, where the table has one; else it keeps its value. */
static void set_default(const altered *a, const char *key, json_t *section)
{
    for (size_t i = 0; i < sizeof class_defaults / sizeof class_defaults[0]; i++)
        if (strcmp(class_defaults[i].family, a->synth.family->id) == 0 && strcmp(class_defaults[i].key, key) == 0)
            json_object_set_new(section, key, json_loads(class_defaults[i].value, JSON_DECODE_ANY, NULL));
}

static void drop_keys(altered *a)
{
    const char *key;
    json_t *value;
    json_object_foreach(altered_section(a->config), key, value)
    {
        moxie_layer_config got, want;
        moxie_error error = { 0 };
        json_t *without = json_deep_copy(a->config), *with = json_deep_copy(a->config);
        json_object_del(altered_section(without), key);
        set_default(a, key, altered_section(with));
        if (config_of(a, without, &got, &error)) {
            if (!config_of(a, with, &want, &error))
                fail_msg("%s: %s", key, error.text);
            same_layer(&got, &want, key);
        }
        json_decref(without);
        json_decref(with);
    }
}

/* ---- the shared expert -------------------------------------------------------------------------- */

static bool is_listed(const char *const *keys, const char *key)
{
    for (int i = 0; i < 4 && keys[i]; i++)
        if (strcmp(keys[i], key) == 0)
            return true;
    return false;
}

static void check_shared_key(altered *a, const char *key, const moxie_layer_config *want)
{
    moxie_layer_config got;
    moxie_error error = { 0 };
    json_t *config = json_deep_copy(a->config), *section = altered_section(config);
    const json_int_t value = json_integer_value(json_object_get(section, key));
    json_object_del(section, key);
    assert_true(config_of(a, config, &got, &error));
    same_layer(&got, want, key);
    const json_int_t wrong[] = { value + 1, 0 };
    for (int i = 0; i < 2; i++) {
        json_object_set_new(section, key, json_integer(wrong[i]));
        assert_false(config_of(a, config, &got, &error));
        assert_int_equal(error.code, MOXIE_ERR_MISMATCH);
        if (!strstr(error.text, key) || !strstr(error.text, a->synth.family->names.shared_up))
            fail_msg("the error does not name %s and the tensor: %s", key, error.text);
    }
    json_decref(config);
}

static void check_shared(altered *a, const moxie_layer_config *want)
{
    const mox_family *family = a->synth.family;
    const char *key = family->key_shared[0];
    if (!key || want->shared.intermediate == 0 || is_listed(family->key_intermediate, key) ||
        !json_object_get(altered_section(a->config), key))
        return;
    print_message("  %s\n", key);
    check_shared_key(a, key, want);
}

static void check(const mox_preset *preset, const char *format)
{
    altered a;
    moxie_layer_config want;
    moxie_error error = { 0 };
    if (!altered_open(&a, preset, format))
        return;
    print_message("%s %s\n", preset->name, format);
    if (!config_of(&a, a.config, &want, &error))
        fail_msg("%s", error.text);
    check_shared(&a, &want);
    drop_tensors(&a);
    drop_keys(&a);
    altered_close(&a);
}

static void what_is_left_out_is_refused_or_has_a_meaning(void **state)
{
    (void)state;
    altered_each(check);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(what_is_left_out_is_refused_or_has_a_meaning) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
