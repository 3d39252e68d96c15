/* SPDX-License-Identifier: Apache-2.0
 *
 * amx_zeros_amx.c - kernel amx_bf16 for weights of 4 bits with zero points. amx_multiply.h holds the code; this file
 * only instantiates it, so that formats compile side by side.
 */
#if defined(__AMX_BF16__) && defined(__AVX512VBMI__) && defined(__AVX512FP16__)

#include "cpu/expert_gemm/amx/amx_multiply.h"

MOX_AMX_INT_DOT_VARIANT(mox_amx_times_i4_zeros, MOXIE_I4, true, MOX_AMX_SCALE_PER_SEGMENT)
MOX_AMX_INT_DOT_VARIANT(mox_amx_times_u4b8_zeros, MOXIE_U4B8, true, MOX_AMX_SCALE_PER_SEGMENT)

#endif
