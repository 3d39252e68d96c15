/* SPDX-License-Identifier: Apache-2.0
 *
 * pattern.h - patterns for module names in quantization configurations: Python's regular expressions ("re:.*experts.*",
 * "-:.*attn.*") and shell patterns ("*.mlp.experts.*").
 *
 * A pattern becomes a small program of a nondeterministic automaton, which reads a name once. So no pattern of a
 * hostile file takes exponential time. Understood are: characters, ".", classes, \d \w \s and their negations, \b,
 * anchors, alternation, groups, all greedy and lazy quantifiers, and look-ahead. Look-behind, back references and flags
 * are not: a pattern with one of these is refused by name. Captures do not exist, since only "matches or not" is asked.
 * Characters are bytes: "." matches one byte of a UTF-8 sequence.
 * Source: Python's documentation of re and fnmatch.
 */
#ifndef MOX_CKPT_PATTERN_H
#define MOX_CKPT_PATTERN_H

#include <stdbool.h>

#include "base/memory.h"
#include "base/status.h"

typedef struct mox_pattern mox_pattern;

typedef enum mox_pattern_kind {
    MOX_PATTERN_REGEX, /* Python's re */
    MOX_PATTERN_SHELL  /* Python's fnmatch: * ? [seq] [!seq] */
} mox_pattern_kind;

/* The compiled pattern, in the arena. NULL when it is not understood: then *problem says why in static text. NULL with
 * *problem NULL: out of memory. */
mox_pattern *mox_pattern_compile(const char *text, mox_pattern_kind kind, mox_arena *arena, const char **problem);
/* True when the pattern matches from the first character of `name` on: re.match. `whole`: up to its end, too
 * (re.fullmatch, fnmatch). */
bool mox_pattern_matches(const mox_pattern *pattern, const char *name, bool whole);

#endif
