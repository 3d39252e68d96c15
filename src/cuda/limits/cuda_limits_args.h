/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_limits_args.h - what the launcher of a probe gets (cuda_limits.h). Device pointers.
 */
#ifndef MOX_CUDA_CUDA_LIMITS_ARGS_H
#define MOX_CUDA_CUDA_LIMITS_ARGS_H

#include <stdint.h>

#define MOX_CUDA_LIMIT_PIECE    65536 /* READ: a multiprocessor reads two of them at a time */
#define MOX_CUDA_LIMIT_OPERANDS 49152 /* BF16, FP8: numbers of that type */

typedef struct mox_cuda_limits_args {
    const void *data; /* 16-aligned: what is read, or what is multiplied */
    int64_t bytes;    /* READ: a multiple of 2 multiprocessors MOX_CUDA_LIMIT_PIECE; else MOX_CUDA_LIMIT_OPERANDS */
    int64_t rounds;   /* passes over the data, or units of arithmetic on each multiprocessor */
    int32_t multiprocessors;
    int64_t *done; /* receives `rounds`, unless the code that this device got has no such instruction */
} mox_cuda_limits_args;

#endif
