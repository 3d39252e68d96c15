/* SPDX-License-Identifier: Apache-2.0
 *
 * test_lint_adapter.c - adapters: clean ones in every naming have no finding; each rule of topic "adapters" has a
 * defect that lint names, and nothing else.
 *
 *     model  one layer, E = 4, H = 64, I = 32, bf16        adapter  r = 4, factors of all projections
 */
#include <math.h>
#include <sys/stat.h>

#include "lint_plant.h"

enum { EXPERTS = 4, HIDDEN = 64, INTERMEDIATE = 32, RANK = 4 };

#define BASE "base_model.model.model.layers.0.mlp.experts"

static const char settings[] = "\"peft_type\": \"LORA\", \"lora_alpha\": 8, \"bias\": \"none\"";

typedef struct adapter {
    plant p;
    char model[700];
    char config[600];
} adapter;

/* ---- clean adapters ---------------------------------------------------------------------------------- */

static void add(adapter *a, const char *name, int32_t rank, int64_t x, int64_t y, int64_t z)
{
    float numbers[EXPERTS * RANK * HIDDEN * 2];
    moxie_tensor t = { .dtype = MOXIE_F32, .rank = rank, .shape = { x, y, z } };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        numbers[i] = (float)(i % 13) - 6.5f;
    assert_true(plant_bytes(&t) <= sizeof numbers);
    plant_add(&a->p, name, t, numbers);
}

static void add_pair(adapter *a, const char *module, int64_t in, int64_t out)
{
    char name[200];
    snprintf(name, sizeof name, "%s.lora_A.weight", module);
    add(a, name, 2, RANK, in, 0);
    snprintf(name, sizeof name, "%s.lora_B.weight", module);
    add(a, name, 2, out, RANK, 0);
}

/* PEFT's of modules; vLLM reads them, too. */
static void modules(adapter *a)
{
    char name[160];
    for (int e = 0; e < EXPERTS; e++) {
        snprintf(name, sizeof name, BASE ".%d.gate_proj", e);
        add_pair(a, name, HIDDEN, INTERMEDIATE);
        snprintf(name, sizeof name, BASE ".%d.up_proj", e);
        add_pair(a, name, HIDDEN, INTERMEDIATE);
        snprintf(name, sizeof name, BASE ".%d.down_proj", e);
        add_pair(a, name, INTERMEDIATE, HIDDEN);
    }
    snprintf(a->config, sizeof a->config,
             "{%s, \"r\": 4, \"target_modules\": [\"gate_proj\", \"up_proj\", \"down_proj\"]}", settings);
}

/* PEFT's of 3-D parameters. */
static void parameters(adapter *a)
{
    add(a, BASE ".base_layer.lora_A.weight", 2, EXPERTS * RANK, HIDDEN, 0);
    add(a, BASE ".base_layer.lora_B.weight", 2, 2 * INTERMEDIATE, EXPERTS * RANK, 0);
    add(a, BASE ".lora_A.weight", 2, EXPERTS * RANK, INTERMEDIATE, 0);
    add(a, BASE ".lora_B.weight", 2, HIDDEN, EXPERTS * RANK, 0);
    snprintf(a->config, sizeof a->config,
             "{%s, \"r\": 4, \"target_modules\": [], \"target_parameters\": [\"mlp.experts.gate_up_proj\", "
             "\"mlp.experts.down_proj\"]}",
             settings);
}

/* SGLang's: one tensor for all experts, A of gate shared by them. */
static void stacked(adapter *a)
{
    add(a, BASE ".w1.lora_A.weight", 3, 1, RANK, HIDDEN);
    add(a, BASE ".w1.lora_B.weight", 3, EXPERTS, INTERMEDIATE, RANK);
    add(a, BASE ".w3.lora_A.weight", 3, EXPERTS, RANK, HIDDEN);
    add(a, BASE ".w3.lora_B.weight", 3, EXPERTS, INTERMEDIATE, RANK);
    add(a, BASE ".w2.lora_A.weight", 3, EXPERTS, RANK, INTERMEDIATE);
    add(a, BASE ".w2.lora_B.weight", 3, EXPERTS, HIDDEN, RANK);
    snprintf(a->config, sizeof a->config,
             "{%s, \"r\": 4, \"target_modules\": [\"gate_proj\", \"up_proj\", \"down_proj\"]}", settings);
}

static void open_adapter(adapter *a, void (*fill)(adapter *))
{
    memset(a, 0, sizeof *a);
    a->p.dir = test_tmpdir();
    snprintf(a->p.path, sizeof a->p.path, "%s/a", a->p.dir);
    snprintf(a->model, sizeof a->model, "%s/model", a->p.dir);
    assert_int_equal(mkdir(a->p.path, 0700), 0);
    fill(a);
}

