/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_form.c - kind, stride and size of a product's activations on a GPU (cuda_form.h).
 *
 * A kernel for W13 that fuses the activation writes W2's activations tile by tile, as W2's kernel copies them. All
 * other activations are in rows. W13's kernel reads the hidden states themselves where those already have the right
 * form.
 */
#include "backend/cuda/cuda_form.h"

#include "base/sizes.h"
#include "cuda/expert_gemm/cuda_expert_gemm.h"
#include "cuda/expert_gemm/sm90/sm90_plan.h"
#include "pack/hopper/hopper.h"

static int64_t round_up(int64_t n, int64_t unit)
{
    return mox_ceil_div(n, unit) * unit;
}

/* Elements from row to row. Rows are copied 16 bytes at a time, tiles in chunks of 128 bytes. */
static int64_t stride_of(const mox_activations_form *f)
{
    const int64_t unit = f->shape.tiled ? MOX_HOPPER_CHUNK_WIDTH : 16;
    return f->shape.kind == MOX_ACTIVATIONS_F32 ? round_up(f->shape.cols, MOX_ACTIVATIONS_PAD)
                                                : round_up(f->shape.cols, unit / f->element_bytes);
}

mox_activations_form mox_cuda_form(const mox_form_problem *problem)
{
    const mox_expert_gemm_problem *product = problem->product;
    const mox_cuda_expert_gemm_kernel *kernel = (const mox_cuda_expert_gemm_kernel *)problem->kernel;
    const mox_cuda_expert_gemm_kernel *first = (const mox_cuda_expert_gemm_kernel *)problem->first;
    mox_activations_form f = { .shape = mox_activations_f32(product->act, problem->max_rows,
                                                            mox_expert_gemm_cols(product)) };
    mox_activations *a = &f.shape;
    a->kind = kernel->activations;
    a->dtype = product->dtype;
    a->tiled = product->projection == MOX_W2 && (first->fuses & MOX_FUSES_GLU) != 0;
    if (a->tiled && strcmp(problem->kernel->layout, mox_layout_hopper_codes.name) == 0)
        a->kind = MOX_ACTIVATIONS_NATIVE; /* the fusing kernel stores code times scale in bf16 */
    f.element_bytes = a->kind == MOX_ACTIVATIONS_F32 ? 4 : a->kind == MOX_ACTIVATIONS_NATIVE ? 2 : 1;
    a->stride = stride_of(&f);
    f.reads_hidden = product->projection == MOX_W13 && a->kind == MOX_ACTIVATIONS_NATIVE && a->stride == a->cols &&
                     !problem->has_row_weight;
    f.scales_per_row = a->scale_cols;
    if (a->tiled) {
        a->rows = mox_sm90_tiled_rows(problem->max_rows, problem->experts);
        f.scales_per_row = a->kind == MOX_ACTIVATIONS_CODES ? a->stride / MOX_HOPPER_CHUNK_WIDTH : 0;
    }
    return f;
}
