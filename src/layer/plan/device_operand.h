/* SPDX-License-Identifier: Apache-2.0
 *
 * device_operand.h - how the operands of a GPU's products lie: which kind the chosen rows read, in rows or tiled, and
 * so how much memory they take and how a run describes them.
 *
 *     plan.rows -> form of each operand -> workspace.c (bytes), run_cuda_experts.c (pointers)
 *               -> each product without pointers -> run_cuda_experts.c, launch.c (what it would be launched as)
 */
#ifndef MOX_LAYER_DEVICE_OPERAND_H
#define MOX_LAYER_DEVICE_OPERAND_H

#include "cuda/expert_gemm/cuda_expert_gemm_args.h"
#include "layer/plan/plan.h"

typedef struct mox_device_form {
    mox_cuda_operand_kind kind;
    bool tiled;  /* made by the row for W13, which does what comes between */
    bool direct; /* the hidden states themselves: no memory of its own */
    int64_t rows, cols, stride, element_bytes;
    int64_t group_cols, scale_cols; /* scale_cols 0: unquantized */
    int64_t scale_room;             /* of a row, in memory */
} mox_device_form;

/* The operand of one product. Immutable. */
mox_device_form mox_device_form_of(const moxie_plan *plan, const mox_expert_side *side, mox_projection projection);
/* The same as fp32 numbers: what stages are compared by. */
mox_device_form mox_device_shown_form(const mox_device_form *form);
/* What a product on a GPU is launched with as far as the plan decides it, for a pass of `tokens` tokens: no pointers.
 * Immutable. */
mox_cuda_expert_gemm_args mox_device_product(const moxie_plan *plan, const mox_expert_side *side,
                                             mox_projection projection, int64_t slots, int64_t tokens);

/* True when the row for W13 leaves the operand of W2. */
static inline bool mox_device_fuses(const mox_expert_side *side)
{
    return side->cuda.quant2 == NULL;
}

#endif
