/* SPDX-License-Identifier: Apache-2.0
 *
 * trace_simulate.h - replays a trace on caches of experts: the body of moxie_trace_simulate().
 */
#ifndef MOX_STORE_TRACE_SIMULATE_H
#define MOX_STORE_TRACE_SIMULATE_H

#include "store/trace.h"

/* Fills `hits`; by_layer [layers, 2] or NULL. */
moxie_status mox_trace_simulate(moxie_trace *trace, const moxie_cache_config *config, moxie_cache_hits *hits,
                                int64_t *by_layer, moxie_error *error);

#endif
