/* SPDX-License-Identifier: Apache-2.0
 *
 * api_parallel.c - the first section of moxie_parallel.h: parallel configs by vLLM's names.
 *
 * Each call checks its pointers, reads structs of older or newer headers into this library's, and calls src/route.
 */
#include <moxie/moxie_parallel.h>

#include "api/api_need.h"
#include "layer/config/struct_size.h"
#include "route/parallel.h"

moxie_status moxie_parallel_make(const moxie_parallel_args *args, moxie_parallel *out, moxie_error *error)
{
    moxie_parallel_args read;
    moxie_parallel made;
    NEED(args);
    NEED(out);
    MOX_TRY(mox_struct_check(out, MOX_STRUCT(moxie_parallel), error));
    MOX_TRY(mox_struct_read(args, &read, MOX_STRUCT(moxie_parallel_args), error));
    MOX_TRY(mox_parallel_make(&read, &made, error));
    mox_struct_write(&made, out, MOX_STRUCT(moxie_parallel));
    return MOXIE_OK;
}

moxie_status moxie_parallel_make_no_parallel(moxie_parallel *out, moxie_error *error)
{
    moxie_parallel made;
    NEED(out);
    MOX_TRY(mox_struct_check(out, MOX_STRUCT(moxie_parallel), error));
    mox_parallel_none(&made);
    mox_struct_write(&made, out, MOX_STRUCT(moxie_parallel));
    return MOXIE_OK;
}

int moxie_parallel_predicate(const moxie_parallel *parallel, const char *name)
{
    moxie_parallel read;
    if (parallel == NULL || name == NULL ||
        mox_struct_read(parallel, &read, MOX_STRUCT(moxie_parallel), NULL) != MOXIE_OK ||
        mox_parallel_read(&read, NULL) != MOXIE_OK)
        return -1;
    return mox_parallel_predicate(&read, name);
}

const char *moxie_parallel_predicate_at(int32_t i)
{
    return mox_parallel_predicate_at(i);
}

moxie_status moxie_all2all_backend_at(int32_t i, moxie_all2all_backend *out, moxie_error *error)
{
    const moxie_all2all_backend *row = mox_all2all_at(i);
    NEED(out);
    MOX_TRY(mox_struct_check(out, MOX_STRUCT(moxie_all2all_backend), error));
    MOX_FAIL_IF(row == NULL, MOXIE_ERR_ARGUMENT, error, "there is no all2all back end %d", (int)i);
    mox_struct_write(row, out, MOX_STRUCT(moxie_all2all_backend));
    return MOXIE_OK;
}

/* ---- one layer --------------------------------------------------------------------------------------- */

/* Both inputs as this library knows them. */
typedef struct inputs {
    moxie_parallel parallel;
    moxie_fused_moe_args args;
} inputs;

static moxie_status read_inputs(const moxie_parallel *parallel, const moxie_fused_moe_args *args, inputs *in,
                                moxie_error *error)
{
    MOX_TRY(mox_struct_read(parallel, &in->parallel, MOX_STRUCT(moxie_parallel), error));
    return mox_struct_read(args, &in->args, MOX_STRUCT(moxie_fused_moe_args), error);
}

moxie_status moxie_fused_moe_check(const moxie_parallel *parallel, const moxie_fused_moe_args *args,
                                   moxie_fused_moe *out, moxie_error *error)
{
    inputs in;
    moxie_fused_moe made;
    NEED(parallel);
    NEED(args);
    NEED(out);
    MOX_TRY(mox_struct_check(out, MOX_STRUCT(moxie_fused_moe), error));
    MOX_TRY(read_inputs(parallel, args, &in, error));
    MOX_TRY(mox_fused_moe_check(&in.parallel, &in.args, &made, error));
    mox_struct_write(&made, out, MOX_STRUCT(moxie_fused_moe));
    return MOXIE_OK;
}

moxie_status moxie_parallel_placement(const moxie_parallel *parallel, const moxie_fused_moe_args *args,
                                      int32_t *placement, const char **reason, moxie_error *error)
{
    inputs in;
    int32_t kind;
    const char *why;
    NEED(parallel);
    NEED(args);
    MOX_TRY(read_inputs(parallel, args, &in, error));
    MOX_TRY(mox_fused_moe_read(&in.parallel, &in.args, error));
    MOX_TRY(mox_parallel_placement(&in.parallel, &in.args, &kind, &why, error));
    if (placement != NULL)
        *placement = kind;
    if (reason != NULL)
        *reason = why;
    return MOXIE_OK;
}

moxie_status moxie_parallel_plan(const moxie_parallel *parallel, const moxie_fused_moe_args *args,
                                 moxie_parallel_layer *out, moxie_error *error)
{
    inputs in;
    moxie_parallel_layer made;
    NEED(parallel);
    NEED(args);
    NEED(out);
    MOX_TRY(mox_struct_check(out, MOX_STRUCT(moxie_parallel_layer), error));
    MOX_TRY(read_inputs(parallel, args, &in, error));
    MOX_TRY(mox_parallel_plan(&in.parallel, &in.args, &made, error));
    mox_struct_write(&made, out, MOX_STRUCT(moxie_parallel_layer));
    return MOXIE_OK;
}
