/* SPDX-License-Identifier: Apache-2.0
 *
 * matrix.c - the exact weights of one projection of one expert, read in place from the checkpoint's tensors:
 *
 *     w[n,k] = (code[n,k] - (zero[n / gr, g] + zero_add)) * scale[n / gr, g] (* or /) global[n or 0]
 *     g = group_index ? group_index[k] : k / gc          gr, gc: rows and columns that share a scale
 *
 *          codes [N,K]                 scale, zero [ceil(N/gr), ceil(K/gc)]      global [1,1] or [N,1]
 *          +----+----+----+--+ gr      +---+---+---+---+
 *          |    |    |    |  |         |   |   |   |   |      edge blocks are partial, so the grid of
 *          +----+----+----+--+         +---+---+---+---+      scales is rounded up
 *          |    |    |    |  |         |   |   |   |   |
 *          +----+----+----+--+         +---+---+---+---+
 *            gc
 *
 * An integer zero point is decoded with its own grid's dtype: zeros stored like the codes of a u4b8 matrix are
 * u4b8 too, and the offset of 8 cancels in the difference.
 * Source: the dequantization rules of the checkpoint formats (GPTQ, AWQ, compressed-tensors, ModelOpt, OCP MX).
 */
#include "quant/quant.h"

#include <math.h>
#include <stdio.h>

#include "base/sizes.h"

/* The largest distance of two 8-bit codes. Readers convert zero_add to an integer. */
#define MAX_ZERO_ADD 255

static int64_t resolve(int64_t extent, int64_t all)
{
    const int64_t whole = mox_max_i64(all, 1);
    return extent <= 0 || extent > whole ? whole : extent;
}

int64_t mox_group_rows(const moxie_quant *quant, int64_t rows)
{
    return quant->group_rows == 0 ? 1 : resolve(quant->group_rows, rows);
}

int64_t mox_group_cols(const moxie_quant *quant, int64_t cols)
{
    return resolve(quant->group_cols, cols);
}

int64_t mox_scale_rows(const moxie_quant *quant, int64_t rows)
{
    return mox_ceil_div(rows, mox_group_rows(quant, rows));
}

int64_t mox_scale_cols(const moxie_quant *quant, int64_t cols)
{
    return mox_ceil_div(cols, mox_group_cols(quant, cols));
}

int64_t mox_matrix_group(const moxie_matrix *matrix, const moxie_quant *quant, int64_t k)
{
    return matrix->group_index ? matrix->group_index[k] : k / mox_group_cols(quant, matrix->codes.cols);
}

/* Exact: code minus zero has at most 9 significant bits (integers) or 4 (floats), a scale and a global at most 24 each,
 * and every product of real formats fits the 53 bits of a double. A quotient is rounded once. */
double mox_matrix_weight(const moxie_matrix *matrix, const moxie_quant *quant, int64_t n, int64_t k)
{
    double value = mox_grid_value(&matrix->codes, n, k);
    if (quant->scale != MOXIE_DTYPE_NONE) {
        const int64_t row = n / mox_group_rows(quant, matrix->codes.rows);
        const int64_t group = mox_matrix_group(matrix, quant, k);
        if (quant->has_zero)
            value -= mox_grid_value(&matrix->zero, row, group) + (double)matrix->zero_add;
        value *= mox_grid_value(&matrix->scale, row, group);
    }
    if (quant->global == MOXIE_GLOBAL_NONE)
        return value;
    const double global = mox_grid_value(&matrix->global, matrix->global.rows == 1 ? 0 : n, 0);
    return quant->global == MOXIE_GLOBAL_MULTIPLY ? value * global : value / global;
}

/* ---- checks ----------------------------------------------------------------------------------- */

static bool is_plain_float(moxie_dtype dtype)
{
    return dtype == MOXIE_F32 || dtype == MOXIE_F16 || dtype == MOXIE_BF16;
}

static bool is_zero_dtype(moxie_dtype dtype)
{
    const mox_format *format = mox_format_of(dtype);
    return is_plain_float(dtype) || (format && format->kind == MOX_KIND_INTEGER);
}

typedef struct grid_rule {
    const char *part;   /* "scale" */
    bool wanted;        /* the quantization calls for it */
    int64_t rows, cols; /* required extents */
    moxie_dtype dtype;  /* required dtype; NONE: `admits` decides */
    bool (*admits)(moxie_dtype dtype);
    const char *admitted; /* the dtypes that it admits, for messages */
} grid_rule;

