/* SPDX-License-Identifier: Apache-2.0
 *
 * run_state.c - small questions to a run (run_state.h).
 */
#include "layer/run/run_state.h"

const void *mox_run_router_input(const mox_run *run)
{
    return run->args.router_hidden != NULL ? run->args.router_hidden : run->args.hidden;
}

const void *mox_run_hidden(const mox_run *run)
{
    const moxie_layer_config *c = &run->plan->config;
    const int64_t bytes = run->coded ? run->plan->ranks->row_bytes : c->hidden * mox_dtype_bytes(c->dtype);
    return (const char *)run->args.hidden + run->first * bytes;
}

bool mox_run_has_row_per_pair(const mox_run *run)
{
    return run->plan->config.routing.on_input != 0 || !run->plan->layer->static_scale[MOX_W13].uniform;
}

mox_row_norm_args mox_run_norm_args(const moxie_row_norm *norm, const float *weight, int64_t cols)
{
    return (mox_row_norm_args) { .cols = cols,
                                 .x_dtype = MOXIE_F32,
                                 .weight = weight,
                                 .weight_first = norm->kind == MOXIE_ROW_NORM_RMS_WEIGHTED,
                                 .eps = norm->eps,
                                 .factor = norm->factor != 0 ? norm->factor : 1 };
}

moxie_dtype mox_run_rounds_to(const mox_run *run)
{
    return run->plan->config.round_results ? run->plan->config.dtype : MOXIE_DTYPE_NONE;
}

moxie_status mox_run_probe(const mox_run *run, mox_stage stage, const mox_expert_pass *pass, moxie_error *error)
{
    return run->probe == NULL ? MOXIE_OK : run->probe->after(run->probe->user, run, stage, pass, error);
}
