/* SPDX-License-Identifier: Apache-2.0
 *
 * run.h - one run of a plan: the whole layer in one call, or the modular three, and the probe through which
 * moxie_plan_check sees every stage. Written once for all back ends (backend/backend.h).
 *
 *     route:  [dense] -> topk, shared gate                       whole batch (run_route.c)
 *     passes: permute -> experts (routed, shared) -> combine     at most pass_tokens each; the experts stage by
 *                                                                stage (run_experts.c) or fused (run_fused.c)
 */
#ifndef MOX_LAYER_RUN_H
#define MOX_LAYER_RUN_H

#include "layer/plan/plan.h"

typedef enum mox_stage {
    MOX_STAGE_ROUTER,
    MOX_STAGE_TOPK,
    MOX_STAGE_QUANT13,
    MOX_STAGE_GEMM13,
    MOX_STAGE_GLU,
    MOX_STAGE_QUANT2,
    MOX_STAGE_GEMM2,
    MOX_STAGE_SHARED_GATE,
    MOX_STAGE_COMBINE
} mox_stage;

/* One kind of expert during one pass. Rows of y, act and h are pairs; for the shared expert pair t is token t. Arrays
 * of two are by mox_projection. */
typedef struct mox_expert_pass {
    mox_expert_kind kind;
    const mox_expert_plan *experts;
    int64_t slots;
    int64_t pairs; /* at most; how many there are is offsets[slots], where the back end runs */
    const void *const *records;
    const int64_t *offsets;     /* [slots+1] */
    const int64_t *expert_of;   /* [slots]; NULL: the shared expert */
    const void *x;              /* hidden states of the pass */
    int64_t rows13;             /* of the first product's activations, at most */
    const int64_t *source;      /* [rows13] token of each, NULL: identity */
    const int64_t *act_row;     /* [pairs] row of the first product's activations, NULL: identity */
    const float *row_weight;    /* [rows13] or NULL */
    const float *pair_scale[2]; /* static scales by row, or NULL: the one below */
    float static_scale[2];
    mox_activations a[2];      /* what the products read */
    mox_activations traced[2]; /* the same as F32; memory only in a traced run */
    float *h, *act, *y;
} mox_expert_pass;

struct mox_run;

/* Called after each stage of a traced run; a failure ends it. `pass` is NULL for stages that are not an expert's. On a
 * device the stage is only enqueued then, and pointers are the device's. Stages of fused experts come when all of them
 * are done. */
typedef struct mox_probe {
    void *user;
    moxie_status (*after)(void *user, const struct mox_run *run, mox_stage stage, const mox_expert_pass *pass,
                          moxie_error *error);
} mox_probe;

typedef struct mox_run {
    const moxie_plan *plan;
    mox_queue queue;
    moxie_run_args args;
    char *space;
    const mox_probe *probe; /* or NULL; else the workspace has traced_bytes */
    /* whole batch, after routing */
    const void *logits; /* NULL when ids were given */
    moxie_dtype logits_dtype;
    const int32_t *ids;   /* [T,K] */
    const float *weights; /* [T,K]; NULL where nothing reads them */
    /* the present pass */
    int64_t first, tokens;
    mox_permutation permutation;
    const float *y, *shared_y, *shared_weight; /* what combine reads; shared ones or NULL */
} mox_run;

#define MOX_RUN_AT(run, type, offset) ((type *)((run)->space + (run)->plan->space.offset))

typedef enum mox_run_call { MOX_RUN_WHOLE, MOX_RUN_ROUTE, MOX_RUN_EXPERTS, MOX_RUN_COMBINE } mox_run_call;

/* What a call needs besides the workspace. */
enum {
    MOX_NEEDS_HIDDEN = 1,
    MOX_NEEDS_OUTPUT = 2,
    MOX_NEEDS_LOGITS = 4, /* logits, or a router and its input */
    MOX_NEEDS_IDS = 8,
    MOX_NEEDS_WEIGHTS = 16,
    MOX_NEEDS_CHOICE = 32, /* ids and weights, else as MOX_NEEDS_LOGITS */
    MOX_NEEDS_IDS_OUT = 64
};

/* Reads and checks the caller's arguments (run_args.c). */
moxie_status mox_run_begin(const moxie_plan *plan, const moxie_run_args *args, uint32_t needs, mox_run *run,
                           moxie_error *error);
/* Router input and its hidden states, [T,router_width] in config.dtype. */
const void *mox_run_router_input(const mox_run *run);
/* The pass's hidden states. */
const void *mox_run_hidden(const mox_run *run);

/* Routes the batch (`routed`) and weighs the shared expert (`gated`), as far as the plan has them (run_route.c). */
moxie_status mox_run_route(mox_run *run, bool routed, bool gated, moxie_error *error);
/* Chosen or given ids, weights and logits, where the caller wants them and they are not yet. */
moxie_status mox_run_hand_on(const mox_run *run, moxie_error *error);

/* The chain of one kind of expert over one pass (run_experts.c). */
moxie_status mox_run_experts(mox_run *run, mox_expert_kind kind, moxie_error *error);
/* The experts of one pass that are fused, the shared one too when `shared`; then combine, unless NULL (run_fused.c). */
moxie_status mox_run_fused(mox_run *run, bool shared, const mox_combine_args *combine, moxie_error *error);

/* Tells the probe, if there is one. */
moxie_status mox_run_probe(const mox_run *run, mox_stage stage, const mox_expert_pass *pass, moxie_error *error);

/* A run whose arguments lie where the plan runs: host memory, or device memory and a stream to enqueue it on. `rows`:
 * [T,K,H] of MOX_RUN_EXPERTS and _COMBINE. `probe` may be NULL. */
moxie_status mox_run_enqueue(const moxie_plan *plan, mox_run_call call, const moxie_run_args *args, float *rows,
                             mox_cuda_stream stream, const mox_probe *probe, moxie_error *error);

/* A run whose arguments lie in host memory, whatever the back end: bodies of moxie_plan_run, _route, _experts and
 * _combine. The probe sees host memory. */
moxie_status mox_plan_run(const moxie_plan *plan, mox_run_call call, const moxie_run_args *args, float *rows,
                          const mox_probe *probe, moxie_error *error);

#endif
