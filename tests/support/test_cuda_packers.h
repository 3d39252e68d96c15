/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_packers.h - packers of a launch table without a GPU: every 16 bytes of a record one after the other, by the
 * formulas that kernels use, too (cuda/pack/pack_unit.h). Where MOX_TEST_EMULATED is defined, the kernels themselves on
 * the emulator.
 */
#ifndef TEST_CUDA_PACKERS_H
#define TEST_CUDA_PACKERS_H

#include "cuda/cuda_table.h"
#include "cuda/pack/pack_unit.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Adds them to a table; `record` is called for every call, and may make it fail. */
void test_cuda_pack_fill(mox_cuda_table *table, moxie_status (*record)(const char *name, moxie_error *error));
/* The packer of an order on the emulator (gpu_emulator/emulated_gemm.cpp). */
moxie_status test_emulated_pack(const mox_cuda_pack_args *args, mox_pack_order order, moxie_error *error);

#ifdef __cplusplus
}
#endif

#endif
