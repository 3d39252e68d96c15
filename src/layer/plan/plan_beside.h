/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_beside.h - the plan on the host of a plan on a GPU whose layer leaves some experts in RAM: CPU kernels compute
 * them there, beside the GPU's, and their rows join those of the GPU.
 *
 *     pinned | hidden states of the batch | routing weights, where they multiply the input | rows of a chunk |
 *
 * A batch goes through the host in chunks of tokens, so that rows [tokens, K, H] do not grow with it.
 *
 * In the flow: plan_fetch.c -> [plan_beside] -> run/run_beside.c.
 */
#ifndef MOX_LAYER_PLAN_BESIDE_H
#define MOX_LAYER_PLAN_BESIDE_H

#include "layer/plan/plan.h"
#include "layer/weights/device_source.h"

#define MOX_BESIDE_ROW_BYTES (INT64_C(64) << 20) /* of a chunk, if it has more than one token */

typedef struct mox_plan_beside {
    const mox_device_source *source;
    moxie_plan *plan; /* of the same layer on the host */
    int64_t tokens;   /* of a chunk */
    void *pinned;
    char *hidden;        /* [max_tokens, H] of config.dtype */
    float *weights;      /* [max_tokens, K]; NULL: nothing reads them */
    float *rows;         /* [tokens, K, H] */
    mox_cuda_event sent; /* the rows are copied */
    int32_t *ids;        /* [tokens, K] choices of the host; -1: the GPU's, or none */
    bool *here;          /* [E] the host computes it */
    void *workspace;     /* of `plan` */
} mox_plan_beside;

/* Nothing unless the plan's layer has one beside it. Adds the host's kernels to the plan's steps. */
moxie_status mox_plan_beside_create(moxie_plan *plan, mox_plan_beside **out, moxie_error *error);
void mox_plan_beside_destroy(mox_plan_beside *beside, const mox_cuda_table *table);

#endif
