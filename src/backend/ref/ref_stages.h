/* SPDX-License-Identifier: Apache-2.0
 *
 * ref_stages.h - the stages of a run in double precision, with the oracle's functions (ref/ref.h). Each has its
 * family's arguments and rounds its result once, to the type that the next stage reads.
 *
 * Weights are read from rowmajor records through views like a checkpoint's. The code is slow and meant to be obvious.
 */
#ifndef MOX_BACKEND_REF_STAGES_H
#define MOX_BACKEND_REF_STAGES_H

#include "cpu/combine/combine_args.h"
#include "cpu/dense/dense.h"
#include "cpu/expert_gemm/expert_gemm.h"
#include "cpu/glu/glu.h"
#include "cpu/lora/lora.h"
#include "cpu/quant_act/quant_act.h"
#include "cpu/row_norm/row_norm.h"
#include "cpu/topk/topk.h"

void mox_ref_run_row_norm(const mox_row_norm_args *args, const moxie_executor *executor);
void mox_ref_run_dense(const mox_dense_args *args, const moxie_executor *executor);
/* Ids come from the fp32 kernel, since fp32 keys define the choice; weights are computed in double. */
moxie_status mox_ref_run_topk(const mox_topk_args *args, const moxie_executor *executor, moxie_error *error);
void mox_ref_run_quant_act(const mox_quant_act_args *args, const moxie_executor *executor);
/* args->scratch: mox_ref_product_scratch() bytes a worker, for one decoded row of weights (ref_product.c). */
void mox_ref_run_product(const mox_expert_gemm_args *args, const moxie_executor *executor);
uint64_t mox_ref_product_scratch(const mox_expert_gemm_problem *problem);
/* Both sums of an element in double; the result is rounded once (ref_lora.c). */
void mox_ref_run_lora(const mox_lora_args *args, const moxie_executor *executor);
void mox_ref_run_glu(const mox_glu_args *args, const moxie_executor *executor);
void mox_ref_run_combine(const mox_combine_args *args, const moxie_executor *executor);

#endif
