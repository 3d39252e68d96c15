/* SPDX-License-Identifier: Apache-2.0
 *
 * device_count.h - how many kernels libmoxie_cuda holds.
 */
#ifndef MOX_CUDA_DEVICE_DEVICE_COUNT_H
#define MOX_CUDA_DEVICE_DEVICE_COUNT_H

#include <stdint.h>

/* Every instance of a template counts; the same kernel for several architectures counts once. Immutable. */
int32_t mox_cuda_kernels(void);

#endif
