/* SPDX-License-Identifier: Apache-2.0
 *
 * combine_scalar.c - family combine in portable C: one task per token. A block of 512 columns is summed over all
 * experts in slot order before the next block, so its sums stay in the L1 cache.
 */
#include "cpu/combine/combine.h"

#include "base/sizes.h"

enum { BLOCK = 512 };

/* Row of y for choice j of the token, or -1 to skip it. */
static int64_t row_of(const mox_combine_args *args, int64_t choice)
{
    if (args->position != NULL)
        return args->position[choice];
    const int32_t id = args->ids[choice];
    return id >= 0 && id < args->experts ? choice : -1;
}

static void add_scaled(float *restrict acc, const float *restrict row, float weight, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        acc[i] = acc[i] + weight * row[i];
}

/* Columns of a row of y; in `buffer` if they must be rounded or widened. */
static const float *columns_of(const mox_combine_args *args, int64_t row, int64_t first, int64_t count, float *buffer)
{
    uint16_t rounded[BLOCK];
    const int64_t at = row * args->hidden + first;
    if (args->round_y == MOXIE_DTYPE_NONE)
        return args->y + at;
    if (args->y16 == NULL)
        mox_narrow(args->round_y, args->y + at, rounded, count);
    mox_widen(args->round_y, args->y16 != NULL ? (const uint16_t *)args->y16 + at : rounded, buffer, count);
    return buffer;
}

static void add_identity(const mox_combine_args *args, float *acc, int64_t token, float weight, int64_t first,
                         int64_t count)
{
    float x[BLOCK];
    const int64_t bytes = mox_dtype_bytes(args->out_dtype);
    mox_widen(args->out_dtype, (const uint8_t *)args->identity + (token * args->hidden + first) * bytes, x, count);
    add_scaled(acc, x, weight, count);
}

static void combine_block(const mox_combine_args *args, int64_t token, int64_t first, int64_t count)
{
    float acc[BLOCK] = { 0 }, y[BLOCK];
    for (int64_t j = 0; j < args->top_k; j++) {
        const int64_t choice = token * args->top_k + j, row = row_of(args, choice);
        if (row >= 0)
            add_scaled(acc, columns_of(args, row, first, count, y),
                       args->weights != NULL ? args->weights[choice] : 1.0f, count);
        else if (mox_combine_is_identity(args, choice))
            add_identity(args, acc, token, args->identity_weights[choice], first, count);
    }
    if (args->shared != NULL)
        add_scaled(acc, args->shared + token * args->hidden + first, mox_combine_shared_weight(args, token), count);
    const int64_t bytes = mox_dtype_bytes(args->out_dtype);
    mox_narrow(args->out_dtype, acc, (uint8_t *)args->out + (token * args->hidden + first) * bytes, count);
}

static void combine_token(void *context, int64_t token, int32_t worker)
{
    (void)worker;
    const mox_combine_args *args = context;
    for (int64_t first = 0; first < args->hidden; first += BLOCK)
        combine_block(args, token, first, mox_min_i64(BLOCK, args->hidden - first));
}

void mox_combine_scalar_run(const mox_combine_args *args, const moxie_executor *executor)
{
    mox_combine_args context = *args;
    mox_parallel(executor, args->tokens, combine_token, &context);
}
