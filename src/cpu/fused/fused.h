/* SPDX-License-Identifier: Apache-2.0
 *
 * fused.h - the experts of one pass in two phases, for plans whose two products are both of panel kernels:
 *
 *     phase 1   gather:  token -> its row for each of its experts (widened, weighted, quantized once)
 *               first:   rows x W13 panels -> globals, bias -> glu -> activations of the second product
 *     phase 2   second:  activations x W2 panels -> globals, bias -> y
 *               combine: y -> output
 *
 * The 32 sums of a pair of panels become 16 activations while they are in the first-level cache. They are stored in the
 * order that the second product's kernel reads. Where the second product's activations are quantized, the worker that
 * finishes the last task of an expert quantizes its rows.
 *
 * Adapters (cpu/lora): shrink runs before phase 1, for all pairs, and when the last task of an expert has stored its
 * activations in fp32. Expand adds to the sums of each block.
 *
 * Each phase is one parallel region. Workers start tasks in order from one counter, the experts with most rows first. A
 * task may need earlier ones (first needs gather, combine needs second); it waits until they are done. They were
 * started by running workers, so the wait ends. No bit of a result depends on which worker ran which task.
 *
 * On a machine with several nodes of memory, records are spread over them. Then workers start the tasks of experts on
 * their own node first, and help others when none is left.
 *
 * Where the record has a part of the rows (mox_record_shape.cut), other ranks have the other activations. Then the
 * phases run apart (mox_fused_phases). Phase 2 begins with all columns of act, which the caller has brought together:
 *
 *     phase 1   gather, first -> this rank's columns of act, f32
 *     phase 2   refill: act [pairs, I] f32 -> activations of the second product
 *               second: -> this rank's columns of y
 *
 * In the flow: permute -> [fused] -> output, in place of quant_act, expert_gemm, glu, quant_act, expert_gemm, combine.
 */
#ifndef MOX_CPU_FUSED_H
#define MOX_CPU_FUSED_H

#include "base/clock.h"
#include "cpu/combine/combine.h"
#include "cpu/expert_gemm/panel_kernel.h"
#include "cpu/glu/glu.h"
#include "cpu/lora/lora.h"

/* One of the two products, as a plan fixes it. */
typedef struct mox_fused_product {
    mox_panel_multiply_fn multiply;
    mox_act_order order; /* of the activations that the kernel reads */
    moxie_quant weight, act;
    moxie_dtype dtype; /* of activations that are not quantized */
    mox_act_scaling scaling;
    int64_t cols, groups, group_cols; /* of the activations; groups is 0 unless scaling is GROUPED */
    uint64_t row_bytes, scratch_bytes;
} mox_fused_product;

/* False when the kernel is not a panel kernel, or the activations have one scale for the whole batch. */
bool mox_fused_product_init(mox_fused_product *product, const mox_expert_gemm_kernel *kernel,
                            const mox_expert_gemm_problem *problem);

/* The activations of one product, in the order of its kernel: one row a pair, pairs grouped by slot. */
typedef struct mox_fused_activations {
    void *data;       /* [pairs] of row_bytes, and MOX_PANEL_OVERREAD_BYTES more */
    float *scales;    /* [pairs, groups] GROUPED */
    float *row_scale; /* [pairs] BY_ROW */
    float *global;    /* [pairs] when the quantizer has one */
} mox_fused_activations;

/* The experts of one kind, routed or shared, in one pass. */
typedef struct mox_fused_part {
    const mox_record_shape *shape;
    const moxie_activation *activation;
    const mox_glu_kernel *glu;
    const mox_fused_product *first, *second;
    int64_t slots, pairs;
    const void *const *records;                  /* [slots] */
    const int64_t *offsets;                      /* [slots+1]; where the part has some slots of the pass, the first pair
                                                  * is not 0, and other pairs are left alone */
    const int64_t *expert_of;                    /* [slots]; NULL: the shared expert */
    int64_t per_token;                           /* K, or 1 for the shared expert */
    const int64_t *position;                     /* [tokens, per_token] pair or -1; NULL: pair t is token t */
    const float *row_weight;                     /* [tokens, per_token] factors of the input; NULL: none */
    const float *static_scale13, *static_scale2; /* [slots] static scales; NULL: none */
    bool by_pair;                                /* the first activations differ between a token's experts */
    mox_fused_activations a13, a2;
    float *
        act; /* [pairs, I] f32: needed when a2 is quantized, with adapters, of a cut record, and in a traced run; else NULL */
    float *own_act; /* [pairs, I_r] f32: the record is cut, and phase 1 stores its columns here alone; else NULL */
    float *y;       /* [pairs, H] f32; of a cut record [pairs, H_r] */
    /* Only in a traced run, else NULL: sums [pairs, n13]; activations by pair, filled when they are quantized. */
    float *h;
    const mox_activations *trace13, *trace2;
    /* Only where tokens have adapters, else NULL: the kernel, and its arguments for both products, without `out`. */
    const mox_lora_kernel *lora;
    const mox_lora_args *lora13, *lora2;
} mox_fused_part;

