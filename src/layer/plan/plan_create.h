/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_create.h - makes a plan from a layer, or an explanation from a configuration alone.
 */
#ifndef MOX_LAYER_PLAN_CREATE_H
#define MOX_LAYER_PLAN_CREATE_H

#include "layer/plan/plan.h"

/* Bodies of moxie_plan_create, _explain and _destroy. */
moxie_status mox_plan_create(const moxie_layer *layer, const moxie_options *options, moxie_plan **out,
                             moxie_error *error);
/* `layouts`: of the records, so that kernels which read others are rejected; NULL: the plan chooses. `of_file`: the
 * records are those of an expert file, which cuts experts by rows in both modes. */
moxie_status mox_plan_explain(const moxie_layer_config *config, const mox_layout *const layouts[MOX_EXPERT_KINDS],
                              bool of_file, const moxie_options *options, moxie_plan **out, moxie_error *error);
/* Body of moxie_plan_explain_weights (plan_explain.c). */
moxie_status mox_plan_explain_weights(const moxie_layer_config *config, const moxie_weights *weights,
                                      const moxie_options *options, moxie_plan **out, moxie_error *error);
void mox_plan_destroy(moxie_plan *plan);

#endif
