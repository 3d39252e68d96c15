/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_routing_trace.c - the ids of one layer of a routing trace, as bench_routing_file.c reads those of other files.
 * All steps' tokens follow one another.
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

#include <moxie/moxie_trace.h>

/* The place of the wanted layer; -1: it is not there. */
static int32_t place_of(const moxie_trace_info *info, int64_t layer)
{
    for (int32_t l = 0; l < info->layers; l++)
        if (layer < 0 || info->layer_numbers[l] == layer)
            return l;
    return -1;
}

static moxie_status check(const bench_routing *g, const moxie_trace_info *info, moxie_error *error)
{
    if (info->tokens == 0)
        return cli_error(MOXIE_ERR_MISMATCH, error, g->name, "it has no tokens, so nothing can be replayed");
    if (info->experts != g->experts || info->top_k != g->top_k)
        return cli_error(MOXIE_ERR_MISMATCH, error, g->name,
                         "it has %lld tokens, which choose %d of %d experts; the layer chooses %lld of %lld",
                         (long long)info->tokens, info->top_k, info->experts, (long long)g->top_k,
                         (long long)g->experts);
    if (place_of(info, g->layer) < 0)
        return cli_error(MOXIE_ERR_MISMATCH, error, g->name,
                         "it has no layer %lld; its %d layers are numbered from %d to %d: give another --layer",
                         (long long)g->layer, info->layers, info->layer_numbers[0],
                         info->layer_numbers[info->layers - 1]);
    return MOXIE_OK;
}

static void take_step(bench_routing *g, const moxie_trace_step *step, int32_t l, int64_t first)
{
    for (int64_t t = 0; t < step->tokens; t++) {
        const int64_t from = t * step->token_stride + l * step->layer_stride, to = (first + t) * g->top_k;
        for (int64_t j = 0; j < g->top_k; j++) {
            const int32_t id = step->ids[from + j];
            g->file_ids[to + j] = id < g->experts ? id : -1; /* a zero expert has no weights */
            if (step->weights)
                g->file_weights[to + j] = step->weights[from + j];
        }
    }
}

static moxie_status read_steps(bench_routing *g, moxie_trace *trace, const moxie_trace_info *info, moxie_error *error)
{
    const size_t choices = (size_t)(info->tokens * g->top_k);
    const int32_t layer = place_of(info, g->layer);
    g->file_tokens = info->tokens;
    g->file_ids = malloc(choices * sizeof *g->file_ids);
    g->file_weights = info->has_weights ? malloc(choices * sizeof *g->file_weights) : NULL;
    if (!g->file_ids || (info->has_weights && !g->file_weights))
        return cli_error(MOXIE_ERR_MEMORY, error, g->name, "no memory for %lld %s", CLI_COUNT(info->tokens, "token"));
    int64_t first = 0;
    moxie_status status = MOXIE_OK;
    for (int64_t i = 0; status == MOXIE_OK && i < info->steps; i++) {
        moxie_trace_step step = MOXIE_TRACE_STEP_INIT;
        status = moxie_trace_read(trace, i, &step, error);
        if (status == MOXIE_OK && step.tokens > info->tokens - first)
            status = cli_error(MOXIE_ERR_IO, error, g->name, "it changed while it was read");
        if (status == MOXIE_OK)
            take_step(g, &step, layer, first);
        first += step.tokens;
    }
    return status;
}

moxie_status bench_routing_read_trace(bench_routing *g, moxie_error *error)
{
    moxie_trace *trace = NULL;
    moxie_trace_info info = MOXIE_TRACE_INFO_INIT;
    moxie_status status = moxie_trace_open(g->name, &trace, error);
    if (status == MOXIE_OK)
        status = moxie_trace_get_info(trace, &info, error);
    if (status == MOXIE_OK)
        status = check(g, &info, error);
    if (status == MOXIE_OK)
        status = read_steps(g, trace, &info, error);
    moxie_trace_close(trace);
    return status;
}
