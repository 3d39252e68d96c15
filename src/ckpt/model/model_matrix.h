/* SPDX-License-Identifier: Apache-2.0
 *
 * model_matrix.h - one matrix of a checkpoint as a view of the mapped file.
 */
#ifndef MOX_CKPT_MODEL_MATRIX_H
#define MOX_CKPT_MODEL_MATRIX_H

#include "ckpt/model/layer_reader.h"

/* Reads one stored matrix (a projection, or gate and up together) as a view; also reads and checks group indices and
 * shape records. `rows`: which rows of it are the projection. *weight becomes its quantization. */
moxie_status mox_read_matrix(mox_layer_reader *reader, const mox_match *match, const mox_part_place *place,
                             mox_part_rows rows, moxie_matrix *out, moxie_quant *weight);
/* The static activation scale of a matrix of one expert; 0 when there is none that is usable. */
float mox_read_input_scale(const mox_match *match, const mox_part_place *place);
/* Bytes of all tensors of a match. */
uint64_t mox_match_bytes(const mox_match *match);

#endif
