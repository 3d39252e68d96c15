/* SPDX-License-Identifier: Apache-2.0
 *
 * header_json.c - tokens of a safetensors header (RFC 8259, narrowed as header_json.h says).
 *
 * A string is decoded twice: first to check it and to find its length, then into memory of that length.
 */
#include "ckpt/safetensors/header_json.h"

#include <string.h>

#include "ckpt/utf8.h"

static void skip_space(mox_cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t' || *c->at == '\n' || *c->at == '\r'))
        c->at++;
}

bool mox_cursor_accept(mox_cursor *c, char token)
{
    skip_space(c);
    if (c->at == c->end || *c->at != (unsigned char)token)
        return false;
    c->at++;
    return true;
}

moxie_status mox_cursor_expect(mox_cursor *c, char token, const char *where)
{
    if (mox_cursor_accept(c, token))
        return MOXIE_OK;
    if (c->at == c->end)
        return MOX_CURSOR_FAIL(c, "expected '%c' %s, found the end of the header", token, where);
    const char found[2] = { (char)*c->at, 0 };
    char escaped[8];
    return MOX_CURSOR_FAIL(c, "expected '%c' %s, found '%s'", token, where, mox_escape(escaped, sizeof escaped, found));
}

/* Four hexadecimal digits after \u. */
static moxie_status hex4(mox_cursor *c, uint32_t *out)
{
    uint32_t value = 0;
    for (int i = 0; i < 4; i++, c->at++) {
        static const char digits[] = "0123456789abcdef0123456789ABCDEF";
        const char *digit = c->at < c->end ? memchr(digits, *c->at, sizeof digits - 1) : NULL;
        if (!digit)
            return MOX_CURSOR_FAIL(c, "expected four hexadecimal digits after \\u");
        value = value << 4 | ((uint32_t)(digit - digits) & 15);
    }
    *out = value;
    return MOXIE_OK;
}

/* The character of a \u escape, behind the u. Above U+FFFF it consists of two escapes. */
static moxie_status unicode_escape(mox_cursor *c, uint32_t *out)
{
    uint32_t high = 0, low = 0;
    MOX_TRY(hex4(c, &high));
    if (high == 0)
        return MOX_CURSOR_FAIL(c, "a string holds a NUL character (\\u0000)");
    if (high < 0xd800 || high > 0xdfff) {
        *out = high;
        return MOXIE_OK;
    }
    if (high > 0xdbff || c->end - c->at < 6 || c->at[0] != '\\' || c->at[1] != 'u')
        return MOX_CURSOR_FAIL(c, "a string holds a lone surrogate (\\u%04x)", (unsigned)high);
    c->at += 2;
    MOX_TRY(hex4(c, &low));
    if (low < 0xdc00 || low > 0xdfff)
        return MOX_CURSOR_FAIL(c, "a string holds a lone surrogate (\\u%04x)", (unsigned)high);
    *out = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
    return MOXIE_OK;
}

/* An escape, behind its backslash, as UTF-8. */
static moxie_status escape(mox_cursor *c, char *out, int32_t *length)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *known = c->at < c->end ? memchr(from, *c->at, sizeof from - 1) : NULL;
    if (known) {
        c->at++;
        out[0] = to[known - from];
        *length = 1;
        return MOXIE_OK;
    }
    if (c->at == c->end || *c->at != 'u')
        return MOX_CURSOR_FAIL(c, "unknown escape in a string");
    c->at++;
    uint32_t code = 0;
    MOX_TRY(unicode_escape(c, &code));
    *length = mox_utf8_encode(code, out);
    return MOXIE_OK;
}

/* The next character of a string as UTF-8; length 0 at the closing quote. */
static moxie_status character(mox_cursor *c, char *out, int32_t *length)
{
    if (c->at == c->end)
        return MOX_CURSOR_FAIL(c, "a string has no closing quote before the end of the header");
    const unsigned char first = *c->at;
    if (first == '"' || first == '\\') {
        c->at++;
        *length = 0;
        return first == '"' ? MOXIE_OK : escape(c, out, length);
    }
    if (first < 0x20)
        return MOX_CURSOR_FAIL(c, "a string holds the raw control character 0x%02x", first);
    *length = mox_utf8_length(c->at, (uint64_t)(c->end - c->at));
    if (*length == 0)
        return MOX_CURSOR_FAIL(c, "a string is not valid UTF-8 (byte 0x%02x)", first);
    memcpy(out, c->at, (size_t)*length);
    c->at += *length;
    return MOXIE_OK;
}

/* How many of the next bytes are ASCII that stands for itself: in real files, whole names. */
static uint64_t plain_run(const mox_cursor *c)
{
    const unsigned char *at = c->at;
    while (at < c->end && *at >= 0x20 && *at < 0x80 && *at != '"' && *at != '\\')
        at++;
    return (uint64_t)(at - c->at);
}

/* Appends to `out` as far as there is room; *total counts everything. */
static void store(char *out, uint64_t room, const void *bytes, uint64_t n, uint64_t *total)
{
    if (*total < room)
        memcpy(out + *total, bytes, n < room - *total ? n : room - *total);
    *total += n;
}

/* Decodes a string behind its opening quote. `out` gets what fits in `room` bytes; *total is its full length. */
static moxie_status decode(mox_cursor *c, char *out, uint64_t room, uint64_t *total)
{
    *total = 0;
    for (;;) {
        const uint64_t run = plain_run(c);
        store(out, room, c->at, run, total);
        c->at += run;
        char bytes[4];
        int32_t length = 0;
        MOX_TRY(character(c, bytes, &length));
        if (length == 0)
            return MOXIE_OK;
        store(out, room, bytes, (uint64_t)length, total);
    }
}

moxie_status mox_cursor_string(mox_cursor *c, mox_arena *arena, const char **out)
{
    MOX_TRY(mox_cursor_expect(c, '"', "at the start of a string"));
    const unsigned char *start = c->at;
    uint64_t length;
    MOX_TRY(decode(c, NULL, 0, &length));
    char *text = mox_arena_alloc(arena, length + 1);
    if (!text)
        return mox_fail_file(MOXIE_ERR_MEMORY, c->error, c->path, start - c->file, "no memory for a name of %llu bytes",
                             (unsigned long long)length);
    c->at = start;
    MOX_TRY(decode(c, text, length, &length));
    text[length] = 0;
    *out = text;
    return MOXIE_OK;
}

moxie_status mox_cursor_word(mox_cursor *c, char *out, uint64_t size)
{
    MOX_TRY(mox_cursor_expect(c, '"', "at the start of a string"));
    uint64_t length;
    MOX_TRY(decode(c, out, size - 1, &length));
    out[length < size ? length : size - 1] = 0;
    return MOXIE_OK;
}

moxie_status mox_cursor_integer(mox_cursor *c, uint64_t *out)
{
    skip_space(c);
    const unsigned char *start = c->at;
    uint64_t value = 0;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++) {
        value = 10 * value + (*c->at - '0');
        if (value > MOX_HEADER_MAX_INTEGER)
            return MOX_CURSOR_FAIL(c, "an integer is larger than 2^48 - 1");
    }
    const bool leading_zero = c->at - start > 1 && *start == '0';
    const bool goes_on = c->at < c->end && (*c->at == '.' || *c->at == 'e' || *c->at == 'E');
    if (c->at == start || leading_zero || goes_on)
        return MOX_CURSOR_FAIL(c, "expected a whole number without sign, leading zero, fraction or exponent");
    *out = value;
    return MOXIE_OK;
}
