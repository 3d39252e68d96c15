/* SPDX-License-Identifier: Apache-2.0
 *
 * lint_targets.c - the modules that adapter_config.json names beside those that have factors (lint_adapter.h).
 *
 * PEFT's rule: a module is meant when its name is the target, or ends in a dot and the target. A parameter's name does
 * not occur in its factors' names: they are under the module that has it. So "mlp.experts.gate_up_proj" means factors
 * of "mlp.experts". Engines have other names for the same projections: w1, w3, w2 for gate, up, down.
 */
#include <string.h>

#include "lint/lint_adapter.h"

static const char *const same[][2] = {
    { "gate_proj", "w1" },
    { "up_proj", "w3" },
    { "down_proj", "w2" },
    { "gate_up_proj", "w13" },
};

/* Whether the module's last words are `target`. */
static bool ends_in(const char *module, size_t length, const char *target, size_t size)
{
    return size <= length && memcmp(module + length - size, target, size) == 0 &&
           (size == length || module[length - size - 1] == '.');
}

static bool means(const char *module, size_t length, const char *target)
{
    if (ends_in(module, length, target, strlen(target)))
        return true;
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
        for (int other = 0; other < 2; other++)
            if (strcmp(target, same[i][other]) == 0 &&
                ends_in(module, length, same[i][1 - other], strlen(same[i][1 - other])))
                return true;
    return false;
}

static bool means_parameter(const char *module, size_t length, const char *target)
{
    const char *dot = strrchr(target, '.');
    return dot != NULL && ends_in(module, length, target, (size_t)(dot - target));
}

/* The module without what PEFT puts before a second parameter's factors. */
static size_t plain_length(const char *tensor)
{
    static const char base[] = ".base_layer";
    const size_t length = mox_lint_module_length(tensor), tail = sizeof base - 1;
    return length > tail && memcmp(tensor + length - tail, base, tail) == 0 ? length - tail : length;
}

typedef bool (*rule)(const char *module, size_t length, const char *target);

static bool any_tensor(const mox_lint *lint, const char *target, rule is_meant)
{
    for (int64_t i = 0; i < lint->n_tensors; i++) {
        const size_t length = plain_length(lint->tensors[i].name);
        if (length > 0 && is_meant(lint->tensors[i].name, length, target))
            return true;
    }
    return false;
}

static void check_list(const mox_lint_adapter *a, const char *key, rule is_meant)
{
    const json_t *list = json_object_get(a->json, key);
    char shown[120];
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *target = json_string_value(json_array_get(list, i));
        if (target != NULL && !any_tensor(a->lint, target, is_meant))
            mox_lint_report(a->lint->report, MOX_LINT_ADAPTER_TARGET, (mox_lint_where) { -1, a->config_path, NULL },
                            "%s names \"%s\", but no module of that name has factors", key,
                            mox_escape(shown, sizeof shown, target));
    }
}

static bool is_listed(const json_t *list, const char *module, size_t length, rule is_meant)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *target = json_string_value(json_array_get(list, i));
        if (target != NULL && is_meant(module, length, target))
            return true;
    }
    return false;
}

/* A text in place of a list is an expression, which is not read here. */
void mox_lint_targets(const mox_lint_adapter *a)
{
    const mox_lint *lint = a->lint;
    const json_t *modules = json_object_get(a->json, "target_modules"),
                 *parameters = json_object_get(a->json, "target_parameters");
    check_list(a, "target_modules", means);
    check_list(a, "target_parameters", means_parameter);
    if (!json_is_array(modules) || json_array_size(modules) + json_array_size(parameters) == 0)
        return;
    for (int64_t i = 0; i < lint->n_tensors; i++) {
        const char *name = lint->tensors[i].name;
        const size_t length = plain_length(name);
        const int64_t layer = mox_lint_layer_of(name);
        if (length > 0 && mox_lint_wants(lint, layer) && !is_listed(modules, name, length, means) &&
            !is_listed(parameters, name, length, means_parameter))
            mox_lint_report(lint->report, MOX_LINT_ADAPTER_TARGET,
                            (mox_lint_where) { layer, lint->shards[lint->files[i]].path, name },
                            "its module is none of target_modules and target_parameters");
    }
}
