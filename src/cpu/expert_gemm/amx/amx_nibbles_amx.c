/* SPDX-License-Identifier: Apache-2.0
 *
 * amx_nibbles_amx.c - kernel amx_bf16 for weights of 4 bits without zero points. amx_multiply.h holds the code; this
 * file only instantiates it, so that formats compile side by side.
 */
#if defined(__AMX_BF16__) && defined(__AVX512VBMI__) && defined(__AVX512FP16__)

#include "cpu/expert_gemm/amx/amx_multiply.h"

MOX_AMX_INT_DOT_VARIANT(mox_amx_times_nibbles, MOXIE_F4_E2M1, false, MOX_AMX_SCALE_PER_SEGMENT)
MOX_AMX_INT_DOT_VARIANT(mox_amx_times_nibbles_e8m0, MOXIE_F4_E2M1, false, MOX_AMX_E8M0_IN_WEIGHT)
MOX_AMX_VARIANT(mox_amx_times_nibbles_e4m3, MOXIE_F4_E2M1, false, MOX_AMX_E4M3_IN_WEIGHT)

#endif
