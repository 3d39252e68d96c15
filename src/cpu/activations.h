/* SPDX-License-Identifier: Apache-2.0
 *
 * activations.h - one product's activations in memory, on the host or on a device.
 *
 *   [rows, stride], stride in elements of the kind:
 *
 *     kind     elements                                          stride a multiple of    padding
 *     F32      decoded codes, or the hidden states as f32        MOX_ACTIVATIONS_PAD     zero
 *     NATIVE   16 bits of `dtype`: activations not quantized,    8                       undefined
 *              or codes times scales in bf16, without `scales`
 *     CODES    quantized: one code a byte                        16                      zero
 *
 *   The host's kernels read F32. W13's kernel reads the hidden states themselves where those already are in such rows.
 *
 *   tiled: NATIVE or CODES lie token tile by token tile (drawn in mma_args.h), not row by row. The stride is then a
 *   multiple of 128 bytes, with one scale for every 128 columns. A W13 kernel that fuses the activation writes W2's
 *   activations in this form.
 *
 *   scales [rows, scale_cols] f32, one per group_cols columns; NULL when not quantized
 *   global [rows] f32, applied to a finished sum by `global_kind`; NULL when there is none
 */
#ifndef MOX_CPU_ACTIVATIONS_H
#define MOX_CPU_ACTIVATIONS_H

#include <moxie/moxie.h>

#define MOX_ACTIVATIONS_PAD 16

typedef enum mox_activations_kind {
    MOX_ACTIVATIONS_F32 = 0,
    MOX_ACTIVATIONS_NATIVE,
    MOX_ACTIVATIONS_CODES
} mox_activations_kind;

typedef struct mox_activations {
    int32_t kind;      /* mox_activations_kind */
    moxie_dtype dtype; /* of values that are not quantized, where they are not F32 */
    int64_t rows, cols, stride;
    union {
        float *values; /* F32 */
        void *data;
    };
    float *scales;
    int64_t group_cols, scale_cols;
    float *global;
    int32_t global_kind; /* moxie_global_kind */
    int32_t integer;     /* values are integers of at most 8 bits */
    int32_t tiled;
} mox_activations;

#ifndef __cplusplus
/* Kind F32 for `rows` rows of `cols` numbers quantized by `quant`: everything but the pointers. Immutable. */
mox_activations mox_activations_f32(const moxie_quant *quant, int64_t rows, int64_t cols);
#endif

#endif
