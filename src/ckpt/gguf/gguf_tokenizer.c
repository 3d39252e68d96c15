/* SPDX-License-Identifier: Apache-2.0
 *
 * gguf_tokenizer.c - reads a directory's tokenizer (gguf_tokenizer.h).
 */
#include "ckpt/gguf/gguf_tokenizer.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ckpt/families/family_config.h"
#include "ckpt/json.h"
#include "ckpt/safetensors/file.h"

#define FILE_LIMIT ((uint64_t)256 << 20)
enum { MAX_TOKENS = 1 << 22 };
enum { NORMAL = 1, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5 }; /* tokenizer.ggml.token_type */

typedef struct tokenizer {
    json_t *file, *settings; /* tokenizer.json; tokenizer_config.json, or NULL */
    const char *pre;
    int64_t count;
    const char **text; /* [count] borrowed; NULL: no such token */
    int8_t *type;
    json_t *made; /* keys and values */
    const char *why;
    bool failed; /* out of memory */
} tokenizer;

static const struct {
    const char *architecture, *pattern, *pre;
} rows[] = {
#define MOX_GGUF_TOKENIZER(architecture, pattern, pre) { architecture, pattern, pre },
#include "ckpt/gguf/gguf_tokenizers.def"
#undef MOX_GGUF_TOKENIZER
};

/* ---- what can be written ----------------------------------------------------------------------------- */

static bool is_type(const json_t *object, const char *type)
{
    const char *text = json_string_value(json_object_get(object, "type"));
    return text && strcmp(text, type) == 0;
}

/* The pattern of a pre-tokenizer: Split by a regular expression and then ByteLevel, or ByteLevel alone; else NULL. */
static const char *pattern_of(const json_t *pre)
{
    const json_t *list = json_object_get(pre, "pretokenizers");
    const json_t *split = json_array_get(list, 0), *level = json_array_get(list, 1);
    if (is_type(pre, "ByteLevel") && !json_is_true(json_object_get(pre, "add_prefix_space")))
        return json_is_false(json_object_get(pre, "use_regex")) ? NULL : "";
    if (!is_type(pre, "Sequence") || json_array_size(list) != 2 || !is_type(split, "Split") ||
        !is_type(level, "ByteLevel") || !json_is_false(json_object_get(level, "use_regex")) ||
        json_is_true(json_object_get(level, "add_prefix_space")) || json_is_true(json_object_get(split, "invert")))
        return NULL;
    return json_string_value(json_object_get(json_object_get(split, "pattern"), "Regex"));
}

static const char *pre_of(const char *architecture, const char *pattern)
{
    for (size_t i = 0; pattern && i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].architecture, architecture) == 0 && strcmp(rows[i].pattern, pattern) == 0)
            return rows[i].pre;
    return NULL;
}

/* Whether a post-processor only joins what it gets: ByteLevel, or a template of one sequence. */
static bool joins_only(const json_t *post)
{
    const json_t *list = json_object_get(post, "processors");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!joins_only(json_array_get(list, i)))
            return false;
    return !post || json_is_null(post) || is_type(post, "ByteLevel") || is_type(post, "Sequence") ||
           (is_type(post, "TemplateProcessing") && json_array_size(json_object_get(post, "single")) <= 1);
}

static bool has_byte_level(const json_t *post)
{
    const json_t *list = json_object_get(post, "processors");
    bool found = is_type(post, "ByteLevel");
    for (size_t i = 0; i < json_array_size(list); i++)
        found = found || is_type(json_array_get(list, i), "ByteLevel");
    return found;
}

