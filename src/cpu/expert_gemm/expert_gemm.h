/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm.h - family expert_gemm: one of the two products of every expert, straight from its quantized weights.
 *
 *     out[p, n] = ( sum over segments s of  sw[n,s] sa[r,s] * sum_{k in s} (code[n,k] - zero[n,s]) a[r,k] )
 *                 (*|/) activation global (*|/) weight global + bias[n],        r = act_row[p]
 *
 *     p      pair of a token and one of its experts; pairs are grouped by slot (offsets)
 *     n, k   row and column of the expert's matrix
 *     sw, sa scales of weights and of activations
 *
 * A segment is a run of columns inside one weight group, one activation group and one multiple of MOX_SEGMENT columns.
 * Segments start from zero and are added in order, so a dot product's bits depend on nothing but its two vectors.
 * Integer weights times integer activations are summed in int32 over the whole common group.
 *
 * For W13 of a gated activation, gate and up are two matrices; the rows of `out` are [gate I | up I].
 *
 * There are two types of kernels. A product kernel computes a whole product by itself. A panel kernel multiplies panels
 * of 16 matrix rows (panel_kernel.h); panel_run.c makes a whole product of it, cpu/fused a whole expert.
 *
 * In the flow: permute -> quant_act -> [expert_gemm 1] -> glu -> quant_act -> [expert_gemm 2] -> combine.
 */
#ifndef MOX_CPU_EXPERT_GEMM_H
#define MOX_CPU_EXPERT_GEMM_H

#include "cpu/kernel.h"
#include "cpu/activations.h"
#include "cpu/expert_gemm/product_trace.h"
#include "cpu/expert_gemm/sums.h"
#include "cpu/glu/glu_args.h"

#define MOX_SEGMENT 512

typedef enum mox_projection { MOX_W13 = 0, MOX_W2 = 1 } mox_projection;

typedef struct mox_expert_gemm_args {
    const mox_record_shape *shape;
    mox_projection projection;
    int64_t slots;
    const void *const *records; /* [slots] */
    const int64_t *offsets;     /* [slots+1] */
    const int64_t *act_row;     /* [pairs]: row of `a` that the pair multiplies; NULL: pair p multiplies row p */
    const mox_activations *a;
    const moxie_quant *act; /* how `a` was quantized */
    moxie_dtype dtype;      /* of activations that are not quantized: their values are numbers of this type */
    float *out;             /* [pairs, n_out] f32 */
    int64_t n_out;          /* 2I or I for W13, H for W2 */
    void *scratch;          /* of the back end's size and alignment; on the host mox_expert_gemm_scratch() a worker */

    /* What kernels of a device read besides. */
    const mox_layout *layout; /* of the records, which lie end to end from records[0] */
    uint64_t record_bytes;
    const float *table, *scale_table;   /* [256] values of the codes of the weights' elements and scales; or NULL */
    const int32_t *ids;                 /* [max_pairs] the choices that offsets were made from; NULL: of none */
    const int32_t *slot_of;             /* [experts] for those */
    int64_t experts, max_pairs, tokens; /* of this pass */
    /* For kernels of W13 that do what follows (MOX_FUSES_...): the activation, W2's activations. */
    const mox_glu_args *glu;
    const mox_activations *next;
    const moxie_quant *next_act;
    int32_t part;        /* MOX_PRODUCT_...: what adapters change is computed between the two parts */
    const float *change; /* [pairs, 2I or I] what adapters add before the activation; NULL: nothing */
    float *kept_act; /* [pairs, I] gets the activations as F32 besides, for adapters of W2; NULL: nobody reads them */
    mox_product_trace trace;
} mox_expert_gemm_args;

/* What a kernel is asked to accept. */
typedef struct mox_expert_gemm_problem {
    const mox_record_shape *shape;
    mox_projection projection;
    const moxie_quant *weight, *act;
    moxie_dtype dtype; /* of activations that are not quantized: F32, F16, BF16 */
    /* How W2's activations are quantized, for kernels of W13 that do that, too. NULL: such kernels reject. */
    const moxie_quant *next;
    /* Tensor parallel ranks have a part of the rows each, and gather what lies between the products: device kernels of
     * W13 that go on behind the product reject. */
    bool gathered;
    int64_t max_rows; /* that an expert may have in a pass: kernels may size their scratch by it; 0: any number */
} mox_expert_gemm_problem;

