/* SPDX-License-Identifier: Apache-2.0
 *
 * explain_beside.c - the plan of DIR2's file for the CPU (explain_beside.h).
 */
#include "explain_beside.h"

#include <limits.h>
#include <string.h>

#include <moxie/moxie_store.h>

#include "prepare.h"

moxie_status explain_beside_find(const cli_layer_options *options, int64_t layer, const moxie_layer_config *config,
                                 const moxie_options *plan_options, explain_beside *out, moxie_error *error)
{
    char path[PATH_MAX];
    moxie_options own = *plan_options;
    own.backend = MOXIE_BACKEND_CPU;
    own.device = NULL;
    moxie_status status =
        moxie_expert_file_open(prepare_experts_path(options->where, layer, path), NULL, &out->file, error);
    if (status == MOXIE_OK)
        status = moxie_expert_file_explain(out->file, config, &own, &out->plan, error);
    return status;
}

bool explain_beside_has(const moxie_plan_step *step)
{
    return !strcmp(step->role, "w13") || !strcmp(step->role, "w2") || (!strcmp(step->family, "glu") && !step->role[0]);
}

void explain_beside_free(explain_beside *beside)
{
    moxie_plan_destroy(beside->plan);
    moxie_expert_file_close(beside->file);
}
