/* SPDX-License-Identifier: Apache-2.0
 *
 * run.h - one run of a plan: the whole layer in one call, or the modular three, and the hook through which
 * moxie_plan_check looks at every stage.
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

/* One kind of expert during one pass. Rows of y, act and h are pairs; for the shared expert pair t is token t. */
typedef struct mox_expert_pass {
    const mox_expert_side *side;
    int64_t slots, pairs;
    const void *const *records;
    const int64_t *offsets;     /* [slots+1] */
    const int64_t *expert_of;   /* [slots]; NULL: the shared expert */
    const void *x;              /* hidden states of the pass */
    int64_t rows13;             /* of the first operand */
    const int64_t *source;      /* [rows13] token of each, NULL: identity */
    const int64_t *operand_row; /* [pairs] row of the first operand, NULL: identity */
    const float *row_weight;    /* [rows13] or NULL */
    const float *given13;       /* [rows13] or NULL */
    const float *given2;        /* [pairs] or NULL */
    mox_operand a13, a2;
    float *h, *act, *y;
} mox_expert_pass;

struct mox_run;

/* Where fused experts leave what they would not keep: one kind of expert, arrays for a whole pass. */
typedef struct mox_trace {
    float *h, *act;               /* [pairs, n13], [pairs, I] */
    float *values[2], *scales[2]; /* operands of both products: [pairs, stride], [pairs, groups] */
    float *global[2];             /* [pairs] */
} mox_trace;

/* Called after each stage of a run; a failure ends it. `pass` is NULL for stages that are not an expert's. Of fused
 * experts the stages come when all of them are done, from the trace. */
typedef struct mox_probe {
    void *user;
    const mox_trace *trace; /* routed, shared; needed when the plan fuses */
    moxie_status (*after)(void *user, const struct mox_run *run, mox_stage stage, const mox_expert_pass *pass,
                          moxie_error *error);
} mox_probe;

typedef struct mox_run {
    const moxie_plan *plan;
    moxie_run_args args;
    char *space;
    const mox_probe *probe; /* or NULL */
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

/* Routes the batch (`routed`) and weighs the shared expert (`gated`), as far as the plan has them (run_route.c). */
moxie_status mox_run_route(mox_run *run, bool routed, bool gated, moxie_error *error);

/* The experts of one pass that are fused, the shared one too when `shared`; then combine, unless NULL (run_fused.c).
 * Sets run->y and run->shared_y. */
moxie_status mox_run_fused(mox_run *run, bool shared, const mox_combine_args *combine, moxie_error *error);

/* The chain of one kind of expert over one pass (run_experts.c). */
moxie_status mox_run_experts(mox_run *run, mox_expert_pass *pass, moxie_error *error);
/* The same on a GPU (run_cuda_experts.c); given scales where the pass has none by row. */
moxie_status mox_device_experts(const mox_run *run, mox_expert_pass *pass, mox_cuda_stream stream, float given13,
                                float given2, moxie_error *error);
/* What the weighted sum gets; y is by position after a pass, or by pair (position NULL) when it came from the caller.
 */
mox_combine_args mox_run_combine_args(const mox_run *run, const float *y, const int64_t *position);
/* Tells the probe, if there is one. */
moxie_status mox_run_probe(const mox_run *run, mox_stage stage, const mox_expert_pass *pass, moxie_error *error);

/* The four calls on a GPU (run_cuda.c): pointers are the device's, the work is enqueued. The probe, if there is one, is
 * called as soon as a stage is enqueued, with device pointers in `run` and `pass`, and pass->pairs an upper limit. */
typedef enum mox_device_call {
    MOX_DEVICE_RUN,
    MOX_DEVICE_ROUTE,
    MOX_DEVICE_EXPERTS,
    MOX_DEVICE_COMBINE
} mox_device_call;
moxie_status mox_device_enqueue(const moxie_plan *plan, mox_device_call call, const moxie_run_args *args, float *rows,
                                mox_cuda_stream stream, const mox_probe *probe, moxie_error *error);
/* The same with pointers of the host (run_staged.c): copies in, runs, copies out, waits. Its probe sees the host. */
moxie_status mox_device_staged(const moxie_plan *plan, mox_device_call call, const moxie_run_args *args, float *rows,
                               const mox_probe *probe, moxie_error *error);

/* Bodies of moxie_plan_run, _route, _experts and _combine; `probe` may be NULL. */
moxie_status mox_plan_run(const moxie_plan *plan, const moxie_run_args *args, const mox_probe *probe,
                          moxie_error *error);
moxie_status mox_plan_route(const moxie_plan *plan, const moxie_run_args *args, moxie_error *error);
moxie_status mox_plan_experts(const moxie_plan *plan, const moxie_run_args *args, float *rows, moxie_error *error);
moxie_status mox_plan_combine(const moxie_plan *plan, const moxie_run_args *args, const float *rows,
                              moxie_error *error);

#endif
