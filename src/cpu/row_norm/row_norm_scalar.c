/* SPDX-License-Identifier: Apache-2.0
 *
 * row_norm_scalar.c - family row_norm in portable C: one task per row. The row is widened into the output, so no memory
 * besides it is needed. Lanes and segments are those of dense_scalar.c; compilers vectorise their order.
 */
#include "cpu/row_norm/row_norm.h"

#include <math.h>

#include "base/sizes.h"

enum { LANES = 16, SEGMENT = 512 };

static float segment_squares(const float *u, int64_t n)
{
    float lane[LANES] = { 0 };
    int64_t k = 0;
    for (; k + LANES <= n; k += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] += u[k + l] * u[k + l];
    for (int l = 0; k < n; k++, l++)
        lane[l] += u[k] * u[k];
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int l = 0; l < width; l++)
            lane[l] += lane[l + width];
    return lane[0];
}

static void multiply(float *restrict u, const float *restrict weight, int64_t n)
{
    for (int64_t k = 0; weight != NULL && k < n; k++)
        u[k] = u[k] * weight[k];
}

static void scale(float *u, float factor, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        u[k] = u[k] * factor;
}

static void norm_row(void *context, int64_t row, int32_t worker)
{
    const mox_row_norm_args *args = context;
    (void)worker;
    const int64_t n = args->cols, bytes = mox_dtype_bytes(args->x_dtype);
    float *u = args->out + row * n, sum = 0;
    mox_widen(args->x_dtype, (const char *)args->x + row * n * bytes, u, n);
    if (args->weight_first)
        multiply(u, args->weight, n);
    for (int64_t k = 0; k < n; k += SEGMENT)
        sum += segment_squares(u + k, mox_min_i64(SEGMENT, n - k));
    scale(u, 1.0f / sqrtf(sum / (float)n + args->eps), n);
    if (!args->weight_first)
        multiply(u, args->weight, n);
    scale(u, args->factor, n);
}

void mox_row_norm_scalar_run(const mox_row_norm_args *args, const moxie_executor *executor)
{
    mox_row_norm_args copy = *args;
    mox_parallel(executor, args->rows != NULL ? *args->rows : args->max_rows, norm_row, &copy);
}
