/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_store.h - `moxie bench DIR --budget-ram BYTES --trace FILE`: the steps of a trace on the layers of a store.
 */
#ifndef MOXIE_BENCH_STORE_H
#define MOXIE_BENCH_STORE_H

#include "bench.h"

/* Replays the trace and prints what it took. Returns the exit code. */
int bench_store(const bench_arguments *args);

#endif
