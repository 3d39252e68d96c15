/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_operand.h - activations in device memory as CUDA kernels multiply them: cpu/operand.h with a choice of how the
 * values lie, and counts that only the device knows.
 *
 *   values [rows, stride], stride in elements of the kind:
 *     F32      decoded codes, or the widened (rounded) number; stride a multiple of MOX_CUDA_OPERAND_PAD, padding zero
 *     NATIVE   unquantized: elements of `dtype` (16 bits), stride a multiple of 8, padding anything. For the first
 *              product the hidden states themselves where they are so, and nothing is copied
 *     CODES    quantized: one code a byte, stride a multiple of 16, padding zero
 *   tiled: NATIVE or CODES, not in rows but token tile by token tile as sm90_args.h draws it, stride a multiple of 128
 *   bytes, a scale for every 128 columns: what a row that fuses the activation leaves for the second product. Quantized
 *   NATIVE is codes times scales in bf16, and there are no scales beside it
 *
 *   scales [rows, scale_cols] f32, one per group_cols columns; NULL when not quantized
 *   global [rows] f32, applied to a finished sum by `global_kind`; NULL when there is none
 */
#ifndef MOX_CUDA_CUDA_OPERAND_H
#define MOX_CUDA_CUDA_OPERAND_H

#include <moxie/moxie.h>

#define MOX_CUDA_OPERAND_PAD 16

typedef enum mox_cuda_operand_kind {
    MOX_CUDA_OPERAND_F32 = 0,
    MOX_CUDA_OPERAND_NATIVE,
    MOX_CUDA_OPERAND_CODES
} mox_cuda_operand_kind;

typedef struct mox_cuda_operand {
    int32_t kind;      /* mox_cuda_operand_kind */
    moxie_dtype dtype; /* of values that are not quantized */
    int64_t cols, stride;
    void *values;
    float *scales;
    int64_t group_cols, scale_cols;
    float *global;
    int32_t global_kind; /* moxie_global_kind */
    int32_t integer;     /* values are integers of at most 8 bits */
    int32_t tiled;
} mox_cuda_operand;

#endif
