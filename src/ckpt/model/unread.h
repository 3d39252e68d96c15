/* SPDX-License-Identifier: Apache-2.0
 *
 * unread.h - tensors of a layer's MoE block that nothing has read: a layer that has some is refused.
 */
#ifndef MOX_CKPT_UNREAD_H
#define MOX_CKPT_UNREAD_H

#include "ckpt/model/layer_reader.h"

/* Call this when the whole layer has been read. Lists the tensors of its MoE block that no reader has marked
 * (mox_layer_mark) and that unread_tensors.def does not excuse, into the loaded layer. MOXIE_ERR_UNSUPPORTED names the
 * first of them, unless the model was opened with allow_unread. */
moxie_status mox_check_unread(mox_layer_reader *reader);

#endif
