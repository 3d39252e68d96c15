/* SPDX-License-Identifier: Apache-2.0
 *
 * model_matrix.h - one matrix of a checkpoint as a view of the mapped file.
 */
#ifndef MOX_CKPT_MODEL_MATRIX_H
#define MOX_CKPT_MODEL_MATRIX_H

#include "ckpt/model/layer_reader.h"

/* One stored matrix (a projection, or gate and up together) as a view; reads group indices and shape records, and
 * checks them (model_matrix.c). `rows` says which part of it the projection is, *weight becomes its quantization. */
moxie_status mox_read_matrix(mox_layer_reader *reader, const mox_match *match, const mox_part_place *place,
                             mox_part_rows rows, moxie_matrix *out, moxie_quant *weight);
/* The static activation scale of one expert's matrix; 0 when there is none that can be used. */
float mox_read_input_scale(const mox_match *match, const mox_part_place *place);
uint64_t mox_match_bytes(const mox_match *match);

#endif
