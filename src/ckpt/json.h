/* SPDX-License-Identifier: Apache-2.0
 *
 * json.h - the only user of Jansson's parser: JSON text in, errors with a position out.
 *
 * Python writes config.json files, which may hold bare Infinity, -Infinity and NaN. They are not JSON: a pre-pass
 * outside strings replaces them by null (strict mode rejects them).
 *
 * Jansson allocates by its own malloc. Its allocator is one setting for the whole process, and the host may use Jansson
 * too, so the library never changes it. A test program that wants failing allocations inside Jansson calls
 * json_set_alloc_funcs() itself.
 */
#ifndef MOX_CKPT_JSON_H
#define MOX_CKPT_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "base/status.h"

/* Parses `size` bytes. Duplicate keys, nesting deeper than 64 and trailing text are errors with line and column.
 * `lenient` accepts Python's non-finite literals, as null. `file` is for messages. The result, an object or an array,
 * belongs to the caller (json_decref). */
moxie_status mox_json_parse(const char *text, uint64_t size, bool lenient, const char *file, json_t **out,
                            moxie_error *error);
/* Reads a regular file of at most `limit` bytes and parses it. MOXIE_ERR_IO when it cannot be read. */
moxie_status mox_json_load(const char *path, uint64_t limit, bool lenient, json_t **out, moxie_error *error);

/* Writes `value`, indented, as a whole file (base/whole_file.h). `value` NULL, the result of a failed Jansson call,
 * gives MOXIE_ERR_MEMORY. */
moxie_status mox_json_write(const char *path, const json_t *value, moxie_error *error);

/* The string under `key`, borrowed from the object; `fallback` when the key is absent or null; an error naming file and
 * key when the value is no string. For values in sections or per-layer lists use family_config.h. */
moxie_status mox_json_string(const json_t *object, const char *key, const char *fallback, const char *file,
                             const char **out, moxie_error *error);

#endif
