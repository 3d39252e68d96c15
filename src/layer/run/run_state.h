/* SPDX-License-Identifier: Apache-2.0
 *
 * run_state.h - what the parts of a run share: the run, one kind of expert during a pass, and the probe that sees the
 * result of every stage. run.h explains the chain and its words.
 */
#ifndef MOX_LAYER_RUN_STATE_H
#define MOX_LAYER_RUN_STATE_H

#include "layer/plan/plan.h"

/* The operations whose results a check compares. */
typedef enum mox_stage {
    MOX_STAGE_ROUTER_NORM,
    MOX_STAGE_ROUTER,
    MOX_STAGE_TOPK,
    MOX_STAGE_QUANT13,
    MOX_STAGE_GEMM13,
    MOX_STAGE_GLU,
    MOX_STAGE_QUANT2,
    MOX_STAGE_GEMM2,
    MOX_STAGE_EXPERT_NORM,
    MOX_STAGE_SHARED_GATE,
    MOX_STAGE_COMBINE
} mox_stage;

/* One kind of expert during one pass. A pair is a token with one of its experts, pairs are grouped by slot; for the
 * shared expert pair t is token t. Arrays of two are by mox_projection.
 *
 *     x [tokens, H] -> a[W13] [rows13, H] -> h [pairs, n13] -> act [pairs, I] -> a[W2] [pairs, I] -> y [pairs, H]
 */
typedef struct mox_expert_pass {
    mox_expert_kind kind;
    const mox_expert_plan *experts;
    int64_t slots;
    int64_t pairs;              /* upper limit; the count is offsets[slots], in memory where the back end runs */
    const void *const *records; /* [slots] */
    const int64_t *offsets;     /* [slots+1] first pair of each slot */
    const int64_t *expert_of;   /* [slots]; NULL: the shared expert */
    const void *x;              /* hidden states of the pass */
    int64_t rows13;             /* rows of W13's activations, upper limit: one a token, or one a pair */
    const int64_t *source;      /* [rows13] token of each row of W13's activations; NULL: row t is token t */
    const int64_t *act_row;     /* [pairs] row of W13's activations that the pair reads; NULL: row p for pair p */
    const float *row_weight;    /* [rows13] multiplies the input, or NULL */
    const float *pair_scale[2]; /* static scale of each row; NULL: static_scale for all rows */
    float static_scale[2];
    mox_activations a[2];      /* activations that the products read */
    mox_activations traced[2]; /* the same as F32; they have memory only in a traced run */
    float *h, *act, *y;
} mox_expert_pass;

/* The slots of a pass: the layer's, or those of the experts that a source fetches (run_fetch.h). The experts of slots
 * [first, end) are computed at a time: all of them, or those whose records are there. */
typedef struct mox_run_slots {
    int64_t count, first, end;
    const int32_t *slot_of;       /* [E] */
    const int64_t *expert_of;     /* [count] */
    const void *const *records;   /* [count] */
    const float *static_scale[2]; /* [count], by mox_projection */
    const int32_t *place_of;      /* [count] the layer's slot of the same expert; NULL: these are the layer's slots */
    uint64_t record_bytes;        /* from one record to the next, on a GPU */
    int64_t first_pair;           /* on a GPU: where the rows of these slots begin in y (run_windows.h) */
} mox_run_slots;

struct mox_run;

/* Sees a traced run: `after` is called after each stage; its failure ends the run. `pass` is NULL for stages outside
 * the experts. On a device the stage is only enqueued at that time, and pointers are device memory. For fused experts
 * the calls for all their stages come when the span is done. */
typedef struct mox_probe {
    void *user;
    moxie_status (*after)(void *user, const struct mox_run *run, mox_stage stage, const mox_expert_pass *pass,
                          moxie_error *error);
} mox_probe;

typedef struct mox_run {
    const moxie_plan *plan;
    /* Ranks compute the batch together: the run of this rank's own tokens, which this is, or for which it computes rows
     * that came from all ranks. NULL: this rank is alone. */
    const struct mox_run *own;
    const struct mox_run *host; /* of a run over ranks: as the host sees it (ranks_device.h) */
    mox_queue queue;
    moxie_run_args args;
    char *space;   /* the workspace */
    bool captured; /* the stream is captured in a graph: the host neither waits nor tells other ranks anything */
    bool coded;    /* args.hidden has rows of codes that other ranks made (quant/act_row.h) */
    const mox_probe *probe; /* NULL unless the run is traced; then the workspace has traced_bytes */
    /* whole batch, after routing */
    const float *router_x; /* the router's input after its norm; NULL: it has none */
    const void *logits;    /* NULL when the caller passed ids */
    moxie_dtype logits_dtype;
    const int32_t *ids;   /* [T,K] */
    const float *weights; /* [T,K]; NULL where nothing reads them */
    /* the present pass: tokens [first, first + tokens) of the batch */
    int64_t first, tokens;
    mox_run_slots slots;
    bool fetches; /* a session of the layer's source is open */
    mox_permutation permutation;
    bool adapted;                              /* a token of the pass has an adapter (run_adapters.h) */
    const float *y, *shared_y, *shared_weight; /* input of combine; the shared ones may be NULL */
    const float *before_norm;                  /* what became y by the experts' norm; NULL: there is none */
} mox_run;

/* A buffer of the workspace by its field in mox_workspace. */
#define MOX_RUN_AT(run, type, offset) ((type *)((run)->space + (run)->plan->space.offset))

/* Counts the time from now on to `phase` (clock.h); returns the phase that ends. */
static inline mox_phase mox_run_enter(const mox_run *run, mox_phase phase)
{
    if (run->plan->ranks != NULL && run->plan->ranks->timed)
        (void)run->queue.table->stream_wait(run->queue.stream, NULL); /* the next call that fails says what is wrong */
    return mox_clock_enter(&run->plan->clocks[0], phase);
}

/* Goes back to an earlier phase, and returns the status of what was timed: return mox_run_back(run, before, call). */
static inline moxie_status mox_run_back(const mox_run *run, mox_phase before, moxie_status status)
{
    mox_run_enter(run, before);
    return status;
}

/* The router's input, [T, router_width] of config.dtype. */
const void *mox_run_router_input(const mox_run *run);
/* Hidden states of the pass, [tokens, H], or the rows of codes that came in their place. */
const void *mox_run_hidden(const mox_run *run);
/* Whether W13's activations have one row a pair, because the numbers in a row depend on the expert: routing weights
 * multiply the input, or static scales differ. Else all experts of a token read one row. */
bool mox_run_has_row_per_pair(const mox_run *run);
/* The arguments of a norm of rows of `cols` numbers; x, x_dtype, out and the number of rows are the caller's to set. */
mox_row_norm_args mox_run_norm_args(const moxie_row_norm *norm, const float *weight, int64_t cols);
/* The type that routed experts' results are rounded to; NONE: they are not. */
moxie_dtype mox_run_rounds_to(const mox_run *run);
/* Calls the probe, if there is one. */
moxie_status mox_run_probe(const mox_run *run, mox_stage stage, const mox_expert_pass *pass, moxie_error *error);

#endif
