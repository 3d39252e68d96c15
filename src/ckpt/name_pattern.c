/* SPDX-License-Identifier: Apache-2.0
 *
 * name_pattern.c - patterns of dotted names. A star tries every length that it may have, which is quick for the short
 * patterns and names here.
 */
#include "ckpt/name_pattern.h"

bool mox_name_fits(const char *pattern, const char *text)
{
    for (; *pattern && *pattern != '*'; pattern++, text++)
        if (*pattern != *text)
            return false;
    if (!*pattern)
        return !*text;
    const bool across = pattern[1] == '*';
    pattern += across ? 2 : 1;
    for (;; text++) {
        if (mox_name_fits(pattern, text))
            return true;
        if (!*text || (*text == '.' && !across))
            return false;
    }
}