static void write_model(const adapter *a)
{
    moxie_error error = { 0 };
    moxie_synth_options o = MOXIE_SYNTH_OPTIONS_INIT;
    o.format = "bf16";
    o.layers = 1;
    o.experts = EXPERTS;
    o.hidden = HIDDEN;
    o.intermediate = INTERMEDIATE;
    assert_ok(moxie_synth_write("mixtral-8x7b", a->model, &o, &error), &error);
}

static moxie_lint *lint_of(const adapter *a, bool deep, bool beside)
{
    moxie_error error = { 0 };
    moxie_lint *lint = NULL;
    moxie_lint_options o = MOXIE_LINT_OPTIONS_INIT;
    plant_write_as(&a->p, "adapter_model.safetensors", 0, a->p.count);
    plant_text(&a->p, "adapter_config.json", a->config);
    if (beside)
        write_model(a);
    o.deep = deep;
    o.model = beside ? a->model : NULL;
    assert_ok(moxie_lint_run(a->p.path, &o, &lint, &error), &error);
    return lint;
}

static void clean_adapters_have_no_findings(void **state)
{
    (void)state;
    void (*const forms[])(adapter *) = { modules, parameters, stacked };
    for (int i = 0; i < 12; i++) {
        adapter a;
        open_adapter(&a, forms[i % 3]);
        moxie_lint *lint = lint_of(&a, i / 3 % 2, i / 6);
        moxie_finding f = MOXIE_FINDING_INIT;
        if (moxie_lint_finding_at(lint, 0, &f))
            fail_msg("form %d is clean, but lint says %s: %s %s", i % 3, f.name, f.tensor, f.found);
        moxie_lint_free(lint);
        plant_close(&a.p);
    }
}

/* ---- defects ----------------------------------------------------------------------------------------- */

static void replace(adapter *a, const char *from, const char *to)
{
    char *at = strstr(a->config, from), rest[600];
    assert_non_null(at);
    snprintf(rest, sizeof rest, "%s", at + strlen(from));
    snprintf(at, sizeof a->config - (size_t)(at - a->config), "%s%s", to, rest);
}

static void plant_dora(adapter *a)
{
    replace(a, "\"r\": 4", "\"r\": 4, \"use_dora\": true");
}

static void plant_router(adapter *a)
{
    add_pair(a, "base_model.model.model.layers.0.mlp.gate", HIDDEN, EXPERTS);
    replace(a, "[\"gate_proj\"", "[\"gate\", \"gate_proj\"");
}

static void plant_half(adapter *a)
{
    plant_remove(&a->p, "experts.2.up_proj.lora_B.weight");
}

static void plant_rank(adapter *a)
{
    replace(a, "\"r\": 4", "\"r\": 8");
}

static void plant_absent_target(adapter *a)
{
    replace(a, "[\"gate_proj\"", "[\"q_proj\", \"gate_proj\"");
}

static void plant_unlisted(adapter *a)
{
    replace(a, "\"up_proj\", ", "");
}

static void plant_attention(adapter *a)
{
    add_pair(a, "base_model.model.model.layers.0.self_attn.q_proj", HIDDEN, HIDDEN);
    replace(a, "[\"gate_proj\"", "[\"q_proj\", \"gate_proj\"");
}

static void plant_zero(adapter *a)
{
    memset(plant_data(&a->p, "experts.1.down_proj.lora_B.weight"), 0, HIDDEN * RANK * sizeof(float));
}

static void plant_nan(adapter *a)
{
    plant_set(&a->p, "experts.1.down_proj.lora_A.weight", (float)NAN);
}

static void plant_codes(adapter *a)
{
    const int64_t i = plant_find(&a->p, "experts.0.gate_proj.lora_A.weight");
    a->p.tensors[i].tensor.dtype = MOXIE_I32;
}

static void plant_name(adapter *a)
{
    add(a, BASE ".0.gate_proj.lora_magnitude_vector.weight", 2, 1, INTERMEDIATE, 0);
}

static void rename_all(adapter *a, const char *from, const char *to)
{
    char name[300];
    for (int64_t i = 0; i < a->p.count; i++) {
        const char *old = a->p.tensors[i].name, *at = strstr(old, from);
        assert_non_null(at);
        snprintf(name, sizeof name, "%.*s%s%s", (int)(at - old), old, to, at + strlen(from));
        free((void *)(uintptr_t)old);
        a->p.tensors[i].name = strdup(name);
    }
}

static void plant_layer(adapter *a)
{
    rename_all(a, "layers.0.", "layers.7.");
}

static void plant_expert(adapter *a)
{
    add_pair(a, BASE ".4.down_proj", INTERMEDIATE, HIDDEN);
}

