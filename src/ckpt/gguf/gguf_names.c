/* SPDX-License-Identifier: Apache-2.0
 *
 * gguf_names.c - looks names up in gguf_names.def (gguf_names.h).
 */
#include "ckpt/gguf/gguf_names.h"

#include <stdio.h>
#include <string.h>

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