/* An expert with work to do. */
typedef struct mox_fused_item {
    int64_t part, slot, first, rows; /* pairs [first, first + rows) */
    int64_t task, run;               /* its first task of the phase at hand; blocks of a task */
    int64_t left;                    /* tasks of phase 1 that are not done; atomic */
    const int32_t *place2;           /* [I] where W2's record has each column; NULL: in natural order */
} mox_fused_item;

typedef enum mox_fused_phases { MOX_FUSED_BOTH, MOX_FUSED_FIRST, MOX_FUSED_SECOND } mox_fused_phases;

typedef struct mox_fused_args {
    mox_fused_phases phases;     /* of cut records one alone, with one part */
    const mox_fused_part *parts; /* [n_parts] */
    int64_t n_parts, tokens;
    const void *x; /* [tokens, H] of `dtype`, or rows of the first product's codes */
    moxie_dtype dtype;
    bool coded;                        /* x has rows of codes (quant/act_row.h), which nothing multiplies */
    mox_fused_item *items;             /* [slots of all parts] */
    void *scratch;                     /* [workers] of scratch_bytes, 64-byte aligned */
    uint64_t scratch_bytes;            /* mox_fused_scratch() */
    const mox_combine_kernel *combine; /* NULL: stop at y */
    const mox_combine_args *combine_args;
    int32_t nodes;     /* that records are spread over: the one of slot s is on node s % nodes; 0: as 1 */
    mox_clock *clocks; /* [workers], or NULL */
} mox_fused_args;

/* Bytes of one worker's scratch, over all parts; a multiple of 64. */
uint64_t mox_fused_scratch(const mox_fused_product *const *products, int64_t count);

/* A parallel region for each phase; allocates nothing. */
void mox_fused_run(const mox_fused_args *args, const moxie_executor *executor);

/* Row of activations of pair p as numbers, times scales that are IN_VALUE. */
void mox_fused_activations_row(const mox_fused_part *part, bool second, int64_t p, float *values);

/* ---- the parts of a phase ------------------------------------------------------------------------ */

typedef struct mox_fused_scratch_view {
    float *row, *scaled, *scales; /* [longest] */
    uint8_t *codes;               /* [longest] */
    void *narrow, *ordered;       /* [longest] a row in the kernel's type, and in the order of a record's columns */
    float *c, *tile;              /* [MOX_PANEL_BLOCK, 32] */
    void *kernel;
    int32_t worker;
} mox_fused_scratch_view;

/* Stores the rows of one token for each of its experts (fused_gather.c). Here and below `stream`: past the caches; then
 * mox_stream_end() must follow. */
void mox_fused_gather(const mox_fused_args *args, const mox_fused_part *part, int64_t token, bool stream,
                      const mox_fused_scratch_view *scratch);
/* Quantizes the rows of one expert for the second product. */
void mox_fused_requantize(const mox_fused_part *part, const mox_fused_item *item,
                          const mox_fused_scratch_view *scratch);
/* The same for pair p of any expert, also where nothing is quantized: from act to the second product's order. Then act
 * is rounded to the product's dtype already. */
void mox_fused_refill(const mox_fused_part *part, int64_t p, const mox_fused_scratch_view *scratch);
/* Computes blocks [first, last) of one expert's first, or second, product (fused_product.c). */
void mox_fused_first(const mox_fused_part *part, const mox_fused_item *item, int64_t first, int64_t last,
                     const mox_fused_scratch_view *scratch);
void mox_fused_second(const mox_fused_part *part, const mox_fused_item *item, int64_t first, int64_t last, bool stream,
                      const mox_fused_scratch_view *scratch);

#endif
