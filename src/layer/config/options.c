/* SPDX-License-Identifier: Apache-2.0
 *
 * options.c - reads moxie_options: size of the caller's struct, defaults, the rules of each field.
 */
#include <moxie/moxie_adapters.h>
#include <moxie/moxie_cuda.h>

#include "base/cpu_features.h"
#include "base/executor.h"
#include "layer/config/config.h"
#include "layer/config/reserved.h"
#include "layer/config/struct_size.h"

#define DEFAULT_MAX_TOKENS 4096
/* Bytes of any array over tokens or pairs fit in 64 bits with room to spare. */
#define MAX_MAX_TOKENS (1 << 24)

static moxie_status check_backend(int32_t backend, moxie_error *error)
{
    MOX_FAIL_IF(backend < MOXIE_BACKEND_AUTO || backend > MOXIE_BACKEND_CUDA, MOXIE_ERR_ARGUMENT, error,
                "options.backend is %d, which is no back end of moxie_backend", (int)backend);
    return MOXIE_OK;
}

static moxie_status check_executor(const moxie_executor *executor, moxie_error *error)
{
    MOX_RESERVED(moxie_executor, executor, "options.executor", error);
    MOX_FAIL_IF(executor->run == NULL || executor->workers < 1, MOXIE_ERR_ARGUMENT, error,
                "options.executor has %d workers and %s run function; it needs at least one worker and a run function",
                (int)executor->workers, executor->run == NULL ? "no" : "a");
    return MOXIE_OK;
}

struct moxie_comm *mox_options_comm(const moxie_options *options)
{
    moxie_options o = MOXIE_OPTIONS_INIT;
    const bool readable = options != NULL && mox_struct_read(options, &o, MOX_STRUCT(moxie_options), NULL) == MOXIE_OK;
    return readable ? o.comm : NULL;
}

moxie_status mox_options_read(const moxie_options *options, moxie_options *out, moxie_error *error)
{
    moxie_options o = MOXIE_OPTIONS_INIT;
    MOX_TRY(mox_cpu_check_cap(error));
    if (options != NULL)
        MOX_TRY(mox_struct_read(options, &o, MOX_STRUCT(moxie_options), error));
    MOX_TRY(check_backend(o.backend, error));
    MOX_FAIL_IF(o.mode != MOXIE_MODE_EXACT && o.mode != MOXIE_MODE_FAST, MOXIE_ERR_ARGUMENT, error,
                "options.mode is %d, which is no mode of moxie_mode", (int)o.mode);
    MOX_FAIL_IF(o.max_tokens < 0 || o.max_tokens > MAX_MAX_TOKENS, MOXIE_ERR_ARGUMENT, error,
                "options.max_tokens is %lld; it must be from 0 (meaning %d) to %d", (long long)o.max_tokens,
                DEFAULT_MAX_TOKENS, MAX_MAX_TOKENS);
    MOX_FAIL_IF(o.max_adapter_rank < 0 || o.max_adapter_rank > MOXIE_MAX_ADAPTER_RANK, MOXIE_ERR_ARGUMENT, error,
                "options.max_adapter_rank is %d; it must be from 0 (no adapters) to %d", (int)o.max_adapter_rank,
                MOXIE_MAX_ADAPTER_RANK);
    MOX_FAIL_IF(o.degraded < MOXIE_DEGRADED_NONE || o.degraded > MOXIE_DEGRADED_RENORMALIZE, MOXIE_ERR_ARGUMENT, error,
                "options.degraded is %d, which is no way of moxie_degraded", (int)o.degraded);
    MOX_FAIL_IF(o.spare_slots < 0 || o.spare_slots > MOXIE_MAX_EXPERTS, MOXIE_ERR_ARGUMENT, error,
                "options.spare_slots is %d; it must be from 0 to %d", (int)o.spare_slots, MOXIE_MAX_EXPERTS);
    MOX_FAIL_IF(o.call_graphs < 0 || o.call_graphs > 2, MOXIE_ERR_ARGUMENT, error,
                "options.call_graphs is %lld; it must be 0 (the plan chooses), 1 or 2", (long long)o.call_graphs);
    if (o.max_tokens == 0)
        o.max_tokens = DEFAULT_MAX_TOKENS;
    if (o.executor == NULL)
        o.executor = &mox_executor_serial;
    MOX_TRY(check_executor(o.executor, error));
    if (o.device_memory != NULL)
        MOX_RESERVED(moxie_cuda_allocator, o.device_memory, "options.device_memory", error);
    *out = o;
    return MOXIE_OK;
}
