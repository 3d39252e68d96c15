/* SPDX-License-Identifier: Apache-2.0
 *
 * dense_scalar.c - family dense in portable C.
 *
 * A task is a block of weight rows times a block of tokens, so the weights stay in cache for all tokens of the block.
 * A segment is summed into LANES partial sums, lane l having columns l, l + LANES, ...; then the upper half of the
 * lanes is added to the lower half, until one is left. Compilers vectorise this order, and it is the same for all block
 * sizes.
 */
#include "cpu/dense/dense.h"

#include "base/shared_math.h"
#include "base/sizes.h"

#define LANES       16
#define ROW_BLOCK   16
#define TOKEN_BLOCK 16

static float segment_sum(const float *w, const float *x, int64_t n)
{
    float lane[LANES] = { 0 };
    int64_t k = 0;
    for (; k + LANES <= n; k += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] += w[k + l] * x[k + l];
    for (int l = 0; k < n; k++, l++)
        lane[l] += w[k] * x[k];
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int l = 0; l < width; l++)
            lane[l] += lane[l + width];
    return lane[0];
}

static float dot(const float *w, const float *x, int64_t n)
{
    float sum = 0;
    for (int64_t k = 0; k < n; k += MOX_DENSE_SEGMENT)
        sum += segment_sum(w + k, x + k, mox_min_i64(MOX_DENSE_SEGMENT, n - k));
    return sum;
}

static void widen_token(void *context, int64_t t, int32_t worker)
{
    const mox_dense_args *args = context;
    (void)worker;
    const int64_t bytes = mox_dtype_bytes(args->x_dtype);
    mox_widen(args->x_dtype, (const char *)args->x + t * args->cols * bytes, args->x_scratch + t * args->cols,
              args->cols);
}

static void multiply_block(void *context, int64_t task, int32_t worker)
{
    const mox_dense_args *args = context;
    (void)worker;
    const int64_t blocks = mox_ceil_div(args->rows, ROW_BLOCK);
    const int64_t n0 = task % blocks * ROW_BLOCK, n1 = mox_min_i64(n0 + ROW_BLOCK, args->rows);
    const int64_t t0 = task / blocks * TOKEN_BLOCK, t1 = mox_min_i64(t0 + TOKEN_BLOCK, args->tokens);
    for (int64_t t = t0; t < t1; t++)
        for (int64_t n = n0; n < n1; n++) {
            float v = dot(args->weight + n * args->cols, args->x_scratch + t * args->cols, args->cols);
            if (args->bias != NULL)
                v += args->bias[n];
            args->out[t * args->rows + n] = args->logistic ? 1.0f / (1.0f + mox_exp(-v)) : v;
        }
}

void mox_dense_scalar_run(const mox_dense_args *args, const moxie_executor *executor)
{
    mox_dense_args copy = *args;
    const int64_t blocks = mox_ceil_div(args->rows, ROW_BLOCK) * mox_ceil_div(args->tokens, TOKEN_BLOCK);
    /* Waking the workers takes longer than widening a few tokens. */
    mox_parallel(args->tokens <= 32 ? &mox_executor_serial : executor, args->tokens, widen_token, &copy);
    mox_parallel(executor, blocks, multiply_block, &copy);
}
