/* SPDX-License-Identifier: Apache-2.0
 *
 * gguf_names.c - looks names up in gguf_names.def (gguf_names.h).
 */
#include "ckpt/gguf/gguf_names.h"

#include <stdio.h>
#include <string.h>

#include "ckpt/families/family_config.h"

static const char *const same_values[] = {
#define MOX_GGUF_SAME_VALUES(architecture) architecture,
#include "ckpt/gguf/gguf_names.def"
};

static const struct {
    const char *architecture, *name[2]; /* in a checkpoint, in a GGUF file */
} rows[] = {
#define MOX_GGUF_NAME(architecture, gguf, checkpoint) { architecture, { checkpoint, gguf } },
#include "ckpt/gguf/gguf_names.def"
};

static const struct {
    const char *config, *gguf;
    bool real;
} keys[] = {
#define MOX_GGUF_KEY(gguf, config, real) { config, gguf, real },
#include "ckpt/gguf/gguf_names.def"
};

/* Fills the layer of `name`, which fits template `from`, into `to`. */
static bool translate(const char *from, const char *to, const char *name, char *out, size_t size)
{
    static const char layer[] = "{L}";
    const char *mark = strstr(from, layer), *place = strstr(to, layer);
    if (!mark || !place)
        return strcmp(from, name) == 0 && (size_t)snprintf(out, size, "%s", to) < size;
    const size_t before = (size_t)(mark - from);
    if (strncmp(from, name, before) != 0)
        return false;
    const size_t digits = strspn(name + before, "0123456789");
    if (digits < 1 || digits > 6 || strcmp(name + before + digits, mark + sizeof layer - 1) != 0)
        return false;
    return (size_t)snprintf(out, size, "%.*s%.*s%s", (int)(place - to), to, (int)digits, name + before,
                            place + sizeof layer - 1) < size;
}

bool mox_gguf_rename(const char *architecture, bool to_gguf, const char *name, char *out, size_t size)
{
    bool known = false;
    for (size_t i = 0; i < sizeof same_values / sizeof same_values[0]; i++)
        known = known || strcmp(same_values[i], architecture) == 0;
    for (size_t i = 0; known && i < sizeof rows / sizeof rows[0]; i++)
        if ((!rows[i].architecture || strcmp(rows[i].architecture, architecture) == 0) &&
            translate(rows[i].name[!to_gguf], rows[i].name[to_gguf], name, out, size))
            return true;
    return false;
}

/* Sets `key` to a number, unless there is one or it is none. */
static bool put(json_t *to, const char *key, const json_t *value, bool real)
{
    if (!json_is_number(value) || json_object_get(to, key))
        return true;
    json_t *copy = real ? json_real(json_number_value(value)) : json_deep_copy(value);
    return copy && json_object_set_new(to, key, copy) == 0;
}

bool mox_gguf_keys_to_metadata(const char *architecture, const json_t *config, json_t *metadata)
{
    bool fine = true;
    for (size_t i = 0; fine && i < sizeof keys / sizeof keys[0]; i++) {
        char full[128];
        snprintf(full, sizeof full, "%s.%s", architecture, keys[i].gguf);
        fine = put(metadata, full, mox_config_find(config, keys[i].config), keys[i].real);
    }
    return fine;
}

bool mox_gguf_keys_to_config(const char *architecture, const json_t *metadata, json_t *config)
{
    bool fine = true;
    for (size_t i = 0; fine && i < sizeof keys / sizeof keys[0]; i++) {
        char full[128];
        snprintf(full, sizeof full, "%s.%s", architecture, keys[i].gguf);
        fine = put(config, keys[i].config, json_object_get(metadata, full), keys[i].real);
    }
    return fine;
}
