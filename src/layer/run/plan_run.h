/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_run.h - a run whose arguments are host memory, whatever the back end.
 */
#ifndef MOX_LAYER_PLAN_RUN_H
#define MOX_LAYER_PLAN_RUN_H

#include "layer/run/run.h"

/* Bodies of moxie_plan_run, _route, _experts and _combine; `rows` as for mox_run_enqueue. `probe` may be NULL; it sees
 * host memory. */
moxie_status mox_plan_run(const moxie_plan *plan, mox_run_call call, const moxie_run_args *args, float *rows,
                          const mox_probe *probe, moxie_error *error);

#endif
