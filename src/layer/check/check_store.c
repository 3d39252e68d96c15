/* SPDX-License-Identifier: Apache-2.0
 *
 * check_store.c - a run through a store against a run through the mapped file (check_store.h).
 */
#include "layer/check/check_store.h"

#include <string.h>

#include "base/memory.h"
#include "layer/config/struct_size.h"
#include "layer/run/plan_run.h"

static uint32_t code_at(const uint8_t *row, int64_t column, uint64_t element_bytes)
{
    uint32_t code = 0;
    memcpy(&code, row + (uint64_t)column * element_bytes, element_bytes);
    return code;
}

/* Compares codes, since equal results may be NaN. */
static void compare(mox_checker *checker, const moxie_run_args *args, const uint8_t *mapped)
{
    const moxie_layer_config *c = &checker->plan->config;
    const uint64_t element = (uint64_t)mox_dtype_bytes(c->dtype), row = (uint64_t)c->hidden * element;
    const uint8_t *stored = args->output;
    for (int64_t t = 0; t < args->tokens; t++)
        for (int64_t h = 0; h < c->hidden; h++)
            mox_check_equal(&checker->stages[MOX_CHECK_STORE], code_at(stored + (uint64_t)t * row, h, element),
                            code_at(mapped + (uint64_t)t * row, h, element),
                            (mox_place) { .token = t, .slot = -1, .expert = -1, .column = h });
}

moxie_status mox_check_store(mox_checker *checker, const moxie_run_args *args, moxie_error *error)
{
    const moxie_plan *plan = checker->plan;
    moxie_run_args read;
    if (plan->layer->source == NULL && plan->layer->device_source == NULL)
        return MOXIE_OK;
    MOX_TRY(mox_struct_read(args, &read, MOX_STRUCT(moxie_run_args), error));
    const uint64_t bytes =
        (uint64_t)read.tokens * (uint64_t)plan->config.hidden * (uint64_t)mox_dtype_bytes(plan->config.dtype);
    if (bytes == 0)
        return MOXIE_OK;
    uint8_t *mapped = mox_alloc(bytes);
    MOX_FAIL_IF(mapped == NULL, MOXIE_ERR_MEMORY, error, "no memory to check a store with %lld tokens",
                (long long)read.tokens);
    memcpy(mapped, read.output, bytes);
    memset(read.output, 0xff, bytes); /* what a run leaves out is not equal by chance */
    const moxie_status status = mox_plan_run(plan, MOX_RUN_WHOLE, args, NULL, NULL, error);
    if (status == MOXIE_OK)
        compare(checker, &read, mapped);
    mox_free(mapped);
    return status;
}