static moxie_status check_part(const moxie_grid *grid, const grid_rule *rule, const char *what, moxie_error *error)
{
    char name[128];
    snprintf(name, sizeof name, "%s %s", what, rule->part);
    const bool empty = rule->rows == 0 || rule->cols == 0;
    MOX_FAIL_IF(rule->wanted && !grid->data && !empty, MOXIE_ERR_MISMATCH, error,
                "%s: the quantization calls for it, but it is absent", name);
    MOX_FAIL_IF(!rule->wanted && grid->data, MOXIE_ERR_MISMATCH, error,
                "%s: given, but the quantization does not call for it; leave it out or change the quantization", name);
    if (!rule->wanted)
        return MOXIE_OK;
    MOX_FAIL_IF(grid->rows != rule->rows || grid->cols != rule->cols, MOXIE_ERR_MISMATCH, error,
                "%s: shape [%lld, %lld], expected [%lld, %lld]", name, (long long)grid->rows, (long long)grid->cols,
                (long long)rule->rows, (long long)rule->cols);
    MOX_FAIL_IF(rule->dtype != MOXIE_DTYPE_NONE && grid->dtype != rule->dtype, MOXIE_ERR_MISMATCH, error,
                "%s: dtype %s, but the quantization says %s", name, mox_quant_dtype_name(grid->dtype),
                mox_quant_dtype_name(rule->dtype));
    MOX_FAIL_IF(rule->dtype == MOXIE_DTYPE_NONE && !rule->admits(grid->dtype), MOXIE_ERR_MISMATCH, error,
                "%s: dtype %s; it must be %s", name, mox_quant_dtype_name(grid->dtype), rule->admitted);
    return mox_grid_check(grid, name, error);
}

static moxie_status check_group_index(const moxie_matrix *matrix, int64_t groups, const char *what, moxie_error *error)
{
    for (int64_t k = 0; k < matrix->codes.cols; k++)
        MOX_FAIL_IF(matrix->group_index[k] < 0 || matrix->group_index[k] >= groups, MOXIE_ERR_MISMATCH, error,
                    "%s: group_index[%lld] is %d, but there are %lld groups", what, (long long)k,
                    (int)matrix->group_index[k], (long long)groups);
    return MOXIE_OK;
}

moxie_status mox_matrix_check(const moxie_matrix *matrix, const moxie_quant *quant, int64_t rows, int64_t cols,
                              bool has_bias, const char *what, moxie_error *error)
{
    const bool scaled = quant->scale != MOXIE_DTYPE_NONE;
    const int64_t scale_rows = mox_scale_rows(quant, rows), scale_cols = mox_scale_cols(quant, cols);
    const int64_t global_rows = matrix->global.rows == rows ? rows : 1;
    const char *floats = "f32, f16 or bf16";
    const grid_rule codes = { "codes", true, rows, cols, quant->element, NULL, NULL };
    const grid_rule scale = { "scale", scaled, scale_rows, scale_cols, quant->scale, NULL, NULL };
    const grid_rule zero = { "zero points",
                             quant->has_zero != 0,
                             scale_rows,
                             scale_cols,
                             MOXIE_DTYPE_NONE,
                             is_zero_dtype,
                             "an integer format, f32, f16 or bf16" };
    const grid_rule global = { "global", quant->global != 0, global_rows, 1, MOXIE_DTYPE_NONE, is_plain_float, floats };
    const grid_rule bias = { "bias", has_bias, rows, 1, MOXIE_DTYPE_NONE, is_plain_float, floats };
    MOX_TRY(check_part(&matrix->codes, &codes, what, error));
    MOX_TRY(check_part(&matrix->scale, &scale, what, error));
    MOX_TRY(check_part(&matrix->zero, &zero, what, error));
    MOX_TRY(check_part(&matrix->global, &global, what, error));
    MOX_TRY(check_part(&matrix->bias, &bias, what, error));
    MOX_FAIL_IF(matrix->zero_add != 0 && !quant->has_zero, MOXIE_ERR_MISMATCH, error,
                "%s: zero_add is %g, but the quantization has no zero points", what, (double)matrix->zero_add);
    MOX_FAIL_IF(!(fabsf(matrix->zero_add) <= MAX_ZERO_ADD), MOXIE_ERR_MISMATCH, error,
                "%s: zero_add is %g; it must be a number from %d to %d", what, (double)matrix->zero_add, -MAX_ZERO_ADD,
                MAX_ZERO_ADD);
    MOX_FAIL_IF(matrix->group_index && !scaled, MOXIE_ERR_MISMATCH, error,
                "%s: a group_index, but the quantization has no scales", what);
    return matrix->group_index ? check_group_index(matrix, scale_cols, what, error) : MOXIE_OK;
}
