/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_resident.h - the time of runs on a GPU that has all experts of a layer: what a store's copies add to.
 */
#ifndef MOXIE_BENCH_RESIDENT_H
#define MOXIE_BENCH_RESIDENT_H

#include <moxie/moxie_cuda.h>

#include "bench.h"

/* The median time of one of the runs, of those that are timed together. Their plans are not used: the file's layer gets
 * one of its own. MOXIE_ERR_MEMORY when the GPU has no room for it. */
moxie_status bench_resident(const moxie_expert_file *file, const moxie_layer_config *config,
                            const moxie_options *options, const moxie_cuda_timed_run *runs, int32_t n, double *seconds,
                            moxie_error *error);

#endif
