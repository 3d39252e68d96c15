/* SPDX-License-Identifier: Apache-2.0
 *
 * ref_product.c - products in double precision. A row of weights is decoded to double from the record; then its dot
 * product with each row of activations of its expert is rounded once to f32.
 *
 *     out[p, n] = fl32( sum_k w[n,k] * (value[r,k] * scale[r, k / gc]) (* or /) global[r] + bias[n] ),  r = act_row[p]
 *
 * gc: columns of an activation group. A task is PANEL rows of one expert's weights; a worker holds one decoded row.
 */
#include "backend/ref/ref_stages.h"

#include "base/sizes.h"
#include "ref/ref.h"

#define PANEL 64

/* The matrix that row n of the product belongs to; n becomes the row within it. */
static const moxie_matrix *matrix_of_row(const mox_expert_gemm_args *args, const moxie_expert *expert, int64_t *n)
{
    if (args->projection == MOX_W2)
        return &expert->down;
    if (!args->shape->gated)
        return &expert->up;
    if (*n < mox_shape_rows13(args->shape))
        return &expert->gate;
    *n -= mox_shape_rows13(args->shape);
    return &expert->up;
}

static double dot(const mox_activations *a, int64_t r, const double *w)
{
    const float *values = a->values + r * a->stride;
    double sum = 0;
    for (int64_t k = 0; k < a->cols; k++) {
        const double scale = a->scales != NULL ? a->scales[r * a->scale_cols + k / a->group_cols] : 1;
        sum += w[k] * (values[k] * scale);
    }
    if (a->global == NULL)
        return sum;
    return a->global_kind == MOXIE_GLOBAL_DIVIDE ? sum / a->global[r] : sum * a->global[r];
}

static void multiply_panel(void *context, int64_t task, int32_t worker)
{
    const mox_expert_gemm_args *args = context;
    const int64_t panels = mox_ceil_div(args->n_out, PANEL), slot = task / panels;
    const int64_t n0 = task % panels * PANEL, n1 = mox_min_i64(n0 + PANEL, args->n_out);
    const int64_t first = args->offsets[slot], last = args->offsets[slot + 1];
    if (first == last)
        return;
    const moxie_quant *quant = args->projection == MOX_W2 ? &args->shape->w2 : &args->shape->w13;
    double *w = (double *)args->scratch + worker * args->a->cols;
    moxie_expert expert;
    mox_rowmajor_view(args->shape, args->records[slot], &expert);
    for (int64_t n = n0; n < n1; n++) {
        int64_t row = n;
        const moxie_matrix *matrix = matrix_of_row(args, &expert, &row);
        const double bias = matrix->bias.data != NULL ? mox_grid_value(&matrix->bias, row, 0) : 0;
        mox_ref_weight_row(matrix, quant, row, w);
        for (int64_t p = first; p < last; p++)
            args->out[p * args->n_out + n] =
                (float)(dot(args->a, args->act_row != NULL ? args->act_row[p] : p, w) + bias);
    }
}

void mox_ref_run_product(const mox_expert_gemm_args *args, const moxie_executor *executor)
{
    mox_expert_gemm_args context = *args;
    mox_parallel(executor, args->slots * mox_ceil_div(args->n_out, PANEL), multiply_panel, &context);
}

uint64_t mox_ref_product_scratch(const mox_expert_gemm_problem *problem)
{
    const int64_t cols = problem->projection == MOX_W2 ? problem->shape->intermediate : problem->shape->hidden;
    return (uint64_t)cols * sizeof(double);
}
