/* SPDX-License-Identifier: Apache-2.0
 *
 * utf8.c - decodes the length of one UTF-8 character, and encodes one (RFC 3629).
 *
 *     U+0000..7F      0xxxxxxx
 *     U+0080..7FF     110xxxxx 10xxxxxx
 *     U+0800..FFFF    1110xxxx 10xxxxxx 10xxxxxx              without D800..DFFF
 *     U+10000..10FFFF 11110xxx 10xxxxxx 10xxxxxx 10xxxxxx
 */
#include "ckpt/utf8.h"

int32_t mox_utf8_length(const unsigned char *text, uint64_t room)
{
    static const uint32_t smallest[5] = { 0, 0, 0x80, 0x800, 0x10000 };
    if (room == 0)
        return 0;
    const unsigned char lead = text[0];
    if (lead < 0x80)
        return 1;
    const int32_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc0 || lead > 0xf4 || room < (uint64_t)length)
        return 0;
    uint32_t code = lead & (0x7fu >> length);
    for (int32_t i = 1; i < length; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (text[i] & 0x3fu);
    }
    const int surrogate = code >= 0xd800 && code <= 0xdfff;
    return code < smallest[length] || code > 0x10ffff || surrogate ? 0 : length;
}

int32_t mox_utf8_encode(uint32_t code, char *out)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    const int32_t length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const uint32_t lead[5] = { 0, 0, 0xc0, 0xe0, 0xf0 };
    for (int32_t i = length - 1; i > 0; i--, code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)(lead[length] | code);
    return length;
}
