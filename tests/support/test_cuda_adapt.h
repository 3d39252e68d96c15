/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_adapt.h - what launchers of family lora and glu compute, for the launch table without a GPU.
 * Where MOX_TEST_EMULATED is defined the kernels' own sources run on the emulator, and lora's bytes are compared with
 * the host's scalar kernel.
 */
#ifndef TEST_CUDA_ADAPT_H
#define TEST_CUDA_ADAPT_H

#include "cuda/cuda_table.h"

moxie_status test_cuda_lora(const mox_lora_args *args, moxie_error *error);
/* The host's scalar kernel of glu. */
void test_cuda_glu(const mox_glu_args *args);

#endif
