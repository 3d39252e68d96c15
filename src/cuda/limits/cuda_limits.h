/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_limits.h - the limits of a GPU, measured by short kernels: bytes per second from its memory, operations per
 * second on bf16 and on FP8 numbers with sums in f32.
 *
 *     rate  = work of a launch / time between two events,     median of a few launches of some milliseconds
 *     limit = best rate among the probes that the device can run; for products, the rate after some tenths of a second
 *
 * As on the host (cpu/limits), probes are no kernel family: no plan chooses one. A probe is a row of cuda_limits.def
 * and a launcher in libmoxie_cuda. Operands are random: on zeros a GPU would need less power and run at higher clocks.
 */
#ifndef MOX_CUDA_CUDA_LIMITS_H
#define MOX_CUDA_CUDA_LIMITS_H

#include "cuda/cuda_table.h"

typedef enum mox_cuda_limit {
    MOX_CUDA_LIMIT_READ,
    MOX_CUDA_LIMIT_BF16,
    MOX_CUDA_LIMIT_FP8,
    MOX_CUDA_LIMITS
} mox_cuda_limit;

/* Body of moxie_cuda_measure_limits; the device of `features` must be this thread's current one. */
moxie_status mox_cuda_limits_measure(const mox_cuda_table *table, const mox_cuda_features *features, moxie_limits *out,
                                     moxie_error *error);
/* Body of moxie_cuda_measure_copy, on this thread's current device: 10^9 bytes a second out of pinned memory. */
moxie_status mox_cuda_copy_rate(const mox_cuda_table *table, double *gb_s, moxie_error *error);

#endif