static void plant_wide(adapter *a)
{
    for (int64_t i = 0; i < a->p.count; i++)
        if (strstr(a->p.tensors[i].name, "gate_proj.lora_B"))
            a->p.tensors[i].tensor.shape[0] = INTERMEDIATE / 2;
}

static const struct defect {
    const char *rule;
    void (*plant)(adapter *);
    bool beside, deep; /* found only so */
} defects[] = {
    { "adapter-refused", plant_dora, false, false },
    { "adapter-refused", plant_router, false, false },
    { "adapter-half", plant_half, false, false },
    { "adapter-rank", plant_rank, false, false },
    { "adapter-target", plant_absent_target, false, false },
    { "adapter-target", plant_unlisted, false, false },
    { "adapter-elsewhere", plant_attention, false, false },
    { "adapter-zero", plant_zero, false, true },
    { "weight-not-finite", plant_nan, false, true },
    { "tensor-shape", plant_codes, false, false },
    { "tensor-unread", plant_name, false, false },
    { "adapter-of-another-model", plant_layer, true, false },
    { "adapter-of-another-model", plant_expert, true, false },
    { "adapter-of-another-model", plant_wide, true, false },
};
enum { DEFECTS = sizeof defects / sizeof defects[0] };

static void every_defect_is_named(void **state)
{
    (void)state;
    for (int i = 0; i < 4 * DEFECTS; i++) {
        const struct defect *d = &defects[i / 4];
        const bool deep = i % 2 == 1, beside = i / 2 % 2 == 1;
        adapter a;
        open_adapter(&a, modules);
        d->plant(&a);
        moxie_lint *lint = lint_of(&a, deep, beside);
        const bool want = (deep || !d->deep) && (beside || !d->beside);
        if (plant_only(lint, d->rule) != want)
            fail_msg("defect %d: %s was planted, and lint %s so", i / 4, d->rule, want ? "does not say" : "says");
        moxie_lint_free(lint);
        plant_close(&a.p);
    }
}

/* Of layers that the caller leaves out nothing is said. */
static void other_layers_are_left_out(void **state)
{
    (void)state;
    adapter a;
    moxie_error error = { 0 };
    moxie_finding f = MOXIE_FINDING_INIT;
    moxie_lint *lint = NULL;
    moxie_lint_options o = MOXIE_LINT_OPTIONS_INIT;
    open_adapter(&a, modules);
    plant_unlisted(&a);
    moxie_lint_free(lint_of(&a, false, false)); /* writes the files */
    o.some_layers = 1;
    o.first_layer = o.last_layer = 0;
    assert_ok(moxie_lint_run(a.p.path, &o, &lint, &error), &error);
    assert_true(plant_only(lint, "adapter-target"));
    moxie_lint_free(lint);
    o.first_layer = o.last_layer = 1;
    assert_ok(moxie_lint_run(a.p.path, &o, &lint, &error), &error);
    assert_int_equal(moxie_lint_finding_at(lint, 0, &f), 0);
    moxie_lint_free(lint);
    plant_close(&a.p);
}

static void every_rule_has_a_defect(void **state)
{
    (void)state;
    moxie_lint_rule rule = MOXIE_LINT_RULE_INIT;
    for (int32_t r = 0; moxie_lint_rule_at(r, &rule); r++) {
        bool planted = strcmp(rule.topic, "adapters") != 0;
        for (int i = 0; i < DEFECTS; i++)
            planted = planted || strcmp(defects[i].rule, rule.name) == 0;
        if (!planted)
            fail_msg("no defect is planted for %s", rule.name);
    }
}

/* What is no adapter, or cannot be read. */
static void what_cannot_be_read(void **state)
{
    (void)state;
    adapter a;
    moxie_error error = { 0 };
    moxie_lint *lint = NULL;
    moxie_lint_info info = MOXIE_LINT_INFO_INIT;
    moxie_lint_options o = MOXIE_LINT_OPTIONS_INIT;
    open_adapter(&a, modules);
    write_model(&a);
    o.model = a.model;
    assert_int_equal(moxie_lint_run(a.model, &o, &lint, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "adapter_config.json"));
    snprintf(a.config, sizeof a.config, "{ no JSON");
    lint = lint_of(&a, true, false);
    assert_true(plant_only(lint, "adapter-refused"));
    assert_ok(moxie_lint_get_info(lint, &info, &error), &error);
    assert_int_not_equal(info.input, MOXIE_OK);
    moxie_lint_free(lint);
    plant_close(&a.p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clean_adapters_have_no_findings),
        cmocka_unit_test(every_rule_has_a_defect),
        cmocka_unit_test(every_defect_is_named),
        cmocka_unit_test(other_layers_are_left_out),
        cmocka_unit_test(what_cannot_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
