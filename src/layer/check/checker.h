/* SPDX-License-Identifier: Apache-2.0
 *
 * checker.h - what the checks of single stages share: the report under construction, each worker's tally and scratch,
 * and the functions that count elements.
 */
#ifndef MOX_LAYER_CHECKER_H
#define MOX_LAYER_CHECKER_H

#include "layer/run/run_state.h"

/* Stages in the order of the report. */
typedef enum mox_check_stage {
    MOX_CHECK_ROUTER_NORM,
    MOX_CHECK_ROUTER,
    MOX_CHECK_TOPK,
    MOX_CHECK_PERMUTE,
    MOX_CHECK_QUANT13,
    MOX_CHECK_GEMM13,
    MOX_CHECK_GLU,
    MOX_CHECK_QUANT2,
    MOX_CHECK_GEMM2,
    MOX_CHECK_EXPERT_NORM,
    MOX_CHECK_SHARED_GATE,
    MOX_CHECK_SHARED_QUANT13,
    MOX_CHECK_SHARED_GEMM13,
    MOX_CHECK_SHARED_GLU,
    MOX_CHECK_SHARED_QUANT2,
    MOX_CHECK_SHARED_GEMM2,
    MOX_CHECK_COMBINE,
    MOX_CHECK_STORE, /* a run through the layer's store */
    MOX_CHECK_STAGES
} mox_check_stage;

/* A worker's tally and scratch; arrays have room for the longest row of any matrix. */
typedef struct mox_check_worker {
    moxie_stage_report tally;
    float *x;           /* a row of activations */
    float *norm;        /* the weight of a norm */
    double *w, *scales; /* a row of weights; scales of a row of activations */
    double *minimum;    /* of a row of weights */
    uint8_t *codes;     /* codes of a row of activations */
} mox_check_worker;

typedef struct mox_checker {
    const moxie_plan *plan;
    const moxie_weights *weights;
    const moxie_executor *executor;
    mox_check_worker *workers;
    void *scratch;
    moxie_stage_report stages[MOX_CHECK_STAGES];
} mox_checker;

/* The stage that is being checked. */
typedef struct mox_check_context {
    mox_checker *checker;
    const mox_run *run;
    const mox_expert_pass *pass;       /* NULL for stages outside the experts */
    mox_projection projection;         /* which product the stage belongs to: W2 for quant2 and gemm2, else W13 */
    const moxie_quant *quant;          /* of the activations (quant) or of the weights (gemm) */
    const struct mox_check_lora *lora; /* of the product; NULL: no token of the pass has an adapter */
    float amax;                        /* of all activations, where one scale is for the whole batch */
} mox_check_context;

/* Where an element is; -1 where a coordinate has no meaning. */
typedef struct mox_place {
    int64_t token, slot, expert, column;
} mox_place;

/* Counts one element: right when |got - want| <= bound. An infinity is right where the true value may exceed `largest`,
 * the largest finite number of its type. NaN is right for NaN. */
void mox_check_element(moxie_stage_report *tally, double got, double want, double bound, double largest,
                       mox_place place);
/* Counts an element that is right or wrong, without a distance. */
void mox_check_equal(moxie_stage_report *tally, double got, double want, mox_place place);

/* Runs fn over the tasks of a stage and adds the workers' tallies to its report. */
void mox_check_run(mox_check_context *context, mox_check_stage stage, int64_t tasks, moxie_task_fn fn);
/* The tally and scratch of a worker. */
static inline mox_check_worker *mox_check_worker_of(const mox_check_context *context, int32_t worker)
{
    return &context->checker->workers[worker];
}

/* The largest finite number of F32, F16 or BF16. */
double mox_check_largest(moxie_dtype dtype);

#endif
