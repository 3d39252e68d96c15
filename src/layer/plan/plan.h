/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.h - a plan: the chosen kernels of a layer, the map of its workspace, and its explanation.
 *
 * A run routes the whole batch. Then it sends the batch through the experts in passes of at most pass_tokens tokens, so
 * the workspace does not grow with T. Passes change no bit, because a token's bits do not depend on its neighbours.
 * Where they do (one activation scale for the whole batch), one pass covers max_tokens.
 *
 *     workspace | logits [T,E] | ids, weights [T,K] | shared expert's weights [T] |
 *               | one pass: permutation, routed and shared expert buffers | [buffers of traced runs only] |
 *
 *     plan_create.c    chooses kernels, the size of a pass, the order of activations
 *     plan_product.c   the arguments of one product as far as the plan fixes them
 *     workspace.c      where each buffer is
 *
 * In the flow: layer -> [plan] -> run.
 */
#ifndef MOX_LAYER_PLAN_H
#define MOX_LAYER_PLAN_H

#include "base/clock.h"
#include "base/sizes.h"
#include "layer/plan/ranks.h"
#include "layer/plan/select.h"
#include "layer/weights/layer.h"

/* Tokens of a pass. Every pass reads the weights again, so fused experts get as many tokens as fit in MOX_PASS_BYTES,
 * at least MOX_PASS_TOKENS; other experts get MOX_PASS_TOKENS. */
#define MOX_PASS_TOKENS 256
#define MOX_PASS_BYTES  (INT64_C(192) << 20)
/* On a GPU a pass has as many tokens as fit in an eighth of the device's memory, from the first to the second of these
 * limits: 16384 tokens of DeepSeek-V3 fit in the second. Tensor parallel ranks, whose cards may differ and whose
 * passes must not, have the first. */
#define MOX_DEVICE_PASS_BYTES     (INT64_C(2) << 30)
#define MOX_DEVICE_MAX_PASS_BYTES (INT64_C(12) << 30)

/* Byte offsets of the arrays of one product's activations (cpu/activations.h). */
typedef struct mox_activations_space {
    uint64_t values, scales, global;
} mox_activations_space;

/* Byte offsets of the buffers of one kind of expert; arrays of two are by mox_projection. */
typedef struct mox_expert_space {
    mox_activations_space a[2];
    mox_activations_space traced[2]; /* the same activations as F32, which a check compares */
    uint64_t pair_scale[2];          /* [rows] static scale of each row */
    uint64_t h, act, y;              /* kernels that fuse write h in a traced run only, act also for adapters of W2 */
    uint64_t change;                 /* what adapters add to h, for a kernel of W13 that fuses the activation */
} mox_expert_space;

/* Byte offsets of the arrays of a fused product's activations (cpu/fused). */
typedef struct mox_fused_space {
    uint64_t data, scales, row_scale, global;
} mox_fused_space;

typedef struct mox_workspace {
    uint64_t bytes;
    uint64_t traced_bytes; /* with the buffers of a traced run */
    /* whole batch */
    uint64_t router_x; /* [T, router_width] the router's input after its norm */
    uint64_t logits, ids, weights, shared_weight;
    uint64_t topk_row, topk_logits, dense_x; /* scratch */
    /* one pass */
    uint64_t offsets, pair_at, position, token_of, row_weight, shared_offsets;
    uint64_t normed;              /* [pairs, H] routed experts' results after their norm */
    uint64_t counts, amax;        /* scratch of permute, of quant_act */
    uint64_t codes, row, product; /* scratch of quant_act (codes, row) and of products */
    uint64_t product_bytes;       /* nothing reads it after the product */
    uint64_t fused_items, fused_scratch, fused_scratch_bytes;
    /* adapters: on the host of each pair (run_adapters.c); u of both products; scratch of lora */
    uint64_t adapter_of, lora_u13, lora_u2, lora_scratch;
    /* records from a source (run_fetch.h): its session; experts of a pass; their slots, and what lies by slot */
    uint64_t fetch_session, fetch_experts, fetch_slot_of, fetch_expert_of, fetch_place_of, fetch_records,
        fetch_scale[2];
    /* on a GPU: tables and permutation of a window (run_windows.c); fetch_slot_of is that of all windows */
    uint64_t fetch_tables, fetch_offsets, fetch_pair_at, fetch_position;
    /* tensor parallel: this rank's columns of act and of y, of either kind of expert, and what travels (run_tp.c) */
    uint64_t tp_act, tp_y, tp_send, tp_recv, tp_send_bytes, tp_recv_bytes;
} mox_workspace;

/* The plan of one kind of expert; arrays of two are by mox_projection. */
typedef struct mox_expert_plan {
    mox_expert_kernels kernels;
    mox_record_shape shape;
    moxie_quant act[2];
    moxie_activation activation;
    mox_activations_form form[2];
    mox_activations traced[2]; /* F32, without pointers */
    mox_expert_space space;
    bool fused; /* both products run in the back end's span `experts` */
    mox_fused_product fused_product[2];
    mox_fused_space fused_space[2];
    int64_t max_pairs, max_rows; /* of a pass: pairs, rows of the first product's activations */
    int64_t n13;                 /* columns of h: 2I or I */
} mox_expert_plan;

typedef struct mox_plan_fetch mox_plan_fetch;
typedef struct mox_plan_replay mox_plan_replay;

struct moxie_plan {
    const moxie_layer *layer; /* NULL: the plan only explains, it cannot run */
    moxie_layer_config config;
    const mox_backend *backend;
    moxie_executor executor;
    mox_device device; /* all zero for back ends on the host */
    moxie_mode mode;
    mox_tp_cut tp_cut, shared_cut; /* of routed experts, of the shared one */
    int64_t max_tokens, pass_tokens;
    int32_t max_adapter_rank; /* 0: runs have no adapters */
    int64_t pass_limit;       /* what pass_tokens may be by the kernels' buffers alone */
    mox_kernels kernels;
    mox_expert_plan experts[MOX_EXPERT_KINDS];
    mox_workspace space;
    mox_steps steps;
    mox_ranks *ranks;        /* NULL: this rank alone */
    mox_clock *clocks;       /* [workers] where the time of its runs went */
    mox_plan_fetch *fetch;   /* of a layer on a GPU whose records a source fetches (plan_fetch.h); else NULL */
    mox_plan_replay *replay; /* of the last call on a GPU (plan_replay.h); NULL: calls are never launched as graphs */
};

/* Tokens of a pass of a run of `tokens` tokens: it has as few passes as there may be, and they are alike. 0 of none. */
static inline int64_t mox_plan_pass(const moxie_plan *plan, int64_t tokens)
{
    const int64_t passes = mox_ceil_div(tokens, plan->pass_tokens);
    return passes > 0 ? mox_ceil_div(tokens, passes) : 0;
}

/* Tokens of a chunk that a group's ranks own together, whose shared expert they compute; 0: each computes it whole. */
static inline int64_t mox_plan_shared_tokens(const moxie_plan *plan)
{
    const mox_ranks *x = plan->ranks;
    return x != NULL && plan->shared_cut == MOX_TP_ROWS ? x->tp_size * x->chunk_tokens : 0;
}

/* This rank computes the shared expert. */
static inline bool mox_plan_has_shared(const moxie_plan *plan)
{
    return plan->experts[MOX_SHARED_EXPERT].kernels.layout != NULL;
}

#endif
