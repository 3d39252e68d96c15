/* SPDX-License-Identifier: Apache-2.0
 *
 * model_join.h - shared experts in tensors of their own as one wide expert: gate and up rows one after the other, down
 * columns side by side. Every weight 1 and the same input: then the sum of the experts is the wide one's result.
 */
#ifndef MOX_CKPT_MODEL_JOIN_H
#define MOX_CKPT_MODEL_JOIN_H

#include "ckpt/model/layer_reader.h"

/* Experts of one width and format. w13 and w2 become the wide expert's. */
typedef struct mox_join {
    moxie_expert *experts;
    int64_t count, width;
    moxie_quant *w13, *w2;
    const moxie_quant *a2; /* activations into W2 */
} mox_join;

/* Replaces the first expert by the wide one, in memory of the layer. MOXIE_ERR_UNSUPPORTED where the wide one would not
 * be the sum: groups or activation scales that reach over the seam, or scalars that differ. */
moxie_status mox_join_experts(mox_layer_reader *reader, const mox_join *join);

#endif
