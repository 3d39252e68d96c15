/* SPDX-License-Identifier: Apache-2.0
 *
 * host_backend.c - the back end of the CPU: fills the table of backend.h with the kernels of src/cpu.
 *
 * Each operation runs its kernel on the executor and returns when it is done. Routing runs in one span
 * (host_route.c). So do experts whose products multiply panels (cpu/fused).
 */
#include "backend/host/host_backend.h"

#include <string.h>

/* ---- choosing ------------------------------------------------------------------------------------- */

static const mox_kernel *kernel_at(mox_family family, int32_t i)
{
    switch (family) {
#define MOX_FAMILY(name)                                                                                               \
    case MOX_FAMILY_##name: {                                                                                          \
        const mox_##name##_kernel *kernel = mox_##name##_at(i);                                                        \
        return kernel != NULL ? &kernel->base : NULL;                                                                  \
    }
#include "cpu/kernel_families.def"
#undef MOX_FAMILY
    }
    return NULL;
}

static bool admits_problem(mox_family family, const mox_kernel *kernel, const void *problem, mox_rejection *why)
{
    switch (family) {
    case MOX_FAMILY_topk: {
        const mox_topk_problem *p = problem;
        return ((const mox_topk_kernel *)kernel)->admit(p->routing, p->experts, p->top_k, why);
    }
    case MOX_FAMILY_quant_act:
        return ((const mox_quant_act_kernel *)kernel)->admit(((const mox_quant_act_problem *)problem)->quant, why);
    case MOX_FAMILY_expert_gemm: return mox_expert_gemm_admit((const mox_expert_gemm_kernel *)kernel, problem, why);
    case MOX_FAMILY_glu:
        return ((const mox_glu_kernel *)kernel)->admit(((const mox_glu_problem *)problem)->activation, why);
    default: return true;
    }
}

/* The machine is checked before the problem, so a rejection names missing instructions first. */
static bool admits(const mox_target *target, mox_family family, const mox_kernel *kernel, const void *problem,
                   mox_rejection *why)
{
    return mox_kernel_admit(kernel, target->isa, target->mode, why) && admits_problem(family, kernel, problem, why);
}

const char *mox_host_needs(const mox_kernel *kernel)
{
    return mox_isa_name(kernel->isa);
}

static mox_sum sum(const mox_kernel *product)
{
    return ((const mox_expert_gemm_kernel *)product)->sum;
}

uint32_t mox_host_fuses(const mox_kernel *product)
{
    (void)product;
    return 0;
}

/* ---- memory --------------------------------------------------------------------------------------- */

mox_activations_form mox_host_form(const mox_form_problem *problem)
{
    const mox_expert_gemm_problem *product = problem->product;
    const mox_activations shape = mox_activations_f32(product->act, problem->max_rows, mox_expert_gemm_cols(product));
    return (
        mox_activations_form) { .shape = shape, .element_bytes = sizeof(float), .scales_per_row = shape.scale_cols };
}

static uint64_t product_scratch(const mox_target *target, const mox_kernel *kernel,
                                const mox_expert_gemm_problem *problem, int64_t slots, int64_t max_pairs,
                                int32_t workers)
{
    (void)target, (void)slots, (void)max_pairs;
    return mox_expert_gemm_scratch((const mox_expert_gemm_kernel *)kernel, problem) * (uint64_t)workers;
}

uint64_t mox_host_permute_scratch(int64_t pairs, int64_t slots)
{
    (void)pairs, (void)slots;
    return 0;
}

uint64_t mox_host_lora_scratch(int64_t pairs, int64_t max_cols, int32_t workers)
{
    (void)pairs;
    return (uint64_t)mox_lora_scratch(max_cols) * (uint64_t)workers * sizeof(float);
}

/* ---- operations ----------------------------------------------------------------------------------- */

static moxie_status row_norm(const mox_queue *q, const mox_kernel *kernel, const mox_row_norm_args *args,
                             moxie_error *error)
{
    (void)error;
    ((const mox_row_norm_kernel *)kernel)->run(args, q->executor);
    return MOXIE_OK;
}

static moxie_status dense(const mox_queue *q, const mox_kernel *kernel, const mox_dense_args *args, moxie_error *error)
{
    (void)error;
    ((const mox_dense_kernel *)kernel)->run(args, q->executor);
    return MOXIE_OK;
}

static moxie_status topk(const mox_queue *q, const mox_kernel *kernel, const mox_topk_args *args, moxie_error *error)
{
    return ((const mox_topk_kernel *)kernel)->run(args, q->executor, error);
}

static moxie_status permute(const mox_queue *q, const mox_kernel *kernel, const mox_permute_args *args,
                            moxie_error *error)
{
    (void)error;
    ((const mox_permute_kernel *)kernel)->run(args, q->executor);
    return MOXIE_OK;
}

static moxie_status quantize(const mox_queue *q, const mox_kernel *kernel, const mox_quant_act_args *args,
                             moxie_error *error)
{
    (void)error;
    ((const mox_quant_act_kernel *)kernel)->run(args, q->executor);
    return MOXIE_OK;
}

static moxie_status product(const mox_queue *q, const mox_kernel *kernel, const mox_expert_gemm_args *args,
                            moxie_error *error)
{
    (void)error;
    mox_expert_gemm_run((const mox_expert_gemm_kernel *)kernel, args, q->executor);
    return MOXIE_OK;
}

static moxie_status lora(const mox_queue *q, const mox_kernel *kernel, const mox_lora_args *args, moxie_error *error)
{
    (void)error;
    mox_lora_run((const mox_lora_kernel *)kernel, args, q->executor);
    return MOXIE_OK;
}

static moxie_status activate(const mox_queue *q, const mox_kernel *kernel, const mox_glu_args *args, moxie_error *error)
{
    (void)error;
    ((const mox_glu_kernel *)kernel)->run(args, q->executor);
    return MOXIE_OK;
}

static moxie_status combine(const mox_queue *q, const mox_kernel *kernel, const mox_combine_args *args,
                            moxie_error *error)
{
    (void)error;
    ((const mox_combine_kernel *)kernel)->run(args, q->executor);
    return MOXIE_OK;
}

moxie_status mox_host_copy(const mox_queue *q, void *to, const void *from, uint64_t bytes, moxie_error *error)
{
    (void)q, (void)error;
    memmove(to, from, bytes);
    return MOXIE_OK;
}

static moxie_status experts(const mox_queue *q, const mox_fused_args *span, moxie_error *error)
{
    (void)error;
    mox_fused_run(span, q->executor);
    return MOXIE_OK;
}

const mox_backend mox_backend_host = {
    .name = "cpu",
    .align = MOX_HOST_ALIGN,
    .kernel_at = kernel_at,
    .admits = admits,
    .needs = mox_host_needs,
    .sum = sum,
    .fuses = mox_host_fuses,
    .form = mox_host_form,
    .product_scratch = product_scratch,
    MOX_HOST_SCRATCH,
    MOX_BACKEND_OPERATIONS,
    .copy = mox_host_copy,
    .route = mox_host_route,
    .experts = experts,
};
