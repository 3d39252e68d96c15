/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm.h - family expert_gemm: one of the two products of every expert, straight from its codes.
 *
 *     out[p, n] = ( sum over segments s of  sw[n,s] sa[r,s] * sum_{k in s} (code[n,k] - zero) a[r,k] )
 *                 (*|/) activation global (*|/) weight global + bias[n],        r = operand_row[p]
 *
 * A segment is a run of columns inside one weight group, one activation group and one multiple of
 * MOX_SEGMENT columns. Segments start from zero and are added in order, so a dot product's bits depend on
 * nothing but its two vectors. Integer weights times integer activations are summed in int32 over the whole
 * common group.
 *
 * For W13 of a gated activation, gate and up are two matrices; out rows are [gate I | up I].
 *
 * In the flow: permute -> quant_act -> [expert_gemm 1] -> glu -> quant_act -> [expert_gemm 2] -> combine.
 */
#ifndef MOX_CPU_EXPERT_GEMM_H
#define MOX_CPU_EXPERT_GEMM_H

#include "cpu/kernel.h"
#include "cpu/operand.h"

#define MOX_SEGMENT 512

typedef enum mox_projection { MOX_W13 = 0, MOX_W2 = 1 } mox_projection;

typedef struct mox_expert_gemm_args {
    const mox_record_shape *shape;
    mox_projection projection;
    int64_t slots;
    const void *const *records; /* [slots] */
    const int64_t *offsets;     /* [slots+1] */
    const int64_t *operand_row; /* [pairs]: row of the operand; NULL: identity */
    const mox_operand *a;
    float *out;    /* [pairs, n_out] f32 */
    int64_t n_out; /* 2I or I for W13, H for W2 */
    void *scratch; /* workers * scratch_bytes(), 64-byte aligned */
} mox_expert_gemm_args;

/* What a row is asked to admit. */
typedef struct mox_expert_gemm_problem {
    const mox_record_shape *shape;
    mox_projection projection;
    const moxie_quant *weight, *act;
} mox_expert_gemm_problem;

typedef struct mox_expert_gemm_row {
    mox_kernel base;
    void (*run)(const mox_expert_gemm_args *args, const moxie_executor *executor);
    bool (*admit)(const mox_expert_gemm_problem *problem, mox_refusal *why);
    uint64_t (*scratch_bytes)(const mox_expert_gemm_problem *problem); /* per worker */
} mox_expert_gemm_row;

const mox_expert_gemm_row *mox_expert_gemm_at(int32_t i);

/* What every row of expert_gemm.def provides. */
#define MOX_EXPERT_GEMM(id, isa, exactness, layout)                                                                    \
    void mox_expert_gemm_##id##_run(const mox_expert_gemm_args *args, const moxie_executor *executor);                 \
    bool mox_expert_gemm_##id##_admit(const mox_expert_gemm_problem *problem, mox_refusal *why);                       \
    uint64_t mox_expert_gemm_##id##_scratch_bytes(const mox_expert_gemm_problem *problem);
#include "cpu/expert_gemm/expert_gemm.def"
#undef MOX_EXPERT_GEMM

#endif
