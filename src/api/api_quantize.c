/* SPDX-License-Identifier: Apache-2.0
 *
 * api_quantize.c - the calls of moxie_quantize.h: checks their arguments; src/ckpt/quantize and
 * src/layer/check/squares.c do the work.
 */
#include <moxie/moxie_quantize.h>

#include <math.h>

#include "ckpt/quantize/quantize.h"
#include "layer/check/squares.h"
#include "layer/config/reserved.h"
#include "layer/config/struct_size.h"
#include "quant/block_encode.h"
#include "quant/quant.h"

static moxie_status read_options(const char *dir, const char *out, const moxie_quantize_options *options,
                                 moxie_quantize_options *o, moxie_error *error)
{
    *o = (moxie_quantize_options)MOXIE_QUANTIZE_OPTIONS_INIT;
    MOX_FAIL_IF(!dir || !out || !options, MOXIE_ERR_ARGUMENT, error,
                "a checkpoint, the directory to write and options are needed");
    MOX_TRY(mox_struct_read(options, o, MOX_STRUCT(moxie_quantize_options), error));
    MOX_FAIL_IF(!o->format, MOXIE_ERR_ARGUMENT, error,
                "options.format is needed: a name of moxie_checkpoint_format_at()");
    MOX_FAIL_IF(
        !(o->input_amax13 >= 0 && o->input_amax13 < INFINITY && o->input_amax2 >= 0 && o->input_amax2 < INFINITY),
        MOXIE_ERR_ARGUMENT, error, "options.input_amax13 and input_amax2 are %g and %g; give positive numbers",
        (double)o->input_amax13, (double)o->input_amax2);
    if (o->executor)
        MOX_RESERVED(moxie_executor, o->executor, "options.executor", error);
    MOX_FAIL_IF(o->executor && (!o->executor->run || o->executor->workers < 1), MOXIE_ERR_ARGUMENT, error,
                "options.executor needs a run function and at least one worker");
    return MOXIE_OK;
}

moxie_status moxie_quantize(const char *dir, const char *out, const moxie_quantize_options *options,
                            moxie_quantize_summary *summary, moxie_error *error)
{
    moxie_quantize_options o;
    moxie_quantize_summary s = MOXIE_QUANTIZE_SUMMARY_INIT;
    moxie_executor *pool = NULL;
    MOX_TRY(read_options(dir, out, options, &o, error));
    if (summary)
        MOX_TRY(mox_struct_check(summary, MOX_STRUCT(moxie_quantize_summary), error));
    if (!o.executor)
        MOX_TRY(mox_executor_create(0, &pool, error));
    const moxie_status status = mox_quantize(dir, out, &o, pool ? pool : o.executor, &s, error);
    mox_executor_destroy(pool);
    if (status == MOXIE_OK && summary)
        mox_struct_write(&s, summary, MOX_STRUCT(moxie_quantize_summary));
    return status;
}

moxie_status moxie_quantize_check(const char *dir, const char *out, const moxie_quantize_options *options,
                                  moxie_error *error)
{
    moxie_quantize_options o;
    MOX_TRY(read_options(dir, out, options, &o, error));
    return mox_quantize_check(dir, out, &o, error);
}

moxie_status moxie_plan_squares(moxie_plan *plan, const moxie_run_args *args, double *squares13, double *squares2,
                                int64_t *tokens, moxie_error *error)
{
    MOX_FAIL_IF(!plan || !args || !squares13 || !squares2 || !tokens, MOXIE_ERR_ARGUMENT, error,
                "a plan, what it runs on and three arrays for the sums are needed");
    return mox_plan_squares(plan, args, squares13, squares2, tokens, error);
}

moxie_status moxie_block_encode(moxie_dtype dtype, const float *weights, int64_t rows, int64_t cols, void *out,
                                uint64_t bytes, moxie_grid *grid, moxie_error *error)
{
    const mox_block *block = mox_block_of(dtype);
    MOX_FAIL_IF(!block || !mox_block_can_encode(dtype), MOXIE_ERR_UNSUPPORTED, error,
                "blocks of %s are not made: use a type that `moxie info --support` lists as gguf-...",
                mox_dtype_name(dtype));
    MOX_FAIL_IF(rows < 0 || cols < 0 || cols % block->weights != 0 || (rows > 0 && cols > INT64_MAX / 4 / rows),
                MOXIE_ERR_ARGUMENT, error, "[%lld,%lld] weights are no whole blocks of %s, which have %d",
                (long long)rows, (long long)cols, block->format.name, (int)block->weights);
    const uint64_t row = mox_block_row_bytes(dtype, cols), needed = (uint64_t)rows * row;
    MOX_FAIL_IF(needed > 0 && (!weights || !out || bytes != needed), MOXIE_ERR_ARGUMENT, error,
                "%llu bytes of blocks are made, and there is room for %llu", (unsigned long long)needed,
                (unsigned long long)(out ? bytes : 0));
    for (int64_t r = 0; r < rows; r++)
        mox_block_encode_row(dtype, weights + r * cols, NULL, cols, false, (uint8_t *)out + (uint64_t)r * row);
    if (grid)
        *grid = mox_grid_dense(out, dtype, rows, cols);
    return MOXIE_OK;
}
