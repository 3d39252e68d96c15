/* SPDX-License-Identifier: Apache-2.0
 *
 * gguf_cursor.c - reading of a GGUF file from its start to its end (gguf_cursor.h).
 */
#include "ckpt/gguf/gguf_cursor.h"

#include "ckpt/utf8.h"

moxie_status mox_gguf_need(const mox_gguf_cursor *c, uint64_t bytes, const char *what)
{
    if (bytes > c->size - c->at)
        return MOX_GGUF_FAIL(c, MOXIE_ERR_FORMAT,
                             "%s takes %llu bytes, but only %llu follow: the file was cut short or damaged, copy or "
                             "download it again",
                             what, (unsigned long long)bytes, (unsigned long long)(c->size - c->at));
    return MOXIE_OK;
}

moxie_status mox_gguf_integer(mox_gguf_cursor *c, int bytes, const char *what, uint64_t *out)
{
    uint64_t value = 0;
    MOX_TRY(mox_gguf_need(c, (uint64_t)bytes, what));
    for (int i = bytes - 1; i >= 0; i--)
        value = value << 8 | c->file[c->at + (uint64_t)i];
    c->at += (uint64_t)bytes;
    *out = value;
    return MOXIE_OK;
}

moxie_status mox_gguf_string(mox_gguf_cursor *c, uint64_t limit, const char *what, mox_arena *arena, const char **out)
{
    uint64_t length = 0;
    MOX_TRY(mox_gguf_integer(c, 8, what, &length));
    if (length > limit)
        return MOX_GGUF_FAIL(c, MOXIE_ERR_FORMAT, "%s has %llu bytes, expected at most %llu", what,
                             (unsigned long long)length, (unsigned long long)limit);
    MOX_TRY(mox_gguf_need(c, length, what));
    const unsigned char *text = c->file + c->at;
    if (out) {
        for (uint64_t i = 0; i < length;) {
            const int32_t n = text[i] ? mox_utf8_length(text + i, length - i) : 0;
            if (n == 0)
                return MOX_GGUF_FAIL(c, MOXIE_ERR_FORMAT, "%s is no UTF-8 text, at byte %llu of it", what,
                                     (unsigned long long)i);
            i += (uint64_t)n;
        }
        *out = mox_arena_strndup(arena, (const char *)text, length);
        if (!*out)
            return MOX_GGUF_FAIL(c, MOXIE_ERR_MEMORY, "no memory for a name");
    }
    c->at += length;
    return MOXIE_OK;
}
