/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_digits_avxvnni.c - row avx2_fma over 4-bit codes in integers, on processors with AVX-VNNI
 * (panel_digits_avx2.h).
 */
#include "cpu/expert_gemm/panel_kernel.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include "cpu/expert_gemm/avx2/panel_digits_avx2.h"

#ifdef __AVXVNNI__

static void all(const mox_ymm_job *job)
{
    mox_digits_all(job);
}

const mox_digits_fn mox_digits_avxvnni = all;

#else

const mox_digits_fn mox_digits_avxvnni = NULL;

#endif
#endif
