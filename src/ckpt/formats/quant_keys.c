/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_keys.c - walks a quantization configuration and compares each key with quant_keys.def.
 *
 *     rows that still fit, as a set       all rows of the method -> those whose first part is the key -> ...
 *     a key with no row left              reported
 *     a key whose row ends here           known, with all below if the row ends in "**"
 *
 * "*" in a row makes the key a "*" in the report, so that a thousand modules give one line.
 */
#include "ckpt/formats/quant_keys.h"

#include <stdio.h>
#include <string.h>

#include "ckpt/formats/config_text.h"

#define MAX_KEYS  64
#define MAX_DEPTH 16
#define PATH_SIZE 256

typedef struct key_row {
    const char *method, *path;
} key_row;

static const key_row rows[] = {
#define MOX_QUANT_KEY(method, path, reason) { method, path },
#include "ckpt/formats/quant_keys.def"
#undef MOX_QUANT_KEY
};
#define N_ROWS ((int)(sizeof rows / sizeof rows[0]))

typedef struct key_walk {
    mox_arena *arena;
    const char **found;
    int64_t count;
    bool fine;
} key_walk;

static bool is_first(const char *path, const char *part, size_t length)
{
    return strncmp(path, part, length) == 0 && (path[length] == '/' || path[length] == 0);
}

static void report(key_walk *walk, const char *path)
{
    char escaped[PATH_SIZE];
    mox_escape(escaped, sizeof escaped, path);
    for (int64_t i = 0; i < walk->count; i++)
        if (strcmp(walk->found[i], escaped) == 0)
            return;
    if (walk->count == MAX_KEYS)
        return;
    walk->found[walk->count] = mox_arena_printf(walk->arena, "%s", escaped);
    walk->fine = walk->found[walk->count++] != NULL;
}

static bool says_nothing(const json_t *value)
{
    return json_is_null(value) || (json_is_object(value) && json_object_size(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0);
}

/* What of the rows' paths remains behind the keys so far; NULL: the row does not fit. */
typedef struct key_rests {
    const char *path[N_ROWS];
} key_rests;

typedef struct key_step {
    bool known, starred, any;
} key_step;

/* One key further. */
static key_step step(const key_rests *rests, const char *key, key_rests *next)
{
    const size_t length = strlen(key);
    key_step found = { 0 };
    for (int i = 0; i < N_ROWS; i++) {
        const char *path = rests->path[i];
        next->path[i] = NULL;
        if (!path)
            continue;
        const bool star = is_first(path, "*", 1), same = is_first(path, key, length);
        found.known = found.known || strcmp(path, "**") == 0;
        if (!star && !same)
            continue;
        const char *rest = path + (star ? 1 : length);
        found.starred = found.starred || (star && !same);
        found.known = found.known || *rest == 0 || strcmp(rest, "/**") == 0;
        next->path[i] = *rest ? rest + 1 : NULL;
        found.any = found.any || *rest;
    }
    return found;
}

static void walk_object(key_walk *walk, const json_t *object, const key_rests *rests, const char *path, int depth)
{
    for (void *i = json_object_iter(mox_json_iterable(object)); i && walk->fine;
         i = json_object_iter_next(mox_json_iterable(object), i)) {
        const char *key = json_object_iter_key(i);
        const json_t *value = json_object_iter_value(i);
        char full[PATH_SIZE];
        key_rests next;
        if (says_nothing(value))
            continue;
        const key_step found = step(rests, key, &next);
        snprintf(full, sizeof full, "%s%s%s", path, *path ? "." : "", found.starred ? "*" : key);
        if (found.known)
            continue;
        if (found.any && json_is_object(value) && depth < MAX_DEPTH)
            walk_object(walk, value, &next, full, depth + 1);
        else
            report(walk, full);
    }
}

moxie_status mox_quant_unread_keys(const json_t *quant_config, mox_arena *arena, const char ***out, int64_t *count,
                                   moxie_error *error)
{
    key_walk walk = { .arena = arena, .fine = true };
    key_rests rests;
    for (int i = 0; i < N_ROWS; i++)
        rests.path[i] = !rows[i].method[0] || is_method(quant_config, rows[i].method) ? rows[i].path : NULL;
    walk.found = mox_arena_calloc(arena, MAX_KEYS, sizeof *walk.found);
    if (walk.found)
        walk_object(&walk, quant_config, &rests, "", 0);
    MOX_FAIL_IF(!walk.found || !walk.fine, MOXIE_ERR_MEMORY, error, "no memory for the keys of quantization_config");
    *out = walk.found;
    *count = walk.count;
    return MOXIE_OK;
}
