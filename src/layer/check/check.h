/* SPDX-License-Identifier: Apache-2.0
 *
 * check.h - a plan against the oracle, stage by stage, and two sets of weights against each other.
 *
 * Every stage is checked from the inputs that its own kernel took, so a report names the stage at fault:
 *
 *     run: x -> [router] -> [topk] -> [quant13] -> [gemm13] -> [glu] -> [quant2] -> [gemm2] -> [combine]
 *                  |          |           |            |          |          |          |           |
 *     oracle:      compare element by element after each stage, |got - want| / bound, worst element kept
 */
#ifndef MOX_LAYER_CHECK_H
#define MOX_LAYER_CHECK_H

#include "layer/run/run.h"

/* Bodies of moxie_plan_check, moxie_check_report_... and moxie_weights_compare. */
moxie_status mox_plan_check(const moxie_plan *plan, const moxie_weights *weights, const moxie_run_args *args,
                            moxie_check_report **out, moxie_error *error);
double mox_check_report_worst(const moxie_check_report *report);
int32_t mox_check_report_stage_count(const moxie_check_report *report);
const moxie_stage_report *mox_check_report_stage_at(const moxie_check_report *report, int32_t index);
void mox_check_report_destroy(moxie_check_report *report);

moxie_status mox_weights_compare(const moxie_layer_config *config, const moxie_weights *a, const moxie_weights *b,
                                 moxie_weights_difference *out, moxie_error *error);

/* The views of `weights` fit the configuration: experts with `slot_of[e]` >= 0 (all when NULL), router, shared
 * expert and its gate where the configuration has them. */
moxie_status mox_weights_check(const moxie_layer_config *config, const moxie_weights *weights, const int32_t *slot_of,
                               moxie_error *error);

#endif