static const char *check(tokenizer *t, const char *architecture)
{
    const json_t *model = json_object_get(t->file, "model"), *normalizer = json_object_get(t->file, "normalizer");
    if (!is_type(model, "BPE") || json_is_true(json_object_get(model, "byte_fallback")))
        return "tokenizer.json is no byte-level BPE";
    if (normalizer && !json_is_null(normalizer) && !is_type(normalizer, "NFC"))
        return "tokenizer.json has a normalizer other than NFC";
    if (!joins_only(json_object_get(t->file, "post_processor")))
        return "tokenizer.json has a post-processor that adds tokens";
    t->pre = pre_of(architecture, pattern_of(json_object_get(t->file, "pre_tokenizer")));
    return t->pre ? NULL : "tokenizer.json's pre-tokenizer is none that is known for this architecture";
}

/* ---- the vocabulary ---------------------------------------------------------------------------------- */

static void set_token(tokenizer *t, const char *text, json_int_t id, int8_t type)
{
    if (!text || id < 0 || id >= t->count) {
        t->why = "tokenizer.json has a token without text or number, or past config.json's vocab_size";
        return;
    }
    t->text[id] = text;
    t->type[id] = type;
}

/* llama.cpp takes such added tokens for control tokens, whatever they say. */
static bool looks_special(const char *text)
{
    static const char *const ends[][2] = { { "<|", "|>" }, { "<｜", "｜>" }, { "<unused", ">" } };
    const size_t length = strlen(text);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        const size_t tail = strlen(ends[i][1]);
        if (strncmp(text, ends[i][0], strlen(ends[i][0])) == 0 && length >= tail &&
            strcmp(text + length - tail, ends[i][1]) == 0)
            return true;
    }
    return strcmp(text, "<pad>") == 0 || strcmp(text, "<mask>") == 0 || strcmp(text, "<2mass>") == 0 ||
           strcmp(text, "[@BOS@]") == 0;
}

static void add_token(tokenizer *t, const json_t *token, json_int_t id)
{
    const char *text = json_string_value(json_object_get(token, "content"));
    const bool control = text && (json_is_true(json_object_get(token, "special")) || looks_special(text));
    if (text && !control && strstr(text, "\xe2\x96\x81"))
        t->why = "tokenizer.json has an added token with U+2581, which stands for a space";
    else
        set_token(t, text, id, control ? CONTROL : USER_DEFINED);
}

static bool is_number(const char *text)
{
    const size_t length = strlen(text);
    return length > 0 && length < 9 && strspn(text, "0123456789") == length;
}

static int64_t largest_id(const json_t *vocabulary, const json_t *added)
{
    json_int_t largest = -1;
    const char *text;
    json_t *id;
    json_object_foreach((json_t *)(uintptr_t)vocabulary, text, id) largest =
        json_integer_value(id) > largest ? json_integer_value(id) : largest;
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_int_t at = json_integer_value(json_object_get(json_array_get(added, i), "id"));
        largest = at > largest ? at : largest;
    }
    return largest < MAX_TOKENS ? largest : MAX_TOKENS; /* one more is too many, and no overflow */
}

static void read_vocabulary(tokenizer *t, const json_t *config)
{
    const json_t *vocabulary = json_object_get(json_object_get(t->file, "model"), "vocab");
    const json_t *added = json_object_get(t->file, "added_tokens"), *size = mox_config_find(config, "vocab_size");
    const char *text;
    json_t *id, *token;
    t->count = json_is_integer(size) ? json_integer_value(size) : largest_id(vocabulary, added) + 1;
    if (t->count < 1 || t->count > MAX_TOKENS) {
        t->why = "the vocabulary is empty, or has more than 4194304 tokens";
        return;
    }
    t->text = mox_calloc((uint64_t)t->count, sizeof *t->text);
    t->type = mox_calloc((uint64_t)t->count, sizeof *t->type);
    t->failed = !t->text || !t->type;
    if (t->failed)
        return;
    json_object_foreach((json_t *)(uintptr_t)vocabulary, text, id)
        set_token(t, text, json_is_integer(id) ? json_integer_value(id) : -1, NORMAL);
    json_object_foreach(json_object_get(t->settings, "added_tokens_decoder"), text, token)
        add_token(t, token, is_number(text) ? atoll(text) : -1);
    for (size_t i = 0; i < json_array_size(added); i++) {
        token = json_array_get(added, i);
        id = json_object_get(token, "id");
        add_token(t, token, json_is_integer(id) ? json_integer_value(id) : -1);
    }
}

