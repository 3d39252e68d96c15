/* SPDX-License-Identifier: Apache-2.0
 *
 * model_expert.h - the experts of one layer as views, all of one format.
 */
#ifndef MOX_CKPT_MODEL_EXPERT_H
#define MOX_CKPT_MODEL_EXPERT_H

#include "ckpt/model/layer_reader.h"

/* Experts of one kind (routed or shared), and what they have in common. */
typedef struct mox_expert_set {
    moxie_expert *experts;
    int64_t count;
    moxie_quant w13, w2, a13, a2;
    bool bias;           /* all matrices have one */
    bool shared_bias[2]; /* of the shared expert's W13 and W2 */
    const char *format;  /* id in hf_quant.def */
    uint64_t bytes;
} mox_expert_set;

/* Reads all routed experts, or the shared one: finds, compares and checks formats, and makes views. */
moxie_status mox_read_routed(mox_layer_reader *reader, mox_expert_set *out);
moxie_status mox_read_shared(mox_layer_reader *reader, mox_expert_set *out);

#endif
