/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_kernel.h - the struct that every kernel of every CUDA list begins with.
 *
 * A family is a folder as under cpu/. Its formulas are those of the CPU family's header. It has
 *     cuda_<family>.def       the kernels, best first
 *     cuda_<family>.h, .c     the kernel type, access to the list, rejections as sentences: plain C, in libmoxie
 *     cuda_<family>_args.h    a launcher's arguments, with device pointers: plain C that CUDA C++ includes, too
 *     <family>_*.cu           kernels and their launchers, in libmoxie_cuda
 * So plans are chosen, explained and measured without a CUDA header, and the first two without a GPU. Host code reaches
 * a kernel's launcher through the launch table (cuda_table.h), at the kernel's position in the .def.
 */
#ifndef MOX_CUDA_CUDA_KERNEL_H
#define MOX_CUDA_CUDA_KERNEL_H

#include "cpu/kernel.h"
#include "cuda/cuda_features.h"

typedef struct mox_cuda_kernel {
    mox_kernel base;  /* isa has no meaning here */
    uint32_t needs;   /* flags of cuda_features.h */
    int32_t launcher; /* position in its family's part of the launch table */
} mox_cuda_kernel;

/* The part that every admit() has in common: `device` has the flags, and class TOL only in fast mode. */
bool mox_cuda_kernel_admit(const mox_cuda_kernel *kernel, const mox_cuda_features *device, moxie_mode mode,
                           mox_rejection *why);

/* What a plan and `moxie info` print in place of an instruction set: "cuda", "cuda wgmma bulk_copy". */
const char *mox_cuda_kernel_needs(const mox_cuda_kernel *kernel);

#endif
