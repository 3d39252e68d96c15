/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_kernel.h - what every row of every CUDA kernel list begins with.
 *
 * A family is a folder as under cpu/, and states no mathematics of its own: the formulas are those of the CPU family's
 * header. It has
 *     cuda_<family>.def       rows, best first
 *     cuda_<family>.h, .c     the row type, the walk over the list, refusals as sentences: plain C, in libmoxie
 *     cuda_<family>_args.h    what a launcher gets, in device pointers: plain C that CUDA C++ can include too
 *     <family>_*.cu           kernels and their launchers, in libmoxie_cuda
 * So choosing, explaining and measuring a plan needs neither a GPU nor a CUDA header. Host code reaches a row's
 * launcher through the launch table (cuda_table.h), at the row's position in the .def.
 */
#ifndef MOX_CUDA_CUDA_KERNEL_H
#define MOX_CUDA_CUDA_KERNEL_H

#include "cpu/kernel.h"
#include "cuda/cuda_features.h"

typedef struct mox_cuda_kernel {
    mox_kernel base;  /* isa has no meaning here */
    uint32_t needs;   /* words of cuda_features.h */
    int32_t launcher; /* position in its family's part of the launch table */
} mox_cuda_kernel;

/* Common part of every admit(): the words under `device`, and TOL rows outside fast mode. */
bool mox_cuda_kernel_admit(const mox_cuda_kernel *kernel, const mox_cuda_features *device, moxie_mode mode,
                           mox_rejection *why);

/* What a plan and `moxie info` print in the place of an instruction set: "cuda", "cuda wgmma bulk_copy". */
const char *mox_cuda_kernel_needs(const mox_cuda_kernel *kernel);

/* All rows of all families. NULL past the last. */
const mox_cuda_kernel *mox_cuda_kernel_at(int32_t i);

#endif
