/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_int_dot_avxvnni.c - row avx2_fma over 4-bit codes in integers, on processors with AVX-VNNI
 * (int_dot_avx2.h).
 */
#include "cpu/expert_gemm/panel_kernel.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include "cpu/expert_gemm/avx2/int_dot_avx2.h"

#ifdef __AVXVNNI__

static void all(const mox_ymm_job *job)
{
    mox_ymm_int_dot_all(job);
}

const mox_ymm_int_dot_fn mox_ymm_int_dot_avxvnni = all;

#else

const mox_ymm_int_dot_fn mox_ymm_int_dot_avxvnni = NULL;

#endif
#endif
