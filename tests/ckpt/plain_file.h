/* SPDX-License-Identifier: Apache-2.0
 *
 * plain_file.h - the file of a case while it is written, and its tensors.
 */
#ifndef PLAIN_FILE_H
#define PLAIN_FILE_H

#include <stddef.h>

#include "plain_checkpoint.h"
#include "plain_weight.h"

/* Elements of a tensor: those of one or two matrices of one or all experts, in some order. */
typedef struct plain_tensor {
    const char *name;
    plain_role role;
    int expert; /* -1: all, in the first axis */
    int rows, cols;
    bool swapped;      /* columns come before rows */
    plain_role second; /* PLAIN_NONE, or the matrix that shares the rows */
    bool alternate;    /* its rows alternate with the first's; else they follow them */
    bool merged;       /* no axis of its own for experts */
    bool flat;         /* one column: no axis for it */
} plain_tensor;

typedef struct plain_file {
    const plain_case *c;
    char *header;
    uint8_t *data;
    size_t header_bytes, data_bytes;
} plain_file;

/* Appends the low bytes of `value`, little endian. */
void plain_put(plain_file *f, uint64_t value, int bytes);
/* Names what was put since `begin`; `shape` is the text between its brackets. */
void plain_end_tensor(plain_file *f, const char *name, const char *dtype, const char *shape, size_t begin);
/* Row *r of the tensor: of which matrix, and there *r. */
plain_role plain_row(const plain_tensor *t, int *r);

#endif
