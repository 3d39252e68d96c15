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

moxie_status moxie_quantize(const char *dir, const char *out, const moxie_quantize_options *options,
                            moxie_quantize_summary *summary, moxie_error *error)
{
    moxie_quantize_options o = MOXIE_QUANTIZE_OPTIONS_INIT;
    moxie_quantize_summary s = MOXIE_QUANTIZE_SUMMARY_INIT;
    moxie_executor *pool = NULL;
    MOX_FAIL_IF(!dir || !out || !options, MOXIE_ERR_ARGUMENT, error,
                "a checkpoint, the directory to write and options are needed");
    MOX_TRY(mox_struct_read(options, &o, MOX_STRUCT(moxie_quantize_options), error));
    if (summary)
        MOX_TRY(mox_struct_check(summary, MOX_STRUCT(moxie_quantize_summary), error));
    MOX_FAIL_IF(!o.format, MOXIE_ERR_ARGUMENT, error,
                "options.format is needed: a name of moxie_checkpoint_format_at()");
    MOX_FAIL_IF(!(o.input_amax13 >= 0 && o.input_amax13 < INFINITY && o.input_amax2 >= 0 && o.input_amax2 < INFINITY),
                MOXIE_ERR_ARGUMENT, error, "options.input_amax13 and input_amax2 are %g and %g; give positive numbers",
                (double)o.input_amax13, (double)o.input_amax2);
    if (o.executor)
        MOX_RESERVED(moxie_executor, o.executor, "options.executor", error);
    MOX_FAIL_IF(o.executor && (!o.executor->run || o.executor->workers < 1), MOXIE_ERR_ARGUMENT, error,
                "options.executor needs a run function and at least one worker");
    if (!o.executor)
        MOX_TRY(mox_executor_create(0, &pool, error));
    const moxie_status status = mox_quantize(dir, out, &o, pool ? pool : o.executor, &s, error);
    mox_executor_destroy(pool);
    if (status == MOXIE_OK && summary)
        mox_struct_write(&s, summary, MOX_STRUCT(moxie_quantize_summary));
    return status;
}

moxie_status moxie_plan_squares(moxie_plan *plan, const moxie_run_args *args, double *squares13, double *squares2,
                                int64_t *tokens, moxie_error *error)
{
    MOX_FAIL_IF(!plan || !args || !squares13 || !squares2 || !tokens, MOXIE_ERR_ARGUMENT, error,
                "a plan, what it runs on and three arrays for the sums are needed");
    return mox_plan_squares(plan, args, squares13, squares2, tokens, error);
}
