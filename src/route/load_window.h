/* SPDX-License-Identifier: Apache-2.0
 *
 * load_window.h - how many tokens each expert had in the last steps (moxie_load_window of moxie_parallel.h).
 */
#ifndef MOX_ROUTE_LOAD_WINDOW_H
#define MOX_ROUTE_LOAD_WINDOW_H

#include "base/status.h"

#include <moxie/moxie_parallel.h>

moxie_status mox_load_window_create(int32_t layers, int32_t experts, int32_t steps, moxie_load_window **out,
                                    moxie_error *error);
void mox_load_window_destroy(moxie_load_window *window);
moxie_status mox_load_window_add(moxie_load_window *window, int32_t layer, const int32_t *ids, int64_t tokens,
                                 int64_t top_k, moxie_error *error);
void mox_load_window_end_step(moxie_load_window *window);
void mox_load_window_counts(const moxie_load_window *window, int64_t *counts, int32_t *steps);

#endif
