/* SPDX-License-Identifier: Apache-2.0
 *
 * ref_row_norm.c - the oracle of family row_norm (ref.h): the norm of one row in double, and how far fp32 may be off.
 *
 *     q = 1 / sqrt(sum u^2 / n + eps),   out[k] = u[k] q weight[k] factor
 *
 * The relative error of q is half of that of the sum, plus the roundings of quotient, sum, root and reciprocal. Squares
 * of weighted inputs carry two more roundings.
 */
#include "ref/ref.h"

#include <math.h>

#include "ref/ref_bounds.h"

static double input(const mox_ref_norm *norm, const float *x, int64_t k)
{
    return norm->weight_first && norm->weight != NULL ? (double)x[k] * norm->weight[k] : x[k];
}

double mox_ref_row_norm_scale(const mox_ref_norm *norm, const float *x, int64_t n, double *relative)
{
    double sum = 0;
    for (int64_t k = 0; k < n; k++)
        sum += input(norm, x, k) * input(norm, x, k);
    const double mean = sum / (double)n + norm->eps;
    const double error = mox_bound_dot(n, mox_dot_depth(n, n, n), sum) / (double)n + mean * 5 * 0x1p-24;
    /* fp32 overflows to infinity, and cannot tell a mean near zero from zero. */
    *relative = sum > 0x1p126 || mean < 0x1p-120 ? INFINITY : error / mean + 8 * 0x1p-24;
    return 1 / sqrt(mean);
}

double mox_ref_row_norm_element(const mox_ref_norm *norm, const float *x, int64_t k, double scale)
{
    const double weight = norm->weight_first || norm->weight == NULL ? 1 : norm->weight[k];
    return input(norm, x, k) * scale * weight * norm->factor;
}

double mox_ref_row_norm_bound(const mox_ref_norm *norm, int64_t k, double want, double scale, double relative)
{
    const double weight = norm->weight == NULL ? 1 : fabs((double)norm->weight[k]);
    /* A weighted input below the normal numbers is off by half the least one, and q multiplies that. */
    const double tiny = norm->weight_first ? 0x1p-149 * scale * fabs(norm->factor) : 0;
    return fabs(want) * relative + tiny + 0x1p-146 * (1 + weight) * (1 + fabs(norm->factor));
}
