/* SPDX-License-Identifier: Apache-2.0
 *
 * run.h - one run of a plan: the whole layer in one call, or one of the modular three. Written once for all back ends.
 *
 *     whole batch   [dense router] -> topk, [dense shared gate]                                      run_route.c
 *     each pass     permute                                                                          run.c
 *                   quant_act -> expert_gemm w13 -> glu -> quant_act -> expert_gemm w2     run_experts.c, run_fused.c
 *                   the same for the shared expert
 *                   combine                                                                          run.c
 *
 * The words, each with one meaning in all of src/layer and src/backend:
 *     chain   all operations of a run, in the order above
 *     stage   one operation of the chain whose result a check compares (mox_stage)
 *     span    several operations that a back end does in one call: `route`, `experts` (backend.h)
 *     pass    one trip of at most pass_tokens tokens from permute to combine
 *     step    one line of a plan: a kernel that was chosen or rejected (steps.h)
 *
 * The modular three cut the chain where an engine moves tokens between ranks:
 *     MOX_RUN_ROUTE     up to topk: ids and weights
 *     MOX_RUN_EXPERTS   passes up to y, which is scattered to rows [T,K,H]
 *     MOX_RUN_COMBINE   from such rows to the output
 */
#ifndef MOX_LAYER_RUN_H
#define MOX_LAYER_RUN_H

#include "layer/run/run_state.h"

typedef enum mox_run_call { MOX_RUN_WHOLE, MOX_RUN_ROUTE, MOX_RUN_EXPERTS, MOX_RUN_COMBINE } mox_run_call;

/* Runs a plan. All pointers in `args` are memory where the plan runs: the host's, or a device's with a stream to
 * enqueue on. `rows` [T,K,H]: output of MOX_RUN_EXPERTS, input of MOX_RUN_COMBINE. `probe` may be NULL. Allocates
 * nothing. */
moxie_status mox_run_enqueue(const moxie_plan *plan, mox_run_call call, const moxie_run_args *args, float *rows,
                             mox_cuda_stream stream, const mox_probe *probe, moxie_error *error);

#endif
