/* SPDX-License-Identifier: Apache-2.0
 *
 * run_fused.h - the fused experts of one pass, in the back end's span `experts`.
 */
#ifndef MOX_LAYER_RUN_FUSED_H
#define MOX_LAYER_RUN_FUSED_H

#include "layer/run/run_state.h"

/* Runs experts whose products fuse: the routed ones if `routed`, the shared one if `shared`. Then combines, unless
 * `combine` is NULL. The pass was permuted. */
moxie_status mox_run_fused(mox_run *run, bool routed, bool shared, const mox_combine_args *combine, moxie_error *error);
/* Those of one kind of a tensor parallel rank that has some rows of each matrix: up to y, as mox_run_experts() of such
 * a rank. Collective. */
moxie_status mox_run_fused_rows(mox_run *run, mox_expert_kind kind, moxie_error *error);

#endif
