/* SPDX-License-Identifier: Apache-2.0
 *
 * json.c - Jansson with three additions: a limit on nesting, Python's non-finite literals, errors with positions.
 *
 *     text -> prepare (depth; Infinity, -Infinity, NaN -> null) -> json_loadb -> typed look-ups
 *
 * Jansson itself refuses invalid UTF-8, lone surrogates, NUL in names, trailing text, and integers beyond 64 bits.
 */
#include "ckpt/json.h"

#include <string.h>

#include "base/memory.h"
#include "base/sizes.h"
#include "ckpt/safetensors/file.h"

#define MAX_DEPTH 64

/* ---- the pre-pass ----------------------------------------------------------------------------------- */

/* Length of a non-finite literal at the start of `text`, else 0. */
static uint64_t non_finite(const char *text, uint64_t room)
{
    static const char *const words[] = { "-Infinity", "Infinity", "NaN" };
    for (int i = 0; i < 3; i++) {
        const uint64_t length = strlen(words[i]);
        if (length <= room && memcmp(text, words[i], length) == 0)
            return length;
    }
    return 0;
}

/* A text on its way to Jansson. Every literal becomes "null" and blanks up to its own length, so that positions
 * stay; only "NaN" is too short and moves what follows by one. */
typedef struct pass {
    const char *text;
    uint64_t size;
    bool lenient;
    char *out; /* NULL: only measure */
    uint64_t out_size;
    uint64_t literals;
    uint64_t too_deep_at; /* position of the bracket that nests too deep; `size` when there is none */
} pass;

static void emit(pass *p, const char *bytes, uint64_t n)
{
    if (p->out)
        memcpy(p->out + p->out_size, bytes, n);
    p->out_size += n;
}

/* What stands at `i` outside strings; returns how much of the text was used. */
static uint64_t outside(pass *p, uint64_t i, int64_t *depth)
{
    static const char replacement[] = "null     ";
    const uint64_t word = p->lenient ? non_finite(p->text + i, p->size - i) : 0;
    if (word) {
        p->literals++;
        emit(p, replacement, word < 4 ? 4 : word);
        return word;
    }
    const char c = p->text[i];
    *depth += (c == '{' || c == '[') - (c == '}' || c == ']');
    if (*depth > MAX_DEPTH && p->too_deep_at == p->size)
        p->too_deep_at = i;
    emit(p, &p->text[i], 1);
    return 1;
}

static void run(pass *p)
{
    int64_t depth = 0;
    bool in_string = false;
    p->too_deep_at = p->size;
    p->literals = p->out_size = 0;
    for (uint64_t i = 0; i < p->size;) {
        const char c = p->text[i];
        if (c == '"')
            in_string = !in_string;
        const uint64_t escape = in_string && c == '\\' && i + 1 < p->size;
        if (in_string || c == '"') {
            emit(p, &p->text[i], 1 + escape);
            i += 1 + escape;
        } else {
            i += outside(p, i, &depth);
        }
    }
}

static moxie_status fail_too_deep(const pass *p, const char *file, moxie_error *error)
{
    long long line = 1, column = 1;
    for (uint64_t i = 0; i < p->too_deep_at; i++) {
        column = p->text[i] == '\n' ? 1 : column + 1;
        line += p->text[i] == '\n';
    }
    return mox_fail_file(MOXIE_ERR_FORMAT, error, file, (int64_t)p->too_deep_at,
                         "line %lld, column %lld: more than %d levels of nesting", line, column, MAX_DEPTH);
}

/* ---- parsing ---------------------------------------------------------------------------------------- */

static moxie_status load(const char *text, uint64_t size, const char *file, json_t **out, moxie_error *error)
{
    json_error_t why;
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &why);
    if (root) {
        *out = root;
        return MOXIE_OK;
    }
    if (json_error_code(&why) == json_error_out_of_memory)
        return mox_fail_file(MOXIE_ERR_MEMORY, error, file, -1, "no memory to parse its %llu bytes",
                             (unsigned long long)size);
    /* Behind "near" Jansson quotes the file as it is, and a terminal may see this. */
    char *quote = strstr(why.text, " near ");
    if (quote)
        *quote = '\0';
    return mox_fail_file(MOXIE_ERR_FORMAT, error, file, why.position, "line %d, column %d: %s", why.line, why.column,
                         why.text);
}

moxie_status mox_json_parse(const char *text, uint64_t size, bool lenient, const char *file, json_t **out,
                            moxie_error *error)
{
    pass p = { .text = text, .size = size, .lenient = lenient };
    run(&p);
    if (p.too_deep_at < size)
        return fail_too_deep(&p, file, error);
    if (p.literals == 0)
        return load(text, size, file, out, error);
    p.out = mox_alloc(p.out_size);
    if (!p.out)
        return mox_fail_file(MOXIE_ERR_MEMORY, error, file, -1, "no memory to parse its %llu bytes",
                             (unsigned long long)size);
    run(&p);
    const moxie_status status = load(p.out, p.out_size, file, out, error);
    mox_free(p.out);
    return status;
}

moxie_status mox_json_load(const char *path, uint64_t limit, bool lenient, json_t **out, moxie_error *error)
{
    mox_file file = { 0 };
    MOX_TRY(mox_file_open(path, true, limit, &file, error));
    const moxie_status status = mox_json_parse((const char *)file.data, file.size, lenient, path, out, error);
    mox_file_close(&file);
    return status;
}

/* ---- look-ups --------------------------------------------------------------------------------------- */

static const char *type_name(const json_t *value)
{
    static const char *const names[] = { "an object",     "an array", "a string", "an integer",
                                         "a real number", "true",     "false",    "null" };
    return names[json_typeof(value)];
}

/* The value of `key`, or NULL when absent or null. */
static const json_t *present(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

static moxie_status wrong_type(const json_t *value, const char *key, const char *wanted, const char *file,
                               moxie_error *error)
{
    return mox_fail_file(MOXIE_ERR_FORMAT, error, file, -1, "\"%s\": expected %s, found %s", key, wanted,
                         type_name(value));
}

moxie_status mox_json_string(const json_t *object, const char *key, const char *fallback, const char *file,
                             const char **out, moxie_error *error)
{
    const json_t *value = present(object, key);
    if (value && !json_is_string(value))
        return wrong_type(value, key, "a string", file, error);
    *out = value ? json_string_value(value) : fallback;
    return MOXIE_OK;
}
