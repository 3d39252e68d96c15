/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_loader.h - opens libmoxie_cuda when it is asked for, once a process.
 *
 *     MOXIE_CUDA_LIBRARY (a path; nothing else is tried) -> beside libmoxie -> the loader's own path
 */
#ifndef MOX_CUDA_CUDA_LOADER_H
#define MOX_CUDA_CUDA_LOADER_H

#include "cuda/cuda_table.h"

/* The table, or MOXIE_ERR_UNSUPPORTED with where it was looked for. Thread-safe. */
moxie_status mox_cuda_open(const mox_cuda_table **out, moxie_error *error);
/* The file it came from; "" before, and when there is none. Immutable. */
const char *mox_cuda_library(void);
/* Device `ordinal` of the opened table, words filled in, its name made printable; also one that is too old. */
moxie_status mox_cuda_any_device(const mox_cuda_table *table, int32_t ordinal, mox_cuda_features *out,
                                 moxie_error *error);
/* The same; MOXIE_ERR_UNSUPPORTED for one that moxie does not run on. */
moxie_status mox_cuda_device(const mox_cuda_table *table, int32_t ordinal, mox_cuda_features *out, moxie_error *error);

/* For tests: this table instead; NULL goes back to the library. One-thread-at-a-time. */
void mox_cuda_replace(const mox_cuda_table *table);

#endif