/* ---- keys -------------------------------------------------------------------------------------------- */

static void put(tokenizer *t, const char *key, json_t *value)
{
    t->failed = json_object_set_new(t->made, key, value) != 0 || t->failed;
}

static void put_tokens(tokenizer *t)
{
    json_t *texts = json_array(), *types = json_array();
    char unused[32];
    t->failed = t->failed || !texts || !types;
    for (int64_t i = 0; i < t->count && !t->failed; i++) {
        snprintf(unused, sizeof unused, "[PAD%lld]", (long long)i);
        t->failed = json_array_append_new(texts, json_string(t->text[i] ? t->text[i] : unused)) != 0 ||
                    json_array_append_new(types, json_integer(t->text[i] ? t->type[i] : UNUSED)) != 0;
    }
    put(t, "tokenizer.ggml.tokens", texts);
    put(t, "tokenizer.ggml.token_type", types);
}

/* Two texts with one space between. */
static bool is_pair(const char *text)
{
    const char *space = strchr(text, ' ');
    return space && space > text && space[1] && !strchr(space + 1, ' ');
}

/* One merge as text: its halves, and a space between; a space in a half as byte-level BPE writes it. */
static json_t *merge_of(const json_t *merge)
{
    static const char space[] = "\xc4\xa0"; /* U+0120 */
    char text[4096];
    size_t at = 0;
    if (json_is_string(merge))
        return is_pair(json_string_value(merge)) ? json_string(json_string_value(merge)) : NULL;
    for (size_t half = 0; half < 2; half++) {
        const char *part = json_string_value(json_array_get(merge, half));
        if (!part || !part[0] || json_array_size(merge) != 2 || at + 2 * strlen(part) + 2 > sizeof text)
            return NULL;
        if (half == 1)
            text[at++] = ' ';
        for (; *part; part++) {
            const size_t n = *part == ' ' ? sizeof space - 1 : 1;
            memcpy(text + at, *part == ' ' ? space : part, n);
            at += n;
        }
    }
    return json_stringn(text, at);
}

static void put_merges(tokenizer *t)
{
    const json_t *merges = json_object_get(json_object_get(t->file, "model"), "merges");
    json_t *texts = json_array();
    if (json_array_size(merges) == 0)
        t->why = "tokenizer.json has no merges";
    for (size_t i = 0; i < json_array_size(merges) && texts && !t->why; i++) {
        json_t *text = merge_of(json_array_get(merges, i));
        if (!text)
            t->why = "tokenizer.json has a merge that is no pair of texts";
        else
            t->failed = json_array_append_new(texts, text) != 0 || t->failed;
    }
    put(t, "tokenizer.ggml.merges", texts);
}

/* The number of an added token with this text; negative: there is none. */
static json_int_t id_of(const tokenizer *t, const json_t *entry)
{
    const char *wanted = json_string_value(json_is_object(entry) ? json_object_get(entry, "content") : entry);
    const json_t *added = json_object_get(t->file, "added_tokens");
    for (size_t i = 0; wanted && i < json_array_size(added); i++) {
        const json_t *token = json_array_get(added, i);
        const char *text = json_string_value(json_object_get(token, "content"));
        if (text && strcmp(text, wanted) == 0)
            return json_integer_value(json_object_get(token, "id"));
    }
    return -1;
}

