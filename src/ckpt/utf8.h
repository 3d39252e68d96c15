/* SPDX-License-Identifier: Apache-2.0
 *
 * utf8.h - well-formed UTF-8 (RFC 3629): shortest forms only, no surrogates, nothing above U+10FFFF.
 *
 * Names in safetensors headers must be UTF-8. The reader rejects anything else, and the writer never produces it.
 */
#ifndef MOX_CKPT_UTF8_H
#define MOX_CKPT_UTF8_H

#include <stdint.h>

/* Bytes of the character at `text`, 1 to 4; 0 when the `room` bytes there do not start with a complete character. */
int32_t mox_utf8_length(const unsigned char *text, uint64_t room);
/* Writes `code` (a scalar value) to `out`, which has room for 4; returns the bytes written. */
int32_t mox_utf8_encode(uint32_t code, char *out);

#endif
