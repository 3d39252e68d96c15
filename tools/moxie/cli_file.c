/* SPDX-License-Identifier: Apache-2.0
 *
 * cli_file.c - JSON files: read from regular files of a limited size, written whole or not at all.
 *
 *     path -> moxie_file_read -> Jansson          Jansson -> all of the text in memory -> moxie_file_write -> path
 */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

moxie_status cli_json_parse(const char *text, size_t size, const char *path, json_t **out, moxie_error *error)
{
    json_error_t where;
    *out = json_loadb(text, size, JSON_REJECT_DUPLICATES, &where);
    if (*out)
        return MOXIE_OK;
    if (json_error_code(&where) == json_error_out_of_memory)
        return cli_error(MOXIE_ERR_MEMORY, error, path, "no memory to parse its %zu bytes", size);
    /* After "near" Jansson quotes the file unchanged, and a terminal may show it. */
    char *quote = strstr(where.text, " near ");
    if (quote)
        *quote = '\0';
    cli_error(MOXIE_ERR_FORMAT, error, path, "line %d, column %d: %s", where.line, where.column, where.text);
    error->offset = where.position;
    return MOXIE_ERR_FORMAT;
}

moxie_status cli_json_read(const char *path, uint64_t limit, json_t **out, moxie_error *error)
{
    char *text = NULL;
    uint64_t size = 0;
    moxie_status status = moxie_file_read(path, limit, &text, &size, error);
    if (status == MOXIE_OK)
        status = cli_json_parse(text, (size_t)size, path, out, error);
    moxie_file_free(text);
    return status;
}

char *cli_json_text(json_t *value, size_t flags)
{
    /* Jansson (2.14) does not notice that a key could not be written: json_dumps() without memory and json_dumpf() on a
     * full disk lose it. Into a buffer that is large enough, all of it is written. 0 is a failure. */
    const size_t size = value ? json_dumpb(value, NULL, 0, flags) : 0;
    char *text = size > 0 ? calloc(size + 1, 1) : NULL;
    const bool fine = text && json_dumpb(value, text, size, flags) == size;
    json_decref(value);
    if (fine)
        return text;
    free(text);
    return NULL;
}

moxie_status cli_json_write(const char *path, json_t *value, size_t flags, moxie_error *error)
{
    char *text = cli_json_text(value, flags);
    const moxie_status status = text ? moxie_file_write(path, text, strlen(text), error)
                                     : cli_error(MOXIE_ERR_MEMORY, error, path, "no memory for its text");
    free(text);
    return status;
}
