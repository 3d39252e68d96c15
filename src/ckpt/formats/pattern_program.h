/* SPDX-License-Identifier: Apache-2.0
 *
 * pattern_program.h - the program of a pattern: what pattern_compile.c makes and pattern_match.c runs. Jumps are
 * relative to their own instruction, so a block of instructions can be moved and copied as it is.
 */
#ifndef MOX_CKPT_PATTERN_PROGRAM_H
#define MOX_CKPT_PATTERN_PROGRAM_H

#include <stdint.h>

#include "ckpt/formats/pattern.h"

#define MOX_PATTERN_LIMIT     1024 /* instructions */
#define MOX_PATTERN_SETS      64
#define MOX_PATTERN_MAX_LOOKS 4  /* look-aheads inside each other */
#define MOX_PATTERN_MAX_DEPTH 32 /* groups inside each other */

typedef enum mox_pattern_op {
    MOX_OP_CHAR,
    MOX_OP_ANY,
    MOX_OP_SET,
    MOX_OP_SPLIT,     /* go on at `next` and at `other` */
    MOX_OP_JUMP,      /* go on at `next` */
    MOX_OP_BEGIN,     /* the name begins here; then `next` */
    MOX_OP_END,       /* it ends here */
    MOX_OP_WORD_EDGE, /* \b; negate: \B */
    MOX_OP_LOOK,      /* the instructions up to the next MATCH match here (negate: do not); then `next` */
    MOX_OP_MATCH
} mox_pattern_op;

typedef struct mox_instruction {
    uint8_t op;
    uint8_t c;
    bool negate;
    int16_t next, other, set;
} mox_instruction;

typedef struct mox_char_set {
    uint8_t bits[32];
} mox_char_set;

struct mox_pattern {
    mox_instruction program[MOX_PATTERN_LIMIT];
    int32_t length;
    mox_char_set sets[MOX_PATTERN_SETS];
    int32_t n_sets;
};

#endif
