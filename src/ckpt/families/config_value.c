/* SPDX-License-Identifier: Apache-2.0
 *
 * config_value.c - one value of config.json: found under its dotted key in text_config or at the top level, selected
 * from a per-layer list, checked for its type.
 */
#include <math.h>
#include <string.h>

#include "base/sizes.h"
#include "ckpt/families/family_config.h"

static const json_t *descend(const json_t *object, const char *key)
{
    while (json_is_object(object)) {
        const char *dot = strchr(key, '.');
        if (!dot)
            break;
        char head[64];
        const size_t length = (size_t)(dot - key);
        if (length >= sizeof head)
            return NULL;
        memcpy(head, key, length);
        head[length] = 0;
        object = json_object_get(object, head);
        key = dot + 1;
    }
    return json_object_get(object, key);
}

static _Thread_local json_t *recorded;

void mox_config_record(json_t *keys)
{
    recorded = keys;
}

/* The value of a key in the first section that has it; where it is null, in the next one. A null is returned only when
 * no section has another value. */
static const json_t *find(const json_t *config, const char *key)
{
    const json_t *sections[] = { json_object_get(json_object_get(config, "thinker_config"), "text_config"),
                                 json_object_get(config, "text_config"), config };
    const json_t *null = NULL;
    if (recorded)
        json_object_set_new(recorded, key, json_true());
    for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++) {
        const json_t *value = descend(sections[i], key);
        if (value && !json_is_null(value))
            return value;
        null = value ? value : null;
    }
    return null;
}

const json_t *mox_config_find(const json_t *config, const char *key)
{
    const json_t *value = find(config, key);
    return json_is_null(value) ? NULL : value;
}

bool mox_config_is_null(const json_t *config, const char *key)
{
    return json_is_null(find(config, key));
}

static const json_t *of_layer(const json_t *value, int64_t layer)
{
    if (!json_is_array(value) || json_array_size(value) == 0)
        return value;
    const size_t last = json_array_size(value) - 1;
    const json_t *entry = json_array_get(value, (uint64_t)layer < last ? (size_t)layer : last);
    return json_is_null(entry) ? NULL : entry;
}

static moxie_status wrong_type(const json_t *value, const char *key, const char *want, const char *file,
                               moxie_error *error)
{
    static const char *const names[] = { "an object", "a list", "a string", "an integer",
                                         "a real",    "true",   "false",    "null" };
    const char *found = json_is_array(value) ? "an empty or nested list" : names[json_typeof(value)];
    return mox_fail_file(MOXIE_ERR_FORMAT, error, file, -1, "%s is %s, expected %s", key, found, want);
}

moxie_status mox_config_int(const json_t *config, const char *key, int64_t layer, int64_t fallback, const char *file,
                            int64_t *out, moxie_error *error)
{
    const json_t *value = of_layer(mox_config_find(config, key), layer);
    if (value && !json_is_integer(value))
        return wrong_type(value, key, "an integer", file, error);
    *out = value ? json_integer_value(value) : fallback;
    return MOXIE_OK;
}

moxie_status mox_config_real(const json_t *config, const char *key, int64_t layer, double fallback, const char *file,
                             double *out, moxie_error *error)
{
    const json_t *value = of_layer(mox_config_find(config, key), layer);
    if (value && !json_is_number(value))
        return wrong_type(value, key, "a number", file, error);
    const double number = value ? json_number_value(value) : fallback;
    if (!(fabs(number) < 1e30))
        return mox_fail_file(MOXIE_ERR_FORMAT, error, file, -1, "%s is %g; expected a finite number below 1e30", key,
                             number);
    *out = number;
    return MOXIE_OK;
}

moxie_status mox_config_text(const json_t *config, const char *key, const char *fallback, const char *file,
                             const char **out, moxie_error *error)
{
    const json_t *value = mox_config_find(config, key);
    if (value && !json_is_string(value))
        return wrong_type(value, key, "a string", file, error);
    *out = value ? json_string_value(value) : fallback;
    return MOXIE_OK;
}
