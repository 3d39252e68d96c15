/* SPDX-License-Identifier: Apache-2.0
 *
 * amx_zeros_amx.c - row amx_bf16 for weights of 4 bits with zero points (amx_multiply.h).
 */
#if defined(__AMX_BF16__) && defined(__AVX512VBMI__) && defined(__AVX512FP16__)

#include "cpu/expert_gemm/amx/amx_multiply.h"

MOX_AMX_DIGITS_FORM(mox_amx_times_i4_zeros, MOXIE_I4, true, MOX_AMX_DRAINED)
MOX_AMX_DIGITS_FORM(mox_amx_times_u4b8_zeros, MOXIE_U4B8, true, MOX_AMX_DRAINED)

#endif
