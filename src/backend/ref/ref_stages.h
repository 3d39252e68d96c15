/* SPDX-License-Identifier: Apache-2.0
 *
 * ref_stages.h - the stages of a run in double precision, as the oracle has them (ref/ref.h): each takes its family's
 * arguments and rounds once, to the type that the stage hands on.
 *
 * Weights are read from rowmajor records as checkpoint-style views. Slow, and right by being obvious.
 */
#ifndef MOX_BACKEND_REF_STAGES_H
#define MOX_BACKEND_REF_STAGES_H

#include "cpu/combine/combine_args.h"
#include "cpu/dense/dense.h"
#include "cpu/expert_gemm/expert_gemm.h"
#include "cpu/glu/glu.h"
#include "cpu/quant_act/quant_act.h"
#include "cpu/topk/topk.h"

void mox_ref_run_dense(const mox_dense_args *args, const moxie_executor *executor);
/* The fp32 kernel's ids, which fp32 keys define, with weights in double. */
moxie_status mox_ref_run_topk(const mox_topk_args *args, const moxie_executor *executor, moxie_error *error);
void mox_ref_run_quant_act(const mox_quant_act_args *args, const moxie_executor *executor);
/* Scratch: one decoded weight row a worker, mox_ref_product_scratch() bytes (ref_product.c). */
void mox_ref_run_product(const mox_expert_gemm_args *args, const moxie_executor *executor);
uint64_t mox_ref_product_scratch(const mox_expert_gemm_problem *problem);
void mox_ref_run_glu(const mox_glu_args *args, const moxie_executor *executor);
void mox_ref_run_combine(const mox_combine_args *args, const moxie_executor *executor);

#endif
