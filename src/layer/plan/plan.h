/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.h - a plan: the chosen rows, the map of its workspace, and its explanation.
 *
 * A run routes the whole batch, then sends it through the experts in passes of at most pass_tokens, so that the
 * workspace does not grow with T. That is legal because a token's bits do not depend on its neighbours; where
 * they do (one activation scale for the whole batch), one pass covers max_tokens.
 *
 *     workspace | logits [T,E] | ids, weights [T,K] | shared expert's weights [T] |
 *               | one pass: permutation, routed and shared expert buffers | [what a traced run on a GPU leaves] |
 *
 * In the flow: layer -> [plan] -> run.
 */
#ifndef MOX_LAYER_PLAN_H
#define MOX_LAYER_PLAN_H

#include "cpu/fused/fused.h"
#include "layer/weights/layer.h"

/* Tokens of a pass: at least MOX_PASS_TOKENS, and as many as MOX_PASS_BYTES hold when the experts are fused, since
 * every pass reads the weights again. */
#define MOX_PASS_TOKENS 256
#define MOX_PASS_BYTES  (INT64_C(192) << 20)
/* The same on a GPU, where device memory is the only limit. */
#define MOX_DEVICE_PASS_BYTES (INT64_C(2) << 30)
/* Tokens that one worker routes at a time. */
#define MOX_ROUTE_TOKENS 32

/* Byte offsets of one operand's arrays (cpu/operand.h). */
typedef struct mox_operand_space {
    uint64_t values, scales, global;
} mox_operand_space;

/* Byte offsets of the buffers of one kind of expert. */
typedef struct mox_expert_space {
    mox_operand_space a13, a2;
    mox_operand_space shown13, shown2; /* on a GPU: the same as fp32, where rows read another kind; only traced */
    uint64_t given13, given2;          /* [rows] */
    uint64_t h, act, y;                /* on a GPU, h and act of a fused row: only traced */
} mox_expert_space;

/* The same when the experts are fused. */
typedef struct mox_fused_space {
    uint64_t data, scales, row_scale, global;
} mox_fused_space;

typedef struct mox_workspace {
    uint64_t bytes;
    uint64_t traced_bytes; /* with what only runs that are looked at leave; on a GPU more than `bytes` */
    /* whole batch */
    uint64_t logits, ids, weights, shared_weight;
    uint64_t topk_row, topk_logits, dense_x;
    /* one pass */
    uint64_t offsets, pair_at, position, token_of, row_weight;
    uint64_t codes, row, gemm;
    uint64_t fused_items, fused_scratch, fused_scratch_bytes;
    mox_expert_space routed, shared;
    uint64_t counts, amax, shared_offsets; /* on a GPU: of permute, of quant_act, [2] */
} mox_workspace;

/* What a pass needs to know about one kind of expert, routed or shared. */
typedef struct mox_expert_side {
    mox_expert_rows rows;
    mox_cuda_expert_rows cuda;
    mox_record_shape shape;
    moxie_quant a13, a2;
    moxie_activation activation;
    mox_expert_space space;
    bool fused; /* both products in cpu/fused */
    mox_fused_product first, second;
    mox_fused_space fused13, fused2;
    int64_t max_pairs, max_rows; /* of a pass: pairs, rows of the first operand */
    int64_t n13;                 /* columns of h: 2I or I */
} mox_expert_side;

struct moxie_plan {
    const moxie_layer *layer; /* NULL: an explanation, it cannot run */
    moxie_layer_config config;
    moxie_executor executor;
    mox_device device; /* the host's for the other back ends */
    int64_t max_tokens, pass_tokens;
    mox_rows rows;
    mox_expert_side routed, shared;
    mox_workspace space;
    mox_steps steps;
};

static inline bool mox_plan_has_shared_gate(const moxie_plan *plan)
{
    return plan->rows.shared_gate != NULL || plan->rows.cuda.shared_gate != NULL;
}

/* Bodies of the moxie_plan_ functions. */
moxie_status mox_plan_create(const moxie_layer *layer, const moxie_options *options, moxie_plan **out,
                             moxie_error *error);
moxie_status mox_plan_explain(const moxie_layer_config *config, const moxie_options *options, moxie_plan **out,
                              moxie_error *error);
void mox_plan_destroy(moxie_plan *plan);

/* Lays the workspace out for max_tokens and pass_tokens; MOXIE_ERR_MEMORY when it does not fit in 64 bits. */
moxie_status mox_plan_lay_out(moxie_plan *plan, moxie_error *error);

#endif
