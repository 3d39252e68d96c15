/* SPDX-License-Identifier: Apache-2.0
 *
 * ref_rows.h - the reference backend: one row a family, each computing its stage in double precision as the
 * oracle does (ref/ref.h), rounded to the types that the stages of a run hand on.
 *
 * It reads weights from rowmajor records as checkpoint-style views. Slow, and right by being obvious.
 */
#ifndef MOX_LAYER_REF_ROWS_H
#define MOX_LAYER_REF_ROWS_H

#include "cpu/combine/combine.h"
#include "cpu/dense/dense.h"
#include "cpu/expert_gemm/expert_gemm.h"
#include "cpu/glu/glu.h"
#include "cpu/permute/permute.h"
#include "cpu/quant_act/quant_act.h"
#include "cpu/topk/topk.h"

extern const mox_dense_row mox_ref_row_dense;
extern const mox_topk_row mox_ref_row_topk;
extern const mox_permute_row mox_ref_row_permute;
extern const mox_quant_act_row mox_ref_row_quant_act;
extern const mox_expert_gemm_row mox_ref_row_expert_gemm;
extern const mox_glu_row mox_ref_row_glu;
extern const mox_combine_row mox_ref_row_combine;

#endif
