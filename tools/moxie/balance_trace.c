/* SPDX-License-Identifier: Apache-2.0
 *
 * balance_trace.c - loads of experts from a routing trace: each choice counts 1. Zero experts lie on no rank and do not
 * count.
 */
#include <stdlib.h>

#include <moxie/moxie_trace.h>

#include "balance.h"

static void count_step(const moxie_trace_step *step, const moxie_trace_info *info, double *loads)
{
    for (int64_t t = 0; t < step->tokens; t++)
        for (int32_t l = 0; l < info->layers; l++) {
            const int32_t *ids = step->ids + t * step->token_stride + l * step->layer_stride;
            for (int32_t j = 0; j < info->top_k; j++)
                if (ids[j] >= 0 && ids[j] < info->experts)
                    loads[(int64_t)l * info->experts + ids[j]]++;
        }
}

moxie_status balance_counts_of_trace(const char *path, balance_counts *out, moxie_error *error)
{
    moxie_trace *trace = NULL;
    moxie_trace_info info = MOXIE_TRACE_INFO_INIT;
    moxie_status status = moxie_trace_open(path, &trace, error);
    if (status == MOXIE_OK)
        status = moxie_trace_get_info(trace, &info, error);
    if (status == MOXIE_OK) {
        *out = (balance_counts) { info.layers, info.experts,
                                  calloc((size_t)info.layers * (size_t)info.experts, sizeof *out->at) };
        if (!out->at)
            status = cli_error(MOXIE_ERR_MEMORY, error, path, "no memory for the loads of %d layers", info.layers);
    }
    for (int64_t i = 0; status == MOXIE_OK && i < info.steps; i++) {
        moxie_trace_step step = MOXIE_TRACE_STEP_INIT;
        status = moxie_trace_read(trace, i, &step, error);
        if (status == MOXIE_OK)
            count_step(&step, &info, out->at);
    }
    moxie_trace_close(trace);
    return status;
}
