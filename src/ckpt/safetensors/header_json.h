/* SPDX-License-Identifier: Apache-2.0
 *
 * header_json.h - the tokens of a safetensors header: a small, strict subset of JSON.
 *
 * A header is one object of objects of strings and whole numbers, so no general parser is needed, and none is strict
 * enough. Here a number is an unsigned integer of 48 bits without sign, fraction, exponent or leading zero. Strings are
 * UTF-8 without NUL and without lone surrogates, also when escaped. There is no recursion.
 */
#ifndef MOX_CKPT_HEADER_JSON_H
#define MOX_CKPT_HEADER_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include "base/memory.h"
#include "base/status.h"

/* The largest integer of a header: 2^48 - 1. */
#define MOX_HEADER_MAX_INTEGER ((UINT64_C(1) << 48) - 1)

typedef struct mox_cursor {
    const unsigned char *at, *end; /* what is left to read */
    const unsigned char *file;     /* byte 0 of the file, for the offsets in messages */
    const char *path;
    moxie_error *error;
} mox_cursor;

/* Fails with MOXIE_ERR_FORMAT at the cursor. A macro, so that the compiler checks the format string. */
#define MOX_CURSOR_FAIL(cursor, ...)                                                                                   \
    mox_fail_file(MOXIE_ERR_FORMAT, (cursor)->error, (cursor)->path, (cursor)->at - (cursor)->file, __VA_ARGS__)

/* Skips white space, and `token` if it comes next; returns whether it did. */
bool mox_cursor_accept(mox_cursor *cursor, char token);
/* As above, but anything else is an error. `where` ends the sentence "expected ':' ...". */
moxie_status mox_cursor_expect(mox_cursor *cursor, char token, const char *where);
/* A string, unescaped into the arena. */
moxie_status mox_cursor_string(mox_cursor *cursor, mox_arena *arena, const char **out);
/* A short string, unescaped into `out`, cut to `size` - 1 bytes; size is not 0. */
moxie_status mox_cursor_word(mox_cursor *cursor, char *out, uint64_t size);
moxie_status mox_cursor_integer(mox_cursor *cursor, uint64_t *out);

#endif
