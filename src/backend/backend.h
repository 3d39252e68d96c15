/* SPDX-License-Identifier: Apache-2.0
 *
 * backend.h - what runs a plan: one table of operations that host, cuda and ref each fill, so that layer/run walks a
 * plan once for all of them.
 *
 *     layer/plan:  kernel_at, admits -> kernels     form, product_scratch -> workspace
 *     layer/run:   dense -> topk -> permute -> [quantize -> product -> activate -> quantize -> product] -> combine
 *                  '---- route ----'           '---------------------- experts ----------------------------------'
 *
 * An operation gets a kernel of its family's list and the family's arguments (cpu/<family>/<family>_args.h), whose
 * pointers are of the memory where the back end runs. The host runs it on the executor and returns when it is done;
 * cuda enqueues it on the stream; ref computes it in double. A span does several operations in one; NULL: it has none,
 * and the chain goes stage by stage.
 *
 * In the flow: cpu, cuda, ref -> [backend] -> layer.
 */
#ifndef MOX_BACKEND_BACKEND_H
#define MOX_BACKEND_BACKEND_H

#include "cpu/dense/dense.h"
#include "cpu/expert_gemm/expert_gemm.h"
#include "cpu/fused/fused.h"
#include "cpu/glu/glu.h"
#include "cpu/permute/permute.h"
#include "cpu/quant_act/quant_act.h"
#include "cpu/topk/topk.h"
#include "cuda/cuda_table.h"

/* The lists that kernels are chosen from. */
typedef enum mox_family {
#define MOX_FAMILY(name) MOX_FAMILY_##name,
#include "cpu/kernel_families.def"
#undef MOX_FAMILY
} mox_family;

/* Where operations run. */
typedef struct mox_queue {
    const moxie_executor *executor;  /* host, ref */
    const mox_cuda_table *table;     /* cuda */
    const mox_cuda_features *device; /* cuda */
    mox_cuda_stream stream;          /* cuda */
} mox_queue;

/* What a choice of kernels depends on besides the layer. */
typedef struct mox_target {
    const mox_cuda_features *device; /* NULL: the host */
    mox_isa isa;                     /* the host's cap */
    moxie_mode mode;
} mox_target;

/* What kernels of a family are asked to admit; families that are not here admit every layer. */
typedef struct mox_topk_problem {
    const moxie_routing *routing;
    int64_t experts, top_k;
} mox_topk_problem;

typedef struct mox_quant_act_problem {
    const moxie_quant *quant;
    const mox_kernel *product; /* that reads the result; NULL: the caller, as F32 */
    bool weighed;              /* with row_weight */
} mox_quant_act_problem;

/* Whose activations they are, for form(). */
typedef struct mox_form_problem {
    const mox_expert_gemm_problem *product;
    const mox_kernel *kernel, *first; /* of the product; of W13 */
    int64_t max_rows;
    int64_t experts; /* slots that the rows belong to, at most */
    bool weighed;    /* with row_weight */
} mox_form_problem;

/* How a product's activations lie, and so how much memory they take. */
typedef struct mox_activations_form {
    mox_activations shape; /* without pointers; rows: of the memory */
    int64_t element_bytes;
    int64_t scale_room; /* scales of a row, in memory */
    bool direct;        /* the hidden states themselves: no memory of its own */
} mox_activations_form;

/* Routing of a whole batch. NULL: not part of the run. */
typedef struct mox_route_span {
    const mox_kernel *router_kernel, *topk_kernel, *gate_kernel;
    const mox_dense_args *router, *gate;
    const mox_topk_args *topk;
} mox_route_span;

typedef struct mox_backend {
    const char *name;
    bool on_device; /* arguments of a run are device memory, and counts are only known there */
    uint64_t align; /* of buffers in a workspace */

    /* ---- choosing. Immutable. ---- */
    const mox_kernel *(*kernel_at)(mox_family family, int32_t i); /* best first; NULL past the last */
    /* `problem` is the family's; NULL where it has none. */
    bool (*admits)(const mox_target *target, mox_family family, const mox_kernel *kernel, const void *problem,
                   mox_rejection *why);
    const char *(*needs)(const mox_kernel *kernel); /* instruction set or device words */
    mox_sum (*sum)(const mox_kernel *product);      /* order of summation */
    uint32_t (*fuses)(const mox_kernel *product);   /* MOX_FUSES_... that a kernel for W13 does besides */

    /* ---- memory. Immutable. ---- */
    mox_activations_form (*form)(const mox_form_problem *problem);
    uint64_t (*product_scratch)(const mox_target *target, const mox_kernel *kernel,
                                const mox_expert_gemm_problem *problem, int64_t slots, int64_t max_pairs,
                                int32_t workers);
    uint64_t (*permute_scratch)(int64_t pairs, int64_t slots);

    /* ---- operations ---- */
    moxie_status (*dense)(const mox_queue *q, const mox_kernel *kernel, const mox_dense_args *args, moxie_error *error);
    moxie_status (*topk)(const mox_queue *q, const mox_kernel *kernel, const mox_topk_args *args, moxie_error *error);
    moxie_status (*permute)(const mox_queue *q, const mox_kernel *kernel, const mox_permute_args *args,
                            moxie_error *error);
    moxie_status (*quantize)(const mox_queue *q, const mox_kernel *kernel, const mox_quant_act_args *args,
                             moxie_error *error);
    moxie_status (*product)(const mox_queue *q, const mox_kernel *kernel, const mox_expert_gemm_args *args,
                            moxie_error *error);
    moxie_status (*activate)(const mox_queue *q, const mox_kernel *kernel, const mox_glu_args *args,
                             moxie_error *error);
    moxie_status (*combine)(const mox_queue *q, const mox_kernel *kernel, const mox_combine_args *args,
                            moxie_error *error);
    moxie_status (*copy)(const mox_queue *q, void *to, const void *from, uint64_t bytes, moxie_error *error);

    /* ---- spans ---- */
    moxie_status (*route)(const mox_queue *q, const mox_route_span *span, moxie_error *error);
    /* permute's pairs to y, and combine: where both products of an expert fuse. */
    moxie_status (*experts)(const mox_queue *q, const mox_fused_args *span, moxie_error *error);
} mox_backend;

extern const mox_backend mox_backend_host, mox_backend_ref, mox_backend_cuda;

/* The table for options->backend, which is no longer AUTO. Immutable. */
const mox_backend *mox_backend_of(moxie_backend backend);

#endif
