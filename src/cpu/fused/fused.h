/* SPDX-License-Identifier: Apache-2.0
 *
 * fused.h - the experts of one pass in two phases, when both products read panels:
 *
 *     phase 1   gather:  token -> operand rows of its experts (widened, weighted, quantized once)
 *               first:   operand x W13 panels -> globals, bias -> activation -> operand of the second product
 *     phase 2   second:  operand x W2 panels -> globals, bias -> y
 *               combine: y -> output
 *
 * A panel pair's 32 sums become 16 activations while they are in the first-level cache, and are stored where the
 * second product reads them. Where the second operand is quantized by rows, whoever finishes the last task of an
 * expert quantizes its rows.
 *
 * Each phase is one parallel region: workers take tasks in order from one counter, the experts with most rows first.
 * A task that needs the tasks before it (gather before first, second before combine) waits until they are done; they
 * were all taken earlier by running workers, so the wait ends. No bit of a result depends on who ran which task.
 *
 * In the flow: permute -> [fused] -> output, in place of quant_act, expert_gemm, glu, quant_act, expert_gemm, combine.
 */
#ifndef MOX_CPU_FUSED_H
#define MOX_CPU_FUSED_H

#include "cpu/combine/combine.h"
#include "cpu/expert_gemm/panel_kernel.h"
#include "cpu/glu/glu.h"

/* One of the two products, as a plan fixes it. */
typedef struct mox_fused_product {
    mox_panel_multiply_fn multiply;
    mox_act_order order; /* of the activations that the kernel reads */
    moxie_quant weight, act;
    moxie_dtype dtype; /* of an operand that is not quantized */
    mox_act_scaling scaling;
    int64_t cols, groups, group_cols; /* of the operand; groups 0 unless scaling is GROUPED */
    uint64_t row_bytes, scratch_bytes;
} mox_fused_product;

/* False when the row does not multiply panels, or the operand's scale is one for the whole batch. */
bool mox_fused_product_init(mox_fused_product *product, const mox_expert_gemm_kernel *row,
                            const mox_expert_gemm_problem *problem);

/* An operand's arrays, one entry a pair, pairs grouped by slot. */
typedef struct mox_fused_activations {
    void *data;       /* [pairs] of row_bytes, and MOX_PANEL_OVERREAD_BYTES more */
    float *scales;    /* [pairs, groups] GROUPED */
    float *row_scale; /* [pairs] BY_ROW */
    float *global;    /* [pairs] when the quantizer has one */
} mox_fused_activations;

/* One kind of expert, routed or shared, in one pass. */
typedef struct mox_fused_part {
    const mox_record_shape *shape;
    const moxie_activation *activation;
    const mox_glu_kernel *glu;
    const mox_fused_product *first, *second;
    int64_t slots, pairs;
    const void *const *records;    /* [slots] */
    const int64_t *offsets;        /* [slots+1] */
    const int64_t *expert_of;      /* [slots]; NULL: the shared expert */
    int64_t per_token;             /* K, or 1 for the shared expert */
    const int64_t *position;       /* [tokens, per_token] pair or -1; NULL: pair t is token t */
    const float *row_weight;       /* [tokens, per_token] multiplies the input; NULL: none */
    const float *given13, *given2; /* [slots] static scales; NULL: none */
    bool by_pair;                  /* the first operand differs between a token's experts */
    mox_fused_activations a13, a2;
    float *act; /* [pairs, I] f32: needed when a2 is quantized, or to be looked at; else NULL */
    float *y;   /* [pairs, H] f32 */
    /* Only to be looked at, else NULL: sums [pairs, n13]; operands by pair, filled when they are quantized. */
    float *h;
    const mox_activations *look13, *look2;
} mox_fused_part;

#define MOX_FUSED_SIDES 2

/* An expert with work to do. */
typedef struct mox_fused_item {
    int64_t side, slot, first, rows; /* pairs [first, first + rows) */
    int64_t task, run;               /* its first task of the phase at hand; blocks of a task */
    int64_t left;                    /* tasks of phase 1 that are not done; atomic */
} mox_fused_item;

typedef struct mox_fused_args {
    const mox_fused_part *sides; /* [n_sides] */
    int64_t n_sides, tokens;
    const void *x; /* [tokens, H] of `dtype` */
    moxie_dtype dtype;
    mox_fused_item *items;             /* [slots of all sides] */
    void *scratch;                     /* [workers] of scratch_bytes, 64-byte aligned */
    uint64_t scratch_bytes;            /* mox_fused_scratch() */
    const mox_combine_kernel *combine; /* NULL: stop at y */
    const mox_combine_args *combine_args;
} mox_fused_args;

/* Bytes of one worker's scratch, over all sides; a multiple of 64. */
uint64_t mox_fused_scratch(const mox_fused_product *const *products, int64_t count);

/* Two parallel regions; allocates nothing. */
void mox_fused_run(const mox_fused_args *args, const moxie_executor *executor);

/* Operand row of pair p as numbers, folded scales included. */
void mox_fused_activations_row(const mox_fused_part *side, bool second, int64_t p, float *values);

/* ---- the pieces of a phase ----------------------------------------------------------------------- */

typedef struct mox_fused_scratch_view {
    float *row, *scaled, *scales; /* [longest] */
    uint8_t *codes;               /* [longest] */
    float *c, *tile;              /* [MOX_PANEL_BLOCK, 32] */
    void *kernel;
} mox_fused_scratch_view;

/* Operand rows of one token (fused_gather.c). */
void mox_fused_gather(const mox_fused_args *args, const mox_fused_part *side, int64_t token,
                      const mox_fused_scratch_view *scratch);
/* Quantizes the rows of one expert's activations for the second product. */
void mox_fused_requantize(const mox_fused_part *side, const mox_fused_item *item,
                          const mox_fused_scratch_view *scratch);
/* Blocks [first, last) of two panels of one expert's first, or second, product (fused_product.c). */
void mox_fused_first(const mox_fused_part *side, const mox_fused_item *item, int64_t first, int64_t last,
                     const mox_fused_scratch_view *scratch);
void mox_fused_second(const mox_fused_part *side, const mox_fused_item *item, int64_t first, int64_t last,
                      const mox_fused_scratch_view *scratch);

#endif
