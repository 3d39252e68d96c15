/* SPDX-License-Identifier: Apache-2.0
 *
 * model_shared.h - whether a layer has a shared expert, and how wide it is.
 */
#ifndef MOX_CKPT_MODEL_SHARED_H
#define MOX_CKPT_MODEL_SHARED_H

#include "ckpt/model/layer_reader.h"

/* Sets dims.shared_intermediate: the width S that the shared expert's tensors have, 0 when there are none.
 * MOXIE_ERR_MISMATCH when config.json says otherwise; the text names its key and the tensor. */
moxie_status mox_find_shared_width(mox_layer_reader *reader);

/* The name of the shared expert's gate: names.shared_gate, or shared_gate_saved of the family where it exists. */
const char *mox_shared_gate_name(const mox_layer_reader *reader);

/* Shared experts in tensors of their own, "shared_experts.0.up_proj" and on: how many; 0: none are numbered. */
#define MOX_MAX_NUMBERED 64
int64_t mox_shared_numbered(const mox_layer_reader *reader);
/* "mlp.shared_experts.up_proj" -> "mlp.shared_experts.{e}.up_proj". */
moxie_status mox_shared_numbered_name(const mox_layer_reader *reader, const char *name, char *buffer, size_t size);

#endif
