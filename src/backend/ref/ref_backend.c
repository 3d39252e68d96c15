/* SPDX-License-Identifier: Apache-2.0
 *
 * ref_backend.c - the back end in double precision: fills the table of backend.h with the stages of ref_stages.h. Each
 * family has one kernel, which admits every layer.
 */
#include "backend/backend.h"
#include "backend/host/host_backend.h"
#include "backend/ref/ref_stages.h"

static const mox_kernel kernels[] = {
#define MOX_FAMILY(id)                                                                                                 \
    [MOX_FAMILY_##id] = { .family = #id, .name = "ref", .isa = MOX_ISA_SCALAR, .exactness = MOX_EXACT, .layout = "" },
#include "cpu/kernel_families.def"
#undef MOX_FAMILY
};
static const mox_kernel product_kernel = {
    .family = "expert_gemm", .name = "ref", .isa = MOX_ISA_SCALAR, .exactness = MOX_EXACT, .layout = "rowmajor"
};

static const mox_kernel *kernel_at(mox_family family, int32_t i)
{
    if (i != 0)
        return NULL;
    return family == MOX_FAMILY_expert_gemm ? &product_kernel : &kernels[family];
}

static bool admits(const mox_target *target, mox_family family, const mox_kernel *kernel, const void *problem,
                   mox_rejection *why)
{
    (void)target, (void)family, (void)kernel, (void)problem, (void)why;
    return true;
}

static mox_sum sum(const mox_kernel *product)
{
    (void)product;
    return MOX_SUM_F32_SEGMENTS; /* a sum in double is within the bound of any order */
}

static uint64_t product_scratch(const mox_target *target, const mox_kernel *kernel,
                                const mox_expert_gemm_problem *problem, int64_t slots, int64_t max_pairs,
                                int32_t workers)
{
    (void)target, (void)kernel, (void)slots, (void)max_pairs;
    return mox_ref_product_scratch(problem) * (uint64_t)workers;
}

/* ---- operations ----------------------------------------------------------------------------------- */

static moxie_status row_norm(const mox_queue *q, const mox_kernel *kernel, const mox_row_norm_args *args,
                             moxie_error *error)
{
    (void)kernel, (void)error;
    mox_ref_run_row_norm(args, q->executor);
    return MOXIE_OK;
}

static moxie_status dense(const mox_queue *q, const mox_kernel *kernel, const mox_dense_args *args, moxie_error *error)
{
    (void)kernel, (void)error;
    mox_ref_run_dense(args, q->executor);
    return MOXIE_OK;
}

static moxie_status topk(const mox_queue *q, const mox_kernel *kernel, const mox_topk_args *args, moxie_error *error)
{
    (void)kernel;
    return mox_ref_run_topk(args, q->executor, error);
}

/* A sort has no precision, so the scalar kernel serves. */
static moxie_status permute(const mox_queue *q, const mox_kernel *kernel, const mox_permute_args *args,
                            moxie_error *error)
{
    (void)kernel, (void)error;
    mox_permute_scalar_run(args, q->executor);
    return MOXIE_OK;
}

static moxie_status quantize(const mox_queue *q, const mox_kernel *kernel, const mox_quant_act_args *args,
                             moxie_error *error)
{
    (void)kernel, (void)error;
    mox_ref_run_quant_act(args, q->executor);
    return MOXIE_OK;
}

static moxie_status product(const mox_queue *q, const mox_kernel *kernel, const mox_expert_gemm_args *args,
                            moxie_error *error)
{
    (void)kernel, (void)error;
    mox_ref_run_product(args, q->executor);
    return MOXIE_OK;
}

static moxie_status lora(const mox_queue *q, const mox_kernel *kernel, const mox_lora_args *args, moxie_error *error)
{
    (void)kernel, (void)error;
    mox_ref_run_lora(args, q->executor);
    return MOXIE_OK;
}

static moxie_status activate(const mox_queue *q, const mox_kernel *kernel, const mox_glu_args *args, moxie_error *error)
{
    (void)kernel, (void)error;
    mox_ref_run_glu(args, q->executor);
    return MOXIE_OK;
}

static moxie_status combine(const mox_queue *q, const mox_kernel *kernel, const mox_combine_args *args,
                            moxie_error *error)
{
    (void)kernel, (void)error;
    mox_ref_run_combine(args, q->executor);
    return MOXIE_OK;
}

const mox_backend mox_backend_ref = {
    .name = "ref",
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
};
