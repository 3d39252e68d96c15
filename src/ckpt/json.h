/* SPDX-License-Identifier: Apache-2.0
 *
 * json.h - the one place that knows Jansson: JSON texts in, errors with a place out.
 *
 * config.json files are written by Python and may hold bare Infinity, -Infinity and NaN, which are not
 * JSON: a pre-pass outside strings replaces them by values Jansson takes (strict mode refuses them).
 *
 * Jansson allocates by its own malloc. Its allocator is one setting for the whole process and the host may use
 * Jansson too, so the library never touches it; a test program that wants failing allocations inside Jansson
 * calls json_set_alloc_funcs() itself.
 */
#ifndef MOX_CKPT_JSON_H
#define MOX_CKPT_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "base/status.h"

/* Parses `size` bytes. Duplicate keys, deep nesting (> 64) and trailing text are errors with line and column.
 * `lenient` lets Python's non-finite literals through (as null). `file` is for messages. The result, an object or
 * an array, is the caller's (json_decref). */
moxie_status mox_json_parse(const char *text, uint64_t size, bool lenient, const char *file, json_t **out,
                            moxie_error *error);
/* Reads a regular file of at most `limit` bytes and parses it. MOXIE_ERR_IO when it cannot be read. */
moxie_status mox_json_load(const char *path, uint64_t limit, bool lenient, json_t **out, moxie_error *error);

/* Writes `value`, indented, as a whole file (base/whole_file.h). `value` NULL, what a failed call of Jansson's gives,
 * is MOXIE_ERR_MEMORY. */
moxie_status mox_json_write(const char *path, const json_t *value, moxie_error *error);

/* The string under `key`, borrowed from the object: the fallback when the key is absent or null; an error naming `file`
 * and key when it is no string. Values that may lie in sections or per-layer lists are family_config.h's. */
moxie_status mox_json_string(const json_t *object, const char *key, const char *fallback, const char *file,
                             const char **out, moxie_error *error);

#endif
