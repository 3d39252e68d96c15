/* SPDX-License-Identifier: Apache-2.0
 *
 * synth_fill.h - what synth_tensor.c (who makes a tensor) and synth_matrix.c (quantized matrices) share.
 */
#ifndef MOX_CKPT_SYNTH_FILL_H
#define MOX_CKPT_SYNTH_FILL_H

#include "ckpt/synth.h"

/* Where pieces of a tensor go, and the room to make them in. */
typedef struct mox_fill_sink {
    mox_bytes_fn put;
    void *user;
} mox_fill_sink;

/* The quantization groups of one expert's matrix: kept while the parts of the same matrix are made, because codes,
 * scales and zero points all need them and they cost one pass over the numbers. */
typedef struct mox_fill_groups {
    const mox_hf_quant *format; /* NULL: nothing is held. With the four below: whose groups these are */
    mox_tensor_kind kind;
    int64_t layer, expert;
    int64_t rows, cols;  /* of the grid */
    float *scale;        /* [rows, cols], decoded */
    float *zero;         /* [rows, cols], decoded, zero_add not in it; all 0 without zero points */
    int32_t *low, *high; /* [bands, cols] extremes of the deviates */
    uint64_t room;       /* groups that the arrays have room for */
    uint64_t band_room;
} mox_fill_groups;

struct mox_synth_filler {
    const mox_synth_model *model;
    const moxie_executor *executor;
    uint8_t *piece;
    uint64_t piece_bytes;
    mox_fill_groups groups;
};

/* A buffer of at least `bytes`, valid until the next call; NULL when out of memory. */
uint8_t *mox_fill_piece(mox_synth_filler *filler, uint64_t bytes);
void mox_fill_groups_free(mox_fill_groups *groups);

/* The bytes of a tensor that stores (a part of) matrices: spec->part is not NULL. */
moxie_status mox_fill_matrix(mox_synth_filler *filler, int64_t layer, const mox_tensor_spec *spec, mox_fill_sink sink,
                             moxie_error *error);

#endif
