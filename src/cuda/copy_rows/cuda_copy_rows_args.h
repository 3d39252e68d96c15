/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_copy_rows_args.h - copies rows within a device, for the exchanges between ranks:
 *
 *     to[i, c] = from[row[i], c]   c < cols, converted to to_dtype
 *     to[i, c] = 0                 cols <= c < to_cols, or row[i] < 0
 *
 * It gathers what goes to other ranks, and puts columns of several ranks beside each other. It is no kernel family:
 * there is nothing to choose. Types are f32, f16 and bf16. Equal types copy bits, so any rows of 2 or 4 byte words may
 * pass as them.
 */
#ifndef MOX_CUDA_CUDA_COPY_ROWS_ARGS_H
#define MOX_CUDA_CUDA_COPY_ROWS_ARGS_H

#include <moxie/moxie.h>

typedef struct mox_cuda_copy_rows_args {
    int64_t rows, cols, to_cols; /* to_cols: cols or more */
    const int64_t *row;          /* [rows]; NULL: row i is i */
    const void *from;            /* memory of `from` and `to` does not overlap */
    void *to;
    int64_t from_stride, to_stride; /* bytes from row to row */
    moxie_dtype from_dtype, to_dtype;
} mox_cuda_copy_rows_args;

#endif
