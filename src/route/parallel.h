/* SPDX-License-Identifier: Apache-2.0
 *
 * parallel.h - vLLM's parallel configs of a MoE layer, and what moxie makes of them: the calls of moxie_parallel.h's
 * first section, without their checks of the caller's structs.
 *
 *     parallel_make.c    sizes and ranks, by vLLM's flattening; back ends; predicates
 *     parallel_check.c   what vLLM accepts, and what it derives for one layer
 *     parallel_plan.c    fields of moxie_layer_config and moxie_options
 */
#ifndef MOX_ROUTE_PARALLEL_H
#define MOX_ROUTE_PARALLEL_H

#include <moxie/moxie_parallel.h>
#include <stdbool.h>
#include <string.h>

#include "base/status.h"

moxie_status mox_parallel_make(const moxie_parallel_args *args, moxie_parallel *out, moxie_error *error);
void mox_parallel_none(moxie_parallel *out);
/* Whether `parallel` can be a result of mox_parallel_make(): its sizes, ranks and back end. */
moxie_status mox_parallel_read(const moxie_parallel *parallel, moxie_error *error);
/* All devices, and the number of this one. */
int32_t mox_parallel_ranks(const moxie_parallel *parallel);
int32_t mox_parallel_rank(const moxie_parallel *parallel);
/* Devices of one engine that have the same tokens. */
int32_t mox_parallel_engine_tp(const moxie_parallel *parallel);

/* Row i, NULL past the last; the row of a name, NULL for an unknown one. */
const moxie_all2all_backend *mox_all2all_at(int32_t i);
const moxie_all2all_backend *mox_all2all_find(const char *name);
/* -1 for an unknown name. */
int mox_parallel_predicate(const moxie_parallel *parallel, const char *name);
const char *mox_parallel_predicate_at(int32_t i);

moxie_status mox_fused_moe_check(const moxie_parallel *parallel, const moxie_fused_moe_args *args, moxie_fused_moe *out,
                                 moxie_error *error);
/* The checks that are moxie's too: sizes and names that make no layer. */
moxie_status mox_fused_moe_read(const moxie_parallel *parallel, const moxie_fused_moe_args *args, moxie_error *error);
/* Both outputs are set. */
moxie_status mox_parallel_placement(const moxie_parallel *parallel, const moxie_fused_moe_args *args,
                                    int32_t *placement, const char **reason, moxie_error *error);

moxie_status mox_parallel_plan(const moxie_parallel *parallel, const moxie_fused_moe_args *args,
                               moxie_parallel_layer *out, moxie_error *error);

#endif
