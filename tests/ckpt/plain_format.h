/* SPDX-License-Identifier: Apache-2.0
 *
 * plain_format.h - quantized experts of plain checkpoints. Codes, scales and zero points are drawn, not computed from
 * weights; a weight is what the format says of them, in double precision:
 *
 *     weight[r][c] = (number(code[r][c]) - zero[r / rows][c / cols]) * scale[r / rows][c / cols] * global
 */
#ifndef PLAIN_FORMAT_H
#define PLAIN_FORMAT_H

#include "plain_file.h"

typedef enum plain_number {
    PLAIN_E4M3,  /* sign, 4 bits of exponent with bias 7, 3 bits of mantissa; no infinity */
    PLAIN_E2M1,  /* sign and one of 0, 0.5, 1, 1.5, 2, 3, 4, 6 */
    PLAIN_E3M2,  /* sign, 3 bits of exponent with bias 3, 2 bits of mantissa; no infinity */
    PLAIN_E2M3,  /* sign, 2 bits of exponent with bias 1, 3 bits of mantissa; no infinity */
    PLAIN_INT4,  /* two's complement */
    PLAIN_INT8,  /* the same */
    PLAIN_UINT2, /* unsigned, less 2^(bits - 1) where there are no zero points */
    PLAIN_UINT3,
    PLAIN_UINT4,
    PLAIN_UINT8
} plain_number;

typedef enum plain_scale_type {
    PLAIN_F32,
    PLAIN_BF16,
    PLAIN_F16,
    PLAIN_E8M0,      /* 2^(byte - 127) */
    PLAIN_SCALE_E4M3 /* not negative */
} plain_scale_type;

/* How one of the tensors of a matrix of N rows and K columns is stored. */
typedef struct plain_part {
    const char *suffix, *dtype;
    int word; /* bits of a word; elements follow each other from a word's low bits into the next word. 0: one element */
    bool along_rows; /* a word's elements are in one column */
    bool swapped;    /* columns come before rows */
    bool awq;        /* AWQ's order of the nibbles in a word */
    bool flat;       /* rank 1 or 0: no axes of length 1 */
    bool vector;     /* with flat: one number has the shape [1] */
} plain_part;

typedef struct plain_format {
    const char *what;
    const char *config; /* keys of quantization_config */
    plain_number number;
    int rows, cols; /* of a group; 0: all */
    plain_part codes, scale, zero, global;
    plain_scale_type scale_type;
    bool zero_less_one; /* zero points are stored less one: each of 3 bits by itself, else whole words, which borrow */
    bool divides;       /* the global scale divides */
    const char *shape;  /* suffix of a tensor [N, K] of I64, NULL: none */
    const char *groups; /* suffix of each column's group, I32 [K], NULL: none */
    const char *inputs; /* suffix of a static scale of activations, F32, NULL: none; it does not matter here */
    bool blocks;        /* gpt-oss: codes [N, K / 32, 16] */
    bool int8_rows;     /* activations are int8, with a scale for each row */
} plain_format;

/* Format of this name; aborts when there is none. */
const plain_format *plain_format_named(const char *what);
bool plain_is_quantized(plain_role role);
double plain_decoded(const plain_format *q, plain_role role, int expert, int r, int c);
/* All tensors of the matrix; a suffix that starts with a dot takes the place of ".weight" in its name. */
void plain_add_quantized(plain_file *f, const plain_format *q, const plain_tensor *t);

#endif
