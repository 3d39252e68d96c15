/* SPDX-License-Identifier: Apache-2.0
 *
 * trace_table.c - all tokens of a trace in memory, for import and export (trace_tool.h).
 */
#include "trace_tool.h"

#include <stdlib.h>
#include <string.h>

void trace_table_free(trace_table *t)
{
    free(t->ids);
    free(t->weights);
    free(t->requests);
    free(t->steps);
    free(t->phases);
    free(t->layer_numbers);
    *t = (trace_table) { 0 };
}

static int64_t row_of(const trace_table *t)
{
    return (int64_t)t->layers * t->top_k;
}

/* Makes an array longer; false: no memory, and it is as before. */
static bool grow(void **array, int64_t count, size_t size)
{
    void *grown = realloc(*array, (size_t)count * size);
    if (grown)
        *array = grown;
    return grown != NULL;
}

moxie_status trace_table_grow(trace_table *t, int64_t tokens, const char *path, moxie_error *error)
{
    const int64_t wanted = t->tokens + tokens, row = row_of(t);
    if (tokens > ((int64_t)1 << 40) / row)
        return cli_error(MOXIE_ERR_FORMAT, error, path, "%lld tokens of %lld choices are more than moxie takes",
                         (long long)tokens, (long long)row);
    if (wanted > t->room) {
        const int64_t room = wanted > 2 * t->room ? wanted : 2 * t->room;
        void *ids = t->ids, *weights = t->weights, *requests = t->requests, *steps = t->steps, *phases = t->phases;
        const bool grown = grow(&ids, room * row, sizeof *t->ids) && grow(&weights, room * row, sizeof *t->weights) &&
                           grow(&requests, room, sizeof *t->requests) && grow(&steps, room, sizeof *t->steps) &&
                           grow(&phases, room, sizeof *t->phases);
        t->ids = ids, t->weights = weights, t->requests = requests, t->steps = steps, t->phases = phases;
        if (!grown)
            return cli_error(MOXIE_ERR_MEMORY, error, path, "no memory for %lld %s", CLI_COUNT(wanted, "token"));
        t->room = room;
    }
    for (int64_t i = t->tokens * row; i < wanted * row; i++) {
        t->ids[i] = -1;
        t->weights[i] = 0;
    }
    for (int64_t i = t->tokens; i < wanted; i++) {
        t->requests[i] = 0;
        t->steps[i] = 0;
        t->phases[i] = MOXIE_TRACE_UNKNOWN;
    }
    t->tokens = wanted;
    return MOXIE_OK;
}

void trace_table_number(trace_table *t, int64_t first, const trace_arguments *args)
{
    const uint64_t request = t->n_requests++;
    const int64_t prefill = args->prefill > 0 ? 1 : 0;
    const int64_t base = first > 0 ? t->steps[first - 1] + 1 : 0;
    for (int64_t i = first; i < t->tokens; i++) {
        const int64_t at = i - first;
        const bool prompt = at < args->prefill;
        t->steps[i] = base + (prompt ? 0 : prefill + (at - args->prefill) / args->step_tokens);
        t->phases[i] = prompt ? MOXIE_TRACE_PREFILL : MOXIE_TRACE_DECODE;
        t->requests[i] = request;
    }
}

moxie_status trace_table_check(const trace_table *t, const char *path, moxie_error *error)
{
    const int32_t candidates = t->experts + t->zero_experts;
    for (int64_t i = 0; i < t->tokens * row_of(t); i++)
        if (t->ids[i] >= candidates)
            return cli_error(MOXIE_ERR_FORMAT, error, path,
                             "token %lld, layer %lld, choice %lld is expert %d, and there are %d: is --experts right?",
                             (long long)(i / row_of(t)), (long long)(i / t->top_k % t->layers),
                             (long long)(i % t->top_k), t->ids[i], candidates);
    return MOXIE_OK;
}

/* ---- to and from traces ------------------------------------------------------------------------------- */

/* Where the step of token `first` ends. */
static int64_t end_of_step(const trace_table *t, int64_t first)
{
    int64_t end = first;
    while (end < t->tokens && t->steps[end] == t->steps[first] && end - first < MOXIE_TRACE_MAX_TOKENS)
        end++;
    return end;
}

