/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_amx.c - kernel amx_bf16: weights of any format, decoded to bf16 tiles between the tile products that use
 * them. This file lists its variants; amx_plan.c chooses one.
 *
 *     step      A tile [rows, 32 columns] x B tile [16 pair lines of a panel] -> C tile [rows, 16] f32
 *     segment   C from zero over its steps, stored, then  sum[r] = fma(C[r] * sa[r], sw, sum[r])  in vector registers
 *
 * Storing a tile takes as long as multiplying one. So scales that leave codes exact in bf16 (E8M0, and E4M3 of f4_e2m1)
 * are multiplied into the decoded weights, and C stays in its tile along the whole row. Other scales end segments.
 *
 *     B lines   codes -> registers -> a ring of 4 steps in the first-level cache -> B tile; bf16 weights are loaded
 *               from the record
 *
 *     amx_job.h       what a call works on              amx_job_amx.c   ... and how it is set up
 *     amx_lines.h     codes to B lines                  amx_int_dot.h   few rows times 4 bits, in integers
 *     amx_segments.h  narrow, tall: short segments      amx_square.h    long segments
 *     amx_multiply.h  a format's product                amx_*_amx.c     its instances
 *
 * All strategies are the same arithmetic (SCALE_IN_WEIGHT, panel_kernel.h).
 */
#include "cpu/expert_gemm/amx/amx_plan.h"

#if defined(__AMX_BF16__) && defined(__AVX512VBMI__) && defined(__AVX512FP16__)

#include "cpu/expert_gemm/amx/amx_variants.h"

static const mox_amx_format formats[] = {
    { MOXIE_BF16, false, MOX_AMX_SCALE_PER_SEGMENT, mox_amx_times_pairs, NULL, NULL },
    { MOXIE_F8_E4M3, false, MOX_AMX_SCALE_PER_SEGMENT, mox_amx_times_zipped, mox_amx_times_zipped_e8m0, NULL },
    { MOXIE_F8_E5M2, false, MOX_AMX_SCALE_PER_SEGMENT, mox_amx_times_zipped, mox_amx_times_zipped_e8m0, NULL },
    { MOXIE_F6_E3M2, false, MOX_AMX_SCALE_PER_SEGMENT, mox_amx_times_planes, mox_amx_times_planes_e8m0, NULL },
    { MOXIE_F4_E2M1, false, MOX_AMX_SCALE_PER_SEGMENT, mox_amx_times_nibbles, mox_amx_times_nibbles_e8m0,
      mox_amx_times_nibbles_e4m3 },
    { MOXIE_I4, true, MOX_AMX_SCALE_PER_SEGMENT, mox_amx_times_i4_zeros, NULL, NULL },
    { MOXIE_U4B8, true, MOX_AMX_SCALE_PER_SEGMENT, mox_amx_times_u4b8_zeros, NULL, NULL },
    { MOXIE_I8, false, MOX_AMX_SCALE_PER_SEGMENT_F16, mox_amx_times_i8, NULL, NULL },
    { MOXIE_I8, true, MOX_AMX_SCALE_PER_SEGMENT, mox_amx_times_i8_zeros, NULL, NULL },
    { MOXIE_U8B128, false, MOX_AMX_SCALE_PER_SEGMENT_F16, mox_amx_times_u8b128, NULL, NULL },
    { MOXIE_U8B128, true, MOX_AMX_SCALE_PER_SEGMENT, mox_amx_times_u8b128_zeros, NULL, NULL },
};

const mox_amx_formats mox_amx_bf16_formats = { formats, sizeof formats / sizeof formats[0] };

#else

const mox_amx_formats mox_amx_bf16_formats = { NULL, 0 };

#endif
