/* SPDX-License-Identifier: Apache-2.0
 *
 * synth_fill.h - state of the generator, which makes the bytes of tensors:
 *
 *     synth_tensor.c   any tensor; plain ones         synth_groups.c   weights, scales and zero points of their groups
 *     synth_matrix.c   parts of quantized matrices    random.h         the numbers
 */
#ifndef MOX_CKPT_SYNTH_FILL_H
#define MOX_CKPT_SYNTH_FILL_H

#include "base/executor.h"
#include "ckpt/formats/group_scale.h"
#include "ckpt/synth/synth_model.h"

typedef struct mox_synth_filler mox_synth_filler;
typedef moxie_status (*mox_bytes_fn)(void *user, const void *data, uint64_t bytes, moxie_error *error);

/* Receives the bytes of a tensor, chunk by chunk. */
typedef struct mox_fill_sink {
    mox_bytes_fn put;
    void *user;
} mox_fill_sink;

/* The quantization groups of one matrix of one expert. They stay in memory while the parts of that matrix are made:
 * codes, scales and zero points need them, and they cost one pass over the numbers. */
typedef struct mox_fill_groups {
    const mox_hf_quant *format; /* NULL: empty. format, kind, layer and expert identify the matrix */
    mox_tensor_kind kind;
    int64_t layer, expert;
    int64_t rows, cols;  /* of the grid of scales */
    float *scale;        /* [rows, cols], decoded */
    float *zero;         /* [rows, cols], decoded, without zero_add; all 0 without zero points */
    int32_t *low, *high; /* [bands, cols] smallest and largest deviates */
    uint64_t room;       /* groups (and bands) that the arrays have room for */
    uint64_t band_room;
} mox_fill_groups;

/* The matrix of one expert as a tensor stores it. Gate over up, or alternating, are one matrix. */
typedef struct mox_fill_view {
    const mox_synth_filler *filler;
    const mox_tensor_spec *spec;
    int64_t layer, expert; /* expert 0 for the shared expert */
    int64_t rows, cols;
    mox_group_rule rule;
    float global; /* 1 when there is no global scale */
    int64_t group_rows, group_cols;
    int64_t scale_cols;
} mox_fill_view;

struct mox_synth_filler {
    const mox_synth_model *model;
    const moxie_executor *executor;
    uint8_t *buffer;
    uint64_t buffer_bytes;
    mox_fill_groups groups;
};

/* A buffer of at least `bytes` bytes, valid until the next call; NULL when out of memory. */
uint8_t *mox_fill_buffer(mox_synth_filler *filler, uint64_t bytes);
void mox_fill_groups_free(mox_fill_groups *groups);

/* Both arguments must outlive the filler. One-thread-at-a-time. */
moxie_status mox_synth_filler_create(const mox_synth_model *model, const moxie_executor *executor,
                                     mox_synth_filler **out, moxie_error *error);
void mox_synth_filler_destroy(mox_synth_filler *filler);

#endif
