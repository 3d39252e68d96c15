/* SPDX-License-Identifier: Apache-2.0
 *
 * hf_quant_config.c - where the quantization configuration is, its method, and which modules it excludes.
 */
#include "ckpt/formats/hf_quant_config.h"

#include <stdio.h>
#include <string.h>

#include "ckpt/formats/pattern.h"

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

const json_t *mox_quant_config_find(const json_t *config)
{
    /* compression_config: the first releases of compressed-tensors */
    static const char *const keys[] = { "quantization_config", "compression_config" };
    const json_t *const sections[] = { config, json_object_get(config, "text_config") };
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 2; i++)
            if (json_is_object(json_object_get(sections[i], keys[k])))
                return json_object_get(sections[i], keys[k]);
    return NULL;
}

const json_t *mox_quant_config_from_file(const json_t *file)
{
    const json_t *inner = json_object_get(file, "quantization");
    return json_is_object(inner) ? inner : json_is_object(file) ? file : NULL;
}

const char *mox_quant_config_method(const json_t *quant_config)
{
    if (text_of(quant_config, "quant_method"))
        return text_of(quant_config, "quant_method");
    if (json_object_get(quant_config, "quant_algo"))
        return "modelopt";
    /* quantize_config.json of the first GPTQ tools */
    return json_object_get(quant_config, "bits") && json_object_get(quant_config, "desc_act") ? "gptq" : "";
}

/* Shell pattern: '*' matches any run of characters. No memory, at worst |pattern| * |text| steps. */
static bool matches(const char *pattern, const char *text)
{
    const char *star = NULL, *resume = NULL;
    while (*text) {
        if (*pattern == '*') {
            star = ++pattern;
            resume = text;
        } else if (*pattern == *text) {
            pattern++, text++;
        } else if (star) {
            pattern = star;
            text = ++resume;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == 0;
}

static bool names_module(const json_t *list, const char *module)
{
    const char *dot = strrchr(module, '.');
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *entry = json_string_value(json_array_get(list, i));
        if (!entry || strncmp(entry, "re:", 3) == 0)
            continue;
        if (matches(entry, module) || (dot && strcmp(entry, dot + 1) == 0))
            return true;
    }
    return false;
}

static bool expression_matches(const char *text, const char *module)
{
    mox_arena arena = { 0 };
    const char *problem;
    const mox_pattern *pattern = mox_pattern_compile(text, MOX_PATTERN_REGEX, &arena, &problem);
    const bool matched = pattern && mox_pattern_matches(pattern, module, false);
    mox_arena_free(&arena);
    return matched;
}

static bool names_by_expression(const json_t *list, const char *module)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *entry = json_string_value(json_array_get(list, i));
        if (entry && strncmp(entry, "re:", 3) == 0 && expression_matches(entry + 3, module))
            return true;
    }
    return false;
}

/* GPTQ: the first rule that matches is "-:". */
static bool excluded_by_rule(const json_t *dynamic, const char *module)
{
    for (void *i = json_object_iter(mox_json_iterable(dynamic)); i;
         i = json_object_iter_next(mox_json_iterable(dynamic), i)) {
        const char *text = json_object_iter_key(i);
        const bool negative = strncmp(text, "-:", 2) == 0, positive = strncmp(text, "+:", 2) == 0;
        if (expression_matches(text + (negative || positive ? 2 : 0), module))
            return negative;
    }
    return false;
}

bool mox_quant_config_excludes(const json_t *quant_config, const char *module)
{
    static const char *const keys[] = { "modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules",
                                        "exclude" };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const json_t *list = json_object_get(quant_config, keys[i]);
        if (names_module(list, module) || names_by_expression(list, module))
            return true;
    }
    return excluded_by_rule(json_object_get(quant_config, "dynamic"), module);
}

const char *mox_quant_config_describe(const json_t *quant_config, char *buffer, size_t size)
{
    size_t used = 0;
    const char *key;
    json_t *value;
    snprintf(buffer, size, "none");
    for (void *i = json_object_iter(mox_json_iterable(quant_config)); i && used < size;
         i = json_object_iter_next(mox_json_iterable(quant_config), i)) {
        char text[64], name[48];
        key = json_object_iter_key(i);
        value = json_object_iter_value(i);
        const char *between = used ? ", " : "";
        mox_escape(name, sizeof name, key);
        if (json_is_string(value))
            used += (size_t)snprintf(buffer + used, size - used, "%s%s %s", between, name,
                                     mox_escape(text, sizeof text, json_string_value(value)));
        else if (json_is_integer(value))
            used += (size_t)snprintf(buffer + used, size - used, "%s%s %lld", between, name,
                                     (long long)json_integer_value(value));
    }
    return buffer;
}