/* K of the product. */
static inline int64_t mox_expert_gemm_cols(const mox_expert_gemm_problem *problem)
{
    return problem->projection == MOX_W13 ? problem->shape->hidden : problem->shape->intermediate;
}

/* How a kernel reads its activations; rows of one expert lie together, tiles have min(16, rows left) of them. */
typedef enum mox_act_order {
    MOX_ACT_ORDER_F32 = 0, /* [row][steps * 32] f32, padding zero */
    MOX_ACT_ORDER_BF16,    /* [tile][step of 32][row in tile][32] bf16, padding zero */
    MOX_ACT_ORDER_I8       /* [tile][step of 64][row in tile][64] i8, padding zero */
} mox_act_order;

/* Multiplies panels by rows of activations: panel_kernel.h says what and how. */
struct mox_panel_matrix;
struct mox_panel_rows;
typedef void (*mox_panel_multiply_fn)(const struct mox_panel_matrix *matrix, const moxie_quant *weight, int64_t panel,
                                      int panels, const struct mox_panel_rows *a, float *c, void *scratch);

typedef enum mox_gemm_kind { MOX_GEMM_PRODUCT, MOX_GEMM_PANEL } mox_gemm_kind;

/* The head of both types of kernels. Its functions below take a kernel of either type. */
typedef struct mox_expert_gemm_kernel {
    mox_kernel base;
    mox_gemm_kind kind;
    mox_sum sum; /* kernels of one class and one order of summation give the same bits */
    uint64_t (*scratch_bytes)(
        const mox_expert_gemm_problem *problem); /* of one worker, for the kernel's own functions */
} mox_expert_gemm_kernel;

/* Computes a whole product by itself. */
typedef struct mox_product_kernel {
    mox_expert_gemm_kernel head;
    bool (*admit)(const mox_expert_gemm_problem *problem, mox_rejection *why);
    void (*run)(const mox_expert_gemm_args *args, const moxie_executor *executor);
} mox_product_kernel;

/* Multiplies panels. `bind` gives the function for a problem; NULL, and `why`, when the kernel rejects it. */
typedef struct mox_panel_kernel {
    mox_expert_gemm_kernel head;
    mox_act_order order; /* of the activations that it reads */
    mox_panel_multiply_fn (*bind)(const mox_expert_gemm_problem *problem, mox_rejection *why);
} mox_panel_kernel;

/* Kernel i of expert_gemm.def; NULL past the last. Immutable. */
const mox_expert_gemm_kernel *mox_expert_gemm_at(int32_t i);

/* The kernel as one that multiplies panels; NULL when it is of the other type. */
static inline const mox_panel_kernel *mox_panel_kernel_of(const mox_expert_gemm_kernel *kernel)
{
    return kernel->kind == MOX_GEMM_PANEL ? (const mox_panel_kernel *)kernel : NULL;
}

/* True when the kernel accepts the problem; else `why` says why not. */
bool mox_expert_gemm_admit(const mox_expert_gemm_kernel *kernel, const mox_expert_gemm_problem *problem,
                           mox_rejection *why);
/* Scratch of one worker for mox_expert_gemm_run(); a multiple of 64. */
uint64_t mox_expert_gemm_scratch(const mox_expert_gemm_kernel *kernel, const mox_expert_gemm_problem *problem);
/* One product by itself. */
void mox_expert_gemm_run(const mox_expert_gemm_kernel *kernel, const mox_expert_gemm_args *args,
                         const moxie_executor *executor);

/* The functions that every kernel of expert_gemm.def provides. */
#define MOX_EXPERT_GEMM(id, isa, exactness, layout, sum)                                                               \
    void mox_expert_gemm_##id##_run(const mox_expert_gemm_args *args, const moxie_executor *executor);                 \
    bool mox_expert_gemm_##id##_admit(const mox_expert_gemm_problem *problem, mox_rejection *why);                     \
    uint64_t mox_expert_gemm_##id##_scratch_bytes(const mox_expert_gemm_problem *problem);
#define MOX_PANEL_GEMM(id, isa, exactness, order, sum)                                                                 \
    mox_panel_multiply_fn mox_expert_gemm_##id##_bind(const mox_expert_gemm_problem *problem, mox_rejection *why);     \
    uint64_t mox_expert_gemm_##id##_scratch_bytes(const mox_expert_gemm_problem *problem);
#include "cpu/expert_gemm/expert_gemm.def"
#undef MOX_EXPERT_GEMM
#undef MOX_PANEL_GEMM

#endif
