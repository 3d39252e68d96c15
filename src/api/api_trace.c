/* SPDX-License-Identifier: Apache-2.0
 *
 * api_trace.c - moxie_trace.h: checks pointers and structs, then calls src/store.
 */
#include <moxie/moxie_trace.h>

#include "api_need.h"
#include "base/checksum.h"
#include "layer/config/struct_size.h"
#include "store/expert_cache.h"
#include "store/trace.h"
#include "store/trace_simulate.h"

uint64_t moxie_trace_fingerprint(const void *data, uint64_t bytes)
{
    return data || bytes == 0 ? mox_checksum(data ? data : "", bytes) : 0;
}

moxie_status moxie_trace_writer_create(const char *path, const moxie_trace_info *info, moxie_trace_writer **out,
                                       moxie_error *error)
{
    moxie_trace_info known;
    NEED(path);
    NEED(info);
    NEED(out);
    MOX_TRY(mox_struct_read(info, &known, MOX_STRUCT(moxie_trace_info), error));
    return mox_trace_writer_create(path, &known, out, error);
}

moxie_status moxie_trace_writer_add(moxie_trace_writer *writer, const moxie_trace_step *step, moxie_error *error)
{
    moxie_trace_step known;
    NEED(writer);
    NEED(step);
    MOX_TRY(mox_struct_read(step, &known, MOX_STRUCT(moxie_trace_step), error));
    return mox_trace_writer_add(writer, &known, error);
}

moxie_status moxie_trace_writer_finish(moxie_trace_writer *writer, moxie_error *error)
{
    NEED(writer);
    return mox_trace_writer_finish(writer, error);
}

void moxie_trace_writer_destroy(moxie_trace_writer *writer)
{
    mox_trace_writer_destroy(writer);
}

int moxie_trace_is_trace(const char *path)
{
    return path && mox_trace_is_trace(path);
}

moxie_status moxie_trace_open(const char *path, moxie_trace **out, moxie_error *error)
{
    NEED(path);
    NEED(out);
    return mox_trace_open(path, out, error);
}

void moxie_trace_close(moxie_trace *trace)
{
    mox_trace_close(trace);
}

moxie_status moxie_trace_get_info(const moxie_trace *trace, moxie_trace_info *info, moxie_error *error)
{
    NEED(trace);
    NEED(info);
    MOX_TRY(mox_struct_check(info, MOX_STRUCT(moxie_trace_info), error));
    mox_struct_write(mox_trace_info_of(trace), info, MOX_STRUCT(moxie_trace_info));
    return MOXIE_OK;
}

moxie_status moxie_trace_read(moxie_trace *trace, int64_t index, moxie_trace_step *step, moxie_error *error)
{
    moxie_trace_step known;
    NEED(trace);
    NEED(step);
    MOX_TRY(mox_struct_check(step, MOX_STRUCT(moxie_trace_step), error));
    MOX_TRY(mox_trace_read(trace, index, &known, error));
    mox_struct_write(&known, step, MOX_STRUCT(moxie_trace_step));
    return MOXIE_OK;
}

const char *moxie_cache_policy_at(int32_t i, const char **about)
{
    const mox_cache_policy *policy = mox_cache_policy_at(i);
    if (policy && about)
        *about = policy->about;
    return policy ? policy->name : NULL;
}

moxie_status moxie_trace_simulate(moxie_trace *trace, const moxie_cache_config *config, moxie_cache_hits *hits,
                                  int64_t *by_layer, moxie_error *error)
{
    moxie_cache_config known;
    moxie_cache_hits found;
    NEED(trace);
    NEED(config);
    NEED(hits);
    MOX_TRY(mox_struct_read(config, &known, MOX_STRUCT(moxie_cache_config), error));
    MOX_TRY(mox_struct_check(hits, MOX_STRUCT(moxie_cache_hits), error));
    MOX_TRY(mox_trace_simulate(trace, &known, &found, by_layer, error));
    mox_struct_write(&found, hits, MOX_STRUCT(moxie_cache_hits));
    return MOXIE_OK;
}
