/* SPDX-License-Identifier: Apache-2.0
 *
 * amx_floats_amx.c - row amx_bf16 for weights that are floats of 6 and 8 bits (amx_multiply.h).
 */
#if defined(__AMX_BF16__) && defined(__AVX512VBMI__) && defined(__AVX512FP16__)

#include "cpu/expert_gemm/amx/amx_multiply.h"

MOX_AMX_FORM(mox_amx_times_zipped, MOXIE_F8_E4M3, false, MOX_AMX_DRAINED)
MOX_AMX_FORM(mox_amx_times_zipped_e8m0, MOXIE_F8_E4M3, false, MOX_AMX_FOLD_E8M0)
MOX_AMX_FORM(mox_amx_times_planes, MOXIE_F6_E3M2, false, MOX_AMX_DRAINED)
MOX_AMX_FORM(mox_amx_times_planes_e8m0, MOXIE_F6_E3M2, false, MOX_AMX_FOLD_E8M0)

#endif
