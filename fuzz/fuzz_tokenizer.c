/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_tokenizer.c - a directory's tokenizer on its way into a GGUF file.
 *
 * An input is an architecture, config.json, tokenizer_config.json and chat_template.jinja, a line each, and
 * tokenizer.json. Of an empty line there is no file.
 *
 * Promises: all keys or none, with a reason; each token has a text and a type; merges are pairs of texts; special
 * tokens are tokens.
 */
#include "fuzz_scratch.h"

#include <string.h>

#include "base/memory.h"
#include "ckpt/gguf/gguf_tokenizer.h"

#define KEY "tokenizer.ggml."

typedef struct input {
    const uint8_t *data;
    uint64_t size;
} input;

static input next_line(input *rest)
{
    const uint8_t *end = rest->size > 0 ? memchr(rest->data, '\n', (size_t)rest->size) : NULL;
    const input line = { rest->data, end ? (uint64_t)(end - rest->data) : rest->size };
    const uint64_t used = line.size + (end != NULL);
    *rest = (input) { rest->data + used, rest->size - used };
    return line;
}

static void write_part(const char *name, input part)
{
    fuzz_remove(name);
    if (part.size > 0)
        fuzz_write(name, part.data, part.size);
}

/* A merge is two texts that are not empty, and a blank between. */
static void check_merge(const char *merge)
{
    const char *blank = merge ? strchr(merge, ' ') : NULL;
    FUZZ_CHECK(blank && blank > merge && blank[1] != '\0' && !strchr(blank + 1, ' '));
}

static void check_special(json_t *made, int64_t tokens)
{
    const char *key;
    json_t *value;
    json_object_foreach(made, key, value)
    {
        const char *tail = strstr(key, "_token_id");
        if (tail && tail[strlen("_token_id")] == '\0')
            FUZZ_CHECK(json_is_integer(value) && json_integer_value(value) >= 0 && json_integer_value(value) < tokens);
    }
}

static void check(json_t *made, int64_t tokens)
{
    const json_t *texts = json_object_get(made, KEY "tokens"), *types = json_object_get(made, KEY "token_type");
    const json_t *merges = json_object_get(made, KEY "merges");
    FUZZ_CHECK(tokens > 0 && json_array_size(texts) == (size_t)tokens && json_array_size(types) == (size_t)tokens);
    for (size_t i = 0; i < (size_t)tokens; i++) {
        const json_int_t type = json_integer_value(json_array_get(types, i));
        FUZZ_CHECK(json_is_string(json_array_get(texts, i)) && (type == 1 || (type >= 3 && type <= 5)));
    }
    FUZZ_CHECK(json_array_size(merges) > 0);
    for (size_t i = 0; i < json_array_size(merges); i++)
        check_merge(json_string_value(json_array_get(merges, i)));
    FUZZ_CHECK(json_is_string(json_object_get(made, KEY "model")) && json_is_string(json_object_get(made, KEY "pre")));
    check_special(made, tokens);
}

void mox_fuzz_tokenizer(const uint8_t *data, uint64_t size)
{
    input rest = { data, size };
    const input architecture = next_line(&rest), config_text = next_line(&rest);
    char name[32] = { 0 };
    for (uint64_t i = 0; i < architecture.size && i < sizeof name - 1; i++)
        name[i] = (char)architecture.data[i];
    write_part("tokenizer_config.json", next_line(&rest));
    write_part("chat_template.jinja", next_line(&rest));
    write_part("tokenizer.json", rest);
    json_t *config = json_loadb((const char *)config_text.data, config_text.size, JSON_REJECT_DUPLICATES, NULL);
    json_t *made = json_object();
    const char *why = NULL;
    int64_t tokens = -1;
    moxie_error error = { 0 };
    FUZZ_CHECK(made);
    FUZZ_CHECK(mox_gguf_tokenizer_add(fuzz_scratch(), name, config, made, &tokens, &why, &error) == MOXIE_OK);
    if (why)
        FUZZ_CHECK(why[0] && tokens == 0 && json_object_size(made) == 0);
    else
        check(made, tokens);
    json_decref(config);
    json_decref(made);
}