static void put_special(tokenizer *t, const json_t *config)
{
    static const char *const kinds[][2] = { { "bos", "bos" },       { "eos", "eos" },     { "unk", "unknown" },
                                            { "sep", "seperator" }, { "pad", "padding" }, { "cls", "cls" },
                                            { "mask", "mask" } };
    const bool adds_none = has_byte_level(json_object_get(t->file, "post_processor"));
    char key[64];
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        snprintf(key, sizeof key, "%s_token", kinds[i][0]);
        json_int_t id = id_of(t, json_object_get(t->settings, key));
        snprintf(key, sizeof key, "%s_token_id", kinds[i][0]);
        const json_t *given = mox_config_find(config, key);
        id = id < 0 && json_is_integer(given) ? json_integer_value(given) : id;
        snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", kinds[i][1]);
        if (id >= 0 && id < t->count)
            put(t, key, json_integer(id));
        snprintf(key, sizeof key, "add_%s_token", kinds[i][0]);
        const json_t *adds = json_object_get(t->settings, key);
        snprintf(key, sizeof key, "tokenizer.ggml.add_%s_token", kinds[i][0]);
        if (i < 2 && (adds_none || json_is_boolean(adds)))
            put(t, key, json_boolean(!adds_none && json_is_true(adds)));
    }
}

/* The template of a file beside, unless tokenizer_config.json has one. Text that is not UTF-8 is none. */
static void put_template(tokenizer *t, const char *dir)
{
    char path[PATH_MAX];
    mox_file file = { 0 };
    const json_t *own = json_object_get(t->settings, "chat_template");
    snprintf(path, sizeof path, "%s/chat_template.jinja", dir);
    if (json_is_string(own)) {
        put(t, "tokenizer.chat_template", json_string(json_string_value(own)));
    } else if (!own && t->settings && mox_file_exists(path) &&
               mox_file_open(path, true, FILE_LIMIT, &file, NULL) == MOXIE_OK) {
        json_t *text = json_stringn((const char *)file.data, file.size);
        if (text && strlen(json_string_value(text)) == file.size)
            put(t, "tokenizer.chat_template", json_incref(text));
        json_decref(text);
        mox_file_close(&file);
    }
}

/* ---- all of it --------------------------------------------------------------------------------------- */

/* NULL: there is no such file, or it cannot be read, which `damaged` says. */
static json_t *load(tokenizer *t, const char *dir, const char *name, const char *damaged)
{
    char path[PATH_MAX];
    json_t *out = NULL;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    const moxie_status status = mox_file_exists(path) ? mox_json_load(path, FILE_LIMIT, true, &out, NULL) : MOXIE_OK;
    t->failed = t->failed || status == MOXIE_ERR_MEMORY;
    t->why = status != MOXIE_OK ? damaged : t->why;
    return out;
}

static void make(tokenizer *t, const char *dir, const char *architecture, const json_t *config)
{
    t->file = load(t, dir, "tokenizer.json", "tokenizer.json cannot be read: it is damaged, or too large");
    t->settings = load(t, dir, "tokenizer_config.json", "tokenizer_config.json cannot be read: it is damaged");
    t->made = json_object();
    t->failed = t->failed || !t->made;
    if (!t->why)
        t->why = t->file ? check(t, architecture) : "there is no tokenizer.json";
    if (!t->why && !t->failed)
        read_vocabulary(t, config);
    if (t->why || t->failed)
        return;
    put(t, "tokenizer.ggml.model", json_string("gpt2"));
    put(t, "tokenizer.ggml.pre", json_string(t->pre));
    put_tokens(t);
    put_merges(t);
    put_special(t, config);
    put_template(t, dir);
}

moxie_status mox_gguf_tokenizer_add(const char *dir, const char *architecture, const json_t *config, json_t *metadata,
                                    int64_t *tokens, const char **why, moxie_error *error)
{
    tokenizer t = { 0 };
    make(&t, dir, architecture, config);
    *why = t.why;
    *tokens = t.why ? 0 : t.count;
    if (!t.why && !t.failed)
        t.failed = json_object_update(metadata, t.made) != 0;
    json_decref(t.file);
    json_decref(t.settings);
    json_decref(t.made);
    mox_free(t.text);
    mox_free(t.type);
    MOX_FAIL_IF(t.failed, MOXIE_ERR_MEMORY, error, "no memory for a tokenizer of %s", dir);
    return MOXIE_OK;
}
