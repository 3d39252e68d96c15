/* SPDX-License-Identifier: Apache-2.0
 *
 * module_rules.c - reads the rules of a configuration once, and chooses among them for each module.
 */
#include "ckpt/formats/module_rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/formats/hf_quant_config.h"

#define NAME_SIZE 320

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* ---- reading ------------------------------------------------------------------------------------- */

static mox_module_rule *add_rule(mox_module_rules *rules, const char *text, const json_t *selected)
{
    mox_module_rule *rule = &rules->rules[rules->count++];
    *rule = (mox_module_rule) { .text = text, .selected = selected };
    return rule;
}

static moxie_status compile(mox_module_rule *rule, const char *text, mox_pattern_kind kind, mox_arena *arena,
                            moxie_error *error)
{
    rule->kind = MOX_RULE_PATTERN;
    rule->pattern = mox_pattern_compile(text, kind, arena, &rule->problem);
    MOX_FAIL_IF(!rule->pattern && !rule->problem, MOXIE_ERR_MEMORY, error, "no memory for the pattern %s", rule->text);
    return MOXIE_OK;
}

/* The library's order: patterns behind names, both by their text. */
static int by_text(const void *a, const void *b)
{
    const mox_module_rule *left = a, *right = b;
    const int lp = strstr(left->text, "re:") != NULL, rp = strstr(right->text, "re:") != NULL;
    return lp != rp ? lp - rp : strcmp(left->text, right->text);
}

static moxie_status add_target(mox_module_rules *rules, const char *text, const json_t *group, mox_arena *arena,
                               moxie_error *error)
{
    for (int32_t i = 0; i < rules->count; i++)
        if (strcmp(rules->rules[i].text, text) == 0) {
            rules->rules[i].selected = group;
            return MOXIE_OK;
        }
    mox_module_rule *rule = add_rule(rules, text, group);
    return strncmp(text, "re:", 3) == 0 ? compile(rule, text + 3, MOX_PATTERN_REGEX, arena, error) : MOXIE_OK;
}

/* A group is an object with targets, or the targets themselves under the name of a preset. */
static const json_t *targets_of(const json_t *group)
{
    return json_is_array(group) ? group : json_object_get(group, "targets");
}

static moxie_status read_groups(mox_module_rules *rules, const json_t *groups, mox_arena *arena, moxie_error *error)
{
    for (void *i = json_object_iter(mox_json_iterable(groups)); i;
         i = json_object_iter_next(mox_json_iterable(groups), i)) {
        const json_t *group = json_object_iter_value(i), *targets = targets_of(group);
        for (size_t t = 0; t < json_array_size(targets); t++) {
            const char *text = json_string_value(json_array_get(targets, t));
            if (text)
                MOX_TRY(add_target(rules, text, group, arena, error));
        }
    }
    qsort(rules->rules, (size_t)rules->count, sizeof *rules->rules, by_text);
    return MOXIE_OK;
}

static moxie_status read_patterns(mox_module_rules *rules, const json_t *object, mox_arena *arena, moxie_error *error)
{
    const bool gptq = rules->dialect == MOX_RULES_GPTQ;
    for (void *i = json_object_iter(mox_json_iterable(object)); i;
         i = json_object_iter_next(mox_json_iterable(object), i)) {
        const char *text = json_object_iter_key(i);
        const bool negative = strncmp(text, "-:", 2) == 0, positive = strncmp(text, "+:", 2) == 0;
        const bool regex = strncmp(text, "re:", 3) == 0;
        mox_module_rule *rule = add_rule(rules, text, gptq && negative ? NULL : json_object_iter_value(i));
        if (gptq)
            MOX_TRY(compile(rule, text + (negative || positive ? 2 : 0), MOX_PATTERN_REGEX, arena, error));
        else if (regex || strchr(text, '*'))
            MOX_TRY(compile(rule, text + (regex ? 3 : 0), regex ? MOX_PATTERN_REGEX : MOX_PATTERN_SHELL, arena, error));
    }
    return MOXIE_OK;
}

