/* SPDX-License-Identifier: Apache-2.0
 *
 * check.h - compares a run of a plan with the oracle, stage by stage.
 *
 * Every stage is checked from the inputs that its own kernel read, so a report names the stage at fault:
 *
 *     run: x -> [router] -> [topk] -> [quant13] -> [gemm13] -> [glu] -> [quant2] -> [gemm2] -> [combine]
 *                  |          |           |            |          |          |          |           |
 *     oracle:      after each stage: |got - want| / bound for every element; the worst one goes into the report
 */
#ifndef MOX_LAYER_CHECK_H
#define MOX_LAYER_CHECK_H

#include "layer/plan/plan.h"

/* Bodies of moxie_plan_check and moxie_check_report_.... */
moxie_status mox_plan_check(const moxie_plan *plan, const moxie_weights *weights, const moxie_run_args *args,
                            moxie_check_report **out, moxie_error *error);
double mox_check_report_worst(const moxie_check_report *report);
int32_t mox_check_report_stage_count(const moxie_check_report *report);
const moxie_stage_report *mox_check_report_stage_at(const moxie_check_report *report, int32_t index);
void mox_check_report_destroy(moxie_check_report *report);

#endif
