/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_backend.c - the back end of NVIDIA GPUs: fills the table of backend.h with the kernels of src/cuda.
 *
 * Each operation calls its kernel's launcher (cuda_table.h), which enqueues work on the stream. Counts that depend on
 * the routing stay in device memory, so nothing here waits or allocates.
 */
#include "backend/backend.h"
#include "backend/cuda/cuda_form.h"
#include "backend/cuda/cuda_product.h"
#include "backend/cuda/device.h"
#include "cuda/combine/cuda_combine.h"
#include "cuda/dense/cuda_dense.h"
#include "cuda/expert_gemm/cuda_expert_gemm.h"
#include "cuda/glu/cuda_glu.h"
#include "cuda/lora/cuda_lora.h"
#include "cuda/permute/cuda_permute.h"
#include "cuda/quant_act/cuda_quant_act.h"
#include "cuda/row_norm/cuda_row_norm.h"
#include "cuda/topk/cuda_topk.h"

/* ---- choosing ------------------------------------------------------------------------------------- */

static const mox_kernel *kernel_at(mox_family family, int32_t i)
{
    switch (family) {
#define MOX_CUDA_LAUNCHER(name, args)                                                                                  \
    case MOX_FAMILY_##name: {                                                                                          \
        const mox_cuda_##name##_kernel *kernel = mox_cuda_##name##_at(i);                                              \
        return kernel != NULL ? &kernel->cuda.base : NULL;                                                             \
    }
#include "cuda/cuda_families.def"
#undef MOX_CUDA_LAUNCHER
    default: return NULL; /* a family of the host alone */
    }
}

static bool admits_quant_act(const mox_kernel *kernel, const mox_quant_act_problem *p, mox_rejection *why)
{
    const mox_cuda_quant_act_problem problem = {
        .quant = p->quant,
        .kind =
            p->product != NULL ? ((const mox_cuda_expert_gemm_kernel *)p->product)->activations : MOX_ACTIVATIONS_F32,
        .weighed = p->has_row_weight,
    };
    return ((const mox_cuda_quant_act_kernel *)kernel)->admit(&problem, why);
}

static bool admits_expert_gemm(const mox_cuda_expert_gemm_kernel *kernel, const mox_expert_gemm_problem *p,
                               const mox_cuda_features *device, mox_rejection *why)
{
    if (p->gathered && kernel->fuses != 0)
        return mox_reject(why, "", "also computes the activation, which tensor parallel ranks gather");
    return kernel->admit(p, device, why);
}

static bool admits_problem(const mox_target *target, mox_family family, const mox_kernel *kernel, const void *problem,
                           mox_rejection *why)
{
    switch (family) {
    case MOX_FAMILY_topk: {
        const mox_topk_problem *p = problem;
        return ((const mox_cuda_topk_kernel *)kernel)->admit(p->routing, p->experts, p->top_k, why);
    }
    case MOX_FAMILY_quant_act: return admits_quant_act(kernel, problem, why);
    case MOX_FAMILY_expert_gemm:
        return admits_expert_gemm((const mox_cuda_expert_gemm_kernel *)kernel, problem, target->device, why);
    case MOX_FAMILY_glu: {
        const mox_glu_problem *p = problem;
        return ((const mox_cuda_glu_kernel *)kernel)->admit(p->activation, why);
    }
    default: return true;
    }
}

/* The problem is checked before device and mode, so a rejection suggests another device or mode only where it helps. */
static bool admits(const mox_target *target, mox_family family, const mox_kernel *kernel, const void *problem,
                   mox_rejection *why)
{
    return admits_problem(target, family, kernel, problem, why) &&
           mox_cuda_kernel_admit((const mox_cuda_kernel *)kernel, target->device, target->mode, why);
}

static const char *needs(const mox_kernel *kernel)
{
    return mox_cuda_kernel_needs((const mox_cuda_kernel *)kernel);
}

static mox_sum sum(const mox_kernel *product)
{
    return ((const mox_cuda_expert_gemm_kernel *)product)->sum;
}

static uint32_t fuses(const mox_kernel *product)
{
    return ((const mox_cuda_expert_gemm_kernel *)product)->fuses;
}

/* ---- memory --------------------------------------------------------------------------------------- */

static uint64_t product_scratch(const mox_target *target, const mox_kernel *kernel,
                                const mox_expert_gemm_problem *problem, int64_t slots, int64_t max_pairs,
                                int32_t workers)
{
    (void)workers;
    return ((const mox_cuda_expert_gemm_kernel *)kernel)->scratch_bytes(problem, target->device, slots, max_pairs);
}

static uint64_t permute_scratch(int64_t pairs, int64_t slots)
{
    return (uint64_t)((pairs + MOX_PERMUTE_CHUNK - 1) / MOX_PERMUTE_CHUNK * slots) * sizeof(int32_t);
}

static uint64_t lora_scratch(int64_t pairs, int64_t max_cols, int32_t workers)
{
    (void)max_cols, (void)workers;
    return mox_cuda_lora_scratch(pairs);
}

/* ---- operations ----------------------------------------------------------------------------------- */

static int32_t launcher(const mox_kernel *kernel)
{
    return ((const mox_cuda_kernel *)kernel)->launcher;
}

#define LAUNCH(operation, family)                                                                                      \
    static moxie_status operation(const mox_queue *q, const mox_kernel *kernel, const mox_##family##_args *args,       \
                                  moxie_error *error)                                                                  \
    {                                                                                                                  \
        return q->table->family[launcher(kernel)](args, q->stream, error);                                             \
    }
LAUNCH(row_norm, row_norm)
LAUNCH(dense, dense)
LAUNCH(topk, topk)
LAUNCH(permute, permute)
LAUNCH(quantize, quant_act)
LAUNCH(activate, glu)
LAUNCH(combine, combine)
LAUNCH(lora, lora)
#undef LAUNCH

static moxie_status product(const mox_queue *q, const mox_kernel *kernel, const mox_expert_gemm_args *args,
                            moxie_error *error)
{
    const mox_cuda_expert_gemm_args lowered = mox_cuda_product_args(q->device, kernel, args);
    return q->table->expert_gemm[launcher(kernel)](&lowered, q->stream, error);
}

static moxie_status copy(const mox_queue *q, void *to, const void *from, uint64_t bytes, moxie_error *error)
{
    return q->table->copy(to, from, bytes, q->stream, error);
}

const mox_backend mox_backend_cuda = {
    .name = "cuda",
    .on_device = true,
    .align = MOX_DEVICE_ALIGN,
    .kernel_at = kernel_at,
    .admits = admits,
    .needs = needs,
    .sum = sum,
    .fuses = fuses,
    .form = mox_cuda_form,
    .product_scratch = product_scratch,
    .permute_scratch = permute_scratch,
    .lora_scratch = lora_scratch,
    MOX_BACKEND_OPERATIONS,
    .copy = copy,
};
