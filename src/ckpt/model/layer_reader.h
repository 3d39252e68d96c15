/* SPDX-License-Identifier: Apache-2.0
 *
 * layer_reader.h - one layer while it is read: its tensors by name, and the errors about them.
 */
#ifndef MOX_CKPT_LAYER_READER_H
#define MOX_CKPT_LAYER_READER_H

#include "ckpt/formats/match.h"
#include "ckpt/model/model_state.h"

/* One layer while it is read. */
typedef struct mox_layer_reader {
    const moxie_model *model;
    const mox_names *names;
    const char *prefix;
    int64_t layer;
    bool look; /* only to describe: no numbers are copied */
    mox_dims dims;
    mox_matcher matcher;
    mox_arena *arena; /* memory of the result */
    uint8_t *read;    /* per tensor of the set: 1 when some part of the layer was read from it */
    moxie_model_layer *out;
    moxie_error *error;
} mox_layer_reader;

/* The full name of a tensor of this layer; MOXIE_ERR_FORMAT when it is too long. */
moxie_status mox_layer_name(const mox_layer_reader *reader, const char *name, int64_t expert, char *buffer,
                            size_t size);
/* A tensor of this layer, or NULL. */
const mox_file_tensor *mox_layer_find(const mox_layer_reader *reader, const char *name);
/* True when the layer's tensors also hold a second set of experts, for image tokens. */
bool mox_layer_has_images(const mox_layer_reader *reader);
/* Says that the layer is read from this tensor; tensors of its MoE block that nobody marks are reported (unread.h). */
void mox_layer_mark(const mox_layer_reader *reader, const mox_file_tensor *tensor);
/* Marks a float tensor of this layer and views it as a grid [rows, cols]; MOXIE_ERR_MISMATCH for another shape. */
moxie_status mox_layer_floats(const mox_layer_reader *reader, const mox_file_tensor *tensor, int64_t rows, int64_t cols,
                              moxie_grid *out);

/* The tensor that a name template stands for is absent; `why` ends the sentence. Returns MOXIE_ERR_FORMAT. */
moxie_status mox_layer_fail_absent(const mox_layer_reader *reader, const char *name, const char *why);
/* A tensor has another dtype or shape than `expected`. Returns `code`. */
moxie_status mox_layer_fail_tensor(const mox_layer_reader *reader, const mox_file_tensor *tensor, moxie_status code,
                                   const char *expected);

#endif
