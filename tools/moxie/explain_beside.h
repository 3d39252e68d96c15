/* SPDX-License-Identifier: Apache-2.0
 *
 * explain_beside.h - the CPU's kernels of a layer in a store on a GPU, for experts that it computes where they lie
 * (--cpu-experts DIR2).
 */
#ifndef MOXIE_EXPLAIN_BESIDE_H
#define MOXIE_EXPLAIN_BESIDE_H

#include "cli.h"

typedef struct explain_beside {
    moxie_expert_file *file; /* the layer in DIR2 */
    moxie_plan *plan;        /* NULL: not asked for */
} explain_beside;

/* `config` and `options` are those of the plan on the GPU. */
moxie_status explain_beside_find(const cli_layer_options *options, int64_t layer, const moxie_layer_config *config,
                                 const moxie_options *plan_options, explain_beside *out, moxie_error *error);
/* Whether the CPU takes a step of its plan: routing, the shared expert and the sum are the GPU's. */
bool explain_beside_has(const moxie_plan_step *step);
void explain_beside_free(explain_beside *beside);

#endif