static moxie_status write_steps(const trace_table *t, moxie_trace_writer *writer, moxie_error *error)
{
    moxie_status status = MOXIE_OK;
    for (int64_t first = 0, end; status == MOXIE_OK && first < t->tokens; first = end) {
        moxie_trace_step step = MOXIE_TRACE_STEP_INIT;
        end = end_of_step(t, first);
        step.tokens = end - first;
        step.phase = t->phases[first];
        step.ids = t->ids + first * row_of(t);
        step.weights = t->has_weights ? t->weights + first * row_of(t) : NULL;
        step.requests = t->has_requests ? t->requests + first : NULL;
        status = moxie_trace_writer_add(writer, &step, error);
    }
    return status;
}

moxie_status trace_table_write(const trace_table *t, const char *path, moxie_error *error)
{
    moxie_trace_info info = MOXIE_TRACE_INFO_INIT;
    moxie_trace_writer *writer = NULL;
    info.layers = t->layers;
    info.experts = t->experts;
    info.zero_experts = t->zero_experts;
    info.top_k = t->top_k;
    info.has_weights = t->has_weights;
    info.has_requests = t->has_requests;
    info.fingerprint = t->fingerprint;
    info.model = t->model;
    info.layer_numbers = t->layer_numbers;
    moxie_status status = moxie_trace_writer_create(path, &info, &writer, error);
    if (status == MOXIE_OK)
        status = write_steps(t, writer, error);
    if (status == MOXIE_OK)
        status = moxie_trace_writer_finish(writer, error);
    moxie_trace_writer_destroy(writer);
    return status;
}

static moxie_status take_step(trace_table *t, const moxie_trace_step *step, int64_t number, int64_t request,
                              const char *path, moxie_error *error)
{
    const int64_t row = row_of(t), first = t->tokens;
    moxie_status status = trace_table_grow(t, step->tokens, path, error);
    if (status != MOXIE_OK)
        return status;
    t->tokens = first;
    for (int64_t i = 0; i < step->tokens; i++) {
        if (request != TRACE_NOT_GIVEN && step->requests[i] != (uint64_t)request)
            continue;
        const int64_t to = t->tokens++;
        memcpy(t->ids + to * row, step->ids + i * row, (size_t)row * sizeof *t->ids);
        if (step->weights)
            memcpy(t->weights + to * row, step->weights + i * row, (size_t)row * sizeof *t->weights);
        t->requests[to] = step->requests ? step->requests[i] : 0;
        t->steps[to] = number;
        t->phases[to] = step->phase;
    }
    return MOXIE_OK;
}

static moxie_status take_info(trace_table *t, const moxie_trace_info *info, int64_t request, const char *path,
                              moxie_error *error)
{
    t->layers = info->layers;
    t->top_k = info->top_k;
    t->experts = info->experts;
    t->zero_experts = info->zero_experts;
    t->has_weights = info->has_weights;
    t->has_requests = info->has_requests;
    t->fingerprint = info->fingerprint;
    snprintf(t->model, sizeof t->model, "%s", info->model);
    t->layer_numbers = cli_alloc((size_t)info->layers * sizeof *t->layer_numbers);
    memcpy(t->layer_numbers, info->layer_numbers, (size_t)info->layers * sizeof *t->layer_numbers);
    return request == TRACE_NOT_GIVEN || info->has_requests
               ? MOXIE_OK
               : cli_error(MOXIE_ERR_MISMATCH, error, path, "it has no request ids: leave out --request");
}

moxie_status trace_table_read(const char *path, int64_t request, trace_table *t, moxie_error *error)
{
    moxie_trace *trace = NULL;
    moxie_trace_info info = MOXIE_TRACE_INFO_INIT;
    *t = (trace_table) { 0 };
    moxie_status status = moxie_trace_open(path, &trace, error);
    if (status == MOXIE_OK)
        status = moxie_trace_get_info(trace, &info, error);
    if (status == MOXIE_OK)
        status = take_info(t, &info, request, path, error);
    for (int64_t i = 0; status == MOXIE_OK && i < info.steps; i++) {
        moxie_trace_step step = MOXIE_TRACE_STEP_INIT;
        status = moxie_trace_read(trace, i, &step, error);
        if (status == MOXIE_OK)
            status = take_step(t, &step, i, request, path, error);
    }
    if (status == MOXIE_OK && request != TRACE_NOT_GIVEN && t->tokens == 0)
        status = cli_error(MOXIE_ERR_MISMATCH, error, path, "no token belongs to request %lld", (long long)request);
    moxie_trace_close(trace);
    return status;
}
