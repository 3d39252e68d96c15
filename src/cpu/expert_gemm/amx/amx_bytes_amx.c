/* SPDX-License-Identifier: Apache-2.0
 *
 * amx_bytes_amx.c - row amx_bf16 for integers of 8 bits, and bf16 as it is (amx_multiply.h).
 */
#if defined(__AMX_BF16__) && defined(__AVX512VBMI__) && defined(__AVX512FP16__)

#include "cpu/expert_gemm/amx/amx_multiply.h"

MOX_AMX_FORM(mox_amx_times_pairs, MOXIE_BF16, false, MOX_AMX_DRAINED)
MOX_AMX_FORM(mox_amx_times_i8, MOXIE_I8, false, MOX_AMX_DRAINED_HALF)
MOX_AMX_FORM(mox_amx_times_i8_zeros, MOXIE_I8, true, MOX_AMX_DRAINED)
MOX_AMX_FORM(mox_amx_times_u8b128, MOXIE_U8B128, false, MOX_AMX_DRAINED_HALF)
MOX_AMX_FORM(mox_amx_times_u8b128_zeros, MOXIE_U8B128, true, MOX_AMX_DRAINED)

#endif
