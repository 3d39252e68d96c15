/* SPDX-License-Identifier: Apache-2.0
 *
 * run_degraded.c - rows, results and outputs of ranks that a run has lost (run_degraded.h).
 */
#include "layer/run/run_degraded.h"

#include <string.h>

#include "layer/run/exchange.h"
#include "layer/run/ranks_device.h"

static bool has_losses(const mox_ranks *x)
{
    return x->degraded != MOXIE_DEGRADED_NONE && mox_comm_losses(x->comm) > 0;
}

void mox_run_degraded_begin(const moxie_plan *plan)
{
    mox_ranks *x = plan->ranks;
    x->lost_slots = x->lost_tokens = 0;
    mox_comm_set_degraded(x->comm, x->degraded != MOXIE_DEGRADED_NONE);
}

void mox_run_degraded_end(const moxie_plan *plan)
{
    mox_comm_set_degraded(plan->ranks->comm, false);
}

/* ---- rows of other ranks' tokens --------------------------------------------------------------------- */

void mox_run_drop_rows(const mox_run *host)
{
    const mox_ranks *x = host->plan->ranks;
    const moxie_layer_config *c = &host->plan->config;
    const size_t row = (size_t)x->row_bytes;
    const bool has_rows = !host->plan->backend->on_device || x->staged;
    int32_t *ids = (int32_t *)(host->space + x->space.recv_ids);
    for (int32_t r = 0; has_losses(x) && r < x->count; r++) {
        if (!mox_comm_is_lost(x->comm, r))
            continue;
        for (int64_t i = x->counts.from[r] * c->top_k; i < (x->counts.from[r] + x->counts.from_rows[r]) * c->top_k; i++)
            ids[i] = -1;
        for (int64_t i = x->counts.from[r]; x->adapted && i < x->counts.from[r] + x->counts.from_rows[r]; i++)
            ((int32_t *)(host->space + x->space.recv_adapters))[i] = -1;
        if (has_rows)
            memset(host->space + x->space.recv_x + (size_t)x->counts.from[r] * row, 0,
                   (size_t)x->counts.from_rows[r] * row);
        if (x->capacity == 0) /* else each result has its place */
            x->counts.from_pairs[r] = 0;
    }
}

/* ---- own tokens -------------------------------------------------------------------------------------- */

/* Whether the result at this row of `returned` would come from a lost rank. */
static bool is_lost(const mox_ranks *x, int64_t row)
{
    const mox_ranks_counts *n = &x->counts;
    for (int32_t r = 0; r < x->count; r++)
        if (mox_comm_is_lost(x->comm, r) && row >= n->pairs_at[r] && row < n->pairs_at[r] + n->pairs[r])
            return true;
    return false;
}

/* The choice has a weight in the sum: it is not skipped. */
static bool counts(const moxie_layer_config *c, int32_t id)
{
    return id >= 0 && id < c->experts + c->routing.zero_experts;
}

/* Weights of one token whose choices are lost where position is -1. */
static void renormalize(const moxie_layer_config *c, const int32_t *ids, const int64_t *position, const float *weights,
                        float *kept)
{
    float all = 0, left = 0;
    for (int64_t j = 0; j < c->top_k; j++) {
        if (!counts(c, ids[j]))
            continue;
        all += weights[j];
        if (position[j] >= 0 || ids[j] >= c->experts)
            left += weights[j];
    }
    for (int64_t j = 0; j < c->top_k; j++)
        kept[j] = left != 0 ? weights[j] * all / left : weights[j];
}

/* Returns how many choices of one token are lost. */
static int64_t drop_choices(const mox_ranks *x, int64_t top_k, int64_t *position)
{
    int64_t lost = 0;
    for (int64_t j = 0; j < top_k; j++)
        if (position[j] >= 0 && is_lost(x, position[j])) {
            position[j] = -1;
            lost++;
        }
    return lost;
}

moxie_status mox_run_drop_results(const mox_run *run, mox_combine_args *args, moxie_error *error)
{
    mox_ranks *x = run->plan->ranks;
    const mox_run *host = run->host;
    const moxie_layer_config *c = &run->plan->config;
    const bool anew = x->degraded == MOXIE_DEGRADED_RENORMALIZE;
    if (!has_losses(x))
        return MOXIE_OK;
    MOX_TRY(mox_ranks_settle(run, error));
    int64_t *position = (int64_t *)(host->space + x->space.position);
    float *kept = (float *)(host->space + x->space.kept);
    for (int64_t t = 0; t < run->tokens; t++) {
        const int64_t at = t * c->top_k, lost = drop_choices(x, c->top_k, position + at);
        const int64_t choice = run->first * c->top_k + at;
        x->lost_slots += lost;
        if (anew && lost > 0)
            renormalize(c, host->ids + choice, position + at, host->weights + choice, kept + at);
        else if (anew)
            memcpy(kept + at, host->weights + choice, (size_t)c->top_k * sizeof *kept);
    }
    if (anew) {
        args->weights = (const float *)(run->space + x->space.kept);
        args->identity_weights = args->identity_weights != NULL ? args->weights : NULL;
    }
    return mox_ranks_bring_choices(run, anew, error);
}

/* ---- outputs of other ranks' tokens ------------------------------------------------------------------ */

moxie_status mox_run_drop_outputs(const mox_run *run, int64_t number, moxie_error *error)
{
    mox_ranks *x = run->plan->ranks;
    const moxie_layer_config *c = &run->plan->config;
    const size_t row = (size_t)(c->hidden * mox_dtype_bytes(c->dtype));
    for (int32_t r = 0; has_losses(x) && r < x->count; r++) {
        const mox_chunk theirs = mox_exchange_chunk(run, r, number);
        if (!mox_comm_is_lost(x->comm, r))
            continue;
        MOX_TRY(mox_ranks_clear(run, (char *)run->args.output + (size_t)theirs.first * row, (size_t)theirs.tokens * row,
                                error));
        x->lost_tokens += theirs.tokens;
    }
    return MOXIE_OK;
}
