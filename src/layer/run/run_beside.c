/* SPDX-License-Identifier: Apache-2.0
 *
 * run_beside.c - experts of a run on a GPU that the host computes (run_beside.h).
 */
#include "layer/run/run_beside.h"

#include <string.h>

#include "base/sizes.h"
#include "layer/plan/plan_fetch.h"

static uint64_t hidden_bytes(const moxie_plan *plan)
{
    return (uint64_t)(plan->config.hidden * mox_dtype_bytes(plan->config.dtype));
}

moxie_status mox_run_beside_begin(const mox_run *run, moxie_error *error)
{
    const moxie_plan *plan = run->plan;
    const mox_plan_beside *b = plan->fetch->beside;
    const mox_cuda_table *table = run->queue.table;
    const uint64_t tokens = (uint64_t)run->args.tokens;
    if (b == NULL)
        return MOXIE_OK;
    MOX_TRY(table->copy(b->hidden, run->args.hidden, tokens * hidden_bytes(plan), run->queue.stream, error));
    if (b->weights == NULL)
        return MOXIE_OK;
    return table->copy(b->weights, run->weights, tokens * (uint64_t)plan->config.top_k * sizeof(float),
                       run->queue.stream, error);
}

/* The host's choices of tokens [first, first + tokens) of the batch; returns how many there are. */
static int64_t take_choices(const mox_run *run, int64_t first, int64_t tokens)
{
    const moxie_layer_config *c = &run->plan->config;
    const mox_plan_fetch *f = run->plan->fetch;
    const int32_t *ids = f->ids + first * c->top_k;
    int64_t n = 0;
    for (int64_t i = 0; i < tokens * c->top_k; i++) {
        const bool here = ids[i] >= 0 && ids[i] < c->experts && f->beside->here[ids[i]];
        f->beside->ids[i] = here ? ids[i] : -1;
        n += here;
    }
    return n;
}

/* Rows [tokens, K, H] without those of other choices, which have none. */
static void close_up(const mox_plan_beside *b, int64_t choices, int64_t hidden)
{
    float *to = b->rows;
    for (int64_t i = 0; i < choices; i++) {
        if (b->ids[i] < 0)
            continue;
        if (to != b->rows + i * hidden)
            memcpy(to, b->rows + i * hidden, (size_t)hidden * sizeof *to);
        to += hidden;
    }
}

static moxie_status compute(const mox_run *run, int64_t first, int64_t tokens, moxie_error *error)
{
    const mox_plan_beside *b = run->plan->fetch->beside;
    const moxie_layer_config *c = &run->plan->config;
    const moxie_run_args args = { .struct_size = sizeof args,
                                  .tokens = tokens,
                                  .hidden = b->hidden + (uint64_t)first * hidden_bytes(run->plan),
                                  .ids = b->ids,
                                  .weights = b->weights != NULL ? b->weights + first * c->top_k : NULL,
                                  .workspace = b->workspace,
                                  .workspace_bytes = b->plan->space.bytes };
    const moxie_status status = b->source->host_rows(b->plan, &args, b->rows, error);
    if (status != MOXIE_OK)
        return mox_fail_context(status, error, "computing experts on the CPU that have no slot on the GPU");
    close_up(b, tokens * c->top_k, c->hidden);
    return MOXIE_OK;
}

moxie_status mox_run_beside(const mox_run *run, const int32_t *experts, int64_t count, int64_t first_pair,
                            moxie_error *error)
{
    const moxie_plan *plan = run->plan;
    const mox_plan_beside *b = plan->fetch->beside;
    const mox_cuda_table *table = run->queue.table;
    const int64_t end = run->first + run->tokens, hidden = plan->config.hidden;
    float *y = (float *)(run->space + plan->experts[MOX_ROUTED].space.y) + first_pair * hidden;
    memset(b->here, 0, (size_t)plan->config.experts * sizeof *b->here);
    for (int64_t i = 0; i < count; i++)
        b->here[experts[i]] = true;
    for (int64_t first = run->first; first < end; first += b->tokens) {
        const int64_t tokens = mox_min_i64(b->tokens, end - first), n = take_choices(run, first, tokens);
        if (n == 0)
            continue;
        MOX_TRY(table->event_wait(b->sent, error));
        MOX_TRY(compute(run, first, tokens, error));
        MOX_TRY(table->copy(y, b->rows, (uint64_t)(n * hidden) * sizeof *y, run->queue.stream, error));
        MOX_TRY(table->event_record(b->sent, run->queue.stream, error));
        y += n * hidden;
    }
    return MOXIE_OK;
}
