/* SPDX-License-Identifier: Apache-2.0
 *
 * shared_bias.h - whether a shared expert has biases. Its tensors decide, since config keys do not tell (ERNIE's
 * use_bias and Nemotron's mlp_bias are about every linear layer of the model).
 */
#ifndef MOX_CKPT_MODEL_SHARED_BIAS_H
#define MOX_CKPT_MODEL_SHARED_BIAS_H

#include "ckpt/model/layer_reader.h"

/* True when all numbers are zero: exporters write such biases for models without any. */
bool mox_bias_is_zero(const moxie_grid *bias);
/* Which products of a shared expert have biases (W13, W2), from views with every bias that exists. Drops biases of
 * zeros. Gate and up must have a bias both, or neither. */
moxie_status mox_find_shared_bias(const mox_layer_reader *reader, moxie_expert *expert, bool has[2]);

#endif
