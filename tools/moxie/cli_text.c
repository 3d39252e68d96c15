/* SPDX-License-Identifier: Apache-2.0
 *
 * cli_text.c - text that comes from arguments, files and devices, made fit to print.
 *
 *     bytes that are no UTF-8      -> \xNN      on terminals and in JSON
 *     control characters           -> \xNN      on terminals; JSON escapes them itself
 *
 * Nearly all text needs no change and is returned as it is. A changed copy lives until the program ends, so it can be
 * passed to printf() and cli_pack() without being freed.
 */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

/* Length of the valid UTF-8 sequence at `s`, or 0. Never reads past the terminator, which is no continuation byte. */
static size_t sequence_length(const unsigned char *s)
{
    if (s[0] < 0x80)
        return 1;
    if (s[0] < 0xc2 || s[0] > 0xf4 || (s[1] & 0xc0) != 0x80)
        return 0;
    if (s[0] < 0xe0)
        return 2;
    if ((s[2] & 0xc0) != 0x80 || (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] >= 0xa0))
        return 0;
    if (s[0] < 0xf0)
        return 3;
    const bool overlong = s[0] == 0xf0 && s[1] < 0x90, past_last = s[0] == 0xf4 && s[1] >= 0x90;
    return (s[3] & 0xc0) != 0x80 || overlong || past_last ? 0 : 4;
}

/* U+0000 to U+001F, U+007F to U+009F: they move a cursor or start a sequence that a terminal obeys. */
static bool is_control(const unsigned char *s, size_t length)
{
    return (length == 1 && (s[0] < 0x20 || s[0] == 0x7f)) || (length == 2 && s[0] == 0xc2 && s[1] < 0xa0);
}

/* How many bytes at `s` stay unchanged; 0: the first one is escaped. */
static size_t kept_length(const unsigned char *s, bool for_terminal)
{
    const size_t length = sequence_length(s);
    return for_terminal && is_control(s, length) ? 0 : length;
}

static char *keep_until_exit(char *text)
{
    static struct kept {
        struct kept *next;
        char *text;
    } * all;
    struct kept *one = cli_alloc(sizeof *one);
    *one = (struct kept) { all, text };
    all = one;
    return text;
}

static const char *clean(const char *text, bool for_terminal)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *s = (const unsigned char *)text;
    size_t kept;
    while (*s && (kept = kept_length(s, for_terminal)) > 0)
        s += kept;
    if (!*s)
        return text;
    char *out = cli_alloc(4 * strlen(text) + 1), *at = out;
    for (s = (const unsigned char *)text; *s; s += kept ? kept : 1) {
        kept = kept_length(s, for_terminal);
        const char escape[4] = { '\\', 'x', digits[*s >> 4], digits[*s & 15] };
        memcpy(at, kept ? (const char *)s : escape, kept ? kept : sizeof escape);
        at += kept ? kept : sizeof escape;
    }
    *at = '\0';
    return keep_until_exit(out);
}

const char *cli_printable(const char *text)
{
    return clean(text, true);
}

const char *cli_utf8(const char *text)
{
    return text ? clean(text, false) : NULL;
}
