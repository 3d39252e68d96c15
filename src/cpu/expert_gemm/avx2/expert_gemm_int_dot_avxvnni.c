/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_int_dot_avxvnni.c - the integer products of kernels avx2_fma and avx2_bytes (int_dot_avx2.h), compiled
 * for processors with AVX-VNNI: VPDPBUSD multiplies and adds four bytes in one instruction.
 */
#include "cpu/expert_gemm/avx2/avx2_plan.h"

#ifdef __AVXVNNI__

#include "cpu/expert_gemm/avx2/int_dot_avx2.h"

static void all(const mox_ymm_job *job)
{
    mox_ymm_int_dot_all(job);
}

const mox_ymm_int_dot_fn mox_ymm_int_dot_avxvnni = all;

#else

const mox_ymm_int_dot_fn mox_ymm_int_dot_avxvnni = NULL;

#endif
