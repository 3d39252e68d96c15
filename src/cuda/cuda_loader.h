/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_loader.h - opens libmoxie_cuda at its first use, once per process.
 *
 *     MOXIE_CUDA_LIBRARY (a path; nothing else is tried) -> beside libmoxie -> the loader's own path
 */
#ifndef MOX_CUDA_CUDA_LOADER_H
#define MOX_CUDA_CUDA_LOADER_H

#include "cuda/cuda_table.h"

/* The table, or MOXIE_ERR_UNSUPPORTED, which names the places that were tried. Thread-safe. */
moxie_status mox_cuda_open(const mox_cuda_table **out, moxie_error *error);
/* The file it came from; "" before, and when there is none. Immutable. */
const char *mox_cuda_library(void);
/* Device `ordinal` of the opened table, with its flags and a printable name. Devices that are too old count, too. */
moxie_status mox_cuda_any_device(const mox_cuda_table *table, int32_t ordinal, mox_cuda_features *out,
                                 moxie_error *error);
/* The same, but MOXIE_ERR_UNSUPPORTED for a device that is too old. */
moxie_status mox_cuda_device(const mox_cuda_table *table, int32_t ordinal, mox_cuda_features *out, moxie_error *error);

/* For tests: use this table; NULL: use the library again. One-thread-at-a-time. */
void mox_cuda_replace(const mox_cuda_table *table);

#endif
