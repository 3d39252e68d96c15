/* SPDX-License-Identifier: Apache-2.0
 *
 * status.c - fills moxie_error, and makes names from files safe to print.
 *
 * All texts live in the fixed arrays of moxie_error: reporting a failure never allocates, so running out
 * of memory is reported like anything else. A text that does not fit ends in "...".
 */
#include "base/status.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char ellipsis[] = "...";

const char *mox_status_name(moxie_status status)
{
    switch (status) {
    case MOXIE_OK: return "ok";
    case MOXIE_ERR_ARGUMENT: return "argument";
    case MOXIE_ERR_UNSUPPORTED: return "unsupported";
    case MOXIE_ERR_MEMORY: return "memory";
    case MOXIE_ERR_IO: return "io";
    case MOXIE_ERR_FORMAT: return "format";
    case MOXIE_ERR_MISMATCH: return "mismatch";
    case MOXIE_ERR_TIMEOUT: return "timeout";
    }
    return "unknown";
}

void mox_format_text(char *buffer, size_t size, const char *format, va_list arguments)
{
    const int wanted = vsnprintf(buffer, size, format, arguments);
    if (wanted < 0) {
        buffer[0] = '\0';
        return;
    }
    if ((size_t)wanted < size)
        return;
    size_t cut = size - sizeof ellipsis;
    while (cut > 0 && ((unsigned char)buffer[cut] & 0xc0) == 0x80)
        cut--; /* never leave half a UTF-8 sequence */
    memcpy(buffer + cut, ellipsis, sizeof ellipsis);
}

moxie_status mox_fail(moxie_status code, moxie_error *error, const char *format, ...)
{
    if (error) {
        va_list arguments;
        error->code = code;
        error->offset = -1;
        error->file[0] = '\0';
        memset(error->reserved, 0, sizeof error->reserved);
        va_start(arguments, format);
        mox_format_text(error->text, sizeof error->text, format, arguments);
        va_end(arguments);
    }
    return code;
}

moxie_status mox_fail_file(moxie_status code, moxie_error *error, const char *file, int64_t offset, const char *format,
                           ...)
{
    if (error) {
        va_list arguments;
        error->code = code;
        error->offset = offset;
        memset(error->reserved, 0, sizeof error->reserved);
        mox_escape(error->file, sizeof error->file, file);
        va_start(arguments, format);
        mox_format_text(error->text, sizeof error->text, format, arguments);
        va_end(arguments);
    }
    return code;
}

moxie_status mox_fail_context(moxie_status code, moxie_error *error, const char *format, ...)
{
    if (error) {
        char context[sizeof error->text];
        va_list arguments;
        va_start(arguments, format);
        mox_format_text(context, sizeof context, format, arguments);
        va_end(arguments);

        const size_t used = strlen(error->text);
        const size_t left = sizeof error->text - used;
        /* All or nothing: a cut parenthesis would be worse than none. */
        const int wanted = snprintf(error->text + used, left, " (while %s)", context);
        if (wanted < 0 || (size_t)wanted >= left)
            error->text[used] = '\0';
    }
    return code;
}

/* Length of the valid UTF-8 sequence at `s` that is no control character, or 0. `s` is terminated, and
 * a terminator is no continuation byte, so nothing behind the end is read. */
static size_t printable_length(const unsigned char *s)
{
    if (s[0] < 0x80)
        return s[0] >= 0x20 && s[0] != 0x7f && s[0] != '"' && s[0] != '\'' && s[0] != '\\';
    if (s[0] < 0xc2 || s[0] > 0xf4 || (s[1] & 0xc0) != 0x80)
        return 0;
    if (s[0] < 0xe0)
        return s[0] == 0xc2 && s[1] < 0xa0 ? 0 : 2; /* U+0080..U+009F are controls */
    if ((s[2] & 0xc0) != 0x80)
        return 0;
    if (s[0] < 0xf0) {
        const bool overlong = s[0] == 0xe0 && s[1] < 0xa0;
        const bool surrogate = s[0] == 0xed && s[1] >= 0xa0;
        return overlong || surrogate ? 0 : 3;
    }
    const bool overlong = s[0] == 0xf0 && s[1] < 0x90;
    const bool past_last = s[0] == 0xf4 && s[1] >= 0x90;
    return (s[3] & 0xc0) != 0x80 || overlong || past_last ? 0 : 4;
}

const char *mox_escape(char *buffer, size_t size, const char *name)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *s = (const unsigned char *)name;
    size_t used = 0; /* written so far */
    size_t safe = 0; /* the last length after which the ellipsis still fits */

    if (size == 0)
        return buffer;
    while (*s) {
        const size_t length = printable_length(s);
        const char escape[4] = { '\\', 'x', digits[*s >> 4], digits[*s & 15] };
        const size_t bytes = length ? length : sizeof escape;
        if (used + sizeof ellipsis <= size)
            safe = used;
        if (used + bytes >= size) {
            memcpy(buffer + safe, ellipsis, size < sizeof ellipsis ? 0 : sizeof ellipsis);
            used = size < sizeof ellipsis ? 0 : safe + sizeof ellipsis - 1;
            break;
        }
        memcpy(buffer + used, length ? (const char *)s : escape, bytes);
        used += bytes;
        s += length ? length : 1;
    }
    buffer[used] = '\0';
    return buffer;
}

void mox_make_printable(char *text, size_t size)
{
    if (size == 0)
        return;
    text[size - 1] = '\0';
    for (; *text; text++)
        if (*text < 0x20 || *text > 0x7e)
            *text = '?';
}
