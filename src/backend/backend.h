/* SPDX-License-Identifier: Apache-2.0
 *
 * backend.h - the interface between a plan and what computes it: one table of operations, filled by host, cuda and ref.
 * So src/layer chooses kernels and runs the chain with one code for all three.
 *
 *     layer/plan:  kernel_at, admits -> chosen kernels     form, product_scratch, permute_scratch -> workspace
 *     layer/run:   [row_norm] -> dense -> topk        span route
 *                  permute
 *                  quantize -> product -> activate -> quantize -> product -> [row_norm] -> combine
 *                  '---- span experts, to the second product; without row_norm to combine -------'
 *
 * An operation gets a kernel of its family's list and the family's arguments (cpu/<family>/<family>_args.h). Pointers
 * in the arguments are memory where the back end runs. The host runs the operation on the executor and returns when it
 * is done. cuda enqueues it on the stream. ref computes it in double precision on the executor.
 *
 * A span does several operations in one call. It is NULL where the back end has none; then the chain runs operation by
 * operation.
 *
 * In the flow: cpu, cuda, ref -> [backend] -> layer.
 */
#ifndef MOX_BACKEND_BACKEND_H
#define MOX_BACKEND_BACKEND_H

#include "cpu/dense/dense.h"
#include "cpu/expert_gemm/expert_gemm.h"
#include "cpu/fused/fused.h"
#include "cpu/glu/glu.h"
#include "cpu/lora/lora.h"
#include "cpu/permute/permute.h"
#include "cpu/quant_act/quant_act.h"
#include "cpu/row_norm/row_norm.h"
#include "cpu/topk/topk.h"
#include "cuda/cuda_table.h"

/* A family is one kind of operation; each has a list of kernels. */
typedef enum mox_family {
#define MOX_FAMILY(name) MOX_FAMILY_##name,
#include "cpu/kernel_families.def"
#undef MOX_FAMILY
} mox_family;

/* Where operations run: an executor, or a stream of a device. */
typedef struct mox_queue {
    const moxie_executor *executor;  /* host, ref */
    const mox_cuda_table *table;     /* cuda */
    const mox_cuda_features *device; /* cuda */
    mox_cuda_stream stream;          /* cuda */
} mox_queue;

/* What the choice of kernels depends on besides the layer. */
typedef struct mox_target {
    const mox_cuda_features *device; /* NULL: the host */
    mox_isa isa;                     /* host: the best instruction set that may be used */
    moxie_mode mode;
} mox_target;

/* The problems that kernels admit or reject, by family: topk, quant_act, mox_expert_gemm_problem for products, and glu.
 * Kernels of the other families admit every layer. */
typedef struct mox_topk_problem {
    const moxie_routing *routing;
    int64_t experts, top_k;
} mox_topk_problem;

typedef struct mox_quant_act_problem {
    const moxie_quant *quant;
    const mox_kernel *product; /* the kernel that reads the result; NULL: the caller reads it, as F32 */
    bool has_row_weight;       /* rows are multiplied by routing weights first */
} mox_quant_act_problem;

typedef struct mox_glu_problem {
    const moxie_activation *activation;
} mox_glu_problem;

/* A product whose activations form() describes. */
typedef struct mox_form_problem {
    const mox_expert_gemm_problem *product;
    const mox_kernel *kernel, *first; /* the product's kernel; W13's kernel */
    int64_t max_rows;
    int64_t experts;     /* upper limit for the slots that the rows belong to */
    bool has_row_weight; /* rows are multiplied by routing weights first */
} mox_form_problem;

/* The form of a product's activations: element kind, order in memory, size. */
typedef struct mox_activations_form {
    mox_activations shape; /* without pointers; `rows` counts rows of memory, with padding */
    int64_t element_bytes;
    int64_t scales_per_row; /* f32 scales to allocate for a row */
    bool reads_hidden;      /* the kernel reads the hidden states themselves: nothing to allocate or quantize */
} mox_activations_form;

/* The operations of routing for a whole batch. Arguments that are NULL are not part of the run. */
typedef struct mox_route_span {
    const mox_kernel *norm_kernel, *router_kernel, *topk_kernel, *gate_kernel;
    const mox_row_norm_args *norm; /* of the router's input; its result is router->x */
    const mox_dense_args *router, *gate;
    const mox_topk_args *topk;
} mox_route_span;

typedef struct mox_backend {
    const char *name;
    bool on_device; /* arguments are device memory, and so are counts that depend on the routing */
    uint64_t align; /* of buffers in a workspace */

    /* ---- choosing. Immutable. ---- */
    /* Kernel i of a family, best first; NULL past the last. */
    const mox_kernel *(*kernel_at)(mox_family family, int32_t i);
    /* True when the kernel can run the family's problem on the target; else `why` gets the reason. `problem` is NULL
     * for families without one. */
    bool (*admits)(const mox_target *target, mox_family family, const mox_kernel *kernel, const void *problem,
                   mox_rejection *why);
    const char *(*needs)(const mox_kernel *kernel); /* instruction set, or features of a device */
    mox_sum (*sum)(const mox_kernel *product);      /* order of summation */
    uint32_t (*fuses)(const mox_kernel *product);   /* MOX_FUSES_...: operations that a kernel for W13 includes */

    /* ---- memory. Immutable. ---- */
    mox_activations_form (*form)(const mox_form_problem *problem);
    uint64_t (*product_scratch)(const mox_target *target, const mox_kernel *kernel,
                                const mox_expert_gemm_problem *problem, int64_t slots, int64_t max_pairs,
                                int32_t workers);
    uint64_t (*permute_scratch)(int64_t pairs, int64_t slots);
    uint64_t (*lora_scratch)(int64_t pairs, int64_t max_cols, int32_t workers);

    /* ---- operations ---- */
    moxie_status (*row_norm)(const mox_queue *q, const mox_kernel *kernel, const mox_row_norm_args *args,
                             moxie_error *error);
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
    /* Adds adapters to a product's result. On a device the call for W2 follows that for W13 of the same pass. */
    moxie_status (*lora)(const mox_queue *q, const mox_kernel *kernel, const mox_lora_args *args, moxie_error *error);
    moxie_status (*copy)(const mox_queue *q, void *to, const void *from, uint64_t bytes, moxie_error *error);

    /* ---- spans ---- */
    moxie_status (*route)(const mox_queue *q, const mox_route_span *span, moxie_error *error);
    /* From permuted pairs to y, and then combine where `span` has it; for experts whose two products both fuse. */
    moxie_status (*experts)(const mox_queue *q, const mox_fused_args *span, moxie_error *error);
} mox_backend;

/* Initialises the operations in a back end's table with its functions of these names. */
#define MOX_BACKEND_OPERATIONS                                                                                         \
    .row_norm = row_norm, .dense = dense, .topk = topk, .permute = permute, .quantize = quantize, .product = product,  \
    .activate = activate, .combine = combine, .lora = lora

extern const mox_backend mox_backend_host, mox_backend_ref, mox_backend_cuda;

/* The table of a back end; AUTO is the host. Immutable. */
const mox_backend *mox_backend_of(moxie_backend backend);

#endif
