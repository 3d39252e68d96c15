/* SPDX-License-Identifier: Apache-2.0
 *
 * json.c - Jansson with additions: a limit on nesting, Python's non-finite literals, errors with positions, and safety
 * when memory runs out.
 *
 *     text -> pre-pass (depth; Infinity, -Infinity, NaN -> null) -> json_loadb -> typed look-ups
 *
 * Jansson itself rejects invalid UTF-8, lone surrogates, NUL in names, trailing text, and integers beyond 64 bits.
 *
 * Its parser (2.14) collects each token in one buffer. When that cannot grow, it drops a character silently, or an
 * assertion fails. So the parser gets ["xxx...", text], where the first string is longer than any token of the text.
 * The buffer grows for that string or never, and the parsed string shows whether it did. Without its closing quote the
 * string would run on past the buffer; so no growth may fall on that quote, and memory for the largest growth is
 * checked beforehand.
 */
#include "ckpt/json.h"

#include <string.h>

#include "base/memory.h"
#include "base/whole_file.h"
#include "ckpt/safetensors/file.h"

#define MAX_DEPTH 64

/* ---- the pre-pass ----------------------------------------------------------------------------------- */

/* Length of the non-finite literal at the start of `text`, 0 if there is none. */
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

/* The pre-pass. Every literal becomes "null" and blanks up to its own length, so that positions stay right; only "NaN"
 * is shorter than "null" and shifts what follows by one. */
typedef struct pass {
    const char *text;
    uint64_t size;
    bool lenient;
    char *out; /* NULL: only count */
    uint64_t out_size;
    uint64_t too_deep_at; /* position of the first bracket beyond the limit; `size` when there is none */
    uint64_t longest;     /* an upper bound of the bytes of the longest token */
} pass;

static void emit(pass *p, const char *bytes, uint64_t n)
{
    if (p->out)
        memcpy(p->out + p->out_size, bytes, n);
    p->out_size += n;
}

/* Copies what stands at `i` outside strings; returns how many bytes of the text were used. */
static uint64_t outside(pass *p, uint64_t i, int64_t *depth)
{
    static const char replacement[] = "null     ";
    const uint64_t word = p->lenient ? non_finite(p->text + i, p->size - i) : 0;
    if (word) {
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

/* Characters of numbers and of true, false, null. */
static bool in_word(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == 'E' || c == '+' || c == '-' || c == '.';
}

static void run(pass *p)
{
    int64_t depth = 0;
    uint64_t token = 0; /* bytes of the current token so far */
    bool in_string = false;
    p->too_deep_at = p->size;
    p->longest = p->out_size = 0;
    for (uint64_t i = 0; i < p->size;) {
        const char c = p->text[i];
        const uint64_t before = i;
        if (c == '"')
            in_string = !in_string;
        const uint64_t escape = in_string && c == '\\' && i + 1 < p->size;
        if (in_string || c == '"') {
            emit(p, &p->text[i], 1 + escape);
            i += 1 + escape;
        } else {
            i += outside(p, i, &depth);
        }
        token = c != '"' && (in_string || in_word(c)) ? token + (i - before) : 0;
        p->longest = token > p->longest ? token : p->longest;
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

static moxie_status no_memory(uint64_t size, const char *file, moxie_error *error)
{
    return mox_fail_file(MOXIE_ERR_MEMORY, error, file, -1, "no memory to parse its %llu bytes",
                         (unsigned long long)size);
}

/* True when Jansson's allocator, which the program may have replaced, can supply so many bytes. */
static bool has_memory(uint64_t bytes)
{
    json_malloc_t allocate;
    json_free_t release;
    json_get_alloc_funcs(&allocate, &release);
    void *block = allocate(bytes);
    release(block);
    return block != NULL;
}

/* Reports why Jansson did not parse this text: it parses it now, or the error is one of memory (both: no memory), or
 * the text is wrong. */
static moxie_status explain(const char *text, uint64_t size, const char *file, moxie_error *error)
{
    json_error_t why;
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &why);
    const bool accepted = root != NULL;
    json_decref(root);
    if (accepted || why.line < 0 || json_error_code(&why) == json_error_out_of_memory || !has_memory(64))
        return no_memory(size, file, error);
    /* Behind "near" Jansson quotes the file unescaped, and the text may reach a terminal. */
    char *quote = strstr(why.text, " near ");
    if (quote)
        *quote = '\0';
    return mox_fail_file(MOXIE_ERR_FORMAT, error, file, why.position,
                         "line %d, column %d: %s; is the file damaged or cut short?", why.line, why.column, why.text);
}

/* Length of the string in front of the text. With its quotes it is no power of two, where Jansson's buffer grows. */
static uint64_t padding_for(uint64_t longest)
{
    const uint64_t padding = longest + 16, token = padding + 2;
    return (token & (token - 1)) == 0 ? padding + 1 : padding;
}

/* The second element of [padding, text], or NULL. */
static json_t *unwrap_padded(json_t *list, uint64_t padding)
{
    json_t *root = json_array_get(list, 1);
    const bool good = json_array_size(list) == 2 && json_string_length(json_array_get(list, 0)) == padding &&
                      (json_is_object(root) || json_is_array(root));
    root = good ? json_incref(root) : NULL;
    json_decref(list);
    return root;
}

moxie_status mox_json_parse(const char *text, uint64_t size, bool lenient, const char *file, json_t **out,
                            moxie_error *error)
{
    static const char open[] = "[\"", between[] = "\",\n", close[] = "\n]";
    pass p = { .text = text, .size = size, .lenient = lenient };
    run(&p);
    if (p.too_deep_at < size)
        return fail_too_deep(&p, file, error);
    const uint64_t padding = padding_for(p.longest), head = sizeof open - 1 + padding + sizeof between - 1;
    char *padded = has_memory(4 * head) ? mox_alloc(head + p.out_size + sizeof close) : NULL;
    if (!padded)
        return no_memory(size, file, error);
    memcpy(padded, open, sizeof open - 1);
    memset(padded + sizeof open - 1, 'x', padding);
    memcpy(padded + head - (sizeof between - 1), between, sizeof between - 1);
    p.out = padded + head;
    run(&p);
    memcpy(p.out + p.out_size, close, sizeof close);
    const uint64_t all = head + p.out_size + sizeof close - 1;
    json_t *root = unwrap_padded(json_loadb(padded, all, JSON_REJECT_DUPLICATES, NULL), padding);
    const moxie_status status = root ? MOXIE_OK : explain(p.out, p.out_size, file, error);
    if (root)
        *out = root;
    mox_free(padded);
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

/* ---- writing ---------------------------------------------------------------------------------------- */

moxie_status mox_json_write(const char *path, const json_t *value, moxie_error *error)
{
    /* First the size, then the text, in memory, so that a failure leaves no half-written file. Jansson's other
     * functions silently drop keys that could not be written. Size 0 means failure. */
    const size_t size = value ? json_dumpb(value, NULL, 0, JSON_INDENT(2)) : 0;
    char *text = size > 0 ? mox_alloc(size) : NULL;
    const bool fine = text && json_dumpb(value, text, size, JSON_INDENT(2)) == size;
    const moxie_status status = fine ? mox_whole_file_write(path, text, size, error)
                                     : mox_fail_file(MOXIE_ERR_MEMORY, error, path, -1, "no memory for its text");
    mox_free(text);
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
