/* SPDX-License-Identifier: Apache-2.0
 *
 * cpu_kernels.h - the kernels of all families as one list.
 *
 *     kernel_families.def -> dense.def, topk.def, ... one after the other
 */
#ifndef MOX_CPU_CPU_KERNELS_H
#define MOX_CPU_CPU_KERNELS_H

#include "cpu/kernel.h"

/* Kernel i of one family as what its kernels begin with; NULL past the last. */
typedef const void *(*mox_family_at)(int32_t i);
/* Kernel i of the families of a list, counted through; NULL past the last. Immutable. */
const void *mox_kernel_of_families(const mox_family_at *list, size_t count, int32_t i);

/* Kernel i of all families on the host; NULL past the last. Immutable. */
const mox_kernel *mox_cpu_kernel_at(int32_t i);

#endif
