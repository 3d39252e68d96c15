/* SPDX-License-Identifier: Apache-2.0
 *
 * cache_best.h - the most hits that any policy could have on a trace.
 */
#ifndef MOX_STORE_CACHE_BEST_H
#define MOX_STORE_CACHE_BEST_H

#include "store/trace.h"

/* Hits of one layer from step `first` on, when the cache knows the future: it keeps those experts that are used again
 * soonest (Belady), and a miss need not get a slot. Steps before `first` only fill it. Adds to *hits. */
moxie_status mox_cache_best(moxie_trace *trace, int32_t layer, int32_t slots, int64_t first, int64_t *hits,
                            moxie_error *error);

#endif
