/* SPDX-License-Identifier: Apache-2.0
 *
 * amx_bytes_amx.c - kernel amx_bf16 for weights that are integers of 8 bits, and for weights of bf16, which need no
 * decoding. amx_multiply.h holds the code; this file only instantiates it, so that formats compile side by side.
 */
#if defined(__AMX_BF16__) && defined(__AVX512VBMI__) && defined(__AVX512FP16__)

#include "cpu/expert_gemm/amx/amx_multiply.h"

MOX_AMX_VARIANT(mox_amx_times_pairs, MOXIE_BF16, false, MOX_AMX_SCALE_PER_SEGMENT)
MOX_AMX_VARIANT(mox_amx_times_i8, MOXIE_I8, false, MOX_AMX_SCALE_PER_SEGMENT_F16)
MOX_AMX_VARIANT(mox_amx_times_i8_zeros, MOXIE_I8, true, MOX_AMX_SCALE_PER_SEGMENT)
MOX_AMX_VARIANT(mox_amx_times_u8b128, MOXIE_U8B128, false, MOX_AMX_SCALE_PER_SEGMENT_F16)
MOX_AMX_VARIANT(mox_amx_times_u8b128_zeros, MOXIE_U8B128, true, MOX_AMX_SCALE_PER_SEGMENT)

#endif
