/* SPDX-License-Identifier: Apache-2.0
 *
 * trace_base64.c - SGLang's routed_experts: base64 of int32 [tokens, layers, top_k], little-endian.
 *
 *     {"meta_info": {"routed_experts": "AAAA..."}, ...}     a response, as the server sends it; or a list of them
 *     "AAAA..." or AAAA...                                  the text alone
 *
 * The array does not tell its sizes: --layers A-B and --top-k do, or "shape", which moxie writes beside it.
 */
#include "trace_tool.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* Bytes of base64 text of `length` letters; free() them. White space is skipped. */
static moxie_status decode(const char *path, const char *text, size_t length, unsigned char **out, int64_t *count,
                           moxie_error *error)
{
    unsigned char *bytes = malloc(length / 4 * 3 + 3);
    uint32_t bits = 0;
    int held = 0;
    size_t i = 0;
    if (!bytes)
        return cli_error(MOXIE_ERR_MEMORY, error, path, "no memory for %zu letters of base64", length);
    *count = 0;
    for (; i < length && text[i] != '='; i++) {
        const char *at = text[i] ? strchr(alphabet, text[i]) : NULL;
        if (isspace((unsigned char)text[i]))
            continue;
        if (!at)
            break;
        bits = bits << 6 | (uint32_t)(at - alphabet);
        held += 6;
        if (held >= 8) {
            held -= 8;
            bytes[(*count)++] = (unsigned char)(bits >> held);
        }
    }
    while (i < length && (text[i] == '=' || isspace((unsigned char)text[i])))
        i++;
    *out = bytes;
    if (i == length && held < 6 && (bits & ((1u << held) - 1)) == 0)
        return MOXIE_OK;
    return cli_error(MOXIE_ERR_FORMAT, error, path, "letter %zu of routed_experts is no base64", i);
}

/* Appends the tokens of one array; layers and top_k are known. */
static moxie_status take_text(const char *path, const char *text, size_t length, const trace_arguments *args,
                              trace_table *table, moxie_error *error)
{
    unsigned char *bytes = NULL;
    int64_t count = 0;
    const int64_t row = (int64_t)table->layers * table->top_k, first = table->tokens * row;
    moxie_status status = decode(path, text, length, &bytes, &count, error);
    if (status == MOXIE_OK && count % (4 * row))
        status = cli_error(MOXIE_ERR_MISMATCH, error, path,
                           "routed_experts has %lld bytes; a token of %d layers with %d choices has %lld: are --layers "
                           "and --top-k right?",
                           (long long)count, table->layers, table->top_k, (long long)(4 * row));
    if (status == MOXIE_OK)
        status = trace_table_grow(table, count / (4 * row), path, error);
    for (int64_t i = 0; status == MOXIE_OK && i < count / 4; i++)
        memcpy(&table->ids[first + i], bytes + 4 * i, 4);
    if (status == MOXIE_OK)
        trace_table_number(table, first / row, args);
    free(bytes);
    return status;
}

static moxie_status sizes(const char *path, const json_t *shape, const trace_arguments *args, trace_table *table,
                          moxie_error *error)
{
    const bool told = json_array_size(shape) == 3;
    const int64_t layers =
        told ? json_integer_value(json_array_get(shape, 1)) : args->last_layer - args->first_layer + 1;
    const int64_t top_k = told ? json_integer_value(json_array_get(shape, 2)) : args->top_k;
    if (!told && (args->first_layer < 0 || args->top_k < 1))
        return cli_error(MOXIE_ERR_ARGUMENT, error, path,
                         "routed_experts does not tell its sizes: give --layers A-B, the MoE layers, and --top-k K");
    return trace_set_sizes(table, layers, top_k, path, error);
}

/* A response, or the text alone. */
static moxie_status take_value(const char *path, const json_t *value, const trace_arguments *args, trace_table *table,
                               moxie_error *error)
{
    const json_t *meta = json_object_get(value, "meta_info");
    const json_t *text = json_object_get(meta ? meta : value, "routed_experts");
    if (json_is_string(value))
        text = value;
    if (!json_is_string(text))
        return cli_error(MOXIE_ERR_FORMAT, error, path,
                         "it has no \"routed_experts\" of base64: ask SGLang for it with return_routed_experts");
    moxie_status status = sizes(path, json_object_get(value, "shape"), args, table, error);
    if (status == MOXIE_OK)
        status = take_text(path, json_string_value(text), json_string_length(text), args, table, error);
    return status;
}

static moxie_status read_json(const char *path, const char *text, uint64_t size, const trace_arguments *args,
                              trace_table *table, moxie_error *error)
{
    json_t *root = NULL;
    moxie_status status = cli_json_parse(text, (size_t)size, path, &root, error);
    if (status == MOXIE_OK && json_is_array(root) && json_array_size(root) == 0)
        status = cli_error(MOXIE_ERR_FORMAT, error, path, "the list has no response");
    if (status == MOXIE_OK && !json_is_array(root))
        status = take_value(path, root, args, table, error);
    for (size_t i = 0; status == MOXIE_OK && json_is_array(root) && i < json_array_size(root); i++)
        status = take_value(path, json_array_get(root, i), args, table, error);
    json_decref(root);
    return status;
}

moxie_status trace_base64_read(const char *path, const trace_arguments *args, trace_table *table, moxie_error *error)
{
    char *text = NULL;
    uint64_t size = 0;
    moxie_status status = moxie_file_read(path, TRACE_MAX_BYTES, &text, &size, error);
    if (status != MOXIE_OK)
        return status;
    const char first = text[strspn(text, " \t\r\n")];
    if (first && strchr("{[\"", first)) {
        status = read_json(path, text, size, args, table, error);
    } else {
        status = sizes(path, NULL, args, table, error);
        if (status == MOXIE_OK)
            status = take_text(path, text, (size_t)size, args, table, error);
    }
    moxie_file_free(text);
    return status;
}

moxie_status trace_base64_write(const char *path, const trace_table *t, moxie_error *error)
{
    const size_t count = 4 * (size_t)(t->tokens * t->layers * t->top_k);
    const unsigned char *bytes = (const unsigned char *)t->ids;
    char *text = malloc(count / 3 * 4 + 5);
    size_t n = 0;
    if (!text)
        return cli_error(MOXIE_ERR_MEMORY, error, path, "no memory for %lld %s", CLI_COUNT(t->tokens, "token"));
    for (size_t i = 0; i < count; i += 3) {
        const size_t have = count - i < 3 ? count - i : 3;
        const uint32_t bits =
            (uint32_t)bytes[i] << 16 | (have > 1 ? (uint32_t)bytes[i + 1] << 8 : 0) | (have > 2 ? bytes[i + 2] : 0);
        for (size_t j = 0; j < 4; j++)
            text[n++] = j <= have ? alphabet[bits >> (18 - 6 * j) & 63] : '=';
    }
    text[n] = '\0';
    const moxie_status status = cli_json_write(path,
                                               json_pack("{s:{s:s}, s:[I,i,i]}", "meta_info", "routed_experts", text,
                                                         "shape", (json_int_t)t->tokens, (int)t->layers, (int)t->top_k),
                                               JSON_COMPACT, error);
    free(text);
    return status;
}
