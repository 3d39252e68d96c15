/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.h - a plan: the chosen kernels, the map of its workspace, and its explanation.
 *
 * A run routes the whole batch, then sends it through the experts in passes of at most pass_tokens, so that the
 * workspace does not grow with T. That is legal because a token's bits do not depend on its neighbours; where
 * they do (one activation scale for the whole batch), one pass covers max_tokens.
 *
 *     workspace | logits [T,E] | ids, weights [T,K] | shared expert's weights [T] |
 *               | one pass: permutation, routed and shared expert buffers | [what only a traced run keeps] |
 *
 * In the flow: layer -> [plan] -> run.
 */
#ifndef MOX_LAYER_PLAN_H
#define MOX_LAYER_PLAN_H

#include "layer/plan/select.h"
#include "layer/weights/layer.h"

/* Tokens of a pass: at least MOX_PASS_TOKENS, and as many as MOX_PASS_BYTES hold when the experts are fused, since
 * every pass reads the weights again. */
#define MOX_PASS_TOKENS 256
#define MOX_PASS_BYTES  (INT64_C(192) << 20)
/* The same on a GPU, where device memory is the only limit. */
#define MOX_DEVICE_PASS_BYTES (INT64_C(2) << 30)

/* Byte offsets of the arrays of one product's activations (cpu/activations.h). */
typedef struct mox_activations_space {
    uint64_t values, scales, global;
} mox_activations_space;

/* Byte offsets of the buffers of one kind of expert; arrays of two are by mox_projection. */
typedef struct mox_expert_space {
    mox_activations_space a[2];
    mox_activations_space traced[2]; /* the same as F32, by which stages are compared */
    uint64_t pair_scale[2];          /* [rows] static scales by row */
    uint64_t h, act, y;              /* h and act of kernels that fuse: only traced */
} mox_expert_space;

/* The same of activations that fused experts hand on (cpu/fused). */
typedef struct mox_fused_space {
    uint64_t data, scales, row_scale, global;
} mox_fused_space;

typedef struct mox_workspace {
    uint64_t bytes;
    uint64_t traced_bytes; /* with what only a traced run keeps */
    /* whole batch */
    uint64_t logits, ids, weights, shared_weight;
    uint64_t topk_row, topk_logits, dense_x;
    /* one pass */
    uint64_t offsets, pair_at, position, token_of, row_weight, shared_offsets;
    uint64_t counts, amax; /* of permute, of quant_act */
    uint64_t codes, row, product;
    uint64_t fused_items, fused_scratch, fused_scratch_bytes;
} mox_workspace;

/* What a pass needs to know about one kind of expert; arrays of two are by mox_projection. */
typedef struct mox_expert_plan {
    mox_expert_kernels kernels;
    mox_record_shape shape;
    moxie_quant act[2];
    moxie_activation activation;
    mox_activations_form form[2];
    mox_activations traced[2]; /* F32, without pointers */
    mox_expert_space space;
    bool fused; /* both products in the back end's span `experts` */
    mox_fused_product fused_product[2];
    mox_fused_space fused_space[2];
    int64_t max_pairs, max_rows; /* of a pass: pairs, rows of the first product's activations */
    int64_t n13;                 /* columns of h: 2I or I */
} mox_expert_plan;

struct moxie_plan {
    const moxie_layer *layer; /* NULL: an explanation, it cannot run */
    moxie_layer_config config;
    const mox_backend *backend;
    moxie_executor executor;
    mox_device device; /* the host's for the other back ends */
    mox_isa isa;
    moxie_mode mode;
    int64_t max_tokens, pass_tokens;
    mox_kernels kernels;
    mox_expert_plan experts[MOX_EXPERT_KINDS];
    mox_workspace space;
    mox_steps steps;
};

/* This rank computes the shared expert. */
static inline bool mox_plan_has_shared(const moxie_plan *plan)
{
    return plan->experts[MOX_SHARED_EXPERT].kernels.layout != NULL;
}

/* Bodies of the moxie_plan_ functions. */
moxie_status mox_plan_create(const moxie_layer *layer, const moxie_options *options, moxie_plan **out,
                             moxie_error *error);
moxie_status mox_plan_explain(const moxie_layer_config *config, const moxie_options *options, moxie_plan **out,
                              moxie_error *error);
void mox_plan_destroy(moxie_plan *plan);

/* What a product is asked for (product.c). Immutable. */
mox_expert_gemm_problem mox_plan_problem(const moxie_plan *plan, mox_expert_kind kind, mox_projection projection);
/* A product's arguments as far as the plan decides them, for a pass of `tokens` tokens: no pointers to memory of a run
 * or a layer. Point into the plan. Immutable. */
mox_expert_gemm_args mox_plan_product(const moxie_plan *plan, mox_expert_kind kind, mox_projection projection,
                                      int64_t slots, int64_t tokens);

#endif
