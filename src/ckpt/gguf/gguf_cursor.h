/* SPDX-License-Identifier: Apache-2.0
 *
 * gguf_cursor.h - numbers and strings of a GGUF file, each checked against the end of the file before it is read.
 */
#ifndef MOX_CKPT_GGUF_CURSOR_H
#define MOX_CKPT_GGUF_CURSOR_H

#include <stdbool.h>

#include "base/memory.h"
#include "base/status.h"

typedef struct mox_gguf_cursor {
    const unsigned char *file;
    uint64_t size, at;
    const char *path;
    moxie_error *error;
} mox_gguf_cursor;

/* Fails at the cursor's place. */
#define MOX_GGUF_FAIL(c, code, ...) mox_fail_file((code), (c)->error, (c)->path, (int64_t)(c)->at, __VA_ARGS__)

/* `bytes` more bytes are there; `what` names them in the error. */
moxie_status mox_gguf_need(const mox_gguf_cursor *c, uint64_t bytes, const char *what);
/* A little-endian integer of 1, 2, 4 or 8 bytes. */
moxie_status mox_gguf_integer(mox_gguf_cursor *c, int bytes, const char *what, uint64_t *out);
/* A string, copied and terminated: UTF-8 without a zero byte. At most `limit` bytes. `out` NULL: checked only. */
moxie_status mox_gguf_string(mox_gguf_cursor *c, uint64_t limit, const char *what, mox_arena *arena, const char **out);

#endif
