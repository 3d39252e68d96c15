/* SPDX-License-Identifier: Apache-2.0
 *
 * operand.h - activations as the portable kernels multiply them.
 *
 *   values [rows, stride] f32, stride = cols rounded up to MOX_OPERAND_PAD, padding zero: the widened hidden
 *          state when the activations are not quantized, else the decoded codes (exact in f32)
 *   scales [rows, scale_cols] f32, one per group_cols columns; NULL when not quantized
 *   global [rows] f32, applied to a finished sum by `global_kind`; NULL when there is none
 */
#ifndef MOX_CPU_OPERAND_H
#define MOX_CPU_OPERAND_H

#include <moxie/moxie.h>

#define MOX_OPERAND_PAD 16

typedef struct mox_operand {
    int64_t rows, cols, stride;
    float *values;
    float *scales;
    int64_t group_cols, scale_cols;
    float *global;
    int32_t global_kind; /* moxie_global_kind */
    int32_t integer;     /* values are integers of at most 8 bits */
} mox_operand;

#endif
