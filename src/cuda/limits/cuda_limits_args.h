/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_limits_args.h - the arguments of a probe's launcher (cuda_limits.h), with device pointers.
 */
#ifndef MOX_CUDA_CUDA_LIMITS_ARGS_H
#define MOX_CUDA_CUDA_LIMITS_ARGS_H

#include <stdint.h>

#define MOX_CUDA_LIMIT_PIECE    65536 /* READ: bytes of a piece; a multiprocessor reads two pieces at a time */
#define MOX_CUDA_LIMIT_OPERANDS 49152 /* BF16, FP8: bytes of operands */

typedef struct mox_cuda_limits_args {
    const void *data; /* 16-aligned: memory to read, or operands to multiply */
    int64_t bytes;    /* READ: a multiple of 2 multiprocessors MOX_CUDA_LIMIT_PIECE; else MOX_CUDA_LIMIT_OPERANDS */
    int64_t rounds;   /* passes over the data, or units of arithmetic on each multiprocessor */
    int32_t multiprocessors;
    int64_t *done; /* set to `rounds`, unless the code for this device lacks the instruction */
} mox_cuda_limits_args;

#endif
