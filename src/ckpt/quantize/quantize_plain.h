/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_plain.h - the tensors of a loaded layer that are no matrices of routed experts: router, biases, shared
 * expert, its gate. They are written as floats.
 */
#ifndef MOX_CKPT_QUANTIZE_PLAIN_H
#define MOX_CKPT_QUANTIZE_PLAIN_H

#include "ckpt/model/model_state.h"
#include "ckpt/safetensors/seal.h"

/* True for matrices of routed experts. */
bool mox_quantize_is_routed(const mox_tensor_spec *spec);
/* False for tables, norms and others that this file does not know. */
bool mox_quantize_can_write(const mox_tensor_spec *spec);
/* The dtype that a layer's shared expert is written in: its own plain float, f32 when its matrices have different
 * ones, bf16 when it is quantized. */
moxie_dtype mox_quantize_shared_dtype(const moxie_layer_config *config);
/* The family's dtype where it holds every number of the tensor, else f32. For tensors that are no matrices. */
moxie_status mox_quantize_plain_dtype(const moxie_model_layer *layer, const mox_tensor_spec *spec, moxie_dtype *out,
                                      moxie_error *error);
/* Writes the tensor as number `at` of the file. */
moxie_status mox_quantize_plain_write(const moxie_model_layer *layer, const mox_tensor_spec *spec, int64_t at,
                                      mox_sealed_writer *writer, moxie_error *error);

#endif
