/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_matrix.h - one stored matrix of one expert: weights in f32 -> codes, scales, zero points (quantize_matrix.c)
 * -> the bytes of its tensors (quantize_store.c).
 *
 * A stored matrix is gate, up or down, or gate and up in one: then its rows are those of gate and then of up, or they
 * alternate. Its weights lie in memory as [gate; up] or [down].
 */
#ifndef MOX_CKPT_QUANTIZE_MATRIX_H
#define MOX_CKPT_QUANTIZE_MATRIX_H

#include <moxie/moxie_quantize.h>

#include "ckpt/formats/group_scale.h"
#include "quant/weight_codes.h"

/* What all matrices of a run have in common. */
typedef struct mox_quantize_how {
    const mox_hf_quant *format;
    int32_t scales; /* moxie_quantize_scales */
    const mox_weight_loops *loops;
} mox_quantize_how;

typedef struct mox_quantize_matrix {
    const mox_quantize_how *how;
    mox_group_rule rule;
    mox_tensor_kind kind;
    int64_t rows, cols;     /* of the stored matrix */
    bool interleaved;       /* GATE_UP: even rows are gate */
    bool ungated;           /* W13 is `up` alone */
    bool from_codes;        /* the source is quantized: an exact scale may exist */
    bool exact_source;      /* every weight of the source is an f32 number */
    const float *w;         /* [gate; up] or [down], rows of `cols` */
    mox_weight_range range; /* of all of w: what shares a global scale */
    double input_amax;      /* of its activations; 0: not known */
    /* [cols] of each projection, or NULL: what squared errors weigh where a scale is chosen */
    const float *importance[3];
    mox_weight_tries tries; /* what all groups have in common; set by mox_quantize_matrix_run() */
    /* results */
    uint8_t *codes;      /* [rows, cols], unless the format is plain */
    float *scale, *zero; /* decoded, one for each group */
    float global;
    moxie_quantize_error *errors; /* [3] by projection; those of this matrix are set */
} mox_quantize_matrix;

/* Row r of the stored matrix, its projection, and its number there. */
const float *mox_quantize_row(const mox_quantize_matrix *m, int64_t r, int32_t *projection, int64_t *row);
/* The rule of the format for rows of `cols` weights, as quantize uses it. */
moxie_status mox_quantize_rule(const mox_quantize_how *how, int64_t cols, mox_group_rule *out, moxie_error *error);
/* For plain formats: sets the errors of rounding. */
void mox_quantize_matrix_narrow(mox_quantize_matrix *m);
/* Sets codes, scales and errors. */
void mox_quantize_matrix_run(mox_quantize_matrix *m);
/* Takes codes, scales and zero points of a source with the same quantization as they are; false, and nothing is kept,
 * when the result cannot hold them. `sources` by projection. */
bool mox_quantize_matrix_repack(mox_quantize_matrix *m, const moxie_matrix *const sources[3], const moxie_quant *quant);
/* The static scale of activations with which the largest code, times the largest block scale if there are blocks,
 * reaches `amax`. */
float mox_quantize_input_scale(const moxie_quant *act, double amax);
/* Makes the bytes of one expert in tensor `spec`, of `bytes` bytes. */
moxie_status mox_quantize_store(const mox_quantize_matrix *m, const mox_tensor_spec *spec, uint8_t *out, uint64_t bytes,
                                moxie_error *error);

#endif