static const json_t *rules_object(const json_t *quant_config, mox_rules_dialect *dialect)
{
    const char *method = mox_quant_config_method(quant_config);
    const json_t *object = NULL;
    *dialect = MOX_RULES_NONE;
    if (strcmp(method, "compressed-tensors") == 0) {
        *dialect = MOX_RULES_CT;
        object = json_object_get(quant_config, "config_groups");
    } else if (strcmp(method, "quark") == 0) {
        *dialect = MOX_RULES_QUARK;
        object = json_object_get(quant_config, "layer_quant_config");
    } else if (strcmp(method, "gptq") == 0) {
        *dialect = MOX_RULES_GPTQ;
        object = json_object_get(quant_config, "dynamic");
    } else if (strcmp(text_of(quant_config, "quant_algo"), "MIXED_PRECISION") == 0 &&
               !json_object_get(quant_config, "moe_quant_algo")) {
        *dialect = MOX_RULES_MODELOPT;
        object = json_object_get(quant_config, "quantized_layers");
    }
    if (!json_is_object(object) && *dialect != MOX_RULES_MODELOPT)
        *dialect = MOX_RULES_NONE;
    return json_is_object(object) ? object : NULL;
}

static size_t rule_count(const json_t *object, mox_rules_dialect dialect)
{
    size_t count = json_object_size(object);
    if (dialect != MOX_RULES_CT)
        return count;
    count = 0;
    for (void *i = json_object_iter(mox_json_iterable(object)); i;
         i = json_object_iter_next(mox_json_iterable(object), i))
        count += json_array_size(targets_of(json_object_iter_value(i)));
    return count;
}

moxie_status mox_module_rules_create(const json_t *quant_config, mox_arena *arena, mox_module_rules *out,
                                     moxie_error *error)
{
    *out = (mox_module_rules) { .quant_config = quant_config };
    const json_t *object = rules_object(quant_config, &out->dialect);
    /* quantized_layers is looked up by name. */
    if (out->dialect == MOX_RULES_NONE || out->dialect == MOX_RULES_MODELOPT)
        return MOXIE_OK;
    const size_t count = rule_count(object, out->dialect);
    out->rules = mox_arena_calloc(arena, count + 1, sizeof *out->rules);
    MOX_FAIL_IF(!out->rules, MOXIE_ERR_MEMORY, error, "no memory for the rules of a quantization_config");
    return out->dialect == MOX_RULES_CT ? read_groups(out, object, arena, error)
                                        : read_patterns(out, object, arena, error);
}

/* ---- names of a module --------------------------------------------------------------------------- */

#define MAX_NAMES 8

/* The spellings under which rules may name a module. */
typedef struct module_names {
    char text[MAX_NAMES][NAME_SIZE];
    int32_t count;
} module_names;

static void add_name(module_names *names, const char *prefix, const char *rest)
{
    if (names->count < MAX_NAMES && strlen(prefix) + strlen(rest) < NAME_SIZE)
        snprintf(names->text[names->count++], NAME_SIZE, "%s%s", prefix, rest);
}

/* Files and model code place the language model differently: rules may have either spelling. */
static void add_spellings(module_names *names, const char *module)
{
    static const char *const prefixes[] = { "model.language_model.", "language_model.model.", "model." };
    add_name(names, "", module);
    for (int i = 0; i < 3; i++) {
        const size_t length = strlen(prefixes[i]);
        if (strncmp(module, prefixes[i], length) != 0)
            continue;
        for (int other = 0; other < 3; other++)
            if (other != i && i < 2)
                add_name(names, prefixes[other], module + length);
        return;
    }
}

/* "mlp.experts.gate_up_proj" holds "mlp.experts.0.gate_proj", the name that rules have. */
static void names_of(const char *module, bool stacked, module_names *names)
{
    char inside[NAME_SIZE];
    names->count = 0;
    add_spellings(names, module);
    const char *dot = strrchr(module, '.');
    if (!stacked || !dot)
        return;
    const char *last = strcmp(dot + 1, "gate_up_proj") == 0 ? "gate_proj" : dot + 1;
    if (snprintf(inside, sizeof inside, "%.*s.0.%s", (int)(dot - module), module, last) < (int)sizeof inside)
        add_spellings(names, inside);
}

/* ---- choosing ------------------------------------------------------------------------------------ */

static moxie_status not_understood(const mox_module_rule *rule, const char *module, moxie_error *error)
{
    char name[200], text[200];
    return mox_fail(MOXIE_ERR_UNSUPPORTED, error,
                    "the quantization config has the pattern %s, which decides about %s, but it has %s, which is not "
                    "understood; write it without",
                    mox_escape(text, sizeof text, rule->text), mox_escape(name, sizeof name, module), rule->problem);
}

