/* SPDX-License-Identifier: Apache-2.0
 *
 * exchange_codes.c - own tokens as rows of codes (exchange_codes.h): one task a token.
 */
#include "layer/run/exchange_codes.h"

#include "base/executor.h"
#include "format/format.h"
#include "quant/act_row.h"

typedef struct quantize_job {
    const mox_run *run;
    int64_t first;
} quantize_job;

static void quantize_token(void *context, int64_t token, int32_t worker)
{
    const quantize_job *job = context;
    const mox_run *run = job->run;
    const mox_ranks *x = run->plan->ranks;
    const moxie_layer_config *c = &run->plan->config;
    const mox_act_quantizer quantizer = { .quant = &c->a13, .static_scale = x->static_scale };
    const int64_t bytes = c->hidden * mox_dtype_bytes(c->dtype);
    float *row = (float *)(run->space + x->space.code_scratch + (uint64_t)worker * x->code_scratch_bytes);
    float *scales = row + c->hidden;
    uint8_t *codes = (uint8_t *)(scales + mox_scale_cols(&c->a13, c->hidden));
    mox_widen(c->dtype, (const char *)run->args.hidden + (job->first + token) * bytes, row, c->hidden);
    mox_act_quant_row(&quantizer, row, c->hidden, codes, scales);
    mox_act_row_store(&c->a13, codes, scales, c->hidden, run->space + x->space.coded + token * x->row_bytes);
}

void mox_exchange_quantize(const mox_run *run, int64_t first, int64_t tokens)
{
    quantize_job job = { run, first };
    mox_parallel(run->queue.executor, tokens, quantize_token, &job);
}

moxie_status mox_exchange_check_scale(const mox_run *run, moxie_error *error)
{
    const mox_ranks *x = run->plan->ranks;
    const moxie_layer *layer = run->plan->layer;
    const mox_static_scale *scale = &layer->static_scale[MOX_W13];
    const bool same = scale->uniform && (layer->slots == 0 || scale->resolved[0] == x->static_scale);
    MOX_FAIL_IF(x->coded && scale->needed && !same, MOXIE_ERR_MISMATCH, error,
                "the plans of all ranks quantize tokens with a13_scale %g, but an expert of rank %d has another one "
                "since an update: make the plans anew",
                (double)x->static_scale, (int)x->rank);
    return MOXIE_OK;
}
