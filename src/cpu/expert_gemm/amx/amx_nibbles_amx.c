/* SPDX-License-Identifier: Apache-2.0
 *
 * amx_nibbles_amx.c - row amx_bf16 for weights of 4 bits (amx_multiply.h).
 */
#if defined(__AMX_BF16__) && defined(__AVX512VBMI__) && defined(__AVX512FP16__)

#include "cpu/expert_gemm/amx/amx_multiply.h"

MOX_AMX_DIGITS_FORM(mox_amx_times_nibbles, MOXIE_F4_E2M1, false, MOX_AMX_DRAINED)
MOX_AMX_DIGITS_FORM(mox_amx_times_nibbles_e8m0, MOXIE_F4_E2M1, false, MOX_AMX_FOLD_E8M0)
MOX_AMX_FORM(mox_amx_times_nibbles_e4m3, MOXIE_F4_E2M1, false, MOX_AMX_FOLD_E4M3)

#endif