/* True: `rule` holds for one of the names. */
static bool rule_matches(const mox_module_rules *rules, const mox_module_rule *rule, const module_names *names)
{
    const bool whole = rules->dialect == MOX_RULES_QUARK;
    for (int32_t n = 0; n < names->count; n++) {
        const char *name = names->text[n];
        if (rule->kind == MOX_RULE_PATTERN && mox_pattern_matches(rule->pattern, name, whole))
            return true;
        if (rule->kind == MOX_RULE_EXACT && strcmp(rule->text, name) == 0)
            return true;
    }
    return false;
}

/* Classes of an expert's matrix: torch's, with the classes it derives from, and vLLM's for all experts. */
static bool is_class(const char *text)
{
    static const char *const names[] = { "Linear", "Module", "FusedMoE", "RoutedExperts" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(text, names[i]) == 0)
            return true;
    return false;
}

static moxie_status choose_rule(const mox_module_rules *rules, const module_names *names, const char *module,
                                mox_module_choice *out, moxie_error *error)
{
    for (int32_t i = 0; i < rules->count; i++) {
        const mox_module_rule *rule = &rules->rules[i];
        if (rule->problem)
            return not_understood(rule, module, error);
        if (!rule_matches(rules, rule, names))
            continue;
        *out = (mox_module_choice) { .selected = rule->selected };
        return MOXIE_OK;
    }
    *out = (mox_module_choice) { .absent = rules->dialect == MOX_RULES_CT };
    for (int32_t i = 0; out->absent && i < rules->count; i++)
        if (is_class(rules->rules[i].text))
            *out = (mox_module_choice) { .selected = rules->rules[i].selected };
    return MOXIE_OK;
}

/* The entry of the module or of the nearest module that contains it. */
static const json_t *layer_entry(const json_t *layers, const char *name)
{
    char text[NAME_SIZE];
    snprintf(text, sizeof text, "%s", name);
    for (;;) {
        const json_t *found = json_object_get(layers, text);
        char *dot = strrchr(text, '.');
        if (json_is_object(found) || !dot)
            return json_is_object(found) ? found : NULL;
        *dot = 0;
    }
}

static void choose_layer(const mox_module_rules *rules, const module_names *names, mox_module_choice *out)
{
    const json_t *layers = json_object_get(rules->quant_config, "quantized_layers");
    *out = (mox_module_choice) { .absent = true };
    for (int32_t n = 0; out->absent && n < names->count; n++) {
        const json_t *found = layer_entry(layers, names->text[n]);
        if (found)
            *out = (mox_module_choice) { .selected = found };
    }
}

moxie_status mox_module_rules_choose(const mox_module_rules *rules, const char *module, bool stacked,
                                     mox_module_choice *out, moxie_error *error)
{
    module_names names;
    *out = (mox_module_choice) { 0 };
    if (rules->dialect == MOX_RULES_NONE)
        return MOXIE_OK;
    names_of(module, stacked, &names);
    if (rules->dialect != MOX_RULES_MODELOPT)
        return choose_rule(rules, &names, module, out, error);
    choose_layer(rules, &names, out);
    return MOXIE_OK;
}

/* ---- the configuration of a choice ---------------------------------------------------------------- */

/* Sets `key`, owning `value`; frees the object and gives NULL when out of memory. */
static json_t *with(json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new(object, key, value) == 0)
        return object;
    json_decref(object);
    return NULL;
}

/* Several threads read the model's configuration at once, so nothing of it is shared here: json_incref() reads the
 * count of references without care for others. */
json_t *mox_module_rules_config(const mox_module_rules *rules, const mox_module_choice *choice)
{
    json_t *copy = rules->quant_config ? json_deep_copy(rules->quant_config) : json_null();
    if (!copy || rules->dialect == MOX_RULES_NONE || (!choice->selected && !choice->absent))
        return copy;
    switch (rules->dialect) {
    case MOX_RULES_CT: {
        json_t *groups = json_object();
        if (groups && choice->selected)
            groups = with(groups, "group", json_deep_copy(choice->selected));
        return with(copy, "config_groups", groups);
    }
    case MOX_RULES_QUARK: return with(copy, "global_quant_config", json_deep_copy(choice->selected));
    case MOX_RULES_MODELOPT:
        json_object_del(copy, "quant_algo");
        copy = with(copy, "quant_method", json_string("modelopt"));
        break;
    default: break;
    }
    if (!copy || !json_is_object(choice->selected))
        return copy;
    json_t *selected = json_deep_copy(choice->selected);
    const bool fine = selected && json_object_update(copy, selected) == 0;
    json_decref(selected);
    if (fine)
        return copy;
    json_decref(copy);
    return NULL;
}
