/* SPDX-License-Identifier: Apache-2.0
 *
 * name_pattern.h - patterns of dotted names, for the lists of what need not be read.
 */
#ifndef MOX_CKPT_NAME_PATTERN_H
#define MOX_CKPT_NAME_PATTERN_H

#include <stdbool.h>

/* True when `text` fits `pattern`: "*" stands for any characters but '.', "**" for any at all. Patterns are static. */
bool mox_name_fits(const char *pattern, const char *text);

#endif
