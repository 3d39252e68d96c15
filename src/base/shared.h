/* SPDX-License-Identifier: Apache-2.0
 *
 * shared.h - marks functions and tables that both the host and CUDA kernels compile, so that a formula whose bits
 * matter is written once:
 *
 *     MOX_SHARED float mox_exp(float x) { ... }           one IEEE operation at a time; host and device give equal bits
 *     MOX_SHARED_CONST struct numbers table = { ... };
 *
 * Such a header is plain C that is valid C++20, too: designators in order, no compound literals of arrays, no restrict.
 * Neither compiler may fuse a product and a sum (-ffp-contract=off, -fmad=false).
 */
#ifndef MOX_BASE_SHARED_H
#define MOX_BASE_SHARED_H

#ifdef __CUDACC__
#define MOX_SHARED       static __device__ inline
#define MOX_SHARED_CONST static __device__ const
#else
#define MOX_SHARED       static inline
#define MOX_SHARED_CONST static const
#endif

#endif
