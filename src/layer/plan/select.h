/* SPDX-License-Identifier: Apache-2.0
 *
 * select.h - which row of each kernel list a configuration gets, and why better rows were refused.
 *
 *     [dense] -> topk -> permute -> (quant_act -> expert_gemm w13 -> glu -> quant_act -> expert_gemm w2)
 *             -> (the same for the shared expert) -> combine
 *
 * A family's rows are asked in list order, best first. The two products of an expert share a record, so their
 * rows are chosen as a pair with one layout. The reference backend is one more set of lists, with one row each
 * (ref_rows.h), and the cuda backend another (src/cuda); choosing is the same for all backends.
 */
#ifndef MOX_LAYER_SELECT_H
#define MOX_LAYER_SELECT_H

#include "base/memory.h"
#include "cpu/combine/combine.h"
#include "cpu/dense/dense.h"
#include "cpu/expert_gemm/expert_gemm.h"
#include "cpu/glu/glu.h"
#include "cpu/permute/permute.h"
#include "cpu/quant_act/quant_act.h"
#include "cpu/topk/topk.h"
#include "cuda/combine/cuda_combine.h"
#include "cuda/dense/cuda_dense.h"
#include "cuda/expert_gemm/cuda_expert_gemm.h"
#include "cuda/glu/cuda_glu.h"
#include "cuda/permute/cuda_permute.h"
#include "cuda/quant_act/cuda_quant_act.h"
#include "cuda/topk/cuda_topk.h"
#include "layer/config/config.h"
#include "backend/cuda/device.h"

/* Rows for the experts of one kind, routed or shared. */
typedef struct mox_expert_rows {
    const mox_layout *layout;
    const mox_quant_act_row *quant13, *quant2;
    const mox_expert_gemm_row *gemm13, *gemm2;
    const mox_glu_row *glu;
} mox_expert_rows;

typedef struct mox_cuda_expert_rows {
    const mox_cuda_quant_act_row *quant13, *quant2; /* quant2 and glu: NULL when gemm13 does their work */
    const mox_cuda_expert_gemm_row *gemm13, *gemm2;
    const mox_cuda_glu_row *glu;
} mox_cuda_expert_rows;

/* As mox_rows. */
typedef struct mox_cuda_rows {
    const mox_cuda_dense_row *router, *shared_gate;
    const mox_cuda_topk_row *topk;
    const mox_cuda_quant_act_row *widen; /* logits that were given, to f32 for the caller */
    const mox_cuda_permute_row *permute;
    mox_cuda_expert_rows routed, shared;
    const mox_cuda_combine_row *combine;
} mox_cuda_rows;

/* Of a plan for a GPU `cuda` is filled, and of the rest only the layouts. */
typedef struct mox_rows {
    mox_cuda_rows cuda;
    const mox_dense_row *router; /* NULL without a router */
    const mox_topk_row *topk;
    const mox_permute_row *permute;
    mox_expert_rows routed, shared;   /* shared: layout NULL when this rank has no shared expert */
    const mox_dense_row *shared_gate; /* NULL without one */
    const mox_combine_row *combine;
} mox_rows;

/* The plan as it will be shown: chosen and refused rows. Strings live in the arena. */
typedef struct mox_steps {
    mox_arena arena;
    moxie_plan_step *items;
    int32_t count, capacity;
} mox_steps;

/* Chooses for a checked configuration and read options. `routed` and `shared` fix the layout when records exist
 * already; NULL leaves it open. Steps are appended. MOXIE_ERR_UNSUPPORTED names the family that has no row. */
moxie_status mox_select(const moxie_layer_config *config, const moxie_options *options, const mox_device *device,
                        const mox_layout *routed, const mox_layout *shared, mox_rows *out, mox_steps *steps,
                        moxie_error *error);

void mox_steps_free(mox_steps *steps);

#endif
