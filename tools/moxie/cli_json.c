/* SPDX-License-Identifier: Apache-2.0
 *
 * cli_json.c - JSON that is whole or not printed at all. Jansson returns NULL or -1 when there is no memory, and a key
 * would silently be missing. Here that ends the program with exit code 5.
 */
#include "cli.h"

#include <stdarg.h>
#include <stdlib.h>

json_t *cli_pack(const char *format, ...)
{
    json_error_t where;
    va_list arguments;
    va_start(arguments, format);
    json_t *value = json_vpack_ex(&where, 0, format, arguments);
    va_end(arguments);
    if (value)
        return value;
    if (json_error_code(&where) !=
        json_error_out_of_memory) /* a number that JSON cannot hold: a mistake of this program */
        fprintf(stderr, "moxie: no JSON could be made: %s\n", where.text);
    cli_no_memory();
}

json_t *cli_json_string(const char *text)
{
    return cli_pack("s", cli_utf8(text));
}

void cli_json_set(json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new(object, key, value) != 0)
        cli_no_memory();
}

void cli_json_append(json_t *array, json_t *value)
{
    if (json_array_append_new(array, value) != 0)
        cli_no_memory();
}

void cli_json_merge(json_t *object, json_t *more)
{
    if (json_object_update_new(object, more) != 0)
        cli_no_memory();
}

json_t *cli_json_begin(const char *command)
{
    return cli_pack("{s:i, s:s}", "schema_version", CLI_SCHEMA_VERSION, "command", command);
}

/* A failed write is reported at the end of the program (cli_exit.c). */
void cli_json_end(json_t *object)
{
    char *text = cli_json_text(object, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    if (!text)
        cli_no_memory();
    puts(text);
    cli_note_output();
    free(text);
}
