/* SPDX-License-Identifier: Apache-2.0
 *
 * amx_floats_amx.c - kernel amx_bf16 for weights that are floats of 6 and 8 bits. amx_multiply.h holds the code; this
 * file only instantiates it, so that formats compile side by side.
 */
#if defined(__AMX_BF16__) && defined(__AVX512VBMI__) && defined(__AVX512FP16__)

#include "cpu/expert_gemm/amx/amx_multiply.h"

MOX_AMX_VARIANT(mox_amx_times_zipped, MOXIE_F8_E4M3, false, MOX_AMX_SCALE_PER_SEGMENT)
MOX_AMX_VARIANT(mox_amx_times_zipped_e8m0, MOXIE_F8_E4M3, false, MOX_AMX_E8M0_IN_WEIGHT)
MOX_AMX_VARIANT(mox_amx_times_planes, MOXIE_F6_E3M2, false, MOX_AMX_SCALE_PER_SEGMENT)
MOX_AMX_VARIANT(mox_amx_times_planes_e8m0, MOXIE_F6_E3M2, false, MOX_AMX_E8M0_IN_WEIGHT)

#endif
