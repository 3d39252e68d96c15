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

#endif
